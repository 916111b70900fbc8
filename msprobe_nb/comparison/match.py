"""Finding the golden partner of every target row.

Two rows belong together when their keys are equal. By default the keys are the shown names
(:attr:`Side.keys`); :mod:`msprobe_nb.comparison.pairing` gives others. A joined pair then has to
pass the dtype gate; a pair that does not is shown without its golden half, as the official tool
does, but with the reason. A key that occurs several times is paired in order of occurrence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from msprobe_nb.comparison.pairing import Pairing
from msprobe_nb.comparison.sides import Side
from msprobe_nb.store.dtypes import canonical

_FLOATS = (
    frozenset({"Float16", "Float32", "Float64", "BFloat16"}),
    frozenset({"torch.float16", "torch.float32", "torch.float64", "torch.bfloat16"}),
)
# Across frameworks the same kind of number is enough (specification 02, section 3.3).
_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "int"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "int"),
    **dict.fromkeys(("float16", "float32", "float64", "bfloat16"), "float"),
    **dict.fromkeys(("complex64", "complex128"), "complex"),
    "bool": "bool",
}
_BY_NAME = Pairing()


@dataclass(frozen=True, slots=True)
class Pairs:
    """The partner of each target row.

    Attributes
    ----------
    golden : ndarray of int64, shape (n,)
        Golden row; -1 without a partner or when the dtype gate is shut.
    gated : ndarray of int64, shape (n,)
        Golden row that the dtype gate kept away; -1 for the others.
    repeated : ndarray of bool, shape (n,)
        Whether the key occurs more than once on a side.
    golden_only : ndarray of int64
        Golden rows that no target row is paired with.
    by_place : ndarray of bool, shape (n,)
        Whether the pair rests on the place in the sequence of calls, not on names.
    notes : list of str
        What the user should know about the pairing as a whole.
    """

    golden: np.ndarray
    gated: np.ndarray
    repeated: np.ndarray
    golden_only: np.ndarray
    by_place: np.ndarray
    notes: list[str] = field(default_factory=list)


def match(target: Side, golden: Side, pairing: Pairing = _BY_NAME) -> Pairs:
    """Pair the rows of two sides.

    Raises
    ------
    UsageError
        A way of pairing that does not fit the runs.
    """
    by_place, notes = np.zeros(len(target), bool), []
    if pairing.by_name:
        joined, repeated = _join(target.keys, golden.keys)
    else:
        keys = pairing.keys(target, golden)
        joined, repeated = _join_keys(keys.target, keys.golden)
        joined[list(keys.listed)] = list(keys.listed.values())
        by_place[list(keys.by_place)] = True
        notes = keys.notes
    found = np.flatnonzero(joined >= 0)
    gated = np.full(len(joined), -1)
    partner = joined.copy()
    if not pairing.ignores_dtypes:
        open_gate = _gate(target, golden)
        passes = open_gate[target.dtype.codes[found], golden.dtype.codes[joined[found]]]
        gated[found[~passes]] = joined[found[~passes]]
        partner[found[~passes]] = -1
    unused = np.ones(len(golden), bool)
    unused[joined[found]] = False
    by_place &= joined >= 0
    return Pairs(partner, gated, repeated, np.flatnonzero(unused), by_place, notes)


def different_frameworks(target: Side, golden: Side) -> bool:
    """Whether two frameworks made the recordings; one that does not say is PyTorch's."""
    ours, theirs = (side.pack.info.framework or "pytorch" for side in (target, golden))
    return ours != theirs


def _join_keys(
    target: Sequence[str | None], golden: Sequence[str | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Like :func:`_join`, with rows that must not be paired (None)."""
    ours = np.array([row for row, key in enumerate(target) if key is not None], np.int64)
    theirs = np.array([row for row, key in enumerate(golden) if key is not None], np.int64)
    found, often = _join(
        [key for key in target if key is not None], [key for key in golden if key is not None]
    )
    joined, repeated = np.full(len(target), -1), np.zeros(len(target), bool)
    joined[ours] = np.append(theirs, -1)[found]
    repeated[ours] = often
    return joined, repeated


def _join(target: list[str], golden: list[str]) -> tuple[np.ndarray, np.ndarray]:
    if target == golden and len(set(target)) == len(target):
        return np.arange(len(target)), np.zeros(len(target), bool)
    row_of = dict(zip(golden, range(len(golden)), strict=True))
    if len(row_of) == len(golden) and len(set(target)) == len(target):
        get = row_of.get
        rows = np.array([get(key, -1) for key in target], np.int64)
        return rows, np.zeros(len(target), bool)
    occurrences = _numbered(golden)
    numbered = dict(zip(occurrences, range(len(golden)), strict=True))
    wanted = _numbered(target)
    rows = np.array([numbered.get(key, -1) for key in wanted], np.int64)
    often = {key for key, at in (*occurrences, *wanted) if at}
    return rows, np.array([key in often for key in target], bool)


def _numbered(keys: list[str]) -> list[tuple[str, int]]:
    """Each key with the number of its earlier occurrences."""
    seen: dict[str, int] = {}
    numbered = []
    for key in keys:
        at = seen.get(key, 0)
        seen[key] = at + 1
        numbered.append((key, at))
    return numbered


def _gate(target: Side, golden: Side) -> np.ndarray:
    """For each pair of distinct dtype texts: may rows with them be compared?"""
    allowed = np.zeros((len(target.dtype.values), len(golden.dtype.values)), bool)
    across = different_frameworks(target, golden)
    for i, ours in enumerate(target.dtype.values):
        for j, theirs in enumerate(golden.dtype.values):
            allowed[i, j] = ours == theirs or (
                _one_kind(ours, theirs)
                if across
                else any(ours in group and theirs in group for group in _FLOATS)
            )
    return allowed


def _one_kind(ours: str, theirs: str) -> bool:
    kind = _KINDS.get(canonical(ours))
    return kind is not None and kind == _KINDS.get(canonical(theirs))
