"""The official columns of a comparison of kernel dumps, with their own verdict.

Rows of both sides are kept, in order of name. Source: specification 02, section 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.comparison import statistics, tensors
from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER, SAME, UNSUPPORTED
from msprobe_nb.comparison.kernel_verdict import VERDICT_TEXTS, kernel_verdicts
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.sides import Side
from msprobe_nb.comparison.status import (
    COMPARED,
    EMPTY,
    GATED,
    NON_FINITE,
    SHAPE,
    UNMATCHED,
    UNREADABLE,
)
from msprobe_nb.store.pack import TENSOR_MODE

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import JudgedPart

VERDICT = "Accuracy Reached or Not"
_HEAD = (
    *("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape"),
    *("Bench Tensor Shape", "NPU max", "NPU min", "NPU mean", "NPU l2norm"),
    *("Bench max", "Bench min", "Bench mean", "Bench l2norm", VERDICT, "Err_message"),
)
_FILES = ("NPU CSV File", "Bench CSV File")
_MESSAGES = {
    UNREADABLE: "Dump file is not ndarray.\n",
    UNMATCHED: "Dump file is not ndarray.\n",
    EMPTY: "This is empty data, can not compare.\n",
    GATED: "Dtype of NPU and bench Tensor do not match. Skipped.\n",
    SHAPE: "Shape of NPU and bench Tensor do not match.\n",
    NON_FINITE: "The position of inf or nan in NPU and bench Tensor do not match.\n",
}
_NOT_FOUND = "Dump file not found.\n"
_OTHER_SHAPE = "Tensor shapes do not match.\n"
_ONE_ELEMENT = "This is a 1-d tensor of length 1."


def kernel_columns(judged: JudgedPart) -> tuple[list[str], list[list[Any]]]:
    """Titles and columns of one (step, rank): texts, numbers, or empty texts."""
    part = judged.part
    golden_only = [(-1, row) for row in part.pairs.golden_only.tolist()]
    pairs = [(row, int(part.pairs.golden[row])) for row in judged.rows.tolist()]
    order = sorted([*pairs, *golden_only], key=lambda pair: _sort_key(part, *pair))
    is_tensor = part.mode == TENSOR_MODE
    titles = [*_HEAD, *(tensors.COLUMNS if is_tensor else (*statistics.COLUMNS, *_FILES))]
    numbers = part.target.statistics.python(), part.golden.statistics.python()
    verdicts = kernel_verdicts(part)
    rows = [_row(part, numbers, verdicts, *pair) for pair in order]
    return titles, [list(column) for column in zip(*rows, strict=True)] or [[] for _ in titles]


def _sort_key(part: Part, row: int, golden: int) -> tuple[str, int]:
    side, at = (part.target, row) if row >= 0 else (part.golden, golden)
    return side.index.detail.get(at, {}).get("key", side.names[at]), at


def _row(
    part: Part,
    numbers: tuple[np.ndarray, np.ndarray],
    verdicts: np.ndarray,
    row: int,
    golden: int,
) -> list[Any]:
    is_tensor = part.mode == TENSOR_MODE
    ours = _facts(part.target, row, numbers[0], is_tensor)
    theirs = _facts(part.golden, golden, numbers[1], is_tensor)
    head = [value for pair in zip(ours[:3], theirs[:3], strict=True) for value in pair]
    head += [*ours[3:7], *theirs[3:7]]
    if is_tensor:
        return [*head, *_tensor_cells(part, verdicts, row)]
    message = _message(part, row, golden)
    verdict = VERDICT_TEXTS[verdicts[row]] if row >= 0 else ""
    return [*head, verdict, message, *_differences(part, row, bool(message)), ours[7], theirs[7]]


def _facts(side: Side, row: int, numbers: np.ndarray, is_tensor: bool) -> list[Any]:
    """Name, dtype, shape, four statistics and file of one side; empty without a row."""
    if row < 0:
        return [""] * 8
    detail = side.index.detail.get(row, {})
    file = detail.get("file")
    path = f"{side.pack.where.rstrip('/')}/{file}" if file else side.names[row]
    shape = side.index.shape[row]
    text = "" if shape is None else str(shape).replace("(", "[").replace(")", "]")
    name = path if is_tensor else detail.get("key", side.names[row])
    if not is_tensor:
        text = text.replace(" ", "")
    dtype = side.index.dtype[row].lower()
    recorded = [_statistic(value) for value in numbers[row]]
    if not is_tensor:
        recorded = [float(value) if isinstance(value, bool) else value for value in recorded]
    return [name, dtype, text, *recorded, path]


def _statistic(value: Any) -> Any:
    """A recorded statistic; empty where the recording has none. Kernels record float32."""
    if isinstance(value, float):
        return float(str(np.float32(value))) if np.isfinite(value) else _infinite(value)
    return value if isinstance(value, (int, str)) else ""


def _infinite(value: float) -> str:
    return "nan" if np.isnan(value) else str(value)


def _tensor_cells(part: Part, verdicts: np.ndarray, row: int) -> list[Any]:
    """Verdict, message and metrics of a pair of tensors."""
    nothing = [""] * len(tensors.COLUMNS)
    if row < 0:
        return ["", _MESSAGES[UNMATCHED], *nothing]
    verdict, status = VERDICT_TEXTS[verdicts[row]], int(part.status[row])
    if status != COMPARED:
        return [verdict, _MESSAGES.get(status, _MESSAGES[UNREADABLE]), *nothing]
    metrics = [part.metrics[name] for name in tensors.COLUMNS]
    shown = [
        float(m.number[row]) if m.mark[row] == NUMBER else MARK_TEXTS[m.mark[row]] for m in metrics
    ]
    one = metrics[tensors.COSINE].mark[row] == UNSUPPORTED and part.target.index.shape[row]
    return [verdict, _ONE_ELEMENT if one else "", *shown]


def _message(part: Part, row: int, golden: int) -> str:
    """Why a pair of statistics cannot be compared; empty if it can."""
    if row < 0 or golden < 0:
        gated = row >= 0 and part.status[row] == GATED
        return _MESSAGES[GATED] if gated else _NOT_FOUND
    return "" if part.target.shape[row] == part.golden.shape[golden] else _OTHER_SHAPE


def _differences(part: Part, row: int, failed: bool) -> list[Any]:
    """Differences and relative errors of a pair of statistics."""
    if row < 0 or failed:
        return [""] * len(statistics.COLUMNS)
    zero = part.golden_statistics.number[row] == 0
    cells: list[Any] = []
    for at, name in enumerate(statistics.COLUMNS):
        metric = part.metrics[name]
        mark, number = int(metric.mark[row]), float(metric.number[row])
        if at >= 4 and zero[at - 4]:
            cells.append("N/A")
        elif mark == SAME and np.isnan(part.golden_statistics.number[row, at % 4]):
            cells.append("")  # nothing was recorded on both sides
        elif mark in (NUMBER, SAME):
            number = 0.0 if mark == SAME else number
            cells.append(f"{number!r}%" if metric.percent else number)
        else:
            cells.append(MARK_TEXTS[mark])
    return cells
