"""The live view of a comparison: the table, and a close look at the selected row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as W
import numpy as np
import pandas as pd

from msprobe_nb.comparison.inspect import inspect_row
from msprobe_nb.comparison.status import NOT_MEASURED, STATUS_TEXTS
from msprobe_nb.views.detail import DetailPane
from msprobe_nb.views.grid import Grid
from msprobe_nb.views.html import is_fraction, main_metrics
from msprobe_nb.views.table_model import Column

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison

MARK = "verdict"  # in the grid, rows that nothing was measured for are set apart
_UNMEASURED = {STATUS_TEXTS[code] for code in NOT_MEASURED}
_HELP = {
    MARK: "verdict; 'not measured' are rows that pass only because nothing could be compared",
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
_LAST = ("dtype", "shape")


class ComparisonView(W.VBox):
    """Live table and detail pane.

    Attributes
    ----------
    comparison : Comparison
    grid : Grid
    detail : DetailPane
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        frame = comparison.table
        self.grid = Grid(
            frame.assign(**{MARK: _marks(frame)}),
            grid_columns(comparison, frame),
            mark_column=MARK,
            chosen=("step", "rank"),
            export=self._export,
            height=min(440, 100 + 24 * max(4, len(frame))),
        )
        self.detail = DetailPane()
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
            raise KeyError(name)
        self.grid.selected = [int(hits[0])]

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the filtered rows to a csv file."""
        target = Path(path)
        self.filtered.to_csv(target, index=False)
        return target

    def _export(self, view: np.ndarray) -> str:
        path = self.export(_free_name(Path("comparison_rows.csv")))
        return f"{len(view):,} rows written to {path}"

    def _look(self, change: dict[str, Any]) -> None:
        chosen = change["new"]
        if len(chosen) == 1:
            self.detail.show(inspect_row(self.comparison, int(chosen[0])))
        elif not chosen:
            self.detail.clear()

    def __repr__(self) -> str:
        return f"<ComparisonView: {len(self.comparison.table):,} rows>"


def _marks(frame: pd.DataFrame) -> np.ndarray:
    """Verdicts, with the rows set apart that pass only because nothing could be compared."""
    marks = frame["verdict"].to_numpy(object).copy()
    unmeasured = frame["status"].isin(_UNMEASURED).to_numpy()
    marks[unmeasured & (marks == "pass")] = "not measured"
    return marks


def grid_columns(comparison: Comparison, frame: pd.DataFrame) -> list[Column]:
    """How the columns of the result table are shown."""
    main = main_metrics(comparison)
    first = [MARK, "target", *main]
    shown = [*first, *(f"target {name}" for name in _LAST), "reason"]
    rest = [name for name in frame.columns if name not in shown]
    columns = []
    for name in [*first, "target dtype", "target shape", "reason", *rest]:
        kind = _kind(comparison, frame, name)
        width = _WIDTHS.get(name, 118 if kind == "text" else 138)
        columns.append(Column(name, kind, width, name in shown, _HELP.get(name, "")))
    return columns


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
