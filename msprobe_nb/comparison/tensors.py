"""Comparing the recorded values of tensors: the six metrics of the official tool.

Formulas: specification 02, sections 4.3 and 4.4. Differences to the official tool, each listed in
``docs/differences.md``: complex numbers are compared whole, infinities of opposite sign differ,
integer scalars do not wrap around, and a tiny difference is not rounded to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import numpy as np

from msprobe_nb.comparison.cells import (
    NAN,
    NOT_AVAILABLE,
    NUMBER,
    SHAPE_UNMATCHED,
    UNSUPPORTED,
    Metric,
)
from msprobe_nb.comparison.kernel import Sums, pair_sums, stacked_sums, working_dtype
from msprobe_nb.comparison.status import COMPARED, EMPTY, NO_DATA, NON_FINITE, SHAPE, UNREADABLE
from msprobe_nb.errors import MsProbeError
from msprobe_nb.store.dtypes import widen

COLUMNS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
RELATIVE_L2 = "Relative L2"  # our own: distance divided by the golden norm
COSINE, DISTANCE, MAX_ABS, MAX_REL, BELOW_1, BELOW_5, RELATIVE = range(7)
# What became of a row; the texts are shown in the table's column `status`.
_STACK_LIMIT = 4096  # pairs of up to this many elements are stacked
_EPS = np.finfo(np.float64).eps
_Pair = tuple[int, np.ndarray, np.ndarray]  # position, flat target, flat golden


@dataclass(slots=True)
class BlockResult:
    """The metrics of some pairs.

    Attributes
    ----------
    number, mark : ndarray, shape (k, 7)
        The official metrics and :data:`RELATIVE_L2`.
    status : ndarray of uint8, shape (k,)
    note : dict
        Position -> what a user should know about this pair.
    custom : dict of str to list
        Results of the user's algorithms: a number, a text, or None where there is none.
    """

    number: np.ndarray
    mark: np.ndarray
    status: np.ndarray
    note: dict[int, str] = field(default_factory=dict)
    custom: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def empty(cls, count: int) -> BlockResult:
        """`count` rows without metrics."""
        number = np.full((count, len(COLUMNS) + 1), np.nan)
        mark = np.full(number.shape, UNSUPPORTED, np.uint8)
        return cls(number, mark, np.full(count, NO_DATA, np.uint8))

    def metrics(self) -> dict[str, Metric]:
        """The metrics as result columns."""
        return {
            name: Metric(self.number[:, at], self.mark[:, at])
            for at, name in enumerate((*COLUMNS, RELATIVE_L2))
        }

    def fail(self, at: int, status: int, note: str, mark: int = UNSUPPORTED) -> None:
        """Mark one pair as not compared."""
        self.mark[at], self.status[at], self.note[at] = mark, status, note

    def add_note(self, at: int, note: str) -> None:
        """Say one thing more about a pair."""
        known = self.note.get(at)
        self.note[at] = f"{known}; {note}" if known else note

    def put(self, at: int, column: int, value: float) -> None:
        """Set one metric; NaN shows as ``Nan``."""
        self.number[at, column] = value
        self.mark[at, column] = NAN if isnan(value) else NUMBER


def compare_arrays(
    target: Sequence[np.ndarray | MsProbeError], golden: Sequence[np.ndarray | MsProbeError]
) -> BlockResult:
    """Compare arrays pairwise; an error in place of an array becomes its row's reason."""
    result = BlockResult.empty(len(target))
    stacks: dict[tuple[np.dtype, int], list[_Pair]] = {}
    large: list[_Pair] = []
    for at, (ours, theirs) in enumerate(zip(target, golden, strict=True)):
        faults = [
            f"{side}: {side_value}"
            for side, side_value in (("target", ours), ("golden", theirs))
            if isinstance(side_value, MsProbeError)
        ]
        if isinstance(ours, MsProbeError) or isinstance(theirs, MsProbeError):
            result.fail(at, UNREADABLE, "; ".join(faults))
            continue
        if not _comparable(result, at, ours, theirs):
            continue
        x, y = ours.reshape(-1), theirs.reshape(-1)
        result.status[at] = COMPARED
        if x.size == 1:
            _compare_scalars(result, at, x[0], y[0])
        elif x.size <= _STACK_LIMIT:
            work = working_dtype(x.dtype, y.dtype)
            stacks.setdefault((work, x.size), []).append((at, x, y))
        else:
            large.append((at, x, y))
    for (work, _), members in stacks.items():
        x = np.stack([widen(ours).astype(work, copy=False) for _, ours, _ in members])
        y = np.stack([widen(theirs).astype(work, copy=False) for _, _, theirs in members])
        _finish(result, members, stacked_sums(x, y))
    if large:
        _finish(result, large, Sums.concat([pair_sums(x, y) for _, x, y in large]))
    return result


