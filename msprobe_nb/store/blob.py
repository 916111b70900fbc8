"""The bytes of a pack: its writer appends them to shard files, readers ask by position."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from msprobe_nb.errors import TensorReadError
from msprobe_nb.store import layout
from msprobe_nb.store.sources import Source

_BUFFER_BYTES = 4 << 20
_ZEROS = bytes(layout.ALIGNMENT)


class BlobWriter:
    """Appends bytes to the shard files of a pack's blob."""

    def __init__(self, folder: Path, size: int = 0) -> None:
        self.folder = folder / "c"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.size = size
        self._file: Any = None
        self._drop_surplus()

    def _drop_surplus(self) -> None:
        """Delete shards that begin after the last byte that counts."""
        for path in self.folder.iterdir():
            shard = path.name.removesuffix(layout.PARTIAL)
            if shard.isdigit() and int(shard) * layout.SHARD_BYTES >= self.size:
                path.unlink()

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


def blob_size(blob: Path) -> int:
    """Bytes that stand in a blob's shard files, finished or not."""
    return layout.bytes_in_shards(
        {path.name: path.stat().st_size for path in (blob / "c").glob("*")}
    )


class Blob:
    """The bytes of a pack by position, whatever shard, compression or file they stand in."""

    def __init__(self, source: Source, complete: bool) -> None:
        self.source, self.complete = source, complete
        self._tables: dict[int, np.ndarray] = {}

    @cached_property
    def _compressed(self) -> bool:
        if not self.complete:
            return False
        codecs = msgspec.json.decode(self.source.read(f"blob/{layout.GROUP}"))["codecs"]
        return len(codecs[0]["configuration"]["codecs"]) > 1

    def read(self, start: int, count: int) -> np.ndarray:
        """`count` bytes from `start` as uint8; raises `TensorReadError` when they are not there."""
        if count == 0:
            return np.empty(0, np.uint8)
        shard, offset = divmod(start, layout.SHARD_BYTES)
        try:
            if self._compressed:
                return self._decompress(start, count)
            if offset + count <= layout.SHARD_BYTES:
                return self.source.read_range(self._file(shard), offset, count)
            parts = []
            while count:
                size = min(count, layout.SHARD_BYTES - offset)
                parts.append(self.source.read_range(self._file(shard), offset, size))
                shard, offset, count = shard + 1, 0, count - size
            return np.concatenate(parts)
        except FileNotFoundError as error:
            raise TensorReadError("a data file is missing") from error

    def _file(self, shard: int) -> str:
        path = f"blob/c/{shard}"
        if self.complete or self.source.exists(path):
            return path
        return path + layout.PARTIAL

    def _table(self, shard: int) -> np.ndarray:
        """(offset, length) of each chunk of a shard."""
        if shard not in self._tables:
            path = self._file(shard)
            size = layout.CHUNKS_PER_SHARD * 16
            end = self.source.size(path)
            if end is None or end < size + 4:
                raise TensorReadError("a data file is missing or cut off")
            stored = self.source.read_range(path, end - size - 4, size + 4).tobytes()
            try:
                raw = layout.without_checksum(stored)
            except ValueError:
                raise TensorReadError("the index of a data file is damaged") from None
            self._tables[shard] = np.frombuffer(raw, "<u8").reshape(-1, 2)
        return self._tables[shard]

    def _decompress(self, start: int, count: int) -> np.ndarray:
        from numcodecs import Zstd

        decode = Zstd().decode
        parts = []
        first, last = start // layout.CHUNK_BYTES, (start + count - 1) // layout.CHUNK_BYTES
        for chunk in range(first, last + 1):
            shard, at = divmod(chunk, layout.CHUNKS_PER_SHARD)
            offset, length = (int(n) for n in self._table(shard)[at])
            if offset == layout.EMPTY_CHUNK:
                parts.append(np.zeros(layout.CHUNK_BYTES, np.uint8))
                continue
            packed = self.source.read_range(self._file(shard), offset, length)
            try:
                parts.append(np.frombuffer(decode(packed), np.uint8))
            except RuntimeError as error:
                raise TensorReadError("a compressed block is damaged") from error
        skip = start - first * layout.CHUNK_BYTES
        return np.concatenate(parts)[skip : skip + count]
