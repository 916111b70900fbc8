"""The columns of the official result files, as blocks of typed values.

Here, in :mod:`.official_csv` and in :mod:`.official_xlsx`, and only there, the two sides are called
NPU and Bench. Neighbouring columns that can be turned into cells together are one block; each
writer turns the kinds of blocks into its cells in bulk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from msprobe_nb.comparison import statistics, tensors
from msprobe_nb.comparison.cells import MARK_TEXTS, NAN, NUMBER, UNSUPPORTED, Metric
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.comparison.verdict import BIT, PASS, RULES, VERDICTS
from msprobe_nb.errors import UsageError
from msprobe_nb.store.index import Values
from msprobe_nb.store.pack import CHECKSUM_MODE, TENSOR_MODE

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison, JudgedPart

NPU_NAME, BENCH_NAME = "NPU Name", "Bench Name"
CONSISTENT = "Requires_grad Consistent"
COMMON = (
    *(NPU_NAME, BENCH_NAME, "NPU Dtype", "Bench Dtype", "NPU Tensor Shape"),
    *("Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad"),
)
STATISTICS = (
    *("NPU max", "NPU min", "NPU mean", "NPU l2norm"),
    *("Bench max", "Bench min", "Bench mean", "Bench l2norm"),
)
_END = (CONSISTENT, "Result", "Err_message")
COLUMNS = {
    "statistics": (*COMMON, *statistics.COLUMNS, *STATISTICS, *_END),
    "tensor": (*COMMON, *tensors.COLUMNS, *STATISTICS, *_END),
    "md5": (*COMMON, "NPU MD5", "BENCH MD5", *_END),
}
STACK, DATA_NAME = "NPU_Stack_Info", "Data_name"


@dataclass(frozen=True, slots=True)
class Texts:
    """One column of texts."""

    cells: list[str]


@dataclass(frozen=True, slots=True)
class Choices:
    """Neighbouring columns of few distinct values.

    Attributes
    ----------
    tables : list of list
        The distinct texts or booleans of each column.
    codes : list of ndarray of int, shape (n,)
        Row i of column c holds ``tables[c][codes[c][i]]``.
    """

    tables: list[list[Any]]
    codes: list[np.ndarray]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Neighbouring columns of measured numbers, all with or all without a percent sign."""

    columns: list[Metric]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The four recorded statistics of one side.

    Attributes
    ----------
    values : Values, shape (n, 4)
    """

    values: Values


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of texts and numbers."""

    cells: list[Any]


Block = Texts | Choices | Metrics | Recorded | Cells


def official_columns(judged: JudgedPart) -> tuple[list[str], list[Block]]:
    """Titles and blocks of one (step, rank), in the official order.

    Returns
    -------
    titles : list of str
        Of all columns; a block may hold several.
    blocks : list of Block
        Each with one entry for every shown row.
    """
    part, rows = judged.part, judged.rows
    if part.target.pack.is_kernel:
        from msprobe_nb.comparison.official_kernel import kernel_columns

        titles, columns = kernel_columns(judged)
        return titles, [Cells(column) for column in columns]
    titles = column_names(part)
    blocks: list[Block] = [*_names(part, rows), _facts(part, rows)]
    blocks += [*_mode_blocks(part, rows), *_verdict(judged)]
    if part.target.pack.nodes.stacks:
        titles.append(STACK)
        blocks.append(_stacks(part, rows))
    if part.mode == TENSOR_MODE:
        titles.append(DATA_NAME)
        blocks.append(_data_names(part, rows))
    return titles, blocks


def column_names(part: Part) -> list[str]:
    """The official columns of a part without its last ones; a user's own follow the metrics."""
    names = list(COLUMNS.get(part.mode, COLUMNS["statistics"]))
    if part.custom:
        at = names.index(tensors.COLUMNS[-1]) + 1
        names[at:at] = part.custom
    return names


def custom_cells(part: Part, name: str, rows: np.ndarray) -> list[str]:
    """The results of a user's algorithm; the mark of the metrics where there is none."""
    marks = part.metrics["MaxAbsErr"].mark
    return [
        MARK_TEXTS[mark if mark not in (NUMBER, NAN) else UNSUPPORTED]
        if (value := part.custom[name][row]) is None
        else str(value)
        for row, mark in zip(rows.tolist(), marks[rows].tolist(), strict=True)
    ]


def result_paths(comparison: Comparison, path: Path, suffix: str) -> Iterator[Path]:
    """The file of each part: the given one, or official names in the given folder.

    Raises
    ------
    UsageError
        `path` names a file of another kind.
    """
    several = len(comparison.parts) > 1
    stamp = datetime.now().strftime("%Y%m%d%H%M%S") + ("" if comparison.complete else "_partial")
    single = path.suffix == suffix
    if path.suffix[1:].isalpha() and not single and not path.is_dir():
        raise UsageError(
            f"cannot write {path.suffix!r} files",
            file=path,
            remedy=f"Give a {suffix} file or a folder",
        )
    for part in comparison.parts:
        pack = part.target.pack
        prefix = "debug_compare_result" if pack.is_debug else "compare_result"
        if single:
            name = f"{path.stem}_step{part.step}_rank{part.rank}{suffix}" if several else path.name
            yield path.with_name(name)
            continue
        if pack.is_kernel:
            yield path / f"{prefix}_{part.rank}_{part.step}_{stamp}{suffix}"
            continue
        rank = f"_{pack.label}" if several else ""
        folder = path / f"step{part.step}" if len(comparison.steps) > 1 else path
        yield folder / f"{prefix}{rank}_{stamp}{suffix}"


