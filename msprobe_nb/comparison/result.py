"""The result of a comparison: tables, verdicts and what they mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.status import PENDING
from msprobe_nb.comparison.verdict import VERDICTS, Judgement, Thresholds, judge
from msprobe_nb.errors import MsProbeError

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.first_difference import FirstDifferences
    from msprobe_nb.comparison.merge import MergedResults
    from msprobe_nb.comparison.nodes import Origin
    from msprobe_nb.views.comparison_view import ComparisonView


class Comparison:
    """Target against golden: one row for every value of the target.

    Shows itself in a notebook as a conclusion and a live table. Everything it shows is also here
    as data.

    Attributes
    ----------
    target_url, golden_url : str
    parts : list of Part
        One for each (step, rank).
    thresholds : Thresholds
        Limits of the verdict rules.
    complete : bool
        False after an interrupt.
    notes : list of str
        What the user should know besides the verdicts.
    failures : list of MsProbeError
        Packs that could not be compared at all.
    """

    rules = "msprobe"

    def __init__(
        self,
        target_url: str,
        golden_url: str,
        parts: list[Part],
        *,
        thresholds: Thresholds | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.target_url, self.golden_url = target_url, golden_url
        self.parts = parts
        self.thresholds = thresholds or Thresholds()
        self.complete = True
        self.notes = list(notes)
        self.failures: list[MsProbeError] = []

    @property
    def mode(self) -> str:
        """``tensor``, ``statistics``, ``md5`` or ``structure``."""
        return self.parts[0].mode if self.parts else "statistics"

    @property
    def steps(self) -> list[int]:
        """Compared steps."""
        return sorted({part.step for part in self.parts})

    @property
    def ranks(self) -> list[int]:
        """Compared ranks."""
        return sorted({part.rank for part in self.parts})

    # ------------------------------------------------------------ verdicts

    @cached_property
    def judged(self) -> list[JudgedPart]:
        """The parts with their verdicts.

        Rows that an interrupt kept from being compared are left out.
        """
        return [
            JudgedPart(part, judge(part, self.thresholds), np.flatnonzero(part.status != PENDING))
            for part in self.parts
        ]

    def rejudge(self, thresholds: Thresholds) -> Comparison:
        """The same measurements under other limits; nothing is read again."""
        other = Comparison(
            self.target_url, self.golden_url, self.parts, thresholds=thresholds, notes=self.notes
        )
        other.complete, other.failures = self.complete, self.failures
        return other

    @cached_property
    def counts(self) -> dict[str, int]:
        """Rows per verdict."""
        total = np.zeros(len(VERDICTS), int)
        for part in self.judged:
            total += np.bincount(part.level, minlength=len(VERDICTS))
        return dict(zip(VERDICTS, total.tolist(), strict=True))

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.judged)

    # ------------------------------------------------------------ tables

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each value of the target.

        Columns ``step rank node target golden verdict reason status``, the metrics under their
        official names (relative errors as fractions, NaN where there is no number; ``status`` and
        ``reason`` say why), then what was recorded on both sides.
        """
        from msprobe_nb.comparison.table import result_table

        return result_table(self)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row for each call of the target.

        Columns ``step rank node kind phase verdict worst_descendant score rows``: `verdict` is the
        worst of its own rows, `worst_descendant` the worst of all calls inside it, `score` the
        largest relative L2 error of its outputs.
        """
        from msprobe_nb.comparison.nodes import node_table

        return node_table(self)

    @cached_property
    def origins(self) -> pd.DataFrame:
        """The calls at which something went wrong, most likely first.

        Columns ``step rank node kind score sentence``. `kind` is one of ``output parameter
        argument input dtype shape unmatched gradient overflow``. Calls that only pass on what was
        already wrong in their inputs come last.
        """
        from msprobe_nb.comparison.nodes import origin_table

        return origin_table(self)

    @cached_property
    def marked_calls(self) -> list[Origin]:
        """The rows of :attr:`origins` as tuples, without pandas."""
        from msprobe_nb.comparison.nodes import find_origins

        return find_origins(self)

    @cached_property
    def golden_only(self) -> pd.DataFrame:
        """Values that only the golden run has: columns ``step rank golden node dtype shape``."""
        from msprobe_nb.comparison.table import golden_only_table

        return golden_only_table(self)

    def first_differences(self, *, limit: float = 0.5) -> FirstDifferences:
        """The calls at which target and golden part, over all ranks.

        See :func:`msprobe_nb.comparison.first_difference.first_differences`.
        """
        from msprobe_nb.comparison.first_difference import first_differences

        return first_differences(self, limit=limit)

    # ------------------------------------------------------------ words

    def summary(self) -> str:
        """The conclusion in words, the important thing first."""
        from msprobe_nb.comparison.conclusion import summary

        return summary(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"<Comparison {self.target_url} with {self.golden_url}: {counts}>"

    def __str__(self) -> str:
        return self.summary()

    # ------------------------------------------------------------ files

    def to_csv(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the result in the official columns.

        Parameters
        ----------
        path : path
            A ``.csv`` file, or a folder that then gets files with official names. Several steps
            or ranks make several files.

        Returns
        -------
        list of Path
        """
        from msprobe_nb.comparison.official_csv import write_csv

        return write_csv(self, path)

    def to_xlsx(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the result in the official columns as spreadsheets.

        Parameters
        ----------
        path : path
            An ``.xlsx`` file, or a folder that then gets files with official names. Several steps
            or ranks make several files.

        Returns
        -------
        list of Path
        """
        from msprobe_nb.comparison.official_xlsx import write_xlsx

        return write_xlsx(self, path)

    def merge(
        self, apis: str | Sequence[str], metrics: str | Sequence[str] | None = None
    ) -> MergedResults:
        """Some calls over all ranks: for each metric a table with a column for each rank.

        See :func:`msprobe_nb.comparison.merge.merge_results`.
        """
        from msprobe_nb.comparison.merge import merge_results

        return merge_results(self, apis, metrics)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained report that needs no kernel and no network."""
        from msprobe_nb.views.report import write_report

        return write_report(self, path)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save everything that was measured as a Zarr group; `load_comparison` reads it."""
        from msprobe_nb.comparison.persist import save

        return save(self, path)

    # ------------------------------------------------------------ notebook

    def widget(self) -> ComparisonView:
        """The live table with its detail pane."""
        from msprobe_nb.views.comparison_view import ComparisonView

        if self._view is None:
            self._view = ComparisonView(self)
        return self._view

    _view: ComparisonView | None = None

    def _repr_html_(self) -> str:
        from msprobe_nb.views.html import comparison_html

        return comparison_html(self)

    def _ipython_display_(self) -> None:
        from msprobe_nb.views.bundle import show_comparison

        show_comparison(self)


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A part with its verdicts.

    Attributes
    ----------
    part : Part
    judgement : Judgement
    rows : ndarray of int64
        The part's rows that are shown.
    """

    part: Part
    judgement: Judgement
    rows: np.ndarray

    @property
    def level(self) -> np.ndarray:
        """Level of each shown row."""
        return self.judgement.level[self.rows]
