"""Reading, preparing and comparing some pairs of tensors: the work of one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msprobe_nb.comparison import algorithms as custom
from msprobe_nb.comparison.preparation import GOLDEN, TARGET, Preparation
from msprobe_nb.comparison.tensors import BlockResult, compare_arrays
from msprobe_nb.errors import MsProbeError
from msprobe_nb.store.pack import Pack


def compare_block(
    target: Pack,
    golden: Pack,
    target_rows: Sequence[int],
    golden_rows: Sequence[int],
    preparation: Preparation | None = None,
    algorithms: Mapping[str, custom.Algorithm] | None = None,
) -> BlockResult:
    """Read and compare some pairs of two packs.

    Parameters
    ----------
    target, golden : Pack
    target_rows, golden_rows : sequence of int
        Rows of each pair.
    preparation : Preparation, optional
        What is done to the values first.
    algorithms : mapping, optional
        Further metrics.

    Returns
    -------
    BlockResult
        One row for each pair; a pair that cannot be read is a row that says why.
    """
    ours, theirs = target.read_many(target_rows), golden.read_many(golden_rows)
    notes: dict[int, str] = {}
    if preparation is not None:
        for side, pack, rows, arrays in (
            (TARGET, target, target_rows, ours),
            (GOLDEN, golden, golden_rows, theirs),
        ):
            _prepare(preparation, side, pack, rows, arrays, notes)
    result = compare_arrays(ours, theirs)
    for at, note in notes.items():
        result.add_note(at, note)
    if algorithms:
        custom.run(algorithms, ours, theirs, result)
    return result


def _prepare(
    preparation: Preparation,
    side: str,
    pack: Pack,
    rows: Sequence[int],
    arrays: list[np.ndarray | MsProbeError],
    notes: dict[int, str],
) -> None:
    """Prepare the arrays of one side in place."""
    for at, (row, array) in enumerate(zip(rows, arrays, strict=True)):
        if isinstance(array, MsProbeError):
            continue
        arrays[at], note = preparation.apply(side, pack, row, array)
        if note:
            notes[at] = f"{notes[at]}; {note}" if at in notes else note
