"""The detail pane: one row of a comparison, looked at closely."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from html import escape
from typing import Any

import ipywidgets as W
import numpy as np

from msprobe_nb.comparison.inspect import RowDetail
from msprobe_nb.text import number, percent
from msprobe_nb.views.figures import HeatMap, HistogramPlot
from msprobe_nb.views.html import Markup, short_dtype, style, symbol, table
from msprobe_nb.views.palette import DIFFERENCE, GOLDEN, TARGET

_OUTSIDE = ("site-packages", "lib/python", "dist-packages")
_MOST_ROWS = 12


class DetailPane(W.VBox):
    """Shows a :class:`RowDetail`.

    What was recorded, the call stack and, where values were recorded, histograms, the worst
    elements and a heat map.

    Parameters
    ----------
    shares : collection of str
        Metrics that are shown in percent.
    """

    def __init__(self, shares: Collection[str] = ()) -> None:
        self.detail: RowDetail | None = None
        self.shares = shares
        self._facts, self._worst = W.HTML(), W.HTML()
        self._boxes: list[W.HBox] = []
        super().__init__([self._facts])
        self.add_class("msnb-pane")
        self.clear()

    @cached_property
    def values(self) -> HistogramPlot:
        """Both sides' values."""
        return HistogramPlot("Values", {"target": TARGET, "golden": GOLDEN})

    @cached_property
    def differences(self) -> HistogramPlot:
        """Target minus golden."""
        return HistogramPlot("Target \u2212 golden", {"difference": DIFFERENCE})

    @cached_property
    def heat(self) -> HeatMap:
        """A plane through the values."""
        return HeatMap()

    def clear(self) -> None:
        """Show a hint instead of a row."""
        self.detail = None
        self._facts.value = (
            f'{style()}<div class="msnb soft">Click a row to see both sides, its call stack and, '
            "where values were recorded, how they differ.</div>"
        )
        self._arrange([])

    def show(self, detail: RowDetail) -> None:
        """Show a row."""
        self.detail = detail
        self._facts.value = facts_html(detail, self.shares)
        rows: list[list[W.Widget]] = []
        if detail.sides:
            self.values.show(detail.histogram())
            rows.append([self.values.view])
        if detail.has_values:
            self.differences.show(detail.difference_histogram())
            rows[0].append(self.differences.view)
            self._worst.value = f'{style()}<div class="msnb">{worst_html(detail)}</div>'
            rows.append([self._worst])
            if len(detail.shape) >= 1:
                self.heat.show(detail)
                rows[1].insert(0, self.heat)
        self._arrange(rows)

    def _arrange(self, rows: list[list[W.Widget]]) -> None:
        """Put widgets below the facts, in rows that wrap; what is there already stays."""
        while len(self._boxes) < len(rows):
            layout = W.Layout(flex_flow="row wrap", align_items="flex-start")
            self._boxes.append(W.HBox(layout=layout))
            self.children = [self._facts, *self._boxes]
        for at, box in enumerate(self._boxes):
            row = rows[at] if at < len(rows) else []
            if list(box.children) != row:
                box.children = row


def facts_html(detail: RowDetail, shares: Collection[str] = ()) -> str:
    """Both sides' facts, the verdict's reason and the call stack."""
    keys = list(dict.fromkeys([*detail.target, *detail.golden]))
    rows = [
        (
            "warning" if detail.golden and detail.target.get(key) != detail.golden.get(key) else "",
            [key, _fact(key, detail.target.get(key)), _fact(key, detail.golden.get(key))],
        )
        for key in keys
        if not (detail.target.get(key) is None and detail.golden.get(key) is None)
    ]
    sides = table(["", "target", "golden" if detail.golden else "golden (none)"], rows)
    measured = [
        ("", [name, percent(value) if name in shares else number(value)])
        for name, value in detail.metrics.items()
        if value == value
    ]
    metrics = table(["metric", "value"], measured, ["", "n"]) if measured else ""
    reason = f": {escape(detail.reason)}" if detail.reason else ""
    problem = f'<p class="soft">{escape(detail.problem)}</p>' if detail.problem else ""
    return (
        f'{style()}<div class="msnb"><h3>{symbol(detail.mark)} '
        f"{escape(str(detail.target.get('name', '')))}</h3>"
        f"<p>{escape(detail.mark)}{reason}</p>"
        f'<div style="display:flex;gap:18px;flex-wrap:wrap;align-items:flex-start">'
        f"{sides}{metrics}</div>{problem}{stack_html(detail.stack)}</div>"
    )


def _fact(key: str, value: Any) -> str:
    if key == "dtype":
        return str(short_dtype("" if value is None else value))
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else str(value)
    return "" if value is None else str(value)


def stack_html(stack: list[str]) -> str:
    """A call stack: the user's own frames, and the whole of it folded in; empty without one."""
    if not stack:
        return ""
    own = [frame for frame in stack if not any(part in frame for part in _OUTSIDE)]
    lines = "".join(f"<div>{_frame(frame)}</div>" for frame in own)
    whole = "".join(f'<div class="soft">{_frame(frame)}</div>' for frame in stack)
    return (
        f"<p><b>Called from</b></p>{lines}"
        f"<details><summary>all {len(stack)} frames, innermost first</summary>{whole}</details>"
    )


def _frame(frame: str) -> str:
    """``file, line, function`` and the line of code of a recorded frame."""
    place, _, code = frame.partition("\n")
    place = place.strip().rstrip(",").removeprefix("File ")
    return f'<code class="soft">{escape(place)}</code> <code>{escape(code.strip())}</code>'


def worst_html(detail: RowDetail) -> str:
    """The elements that differ most."""
    worst = detail.worst()
    rows = [
        (
            "",
            [
                Markup(f"<code>{escape(str(list(item['index'])))}</code>"),
                _short(item["target"]),
                _short(item["golden"]),
                number(item["difference"]),
                percent(item["relative"]),
            ],
        )
        for item in worst[:_MOST_ROWS]
    ]
    header = ["index", "target", "golden", "difference", "relative"]
    return f"<p><b>Worst elements</b></p>{table(header, rows, ['s', *'nnnn'])}"


def _short(value: float | complex) -> str:
    return f"{value:.6g}"
