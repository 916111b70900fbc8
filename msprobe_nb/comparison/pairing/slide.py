"""Which of several equal calls in a row is the extra one?

An alignment by names cannot tell: of ``relu relu`` against one ``relu`` either may be left over. A
block of calls without partner may therefore slide along the sequence as long as the calls at its
ends are equal; it stays where the recorded values of the pairs agree best.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from msprobe_nb.comparison.sides import Side

_FARTHEST = 200  # positions a block may slide
Distance = Callable[[int, int], float]


def slide(tokens: np.ndarray, partner: np.ndarray, distance: Distance) -> None:
    """Move the blocks without partner of one sequence to where the pairs agree best, in place.

    Parameters
    ----------
    tokens : ndarray of int, shape (n,)
        Equal tokens may take each other's place.
    partner : ndarray of int64, shape (n,)
        Partner of each element, -1 without one; the others increase.
    distance : callable
        ``distance(element, partner)``: how far the values of a pair are apart.
    """
    alone = np.concatenate([[False], partner < 0, [False]])
    borders = np.flatnonzero(alone[1:] != alone[:-1]).reshape(-1, 2)
    for start, end in borders.tolist():
        best, moved = 0.0, None
        for step in (-1, 1):
            gain = 0.0
            for count in range(1, _FARTHEST + 1):
                # one step further: the far end of the block takes the neighbour's partner
                giver = start - count if step < 0 else end + count - 1
                taker = end - count if step < 0 else start + count - 1
                if not 0 <= giver < len(tokens) or partner[giver] < 0:
                    break
                if tokens[giver] != tokens[taker]:
                    break
                other = int(partner[giver])
                gain += distance(giver, other) - distance(taker, other)
                if gain > best:
                    best, moved = gain, (step, count)
        if moved:
            _move(partner, start, end, *moved)


def _move(partner: np.ndarray, start: int, end: int, step: int, count: int) -> None:
    length = end - start
    if step < 0:
        taken = partner[start - count : start].copy()
        partner[start - count : end] = -1
        partner[start - count + length : end] = taken
    else:
        taken = partner[end : end + count].copy()
        partner[start : end + count] = -1
        partner[start : start + count] = taken


def distances(target: Side, golden: Side) -> Distance:
    """How far the recorded values of two calls are apart.

    The mean over equal slots of ``|t - g| / (|t| + |g|)`` of the norms (of the values, for
    arguments), or the share of unequal check values; 1 when nothing can be compared.
    """
    sides = target, golden
    orders = [np.argsort(side.index.node, kind="stable") for side in sides]
    sorted_nodes = [side.index.node[order] for side, order in zip(sides, orders, strict=True)]

    @lru_cache(maxsize=100_000)
    def values(which: int, node: int) -> dict[str, float | str]:
        side, order, nodes = sides[which], orders[which], sorted_nodes[which]
        rows = order[slice(*np.searchsorted(nodes, [node, node + 1]).tolist())].tolist()
        norms, checksums = side.index.statistics.number[:, 3], side.index.checksum
        return {
            side.slots[row]: float(norms[row]) if checksums[row] is None else str(checksums[row])
            for row in rows
        }

    def distance(ours: int, theirs: int) -> float:
        a, b = values(0, ours), values(1, theirs)
        found = [_apart(a[slot], b[slot]) for slot in a.keys() & b.keys()]
        known = [value for value in found if value == value]
        return sum(known) / len(known) if known else 1.0

    return distance


def _apart(a: float | str, b: float | str) -> float:
    if a == b:
        return 0.0
    if isinstance(a, str) or isinstance(b, str):
        return 1.0
    return abs(a - b) / (abs(a) + abs(b))  # NaN where a value is unknown or infinite
