"""Writing a result as spreadsheets in the columns of the official tool.

Numbers are number cells, also where the official tool has texts because something else in the
column is one; everything else is text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER, SAME, Metric
from msprobe_nb.comparison.official_columns import (
    Block,
    Cells,
    Choices,
    Metrics,
    Texts,
    official_columns,
    result_paths,
)
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.spreadsheet import sheet_slices, write_workbook
from msprobe_nb.store.index import Values

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.result import Comparison, JudgedPart

_BATCH = 4096  # rows whose cells exist as Python values at once


def write_xlsx(comparison: Comparison, path: str | os.PathLike[str]) -> list[Path]:
    """Write the official result files; see :meth:`Comparison.to_xlsx`."""
    written = []
    targets = result_paths(comparison, Path(path), ".xlsx")
    for judged, target in zip(comparison.judged, targets, strict=True):
        if not len(judged.rows):
            continue  # nothing was recorded, as with task `structure`
        titles, blocks = official_columns(judged)
        count = _length(judged, blocks)
        sheets = ((name, titles, _rows(blocks, part)) for name, part in sheet_slices(count))
        written.append(write_workbook(target, sheets))
    return written


def official_frame(judged: JudgedPart) -> pd.DataFrame:
    """One (step, rank) in the official columns: numbers, texts and booleans."""
    import pandas as pd

    titles, blocks = official_columns(judged)
    rows = _rows(blocks, slice(0, _length(judged, blocks)))
    return pd.DataFrame(rows, columns=titles, dtype=object)


def _length(judged: JudgedPart, blocks: list[Block]) -> int:
    """Number of rows; results of kernel dumps also list what only the golden run has."""
    first = blocks[0]
    return len(first.cells) if isinstance(first, (Texts, Cells)) else len(judged.rows)


def _rows(blocks: list[Block], part: slice) -> Iterator[tuple[Any, ...]]:
    for start in range(part.start, part.stop, _BATCH):
        rows = slice(start, min(start + _BATCH, part.stop))
        columns = [column for block in blocks for column in _cells(block, rows)]
        yield from zip(*columns, strict=True)


def _cells(block: Block, rows: slice) -> list[list[Any]]:
    """Some rows of a block, column by column, as Python values."""
    if isinstance(block, (Texts, Cells)):
        return [block.cells[rows]]
    if isinstance(block, Choices):
        return [
            [table[code] for code in codes[rows].tolist()]
            for table, codes in zip(block.tables, block.codes, strict=True)
        ]
    if isinstance(block, Metrics):
        return [_metric(column, rows) for column in block.columns]
    return _statistics(block.values.take(np.arange(rows.start, rows.stop)))


def _metric(column: Metric, rows: slice) -> list[Any]:
    mark, number = column.mark[rows].tolist(), column.number[rows].tolist()
    if column.percent:
        return [
            f"{value!r}%" if code == NUMBER else 0 if code == SAME else MARK_TEXTS[code]
            for code, value in zip(mark, number, strict=True)
        ]
    return [
        value if code == NUMBER else 0 if code == SAME else MARK_TEXTS[code]
        for code, value in zip(mark, number, strict=True)
    ]


def _statistics(values: Values) -> list[list[Any]]:
    return [list(map(_statistic, column)) for column in values.python().T.tolist()]


def _statistic(value: Any) -> Any:
    if isinstance(value, msgspec.UnsetType):
        return NOT_AVAILABLE
    if isinstance(value, bool) or value is None:
        return str(value)
    return value
