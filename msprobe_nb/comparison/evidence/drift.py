"""Differences that two healthy devices may have, recognised by their signature.

* *Reduced-precision products*: a device that rounds the factors of matrix products to TF32 (10
  fraction bits) or bfloat16 (7) is off by up to a few of its roundings wherever it multiplies, and
  nowhere else. A product that deviates while others with equally exact inputs agree is no drift.
* *Flush to zero*: values below the smallest normal number are 0 on one side.
* *Norms summed in float32*: the recorded norms of large tensors differ although max, min and mean
  agree (already taken out of the deviations, see :mod:`.deviation`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.evidence.calls import Calls
from msprobe_nb.comparison.evidence.candidates import Candidate
from msprobe_nb.text import percent, plural

_PRECISIONS = (("TF32", 2.0**-10), ("bfloat16", 2.0**-7))
_EXACT = 1e-6  # inputs that agree to this count as equal, results that do as undrifted
_FEW_TERMS = 16
_INTRODUCED = 4
_ENOUGH = 3
_ROUNDING = 4e-6  # float32 products of usual lengths stay below
_SMALLEST_NORMAL = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


@dataclass(frozen=True, slots=True)
class Drift:
    """A recognised signature.

    Attributes
    ----------
    name : str
        ``TF32 products``, ``bfloat16 products``, ``flush to zero``.
    sentence : str
        The evidence in words.
    """

    name: str
    sentence: str


def split_drift(calls: Calls, found: list[Candidate]) -> tuple[list[Candidate], list[Drift]]:
    """Separate candidates that are drift from those that may be origins."""
    products = [c for c in found if c.kind in ("output", "gradient") and _may_drift(calls, c)]
    if not products:
        return found, []
    exact, agreeing = _clean_products(calls)
    largest = max(float(calls.rows.size[c.row] / calls.condition[c.row]) for c in products)
    # A deviation far below one rounding may be drift that other products do not show.
    if agreeing and (largest > _PRECISIONS[0][1] / 4 or agreeing >= max(3, len(products))):
        return found, []
    name = next(name for name, eps in _PRECISIONS if largest <= calls.limits.drift * eps)
    sentence = (
        f"{plural(len(products), 'product')} of float32 values with inputs that agree "
        f"{'is' if len(products) == 1 else 'are'} off by up to {percent(largest)} (first "
        f"{products[0].name}), {agreeing} of {exact} such products agree: the size of factors "
        f"rounded to {name}"
    )
    gone = {id(candidate) for candidate in products}
    return [c for c in found if id(c) not in gone], [Drift(f"{name} products", sentence)]


def recognise(calls: Calls) -> list[Drift]:
    """The signature of the products of a part without any origin.

    A product *introduces* a deviation when its result deviates four times more than what it was
    given; between rounding in float32 and a few roundings of a reduced precision that is drift.
    """
    node = calls.part.node
    rows = calls.is_result & (calls.phase == names.FORWARD)[node] & calls.dirty
    given = np.maximum(calls.inputs, calls.parameters)[node]
    rows &= (calls.rows.size > _INTRODUCED * given) & ~calls.has_calls_inside[node]
    rows &= (calls.rows.epsilon > 0) & (calls.rows.epsilon < _PRECISIONS[0][1])
    product = calls.is_product[node]
    sizes = (calls.rows.size / calls.condition)[rows & product]
    sizes = sizes[sizes > _ROUNDING]
    if len(sizes) < _ENOUGH:
        return []
    middle, largest = float(np.median(sizes)), float(sizes.max())
    name = next((n for n, eps in _PRECISIONS if largest <= calls.limits.drift * eps), None)
    if name is None:
        return []
    others = int((rows & ~product & (calls.rows.size > _ROUNDING)).sum())
    sentence = (
        f"{len(sizes)} matrix products deviate {_INTRODUCED} times more than what they were given "
        f"(median {percent(middle)}, at most {percent(largest)}), of all other calls "
        f"{others}: the size of factors rounded to {name}"
    )
    return [Drift(f"{name} products", sentence)]


def _may_drift(calls: Calls, candidate: Candidate) -> bool:
    row, node = candidate.row, candidate.node
    if row < 0 or not (calls.is_product[node] or calls.phase[node] == names.PARAMETERS_GRAD):
        return False
    size = calls.rows.size[row] / calls.condition[row]
    return bool(
        0 < calls.rows.epsilon[row] < _PRECISIONS[0][1]
        and size <= calls.limits.drift * _PRECISIONS[-1][1]
    )


def _clean_products(calls: Calls) -> tuple[int, int]:
    """Products with exact inputs, and how many of those agree."""
    node = calls.part.node
    rows = calls.is_result & calls.is_product[node] & (calls.explained[node] <= _EXACT)
    rows &= (calls.rows.epsilon > 0) & ~np.isnan(calls.rows.size) & (calls.terms >= _FEW_TERMS)
    rows &= (calls.phase == names.FORWARD)[node]
    exact = len(np.unique(node[rows]))
    agreeing = rows & (calls.rows.size <= 2 * _EXACT) & (calls.rows.rms > 0)
    return exact, len(np.unique(node[agreeing]))


def flushed_rows(calls: Calls) -> np.ndarray:
    """Rows that are 0 on one side and below the smallest normal number on the other."""
    part, rows = calls.part, calls.rows
    smallest = np.array(
        [
            _SMALLEST_NORMAL.get(str(text).rpartition(".")[2], 0.0)
            for text in part.target.dtype.values
        ]
        or [0.0]
    )[part.target.dtype.codes]
    ours = np.max(np.abs(part.target.statistics.number[:, :2]), axis=1)
    theirs = part.golden.statistics.take(rows.partner).number
    golden = np.max(np.abs(theirs[:, :2]), axis=1)
    with np.errstate(invalid="ignore"):
        tiny = np.maximum(ours, golden) < smallest
        return tiny & ((ours == 0) != (golden == 0)) & ~np.isnan(rows.size)
