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
from msprobe_nb.errors import MsProbeError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.evidence.deviation import Deviations
    from msprobe_nb.comparison.evidence.origins import Evidence
    from msprobe_nb.comparison.first_difference import FirstDifferences
    from msprobe_nb.comparison.merge import MergedResults
    from msprobe_nb.comparison.nodes import Origin
    from msprobe_nb.views.comparison_view import ComparisonView
    from msprobe_nb.views.verdict_lab import VerdictLab

RULES = ("msprobe", "evidence")
EVIDENCE = "evidence"


class Comparison:
    """Target against golden: one row for every value of the target.

    Shows itself in a notebook as a conclusion and a live table. Everything it shows is also here
    as data.

    Attributes
    ----------
    target_url, golden_url : str
    parts : list of Part
        One for each (step, rank).
    rules : str
        ``msprobe`` or ``evidence``.
    thresholds : Thresholds
        Limits of the verdict rules.
    complete : bool
        False after an interrupt.
    notes : list of str
        What the user should know besides the verdicts.
    failures : list of MsProbeError
        Packs that could not be compared at all.
    noise : Comparison or None
        A second golden run against the golden one.
    unfinished : int
        Pairs of packs that an interrupt kept from being compared.
    paired_by : str
        What rows were paired by besides their names, such as ``layer mapping``.
    """

    noise: Comparison | None = None
    unfinished = 0

    def __init__(
        self,
        target_url: str,
        golden_url: str,
        parts: list[Part],
        *,
        rules: str = "msprobe",
        thresholds: Thresholds | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.target_url, self.golden_url = target_url, golden_url
        self.parts = parts
        self.rules = rules
        self.thresholds = thresholds or Thresholds()
        self.complete = True
        self.notes = list(notes)
        self.failures: list[MsProbeError] = []
        self.paired_by = ""

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
        if self.rules == EVIDENCE:
            from msprobe_nb.comparison.evidence.judge import judge_evidence

            judgements = judge_evidence(
                self.parts, self.deviations, self.thresholds, self.noise_sizes
            )
        else:
            judgements = [judge(part, self.thresholds) for part in self.parts]
        return [
            JudgedPart(part, judgement, np.flatnonzero(part.status != PENDING))
            for part, judgement in zip(self.parts, judgements, strict=True)
        ]

    @cached_property
    def deviations(self) -> list[Deviations]:
        """How far the rows of each part deviate, free of scale; see :mod:`.evidence.deviation`."""
        from msprobe_nb.comparison.evidence.deviation import deviations_of

        return [deviations_of(part) for part in self.parts]

    @property
    def evidence(self) -> list[Evidence]:
        """What the verdicts of each part rest on under the evidence rules; else empty."""
        found = [getattr(judged.judgement, "evidence", None) for judged in self.judged]
        return [evidence for evidence in found if evidence is not None]

    @cached_property
    def noise_sizes(self) -> list[np.ndarray | None]:
        """For each part the deviation of its rows between the golden runs; None without noise."""
        from msprobe_nb.comparison.evidence.noise import noise_sizes

        return noise_sizes(self)

    def rejudge(self, thresholds: Thresholds | None = None, *, rules: str = "") -> Comparison:
        """The same measurements under other limits or rules; nothing is read again.

        Parameters
        ----------
        thresholds : Thresholds, optional
        rules : str
            ``msprobe`` or ``evidence``; as before if not given. Calls stay paired as they are.

        Raises
        ------
        UsageError
            Unknown rules.
        """
        if rules and rules not in RULES:
            raise UsageError(f"unknown rules {rules!r}", remedy=f"Choose one of {', '.join(RULES)}")
        other = Comparison(
            self.target_url,
            self.golden_url,
            self.parts,
            rules=rules or self.rules,
            thresholds=thresholds or self.thresholds,
            notes=self.notes,
        )
        other.complete, other.failures, other.noise = self.complete, self.failures, self.noise
        other.unfinished, other.paired_by = self.unfinished, self.paired_by
        for name in ("deviations", "noise_sizes"):  # they do not depend on any limit
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    @cached_property
    def counts(self) -> dict[str, int]:
        """Rows per verdict."""
        total = np.zeros(len(VERDICTS), int)
        for part in self.judged:
            total += np.bincount(part.level, minlength=len(VERDICTS))
        counts = dict(zip(VERDICTS, total.tolist(), strict=True))
        shown = ("pass", "warning", "error") if self.rules == "msprobe" else VERDICTS
        return {name: counts[name] for name in shown}

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

    @property
    def data_mapping(self) -> dict[str, str]:
        """Target name -> golden name of all pairs, ``N/A`` without partner.

        :func:`msprobe_nb.compare` takes it as ``data_mapping``, also after it was changed. Of
        several steps or ranks the last one counts.
        """
        from msprobe_nb.comparison.data_mapping import data_mapping

        return {key: name for part in self.parts for key, name in data_mapping(part).items()}

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

    def write_data_mapping(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the pairs as official data mapping files, one for each step and rank."""
        from msprobe_nb.comparison.data_mapping import write_data_mapping

        return write_data_mapping(self, folder)

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

    def lab(self) -> VerdictLab:
        """Sliders for the thresholds; counts and first origins follow them."""
        from msprobe_nb.views.verdict_lab import VerdictLab

        return VerdictLab(self)

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
