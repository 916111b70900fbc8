"""The bytes of a run store: Zarr v3 metadata written by hand, and the shard file.

A shard of the ``sharding_indexed`` codec is its inner chunks in any place plus a table of
(offset, length) pairs. Without a compressor an inner chunk is nothing but bytes, so a file to
which tensors are appended *is* a valid shard once the table stands at its end.
``docs/format.md`` describes the result for readers in other languages.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from msprobe_nb.errors import DamagedStoreError, FormatError, WriteError

RUN_FORMAT, PACK_FORMAT, VERSION = "msprobe_nb.run", "msprobe_nb.pack", 1
COMPARISON_FORMAT = "msprobe_nb.comparison"
SHARD_BYTES, CHUNK_BYTES = 1 << 30, 1 << 20
CHUNKS_PER_SHARD = SHARD_BYTES // CHUNK_BYTES
ALIGNMENT = 64
EMPTY_CHUNK = 2**64 - 1
GROUP = "zarr.json"
JOURNAL = "journal.jsonl"
RECORDS = "records"
PARTIAL = ".partial"
_ELSEWHERE = "Choose another place, or make room or permission there"

_LITTLE = [{"name": "bytes", "configuration": {"endian": "little"}}]
_BYTES = [{"name": "bytes"}]


def encode_json(value: Any) -> bytes:
    """`value` as compact UTF-8 JSON; lone surrogates, which UTF-8 cannot hold, as escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def decode_json(raw: bytes | str | msgspec.Raw, type: Any = Any) -> Any:  # noqa: A002
    """Inverse of :func:`encode_json`.

    Raises
    ------
    msgspec.MsgspecError, ValueError
        Not JSON, or not of this type.
    """
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(
            json.loads(bytes(raw) if isinstance(raw, msgspec.Raw) else raw), type
        )


def check_version(attributes: Mapping[str, Any], where: str) -> None:
    """Refuse what a newer version wrote.

    Raises
    ------
    DamagedStoreError
        The version is no number.
    FormatError
        It is above the one this reader knows.
    """
    version = attributes.get("version", 0)
    if type(version) is not int:
        raise DamagedStoreError(
            f"the format version is {version!r:.40}, expected {VERSION}", file=where, key="version"
        )
    if version > VERSION:
        raise FormatError(
            f"this has format version {version}, this reader knows {VERSION}",
            file=where,
            remedy="Upgrade msprobe_nb",
        )


def group_metadata(attributes: dict[str, Any]) -> bytes:
    """The ``zarr.json`` of a group."""
    return encode_json({"zarr_format": 3, "node_type": "group", "attributes": attributes})


def array_metadata(
    shape: Sequence[int],
    data_type: Any,
    chunk: Sequence[int],
    codecs: list[dict[str, Any]],
    dims: Sequence[str],
    fill_value: Any = 0,
) -> dict[str, Any]:
    """The ``zarr.json`` of an array, as a dictionary."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [int(n) for n in shape],
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
        "attributes": {},
        "dimension_names": list(dims),
    }


def bytes_codec(itemsize: int) -> list[dict[str, Any]]:
    """The codec list of an uncompressed little-endian array."""
    return _BYTES if itemsize == 1 else _LITTLE


def blob_metadata(size: int, level: int | None = None) -> dict[str, Any]:
    """The ``zarr.json`` of a blob of `size` bytes, compressed with zstd when `level` is given."""
    inner: list[dict[str, Any]] = list(_BYTES)
    if level is not None:
        inner.append({"name": "zstd", "configuration": {"level": level, "checksum": False}})
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [CHUNK_BYTES],
            "codecs": inner,
            "index_codecs": [*_LITTLE, {"name": "crc32c"}],
            "index_location": "end",
        },
    }
    return array_metadata([size], "uint8", [SHARD_BYTES], [sharding], ["byte"])


def shard_table(lengths: Iterable[int]) -> bytes:
    """The index at the end of a shard whose chunks of these lengths stand back to back."""
    table = np.full((CHUNKS_PER_SHARD, 2), EMPTY_CHUNK, "<u8")
    sizes = np.fromiter(lengths, "<u8")
    table[: len(sizes), 1] = sizes
    table[: len(sizes), 0] = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else 0
    return with_checksum(table.tobytes())


def bytes_in_shards(sizes: Mapping[str, int]) -> int:
    """Bytes of a blob that stand in its files, given their sizes by name.

    The first file that is missing, unfinished or shorter than a whole shard is the last that
    counts. Of a finished one the table at its end does not count.
    """
    total = shard = 0
    while True:
        if str(shard) in sizes:
            held = sizes[str(shard)] - CHUNKS_PER_SHARD * 16 - 4
        else:
            held = sizes.get(f"{shard}{PARTIAL}", 0)
        total += min(max(held, 0), SHARD_BYTES)
        if held < SHARD_BYTES:
            return total
        shard += 1


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or none.

    Raises
    ------
    WriteError
        It cannot be written.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise _not_written(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it that will be written to.

    Raises
    ------
    WriteError
        It cannot be made, or nothing can be written to it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(path, error) from error
    if not os.access(path, os.W_OK):
        raise WriteError("no permission to write", file=path, remedy=_ELSEWHERE)


def _not_written(path: Path, error: OSError) -> WriteError:
    why = error.strerror or str(error)
    return WriteError(f"it cannot be written: {why}", file=path, remedy=_ELSEWHERE)


def create_once(path: Path, data: bytes) -> bool:
    """Write a file unless it exists, also when several processes try at once.

    Returns whether this call wrote it.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    partial.write_bytes(data)
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return True


