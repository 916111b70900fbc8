"""Pairing calls by their order when one recording has calls that the other lacks.

Names number the calls of an operator one after the other, so one extra call moves every later
number and pairs each call with its neighbour's. Here the two sequences of forward calls are
aligned by what was called and inside which module; all other calls follow the forward calls.
"""

from __future__ import annotations

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.pairing.align import align
from msprobe_nb.store.index import Nodes

_ENOUGH = 0.9  # of the calls that names pair; else the runs nest their calls differently


def pair_in_order(target: Nodes, golden: Nodes) -> np.ndarray | None:
    """The golden call of each target call.

    Parameters
    ----------
    target, golden : Nodes

    Returns
    -------
    ndarray of int64, shape (calls of the target,), or None
        -1 for a call that only the target made. None if the sequences of forward calls agree, or
        have too little in common: names pair them then.
    """
    ours, theirs = _forward(target), _forward(golden)
    signs: dict[tuple[str, str], int] = {}
    a, b = (
        np.array([signs.setdefault(_sign(nodes, row), len(signs)) for row in rows], np.int64)
        for nodes, rows in ((target, ours), (golden, theirs))
    )
    if np.array_equal(a, b):
        return None
    at, other = align(a, b)
    by_name = {golden.name[row] for row in theirs}
    if len(at) < _ENOUGH * sum(target.name[row] in by_name for row in ours):
        return None
    partner = np.full(len(target), -1)
    partner[np.array(ours, np.int64)[at]] = np.array(theirs, np.int64)[other]
    _follow(target, golden, partner)
    return partner


def _forward(nodes: Nodes) -> list[int]:
    return [
        row
        for row, parsed in enumerate(nodes.parsed)
        if nodes.recorded[row] and parsed.phase == names.FORWARD
    ]


def _sign(nodes: Nodes, row: int) -> tuple[str, str]:
    """What was called, and in which module."""
    parent = nodes.parent[row]
    return nodes.parsed[row].stem, names.parse(parent).stem if parent else ""


def _follow(target: Nodes, golden: Nodes, partner: np.ndarray) -> None:
    """Pair all other calls: those of one name with an aligned forward call as that one is."""
    moved: dict[tuple[str, str], str] = {}
    for row in np.flatnonzero(partner >= 0).tolist():
        ours, theirs = target.parsed[row], golden.parsed[int(partner[row])]
        moved[ours.stem, ours.call] = theirs.call
    forward = {(p.stem, p.call) for p in target.parsed if p.phase == names.FORWARD}
    rows = {name: row for row, name in enumerate(golden.name)}
    for row, parsed in enumerate(target.parsed):
        if parsed.phase == names.FORWARD and target.recorded[row]:
            continue
        key = parsed.stem, parsed.call
        call = moved.get(key)
        if call is not None:
            partner[row] = rows.get(parsed.renumbered(int(call) if call.isdigit() else 0), -1)
        elif key not in forward:
            partner[row] = rows.get(parsed.name, -1)
