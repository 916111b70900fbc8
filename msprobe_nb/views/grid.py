"""The live table: rows stay in the kernel, only those on the screen travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets as T

from msprobe_nb.views.palette import MARKS, css
from msprobe_nb.views.table_model import FILTER_HELP, Column, TableModel

if TYPE_CHECKING:
    import pandas as pd

_HERE = Path(__file__).parent


class Grid(anywidget.AnyWidget):
    """A table of any number of rows.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of Column
    mark_column : str
        Text column whose value colours the row and fills the legend.
    chosen : sequence of str
        Numeric columns that get a drop-down list of their values (step, rank).
    start : int
        Row that is scrolled to at first.
    export : callable, optional
        Called with the view's row numbers when the user asks for an export; returns a message.

    Attributes
    ----------
    selected : list of int
        Row numbers of the selected rows.
    """

    _esm = "".join((_HERE / name).read_text("utf-8") for name in ("grid_head.js", "grid.js"))
    _css = css() + (_HERE / "grid.css").read_text("utf-8")

    columns = T.List().tag(sync=True)
    visible = T.List().tag(sync=True)
    legend = T.List().tag(sync=True)
    selectors = T.List().tag(sync=True)
    total = T.Int().tag(sync=True)
    all_rows = T.Int().tag(sync=True)
    sort = T.List().tag(sync=True)
    filters = T.Dict().tag(sync=True)
    choices = T.Dict().tag(sync=True)
    faults = T.Dict().tag(sync=True)
    selected = T.List(T.Int()).tag(sync=True)
    reveal = T.List(T.Int()).tag(sync=True)
    version = T.Int().tag(sync=True)
    height = T.Int(420).tag(sync=True)
    mark = T.Unicode().tag(sync=True)
    message = T.Unicode().tag(sync=True)
    filter_help = T.Unicode(FILTER_HELP).tag(sync=True)

    def __init__(
        self,
        frame: pd.DataFrame,
        columns: Sequence[Column],
        *,
        mark_column: str = "",
        chosen: Sequence[str] = (),
        start: int = 0,
        export: Callable[[np.ndarray], str] | None = None,
        **options: Any,
    ) -> None:
        self.model = TableModel(frame, columns)
        self._export = export
        super().__init__(
            columns=[
                {
                    "name": c.name,
                    "kind": c.kind,
                    "width": c.width,
                    "help": c.help,
                    "first": c.first,
                }
                for c in columns
            ],
            visible=[column.name for column in columns if column.visible],
            legend=self._legend(mark_column),
            selectors=[
                {"name": name, "values": values}
                for name in chosen
                if len(values := sorted(set(frame[name].tolist()))) > 1
            ],
            mark=mark_column,
            reveal=[start, 0, -1],
            total=len(frame),
            all_rows=len(frame),
            **options,
        )
        self.on_msg(self._receive)
        self.observe(self._refresh, ["sort", "filters", "choices"])
        self.observe(self._reveal, "selected")

    def _legend(self, mark_column: str) -> list[dict[str, Any]]:
        if not mark_column:
            return []
        counts = self.model.counts(mark_column)
        return [
            {"value": name, "text": mark.text, "symbol": mark.symbol, "count": counts.get(name, 0)}
            for name, mark in MARKS.items()
            if name in counts or name in ("error", "warning", "pass")
        ]

    def _refresh(self, _: object = None) -> None:
        self.model.apply(self.filters, self.sort, self.choices)
        with self.hold_sync():
            self.faults = self.model.faults
            self.total = len(self.model.view)
            self.version += 1

    def _reveal(self, change: dict[str, Any]) -> None:
        """Tell the browser where the selected row stands; it scrolls there if need be."""
        if len(change["new"]) == 1:
            found = np.flatnonzero(self.model.view == change["new"][0])
            # The second number makes the same place news again; by the third the browser knows
            # whether that row still is the selected one.
            at = int(found[0]) if len(found) else -1
            self.reveal = [at, 1 - self.reveal[1], change["new"][0]]

    def _receive(self, _: object, content: dict[str, Any], buffers: list[bytes]) -> None:
        kind = content.get("kind")
        if kind == "rows":
            self._send_rows(content)
        elif kind == "export" and self._export is not None:
            try:
                self.message = self._export(self.model.view)
            except OSError as error:
                self.message = f"Not written: {error}"

    def _send_rows(self, request: dict[str, Any]) -> None:
        known = {column["name"] for column in self.columns}
        names = [name for name in request.get("columns", []) if name in known]
        start, stop = int(request["start"]), int(request["stop"])
        texts, numbers, labels = self.model.page(start, min(stop, start + 1000), names)
        header = {
            "kind": "rows",
            "id": request["id"],
            "start": start,
            "columns": names,
            "text": texts,
        }
        buffers = [labels.astype("<i4").tobytes(), *(n.astype("<f8").tobytes() for n in numbers)]
        self.send(header, buffers=buffers)

    @property
    def selection(self) -> pd.DataFrame:
        """The selected rows."""
        return self.model.frame.iloc[list(self.selected)]

    @property
    def filtered(self) -> pd.DataFrame:
        """The rows that pass the filters, in the order shown."""
        return self.model.frame.iloc[self.model.view]

    def __repr__(self) -> str:
        return f"<Grid: {self.total:,} of {self.all_rows:,} rows>"
