"""The journal of a pack that is being written: one JSON line per row.

A line is written only after the bytes it points to, so a journal never speaks of bytes that are
not there. The last line may be torn; whatever stands before it is whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import UNSET

from msprobe_nb.errors import DamagedStoreError
from msprobe_nb.store import jsonsafe, layout
from msprobe_nb.store.rows import EdgeRow, HeadRow, NodeRow, Row, StackRow, TensorRow

_DECODER = msgspec.json.Decoder(Row)


@dataclass(slots=True)
class JournalContent:
    """The whole rows of a journal.

    Attributes
    ----------
    attributes : dict
    tensors, nodes, stacks, edges
        Rows in order.
    blob_size : int
        End of the last byte that a row points to.
    length : int
        Bytes of the journal up to the last whole, valid line.
    """

    attributes: dict[str, Any]
    tensors: list[TensorRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    stacks: list[list[str]] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    blob_size: int = 0
    length: int = 0


class Journal:
    """Appends rows; nothing reaches the file before :meth:`flush`."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file
        self._lines: list[bytes] = []

    @classmethod
    def create(cls, path: Path, attributes: dict[str, Any]) -> Journal:
        """Start a journal with its head line."""
        journal = cls(path, open(path, "wb"))  # noqa: SIM115
        journal._add(HeadRow(layout.VERSION, attributes))
        journal.flush()
        return journal

    @classmethod
    def reopen(cls, path: Path, content: JournalContent) -> Journal:
        """Go on after the last whole line."""
        file = open(path, "r+b")  # noqa: SIM115
        file.truncate(content.length)
        file.seek(content.length)
        return cls(path, file)

    def _add(self, row: Any) -> None:
        self._lines.append(layout.encode_json(row))

    def tensor(self, row: TensorRow) -> None:
        """Add a value."""
        safe: dict[str, Any] = {}
        if row.statistics is not UNSET and not _strict(row.statistics):
            safe["statistics"] = jsonsafe.replace(row.statistics)
        for key in ("checksum", "value", "detail"):
            value = getattr(row, key)
            if value is not None and value is not UNSET:
                safe[key] = jsonsafe.replace(value)
        self._add(msgspec.structs.replace(row, **safe) if safe else row)

    def node(self, row: NodeRow) -> None:
        """Add a call."""
        self._add(row)

    def stack(self, frames: list[str]) -> None:
        """Add a distinct call stack."""
        self._add(StackRow(frames))

    def edge(self, producer: int, consumer: int) -> None:
        """Add an edge."""
        self._add(EdgeRow(producer, consumer))

    def flush(self) -> None:
        """Hand all lines to the operating system."""
        if self._lines:
            self._file.write(b"\n".join(self._lines) + b"\n")
            self._lines.clear()
        self._file.flush()

    def close(self) -> None:
        """Flush and close; the file stays."""
        self.flush()
        self._file.close()

    def remove(self) -> None:
        """Close and delete the file: the pack is complete."""
        self._file.close()
        self.path.unlink()

    @staticmethod
    def read(raw: bytes, available: int, where: str = "journal") -> JournalContent:
        """The rows of a journal whose bytes stand within the first `available` bytes of the blob.

        Raises
        ------
        DamagedStoreError
            Not even the head line is readable, or a newer version wrote it.
        """
        content: JournalContent | None = None
        for line in raw.splitlines(keepends=True):
            try:
                row = _decode(line)
            except (msgspec.MsgspecError, ValueError):
                break
            if not line.endswith(b"\n"):
                break
            if content is None:
                if not isinstance(row, HeadRow) or row.version > layout.VERSION:
                    break
                content = JournalContent(row.attributes)
            elif not _take(content, row, available):
                break
            content.length += len(line)
        if content is None:
            raise DamagedStoreError(
                "the journal has no readable head",
                file=where,
                remedy="The recording was stopped before it began; delete this folder",
            )
        return content


def _decode(line: bytes) -> Row:
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:  # a torn line, or one with lone surrogates
        return layout.decode_json(line, Row)


def _strict(statistics: list[Any]) -> bool:
    """Whether strict JSON can hold these numbers as they are."""
    try:
        return math.isfinite(sum(statistics))
    except (TypeError, OverflowError):
        return False


def _take(content: JournalContent, row: Row, available: int) -> bool:
    """Add a row; False when it points to what is not there."""
    if isinstance(row, TensorRow):
        end = row.byte_offset + row.byte_count
        if end > available or not 0 <= row.node < len(content.nodes):
            return False
        content.blob_size = max(content.blob_size, end)
        for key in ("statistics", "checksum", "value", "detail"):
            setattr(row, key, jsonsafe.restore(getattr(row, key)))
        content.tensors.append(row)
    elif isinstance(row, NodeRow):
        content.nodes.append(row)
    elif isinstance(row, StackRow):
        content.stacks.append(row.frames)
    elif isinstance(row, EdgeRow):
        content.edges.append((row.producer, row.consumer))
    return True
