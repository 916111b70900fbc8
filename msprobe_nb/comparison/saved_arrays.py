"""Comparing arrays that were saved under tags: how many elements are the same, and how close.

Source of the formulas: specification 02, section 9.2. Arrays of different size are cut to what
both have; a relative error is measured against the larger of the two values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.comparison.tables import Tables
from msprobe_nb.errors import MsProbeError, NotARunError
from msprobe_nb.formats.single_save import SavedArrays, SavedKey, find_saved
from msprobe_nb.store.dtypes import widen
from msprobe_nb.store.sources import open_source

if TYPE_CHECKING:
    pass

COLUMNS = (
    *("step", "rank", "micro_step", "id", "target_shape", "golden_shape", "same_percent"),
    *("first_mismatch", "max_abs", "max_rel", "within_1_1000_percent", "within_1_100_percent"),
)
# The titles in official files: same elements, first element that differs, largest absolute and
# relative error, elements within 1/1000 and 1/100.
TITLES = (
    *("step", "rank", "micro_step", "id", "shape1", "shape2", "相同元素百分比(%)"),
    *("首个不匹配元素索引", "最大绝对误差", "最大相对误差"),
    *("误差在千分之一内元素占比(%)", "误差在百分之一内元素占比(%)"),
)


class SavedComparison(Tables):
    """Tag -> DataFrame with one row for each array that both sides have.

    Columns ``step rank micro_step id target_shape golden_shape same_percent first_mismatch max_abs
    max_rel within_1_1000_percent within_1_100_percent``.

    Attributes
    ----------
    notes : list of str
        Arrays that only one side has or that cannot be read.
    """

    def to_xlsx(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write ``<tag>.xlsx`` for each tag, with the official titles."""
        from msprobe_nb.spreadsheet import sheet_slices, write_workbook

        written = []
        for tag, table in self.items():
            columns = [table[name].tolist() for name in table.columns]
            rows = list(zip(*[_cells(column) for column in columns], strict=True))
            sheets = [(name, TITLES, rows[part]) for name, part in sheet_slices(len(rows))]
            written.append(write_workbook(Path(folder) / f"{tag}.xlsx", sheets))
        return written

    def summary(self) -> str:
        """A line for each tag."""
        lines = []
        for tag, table in self.items():
            equal = int((table["same_percent"] == 100).sum())
            worst = f", largest relative error {table['max_rel'].max():.4g}" if len(table) else ""
            lines.append(f"{tag}: {equal} of {len(table)} arrays are the same{worst}")
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def _cells(column: Sequence[Any]) -> list[Any]:
    return [str(list(value)) if isinstance(value, tuple) else value for value in column]


def compare_saved(
    target: str | os.PathLike[str], golden: str | os.PathLike[str]
) -> SavedComparison:
    """Compare two trees ``data/<tag>/step<i>/rank<j>[/micro_step<k>]/*.npy``.

    Parameters
    ----------
    target, golden : path or URL
        The folder that holds ``data``, or ``data`` itself.

    Returns
    -------
    SavedComparison
        A tag that only one side has gets an empty table.

    Raises
    ------
    NotARunError
        A side holds no such tree.
    """
    import pandas as pd

    sides = [_open(path) for path in (target, golden)]
    tags = dict.fromkeys(key.tag for side in sides for key in side.files)
    rows: dict[str, list[tuple[Any, ...]]] = {tag: [] for tag in sorted(tags)}
    notes = [note for side in sides for note in side.notes]
    for key in sides[0].files:
        if key not in sides[1].files:
            continue
        try:
            row = compare_arrays(*(side.read(key) for side in sides))
        except MsProbeError as error:
            notes.append(f"{_shown(key)} was not compared: {error}")
            continue
        rows[key.tag].append((*key[1:], *row))
    for name, ours, theirs in (("target", sides[0], sides[1]), ("golden", sides[1], sides[0])):
        alone = [key for key in ours.files if key not in theirs.files]
        if alone:
            shown = ", ".join(map(_shown, alone[:4])) + (" ..." if len(alone) > 4 else "")
            notes.append(f"{len(alone)} arrays are only in the {name}: {shown}")
    tables = {}
    for tag, found in rows.items():
        table = pd.DataFrame(found, columns=list(COLUMNS))
        table["first_mismatch"] = table["first_mismatch"].astype(object)
        tables[tag] = table.where(table.notna() | (table.columns != "first_mismatch"), None)
    return SavedComparison(tables, notes)


def _open(path: str | os.PathLike[str]) -> SavedArrays:
    found = find_saved(open_source(path))
    if found is None:
        raise NotARunError(
            "no saved arrays here (data/<tag>/step<i>/rank<j>/*.npy)",
            file=path,
            remedy="Give the folder that holds the folder 'data'",
        )
    return found


def _shown(key: SavedKey) -> str:
    return f"{key.tag} step {key.step} rank {key.rank} micro step {key.micro_step} id {key.id}"


def compare_arrays(target: np.ndarray, golden: np.ndarray) -> tuple[Any, ...]:
    """The measures of one pair.

    Parameters
    ----------
    target, golden : ndarray
        Any numeric dtypes; of different rank they are flattened, then both are cut to the common
        size of each axis.

    Returns
    -------
    tuple
        Both shapes; percentage of equal elements; flat position of the first unequal one or None;
        largest absolute and relative error; percentages within 1/1000 and 1/100. NaN where
        nothing is left to compare. Equal NaN and infinities are the same; at other places they
        are an infinite error.
    """
    shapes = target.shape, golden.shape
    if target.ndim != golden.ndim:
        target, golden = target.reshape(-1), golden.reshape(-1)
    cut = tuple(slice(0, min(pair)) for pair in zip(target.shape, golden.shape, strict=True))
    ours, theirs = (widen(side[cut]).reshape(-1) for side in (target, golden))
    x, y = _wide(ours), _wide(theirs)
    if not x.size:
        return (*shapes, np.nan, None, np.nan, np.nan, np.nan, np.nan)
    with np.errstate(all="ignore"):
        same = (ours == theirs) | (np.isnan(x) & np.isnan(y))
        error = np.where(same, 0.0, np.abs(x - y))
        error[np.isnan(error)] = np.inf
        larger = np.maximum(np.abs(x), np.abs(y))
        relative = np.where(same, 0.0, error / larger)
        relative[~(same | np.isfinite(error))] = np.inf
    unequal = np.flatnonzero(~same)
    return (
        *shapes,
        100 * np.count_nonzero(same) / x.size,
        int(unequal[0]) if len(unequal) else None,
        float(error.max()),
        float(relative.max()),
        *(100 * np.count_nonzero(relative <= limit) / x.size for limit in (0.001, 0.01)),
    )


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
