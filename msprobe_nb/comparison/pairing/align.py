"""Aligning two sequences of calls: which ones belong together, in order?

The longest common subsequence by the greedy algorithm of E. W. Myers, "An O(ND) difference
algorithm and its variations", Algorithmica 1 (1986), with two changes that keep it fast in numpy:
all diagonals of a round advance together, and how far a diagonal runs is looked up in tables of
equal blocks of length 1, 2, 4 ... (prefix doubling). After `LIMIT` rounds the best point so far is
kept and the search starts again from there, so very different sequences cost linear time; the
result is then no longer certain to be the longest.
"""

from __future__ import annotations

import numpy as np

LIMIT = 500  # edits searched for before a part of the path is fixed
_FAR = np.iinfo(np.int64).min // 2


def align(target: np.ndarray, golden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of equal codes that belong together.

    Parameters
    ----------
    target, golden : ndarray of int, shapes (n,) and (m,)
        Code of each element; equal codes may be paired.

    Returns
    -------
    ours, theirs : ndarray of int64, shape (k,)
        Both strictly increasing.
    """
    ours = np.flatnonzero(np.isin(target, golden))  # the others cannot be paired
    theirs = np.flatnonzero(np.isin(golden, target))
    if not len(ours):
        return ours, theirs[:0]
    blocks = _Blocks(target[ours], golden[theirs])
    pieces: list[tuple[np.ndarray, np.ndarray]] = []
    x, y = 0, 0
    while x < blocks.n and y < blocks.m:
        runs, x, y = _search(blocks, x, y)
        pieces += runs
    if not pieces:
        return ours[:0], theirs[:0]
    a, b = (np.concatenate(side) for side in zip(*pieces, strict=True))
    return ours[a], theirs[b]


class _Blocks:
    """Tells how long two sequences agree from any pair of positions on."""

    def __init__(self, a: np.ndarray, b: np.ndarray) -> None:
        self.n, self.m = len(a), len(b)
        _, joint = np.unique(np.concatenate([a, b]), return_inverse=True)
        ends = joint.max() + 1 + np.arange(2)  # differ from everything, so no block spans an end
        rank = np.concatenate([joint[: self.n], ends[:1], joint[self.n :], ends[1:]])
        self.tables = [rank]
        length = 1
        while 2 * length <= min(self.n, self.m):
            head, tail = rank[:-length], rank[length:]
            _, rank = np.unique(head * (tail.max() + 1) + tail, return_inverse=True)
            self.tables.append(rank)
            length *= 2

    def agree(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Length of the common run that starts at each pair of positions."""
        a, b = x.copy(), y + self.n + 1
        top = 0  # the longest blocks that any pair has in common
        while top < len(self.tables) and self._equal(top, a, b).any():
            top += 1
        for level in range(min(top, len(self.tables) - 1), -1, -1):
            step = self._equal(level, a, b).astype(np.int64) << level
            a, b = a + step, b + step
        return a - x

    def _equal(self, level: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether the blocks of length 2^level at each pair of places are equal."""
        table = self.tables[level]
        last = len(table) - 1
        inside = (a <= last) & (b <= last)
        return inside & (table[np.minimum(a, last)] == table[np.minimum(b, last)])


def _search(
    blocks: _Blocks, x0: int, y0: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int, int]:
    """Runs of pairs from (x0, y0) on, in order, and the point where they end."""
    n, m = blocks.n - x0, blocks.m - y0
    history: list[tuple[int, np.ndarray]] = []  # lowest diagonal and furthest x of each round
    low, furthest = 0, np.zeros(1, np.int64)
    furthest = furthest + blocks.agree(furthest + x0, furthest + y0)
    for edits in range(n + m + 1):
        diagonals = low + 2 * np.arange(len(furthest))
        history.append((low, furthest))
        done = (diagonals == n - m) & (furthest >= n)
        if done.any() or edits == LIMIT:
            best = int(np.flatnonzero(done)[0]) if done.any() else _best(furthest, diagonals, n, m)
            return _runs(history, int(diagonals[best]), x0, y0)
        low, furthest = _advance(blocks, low, furthest, (x0, y0), (n, m))
    raise AssertionError("a path always exists")  # deleting and inserting everything is one


def _best(furthest: np.ndarray, diagonals: np.ndarray, n: int, m: int) -> int:
    """The diagonal whose furthest point is furthest in all, inside both sequences."""
    y = furthest - diagonals
    inside = (furthest >= 0) & (furthest <= n) & (y >= 0) & (y <= m)
    return int(np.argmax(np.where(inside, furthest + y, -1)))


def _advance(
    blocks: _Blocks, low: int, furthest: np.ndarray, start: tuple[int, int], size: tuple[int, int]
) -> tuple[int, np.ndarray]:
    """One more edit: the furthest x on each diagonal that can be reached."""
    n, m = size
    padded = np.concatenate([[_FAR], furthest, [_FAR]])
    reached = np.maximum(padded[:-1] + 1, padded[1:])  # skip one of the target, or of the golden
    low -= 1
    diagonals = low + 2 * np.arange(len(reached))
    y = reached - diagonals
    valid = (reached >= 0) & (reached <= n) & (y >= 0) & (y <= m)
    runs = np.zeros(len(reached), np.int64)
    runs[valid] = blocks.agree(reached[valid] + start[0], y[valid] + start[1])
    return low, np.where(valid, reached + runs, _FAR)


def _runs(
    history: list[tuple[int, np.ndarray]], diagonal: int, x0: int, y0: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int, int]:
    """Walk the path to a diagonal's furthest point back to its start."""
    low, furthest = history[-1]
    x = int(furthest[(diagonal - low) // 2])
    end = x0 + x, y0 + x - diagonal
    runs: list[tuple[np.ndarray, np.ndarray]] = []
    for edits in range(len(history) - 1, -1, -1):
        if edits:
            before_low, before = history[edits - 1]
            at = (diagonal - 1 - before_low) // 2
            left = int(before[at]) + 1 if 0 <= at < len(before) else _FAR
            right = int(before[at + 1]) if 0 <= at + 1 < len(before) else _FAR
            start, previous = (left, diagonal - 1) if left >= right else (right, diagonal + 1)
        else:
            start, previous = 0, diagonal
        if x > start:
            span = np.arange(start, x)
            runs.append((x0 + span, y0 + span - diagonal))
        if edits:
            x = start - 1 if previous < diagonal else start
            diagonal = previous
    return runs[::-1], *end
