"""The detail pane: one row of a comparison, looked at closely."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as W
import numpy as np
from bokeh.layouts import row as bokeh_row
from bokeh.models import BasicTicker, ColorBar, ColumnDataSource, HoverTool, LinearColorMapper
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from msprobe_nb.comparison.inspect import Histogram, RowDetail
from msprobe_nb.text import number, percent
from msprobe_nb.views.bokeh_view import BokehView
from msprobe_nb.views.html import Markup, style, symbol, table
from msprobe_nb.views.palette import DIFFERENCE, GOLDEN, TARGET

_OUTSIDE = ("site-packages", "lib/python", "dist-packages")
_MOST_ROWS = 12


class DetailPane(W.VBox):
    """Shows a :class:`RowDetail`.

    What was recorded, the call stack and, where values were recorded, histograms, the worst
    elements and a heat map.
    """

    def __init__(self) -> None:
        self.detail: RowDetail | None = None
        self._facts = W.HTML()
        self._plots = W.VBox()
        super().__init__([self._facts, self._plots])
        self.clear()

    def clear(self) -> None:
        """Show a hint instead of a row."""
        self.detail = None
        self._facts.value = (
            f'{style()}<div class="msnb soft">Click a row to see both sides, its call stack and, '
            "where values were recorded, how they differ.</div>"
        )
        self._plots.children = ()

    def show(self, detail: RowDetail) -> None:
        """Show a row."""
        self.detail = detail
        self._facts.value = facts_html(detail)
        self._plots.children = self._value_views(detail) if detail.has_values else ()

    def _value_views(self, detail: RowDetail) -> tuple[W.Widget, ...]:
        histograms = bokeh_row(
            histogram_figure(detail.histogram(), "Values", {"target": TARGET, "golden": GOLDEN}),
            histogram_figure(
                detail.difference_histogram(), "Target \u2212 golden", {"difference": DIFFERENCE}
            ),
        )
        views: list[W.Widget] = [BokehView(histograms)]
        worst = W.HTML(f'{style()}<div class="msnb">{worst_html(detail)}</div>')
        if len(detail.shape) >= 1:
            heat = HeatMap(detail)
            views.append(W.HBox([heat, worst]))
        else:
            views.append(worst)
        return tuple(views)


def facts_html(detail: RowDetail) -> str:
    """Both sides' facts, the verdict's reason and the call stack."""
    keys = list(dict.fromkeys([*detail.target, *detail.golden]))
    rows = [
        (
            "warning" if detail.golden and detail.target.get(key) != detail.golden.get(key) else "",
            [key, _fact(detail.target.get(key)), _fact(detail.golden.get(key))],
        )
        for key in keys
        if not (detail.target.get(key) is None and detail.golden.get(key) is None)
    ]
    sides = table(["", "target", "golden" if detail.golden else "golden (none)"], rows)
    metrics = table(
        ["metric", "value"], [("", [k, number(v)]) for k, v in detail.metrics.items() if v == v]
    )
    reason = f": {escape(detail.reason)}" if detail.reason else ""
    problem = f'<p class="soft">{escape(detail.problem)}</p>' if detail.problem else ""
    return (
        f'{style()}<div class="msnb"><h3>{symbol(detail.verdict)} '
        f"{escape(str(detail.target.get('name', '')))}</h3>"
        f"<p>{escape(detail.verdict)}{reason}</p>"
        f'<div style="display:flex;gap:18px;flex-wrap:wrap;align-items:flex-start">'
        f"{sides}{metrics if detail.metrics else ''}</div>{problem}{stack_html(detail.stack)}</div>"
    )


def _fact(value: Any) -> str:
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
    return f"<p><b>Worst elements</b></p>{table(header, rows, [False, True, True, True, True])}"


def _short(value: float | complex) -> str:
    return f"{value:.6g}"


def histogram_figure(histogram: Histogram, title: str, colors: dict[str, str]) -> Any:
    """A figure of one or two histograms over common bins."""
    left_out = ", ".join(
        f"{name}: {count:,} NaN or infinite" for name, count in histogram.left_out.items() if count
    )
    plot = figure(
        width=430,
        height=230,
        title=f"{title} ({left_out})" if left_out else title,
        tools="xwheel_zoom,xpan,reset",
        toolbar_location="above",
        y_axis_label="elements",
    )
    plot.toolbar.logo = None
    for name, counts in histogram.counts.items():
        source = ColumnDataSource(
            {
                "left": histogram.edges[:-1],
                "right": histogram.edges[1:],
                "count": counts,
                "side": [name] * len(counts),
            }
        )
        plot.quad(
            left="left",
            right="right",
            top="count",
            bottom=0,
            source=source,
            color=colors[name],
            fill_alpha=0.35,
            line_alpha=0.9,
            legend_label=name,
        )
    plot.add_tools(
        HoverTool(tooltips=[("", "@side"), ("from", "@left"), ("to", "@right"), ("n", "@count")])
    )
    plot.y_range.start = 0
    if len(histogram.counts) > 1:
        plot.legend.click_policy = "hide"
        plot.legend.background_fill_alpha = 0.6
    else:
        plot.legend.visible = False
    return plot


class HeatMap(W.VBox):
    """A plane through the values, with controls for the two axes and the place on the others."""

    def __init__(self, detail: RowDetail) -> None:
        self.detail = detail
        axes = list(range(len(detail.shape)))
        names = [(f"axis {axis} ({detail.shape[axis]})", axis) for axis in axes]
        short = W.Layout(width="150px")
        self.what = W.Dropdown(
            options=[
                ("absolute difference", "difference"),
                ("target", "target"),
                ("golden", "golden"),
            ],
            layout=W.Layout(width="170px"),
        )
        self.vertical = W.Dropdown(options=names, value=axes[max(0, len(axes) - 2)], layout=short)
        self.horizontal = W.Dropdown(options=names, value=axes[-1], layout=short)
        self.places = {
            axis: W.IntSlider(
                value=self._worst_place(axis),
                max=detail.shape[axis] - 1,
                description=f"axis {axis}",
                continuous_update=False,
                layout=W.Layout(width="330px"),
            )
            for axis in axes
        }
        self._sliders = W.VBox()
        self._mapper = LinearColorMapper(palette=Cividis256)
        self._source = ColumnDataSource({"image": [np.zeros((1, 1))], "dw": [1], "dh": [1]})
        self._plot = self._figure()
        controls = [self.what]
        if len(axes) > 1:
            controls += [W.Label("down"), self.vertical, W.Label("across"), self.horizontal]
        super().__init__([W.HBox(controls), self._sliders, BokehView(self._plot)])
        for control in (self.what, self.vertical, self.horizontal, *self.places.values()):
            control.observe(self._draw, "value")
        self._draw()

    def _worst_place(self, axis: int) -> int:
        worst = self.detail.worst(1)
        return worst[0]["index"][axis] if worst else 0

    def _figure(self) -> Any:
        plot = figure(
            width=560,
            height=300,
            tools="pan,wheel_zoom,box_zoom,reset",
            toolbar_location="above",
            x_range=(0, 1),
            y_range=(1, 0),
        )
        plot.toolbar.logo = None
        plot.grid.visible = False
        image = plot.image(
            "image", x=0, y=0, dw="dw", dh="dh", source=self._source, color_mapper=self._mapper
        )
        plot.add_layout(
            ColorBar(color_mapper=self._mapper, ticker=BasicTicker(), width=10), "right"
        )
        tips = [("across", "$x{0}"), ("down", "$y{0}"), ("value", "@image")]
        plot.add_tools(HoverTool(renderers=[image], tooltips=tips))
        return plot

    def _draw(self, _: object = None) -> None:
        vertical, horizontal = self.vertical.value, self.horizontal.value
        one = len(self.detail.shape) == 1
        if not one and vertical == horizontal:
            return  # one axis cannot be shown against itself
        fixed = {axis: slider.value for axis, slider in self.places.items()}
        self._sliders.children = [
            slider for axis, slider in self.places.items() if axis not in (vertical, horizontal)
        ]
        plane = self.detail.heat(vertical, None if one else horizontal, fixed, self.what.value)
        height = 1 if one else self.detail.shape[vertical]
        width = self.detail.shape[vertical if one else horizontal]
        finite = plane[np.isfinite(plane)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        self._mapper.update(low=low, high=high if high > low else low + 1e-12)
        self._source.data = {"image": [plane], "dw": [width], "dh": [height]}
        plot = self._plot
        plot.x_range.update(start=0, end=width)
        plot.y_range.update(start=height, end=0)
        plot.title.text = self.what.label
        plot.xaxis.axis_label = f"axis {vertical if one else horizontal}"
        plot.yaxis.axis_label = "" if one else f"axis {vertical}"
