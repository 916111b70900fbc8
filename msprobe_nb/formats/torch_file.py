"""Reading ``.pt`` files without torch and without running anything in them.

A ``.pt`` file is a zip archive of uncompressed records (:mod:`.zip_records`): ``data.pkl``
describes the tensor (:mod:`.torch_program`), ``data/<key>`` holds its bytes. Files in other forms
(the format before torch 1.6, quantised or sparse tensors) go to
``torch.load(weights_only=True)``.
"""

from __future__ import annotations

import math
import re

import numpy as np

from msprobe_nb.errors import (
    FormatError,
    MsProbeError,
    TensorReadError,
    UnsafeFileError,
    reason_of,
)
from msprobe_nb.formats.torch_program import (
    HARMLESS,
    NeedsTorch,
    TensorDescription,
    describe,
)
from msprobe_nb.formats.zip_records import Archive
from msprobe_nb.store.dtypes import is_low_precision, storage_dtype
from msprobe_nb.store.limits import check_dense
from msprobe_nb.store.sources import Source

_REFUSE = "Do not load it with other tools either; ask for the recording again"


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
        try:
            return _read(source, path)
        except NeedsTorch:
            return _read_with_torch(source, path)
    except FileNotFoundError as error:
        raise TensorReadError("the tensor file is missing", file=source.where(path)) from error
    except (UnsafeFileError, TensorReadError, FormatError) as error:
        raise _placed(error, source.where(path)) from None


def torch_layout(source: Source, path: str) -> tuple[tuple[int, ...], np.dtype] | None:
    """Shape and dtype of the tensor; None where only reading the file tells."""
    try:
        found = describe(Archive(source, path).record("data.pkl"))
        return found.shape, storage_dtype(found.dtype)
    except (NeedsTorch, MsProbeError):
        return None


def _placed(error: MsProbeError, where: str) -> MsProbeError:
    """An error with the file it was found in and what to do about it."""
    if error.file is not None:
        return error
    if isinstance(error, UnsafeFileError):
        return UnsafeFileError(error.what, file=where, remedy=_REFUSE)
    remedy = error.remedy or "Copy it again from the original recording"
    return TensorReadError(error.what, file=where, remedy=remedy)


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
    if math.prod(found.shape) > used.size:  # expanded: elements are repeated
        check_dense(found.shape, used.itemsize)
    plain = used.view(f"u{used.itemsize}") if is_low_precision(used.dtype) else used
    steps = [
        step * plain.itemsize if length > 1 else 0
        for length, step in zip(found.shape, found.stride, strict=True)
    ]
    view = np.lib.stride_tricks.as_strided(plain, found.shape, steps, writeable=False)
    return np.ascontiguousarray(view).view(stored.dtype)


def _is_contiguous(found: TensorDescription) -> bool:
    step = 1
    for length, stride in zip(reversed(found.shape), reversed(found.stride), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def _refused(error: Exception) -> MsProbeError:
    """What a refusal by torch's checked reader means; the last but one paragraph says why."""
    paragraphs = str(error).split("\n\n")
    text = paragraphs[-2] if len(paragraphs) > 2 else paragraphs[0]
    opcode = re.search(r"Unsupported operand (\d{1,3})\b", text)
    if opcode and int(opcode[1]) in HARMLESS:
        return TensorReadError(
            "the file is written in an old form that torch does not read without running it",
            remedy="Save the tensor again with torch's usual pickle protocol",
        )
    return UnsafeFileError(f"torch refuses to read the file ({reason_of(error, text)})")


def _read_with_torch(source: Source, path: str) -> np.ndarray:
    import io
    import pickle

    import torch

    from msprobe_nb.formats.torch_values import encode

    try:
        value = torch.load(io.BytesIO(source.read(path)), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _refused(error) from None
    except FileNotFoundError:
        raise
    except Exception as error:
        raise TensorReadError(f"torch cannot read the file ({reason_of(error)})") from None
    if not isinstance(value, torch.Tensor):
        raise TensorReadError(f"the file holds a {type(value).__name__}, expected one tensor")
    plain = value.layout is torch.strided and not (value.is_meta or value.is_nested)
    if plain and value.nbytes > value.untyped_storage().nbytes():
        check_dense(value.shape, value.element_size())
    return encode(value).dense()
