"""Comparing two runs: pairing their packs, and driving the work.

Names, dtypes, shapes and statistics are compared a pack at a time. Tensor data are compared in
blocks of pairs; the same block function runs in threads. An interrupt keeps what is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from msprobe_nb.comparison.algorithms import Algorithm, checked
from msprobe_nb.comparison.blocks import compare_block
from msprobe_nb.comparison.match import match
from msprobe_nb.comparison.pairing import Pairing
from msprobe_nb.comparison.part import Part, pending_rows, put_block, start_part
from msprobe_nb.comparison.preparation import VALID_ROWS, Preparation, Products, ValidRows
from msprobe_nb.comparison.result import EVIDENCE, RULES, Comparison
from msprobe_nb.comparison.sides import side_of
from msprobe_nb.comparison.tensors import BlockResult
from msprobe_nb.comparison.yaml_file import Mapping as Table
from msprobe_nb.errors import (
    CompareError,
    FrameworkMismatchError,
    MsProbeError,
    NoCommonRankError,
    TaskMismatchError,
    UsageError,
)
from msprobe_nb.formats import open_run
from msprobe_nb.progress import track
from msprobe_nb.store import Pack, Run
from msprobe_nb.store.pack import CHECKSUM_MODE, STATISTICS_MODE, STRUCTURE_MODE, TENSOR_MODE
from msprobe_nb.text import brief, plural

_BLOCK_PAIRS = 500
_BLOCK_BYTES = 32 << 20
_FRAMEWORKS = ("pytorch", "mindspore", "mindtorch")


def compare(
    target: str | os.PathLike[str] | Run,
    golden: str | os.PathLike[str] | Run,
    *,
    rules: str = "msprobe",
    steps: int | Sequence[int] | None = None,
    ranks: int | Sequence[int] | None = None,
    fuzzy: bool = False,
    data_mapping: Table | None = None,
    cell_mapping: Table | bool | None = None,
    api_mapping: Table | bool | None = None,
    layer_mapping: Table | bool | None = None,
    noise: str | os.PathLike[str] | Run | None = None,
    config: Table | None = None,
    algorithms: Mapping[str, Algorithm] | None = None,
    valid_rows: ValidRows | None = None,
    progress: bool = True,
) -> Comparison:
    """Compare a target run with a golden run.

    Parameters
    ----------
    target, golden : Run, path or URL
        The run under suspicion and the reference; both of one task.
    rules : str
        ``msprobe``: the verdict rules of the official tool. ``evidence``: calls are aligned, and
        a call is marked when what it makes differs while what it was given does not; see
        ``docs/evidence.md``.
    steps, ranks : int or sequence of int, optional
        Only these.
    fuzzy : bool
        Pair calls by their place in the sequence; call numbers and class names may differ.
    data_mapping : path or dict, optional
        ``{target name: golden name}`` of rows that belong together whatever their names.
    cell_mapping : True, path or dict, optional
        True: ``Cell`` is ``Module``. A table also renames ``path.Class`` or parts of it.
    api_mapping : True, path, list or dict, optional
        True: MindSpore API names are rewritten to those of PyTorch. Entries of a user
        (``ms_api``, ``pt_api``, ``ms_args`` ...) go before the built-in table.
    layer_mapping : True, path or dict, optional
        Pair calls by their place in the module tree; a table ``{class: {path: path}}`` renames.
    config : path or dict, optional
        Matrices to multiply tensors by before they are compared.
    algorithms : mapping of str to callable, optional
        Column name -> function of two arrays that gives a number or a text.
    valid_rows : mapping, optional
        Part of an API's name -> keyword argument whose sum is the number of output rows that
        count, or a function of the recorded keyword arguments. Adds to what is built in
        (``npu_grouped_matmul``, ``npu_dequant_swiglu_quant``).
    noise : Run, path or URL, optional
        A second golden run; with ``evidence``, what differs between the two golden runs is noise.
    progress : bool
        Show a progress bar.

    Tables are YAML files or what such a file would hold; between frameworks they are written from
    MindSpore to PyTorch names and serve both ways round.

    Returns
    -------
    Comparison
        Also after an interrupt, with what was done until then (``complete`` is False).

    Raises
    ------
    TaskMismatchError, FrameworkMismatchError, NoCommonRankError
        The runs cannot be compared.
    UsageError
        Unknown rules, `noise` without ``evidence``, or options that exclude each other.
    PathNotFoundError, FormatError
        A run or a table that cannot be read.
    """
    if noise is not None and rules != EVIDENCE:
        raise UsageError("noise is used by the evidence rules only", remedy="Add rules='evidence'")
    if rules not in RULES:
        raise UsageError(f"unknown rules {rules!r}", remedy=f"Choose one of {', '.join(RULES)}")
    options = _Options(
        Pairing.of(
            fuzzy,
            data_mapping,
            cell_mapping,
            api_mapping,
            layer_mapping,
            in_order=rules == EVIDENCE,
        ),
        Products.of(config),
        checked(algorithms),
        {**VALID_ROWS, **(valid_rows or {})},
        progress,
    )
    ours, theirs = open_run(target), open_run(golden)
    pairs, notes = pair_packs(ours, theirs, _as_list(steps), _as_list(ranks))
    result = Comparison(ours.url, theirs.url, [], rules=rules, notes=notes + options.products.notes)
    result.paired_by = options.pairing.describe()
    _compare_all(result, pairs, options)
    if not result.parts and result.complete and result.failures:
        raise result.failures[0]
    if noise is not None and result.complete:
        result.noise = compare(
            noise, theirs, rules=rules, steps=steps, ranks=ranks, progress=progress
        )
        result.complete = result.noise.complete
    return result


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments of :func:`compare` that every pair of packs needs."""

    pairing: Pairing
    products: Products
    algorithms: dict[str, Algorithm]
    valid_rows: ValidRows
    progress: bool


