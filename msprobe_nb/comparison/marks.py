"""What each row is shown as: its verdict, or that its ``pass`` stands for nothing measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from msprobe_nb.comparison.status import NOT_MEASURED
from msprobe_nb.comparison.verdict import PASS, VERDICTS

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison, JudgedPart

UNMEASURED = "not measured"
# Most severe first; a row that nothing was measured for ranks just above a pass.
MARKS = (*VERDICTS[:PASS:-1], UNMEASURED, VERDICTS[PASS])


def marks_of(judged: JudgedPart) -> np.ndarray:
    """The mark of each shown row of a part.

    Returns
    -------
    ndarray of str, shape (rows,)
        One of ``MARKS``.
    """
    marks = np.array(VERDICTS, object)[judged.level]
    unmeasured = np.isin(judged.part.status[judged.rows], NOT_MEASURED)
    marks[unmeasured & (judged.level == PASS)] = UNMEASURED
    return marks


def row_marks(comparison: Comparison) -> np.ndarray:
    """The mark of each row of :attr:`Comparison.table`."""
    found = [marks_of(judged) for judged in comparison.judged]
    return np.concatenate(found) if found else np.empty(0, object)


def mark_counts(comparison: Comparison) -> dict[str, int]:
    """Rows of each mark, most severe first.

    Marks without a row are left out, except the verdicts of the official rules.
    """
    found = dict.fromkeys(MARKS, 0)
    for judged in comparison.judged:
        names, counts = np.unique(marks_of(judged).astype(str), return_counts=True)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            found[name] += count
    return {
        name: count
        for name, count in found.items()
        if count or name in ("error", "warning", "pass")
    }
