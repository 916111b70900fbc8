"""Every tensor of a run as an ordinary Zarr array, without copying anything.

:class:`TensorStore` is a read-only Zarr store. The metadata of an array is made up on request and
its single chunk is a byte range of the pack, so any tool that reads Zarr can read a run. Data
types that Zarr does not know (bfloat16, float8 ...) are registered under their ``ml_dtypes`` name.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from msprobe_nb.errors import MsProbeError
from msprobe_nb.store import layout
from msprobe_nb.store.dtypes import is_low_precision
from msprobe_nb.store.pack import Pack

if TYPE_CHECKING:
    from msprobe_nb.store.run import Run

_COMPLEX = "c"


class TensorStore(Store):
    """A run seen as a Zarr hierarchy ``step<N>/rank<R>/<tensor name>``.

    In a name ``%2F`` stands for a slash and ``%25`` for a percent sign.

    Parameters
    ----------
    run : Run

    Examples
    --------
    >>> import zarr                                                     # doctest: +SKIP
    >>> group = zarr.open_group(run.store(), mode="r")                  # doctest: +SKIP
    >>> group["step0/rank0/Torch.relu.0.forward.output.0"][:3]          # doctest: +SKIP
    """

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(self, run: Run) -> None:
        super().__init__(read_only=True)
        from msprobe_nb.store.zarr_dtypes import register

        register()
        self.run = run
        self._packs = {f"step{pack.step}/rank{pack.rank}": pack for pack in run}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorStore) and other.run is self.run

    def _find(self, key: str) -> tuple[Pack, int, str] | None:
        """(pack, row, rest of the key) of a key inside a tensor's array."""
        parts = key.split("/", 3)
        if len(parts) < 4 or (pack := self._packs.get("/".join(parts[:2]))) is None:
            return None
        try:
            row = pack.index.row_of.get(_unescaped(parts[2]))
        except MsProbeError:
            return None
        if row is None or not pack.index.has_data[row]:
            return None
        return pack, row, parts[3]

    def _group(self, path: str) -> bytes | None:
        steps = {name.partition("/")[0] for name in self._packs}
        if path == "" or path in steps or path in self._packs:
            return layout.group_metadata({})
        return None

    def _content(self, key: str) -> bytes | np.ndarray | None:
        if key == layout.GROUP or key.endswith("/" + layout.GROUP):
            group = self._group(key[: -len(layout.GROUP)].rstrip("/"))
            if group is not None:
                return group
        found = self._find(key)
        if found is None:
            return None
        pack, row, rest = found
        try:
            if rest == layout.GROUP:
                return array_json(*pack.layout_of(row, pack.index.shape[row]))
            if rest == "c" or set(rest.removeprefix("c/").split("/")) == {"0"}:
                data = np.ascontiguousarray(pack.read(row))
                return data.reshape(-1).view(np.uint8) if data.size else None
        except MsProbeError:
            return None
        return None

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Read a key; see `zarr.abc.store.Store.get`."""
        content = self._content(key)
        if content is None:
            return None
        raw = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
        if isinstance(byte_range, RangeByteRequest):
            raw = raw[byte_range.start : byte_range.end]
        elif isinstance(byte_range, OffsetByteRequest):
            raw = raw[byte_range.offset :]
        elif isinstance(byte_range, SuffixByteRequest):
            raw = raw[max(0, raw.size - byte_range.suffix) :]
        return (prototype or default_buffer_prototype()).buffer.from_array_like(raw)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read several ranges."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether a key exists."""
        return self._content(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Refused: the store is read-only."""
        raise PermissionError("a run is read-only")

    async def delete(self, key: str) -> None:
        """Refused: the store is read-only."""
        raise PermissionError("a run is read-only")

    def _keys(self) -> Iterable[str]:
        yield layout.GROUP
        for step in dict.fromkeys(name.partition("/")[0] for name in self._packs):
            yield f"{step}/{layout.GROUP}"
        for name, pack in self._packs.items():
            yield f"{name}/{layout.GROUP}"
            try:
                index = pack.index
            except MsProbeError:
                continue
            for row in np.flatnonzero(index.has_data).tolist():
                yield f"{name}/{_escaped(index.name[row])}/{layout.GROUP}"

    async def list(self) -> AsyncIterator[str]:
        """All metadata keys."""
        for key in self._keys():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All metadata keys that begin with `prefix`."""
        for key in self._keys():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly inside `prefix`."""
        inside = prefix.strip("/")
        start = f"{inside}/" if inside else ""
        names = dict.fromkeys(
            key[len(start) :].partition("/")[0] for key in self._keys() if key.startswith(start)
        )
        for name in names:
            yield name


def _escaped(name: str) -> str:
    """A tensor's name as one part of a key: ``%2F`` for a slash, ``%25`` for a percent sign."""
    return name.replace("%", "%25").replace("/", "%2F")


def _unescaped(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")


def _data_type(dtype: np.dtype) -> Any:
    """The Zarr v3 name of a dtype."""
    if dtype.kind == "U":
        return {"name": "fixed_length_utf32", "configuration": {"length_bytes": dtype.itemsize}}
    return dtype.name


def array_json(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The ``zarr.json`` of one tensor.

    Axes are named for their place and length, so that xarray can put tensors of any shapes into
    one dataset.
    """
    fill: Any = "" if dtype.kind == "U" else 0
    if dtype.kind == "b":
        fill = False
    elif dtype.kind == _COMPLEX:
        fill = [0.0, 0.0]
    elif dtype.kind == "f" or (is_low_precision(dtype) and "float" in dtype.name):
        fill = 0.0
    codecs = layout.bytes_codec(dtype.itemsize if dtype.itemsize > 1 else 1)
    dims = [f"axis_{axis}_of_{length}" for axis, length in enumerate(shape)]
    chunk = [max(1, n) for n in shape]
    metadata = layout.array_metadata(shape, _data_type(dtype), chunk, codecs, dims, fill)
    return json.dumps(metadata).encode()
