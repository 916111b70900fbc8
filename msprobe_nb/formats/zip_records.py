"""The records of a ``.pt`` file: a zip archive whose members are stored uncompressed.

Only the directory at the end and the wanted members are read, so one tensor costs a single
read for small files and two or three for large ones. Reference: PKWARE's APPNOTE.
"""

from __future__ import annotations

import struct

import numpy as np

from msprobe_nb.errors import TensorReadError
from msprobe_nb.formats.torch_program import NeedsTorch
from msprobe_nb.store.sources import Source

_END = 1 << 18  # what is read first: the whole of a small file
_MEMBER = struct.Struct("<4s4xHH8xIIHHH8xI")  # the fields of a directory entry that matter here
_NAME_AT = _MEMBER.size


class Archive:
    """The records of a stored zip: name -> (offset, size)."""

    def __init__(self, source: Source, path: str) -> None:
        self.source, self.path = source, path
        self.raw, self.size = source.read_end(path, _END)
        self.start = self.size - len(self.raw)
        self.records = self._directory()

    def _range(self, start: int, count: int) -> bytes:
        return self.source.read_range(self.path, start, count).tobytes()

    def _bytes(self, start: int, count: int) -> bytes:
        if start >= self.start and start + count <= self.size:
            return self.raw[start - self.start : start - self.start + count]
        return self._range(start, count)

    def _directory(self) -> dict[str, tuple[int, int]]:
        end = self.raw.rfind(b"PK\x05\x06")
        if end < 0 or len(self.raw) - end < 22:
            if self._bytes(0, 2) == b"PK":
                raise TensorReadError("the file ends in the middle")
            raise NeedsTorch("not a zip archive")
        count, size, start = struct.unpack_from("<HII", self.raw, end + 10)
        locator = end - 20
        if locator >= 0 and self.raw[locator : locator + 4] == b"PK\x06\x07":
            (at,) = struct.unpack_from("<Q", self.raw, locator + 8)
            count, size, start = struct.unpack_from("<QQQ", self._bytes(at, 56), 32)
        if start + size > self.size:
            raise TensorReadError("the file ends in the middle")
        return _read_directory(self._bytes(start, size), count)

    def locate(self, name: str) -> tuple[int, int]:
        """Offset and size of a record's bytes."""
        try:
            header, size = self.records[name]
        except KeyError:
            raise TensorReadError(f"record {name!r} is missing") from None
        name_size, extra_size = struct.unpack("<HH", self._bytes(header + 26, 4))
        start = header + 30 + name_size + extra_size
        if start + size > self.size:
            raise TensorReadError("the file ends in the middle")
        return start, size

    def record(self, name: str) -> bytes:
        return self._bytes(*self.locate(name))

    def array(self, name: str) -> np.ndarray:
        """A record as uint8, mapped when it is large and local."""
        start, size = self.locate(name)
        if self.start == 0:
            return np.frombuffer(self.raw, np.uint8, size, start)
        return self.source.read_range(self.path, start, size)


def _read_directory(raw: bytes, count: int) -> dict[str, tuple[int, int]]:
    """Names of the central directory, without the archive's top folder."""
    records: dict[str, tuple[int, int]] = {}
    at = 0
    for _ in range(count):
        try:
            signature, flags, method, packed, size, name_size, extra_size, comment_size, header = (
                _MEMBER.unpack_from(raw, at)
            )
        except struct.error:
            signature = b""
        if signature != b"PK\x01\x02":
            raise TensorReadError("the file's directory is broken")
        end = at + _NAME_AT + name_size
        name = raw[at + _NAME_AT : end].decode("utf-8", "replace")
        if 0xFFFFFFFF in (size, packed, header):
            size, header = _zip64(raw[end : end + extra_size], size, packed, header)
        if method or flags & 1:
            raise NeedsTorch("compressed or encrypted archive")
        records[name.partition("/")[2]] = header, size
        at = end + extra_size + comment_size
    return records


def _zip64(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            numbers = iter(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
            size = next(numbers) if size == 0xFFFFFFFF else size
            packed = next(numbers) if packed == 0xFFFFFFFF else packed
            header = next(numbers) if header == 0xFFFFFFFF else header
            break
        at += 4 + length
    return size, header
