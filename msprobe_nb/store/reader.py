"""Reading one pack of a run store: complete, still being written, or left by a crash.

Only ``zarr.json`` is read at once; the index on first use; tensor bytes when a tensor is wanted.
An unfinished pack is read from its journal, without locks, while its writer may still run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from msprobe_nb.errors import (
    DamagedStoreError,
    FormatError,
    MsProbeError,
    PathNotFoundError,
    TensorReadError,
)
from msprobe_nb.store import layout
from msprobe_nb.store.blob import Blob
from msprobe_nb.store.decode import densify
from msprobe_nb.store.dtypes import storage_dtype
from msprobe_nb.store.index import Index, Nodes
from msprobe_nb.store.journal import Journal, JournalContent
from msprobe_nb.store.pack import Pack, PackInfo
from msprobe_nb.store.rows import COMPONENT, NO_DATA
from msprobe_nb.store.sources import Source
from msprobe_nb.store.tables import (
    Records,
    TensorTable,
    is_component,
    nodes_of,
    records_of,
    table_of,
)

_BROKEN = (msgspec.MsgspecError, ValueError, KeyError, IndexError, TypeError, FileNotFoundError)
_READ_AHEAD, _GAP = 64 << 20, 1 << 20  # limits within which neighbours are read together
_DAMAGED = "Copy this pack again; the other packs of the run are not affected"


class StorePack(Pack):
    """One (step, rank) of a run store.

    Parameters
    ----------
    source : Source
        The pack's folder.
    step, rank : int
    """

    def __init__(self, source: Source, step: int, rank: int) -> None:
        self.source, self.step, self.rank = source, step, rank
        self.where = source.url

    def __reduce__(self) -> tuple[Any, ...]:
        return StorePack, (self.source, self.step, self.rank)

    # ------------------------------------------------------------ head

    @cached_property
    def complete(self) -> bool:  # type: ignore[override]
        """Whether the writer completed the pack."""
        return self.source.exists(layout.GROUP)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the pack's group (of the journal's head while unfinished)."""
        if not self.complete:
            return self._journal.attributes
        try:
            found = layout.decode_json(self.source.read(layout.GROUP))["attributes"]
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(layout.GROUP, error) from None
        if not isinstance(found, dict) or found.get("format") != layout.PACK_FORMAT:
            raise DamagedStoreError(
                "the group is no pack of a run", file=self.source.where(layout.GROUP)
            )
        layout.check_version(found, self.where)
        return found

    @property
    def label(self) -> str:  # type: ignore[override]
        """Name of the folder the pack was imported from, or ``rank<R>``."""
        return str(self.attributes.get("label", f"rank{self.rank}"))

    @cached_property
    def info(self) -> PackInfo:
        head = self.attributes
        return PackInfo(head.get("task"), head.get("level"), head.get("framework"))

    @cached_property
    def notes(self) -> list[str]:
        """Findings of the import, and whether the recording is unfinished."""
        notes = [str(note) for note in self.attributes.get("notes", [])]
        if not self.complete:
            rows = len(self._journal.tensors)
            notes.append(f"{self.where}: unfinished recording, {rows} rows were flushed")
        return notes

    @cached_property
    def _journal(self) -> JournalContent:
        raw = self.source.read(layout.JOURNAL)
        sizes = {
            name: self.source.size(f"blob/c/{name}") or 0
            for name, _ in self.source.entries("blob/c")
        }
        return Journal.read(raw, layout.bytes_in_shards(sizes), self.source.where(layout.JOURNAL))

    def _damaged(self, name: str, error: object) -> MsProbeError:
        """The error for a broken part; one of ours already says what is wrong."""
        if isinstance(error, MsProbeError) and not isinstance(error, PathNotFoundError):
            return error
        return DamagedStoreError(
            f"the pack is damaged ({error!s:.120})", file=self.source.where(name), remedy=_DAMAGED
        )

    # ------------------------------------------------------------ index

    def _array(self, name: str, dtype: str, axes: int = 1) -> np.ndarray:
        """A small index array."""
        try:
            metadata = msgspec.json.decode(self.source.read(f"{name}/{layout.GROUP}"))
            shape = [int(n) for n in metadata["shape"]]
            if len(shape) != axes:
                raise ValueError(f"{len(shape)} axes, expected {axes}")
            if 0 in shape:
                return np.empty(shape, dtype)
            stored = self.source.read(f"{name}/c/{'/'.join('0' * axes)}")
            return np.frombuffer(layout.without_checksum(stored), dtype).reshape(shape)
        except _BROKEN as error:
            raise self._damaged(name, error) from None

    def _count(self, name: str) -> int:
        """Number of rows of an index array."""
        metadata = msgspec.json.decode(self.source.read(f"{name}/{layout.GROUP}"))
        return int(metadata["shape"][0])

    def _names(self) -> list[str]:
        try:
            if self._count("tensor") == 0:
                return []
            return layout.decode_strings(layout.without_checksum(self.source.read("tensor/c/0")))
        except _BROKEN as error:
            raise self._damaged("tensor", error) from None

    @cached_property
    def table(self) -> TensorTable:
        """All stored rows, components of compound tensors included."""
        if not self.complete:
            return table_of(self._journal.tensors, self._journal.edges)
        table = TensorTable(
            name=self._names(),
            byte_offset=self._array("byte_offset", "<i8"),
            byte_count=self._array("byte_count", "<i8"),
            statistics=self._array("statistics", "<f8", 2),
            facts=self._array("facts", "<i8", 2),
            dtypes=self._list("dtypes"),
            dtype_labels=self._list("dtype_labels"),
            types=self._list("types"),
        )
        try:
            table.check()
        except ValueError as error:
            raise self._damaged("", error) from None
        return table

    def _list(self, key: str) -> list[str]:
        return [str(text) for text in self.attributes.get(key, [])]

    @cached_property
    def _records(self) -> Records:
        if not self.complete:
            content = self._journal
            return records_of(content.nodes, content.stacks, content.tensors, self.table.exact)
        try:
            stored = self.source.read(f"{layout.RECORDS}/c/0")
            return layout.decode_json(layout.without_checksum(stored), Records)
        except _BROKEN as error:
            raise self._damaged(layout.RECORDS, error) from None

    @cached_property
    def _rows(self) -> np.ndarray:
        """Index row -> stored row: all but the components."""
        return np.flatnonzero(~is_component(self.table))

    @cached_property
    def index(self) -> Index:
        try:
            index = self.table.index(self._rows, self._records.tensors)
            if len(index) and not 0 <= int(index.node.min()) <= int(index.node.max()) < len(
                self._records.nodes.name
            ):
                raise ValueError("a tensor belongs to no call")
        except _BROKEN as error:
            raise self._damaged("", error) from None
        return index

    @cached_property
    def nodes(self) -> Nodes:
        try:
            return nodes_of(self._records)
        except _BROKEN as error:
            raise self._damaged(layout.RECORDS, error) from None

    @cached_property
    def edges(self) -> np.ndarray:
        """(producer row, consumer row) pairs, int64, shape (n, 2), in index rows."""
        producer = self.table.fact("producer")[self._rows]
        consumers = np.flatnonzero(producer >= 0)
        place = np.full(len(self.table.name), -1)
        place[self._rows] = np.arange(len(self._rows))
        return np.stack([place[producer[consumers]], consumers], axis=1)

    # ------------------------------------------------------------ values

    @cached_property
    def _blob(self) -> Blob:
        return Blob(self.source, self.complete)

    def nbytes(self) -> int:
        return self.source.total_size()

    def _load(self, row: int) -> np.ndarray:
        dense = self._plain(row)
        if dense is not None:
            return self._stored(dense)
        stored, detail = int(self._rows[row]), self.index.detail.get(row, {})
        array = self._stored(stored) if self.table.byte_offset[stored] != NO_DATA else None
        try:
            return densify(array, self.table.shape(stored), detail, self._components(stored))
        except TensorReadError as error:
            raise TensorReadError(
                error.what, file=self.where, key=self.index.name[row], remedy=error.remedy
            ) from None

    def _stored(self, stored: int) -> np.ndarray:
        """The array of one stored row."""
        shape, dtype = self._form(stored)
        start, count = int(self.table.byte_offset[stored]), int(self.table.byte_count[stored])
        return self._bytes(stored, start, count).view(dtype).reshape(shape)

    def _form(self, stored: int) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of a stored row."""
        table = self.table
        name, shape = table.name[stored], table.shape(stored)
        try:
            dtype = storage_dtype(table.dtypes[table.fact("dtype_code")[stored]])
        except (FormatError, IndexError) as error:
            what = error.what if isinstance(error, FormatError) else "it has no data type"
            raise TensorReadError(what, file=self.where, key=name, remedy=_DAMAGED) from None
        if math.prod(shape) * dtype.itemsize != table.byte_count[stored]:
            raise TensorReadError(
                "shape, dtype and size contradict each other",
                file=self.where,
                key=name,
                remedy=_DAMAGED,
            )
        return shape, dtype

    def _bytes(self, stored: int, start: int, count: int) -> np.ndarray:
        try:
            return self._blob.read(start, count)
        except MsProbeError as error:
            raise TensorReadError(
                error.what, file=self.where, key=self.table.name[stored], remedy=_DAMAGED
            ) from None

    def read_many(self, rows: Sequence[int]) -> list[np.ndarray | MsProbeError]:
        """Several tensors, in one read where they stand close together."""
        plain = {row: stored for row in rows if (stored := self._plain(row)) is not None}
        if len(plain) < 2:
            return super().read_many(rows)
        places = np.array(list(plain.values()), np.int64)
        starts, counts = self.table.byte_offset[places], self.table.byte_count[places]
        first, end = int(starts.min()), int((starts + counts).max())
        if end - first > min(_READ_AHEAD, 2 * int(counts.sum()) + _GAP):
            return super().read_many(rows)
        try:
            raw = self._blob.read(first, end - first)
        except Exception:  # whatever it is, it shows at the tensor it belongs to
            return super().read_many(rows)
        return self._each(rows, lambda row: self._cut(raw, first, row, plain.get(row)))

    def _cut(self, raw: np.ndarray, first: int, row: int, stored: int | None) -> np.ndarray:
        """A tensor out of bytes that were read from position `first` on."""
        if stored is None:
            return self.read(row)
        with self._reading(row):
            shape, dtype = self._form(stored)
            start = int(self.table.byte_offset[stored]) - first
            count = int(self.table.byte_count[stored])
            return raw[start : start + count].view(dtype).reshape(shape)

    def _plain(self, row: int) -> int | None:
        """The stored row of a tensor that is one dense array, else None."""
        stored = int(self._rows[row])
        dense = "layout" not in self.index.detail.get(row, {})
        return stored if dense and self.table.byte_offset[stored] != NO_DATA else None

    def layout_of(
        self, row: int, recorded: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...], np.dtype]:
        stored = self._plain(row)
        if stored is None:
            return super().layout_of(row, recorded)
        with self._reading(row):
            return self._form(stored)

    def read_part(self, row: int, key: tuple[Any, ...]) -> np.ndarray:
        """A selection; of the first axis only the wanted range is read."""
        with self._reading(row):
            return self._load_part(row, key)

    def _load_part(self, row: int, key: tuple[Any, ...]) -> np.ndarray:
        stored = self._plain(row)
        shape, dtype = self._form(stored) if stored is not None else ((), np.dtype("u1"))
        if stored is None or not shape or not key or 0 in shape:
            return self.read(row)[key]
        first, *rest = key
        if isinstance(first, slice):
            at = range(shape[0])[first]
            low, high = (min(at), max(at) + 1) if len(at) else (0, 0)
            inner: int | slice = slice(None, None, at.step)
        else:
            low = range(shape[0])[first]
            high, inner = low + 1, 0
        line = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        start = int(self.table.byte_offset[stored]) + low * line
        raw = self._bytes(stored, start, (high - low) * line)
        return raw.view(dtype).reshape(high - low, *shape[1:])[(inner, *rest)]

    def _components(self, stored: int) -> Callable[[str], np.ndarray]:
        """Reads the parts of a compound tensor, which follow it under ``<name>#<part>``."""

        def component(part: str) -> np.ndarray:
            name = f"{self.table.name[stored]}#{part}"
            kinds = self.table.fact("kind")
            for at in range(stored + 1, len(kinds)):
                if kinds[at] != COMPONENT:
                    break
                if self.table.name[at] == name:
                    return self._stored(at)
            raise TensorReadError(f"its part {part!r} is missing")

        return component
