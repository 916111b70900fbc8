"""The metrics of every row as lines of text, for ``--is_print_compare_log``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msprobe_nb.comparison import tensors
from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER
from msprobe_nb.comparison.official_columns import custom_cells
from msprobe_nb.comparison.reasons import Reasons
from msprobe_nb.comparison.status import COMPARED
from msprobe_nb.store.pack import TENSOR_MODE

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison, JudgedPart


def log_lines(comparison: Comparison) -> Iterator[str]:
    """Two lines for each row of recordings with tensor data; other recordings give none."""
    for judged in comparison.judged:
        if judged.part.mode == TENSOR_MODE:
            yield from _lines(judged)


def _lines(judged: JudgedPart) -> Iterator[str]:
    part, reasons = judged.part, Reasons(judged)
    custom = {name: custom_cells(part, name, judged.rows) for name in part.custom}
    for at, row in enumerate(judged.rows.tolist()):
        name = part.target.names[row]
        cells = []
        for column in tensors.COLUMNS:
            metric = part.metrics[column]
            mark = int(metric.mark[row])
            number = float(metric.number[row])
            cells.append(f"{column} {number if mark == NUMBER else MARK_TEXTS[mark]}")
        cells += [f"{column} {texts[at]}" for column, texts in custom.items()]
        shown = ", ".join(cells) if part.status[row] == COMPARED else ""
        told = "; ".join(text for text in (shown, reasons.of(row)) if text)
        yield f"start compare: {name}"
        yield f"[{name}] Compare result: {told}"
