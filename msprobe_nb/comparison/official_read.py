"""Reading result files in the official columns back, the official tool's and ours alike."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_nb.comparison.official_columns import COMMON, DATA_NAME, NPU_NAME, STACK
from msprobe_nb.errors import FormatError, PathNotFoundError

if TYPE_CHECKING:
    import pandas as pd

_RANK_FILE = re.compile(
    r"compare_result_rank(\d+)(?:-rank\1)?_(\d{14})(?:_part_(\d+))?\.(csv|xlsx)\Z"
)
# Columns whose cells are texts even when they look like numbers, as some check values do.
_TEXTS = frozenset((*COMMON, "NPU MD5", "BENCH MD5", "Result", "Err_message", STACK, DATA_NAME))
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")  # how spreadsheets write what XML cannot hold


@dataclass(frozen=True, slots=True)
class RankFiles:
    """The newest result of one rank: one file, or the parts of a long one."""

    rank: int
    paths: tuple[Path, ...]


def find_rank_files(folder: Path) -> tuple[list[RankFiles], list[str]]:
    """The result files of a folder by rank, and what was left aside.

    Parameters
    ----------
    folder : Path
        Files ``compare_result_rank<k>_<time>.csv`` or ``.xlsx``.

    Returns
    -------
    list of RankFiles
        Sorted by rank; of several results of one rank the newest.
    list of str
        A note for each file that was not used.
    """
    if not folder.is_dir():
        raise PathNotFoundError("the folder does not exist", file=folder)
    found: dict[int, dict[tuple[str, str], list[tuple[int, Path]]]] = {}
    notes = []
    for path in sorted(folder.iterdir()):
        match = _RANK_FILE.match(path.name)
        if match:
            rank, stamp, part, kind = match.groups()
            results = found.setdefault(int(rank), {})
            results.setdefault((stamp, kind), []).append((int(part or 0), path))
        elif path.suffix in (".csv", ".xlsx"):
            notes.append(f"{path.name} is no result of one rank, left aside")
    ranks = []
    for rank, results in sorted(found.items()):
        *older, newest = sorted(results)
        ranks.append(RankFiles(rank, tuple(path for _, path in sorted(results[newest]))))
        notes += [
            f"{path.name} is older or a copy, left aside"
            for key in older
            for _, path in results[key]
        ]
    return ranks, notes


def rank_of(path: Path, default: int) -> int:
    """The rank in the name of a result file; `default` where it tells none."""
    match = _RANK_FILE.match(path.name)
    return int(match[1]) if match else default


def read_result(paths: Path | Sequence[Path]) -> pd.DataFrame:
    """A result in the official columns.

    Parameters
    ----------
    paths : Path or sequence of Path
        A ``.csv`` or ``.xlsx`` file; or the parts of a result that was split.

    Returns
    -------
    DataFrame
        Cells are numbers, texts, booleans; empty cells are empty texts.

    Raises
    ------
    FormatError
        The file is broken or no result.
    """
    import pandas as pd

    frames = [
        frame
        for path in ([paths] if isinstance(paths, Path) else paths)
        for frame in (_read_xlsx(path) if path.suffix == ".xlsx" else _read_csv(path))
    ]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _read_csv(path: Path) -> list[pd.DataFrame]:
    csv.field_size_limit(1 << 30)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"no readable csv ({error!s:.80})", file=path) from None
    titles = rows[0] if rows else []
    numeric = [title not in _TEXTS for title in titles]
    converted = [
        [_number(cell) if number else cell for cell, number in zip(row, numeric, strict=False)]
        for row in rows[1:]
    ]
    return [_frame(path, [titles, *converted])]


def _read_xlsx(path: Path) -> list[pd.DataFrame]:
    from zipfile import BadZipFile

    import openpyxl

    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = [
            [list(map(_text, row)) for row in sheet.iter_rows(values_only=True)] for sheet in book
        ]
    except (BadZipFile, KeyError, ValueError, OSError) as error:
        raise FormatError(f"no readable spreadsheet ({error!s:.80})", file=path) from None
    return [_frame(path, rows) for rows in sheets]


def _frame(path: Path, rows: Sequence[list[Any]]) -> pd.DataFrame:
    import pandas as pd

    titles, *cells = rows or ([],)
    if NPU_NAME not in titles:
        raise FormatError(
            f"no comparison result: it has no column {NPU_NAME!r}",
            file=path,
            remedy="Give the files that 'compare' writes",
        )
    return pd.DataFrame(cells, columns=[str(title) for title in titles], dtype=object)


def _number(cell: str) -> Any:
    """A csv cell as a number where it is one; texts such as ``inf`` stay as they are."""
    if cell[:1].isdigit() or cell[:1] == "-":
        try:
            return float(cell) if any(c in cell for c in ".eE") else int(cell)
        except ValueError:
            return cell
    if cell in ("True", "False"):
        return cell == "True"
    return cell.strip() if cell in (" inf", " -inf") else cell


def _text(cell: Any) -> Any:
    if cell is None:
        return ""
    if isinstance(cell, str) and "_x" in cell:
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), cell)
    return cell
