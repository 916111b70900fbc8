"""Writing a run: one :class:`PackWriter` per (step, rank), never shared.

Order of writing, which makes a killed writer lose nothing that was flushed:

1. tensor bytes are appended to ``blob/c/<k>.partial``;
2. every 32 MB, and on :meth:`PackWriter.flush`, the bytes are flushed and only then the rows that
   point to them are appended to ``journal.jsonl``;
3. :meth:`PackWriter.close` ends the shard, writes the index arrays, then ``zarr.json`` of the
   pack, and deletes the journal. A pack without its ``zarr.json`` is not complete.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from msprobe_nb.errors import PathNotFoundError, UsageError
from msprobe_nb.store import layout
from msprobe_nb.store.dtypes import storage_name
from msprobe_nb.store.index import Index, Nodes
from msprobe_nb.store.journal import Journal
from msprobe_nb.store.rows import NodeRow, TensorRow

FLUSH_BYTES = 32 << 20
_BUFFER_BYTES = 4 << 20
_ZEROS = bytes(layout.ALIGNMENT)


class BlobWriter:
    """Appends bytes to the shard files of a pack's blob."""

    def __init__(self, folder: Path, size: int = 0) -> None:
        self.folder = folder / "c"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.size = size
        self._file: Any = None

    def append(self, data: memoryview) -> int:
        """Write `data` at the next aligned position and return that position."""
        self._emit(memoryview(_ZEROS)[: -self.size % layout.ALIGNMENT])
        at = self.size
        self._emit(data)
        return at

    def _emit(self, data: memoryview) -> None:
        while len(data):
            if self._file is None:
                self._open()
            room = layout.SHARD_BYTES - self.size % layout.SHARD_BYTES
            part = data[:room]
            self._file.write(part)
            self.size += len(part)
            data = data[len(part) :]
            if self.size % layout.SHARD_BYTES == 0:
                self._end_shard()

    def _open(self) -> None:
        shard, used = divmod(self.size, layout.SHARD_BYTES)
        path = self.folder / f"{shard}{layout.PARTIAL}"
        if (self.folder / str(shard)).exists():  # ended, but its pack was not completed
            os.replace(self.folder / str(shard), path)
        self._file = open(path, "r+b" if path.exists() else "w+b", _BUFFER_BYTES)  # noqa: SIM115
        self._file.truncate(used)
        self._file.seek(used)

    def _end_shard(self) -> None:
        used = (self.size - 1) % layout.SHARD_BYTES + 1
        chunks = -(-used // layout.CHUNK_BYTES)
        self._file.seek(chunks * layout.CHUNK_BYTES - used, os.SEEK_CUR)  # leaves a hole of zeros
        self._file.write(layout.shard_table([layout.CHUNK_BYTES] * chunks))
        name = self._file.name
        self.abandon()
        os.replace(name, name.removesuffix(layout.PARTIAL))

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """End the last shard and write the array's metadata."""
        if self._file is None and self.size % layout.SHARD_BYTES:
            self._open()
        if self._file is not None:
            self._end_shard()
        metadata = layout.encode_json(layout.blob_metadata(self.size))
        layout.write_atomic(self.folder.parent / layout.GROUP, metadata)

    def abandon(self) -> None:
        """Close the file without ending the shard."""
        if self._file is not None:
            self._file.close()
            self._file = None


class PackWriter:
    """Writes what one rank records in one step.

    Parameters
    ----------
    path : path
        Folder ``<run>/step<N>/rank<R>``; must not hold a pack yet.
    attributes : dict
        JSON-ready facts of the pack, such as task and level; ``step`` and ``rank`` are taken from
        the path when absent.
    dedupe : bool
        Store equal bytes once, found by content hash (or by `identity`, which is cheaper).

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from msprobe_nb.store import PackWriter
    >>> folder = tempfile.mkdtemp()
    >>> with PackWriter(f"{folder}/step0/rank0", {"task": "tensor"}) as pack:
    ...     node = pack.add_node("Torch.relu.0.forward")
    ...     row = pack.add(node, "output.0", np.ones(3, np.float32))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        attributes: dict[str, Any] | None = None,
        *,
        dedupe: bool = True,
    ) -> None:
        self.path = Path(path)
        if (self.path / layout.GROUP).exists() or (self.path / layout.JOURNAL).exists():
            raise UsageError(
                "a recording already stands here",
                file=self.path,
                remedy="Choose another folder, or delete this one",
            )
        self._start(attributes or {}, dedupe)
        self._journal = Journal.create(self.path / layout.JOURNAL, self.attributes)

    def _start(self, attributes: dict[str, Any], dedupe: bool) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.attributes = attributes
        self.dedupe = dedupe
        self.blob = BlobWriter(self.path / "blob")
        self.tensors: list[TensorRow] = []
        self.nodes: list[NodeRow] = []
        self.stacks: list[list[str]] = []
        self.edges: list[tuple[int, int]] = []
        self._stack_of: dict[tuple[str, ...], int] = {}
        self._place_of: dict[Hashable, int] = {}
        self._pending = 0
        self.closed = False

    @classmethod
    def resume(cls, path: str | os.PathLike[str], *, dedupe: bool = True) -> PackWriter:
        """Go on with a pack whose writer died; everything that was flushed is kept.

        Raises
        ------
        PathNotFoundError
            There is no unfinished pack.
        """
        self = cls.__new__(cls)
        self.path = Path(path)
        journal = self.path / layout.JOURNAL
        if not journal.exists():
            raise PathNotFoundError("no unfinished recording stands here", file=self.path)
        content = Journal.read(journal.read_bytes(), blob_size(self.path / "blob"))
        self._start(content.attributes, dedupe)
        self.tensors, self.nodes = content.tensors, content.nodes
        self.stacks, self.edges = content.stacks, content.edges
        self._stack_of = {tuple(frames): at for at, frames in enumerate(self.stacks)}
        self.blob = BlobWriter(self.path / "blob", content.blob_size)
        self._journal = Journal.reopen(journal, content)
        return self

    # ------------------------------------------------------------ adding

    def add_node(self, name: str, *, stack: Sequence[str] | None = None, **facts: Any) -> int:
        """Add a call and return its row.

        Parameters
        ----------
        name : str
            Official node name.
        stack : sequence of str, optional
            Call stack, innermost frame first.
        **facts
            Further fields of :class:`~msprobe_nb.store.rows.NodeRow`: ``parent``, ``micro_step``,
            ``recompute``, ``recorded``, ``structure``.
        """
        row = NodeRow(name, stack=-1 if stack is None else self.add_stack(stack), **facts)
        self.nodes.append(row)
        self._journal.node(row)
        return len(self.nodes) - 1

    def add_stack(self, frames: Sequence[str]) -> int:
        """Add a call stack, innermost frame first, unless it is known; return its row."""
        key = tuple(frames)
        at = self._stack_of.setdefault(key, len(self.stacks))
        if at == len(self.stacks):
            self.stacks.append(list(key))
            self._journal.stack(self.stacks[at])
        return at

    def add(
        self,
        node: int,
        slot: str,
        data: np.ndarray | None = None,
        *,
        identity: Hashable = None,
        **facts: Any,
    ) -> int:
        """Add one value of a call and return its row.

        Parameters
        ----------
        node : int
            Row from :meth:`add_node`.
        slot : str
            Such as ``input.0``; empty when the node itself is the value (``debug``).
        data : ndarray, optional
            The values; any shape, any dtype of :mod:`.dtypes`. Without data only the facts are
            recorded.
        identity : hashable, optional
            Equal for two calls only if the bytes are equal (storage address and version, say):
            the second is then not even hashed.
        **facts
            Further fields of :class:`~msprobe_nb.store.rows.TensorRow`.
        """
        name = f"{self.nodes[node].name}.{slot}" if slot else self.nodes[node].name
        row = TensorRow(name, node, slot, **facts)
        if data is not None:
            self._store(row, data, identity)
        self.tensors.append(row)
        self._journal.tensor(row)
        if self._pending >= FLUSH_BYTES:
            self.flush()
        return len(self.tensors) - 1

    def _store(self, row: TensorRow, data: np.ndarray, identity: Hashable) -> None:
        little = data.astype(data.dtype.newbyteorder("<"), copy=False)
        plain = np.ascontiguousarray(little)
        raw = plain.reshape(-1).view(np.uint8) if plain.size else np.empty(0, np.uint8)
        row.storage_dtype = storage_name(plain.dtype)
        row.shape = data.shape
        row.dtype = row.dtype or row.storage_dtype
        row.byte_count = raw.size
        key = identity
        if key is None and self.dedupe and raw.size:
            key = blake2b(raw.data, digest_size=16).digest()
        known = None if key is None else self._place_of.get(key)
        if known is None:
            known = self.blob.append(raw.data)
            self._pending += raw.size
            if key is not None:
                self._place_of[key] = known
        row.byte_offset = known

    def add_edge(self, producer: int, consumer: int) -> None:
        """Record that row `consumer` read the very values that row `producer` made."""
        self.edges.append((producer, consumer))
        self._journal.edge(producer, consumer)

    # ------------------------------------------------------------ ending

    def flush(self) -> None:
        """Make everything added so far survive the death of this process."""
        self.blob.flush()
        self._journal.flush()
        self._pending = 0

    def close(self) -> None:
        """Complete the pack."""
        if self.closed:
            return
        from msprobe_nb.store.finish import write_index

        self.flush()
        self.blob.close()
        attributes = write_index(self)
        layout.write_atomic(self.path / layout.GROUP, layout.group_metadata(attributes))
        self._journal.remove()
        self.closed = True

    def abandon(self) -> None:
        """Flush and let go without completing, as after an interrupt; :meth:`resume` goes on."""
        self.flush()
        self.blob.abandon()
        self._journal.close()
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class RunWriter:
    """Creates a run and its packs. Every rank of a job may build one on the same path.

    Parameters
    ----------
    path : path
        Folder of the run, by custom ending in ``.zarr``.
    attributes : dict
        JSON-ready facts of the run: ``framework``, ``task``, ``level``, ``world_size`` ...
        Whoever comes first writes them.
    """

    def __init__(
        self, path: str | os.PathLike[str], attributes: dict[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        root = {
            "format": layout.RUN_FORMAT,
            "version": layout.VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **(attributes or {}),
        }
        layout.create_once(self.path / layout.GROUP, layout.group_metadata(root))

    def pack(
        self, step: int, rank: int, attributes: dict[str, Any] | None = None, *, dedupe: bool = True
    ) -> PackWriter:
        """A writer for one (step, rank)."""
        if min(step, rank) < 0:
            raise UsageError(f"step {step} and rank {rank} must not be negative")
        folder, facts = self._place(step, rank, attributes)
        return PackWriter(folder, facts, dedupe=dedupe)

    def add_pack(
        self,
        step: int,
        rank: int,
        index: Index,
        nodes: Nodes,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Write a whole pack at once from columns; only for recordings without tensor data."""
        from msprobe_nb.store.finish import write_pack

        folder, facts = self._place(step, rank, attributes)
        write_pack(folder, index, nodes, facts)

    def _place(
        self, step: int, rank: int, attributes: dict[str, Any] | None
    ) -> tuple[Path, dict[str, Any]]:
        """Folder and attributes of a pack; writes the group of its step."""
        folder = self.path / f"step{step}"
        folder.mkdir(exist_ok=True)
        layout.create_once(folder / layout.GROUP, layout.group_metadata({"step": step}))
        return folder / f"rank{rank}", {"step": step, "rank": rank, **(attributes or {})}


def blob_size(blob: Path) -> int:
    """Bytes that stand in a blob's shard files, finished or not."""
    shards = list((blob / "c").glob("*")) if blob.exists() else []
    partial = [path for path in shards if path.name.endswith(layout.PARTIAL)]
    whole = [path for path in shards if path.name.isdigit()]
    if partial:
        return len(whole) * layout.SHARD_BYTES + partial[0].stat().st_size
    if not whole:
        return 0
    # The writer died between ending the last shard and writing the index.
    last = max(whole, key=lambda path: int(path.name))
    table = layout.CHUNKS_PER_SHARD * 16 + 4
    return (len(whole) - 1) * layout.SHARD_BYTES + last.stat().st_size - table


def recover(path: str | os.PathLike[str]) -> int:
    """Complete a pack whose writer died, keeping everything that was flushed.

    Returns
    -------
    int
        Number of rows kept.
    """
    writer = PackWriter.resume(path)
    writer.close()
    return len(writer.tensors)