# ---------------------------------------------------------------- blocks


def _names(part: Part, rows: np.ndarray) -> list[Block]:
    """Names of both sides; as a rule they are the same, and then one list serves for both."""
    names, partner = part.target.names, part.pairs.golden
    ours = names if len(rows) == len(names) else [names[row] for row in rows.tolist()]
    if names == part.golden.names and np.array_equal(partner[rows], rows):
        return [Texts(ours), Texts(ours)]
    golden = np.array([*part.golden.names, NOT_AVAILABLE], object)[partner[rows]]
    return [Texts(ours), Texts(golden.tolist())]


def _facts(part: Part, rows: np.ndarray) -> Choices:
    """dtype, shape and requires_grad of both sides."""
    partner = part.pairs.golden[rows]
    tables: list[list[Any]] = []
    codes: list[np.ndarray] = []
    for name in ("dtype", "shape", "requires_grad"):
        ours, theirs = getattr(part.target, name), getattr(part.golden, name)
        tables += [ours.values, [*theirs.values, NOT_AVAILABLE]]
        other = theirs.codes[partner] if len(theirs) else 0
        codes += [ours.codes[rows], np.where(partner >= 0, other, len(theirs.values))]
    return Choices(tables, codes)


def _mode_blocks(part: Part, rows: np.ndarray) -> list[Block]:
    """The columns between the common ones and the verdict."""
    if part.mode == CHECKSUM_MODE:
        return [Texts([side[row] for row in rows.tolist()]) for side in part.checksums]
    if part.mode == TENSOR_MODE:
        groups: list[tuple[str, ...]] = [tensors.COLUMNS]
    else:
        groups = [statistics.DIFFERENCES, statistics.RELATIVE_ERRORS]
    blocks: list[Block] = [
        Metrics([part.metrics[name].take(rows) for name in names]) for names in groups
    ]
    blocks += [Cells(custom_cells(part, name, rows)) for name in part.custom]
    for side in (part.target.statistics, part.golden_statistics):
        blocks.append(Recorded(side if len(rows) == len(part) else side.take(rows)))
    return blocks


def _verdict(judged: JudgedPart) -> list[Block]:
    """Requires_grad Consistent, Result and Err_message."""
    part, rows = judged.part, judged.rows
    partner = part.pairs.golden[rows]
    ours, theirs = part.target.requires_grad, part.golden.requires_grad
    values = [*ours.values, NOT_AVAILABLE]
    place = np.array([values.index(text) if text in values else -1 for text in theirs.values])
    other = place[theirs.codes[partner]] if len(theirs) else -1
    golden = np.where(partner >= 0, other, values.index(NOT_AVAILABLE))
    consistent = (ours.codes[rows] == golden).astype(np.int64)
    tables: list[list[Any]] = [[False, True], list(VERDICTS)]
    codes = [consistent, judged.level]
    if not judged.judgement.by_rules:
        return [Choices(tables, codes), Texts(_reasons(judged))]
    fired, code = np.unique(judged.judgement.rules[rows], return_inverse=True)
    tables.append([_message(int(bits)) for bits in fired])
    return [Choices(tables, [*codes, code.reshape(-1)])]


def _reasons(judged: JudgedPart) -> list[str]:
    """The reasons of marked rows as JSON lists, where no official rule stands behind them."""
    level, rows = judged.level, judged.rows
    found = [_json_list([])] * len(rows)
    for at in np.flatnonzero(level > PASS).tolist():
        reason = judged.judgement.reason(int(rows[at]))
        if reason:
            found[at] = _json_list([f"{VERDICTS[level[at]]}: {reason}"])
    return found


def _message(bits: int) -> str:
    """The official messages of the rules that fired, as a JSON list."""
    texts = [f"{VERDICTS[rule.level]}: {rule.text}" for rule in RULES if bits & BIT[rule.name]]
    return _json_list(texts)


def _json_list(texts: list[str]) -> str:
    return f"[{', '.join(msgspec.json.encode(text).decode() for text in texts)}]"


def _stacks(part: Part, rows: np.ndarray) -> Choices:
    """The call stack in the first row of each call, as the official files print it."""
    nodes = part.target.pack.nodes
    texts = [*map(str, nodes.stacks), NOT_AVAILABLE]
    first = np.zeros(len(part), bool)
    first[np.unique(part.node, return_index=True)[1]] = True
    at = nodes.stack[part.node] if len(part) else np.empty(0, np.int32)
    codes = np.where(first & (at >= 0), at, len(nodes.stacks))
    return Choices([texts], [codes[rows]])


def _data_names(part: Part, rows: np.ndarray) -> Texts:
    ours, theirs = part.target.index.data_name, part.golden.index.data_name
    cells = []
    for row in rows.tolist():
        partner = int(part.pairs.golden[row])
        pair = [ours[row] or "-1", (theirs[partner] or "-1") if partner >= 0 else NOT_AVAILABLE]
        cells.append(str(pair))
    return Texts(cells)
