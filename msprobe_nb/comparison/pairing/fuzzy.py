"""Fuzzy matching: calls are paired by their place in the sequence, not by their numbers.

Two calls may be paired when they are of one API, or of one module path whatever its class, in the
same direction. Both sequences of calls are aligned (:mod:`.align`), first with the shapes of their
values, so that an extra call is recognised by them, then without. A backward call goes with its
forward call. Rows of paired calls belong together when their slots are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.pairing.align import align
from msprobe_nb.comparison.pairing.slide import Distance, distances, slide
from msprobe_nb.comparison.sides import Side
from msprobe_nb.store.index import Coded

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: spreads small numbers


def pair_calls(target: Side, golden: Side, target_names: Sequence[str]) -> np.ndarray:
    """The golden partner of each target call.

    Parameters
    ----------
    target, golden : Side
    target_names : sequence of str
        Names of the target's calls in the golden side's terms.

    Returns
    -------
    ndarray of int64, shape (number of target calls,)
        Row of the golden call, or -1.
    """
    ours = [names.parse(name) for name in target_names]
    theirs = golden.pack.nodes.parsed
    key = _codes([_key(node) for node in ours], [_key(node) for node in theirs])
    with_shapes = _with_shapes(key, target, golden)
    partner = np.full(len(ours), -1)
    backward = [
        np.array([node.phase == names.BACKWARD for node in side], bool) for side in (ours, theirs)
    ]
    recorded = target.pack.nodes.recorded, golden.pack.nodes.recorded
    distance = distances(target, golden)
    for phase in (False, True):
        if phase:
            follow_forward(partner, target.pack.nodes.parsed, theirs)
        for codes in (with_shapes, key):
            free = _free(partner, recorded, [side == phase for side in backward])
            gaps = _gaps(partner, free)
            tokens = _codes(
                *(
                    list(zip(gap.tolist(), code[rows].tolist(), strict=True))
                    for gap, code, rows in zip(gaps, codes, free, strict=True)
                )
            )
            a, b = align(*tokens)
            partner[free[0][a]] = free[1][b]
        _slide(partner, recorded, [side == phase for side in backward], with_shapes, distance)
    _pair_by_name(partner, target_names, golden, recorded)
    return partner


def _slide(
    partner: np.ndarray,
    recorded: tuple[np.ndarray, np.ndarray],
    wanted: list[np.ndarray],
    tokens: tuple[np.ndarray, np.ndarray],
    distance: Distance,
) -> None:
    """Let extra calls of either side find their place; `partner` is changed."""
    ours, theirs = (np.flatnonzero(r & w) for r, w in zip(recorded, wanted, strict=True))
    paired = ours[partner[ours] >= 0]
    if not (np.diff(partner[paired]) > 0).all():
        return  # pairs that cross, as backward calls may, have no place to slide to
    there = np.full(len(recorded[1]), -1)
    mine = partner[ours]
    slide(tokens[0][ours], mine, lambda at, other: distance(int(ours[at]), other))
    partner[ours] = mine
    there[mine[mine >= 0]] = ours[mine >= 0]
    back = there[theirs]
    slide(tokens[1][theirs], back, lambda at, other: distance(other, int(theirs[at])))
    partner[ours] = -1
    partner[back[back >= 0]] = theirs[back >= 0]


def follow_forward(
    partner: np.ndarray, ours: Sequence[names.NodeName], theirs: Sequence[names.NodeName]
) -> None:
    """Pair each backward call with that of its forward call's partner, where there is one."""
    row_of = {node.name: at for at, node in enumerate(theirs)}
    forward = {node.name: at for at, node in enumerate(ours) if node.phase == names.FORWARD}
    for at, node in enumerate(ours):
        if node.phase != names.BACKWARD:
            continue
        twin = forward.get(node.in_phase(names.FORWARD), -1)
        if twin >= 0 and partner[twin] >= 0:
            other = theirs[partner[twin]]
            partner[at] = row_of.get(other.in_phase(names.BACKWARD), partner[at])


def _key(node: names.NodeName) -> Hashable:
    components = node.components
    return (components[:-1] if node.kind == "module" else components), node.phase


def _codes(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """Two sequences as numbers that are equal where the elements are."""
    joint = Coded.of(list(chain(ours, theirs))).codes.astype(np.int64)
    return joint[: len(ours)], joint[len(ours) :]


def _with_shapes(
    key: tuple[np.ndarray, np.ndarray], target: Side, golden: Side
) -> tuple[np.ndarray, np.ndarray]:
    """The keys made finer by the slots and shapes of each call's values."""
    slots = _codes(target.slots, golden.slots)
    shapes = _codes(target.shape.values, golden.shape.values)
    mixed = []
    for side, code, slot, shape in zip((target, golden), key, slots, shapes, strict=True):
        row = slot * (len(shapes[0]) + len(shapes[1]) + 1) + shape[side.shape.codes]
        hashed = (row.astype(np.uint64) + np.uint64(1)) * _MIX
        hashed ^= hashed >> np.uint64(29)
        total = np.zeros(len(code), np.uint64)
        np.add.at(total, side.index.node, hashed * _MIX)
        mixed.append(list(zip(code.tolist(), total.tolist(), strict=True)))
    return _codes(*mixed)


def _free(
    partner: np.ndarray, recorded: tuple[np.ndarray, np.ndarray], wanted: list[np.ndarray]
) -> list[np.ndarray]:
    """Recorded calls of both sides that are still alone."""
    taken = np.zeros(len(recorded[1]), bool)
    taken[partner[partner >= 0]] = True
    return [
        np.flatnonzero(recorded[0] & wanted[0] & (partner < 0)),
        np.flatnonzero(recorded[1] & wanted[1] & ~taken),
    ]


def _gaps(partner: np.ndarray, free: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Which gap between paired calls each free call lies in.

    Pairs that cross an earlier one, as backward calls may, do not bound a gap.
    """
    rows = np.flatnonzero(partner >= 0)
    theirs = partner[rows]
    if len(rows):
        ordered = (theirs >= np.maximum.accumulate(theirs)) & (
            theirs <= np.minimum.accumulate(theirs[::-1])[::-1]
        )
        rows, theirs = rows[ordered], theirs[ordered]
    return np.searchsorted(rows, free[0]), np.searchsorted(theirs, free[1])


def _pair_by_name(
    partner: np.ndarray,
    target_names: Sequence[str],
    golden: Side,
    recorded: tuple[np.ndarray, np.ndarray],
) -> None:
    """Calls left over whose names are equal, such as gradients that came in another order."""
    everything = [np.ones(len(side), bool) for side in recorded]
    ours, theirs = _free(partner, recorded, everything)
    row_of = {golden.pack.nodes.name[at]: at for at in theirs.tolist()}
    for at in ours.tolist():
        partner[at] = row_of.pop(target_names[at], -1)