def _as_list(values: int | Sequence[int] | None) -> list[int] | None:
    if values is None:
        return None
    return [int(values)] if isinstance(values, (int, np.integer)) else list(values)


# ---------------------------------------------------------------- pairing


def pair_packs(
    target: Run, golden: Run, steps: Sequence[int] | None, ranks: Sequence[int] | None
) -> tuple[list[tuple[Pack, Pack]], list[str]]:
    """Packs of equal step and rank, and what was left out.

    A path to one step or one rank folder names it, so its number does not have to agree with the
    other side's.
    """
    free_step = target.depth != "root" and golden.depth != "root"
    free_rank = target.depth == golden.depth == "pack"
    theirs = {_place(pack, free_step, free_rank): pack for pack in golden}
    pairs: list[tuple[Pack, Pack]] = []
    alone: list[Pack] = []
    for pack in target:
        if _unwanted(pack, steps, ranks):
            theirs.pop(_place(pack, free_step, free_rank), None)
            continue
        partner = theirs.pop(_place(pack, free_step, free_rank), None)
        if partner is None:
            alone.append(pack)
        else:
            pairs.append((pack, partner))
    left = [pack for pack in theirs.values() if not _unwanted(pack, steps, ranks)]
    if not pairs:
        chosen = [
            f"{what} {brief(sorted(numbers))}"
            for what, numbers in (("steps", steps), ("ranks", ranks))
            if numbers is not None
        ]
        among = f" among the chosen {' and '.join(chosen)}" if chosen else ""
        raise NoCommonRankError(
            f"no step and rank is in both runs{among}: the target has steps {brief(target.steps)} "
            f"and ranks {brief(target.ranks)}, the golden steps {brief(golden.steps)} and ranks "
            f"{brief(golden.ranks)}",
            file=target.url,
            remedy="Choose steps and ranks that both have"
            if chosen
            else "Point both paths to one rank folder each to compare them whatever their numbers",
        )
    notes = [
        f"{plural(len(packs), 'recording')} only in the {side}: {_listed(packs)}"
        for side, packs in (("target", alone), ("golden", left))
        if packs
    ]
    return pairs, notes


def _place(pack: Pack, free_step: bool, free_rank: bool) -> tuple[int, int]:
    return (0 if free_step else pack.step, 0 if free_rank else pack.rank)


def _unwanted(pack: Pack, steps: Sequence[int] | None, ranks: Sequence[int] | None) -> bool:
    return (steps is not None and pack.step not in steps) or (
        ranks is not None and pack.rank not in ranks
    )


def _listed(packs: Sequence[Pack]) -> str:
    shown = [f"step {pack.step} rank {pack.rank}" for pack in packs[:4]]
    return ", ".join(shown) + (" ..." if len(packs) > 4 else "")


# ---------------------------------------------------------------- one pair of packs


_STAGES = 3  # of a pair of packs: reading either side, comparing


def _compare_all(result: Comparison, pairs: list[tuple[Pack, Pack]], options: _Options) -> None:
    """Compare all pairs; an interrupt keeps what is done."""
    several = len(pairs) > 1
    with track(_STAGES * len(pairs), "compare", "stage", show=options.progress) as bar:
        try:
            for pair in pairs:
                for pack in pair:
                    with suppress(MsProbeError):  # it is raised again where it belongs
                        len(pack.index)
                    bar.update(1)
                _compare_packs(result, *pair, several, options)
                bar.update(1)
        except KeyboardInterrupt:
            result.complete = False
            result.unfinished = len(pairs) - len(result.parts) - len(result.failures)


def _compare_packs(
    result: Comparison, target: Pack, golden: Pack, several: bool, options: _Options
) -> None:
    """Compare one pair of packs and add it to the result.

    Among several pairs, one that fails becomes a note.
    """
    try:
        mode = common_mode(target, golden, result.notes)
        sides = side_of(target), side_of(golden)
        pairs = match(*sides, options.pairing)
        part = start_part(*sides, mode, pairs)
    except MsProbeError as error:
        if not several:
            raise
        result.failures.append(error)
        result.notes.append(f"step {target.step} rank {target.rank} was not compared: {error}")
        return
    for pack in (target, golden):
        result.notes += [note for note in pack.notes if note not in result.notes]
    result.notes += [note for note in pairs.notes if note not in result.notes]
    result.parts.append(part)
    if mode == TENSOR_MODE:
        _compare_data(part, options)


