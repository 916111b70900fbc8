"""Data types: what may be stored, and how each framework spells it.

A stored dtype is a numpy dtype, or one of the low-precision types of ``ml_dtypes`` (bfloat16,
float8, int4 ...). Names come from files, so only names in this table are ever turned into a
dtype; everything else is refused.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from msprobe_nb.errors import FormatError

_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_LOW_PRECISION = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
    *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int2", "int4", "uint2", "uint4"),
)
_TEXT = re.compile(r"<U\d{1,9}\Z")


@cache
def storage_dtype(name: str) -> np.dtype:
    """The numpy dtype for a stored name.

    Parameters
    ----------
    name : str
        A numpy name such as ``float32``, an ``ml_dtypes`` name such as ``bfloat16``, or
        ``<U8`` for text arrays.

    Raises
    ------
    FormatError
        The name is not in the table.
    """
    if name in _PLAIN:
        return np.dtype(name)
    if name in _LOW_PRECISION:
        import ml_dtypes

        if hasattr(ml_dtypes, name):
            return np.dtype(getattr(ml_dtypes, name))
    if _TEXT.match(name):
        return np.dtype(name)
    raise FormatError(
        f"unknown data type {name!r}",
        remedy="Upgrade msprobe_nb, or record the tensor in a supported type",
    )


def storage_name(dtype: np.dtype) -> str:
    """The stored name of a numpy dtype; raises `FormatError` for types that are not supported."""
    name = dtype.newbyteorder("<").str if dtype.kind == "U" else dtype.name
    storage_dtype(name)
    return name


def canonical(text: str) -> str:
    """The storage name for a framework's spelling.

    ``torch.float32``, ``Float32`` (MindSpore) and ``mindspore.float32`` all give ``float32``.
    An unknown spelling is returned in lower case, so that equal texts stay equal.
    """
    return text.rpartition(".")[2].lower()


@cache
def is_low_precision(dtype: np.dtype) -> bool:
    """Whether numpy needs a cast before arithmetic on `dtype` (bfloat16, float8, int4 ...)."""
    return dtype.name in _LOW_PRECISION


def widen(array: np.ndarray) -> np.ndarray:
    """`array` in a type numpy computes with.

    That is the array itself, or float32 (int8 for the 2- and 4-bit integers) for the low-precision
    types. The cast is exact.
    """
    if not is_low_precision(array.dtype):
        return array
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
