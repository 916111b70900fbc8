"""Trying other thresholds: counts and first origins follow the sliders."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import ipywidgets as W
import numpy as np
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from msprobe_nb.comparison.result import EVIDENCE, RULES
from msprobe_nb.comparison.verdict import Thresholds
from msprobe_nb.store.pack import TENSOR_MODE
from msprobe_nb.views.bokeh_view import BokehView
from msprobe_nb.views.html import comparison_head, first_calls, style
from msprobe_nb.views.palette import GOLDEN, TARGET

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison

_LIVE_ROWS = 50_000  # beyond, a slider acts when it is let go
_FIRST = 8
_STATISTICS = ("norm_input", "norm_output", "norm_ratio", "norm_output_alone")
_TENSOR = ("thousandth_input", "thousandth_output", "cosine_input", "cosine_drop")
_EVIDENCE = ("rounding", "gain", "noise", "drift")
_LOGARITHMIC = {"norm_ratio": (0, 3), "rounding": (-1, 3), "gain": (0, 4), "noise": (-1, 2)}
_LOGARITHMIC["drift"] = (-1, 2)
_MEANING = {
    "norm_input": "an input norm off by less is exact enough for an error behind it",
    "norm_output": "an output norm off by more is an error",
    "norm_ratio": "outputs off by so many times more than inputs are a warning",
    "norm_output_alone": "the same where inputs are exact",
    "thousandth_input": "inputs with more elements within 1/1000 are exact enough",
    "thousandth_output": "outputs with fewer elements within 1/1000 are an error",
    "cosine_input": "inputs with a larger cosine are exact enough",
    "cosine_drop": "outputs whose cosine is lower by more are a warning",
    "rounding": "expected rounding is multiplied by this",
    "gain": "a call may amplify what it was given so many times",
    "noise": "deviations up to so many times the noise between two golden runs are noise",
    "drift": "products may be off by so many roundings of TF32 or bfloat16",
}


class VerdictLab(W.VBox):
    """Sliders for the thresholds of a comparison; nothing is read again.

    Attributes
    ----------
    comparison : Comparison
        Under the thresholds that are set.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self._given = comparison
        self._rules = W.Dropdown(options=RULES, value=comparison.rules, description="rules")
        self._reset = W.Button(description="as given", tooltip="set all thresholds back")
        self._sliders = W.VBox()
        self._verdict = W.HTML()
        self._busy = False
        controls = W.VBox([W.HBox([self._rules, self._reset]), self._sliders])
        controls.layout = W.Layout(flex="0 0 420px")
        self._verdict.layout = W.Layout(flex="1 1 420px", min_width="0")
        parts: list[W.Widget] = [
            W.HBox([controls, self._verdict], layout=W.Layout(flex_flow="row wrap", width="100%"))
        ]
        if comparison.noise is not None:
            parts.append(BokehView(noise_figure(comparison)))
        self._rules.observe(lambda change: self._choose(), "value")
        self._reset.on_click(lambda button: self._choose(reset=True))
        super().__init__(parts)
        self._choose()

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds that are set."""
        return self.comparison.thresholds

    def set(self, **limits: float) -> None:
        """Set some thresholds, as the sliders do."""
        for name, value in limits.items():
            self.sliders[name].value = value

    @property
    def sliders(self) -> dict[str, Any]:
        """The shown sliders by the name of their threshold."""
        return {slider.description: slider for slider in self._sliders.children}

    def _choose(self, *, reset: bool = False) -> None:
        """Show the sliders of the chosen rules."""
        limits = self._given.thresholds if reset else self.comparison.thresholds
        live = len(self._given) <= _LIVE_ROWS
        self._busy = True
        self._sliders.children = [
            _slider(name, asdict(limits)[name], live) for name in self._names()
        ]
        for slider in self._sliders.children:
            slider.observe(lambda change: self._judge(), "value")
        self._busy = False
        self._judge(limits)

    def _names(self) -> tuple[str, ...]:
        if self._rules.value == EVIDENCE:
            return tuple(n for n in _EVIDENCE if n != "noise" or self._given.noise is not None)
        return _TENSOR if self._given.mode == TENSOR_MODE else _STATISTICS

    def _judge(self, limits: Thresholds | None = None) -> None:
        if self._busy:
            return
        chosen = {name: slider.value for name, slider in self.sliders.items()}
        limits = replace(limits or self.comparison.thresholds, **chosen)
        self.comparison = self._given.rejudge(limits, rules=self._rules.value)
        self._verdict.value = (
            f'{style()}<div class="msnb">{comparison_head(self.comparison)}'
            f"{first_calls(self.comparison, _FIRST)}</div>"
        )


def _slider(name: str, value: float, live: bool) -> W.Widget:
    options = {
        "value": value,
        "description": name,
        "tooltip": _MEANING[name],
        "continuous_update": live,
        "style": {"description_width": "130px"},
        "layout": W.Layout(width="410px"),
    }
    if name in _LOGARITHMIC:
        low, high = _LOGARITHMIC[name]
        return W.FloatLogSlider(min=low, max=high, step=0.02, readout_format=".3g", **options)
    return W.FloatSlider(min=0.0, max=1.0, step=0.005, readout_format=".3f", **options)


def noise_figure(comparison: Comparison) -> Any:
    """How far values deviate between two golden runs, and between target and golden."""
    noise = np.concatenate([n for n in comparison.noise_sizes if n is not None] or [np.empty(0)])
    target = np.concatenate([found.size for found in comparison.deviations])
    logs = [np.log10(values[values > 0]) for values in (noise, target)]
    known = [values for values in logs if len(values)]
    low = np.floor(min((values.min() for values in known), default=-8))
    high = np.ceil(max((values.max() for values in known), default=0))
    edges = np.linspace(low, max(high, low + 1), 61)
    plot = figure(
        height=220,
        sizing_mode="stretch_width",
        title="Deviations: noise between two golden runs, and target against golden",
        x_axis_label="log10 of the relative deviation",
        y_axis_label="values",
        tools="pan,xwheel_zoom,reset",
    )
    for values, color, label in zip(logs, (GOLDEN, TARGET), ("noise", "target"), strict=True):
        counts, _ = np.histogram(values, edges)
        source = ColumnDataSource({"top": counts, "left": edges[:-1], "right": edges[1:]})
        plot.quad(
            left="left",
            right="right",
            top="top",
            bottom=0,
            source=source,
            fill_color=color,
            fill_alpha=0.45,
            line_color=None,
            legend_label=f"{label}: {len(values):,} values differ",
        )
    plot.legend.location = "top_left"
    plot.legend.click_policy = "hide"
    return plot
