"""The noise floor: what two golden runs differ by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison


def noise_sizes(comparison: Comparison) -> list[np.ndarray | None]:
    """For each part the deviation of each target row's golden value between the golden runs.

    Returns
    -------
    list of (ndarray of float64, shape (rows,), or None)
        NaN where the second golden run has no such value; None without a second run.
    """
    if comparison.noise is None:
        return [None] * len(comparison.parts)
    golden: dict[tuple[int, int], np.ndarray] = {}
    for part, found in zip(comparison.noise.parts, comparison.noise.deviations, strict=True):
        sizes = np.full(len(part.golden) + 1, np.nan)  # the last entry stands for no partner
        rows = found.partner >= 0
        sizes[found.partner[rows]] = found.size[rows]
        golden[part.golden.pack.step, part.golden.pack.rank] = sizes
    noise: list[np.ndarray | None] = []
    for part in comparison.parts:
        pack = part.golden.pack
        known = golden.get((pack.step, pack.rank))
        partner = np.maximum(part.pairs.golden, part.pairs.gated)
        noise.append(None if known is None else known[partner])
    return noise
