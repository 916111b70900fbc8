"""Finding the golden partner of every target row.

Two rows belong together when their keys are equal (:attr:`Side.keys`). A joined pair then has to
pass the dtype gate; a pair that does not is shown without its golden half, as the official tool
does, but with the reason. A name that occurs several times is paired in order of occurrence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msprobe_nb.comparison.align import aligned_keys
from msprobe_nb.comparison.sides import Side

_FLOATS = (
    frozenset({"Float16", "Float32", "Float64", "BFloat16"}),
    frozenset({"torch.float16", "torch.float32", "torch.float64", "torch.bfloat16"}),
)


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
    """

    golden: np.ndarray
    gated: np.ndarray
    repeated: np.ndarray
    golden_only: np.ndarray


def match(target: Side, golden: Side, *, align: bool = False) -> Pairs:
    """Pair the rows of two sides by key.

    Parameters
    ----------
    target, golden : Side
    align : bool
        Align the sequences of calls first, so that an extra call does not shift the numbers of
        all later ones (see :mod:`.align`).
    """
    keys = aligned_keys(target, golden) if align else None
    joined, repeated = _join(target.keys if keys is None else keys, golden.keys)
    found = np.flatnonzero(joined >= 0)
    open_gate = _gate(target, golden)
    passes = open_gate[target.dtype.codes[found], golden.dtype.codes[joined[found]]]
    gated = np.full(len(joined), -1)
    gated[found[~passes]] = joined[found[~passes]]
    partner = joined.copy()
    partner[found[~passes]] = -1
    unused = np.ones(len(golden), bool)
    unused[joined[found]] = False
    return Pairs(partner, gated, repeated, np.flatnonzero(unused))


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
    for i, ours in enumerate(target.dtype.values):
        for j, theirs in enumerate(golden.dtype.values):
            allowed[i, j] = ours == theirs or any(
                ours in group and theirs in group for group in _FLOATS
            )
    return allowed
