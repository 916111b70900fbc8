"""Writing a result as csv in the columns of the official tool.

Two hundred thousand rows are written column by column: numbers are turned into text in bulk,
repeated texts are quoted once, and the rows are joined at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER
from msprobe_nb.comparison.official_columns import (
    Block,
    Cells,
    Choices,
    Metrics,
    Recorded,
    Texts,
    official_columns,
    result_paths,
)
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.store.index import ABSENT, EXACT_INTEGER, FLOAT, INT, NONE
from msprobe_nb.store.layout import make_folder, write_atomic

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison, JudgedPart

MAX_ROWS = 1_000_000
_SPECIAL = (",", '"', "\n", "\r")
_FORMULA_STARTS = ("=", "+", "-", "@", "%", "\uff1d", "\uff0b", "\uff0d", "\uff05", "\uff20", "\t")


def write_csv(comparison: Comparison, path: str | os.PathLike[str]) -> list[Path]:
    """Write the official result files; see :meth:`Comparison.to_csv`."""
    written: list[Path] = []
    targets = result_paths(comparison, Path(path), ".csv")
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


def csv_rows(judged: JudgedPart) -> tuple[bytes, list[bytes]]:
    """Header line and one line for each row, without line ends."""
    titles, blocks = official_columns(judged)
    columns: list[Sequence[bytes]] = []
    for at, block in enumerate(blocks):
        same = (
            isinstance(block, Texts) and at and getattr(blocks[at - 1], "cells", 0) is block.cells
        )
        columns.append(columns[-1] if same else _RENDER[type(block)](block))
    return ",".join(titles).encode(), list(map(b",".join, zip(*columns, strict=True)))


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


def _cells(block: Texts) -> list[bytes]:
    """Texts as csv cells; at once when none of them needs care."""
    texts = block.cells
    joined = "\n".join(texts)
    careful = (
        joined.count("\n") != len(texts) - 1
        or any(character in joined for character in ',"\r')
        or not {text[:1] for text in texts}.isdisjoint(_FORMULA_STARTS)
    )
    if careful:
        return list(map(_quoted, texts))
    return joined.encode("utf-8", "backslashreplace").split(b"\n")


def _choices(block: Choices) -> list[bytes]:
    """Columns of few distinct values; each combination that occurs is put together once."""
    tables = [[_quoted(str(value)) for value in table] for table in block.tables]
    return _combined(tables, block.codes)


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


def _metrics(block: Metrics) -> list[bytes]:
    """Neighbouring metrics as joined cells."""
    columns = block.columns
    mark = np.stack([column.mark for column in columns], axis=1)
    numbers = np.stack([column.number for column in columns], axis=1)
    unit = b"%" if columns[0].percent else b""
    is_number = mark == NUMBER
    plain = (is_number & np.isfinite(numbers)).all(axis=1)
    lines = np.empty(len(mark), object)
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


def _statistics(block: Recorded) -> list[bytes]:
    """The recorded statistics of one side as the official files show them, joined."""
    values = block.values
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


def _mixed(block: Cells) -> list[bytes]:
    return [_quoted(cell if isinstance(cell, str) else repr(cell)) for cell in block.cells]


_RENDER: dict[type[Block], Callable[[Any], list[bytes]]] = {
    Texts: _cells,
    Choices: _choices,
    Metrics: _metrics,
    Recorded: _statistics,
    Cells: _mixed,
}
