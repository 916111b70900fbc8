"""Reading ``.pt`` files without torch and without running anything in them.

A ``.pt`` file is a zip archive of uncompressed records (:mod:`.zip_records`): ``data.pkl``
describes the tensor (:mod:`.torch_program`), ``data/<key>`` holds its bytes. Files in other forms
(the format before torch 1.6, quantised or sparse tensors) go to
``torch.load(weights_only=True)``.
"""

from __future__ import annotations

import numpy as np

from msprobe_nb.errors import TensorReadError, UnsafeFileError
from msprobe_nb.formats.torch_program import NeedsTorch, TensorDescription, describe
from msprobe_nb.formats.zip_records import Archive
from msprobe_nb.store.dtypes import is_low_precision, storage_dtype
from msprobe_nb.store.sources import Source


def read_torch(source: Source, path: str) -> np.ndarray:
    """The tensor of a ``.pt`` file as an array.

    Parameters
    ----------
    source : Source
        Folder that holds the file.
    path : str
        Relative path.

    Returns
    -------
    ndarray
        With the tensor's shape and dtype (bfloat16 and float8 as ``ml_dtypes``); read-only.

    Raises
    ------
    TensorReadError
        Missing, truncated or broken.
    UnsafeFileError
        Reading it would run code.
    """
    try:
        return _read(source, path)
    except NeedsTorch:
        return _read_with_torch(source, path)
    except (UnsafeFileError, TensorReadError) as error:
        if error.file is None:
            remedy = (
                "Do not load it with other tools either; ask for the recording again"
                if isinstance(error, UnsafeFileError)
                else error.remedy or "Copy it again from the original recording"
            )
            raise type(error)(error.what, file=source.where(path), remedy=remedy) from None
        raise
    except FileNotFoundError as error:
        raise TensorReadError("the tensor file is missing", file=source.where(path)) from error


def _read(source: Source, path: str) -> np.ndarray:
    archive = Archive(source, path)
    found = describe(archive.record("data.pkl"))
    if "byteorder" in archive.records and archive.record("byteorder") == b"big":
        raise NeedsTorch("big-endian file")
    raw = archive.array(f"data/{found.storage}")
    dtype = storage_dtype(found.dtype)
    stored = raw[: raw.size // dtype.itemsize * dtype.itemsize].view(dtype)
    array = _strided(stored, found)
    if found.conjugate:
        array = np.conj(array)
    return -array if found.negative else array


def _strided(stored: np.ndarray, found: TensorDescription) -> np.ndarray:
    """The view that the description takes of its storage, after a bounds check."""
    if 0 in found.shape:
        return np.empty(found.shape, stored.dtype)
    reach = sum((n - 1) * step for n, step in zip(found.shape, found.stride, strict=True))
    if found.offset + reach >= stored.size:
        raise TensorReadError(
            f"shape {list(found.shape)} needs {found.offset + reach + 1} elements, "
            f"the file holds {stored.size}"
        )
    used = stored[found.offset : found.offset + reach + 1]
    if _is_contiguous(found):
        return used.reshape(found.shape)
    plain = used.view(f"u{used.itemsize}") if is_low_precision(used.dtype) else used
    steps = [step * plain.itemsize for step in found.stride]
    view = np.lib.stride_tricks.as_strided(plain, found.shape, steps, writeable=False)
    return np.ascontiguousarray(view).view(stored.dtype)


def _is_contiguous(found: TensorDescription) -> bool:
    step = 1
    for length, stride in zip(reversed(found.shape), reversed(found.stride), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def _read_with_torch(source: Source, path: str) -> np.ndarray:
    import io
    import pickle

    import torch

    from msprobe_nb.formats.torch_values import encode

    try:
        value = torch.load(io.BytesIO(source.read(path)), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"the file would run code to be read ({str(error).splitlines()[0]:.120})",
            file=source.where(path),
            remedy="Do not load it with other tools either; ask for the recording again",
        ) from None
    except (RuntimeError, ValueError, EOFError, OSError, KeyError) as error:
        raise TensorReadError(
            f"torch cannot read the file ({str(error).splitlines()[0]:.120})",
            file=source.where(path),
            remedy="Copy it again from the original recording",
        ) from None
    if not isinstance(value, torch.Tensor):
        raise TensorReadError(
            f"the file holds a {type(value).__name__}, expected one tensor",
            file=source.where(path),
        )
    return encode(value).dense()