def encode_strings(texts: Sequence[str]) -> bytes:
    """The ``vlen-utf8`` codec: a count, then length and UTF-8 bytes of each text (uint32).

    A lone surrogate, which UTF-8 cannot hold, is written as its escape.
    """
    parts = [struct.pack("<I", len(texts))]
    pack = struct.Struct("<I").pack
    for text in texts:
        raw = text.encode("utf-8", "backslashreplace")
        parts += (pack(len(raw)), raw)
    return b"".join(parts)


def decode_strings(raw: bytes) -> list[str]:
    """Inverse of :func:`encode_strings`; raises `ValueError` when the bytes do not add up."""
    if len(raw) < 4:
        raise ValueError("text array shorter than its header")
    (count,) = struct.unpack_from("<I", raw)
    texts: list[str] = []
    at, unpack = 4, struct.Struct("<I").unpack_from
    try:
        for _ in range(count):
            (size,) = unpack(raw, at)
            at += 4
            texts.append(raw[at : at + size].decode("utf-8"))
            at += size
    except struct.error as error:
        raise ValueError("text array ends early") from error
    if at > len(raw):
        raise ValueError("text array ends early")
    return texts


def with_checksum(raw: bytes) -> bytes:
    """Bytes as the ``crc32c`` codec stores them."""
    import google_crc32c

    return raw + struct.pack("<I", google_crc32c.value(raw))


def without_checksum(stored: bytes) -> bytes:
    """Inverse of :func:`with_checksum`; raises `ValueError` when the bytes have changed."""
    import google_crc32c

    raw = stored[:-4]
    if len(stored) < 4 or struct.unpack("<I", stored[-4:])[0] != google_crc32c.value(raw):
        raise ValueError("the checksum does not fit")
    return raw


def write_array(
    group: Path,
    name: str,
    data: np.ndarray | Sequence[str],
    dims: Sequence[str],
    columns: Sequence[str] = (),
) -> None:
    """Write one small index array (one chunk, uncompressed, with a checksum) into a group folder.

    Parameters
    ----------
    group : Path
        Folder of the Zarr group.
    name : str
        Name of the array.
    data : ndarray or sequence of str
        Text is written with data type ``string``.
    dims : sequence of str
        Dimension names.
    columns : sequence of str
        Names of the columns of a two-dimensional array, kept as its attribute ``columns``.
    """
    folder = group / name
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(data, np.ndarray):
        shape, data_type = data.shape, data.dtype.name
        codecs, fill = bytes_codec(data.dtype.itemsize), 0
        little = data.astype(data.dtype.newbyteorder("<"), copy=False)
        raw = np.ascontiguousarray(little).tobytes()
    else:
        shape, data_type = (len(data),), "string"
        codecs, fill, raw = [{"name": "vlen-utf8"}], "", encode_strings(data)  # type: ignore[assignment]
    if 0 not in shape:
        chunk = folder / "c" / "/".join("0" for _ in shape)
        chunk.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(chunk, with_checksum(raw))
    codecs = [*codecs, {"name": "crc32c"}]
    metadata = array_metadata(shape, data_type, [max(1, n) for n in shape], codecs, dims, fill)
    if columns:
        metadata["attributes"] = {"columns": list(columns)}
    write_atomic(folder / GROUP, encode_json(metadata))
