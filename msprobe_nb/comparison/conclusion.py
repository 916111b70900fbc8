"""What a comparison means, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from msprobe_nb.comparison.evidence.deviation import GROSS
from msprobe_nb.comparison.result import EVIDENCE
from msprobe_nb.comparison.status import NOT_MEASURED, STATUS_TEXTS
from msprobe_nb.store.pack import CHECKSUM_MODE, STRUCTURE_MODE, TENSOR_MODE
from msprobe_nb.text import brief, percent, plural

if TYPE_CHECKING:
    from msprobe_nb.comparison.evidence.deviation import Deviations
    from msprobe_nb.comparison.nodes import Origin
    from msprobe_nb.comparison.part import Part
    from msprobe_nb.comparison.result import Comparison, JudgedPart

_WHAT = {
    TENSOR_MODE: "tensor data",
    CHECKSUM_MODE: "check values",
    STRUCTURE_MODE: "structure",
}
_NOT_MEASURED_TEXT = {
    "unmatched": "only in the target",
    "dtype gate": "of another dtype than their golden row",
    "no data": "without data on a side",
    "unreadable": "unreadable",
    "shape differs": "of another shape than their golden row",
    "non-finite differ": "with NaN or infinity in different places",
    "not reached": "not reached",
}


def headline(comparison: Comparison) -> str:
    """The conclusion in one sentence."""
    if not comparison.complete:
        return f"{_interrupted(comparison)} {_finding(comparison)}".rstrip()
    return _finding(comparison)


def _interrupted(comparison: Comparison) -> str:
    total = sum(len(part) for part in comparison.parts)
    ranks = plural(comparison.unfinished, "recording")
    more = f" and {ranks} not begun" if comparison.unfinished else ""
    if total == 0:
        return f"Interrupted before anything was compared{more}."
    return f"Interrupted after {len(comparison):,} of {plural(total, 'value')}{more}."


def _finding(comparison: Comparison) -> str:
    total = len(comparison)
    if total == 0:
        if not comparison.complete:
            return ""
        if comparison.mode == STRUCTURE_MODE:
            return "Nothing to compare: recordings of task 'structure' hold no values."
        return "Nothing to compare: the recordings hold no values."
    unmeasured, counts = sum(_unmeasured(comparison).values()), comparison.counts
    if unmeasured == total and not comparison.marked_calls and not counts["error"]:
        return (
            f"Nothing could be compared: none of {plural(total, 'value')} has a comparable partner."
        )
    if comparison.rules == EVIDENCE:
        return _where_it_began(comparison)
    if counts["error"] == counts["warning"] == 0:
        return f"{_unmarked(comparison, total - unmeasured)}."
    marked = plural(counts["error"], "error") if counts["error"] else "No errors"
    if counts["warning"]:
        marked += f", {plural(counts['warning'], 'warning')}"
    return f"{marked} among {plural(total, 'value')}."


def _unmarked(comparison: Comparison, measured: int) -> str:
    """What to say when the rules mark nothing: passing is not the same as being equal."""
    name, size = largest_deviation(comparison)
    values = plural(measured, "compared value")
    if size == 0:
        return _equal(comparison, values)
    by = "entirely" if size >= GROSS else f"by {percent(size)}"
    return f"Nothing is marked: all {values} pass, the largest deviation is {name}, {by}"


def _equal(comparison: Comparison, values: str) -> str:
    """What to say when nothing deviates; statistics may still differ by their own rounding."""
    if all(map(_all_equal, comparison.parts)):
        return f"No differences found: all {values} are equal"
    return f"No differences beyond rounding: all {values} agree"


def _all_equal(part: Part) -> bool:
    """Whether all that was recorded of paired values is equal to the last bit."""
    rows = part.matched
    ours, theirs = part.target.statistics.number[rows], part.golden_statistics.number[rows]
    if part.mode == TENSOR_MODE and np.any(part.metrics["MaxAbsErr"].value()[rows] > 0):
        return False
    return part.mode == CHECKSUM_MODE or np.array_equal(ours, theirs, equal_nan=True)


def largest_deviation(comparison: Comparison) -> tuple[str, float]:
    """The result of a call that deviates most, and by how much; ("", 0.0) if all are equal.

    Inputs and parameters count only if no result deviates.
    """
    for results in (True, False):
        best: tuple[str, float] = ("", 0.0)
        for judged, found in zip(comparison.judged, comparison.deviations, strict=True):
            own = judged.part.is_output[judged.rows] == results
            best = _larger(best, judged, found, judged.rows[own])
        if best[1] > 0:
            break
    return best


def _larger(
    best: tuple[str, float], judged: JudgedPart, found: Deviations, rows: np.ndarray
) -> tuple[str, float]:
    known = rows[~np.isnan(found.size[rows])]
    if len(known):
        row = int(known[np.argmax(found.size[known])])
        if found.size[row] > best[1]:
            return judged.part.target.names[row], float(found.size[row])
    return best


def _where_it_began(comparison: Comparison) -> str:
    """The conclusion under the evidence rules."""
    origins = comparison.marked_calls
    if origins:
        return f"It began at {_place(comparison, origins[0])}."
    name, size = largest_deviation(comparison)
    if size == 0:
        return f"{_equal(comparison, 'compared values')}."
    signs = {drift.name for found in comparison.evidence for drift in found.drift}
    what = " and ".join(sorted(signs)) if signs else "rounding"
    return (
        f"No origin found: what differs looks like {what}. The largest deviation is {name}, "
        f"{'entirely' if size >= GROSS else 'by ' + percent(size)}."
    )


def _place(comparison: Comparison, origin: Origin) -> str:
    several = len(comparison.parts) > 1
    place = f" (step {origin.step}, rank {origin.rank})" if several else ""
    return f"{origin.node}{place}: {origin.sentence}"


def first_finding(comparison: Comparison) -> str:
    """A sentence on where to look first; empty when nothing is marked."""
    origins = comparison.marked_calls
    if comparison.rules == EVIDENCE:
        behind = comparison.counts["warning"]
        more = f"{plural(len(origins) - 1, 'more possible origin')}" if len(origins) > 1 else ""
        after = f"{plural(behind, 'value')} differ as a consequence" if behind else ""
        return f"{'; '.join(text for text in (more, after) if text)}." if more or after else ""
    if not origins:
        return ""
    return f"Look first at {_place(comparison, origins[0])}."


def _unmeasured(comparison: Comparison) -> Counter[str]:
    """How many rows could not be measured, by reason."""
    found: Counter[str] = Counter()
    for judged in comparison.judged:
        status, times = np.unique(judged.part.status[judged.rows], return_counts=True)
        for code, count in zip(status.tolist(), times.tolist(), strict=True):
            if code in NOT_MEASURED:
                found[_NOT_MEASURED_TEXT[STATUS_TEXTS[code]]] += count
    return found


def measured(comparison: Comparison) -> str:
    """Say which rows were not measured, and why; empty when every row was."""
    found = _unmeasured(comparison)
    if not found:
        return ""
    total = sum(found.values())
    if len(found) == 1:
        return f"{plural(total, 'value')} could not be measured: {next(iter(found))}."
    listed = ", ".join(f"{count:,} {what}" for what, count in found.most_common())
    return f"{plural(total, 'value')} could not be measured: {listed}."


def details(comparison: Comparison) -> list[str]:
    """What stands behind the conclusion, a sentence each."""
    lines = [text] if (text := measured(comparison)) else []
    golden_only = sum(len(part.pairs.golden_only) for part in comparison.parts)
    if golden_only:
        lines.append(f"{plural(golden_only, 'value')} only in the golden run.")
    if comparison.rules == EVIDENCE:
        lines += sorted({f"{d.name}: {d.sentence}." for e in comparison.evidence for d in e.drift})
    if not comparison.parts or comparison.mode == STRUCTURE_MODE:
        return lines
    what = _WHAT.get(comparison.mode, "statistics")
    lines.append(
        f"Compared {what}, {_numbers('step', comparison.steps)}, "
        f"{_numbers('rank', comparison.ranks)}; rules {comparison.rules}."
    )
    if comparison.paired_by:
        lines.append(f"Paired by {comparison.paired_by}.")
    return lines


def _numbers(what: str, values: list[int]) -> str:
    return f"{what}{'' if len(values) == 1 else 's'} {brief(values)}"


def summary(comparison: Comparison) -> str:
    """See :meth:`Comparison.summary`."""
    lines = [headline(comparison)]
    if finding := first_finding(comparison):
        lines.append(finding)
    lines += details(comparison)
    lines.append(f"Target {comparison.target_url}")
    lines.append(f"Golden {comparison.golden_url}")
    return "\n".join(lines + [f"Note: {note}" for note in comparison.notes])
