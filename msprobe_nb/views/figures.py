"""The figures of the detail pane.

Each is made once and follows whatever row it is given, so that looking at the next row only moves
numbers. The browser half of `BokehView` gives them the colours of JupyterLab's theme.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as W
import numpy as np
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    ColorBar,
    ColumnDataSource,
    CustomJSHover,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from msprobe_nb.comparison.inspect import Histogram, RowDetail, heat_step
from msprobe_nb.text import number
from msprobe_nb.views.bokeh_view import BokehView

# As wide as the place allows, and without a ground of its own: that of the page shows through.
_LOOK = {
    "sizing_mode": "stretch_width",
    "min_width": 240,
    "background_fill_color": None,
    "border_fill_color": None,
    "toolbar_location": "above",
}
_KINDS = {"difference": "Absolute difference", "target": "Target", "golden": "Golden"}


class HistogramPlot:
    """One or two histograms over common bins.

    Parameters
    ----------
    title : str
    colors : dict of str to str
        Colour of each side.

    Attributes
    ----------
    view : BokehView
    """

    def __init__(self, title: str, colors: dict[str, str]) -> None:
        self.colors = colors
        self.plot = figure(
            **_LOOK,
            max_width=430,
            height=230,
            title=title,
            tools="xwheel_zoom,xpan,reset",
            y_axis_label="elements",
            x_range=Range1d(0, 1),
            y_range=Range1d(0, 1),
        )
        plot = self.plot
        plot.toolbar.logo = None
        plot.xaxis.ticker = BasicTicker(desired_num_ticks=4)
        plot.xaxis.formatter = BasicTickFormatter(power_limit_low=-3, power_limit_high=5)
        plot.yaxis.formatter = NumeralTickFormatter(format="0a")
        plot.yaxis.ticker = BasicTicker(min_interval=1, desired_num_ticks=5)
        empty: dict[str, list[Any]] = {"left": [], "right": [], "count": [], "side": []}
        self.sources = {name: ColumnDataSource(dict(empty)) for name in colors}
        for name, source in self.sources.items():
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
        tips = [("", "@side"), ("from", "@left"), ("to", "@right"), ("n", "@count")]
        plot.add_tools(HoverTool(tooltips=tips))
        plot.legend.visible = len(colors) > 1
        plot.legend.click_policy = "hide"
        plot.legend.background_fill_alpha = 0.6
        self.view = BokehView(plot, layout=W.Layout(flex="1 1 260px", max_width="430px"))

    def show(self, histogram: Histogram) -> None:
        """Show other counts; a side that they lack stays empty."""
        left_out = [
            f"{name + ' ' if len(self.colors) > 1 else ''}{count:,}"
            for name, count in histogram.left_out.items()
            if count
        ]
        highest = max((int(counts.max()) for counts in histogram.counts.values()), default=0)
        edges = histogram.edges
        with self.view.together():
            for name, source in self.sources.items():
                counts = histogram.counts.get(name, np.empty(0, int))
                size = len(counts)
                source.data = {
                    "left": edges[:-1][:size],
                    "right": edges[1:][:size],
                    "count": counts,
                    "side": [name] * size,
                }
            self.plot.xaxis.axis_label = (
                f"left out, being NaN or infinite: {', '.join(left_out)}" if left_out else ""
            )
            _set_range(self.plot.x_range, float(edges[0]), float(edges[-1]))
            _set_range(self.plot.y_range, 0, max(highest, 1) * 1.08)


class HeatMap(W.VBox):
    """A plane through the values, with controls for the two axes and the place on the others."""

    def __init__(self) -> None:
        self.detail: RowDetail | None = None
        short = W.Layout(width="130px")
        options = [(label.lower(), kind) for kind, label in _KINDS.items()]
        self.what = W.Dropdown(options=options, layout=W.Layout(width="160px"))
        self.vertical, self.horizontal = W.Dropdown(layout=short), W.Dropdown(layout=short)
        self.places: list[W.IntSlider] = []
        self._sliders = W.VBox()
        self._axes = W.HBox(
            [W.Label("down"), self.vertical, W.Label("across"), self.horizontal],
            layout=W.Layout(flex_flow="row wrap"),
        )
        self._mapper = LinearColorMapper(palette=Cividis256)
        self._source = ColumnDataSource(
            {"image": [np.zeros((1, 1))], "x": [-0.5], "y": [-0.5], "dw": [1], "dh": [1]}
        )
        self._bar = ColorBar(
            color_mapper=self._mapper, ticker=BasicTicker(), width=10, background_fill_color=None
        )
        self._plot = self._figure()
        self._view = BokehView(self._plot, layout=W.Layout(width="100%", max_width="560px"))
        controls = W.HBox([self.what, self._axes], layout=W.Layout(flex_flow="row wrap"))
        super().__init__(
            [controls, self._sliders, self._view],
            layout=W.Layout(flex="1 1 300px", max_width="580px", min_width="0"),
        )
        for control in (self.what, self.vertical, self.horizontal):
            control.observe(self._draw, "value")

    def _figure(self) -> Any:
        plot = figure(
            **_LOOK,
            max_width=560,
            height=300,
            title="",
            tools="pan,wheel_zoom,box_zoom,reset",
            x_range=Range1d(-0.5, 0.5),
            y_range=Range1d(0.5, -0.5),
        )
        plot.toolbar.logo = None
        plot.grid.visible = False
        plot.axis.ticker = BasicTicker(min_interval=1, desired_num_ticks=6, num_minor_ticks=0)
        plot.axis.formatter = NumeralTickFormatter(format="0")
        image = plot.image(
            "image", x="x", y="y", dw="dw", dh="dh", source=self._source, color_mapper=self._mapper
        )
        plot.add_layout(self._bar, "right")
        # Cells are centred on whole numbers; adding 0 makes -0 plain.
        whole = CustomJSHover(code="return String(Math.round(value) + 0)")
        tips = [("across", "$x{custom}"), ("down", "$y{custom}"), ("value", "@image")]
        formatters = {"$x": whole, "$y": whole}
        plot.add_tools(HoverTool(renderers=[image], tooltips=tips, formatters=formatters))
        return plot

    def show(self, detail: RowDetail) -> None:
        """Show another row, at the place where it differs most."""
        self.detail = None  # controls that change meanwhile draw nothing
        shape = detail.shape
        axes = list(range(len(shape)))
        names = [(f"axis {axis} ({shape[axis]})", axis) for axis in axes]
        for control, axis in ((self.vertical, max(0, len(axes) - 2)), (self.horizontal, axes[-1])):
            control.options = names
            control.value = axis
        while len(self.places) < len(axes):
            self.places.append(self._slider(len(self.places)))
        worst = detail.worst(1)
        for axis in axes:
            slider = self.places[axis]
            slider.value = 0
            slider.max = shape[axis] - 1
            slider.value = worst[0]["index"][axis] if worst else 0
        self._axes.layout.display = None if len(axes) > 1 else "none"
        self.detail = detail
        self._draw()

    def _slider(self, axis: int) -> W.IntSlider:
        slider = W.IntSlider(
            description=f"axis {axis}",
            continuous_update=False,
            layout=W.Layout(width="330px", max_width="100%"),
        )
        slider.observe(self._draw, "value")
        return slider

    def _draw(self, _: object = None) -> None:
        detail, vertical, horizontal = self.detail, self.vertical.value, self.horizontal.value
        if detail is None:
            return
        shape = detail.shape
        one = len(shape) == 1
        if not one and vertical == horizontal:
            return  # one axis cannot be shown against itself
        places = dict(enumerate(self.places[: len(shape)]))
        self._sliders.children = [
            slider for axis, slider in places.items() if axis not in (vertical, horizontal)
        ]
        fixed = {axis: slider.value for axis, slider in places.items()}
        plane = detail.heat(vertical, None if one else horizontal, fixed, self.what.value)
        across = vertical if one else horizontal
        height, width = 1 if one else shape[vertical], shape[across]
        with self._view.together():
            self._color(plane)
            self._source.data = {
                "image": [plane],
                "x": [-0.5],
                "y": [-0.5],
                "dw": [plane.shape[1] * heat_step(width)],
                "dh": [plane.shape[0] * heat_step(height)],
            }
            _set_range(self._plot.x_range, -0.5, width - 0.5)
            _set_range(self._plot.y_range, height - 0.5, -0.5)
            self._plot.xaxis.axis_label = f"axis {across}"
            self._plot.yaxis.axis_label = "" if one else f"axis {vertical}"
            self._plot.yaxis.visible = not one

    def _color(self, plane: np.ndarray) -> None:
        """Set the colour scale and the title, which says what a plain colour means."""
        finite = plane[np.isfinite(plane)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        kind = self.what.value
        title = _KINDS[kind]
        if not finite.size:
            title += ": all NaN or infinite"
        elif low == high:
            none = kind == "difference" and low == 0
            title += ": none, both sides are equal" if none else f": {number(low)} everywhere"
            if finite.size < plane.size:
                title += " but for NaN or infinity"
        self._plot.title.text = title
        self._bar.visible = high > low and bool(finite.size)
        self._mapper.update(low=low, high=high if high > low else low + (abs(low) or 1.0))


def _set_range(held: Range1d, start: float, end: float) -> None:
    """Move a range, and what a reset goes back to."""
    held.update(start=start, end=end, reset_start=start, reset_end=end)
