"""Comparing check values: CRC-32 (``md5`` recordings) and XOR."""

from __future__ import annotations

import numpy as np

from msprobe_nb.comparison.sides import NOT_AVAILABLE, Side


def compare_checksums(
    target: Side, golden: Side, partner: np.ndarray
) -> tuple[list[str], list[str]]:
    """The shown check values of both sides, ``N/A`` for a missing partner.

    Parameters
    ----------
    target, golden : Side
    partner : ndarray of int64
        Golden row of each target row, or -1.
    """
    theirs = golden.checksums
    return target.checksums, [
        theirs[row] if row >= 0 else NOT_AVAILABLE for row in partner.tolist()
    ]
