"""What a comparison means, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from msprobe_nb.comparison.status import NOT_MEASURED, STATUS_TEXTS
from msprobe_nb.store.pack import CHECKSUM_MODE, STRUCTURE_MODE, TENSOR_MODE
from msprobe_nb.text import brief, plural

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison

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
    counts, total = comparison.counts, len(comparison)
    if total == 0:
        if comparison.mode == STRUCTURE_MODE:
            return "Nothing to compare: recordings of task 'structure' hold no values."
        return "Nothing to compare: the recordings hold no values."
    if counts["error"] == counts["warning"] == 0:
        return f"No differences found: all {plural(total, 'value')} pass."
    marked = plural(counts["error"], "error") if counts["error"] else "No errors"
    if counts["warning"]:
        marked += f", {plural(counts['warning'], 'warning')}"
    return f"{marked} among {plural(total, 'value')}."


def first_finding(comparison: Comparison) -> str:
    """A sentence on where to look first; empty when nothing is marked."""
    if not comparison.marked_calls:
        return ""
    first = comparison.marked_calls[0]
    several = len(comparison.parts) > 1
    place = f" (step {first.step}, rank {first.rank})" if several else ""
    return f"Look first at {first.node}{place}: {first.sentence.removeprefix(first.node + '.')}."


def measured(comparison: Comparison) -> str:
    """Say which rows pass without having been measured.

    Counts them by reason; empty when every row was measured.
    """
    found: Counter[str] = Counter()
    for judged in comparison.judged:
        status, times = np.unique(judged.part.status[judged.rows], return_counts=True)
        for code, count in zip(status.tolist(), times.tolist(), strict=True):
            if code in NOT_MEASURED:
                found[_NOT_MEASURED_TEXT[STATUS_TEXTS[code]]] += count
    if not found:
        return ""
    total = sum(found.values())
    listed = ", ".join(f"{count:,} {what}" for what, count in found.most_common())
    return f"{plural(total, 'value')} could not be measured: {listed}."


def details(comparison: Comparison) -> list[str]:
    """What stands behind the conclusion, a sentence each."""
    lines = [text] if (text := measured(comparison)) else []
    golden_only = sum(len(part.pairs.golden_only) for part in comparison.parts)
    if golden_only:
        lines.append(f"{plural(golden_only, 'value')} only in the golden run (see .golden_only).")
    if not comparison.complete:
        lines.append("Interrupted: only what was compared until then is shown.")
    what = _WHAT.get(comparison.mode, "statistics")
    lines.append(
        f"Compared {what}, steps {brief(comparison.steps)}, ranks {brief(comparison.ranks)}; "
        f"rules {comparison.rules}."
    )
    if comparison.paired_by:
        lines.append(f"Paired by {comparison.paired_by}.")
    return lines


def summary(comparison: Comparison) -> str:
    """See :meth:`Comparison.summary`."""
    lines = [headline(comparison)]
    if finding := first_finding(comparison):
        lines.append(finding)
    lines += details(comparison)
    lines.append(f"Target {comparison.target_url}")
    lines.append(f"Golden {comparison.golden_url}")
    return "\n".join(lines + [f"Note: {note}" for note in comparison.notes])
