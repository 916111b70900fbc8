"""Verdicts under ``rules="evidence"``: a row is an error at an origin, a warning behind one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from msprobe_nb.comparison.evidence.candidates import Candidate
from msprobe_nb.comparison.evidence.deviation import GROSS, Deviations
from msprobe_nb.comparison.evidence.origins import Evidence, ordered, weigh
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.status import PENDING, UNREADABLE
from msprobe_nb.comparison.verdict import (
    ERROR,
    GATED,
    PASS,
    UNMATCHED,
    UNREADABLE_ROW,
    WARNING,
    Judgement,
    Thresholds,
)
from msprobe_nb.text import percent


@dataclass(frozen=True, slots=True)
class EvidenceJudgement(Judgement):
    """Verdicts of one part, and what led to them.

    Attributes
    ----------
    evidence : Evidence
    origin_rows : dict
        Row -> sentence of the origin that it shows.
    first : str
        Name of the likeliest origin of the whole comparison; empty for none.
    """

    by_rules: ClassVar[bool] = False
    evidence: Evidence = field(kw_only=True)
    origin_rows: dict[int, str] = field(kw_only=True)
    first: str = field(kw_only=True)

    def reason(self, row: int) -> str:
        """Why the row has its verdict; empty where there is nothing to say."""
        if row in self.origin_rows:
            return f"origin: {self.origin_rows[row]}"
        calls = self.evidence.calls
        size = float(calls.rows.size[row])
        if not size > 0:
            return ""
        by = "differs entirely" if size >= GROSS else f"off by {percent(size)}"
        if self.level[row] == WARNING:
            return f"{by}, a consequence of {self.first}"
        if calls.dirty[row]:
            names = " and ".join(drift.name for drift in self.evidence.drift) or "drift"
            return f"{by}: {names}, no origin before it"
        return f"{by}, within rounding"


def judge_evidence(
    parts: Sequence[Part],
    deviations: Sequence[Deviations],
    limits: Thresholds,
    noise: Sequence[np.ndarray | None],
) -> list[Judgement]:
    """Judge all parts together: a difference may come from another rank or an earlier step."""
    evidence = weigh(parts, deviations, limits, noise)
    first = _first_name(parts, evidence)
    start = _first_places(parts, evidence)
    judgements: list[Judgement] = []
    for part, found in zip(parts, evidence, strict=True):
        calls = found.calls
        level = np.full(len(part), PASS, np.uint8)
        if start is not None:
            behind = _behind(part, start)
            level[(calls.dirty | calls.rows.argument | calls.rows.dtype) & behind] = WARNING
        shown = {c.row: c.sentence for c in reversed(found.origins) if c.row >= 0}
        level[calls.rows.partner < 0] = UNMATCHED
        level[part.pairs.gated >= 0] = GATED
        level[list(shown)] = ERROR
        level[part.status == UNREADABLE] = UNREADABLE_ROW
        level[part.status == PENDING] = PASS
        rules = np.zeros(len(part), np.uint16)
        judgements.append(
            EvidenceJudgement(rules, level, evidence=found, origin_rows=shown, first=first)
        )
    return judgements


def _first_name(parts: Sequence[Part], evidence: Sequence[Evidence]) -> str:
    ranked = ranked_origins(parts, evidence)
    return ranked[0][1].name if ranked else ""


def ranked_origins(
    parts: Sequence[Part], evidence: Sequence[Evidence]
) -> list[tuple[int, Candidate]]:
    """(part, origin) of all parts, likeliest first: step by step, ranks merged."""
    ranked: list[tuple[int, Candidate]] = []
    for step in sorted({part.step for part in parts}):
        here = [at for at, part in enumerate(parts) if part.step == step]
        part_of = {id(c): at for at in here for c in evidence[at].origins}
        pool = [c for at in here for c in evidence[at].origins]
        ranked += [(part_of[id(c)], c) for c in ordered(pool)]
    return ranked


def _first_places(parts: Sequence[Part], evidence: Sequence[Evidence]) -> tuple[int, float] | None:
    """Step and order of the earliest origin."""
    places = [
        (part.step, c.start)
        for part, found in zip(parts, evidence, strict=True)
        for c in found.origins
    ]
    return min(places) if places else None


def _behind(part: Part, start: tuple[int, float]) -> np.ndarray:
    step, order = start
    if part.step != step:
        return np.full(len(part), part.step > step)
    return part.node >= order
