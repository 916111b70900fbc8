"""The result as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.comparison.reasons import Reasons
from msprobe_nb.comparison.status import ARGUMENT, COMPARED, STATUS_TEXTS
from msprobe_nb.comparison.verdict import PASS, VERDICTS
from msprobe_nb.store.index import STATISTICS
from msprobe_nb.store.pack import CHECKSUM_MODE

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.result import Comparison, JudgedPart

# How the official names of what was recorded map to ours; only official files say NPU and Bench.
RECORDED = ("dtype", "shape", "requires_grad")


def result_table(comparison: Comparison) -> pd.DataFrame:
    """See :attr:`Comparison.table`."""
    import pandas as pd

    frames = [part_table(judged) for judged in comparison.judged]
    if not frames:
        return pd.DataFrame(columns=LEADING)
    return pd.concat(frames, ignore_index=True)


LEADING = ["step", "rank", "node", "target", "golden", "verdict", "reason", "status"]


def part_table(judged: JudgedPart) -> pd.DataFrame:
    """The rows of one (step, rank)."""
    import pandas as pd

    return pd.DataFrame(columns_of(judged))


def columns_of(judged: JudgedPart) -> dict[str, Any]:
    """The columns of one (step, rank): arrays or lists, in the order of the table."""
    part, rows = judged.part, judged.rows
    target, golden, partner = part.target, part.golden, part.pairs.golden[rows]
    names = np.array(target.names, object)
    golden_names = np.array([*golden.names, None], object)
    nodes = np.array(target.pack.nodes.name, object)
    reasons = np.full(len(rows), "", object)
    told = (
        (judged.level > PASS)
        | ~np.isin(part.status[rows], (COMPARED, ARGUMENT))
        | np.isin(rows, list(part.note))
    )
    source = Reasons(judged)
    for at in np.flatnonzero(told).tolist():
        reasons[at] = source.of(int(rows[at]))
    columns: dict[str, Any] = {
        "step": np.full(len(rows), part.step),
        "rank": np.full(len(rows), part.rank),
        "node": nodes[part.node[rows]] if len(rows) else nodes[:0],
        "target": names[rows],
        "golden": golden_names[partner],
        "verdict": np.array(VERDICTS, object)[judged.level],
        "reason": reasons,
        "status": np.array(STATUS_TEXTS, object)[part.status[rows]],
    }
    for name, metric in part.metrics.items():
        columns[name] = metric.value()[rows]
    for name, results in part.custom.items():
        columns[name] = custom_column([results[row] for row in rows.tolist()])
    if part.mode == CHECKSUM_MODE:
        for side, texts in zip(("target", "golden"), part.checksums, strict=True):
            columns[f"{side} checksum"] = np.array(texts, object)[rows]
    for name in RECORDED:
        ours, theirs = getattr(target, name), getattr(golden, name)
        values = np.array([*theirs.values, None], object)
        codes = np.where(partner >= 0, theirs.codes[partner] if len(theirs) else -1, -1)
        columns[f"target {name}"] = ours.expand()[rows]
        columns[f"golden {name}"] = values[codes]
    for side, statistics in (("target", target.statistics), ("golden", part.golden_statistics)):
        for at, name in enumerate(STATISTICS):
            columns[f"{side} {name}"] = statistics.number[rows, at]
    return columns


def custom_column(values: list[Any]) -> np.ndarray:
    """The results of a user's algorithm: numbers as float64, NaN without one; else as they are."""
    if any(isinstance(value, str) for value in values):
        return np.array(values, object)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def golden_only_table(comparison: Comparison) -> pd.DataFrame:
    """See :attr:`Comparison.golden_only`."""
    import pandas as pd

    frames = []
    for part in comparison.parts:
        rows = part.pairs.golden_only
        golden = part.golden
        nodes = np.array(golden.pack.nodes.name, object)
        frames.append(
            pd.DataFrame(
                {
                    "step": part.step,
                    "rank": part.rank,
                    "golden": np.array(golden.names, object)[rows],
                    "node": nodes[golden.index.node[rows]] if len(rows) else nodes[:0],
                    "dtype": golden.dtype.expand()[rows],
                    "shape": golden.shape.expand()[rows],
                }
            )
        )
    columns = ["step", "rank", "golden", "node", "dtype", "shape"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
