"""Writing spreadsheets: typed cells in constant memory, and nothing that runs when opened.

Texts are written as texts whatever they begin with, so none becomes a formula, a link or a number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xlsxwriter.worksheet import Worksheet

MAX_ROWS = 1_048_500  # of one sheet, as the official tool splits them; a sheet holds 1,048,576
_MAX_TEXT = 32_767  # characters of one cell


def write_workbook(
    path: Path, sheets: Iterable[tuple[str, Sequence[str], Iterable[Sequence[Any]]]]
) -> Path:
    """Write an ``.xlsx`` file; a reader sees all of it or none.

    Parameters
    ----------
    path : Path
        Replaced if it exists.
    sheets : iterable of (name, titles, rows)
        Names are cut to the 31 characters a sheet's name may have. Cells are texts, numbers,
        booleans, or None for an empty cell; numbers that are not finite become texts.

    Returns
    -------
    Path
    """
    from xlsxwriter import Workbook

    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target: the same file system, and gone whatever happens.
    with TemporaryDirectory(dir=path.parent, prefix=".") as scratch:
        partial = Path(scratch) / path.name
        book = Workbook(partial, {"constant_memory": True, "tmpdir": scratch})
        for name, titles, rows in sheets:
            sheet = book.add_worksheet(name[:31])
            for at, title in enumerate(titles):
                _write_text(sheet, 0, at, title)
            for at, cells in enumerate(rows, 1):
                _write_row(sheet, at, cells)
        book.close()
        os.replace(partial, path)
    return path


def sheet_slices(rows: int, name: str = "") -> Iterator[tuple[str, slice]]:
    """Names and rows of the sheets for one table: one sheet, or equal parts of a long table.

    Parameters
    ----------
    rows : int
        Number of rows of the table.
    name : str
        Name of the table, if the workbook has several.
    """
    if rows < MAX_ROWS:
        yield name or "Sheet1", slice(0, rows)
        return
    count = math.ceil(rows / MAX_ROWS)
    size = math.ceil(rows / count)
    for at in range(count):
        title = f"{name}_part_{at}" if name else f"part_{at}"
        yield title, slice(at * size, min((at + 1) * size, rows))


def _write_row(sheet: Worksheet, row: int, cells: Sequence[Any]) -> None:
    for at, value in enumerate(cells):
        kind = type(value)
        if kind is str:
            _write_text(sheet, row, at, value)
        elif kind is float or kind is int:
            if math.isfinite(value):
                sheet.write_number(row, at, value)
            else:
                sheet.write_string(row, at, "Nan" if value != value else str(value))
        elif kind is bool:
            sheet.write_boolean(row, at, value)
        elif value is not None:
            _write_text(sheet, row, at, str(value))


def _write_text(sheet: Worksheet, row: int, column: int, text: str) -> None:
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates
    sheet.write_string(row, column, text[:_MAX_TEXT])
