"""Whether values of a kernel dump are as accurate as they should be.

Tensors: by cosine and largest absolute error. Statistics: the maxima are less than half apart.
Source: specification 02, sections 5.4 and 10; here differences have no sign, and values of one
element are judged by the cosine that their relative error amounts to.
"""

from __future__ import annotations

import numpy as np

from msprobe_nb.comparison import tensors
from msprobe_nb.comparison.cells import NUMBER, UNSUPPORTED
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.status import COMPARED, NON_FINITE
from msprobe_nb.store.pack import TENSOR_MODE

REACHED, MISSED, UNKNOWN = range(3)
VERDICT_TEXTS = ("Yes", "No", "")


def kernel_verdicts(part: Part) -> np.ndarray:
    """``REACHED``, ``MISSED`` or ``UNKNOWN`` (nothing to compare) for each row, as uint8."""
    return _of_tensors(part) if part.mode == TENSOR_MODE else _of_statistics(part)


def _of_tensors(part: Part) -> np.ndarray:
    cosine, distance, relative = (
        part.metrics[tensors.COLUMNS[at]]
        for at in (tensors.COSINE, tensors.MAX_ABS, tensors.MAX_REL)
    )
    with np.errstate(all="ignore"):
        of_one = np.sqrt(1 - np.minimum(1, np.nan_to_num(relative.number, nan=1.0)) ** 2)
    # Without a cosine one side is zero everywhere and the other is not.
    similar = np.where(cosine.mark == NUMBER, cosine.number, 0.0)
    similar = np.where(cosine.mark == UNSUPPORTED, of_one, similar)
    far = distance.number
    missed = ((similar < 0.99) & (far > 0.001)) | (similar < 0.9) | (far > 1)
    verdict = np.where(missed, MISSED, REACHED)
    verdict[part.status != COMPARED] = UNKNOWN
    verdict[part.status == NON_FINITE] = MISSED
    return verdict.astype(np.uint8)


def _of_statistics(part: Part) -> np.ndarray:
    ours, theirs = part.target.statistics.number[:, 0], part.golden_statistics.number[:, 0]
    with np.errstate(all="ignore"):
        apart = np.abs(ours - theirs) / (np.maximum(np.abs(ours), np.abs(theirs)) + 1e-10)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    verdict = np.where(same | (apart <= 0.5), REACHED, MISSED)
    verdict[~part.matched | ~_same_shape(part)] = UNKNOWN
    return verdict.astype(np.uint8)


def _same_shape(part: Part) -> np.ndarray:
    same = np.zeros(len(part), bool)
    rows = np.flatnonzero(part.matched)
    same[rows] = (
        part.target.shape.expand()[rows] == part.golden.shape.expand()[part.pairs.golden[rows]]
    )
    return same
