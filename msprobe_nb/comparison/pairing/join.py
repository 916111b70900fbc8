"""From keys or paired calls to paired rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msprobe_nb.comparison.sides import Side

Key = str | None


def join(target: Sequence[Key], golden: Sequence[Key]) -> tuple[np.ndarray, np.ndarray]:
    """Join two sides by key.

    Parameters
    ----------
    target, golden : sequence of str or None
        None is equal to nothing.

    Returns
    -------
    rows : ndarray of int64
        Golden row of each target row, or -1. A repeated key is paired in order of occurrence.
    repeated : ndarray of bool
        Whether a target row's key occurs several times on a side.
    """
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
    return rows, np.array([key is not None and key in often for key in target], bool)


def _numbered(keys: Sequence[Key]) -> list[tuple[Key, int]]:
    """Each key with the number of its earlier occurrences."""
    seen: dict[Key, int] = {}
    numbered = []
    for key in keys:
        at = seen.get(key, 0)
        seen[key] = at + 1
        numbered.append((key, at))
    return numbered


def rows_of_calls(side: Side, other: Side, partner: np.ndarray, slots: Sequence[Key]) -> np.ndarray:
    """The partner of each row of paired calls: the row at the same slot of the call's partner.

    Parameters
    ----------
    side, other : Side
    partner : ndarray of int64
        The other side's call of each call, or -1.
    slots : sequence of str or None
        The slot of each row on the other side.

    Returns
    -------
    ndarray of int64
        Row of the other side, or -1.
    """
    places = zip(other.index.node.tolist(), other.slots, strict=True)
    row_of: dict[tuple[int, Key], int] = dict(zip(places, range(len(other)), strict=True))
    wanted = zip(partner[side.index.node].tolist(), slots, strict=True)
    return np.array([row_of.get(place, -1) for place in wanted], np.int64)


def turned(rows: np.ndarray, count: int) -> np.ndarray:
    """The partner of each of the other side's `count` rows; the first of several."""
    back = np.full(count, -1)
    paired = np.flatnonzero(rows >= 0)[::-1]
    back[rows[paired]] = paired
    return back
