"""Reading and writing one tensor file of the official layout: ``.pt`` or ``.npy``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import numpy as np

from msprobe_nb.errors import FormatError, TensorReadError, UnsafeFileError
from msprobe_nb.formats.torch_file import read_torch
from msprobe_nb.store.dtypes import widen
from msprobe_nb.store.sources import Source

TORCH, NUMPY = (".pt", ".pth"), (".npy",)
_HEAD_BYTES = 1 << 16
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_tensor_file(source: Source, path: str) -> np.ndarray:
    """The array in a tensor file.

    Parameters
    ----------
    source : Source
        Folder that holds the file.
    path : str
        File name; the extension says the format.

    Returns
    -------
    ndarray
        Read-only or writable, own dtype.

    Raises
    ------
    TensorReadError
        Missing, truncated, broken, or of an unknown format.
    UnsafeFileError
        Reading it would run code.
    """
    if path.endswith(TORCH):
        return read_torch(source, path)
    if path.endswith(NUMPY):
        return read_npy(source, path)
    raise TensorReadError(
        "unknown kind of tensor file",
        file=source.where(path),
        remedy="Supported are .pt, .pth and .npy",
    )


def write_tensor_file(path: Path, array: np.ndarray) -> None:
    """Write an array as the official tool writes a tensor.

    Parameters
    ----------
    path : Path
        ``.pt`` and ``.pth`` become what ``torch.load(weights_only=True)`` reads: one plain tensor
        on the CPU, C order, with a storage of its own. ``.npy`` files hold low-precision types
        as float32 (which is exact), since numpy has no such types.
    array : ndarray
        Any shape; any dtype of :mod:`msprobe_nb.store.dtypes`.

    Raises
    ------
    FormatError
        The kind of file cannot hold this data type.
    """
    if path.name.endswith(NUMPY):
        np.save(path, widen(array), allow_pickle=False)
        return
    if not path.name.endswith(TORCH):
        raise FormatError("unknown kind of tensor file", file=path, remedy="Use .pt or .npy")
    import torch

    from msprobe_nb.formats.torch_values import from_array

    torch.save(from_array(array), path)


def read_npy(source: Source, path: str) -> np.ndarray:
    """An ``.npy`` array, mapped when it is large and local; object arrays are refused."""
    where = source.where(path)
    try:
        size = source.size(path)
        if size is None:
            raise TensorReadError("the tensor file is missing", file=where)
        head = source.read_range(path, 0, min(size, _HEAD_BYTES)).tobytes()
        start, dtype, order, shape = _npy_header(head, where)
        count = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if start + count > size:
            raise TensorReadError(
                f"the file ends in the middle ({size} bytes, needs {start + count})",
                file=where,
                remedy="Copy it again from the original recording",
            )
        raw = source.read_range(path, start, count)
    except FileNotFoundError as error:
        raise TensorReadError("the tensor file is missing", file=where) from error
    array = np.ndarray(shape, dtype, raw, order=order)
    return np.ascontiguousarray(array).reshape(shape)


def _npy_header(
    head: bytes, where: str
) -> tuple[int, np.dtype, Literal["C", "F"], tuple[int, ...]]:
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        read = _HEADER_READERS[version]
        shape, fortran, dtype = read(stream)
    except (ValueError, KeyError, EOFError) as error:
        raise TensorReadError(
            f"the .npy header is broken ({error!s:.80})",
            file=where,
            remedy="Copy it again from the original recording",
        ) from None
    if dtype.hasobject:
        raise UnsafeFileError(
            "the file holds Python objects, which only running code can read",
            file=where,
            remedy="Ask for the recording again, with plain arrays",
        )
    return stream.tell(), dtype, "F" if fortran else "C", shape
