"""Aligning the calls of two recordings when one has calls that the other lacks.

Names number the calls of an operator one after the other, so one extra call moves every later
number and pairs each call with its neighbour's. Here the two sequences of forward calls are
aligned by what was called and inside which module (shortest edit script, E. W. Myers, "An O(ND)
difference algorithm and its variations", 1986); backward calls follow their forward calls.
"""

from __future__ import annotations

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.sides import Side
from msprobe_nb.store.index import Nodes

_ENOUGH = 0.9  # of the calls that names pair; else the runs nest their calls differently
_MOST_EDITS = 1000  # beyond it the runs are of different programs; names are all there is


def align_calls(target: Nodes, golden: Nodes) -> np.ndarray | None:
    """The golden call of each target call.

    Parameters
    ----------
    target, golden : Nodes

    Returns
    -------
    ndarray of int64, shape (calls of the target,), or None
        -1 for a call that only the target made. None if the sequences of forward calls agree, or
        differ so much that aligning them means nothing: names pair them then.
    """
    ours, theirs = _forward(target), _forward(golden)
    signs: dict[tuple[str, str], int] = {}
    a, b = (
        [signs.setdefault(_sign(nodes, row), len(signs)) for row in rows]
        for nodes, rows in ((target, ours), (golden, theirs))
    )
    if a == b:
        return None
    pairs = _common(a, b)
    by_name = {golden.name[row] for row in theirs}
    named = sum(target.name[row] in by_name for row in ours)
    if pairs is None or len(pairs) < _ENOUGH * named:
        return None
    partner = np.full(len(target), -1)
    for i, j in pairs:
        partner[ours[i]] = theirs[j]
    _follow(target, golden, partner)
    return partner


def aligned_keys(target: Side, golden: Side) -> list[str] | None:
    """Matching keys of the target rows that pair aligned calls; None where names do.

    A row of a call without partner gets a key that no golden row has.
    """
    if target.pack.is_debug or golden.pack.is_debug:
        return None
    nodes, partners = target.pack.nodes, golden.pack.nodes
    aligned = align_calls(nodes, partners)
    if aligned is None:
        return None
    their_keys = _keys_of_calls(golden)
    keys = []
    for row, node in enumerate(target.index.node.tolist()):
        slot = names.slot_of(target.index.name[row], nodes.name[node])
        partner = int(aligned[node])
        keys.append(names.tensor_name(their_keys[partner], slot) if partner >= 0 else f"\0{row}")
    return keys


def _keys_of_calls(side: Side) -> list[str]:
    """The name under which each call's rows are matched (backward calls are renumbered)."""
    found = list(side.pack.nodes.name)
    index = side.index
    rows, first = np.unique(index.node, return_index=True)
    for node, row in zip(rows.tolist(), first.tolist(), strict=True):
        slot = names.slot_of(index.name[row], side.pack.nodes.name[node])
        if side.keys[row].endswith(f".{slot}"):
            found[node] = side.keys[row][: -len(slot) - 1]
    return found


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


def _common(a: list[int], b: list[int]) -> list[tuple[int, int]] | None:
    """A longest common subsequence as pairs of positions; None beyond ``_MOST_EDITS`` edits."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    stop = 0
    while stop < min(len(a), len(b)) - start and a[-1 - stop] == b[-1 - stop]:
        stop += 1
    n, m = len(a) - start - stop, len(b) - start - stop
    middle = _shortest_edit(a[start : start + n], b[start : start + m])
    if middle is None:
        return None
    return [
        *((at, at) for at in range(start)),
        *((start + i, start + j) for i, j in middle),
        *((start + n + at, start + m + at) for at in range(stop)),
    ]


def _shortest_edit(a: list[int], b: list[int]) -> list[tuple[int, int]] | None:
    """Pairs of equal elements that a shortest edit script keeps."""
    reach: dict[int, int] = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(len(a) + len(b), _MOST_EDITS) + 1):
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reach[k] = x
            if x >= len(a) and x - k >= len(b):
                return _walk_back(a, b, [*trail, reach])
        trail.append(dict(reach))
    return None


def _walk_back(a: list[int], b: list[int], trail: list[dict[int, int]]) -> list[tuple[int, int]]:
    """The kept pairs, from the furthest reaching points of every number of edits."""
    pairs: list[tuple[int, int]] = []
    x, y = len(a), len(b)
    for edits in range(len(trail) - 1, 0, -1):
        before, k = trail[edits - 1], x - y
        down = k == -edits or (k != edits and before[k - 1] < before[k + 1])
        start = before[k + 1] if down else before[k - 1]
        stop = start if down else start + 1
        while x > stop:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start, start - (k + 1 if down else k - 1)
    pairs += [(at, at) for at in range(x - 1, -1, -1)]
    return pairs[::-1]


def _follow(target: Nodes, golden: Nodes, partner: np.ndarray) -> None:
    """Pair all other calls: those of one name with an aligned forward call as that one is."""
    moved: dict[tuple[str, str], str] = {}
    for row in np.flatnonzero(partner >= 0).tolist():
        ours, theirs = target.parsed[row], golden.parsed[int(partner[row])]
        moved[ours.stem, ours.call] = theirs.call
    forward = {(parsed.stem, parsed.call) for parsed in target.parsed
               if parsed.phase == names.FORWARD}  # fmt: skip
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
