"""Finding the golden partner of every target row.

Two rows belong together when their keys are equal. By default the keys are the shown names
(:attr:`Side.keys`); :mod:`msprobe_nb.comparison.pairing` gives others. A joined pair then has to
pass the dtype gate; a pair that does not is shown without its golden half, as the official tool
does, but with the reason. A key that occurs several times is paired in order of occurrence.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from msprobe_nb.comparison.pairing import Pairing
from msprobe_nb.comparison.pairing.join import join
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
    if pairing.by_name:
        joined, repeated = join(target.keys, golden.keys)
        by_place, notes = np.zeros(len(target), bool), []
    else:
        found = pairing.join(target, golden)
        joined, repeated, by_place, notes = found.rows, found.repeated, found.by_place, found.notes
    rows = np.flatnonzero(joined >= 0)
    gated = np.full(len(joined), -1)
    partner = joined.copy()
    if not pairing.ignores_dtypes:
        open_gate = _gate(target, golden)
        passes = open_gate[target.dtype.codes[rows], golden.dtype.codes[joined[rows]]]
        gated[rows[~passes]] = joined[rows[~passes]]
        partner[rows[~passes]] = -1
    unused = np.ones(len(golden), bool)
    unused[joined[rows]] = False
    by_place &= joined >= 0
    return Pairs(partner, gated, repeated, np.flatnonzero(unused), by_place, notes)


def different_frameworks(target: Side, golden: Side) -> bool:
    """Whether two frameworks made the recordings; one that does not say is PyTorch's."""
    ours, theirs = (side.pack.info.framework or "pytorch" for side in (target, golden))
    return ours != theirs


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
