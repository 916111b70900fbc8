"""What a recording of plain arrays would have said about them: type, shape and statistics."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from msprobe_nb.store.dtypes import widen


class ArrayFacts(NamedTuple):
    """Facts of one array.

    Attributes
    ----------
    dtype : str
        numpy name.
    shape : tuple of int
    statistics : tuple
        max, min, mean and L2 norm as Python values; empty for empty, complex and text arrays.
    """

    dtype: str
    shape: tuple[int, ...]
    statistics: tuple[Any, ...]


def array_facts(data: np.ndarray) -> ArrayFacts:
    """Look at an array; mean and norm are computed in float64."""
    name, shape = data.dtype.name, data.shape
    wide = widen(data)
    if wide.dtype.kind not in "bifu" or not wide.size:
        return ArrayFacts(name, shape, ())
    with np.errstate(all="ignore"):
        flat = wide.reshape(-1).astype(np.float64, copy=False)
        high, low = (bound.item() for bound in (wide.max(), wide.min()))
        return ArrayFacts(
            name, shape, (high, low, float(flat.mean()), float(np.sqrt(np.vecdot(flat, flat))))
        )