def _comparable(result: BlockResult, at: int, ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.dtype.kind in "US" or theirs.dtype.kind in "US":
        result.fail(at, NO_DATA, "text arrays are not compared")
        return False
    if ours.size == 0:
        note = "" if theirs.size == 0 else f"the target is empty, the golden holds {theirs.size}"
        result.fail(at, EMPTY, note or "both tensors are empty")
        return False
    if ours.shape != theirs.shape and _squeezed(ours) != _squeezed(theirs):
        note = f"shapes {list(ours.shape)} and {list(theirs.shape)} cannot be compared"
        result.fail(at, SHAPE, note, SHAPE_UNMATCHED)
        return False
    return True


def _squeezed(array: np.ndarray) -> tuple[int, ...]:
    return tuple(length for length in array.shape if length != 1)


def _compare_scalars(result: BlockResult, at: int, ours: np.generic, theirs: np.generic) -> None:
    """One-element tensors: only absolute and relative error have a meaning."""
    x, y = widen(np.asarray(ours)), widen(np.asarray(theirs))
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        absolute = float(abs(int(x) - int(y)))  # exact, where numpy would wrap around
    else:
        with np.errstate(all="ignore"):
            cast = [v.astype(np.float64) if v.dtype.kind == "b" else v for v in (x, y)]
            absolute = float(np.abs(cast[0] - cast[1]))
    result.put(at, MAX_ABS, rounded(absolute))
    work = working_dtype(x.dtype, y.dtype)
    sums = stacked_sums(x.astype(work).reshape(1, 1), y.astype(work).reshape(1, 1))
    result.put(at, MAX_REL, rounded(float(sums.max_rel[0])))
    with np.errstate(all="ignore"):
        relative = np.sqrt(sums.distance[0] / sums.golden_norm[0]) if absolute else 0.0
    result.put(at, RELATIVE, float(relative))


def _finish(result: BlockResult, members: Sequence[_Pair], sums: Sums) -> None:
    """Turn sums into metrics; pairs whose sums are not finite are looked at closely."""
    finite = np.isfinite(sums.target_norm + sums.golden_norm + sums.distance)
    rows = np.array([at for at, _, _ in members])
    sizes = np.array([x.size for _, x, _ in members])
    _put_metrics(result, rows[finite], sums.pick(finite), sizes[finite])
    for which in np.flatnonzero(~finite).tolist():
        _compare_closely(result, *members[which])
    for which in np.flatnonzero(sums.max_abs == 0).tolist():
        _note_hidden(result, *members[which])


def _note_hidden(result: BlockResult, row: int, x: np.ndarray, y: np.ndarray) -> None:
    """Integers that differ although float64 shows no difference."""
    wide = x.dtype.kind in "iu" and y.dtype.kind in "iu" and x.itemsize == y.itemsize == 8
    if wide and (unequal := int(np.count_nonzero(x != y))):
        result.note[row] = f"{unequal} integers beyond 2**53 differ by less than float64 can show"


def _compare_closely(result: BlockResult, row: int, x: np.ndarray, y: np.ndarray) -> None:
    """A pair with NaN, infinity, or numbers whose squares overflow."""
    work = working_dtype(x.dtype, y.dtype)
    x, y = widen(x).astype(work), widen(y).astype(work)
    same = (np.isnan(x) & np.isnan(y)) | (np.isinf(x) & np.isinf(y) & (x == y))
    odd = ~(np.isfinite(x) & np.isfinite(y))
    misplaced = int(np.count_nonzero(odd & ~same))
    if misplaced:
        note = (
            f"NaN or infinity at {misplaced} of {x.size} places where the other side has "
            f"something else (target: {_census(x)}; golden: {_census(y)})"
        )
        result.fail(row, NON_FINITE, note, NOT_AVAILABLE)
        return
    x[odd], y[odd] = 0, 0
    if odd.any():
        result.note[row] = (
            f"{int(odd.sum())} of {x.size} elements are NaN or infinite on both sides"
        )
    sums = pair_sums(x, y)
    scale = max(np.abs(x).max(), np.abs(y).max())
    if not np.isfinite(sums.target_norm[0] + sums.golden_norm[0] + sums.distance[0]):
        scaled = pair_sums(x / scale, y / scale)  # squares of numbers above 1e154 overflow
        for name in ("target_norm", "golden_norm", "product"):
            setattr(sums, name, getattr(scaled, name))
        _put_metrics(result, np.array([row]), sums, np.array([x.size]))
        result.put(row, DISTANCE, float(np.sqrt(scaled.distance[0]) * scale))
        return
    _put_metrics(result, np.array([row]), sums, np.array([x.size]))


def _census(values: np.ndarray) -> str:
    counts = {
        "NaN": int(np.isnan(values).sum()),
        "inf": int((values == np.inf).sum()),
        "-inf": int((values == -np.inf).sum()),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "all finite"


def _put_metrics(result: BlockResult, rows: np.ndarray, sums: Sums, size: np.ndarray) -> None:
    """Set the six metrics of some pairs from their finite sums; `size` counts elements."""
    if not len(rows):
        return
    norms = np.sqrt(sums.target_norm), np.sqrt(sums.golden_norm)
    zero = norms[0] <= _EPS, norms[1] <= _EPS
    distance = np.sqrt(sums.distance)
    with np.errstate(all="ignore"):
        cosine = _rounded(sums.product / (norms[0] * norms[1]))
        relative = np.where(distance == 0, 0.0, distance / norms[1])
    close = cosine > 0.9999
    cosine[close] = [round(value, 6) for value in cosine[close].tolist()]
    cosine[zero[0] != zero[1]] = np.nan
    cosine[zero[0] & zero[1]] = 1.0
    columns = (
        cosine,
        distance,
        _rounded(sums.max_abs),
        _rounded(sums.max_rel),
        _rounded(sums.below_1 / size),
        _rounded(sums.below_5 / size),
        relative,
    )
    table = np.stack(columns, axis=1)
    result.number[rows] = table
    result.mark[rows] = np.where(np.isnan(table), NAN, NUMBER)


def _rounded(values: np.ndarray) -> np.ndarray:
    return np.array([rounded(value) for value in values.tolist()])


def rounded(value: float) -> float:
    """`value` with 12 decimals, as the official tool prints it.

    A value too small to show in them is kept.
    """
    short = float(f"{value:.12f}")
    return value if short == 0 else short
