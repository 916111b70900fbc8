"""The live view of a comparison: the table, and a close look at the selected row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as W
import numpy as np
import pandas as pd

from msprobe_nb.comparison.inspect import inspect_row
from msprobe_nb.comparison.marks import MARKS, row_marks
from msprobe_nb.errors import UnknownTensorError
from msprobe_nb.views.detail import DetailPane
from msprobe_nb.views.grid import Grid
from msprobe_nb.views.html import is_fraction, main_metrics, short_dtype
from msprobe_nb.views.table_model import Column

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison

MARK = "verdict"  # in the grid, rows that nothing was measured for are set apart
_HELP = {
    MARK: "verdict; 'not measured' are rows that pass only because nothing could be compared, "
    "see 'status'",
    "target": "name of the value in the target run",
    "golden": "name of its golden partner; empty without one",
    "reason": "why the row is marked, or why it could not be measured",
    "status": "what became of the row, apart from its verdict",
    "Cosine": "cosine of the angle between both tensors, 1 for equal direction",
    "EucDist": "L2 norm of the difference",
    "MaxAbsErr": "largest absolute difference of an element",
    "MaxRelativeErr": "largest relative difference, in terms of the golden value",
    "Relative L2": "L2 norm of the difference divided by that of the golden tensor",
    "One Thousandth Err Ratio": "share of elements within 1/1000 of the golden value",
    "Five Thousandths Err Ratio": "share of elements within 5/1000 of the golden value",
    "NormRelativeErr": "relative difference of the L2 norms",
    "L2norm diff": "target minus golden L2 norm",
}
_WIDTHS = {MARK: 112, "target": 330, "golden": 300, "node": 280, "reason": 430}
_CLOSER_IS_LARGER = ("Cosine", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
_LAST = ("dtype", "shape")


class ComparisonView(W.VBox):
    """Live table and detail pane.

    Attributes
    ----------
    comparison : Comparison
    marks : ndarray of str
        What each row of the table is shown as.
    grid : Grid
    detail : DetailPane
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        frame = comparison.table
        self.marks = row_marks(comparison)
        self.grid = Grid(
            _shown(frame, self.marks),
            grid_columns(comparison, frame),
            mark_column=MARK,
            chosen=("step", "rank"),
            start=_first_of_the_worst(self.marks),
            export=self._export,
            height=min(440, 100 + 24 * max(4, len(frame))),
        )
        shares = {name for name in frame.columns if is_fraction(comparison, name)}
        self.detail = DetailPane(shares)
        self.grid.observe(self._look, "selected")
        super().__init__([self.grid, self.detail])

    @property
    def selected(self) -> pd.DataFrame:
        """The selected rows of :attr:`Comparison.table`."""
        return self.comparison.table.iloc[list(self.grid.selected)]

    @property
    def filtered(self) -> pd.DataFrame:
        """The rows that pass the table's filters, in the order shown."""
        return self.comparison.table.iloc[self.grid.model.view]

    def select(self, name: str) -> None:
        """Select the row of a target name, as a click would."""
        hits = np.flatnonzero((self.comparison.table["target"] == name).to_numpy())
        if not len(hits):
            raise UnknownTensorError(
                f"no row of the target is called {name!r}",
                remedy="See the column 'target' of the comparison's table",
            )
        self.grid.selected = [int(hits[0])]

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the filtered rows to a csv file.

        The column ``mark`` holds the verdicts as shown, with ``not measured``.
        """
        target = Path(path)
        frame = self.filtered
        at = list(frame.columns).index(MARK) + 1
        frame.insert(at, "mark", self.marks[self.grid.model.view])
        frame.to_csv(target, index=False)
        return target

    def _export(self, view: np.ndarray) -> str:
        path = self.export(_free_name(Path("comparison_rows.csv")))
        return f"{len(view):,} rows written to {path}"

    def _look(self, change: dict[str, Any]) -> None:
        chosen = change["new"]
        if chosen:  # of several rows the one chosen last
            self.detail.show(inspect_row(self.comparison, int(chosen[-1])))
        else:
            self.detail.clear()

    def __repr__(self) -> str:
        return f"<ComparisonView: {len(self.comparison.table):,} rows>"


def _shown(frame: pd.DataFrame, marks: np.ndarray) -> pd.DataFrame:
    """The table with the texts that the grid shows."""
    texts: dict[str, Any] = {MARK: marks}
    for name in ("target dtype", "golden dtype"):
        if name in frame:
            texts[name] = frame[name].map({v: short_dtype(v) for v in frame[name].unique()})
    for name in ("target shape", "golden shape"):
        if name in frame:
            texts[name] = frame[name].where(frame[name] != "[]", "")
    return frame.assign(**texts)


def _first_of_the_worst(marks: np.ndarray) -> int:
    """The first row of the most severe mark; 0 when nothing is marked."""
    for mark in MARKS:
        if mark in ("error", "unreadable", "warning") and len(
            rows := np.flatnonzero(marks == mark)
        ):
            return int(rows[0])
    return 0


def grid_columns(comparison: Comparison, frame: pd.DataFrame) -> list[Column]:
    """How the columns of the result table are shown."""
    main = main_metrics(comparison)
    first = [MARK, "target", *main]
    shown = [*first, *(f"target {name}" for name in _LAST), "reason"]
    rest = [name for name in frame.columns if name not in shown]
    columns = []
    for name in [*first, "target dtype", "target shape", "reason", *rest]:
        kind = _kind(comparison, frame, name)
        columns.append(
            Column(
                name,
                kind,
                _WIDTHS.get(name) or max(118 if kind == "text" else 138, 7 * len(name) + 24),
                name in shown,
                _HELP.get(name, ""),
                MARKS[::-1] if name == MARK else (),
                _first_direction(kind, name),
            )
        )
    return columns


def _first_direction(kind: str, name: str) -> str:
    """The direction in which the worst rows come first; names go by the alphabet."""
    by_alphabet = kind in ("text", "integer") and name != MARK
    return "asc" if by_alphabet or name in _CLOSER_IS_LARGER else "desc"


def _kind(comparison: Comparison, frame: pd.DataFrame, name: str) -> str:
    if name == MARK:
        return "text"
    dtype = frame[name].dtype
    if pd.api.types.is_integer_dtype(dtype):
        return "integer"
    if pd.api.types.is_float_dtype(dtype):
        return "fraction" if is_fraction(comparison, name) else "number"
    return "text"


def _free_name(path: Path) -> Path:
    """`path`, or with a number when it is taken."""
    for number in range(1, 10_000):
        candidate = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        if not candidate.exists():
            return candidate
    return path
