"""The comparison of one pack with its partner: columns, before any verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msprobe_nb.comparison.cells import Metric
from msprobe_nb.comparison.checksums import compare_checksums
from msprobe_nb.comparison.match import Pairs, different_frameworks
from msprobe_nb.comparison.sides import Side
from msprobe_nb.comparison.statistics import compare_statistics
from msprobe_nb.comparison.status import (
    ARGUMENT,
    COMPARED,
    EMPTY,
    GATED,
    NO_DATA,
    PENDING,
    UNMATCHED,
    UNREADABLE,
)
from msprobe_nb.comparison.tensors import BlockResult
from msprobe_nb.store.index import OUTPUT, TENSOR, Values
from msprobe_nb.store.pack import CHECKSUM_MODE, TENSOR_MODE


@dataclass(slots=True)
class Part:
    """Matched rows of one pair of packs and what was measured.

    All arrays have one entry for each target row.

    Attributes
    ----------
    mode : str
        ``tensor``, ``statistics`` or ``md5``.
    target, golden : Side
    pairs : Pairs
    golden_statistics : Values, shape (n, 4)
        Shown statistics of the partners; absent rows where there is none.
    metrics : dict of str to Metric
    status : ndarray of uint8
        Codes of ``status.STATUS_TEXTS``.
    note : dict
        Row -> what a user should know, in words.
    checksums : (list of str, list of str)
        Shown check values of both sides; empty unless the mode is ``md5``.
    custom : dict of str to list
        Results of the user's algorithms: a number, a text, or None where there is none.
    """

    mode: str
    target: Side
    golden: Side
    pairs: Pairs
    golden_statistics: Values
    metrics: dict[str, Metric]
    status: np.ndarray
    note: dict[int, str] = field(default_factory=dict)
    checksums: tuple[list[str], list[str]] = ((), ())  # type: ignore[assignment]
    custom: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Step of the target."""
        return self.target.pack.step

    @property
    def rank(self) -> int:
        """Rank of the target."""
        return self.target.pack.rank

    def __len__(self) -> int:
        return len(self.target)

    @property
    def node(self) -> np.ndarray:
        """Row of each target row's call."""
        return self.target.index.node

    @property
    def is_output(self) -> np.ndarray:
        """Which rows are outputs of their call."""
        return self.target.index.role == OUTPUT

    @property
    def across_frameworks(self) -> bool:
        """Whether two frameworks made the recordings."""
        return different_frameworks(self.target, self.golden)

    @property
    def matched(self) -> np.ndarray:
        """Which rows have a golden partner."""
        return self.pairs.golden >= 0


def start_part(target: Side, golden: Side, mode: str, pairs: Pairs) -> Part:
    """Compare everything about paired rows that needs no tensor data."""
    theirs = golden.statistics.take(pairs.golden)
    status = np.where(pairs.golden >= 0, COMPARED, UNMATCHED).astype(np.uint8)
    status[pairs.gated >= 0] = GATED
    part = Part(mode, target, golden, pairs, theirs, {}, status, _notes(target, golden, pairs))
    if mode == CHECKSUM_MODE:
        part.checksums = compare_checksums(target, golden, pairs.golden)
    elif mode == TENSOR_MODE:
        part.metrics = BlockResult.empty(len(target)).metrics()
        _mark_readable(part)
    else:
        part.metrics = compare_statistics(target.statistics, theirs)
    _fail_broken_rows(part)
    return part


def _notes(target: Side, golden: Side, pairs: Pairs) -> dict[int, str]:
    notes: dict[int, str] = {}
    for row in np.flatnonzero(pairs.gated >= 0).tolist():
        partner = int(pairs.gated[row])
        notes[row] = (
            f"not compared: dtype {target.dtype[row]}, the golden row of this name has "
            f"{golden.dtype[partner]}"
        )
    for row in np.flatnonzero(pairs.repeated).tolist():
        notes.setdefault(row, "the name occurs more than once; paired in order of occurrence")
    for row in np.flatnonzero(pairs.by_place & (pairs.golden >= 0)).tolist():
        notes[row] = "fuzzy match: paired by its place among the calls, not by name"
    return notes


def _mark_readable(part: Part) -> None:
    """In tensor mode: which rows will have their data compared?"""
    index, partner = part.target.index, part.pairs.golden
    matched = np.flatnonzero(partner >= 0)
    tensors = matched[index.kind[matched] == TENSOR]
    part.status[matched] = ARGUMENT
    both = index.has_data[tensors] & part.golden.index.has_data[partner[tensors]]
    part.status[tensors] = np.where(both, PENDING, NO_DATA)
    for row in tensors[~both].tolist():
        shapes = index.shape[row], part.golden.index.shape[int(partner[row])]
        if all(shape and 0 in shape for shape in shapes):  # not always written to files
            part.status[row] = EMPTY
            part.note.setdefault(row, "both tensors are empty")
        else:
            side = "golden" if index.has_data[row] else "target"
            part.note.setdefault(row, f"the {side} has no data file for this tensor")


def _fail_broken_rows(part: Part) -> None:
    """Rows whose recording itself is faulty cannot be trusted, whatever the numbers say."""
    ours, theirs = part.target.index.problem, part.golden.index.problem
    for row, text in ours.items():
        part.status[row], part.note[row] = UNREADABLE, f"target: {text}"
    if theirs:
        partner = np.maximum(part.pairs.golden, part.pairs.gated)  # at most one of them is set
        for row in np.flatnonzero(np.isin(partner, list(theirs))).tolist():
            text = f"golden: {theirs[int(partner[row])]}"
            part.note[row] = f"{part.note[row]}; {text}" if row in ours else text
            part.status[row] = UNREADABLE


def pending_rows(part: Part) -> np.ndarray:
    """Rows whose tensor data are still to be compared."""
    return np.flatnonzero(part.status == PENDING)


def put_block(part: Part, rows: np.ndarray, block: BlockResult) -> None:
    """Enter the results of some rows."""
    for name, metric in block.metrics().items():
        part.metrics[name].number[rows] = metric.number
        part.metrics[name].mark[rows] = metric.mark
    part.status[rows] = block.status
    for name, values in block.custom.items():
        for row, value in zip(rows.tolist(), values, strict=True):
            part.custom[name][row] = value
    for at, text in block.note.items():
        row = int(rows[at])
        known = part.note.get(row)
        part.note[row] = f"{known}; {text}" if known else text