def common_mode(target: Pack, golden: Pack, notes: list[str]) -> str:
    """The mode in which two packs can be compared.

    Raises
    ------
    TaskMismatchError, FrameworkMismatchError, CompareError
        They cannot.
    """
    _check_frameworks(target, golden, notes)
    for side, pack in (("target", target), ("golden", golden)):
        if pack.info.task is None:
            raise TaskMismatchError(
                f"the {side} does not say which task recorded it",
                file=pack.where,
                key="task",
                remedy='Add "task": "statistics" or "tensor" to the file',
            )
    tasks = target.info.task, golden.info.task
    if tasks[0] != tasks[1]:
        raise TaskMismatchError(
            f"the target was recorded with task {tasks[0]!r}, the golden with {tasks[1]!r}",
            file=target.where,
            remedy="Record both with the same task",
        )
    if tasks[0] == STRUCTURE_MODE:
        return STRUCTURE_MODE
    if tasks[0] not in (STATISTICS_MODE, TENSOR_MODE):
        raise TaskMismatchError(
            f"recordings of task {tasks[0]!r} hold nothing to compare",
            file=target.where,
            key="task",
            remedy="Record with task 'statistics' or 'tensor'",
        )
    if target.is_debug != golden.is_debug and len(target.index) and len(golden.index):
        raise CompareError(
            "one side was saved by hand (debug.json), the other recorded by hooks (dump.json)",
            file=target.where,
            remedy="Compare recordings of the same kind",
        )
    modes = target.mode, golden.mode
    if len(target.index) and len(golden.index) and modes[0] != modes[1]:
        raise TaskMismatchError(
            "check values (summary mode md5 or xor) were recorded on one side only",
            file=target.where,
            remedy="Record both with the same summary_mode",
        )
    return CHECKSUM_MODE if CHECKSUM_MODE in modes else modes[0]


def _check_frameworks(target: Pack, golden: Pack, notes: list[str]) -> None:
    found = []
    for pack in (target, golden):
        if pack.info.framework is None:
            note = f"{pack.where}: no framework recorded, taken as pytorch"
            if note not in notes:
                notes.append(note)
        found.append(pack.info.framework or "pytorch")
    for side, name, pack in zip(("target", "golden"), found, (target, golden), strict=True):
        if name not in _FRAMEWORKS:
            raise FrameworkMismatchError(
                f"a {name!r} {side} cannot be compared",
                file=pack.where,
                key="framework",
                remedy=f"Supported frameworks are {', '.join(_FRAMEWORKS)}",
            )


# ---------------------------------------------------------------- tensor data


def _compare_data(part: Part, options: _Options) -> None:
    """Compare the tensor data of a part, block by block in threads."""
    rows = pending_rows(part)
    packs = part.target.pack, part.golden.pack
    preparation = Preparation.of(*packs, options.products, options.valid_rows)
    part.custom = {name: [None] * len(part) for name in options.algorithms}

    def work(rows: Sequence[int], partners: Sequence[int]) -> BlockResult:
        return compare_block(*packs, rows, partners, preparation, options.algorithms)

    with track(len(rows), "tensors", "pair", show=options.progress) as bar:
        for done, block in _run_blocks(part, rows, work):
            put_block(part, done, block)
            bar.update(len(done))


_Work = Callable[[Sequence[int], Sequence[int]], BlockResult]


def _run_blocks(
    part: Part, rows: np.ndarray, work: _Work
) -> Iterator[tuple[np.ndarray, BlockResult]]:
    blocks = list(_blocks(part, rows))
    lists = [(block.tolist(), part.pairs.golden[block].tolist()) for block in blocks]
    if len(blocks) < 2:
        for block, pair in zip(blocks, lists, strict=True):
            yield block, work(*pair)
        return
    with ThreadPoolExecutor(min(len(blocks), os.cpu_count() or 1, 8)) as pool:
        futures = {
            pool.submit(work, *pair): block for block, pair in zip(blocks, lists, strict=True)
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _blocks(part: Part, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Rows cut into blocks of at most 500 pairs or about 32 MB a side."""
    shapes = part.target.index.shape
    sizes = [4 * int(np.prod(shape or (1,), dtype=object)) for shape in shapes.values]
    start, size = 0, 0
    for at, row in enumerate(rows.tolist()):
        size += sizes[shapes.codes[row]]
        if at + 1 - start >= _BLOCK_PAIRS or size >= _BLOCK_BYTES:
            yield rows[start : at + 1]
            start, size = at + 1, 0
    if start < len(rows):
        yield rows[start:]
