"""Writing a result in the columns of the official tool, so that existing scripts go on working.

Here, and only here, the two sides are called NPU and Bench. Two hundred thousand rows are written
column by column: numbers are turned into text in bulk, repeated texts are quoted once, and the
rows are joined at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from msprobe_nb.comparison import statistics, tensors
from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER, Metric
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.comparison.verdict import BIT, RULES, VERDICTS
from msprobe_nb.errors import UsageError
from msprobe_nb.store.index import ABSENT, EXACT_INTEGER, FLOAT, INT, NONE, Values
from msprobe_nb.store.layout import make_folder, write_atomic
from msprobe_nb.store.pack import CHECKSUM_MODE, TENSOR_MODE

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison, JudgedPart

MAX_ROWS = 1_000_000
COMMON = (
    *("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape"),
    *("Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad"),
)
STATISTICS = (
    *("NPU max", "NPU min", "NPU mean", "NPU l2norm"),
    *("Bench max", "Bench min", "Bench mean", "Bench l2norm"),
)
_END = ("Requires_grad Consistent", "Result", "Err_message")
COLUMNS = {
    "statistics": (*COMMON, *statistics.COLUMNS, *STATISTICS, *_END),
    "tensor": (*COMMON, *tensors.COLUMNS, *STATISTICS, *_END),
    "md5": (*COMMON, "NPU MD5", "BENCH MD5", *_END),
}
STACK, DATA_NAME = "NPU_Stack_Info", "Data_name"
_SPECIAL = (",", '"', "\n", "\r")
_FORMULA_STARTS = ("=", "+", "-", "@", "%", "\uff1d", "\uff0b", "\uff0d", "\uff05", "\uff20", "\t")


def write_csv(comparison: Comparison, path: str | os.PathLike[str]) -> list[Path]:
    """Write the official result files; see :meth:`Comparison.to_csv`."""
    written: list[Path] = []
    targets = _targets(comparison, Path(path))
    for judged, target in zip(comparison.judged, targets, strict=True):
        if not len(judged.rows):
            continue  # nothing was recorded, as with task `structure`
        header, rows = csv_rows(judged)
        make_folder(target.parent)
        pieces = range(0, max(1, len(rows)), MAX_ROWS)
        for number, start in enumerate(pieces, 1):
            part = target
            if len(pieces) > 1:
                part = target.with_name(f"{target.stem}_part_{number}{target.suffix}")
            content = b"\n".join([header, *rows[start : start + MAX_ROWS], b""])
            write_atomic(part, content)
            written.append(part)
    return written


def _targets(comparison: Comparison, path: Path) -> Iterator[Path]:
    """The file of each part: the given one, or official names in the given folder."""
    several = len(comparison.parts) > 1
    stamp = datetime.now().strftime("%Y%m%d%H%M%S")
    single = path.suffix == ".csv"
    if path.suffix and not single and not path.is_dir():
        raise UsageError(
            f"cannot write {path.suffix!r} files", file=path, remedy="Give a .csv file or a folder"
        )
    for part in comparison.parts:
        pack = part.target.pack
        prefix = "debug_compare_result" if pack.is_debug else "compare_result"
        if single:
            name = f"{path.stem}_step{part.step}_rank{part.rank}.csv" if several else path.name
            yield path.with_name(name)
            continue
        rank = f"_{pack.label}" if several else ""
        folder = path / f"step{part.step}" if len(comparison.steps) > 1 else path
        yield folder / f"{prefix}{rank}_{stamp}.csv"


def csv_rows(judged: JudgedPart) -> tuple[bytes, list[bytes]]:
    """Header line and one line for each row, without line ends."""
    part, rows = judged.part, judged.rows
    names = list(COLUMNS.get(part.mode, COLUMNS["statistics"]))
    columns: list[Sequence[bytes]] = [*_name_columns(part, rows), _facts(part, rows)]
    columns += [*_mode_columns(part, rows), _verdict(judged)]
    if part.target.pack.nodes.stacks:
        names.append(STACK)
        columns.append(_stacks(part, rows))
    if part.mode == TENSOR_MODE:
        names.append(DATA_NAME)
        columns.append(_data_names(part, rows))
    return ",".join(names).encode(), list(map(b",".join, zip(*columns, strict=True)))


# ---------------------------------------------------------------- columns


def _quoted(text: str) -> bytes:
    """A text as a csv cell; one that a spreadsheet would run as a formula gets an apostrophe."""
    if text.startswith(_FORMULA_STARTS):
        try:
            float(text)
        except ValueError:
            text = "'" + text
    if any(character in text for character in _SPECIAL):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode("utf-8", "backslashreplace")


def _cells(texts: Sequence[str]) -> list[bytes]:
    """Texts as csv cells; at once when none of them needs care."""
    joined = "\n".join(texts)
    careful = (
        joined.count("\n") != len(texts) - 1
        or any(character in joined for character in ',"\r')
        or not {text[:1] for text in texts}.isdisjoint(_FORMULA_STARTS)
    )
    if careful:
        return list(map(_quoted, texts))
    return joined.encode("utf-8", "backslashreplace").split(b"\n")


def _name_columns(part: Part, rows: np.ndarray) -> list[list[bytes]]:
    """Names of both sides; as a rule they are the same."""
    names, partner = part.target.names, part.pairs.golden
    ours = _cells(names)
    theirs = ours if names == part.golden.names else _cells(part.golden.names)
    if len(rows) == len(names):
        if theirs is ours and np.array_equal(partner, rows):
            return [ours, ours]
    else:
        ours = [ours[row] for row in rows.tolist()]
    golden = np.array([*theirs, NOT_AVAILABLE.encode()], object)[partner[rows]]
    return [ours, golden.tolist()]


def _facts(part: Part, rows: np.ndarray) -> list[bytes]:
    """dtype, shape and requires_grad of both sides, joined.

    Few combinations occur, so each is put together once.
    """
    partner = part.pairs.golden[rows]
    tables, codes = [], []
    for name in ("dtype", "shape", "requires_grad"):
        ours, theirs = getattr(part.target, name), getattr(part.golden, name)
        tables += [
            list(map(_quoted, ours.values)),
            [*map(_quoted, theirs.values), NOT_AVAILABLE.encode()],
        ]
        other = theirs.codes[partner] if len(theirs) else 0
        codes += [ours.codes[rows], np.where(partner >= 0, other, len(theirs.values))]
    return _combined(tables, codes)


def _combined(tables: Sequence[Sequence[bytes]], codes: Sequence[np.ndarray]) -> list[bytes]:
    """Columns of few distinct cells as one column of joined cells."""
    joint = np.zeros(len(codes[0]), np.int64)
    for table, column in zip(tables, codes, strict=True):
        joint = joint * len(table) + column
    _, first, code = np.unique(joint, return_index=True, return_inverse=True)
    lines = np.empty(len(first), object)
    lines[:] = [
        b",".join(table[column[row]] for table, column in zip(tables, codes, strict=True))
        for row in first.tolist()
    ]
    return lines[code.reshape(-1)].tolist()


def _mode_columns(part: Part, rows: np.ndarray) -> list[list[bytes]]:
    """The columns between the common ones and the verdict.

    Neighbouring columns of numbers come as one, their cells already joined.
    """
    if part.mode == CHECKSUM_MODE:
        return [_cells([side[row] for row in rows.tolist()]) for side in part.checksums]
    if part.mode == TENSOR_MODE:
        groups: list[tuple[str, ...]] = [tensors.COLUMNS]
    else:
        groups = [statistics.DIFFERENCES, statistics.RELATIVE_ERRORS]
    columns = [_metrics([part.metrics[name] for name in names], rows) for names in groups]
    for side in (part.target.statistics, part.golden_statistics):
        columns.append(_statistics(side if len(rows) == len(part) else side.take(rows)))
    return columns


def _lines(numbers: np.ndarray, unit: bytes = b"") -> np.ndarray:
    """Rows of finite numbers as joined cells.

    Each number has its shortest text and is followed by its unit.
    """
    lines = np.empty(len(numbers), object)
    if len(numbers):
        text = msgspec.json.encode(numbers.tolist())[2:-2]
        if unit:
            text = text.replace(b",", unit + b",")
        found = text.split(b"]" + unit + b",[")
        lines[:] = [line + unit for line in found] if unit else found
    return lines


def _metrics(columns: Sequence[Metric], rows: np.ndarray) -> list[bytes]:
    """Neighbouring metrics as joined cells."""
    mark = np.stack([column.mark[rows] for column in columns], axis=1)
    numbers = np.stack([column.number[rows] for column in columns], axis=1)
    unit = b"%" if columns[0].percent else b""
    is_number = mark == NUMBER
    plain = (is_number & np.isfinite(numbers)).all(axis=1)
    lines = np.empty(len(rows), object)
    lines[plain] = _lines(numbers[plain], unit)
    marked = ~is_number.any(axis=1)
    texts = [text.encode() for text in MARK_TEXTS]
    lines[marked] = _combined([texts] * len(columns), list(mark[marked].T))
    for row in np.flatnonzero(~plain & ~marked).tolist():
        lines[row] = b",".join(
            f"{number!r}".encode() + unit if code == NUMBER else texts[code]
            for code, number in zip(mark[row].tolist(), numbers[row].tolist(), strict=True)
        )
    return lines.tolist()


def _statistics(values: Values) -> list[bytes]:
    """The recorded statistics of one side as the official files show them, joined."""
    kind, number = values.kind, values.number
    lines = np.empty(len(kind), object)
    plain = ((kind == FLOAT) & np.isfinite(number)).all(axis=1)
    lines[plain] = _lines(number[plain])
    whole = ((kind == INT) & (np.abs(number) < EXACT_INTEGER)).all(axis=1)
    lines[whole] = _lines(number[whole].astype(np.int64))
    done = plain | whole
    for code, text in ((ABSENT, NOT_AVAILABLE), (NONE, "None")):
        same = (kind == code).all(axis=1)
        lines[same] = ",".join([text] * kind.shape[1]).encode()
        done |= same
    others = np.flatnonzero(~done)
    for row, cells in zip(others.tolist(), values.take(others).python().tolist(), strict=True):
        lines[row] = b",".join(map(_statistic, cells))
    return lines.tolist()


def _statistic(value: Any) -> bytes:
    """One recorded statistic."""
    if isinstance(value, msgspec.UnsetType):
        return NOT_AVAILABLE.encode()
    if isinstance(value, float):
        if np.isnan(value):
            return b"Nan"
        # The leading blank keeps spreadsheets from showing an error.
        return f" {value}".encode() if np.isinf(value) else repr(value).encode()
    return _quoted(str(value))


def _verdict(judged: JudgedPart) -> list[bytes]:
    """Requires_grad Consistent, Result and Err_message, joined."""
    part, rows = judged.part, judged.rows
    partner = part.pairs.golden[rows]
    ours, theirs = part.target.requires_grad, part.golden.requires_grad
    values = [*ours.values, NOT_AVAILABLE]
    place = np.array([values.index(text) if text in values else -1 for text in theirs.values])
    other = place[theirs.codes[partner]] if len(theirs) else -1
    golden = np.where(partner >= 0, other, values.index(NOT_AVAILABLE))
    consistent = (ours.codes[rows] == golden).astype(np.int64)
    fired, code = np.unique(judged.judgement.rules[rows], return_inverse=True)
    tables = [
        [b"False", b"True"],
        [text.encode() for text in VERDICTS],
        [_message(int(bits)) for bits in fired],
    ]
    return _combined(tables, [consistent, judged.level, code.reshape(-1)])


def _message(bits: int) -> bytes:
    """The official messages of the rules that fired, as a JSON list."""
    texts = [f"{VERDICTS[rule.level]}: {rule.text}" for rule in RULES if bits & BIT[rule.name]]
    listed = ", ".join(msgspec.json.encode(text).decode() for text in texts)
    return _quoted(f"[{listed}]")


def _stacks(part: Part, rows: np.ndarray) -> list[bytes]:
    """The call stack in the first row of each call, as the official files print it."""
    nodes = part.target.pack.nodes
    texts = np.array(
        [*(_quoted(str(frames)) for frames in nodes.stacks), NOT_AVAILABLE.encode()], object
    )
    first = np.zeros(len(part), bool)
    first[np.unique(part.node, return_index=True)[1]] = True
    codes = np.where(first, nodes.stack[part.node] if len(part) else -1, -1)
    return texts[codes[rows]].tolist()


def _data_names(part: Part, rows: np.ndarray) -> list[bytes]:
    ours, theirs = part.target.index.data_name, part.golden.index.data_name
    cells = []
    for row in rows.tolist():
        partner = int(part.pairs.golden[row])
        pair = [ours[row] or "-1", (theirs[partner] or "-1") if partner >= 0 else NOT_AVAILABLE]
        cells.append(_quoted(str(pair)))
    return cells
