"""The numbers behind the tensor metrics, in one pass over both arrays.

Arrays are cut into blocks that stay in cache; of many small pairs of one size a block holds
several, so that the cost of a numpy call is shared. Sums are kept in float64; relative errors are
computed in the precision the official tool uses (float32 for 32 bits and below).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from msprobe_nb.store.dtypes import is_low_precision

BLOCK = 1 << 14  # elements of a block: its buffers stay in the second-level cache
_DOT = 1 << 13  # from 10,000 elements on OpenBLAS starts threads, which cost more than they give


@dataclass(slots=True)
class Sums:
    """What one pass gives for each of k pairs (arrays of shape (k,), float64 unless said).

    Attributes
    ----------
    target_norm, golden_norm, distance : ndarray
        Squared L2 norms of target, golden and their difference.
    product : ndarray
        Real part of the inner product.
    max_abs, max_rel : ndarray
        Largest absolute and relative error; NaN if any is NaN.
    below_1, below_5 : ndarray of int64
        Elements with a relative error under 1/1000 and 5/1000.
    """

    target_norm: np.ndarray
    golden_norm: np.ndarray
    distance: np.ndarray
    product: np.ndarray
    max_abs: np.ndarray
    max_rel: np.ndarray
    below_1: np.ndarray
    below_5: np.ndarray

    @classmethod
    def zeros(cls, count: int) -> Sums:
        """Neutral start for `count` pairs."""
        return cls(*(np.zeros(count) for _ in range(6)), *(np.zeros(count, int) for _ in range(2)))

    @classmethod
    def concat(cls, parts: Sequence[Sums]) -> Sums:
        """The sums of all pairs of several."""
        fields = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))

    def pick(self, which: np.ndarray) -> Sums:
        """The sums of some of the pairs."""
        return Sums(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


@cache
def working_dtype(target: np.dtype, golden: np.dtype) -> np.dtype:
    """The type in which relative errors are computed.

    float32 for floats of up to 32 bits, float64 for wider floats, integers and booleans,
    complex128 for complex numbers.
    """
    kinds = {_kind(target), _kind(golden)}
    if "c" in kinds:
        return np.dtype(np.complex128)
    wide = any(d.kind == "f" and d.itemsize > 4 for d in (target, golden))
    return np.dtype(np.float64 if wide or kinds != {"f"} else np.float32)


def _kind(dtype: np.dtype) -> str:
    if is_low_precision(dtype):
        return "i" if "int" in dtype.name else "f"
    return dtype.kind


def pair_sums(target: np.ndarray, golden: np.ndarray) -> Sums:
    """The sums of one pair of equal size, block by block.

    Parameters
    ----------
    target, golden : ndarray, one-dimensional
        Any numeric dtypes.
    """
    work, scratch = working_dtype(target.dtype, golden.dtype), _scratch()
    with np.errstate(all="ignore"):
        if work.kind == "c":
            sums = Sums.zeros(1)
            for start in range(0, target.size, BLOCK):
                x, y = target[None, start : start + BLOCK], golden[None, start : start + BLOCK]
                _add_complex(sums, scratch.cast(0, x, work), scratch.cast(1, y, work))
            return sums
        found = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0]
        for start in range(0, target.size, BLOCK):
            x, y = target[start : start + BLOCK], golden[start : start + BLOCK]
            _add_flat(found, scratch.cast(0, x, work), scratch.cast(1, y, work), scratch)
    return Sums(*(np.array([value]) for value in found))


def _add_flat(found: list[Any], x: np.ndarray, y: np.ndarray, scratch: _Scratch) -> None:
    """As :func:`_add` for one pair: a numpy call on flat arrays costs half as much."""
    wide_x, wide_y = scratch.cast(2, x, np.float64), scratch.cast(3, y, np.float64)
    found[0] += _flat_dot(wide_x, wide_x)
    found[1] += _flat_dot(wide_y, wide_y)
    found[3] += _flat_dot(wide_x, wide_y)
    difference = np.subtract(wide_x, wide_y, out=scratch.take(4, x.shape, np.float64))
    found[2] += _flat_dot(difference, difference)
    np.abs(difference, out=difference)
    found[4] = _larger(found[4], difference.max())
    error, flags = scratch.take(5, x.shape, x.dtype), scratch.take(6, x.shape, np.bool_)
    if not y.all():
        x, y = _shift_zeros(x, y, np.equal(y, 0, out=flags))
    np.subtract(x, y, out=error)
    np.divide(error, y, out=error)
    np.abs(error, out=error)
    found[5] = _larger(found[5], error.max())
    for at, limit in ((6, 0.001), (7, 0.005)):
        found[at] += np.count_nonzero(np.less(error, limit, out=flags))


def _flat_dot(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) <= _DOT:
        return float(np.dot(x, y))
    return float(np.dot(x[:_DOT], y[:_DOT])) + float(np.dot(x[_DOT:], y[_DOT:]))


def _larger(best: float, value: Any) -> float:
    """The larger one; NaN if either is."""
    return best if best != best or value <= best else float(value)


def stacked_sums(target: np.ndarray, golden: np.ndarray) -> Sums:
    """The sums of k small pairs at once.

    Parameters
    ----------
    target, golden : ndarray, shape (k, m) with m at most ``BLOCK``
        Of a working dtype; one pair a row.
    """
    sums, scratch = Sums.zeros(len(target)), _scratch()
    rows = max(1, BLOCK // max(1, target.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, len(target), rows):
            block = slice(start, start + rows)
            part = Sums.zeros(len(target[block]))
            _add(part, target[block], golden[block], scratch)
            for field in Sums.__dataclass_fields__:
                getattr(sums, field)[block] = getattr(part, field)
    return sums


class _Scratch:
    """Buffers of one thread.

    Fresh arrays of this size would be mapped and unmapped by the allocator each time, which costs
    more than the arithmetic.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, Any], np.ndarray] = {}

    def take(self, number: int, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """Buffer `number` of a dtype, in a shape of one or two axes."""
        key = number, dtype
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = np.empty(BLOCK, dtype)
        if len(shape) == 1:
            return buffer[: shape[0]]
        return buffer[: shape[0] * shape[1]].reshape(shape)

    def cast(self, number: int, values: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
        """`values` in a dtype, in buffer `number` unless they already are."""
        if values.dtype == dtype:
            return values
        buffer = self.take(number, values.shape, dtype)
        np.copyto(buffer, values, casting="unsafe")
        return buffer


_local = threading.local()


def _scratch() -> _Scratch:
    if not hasattr(_local, "scratch"):
        _local.scratch = _Scratch()
    return _local.scratch


def _add(sums: Sums, x: np.ndarray, y: np.ndarray, scratch: _Scratch) -> None:
    """Add one block, shape (k, m), of a working dtype."""
    if x.dtype.kind == "c":
        _add_complex(sums, x, y)
        return
    wide_x, wide_y = scratch.cast(2, x, np.float64), scratch.cast(3, y, np.float64)
    sums.target_norm += _dot(wide_x, wide_x)
    sums.golden_norm += _dot(wide_y, wide_y)
    sums.product += _dot(wide_x, wide_y)
    difference = np.subtract(wide_x, wide_y, out=scratch.take(4, x.shape, np.float64))
    sums.distance += _dot(difference, difference)
    np.abs(difference, out=difference)
    np.maximum(sums.max_abs, difference.max(axis=1), out=sums.max_abs)
    error = scratch.take(5, x.shape, x.dtype)
    zero = np.equal(y, 0, out=scratch.take(6, x.shape, np.bool_))
    if zero.any():
        x, y = _shift_zeros(x, y, zero)
    np.subtract(x, y, out=error)
    np.divide(error, y, out=error)
    _add_relative(sums, np.abs(error, out=error), zero)


def _dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Inner product of each row."""
    if x.shape[1] <= _DOT:
        return np.vecdot(x, y)
    return np.vecdot(x[:, :_DOT], y[:, :_DOT]) + np.vecdot(x[:, _DOT:], y[:, _DOT:])


def _shift_zeros(x: np.ndarray, y: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where golden is zero, both values are moved by the type's epsilon."""
    shift = zero * np.finfo(y.dtype).eps
    return x + shift, y + shift


def _add_relative(sums: Sums, relative: np.ndarray, flags: np.ndarray) -> None:
    """Add relative errors; `flags` is a buffer to work in."""
    np.maximum(sums.max_rel, relative.max(axis=1), out=sums.max_rel)
    for limit, count in ((0.001, sums.below_1), (0.005, sums.below_5)):
        np.less(relative, limit, out=flags)
        count += np.count_nonzero(flags) if len(flags) == 1 else np.count_nonzero(flags, axis=1)


def _add_complex(sums: Sums, x: np.ndarray, y: np.ndarray) -> None:
    difference = x - y
    sums.target_norm += np.vecdot(x, x).real
    sums.golden_norm += np.vecdot(y, y).real
    sums.product += np.vecdot(y, x).real
    sums.distance += np.vecdot(difference, difference).real
    np.maximum(sums.max_abs, np.abs(difference).max(axis=1), out=sums.max_abs)
    zero = y == 0
    if zero.any():
        x, y = _shift_zeros(x, y, zero)
    _add_relative(sums, np.abs((x - y) / y), zero)
