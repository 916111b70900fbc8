"""From the entries of a dump file to the columns of an :class:`~msprobe_nb.store.index.Index`.

Leaves are gathered for a few thousand calls at a time and turned into columns together, so that
decoded JSON never piles up.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from msprobe_nb import names
from msprobe_nb.formats.msprobe.dump_json import TOO_DEEP
from msprobe_nb.formats.msprobe.leaves import Leaf, Leaves, is_possible
from msprobe_nb.formats.msprobe.structure import describe, encode_text
from msprobe_nb.store.index import ARGUMENT, NULL, TENSOR, Coded, Index, Values
from msprobe_nb.store.jsonsafe import restore

_GROUP = 64  # entries decoded at once; an unusual one makes its group be decoded one by one
_BATCH = 4096  # leaves turned into columns together
_NULL = Leaf(type="")
_FACTS = attrgetter("type", "dtype", "shape", "requires_grad")
_PLAIN = frozenset({int, float, bool})


@dataclass(slots=True)
class Flattened:
    """What :func:`flatten` returns.

    Attributes
    ----------
    index : Index
    node_names : list of NodeName
        In recorded order.
    recompute : list of int
        Per node: 1 or 0 as recorded, -1 where nothing was.
    structure : list of str
        Per node, empty unless asked for.
    skipped : list of str
        Entries whose name is not that of a call.
    left_out : list of (int, str, str)
        Position in the file, name and JSON text of these, empty unless asked for.
    """

    index: Index
    node_names: list[names.NodeName]
    recompute: list[int]
    structure: list[str]
    skipped: list[str]
    left_out: list[tuple[int, str, str]]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Decoding makes many objects and no cycles; the cycle collector would only look at them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def flatten(entries: Iterable[tuple[str, Any]], *, with_structure: bool = False) -> Flattened:
    """Turn entries into columns.

    Parameters
    ----------
    entries : iterable of (name, entry)
        Entries as JSON bytes (``msgspec.Raw``) or decoded.
    with_structure : bool
        Also record how each entry's values nest, which an export needs.
    """
    nodes: list[names.NodeName] = []
    recompute: list[int] = []
    structure: list[str] = []
    skipped: list[str] = []
    left_out: list[tuple[int, str, str]] = []
    columns = _Columns()
    rest = iter(entries)
    with _no_collection():
        while group := list(islice(rest, _GROUP)):
            parsed = [(names.parse(name), entry) for name, entry in group]
            skipped += [node.name for node, _ in parsed if not node.valid]
            valid = [(node, entry) for node, entry in parsed if node.valid]
            flags = columns.add_entries([n for n, _ in valid], [e for _, e in valid])
            recompute += [-1 if flag is None else int(flag) for flag in flags]
            nodes += [node for node, _ in valid]
            if with_structure:
                start = len(nodes) - len(valid) + len(left_out)
                left_out += [
                    (start + at, node.name, _text(entry))
                    for at, (node, entry) in enumerate(parsed)
                    if not node.valid
                ]
                structure += [describe(entry, node) for node, entry in valid]
        index = columns.finish()
    return Flattened(index, nodes, recompute, structure, skipped, left_out)


def _text(entry: Any) -> str:
    """The JSON text of an entry that is kept as it is; one that nests too deeply as null."""
    if isinstance(entry, msgspec.Raw):
        return bytes(entry).decode()
    return "null" if entry is TOO_DEEP else encode_text(entry)


class _Columns:
    """Gathers leaves and turns them into columns batch by batch."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: list[int] = []
        self.batch = Leaves()
        self.parts: list[_Part] = []
        self.value: dict[int, Any] = {}
        self.detail: dict[int, dict[str, Any]] = {}
        self.problem: dict[int, str] = {}

    def add_entries(self, nodes: list[names.NodeName], entries: list[Any]) -> list[bool | None]:
        flags, counts = self.batch.add_entries(nodes, entries)
        self.counts += counts
        if len(self.batch.full_names) >= _BATCH:
            self.convert()
        return flags

    def convert(self) -> None:
        batch, offset = self.batch, len(self.names)
        part = _Part(batch)
        self.parts.append(part)
        self.names += batch.full_names
        self.value.update((offset + at, value) for at, value in part.value.items())
        self.detail.update((offset + at, restore(extra)) for at, extra in batch.extra.items())
        self.problem.update((offset + at, text) for at, text in batch.problem.items())
        self.batch = Leaves()

    def finish(self) -> Index:
        self.convert()
        parts = self.parts
        return Index(
            name=self.names,
            node=np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts),
            role=np.concatenate([part.role for part in parts]),
            kind=np.concatenate([part.kind for part in parts]),
            type=Coded.concat([part.type for part in parts]),
            dtype=Coded.concat([part.dtype for part in parts]),
            shape=Coded.concat([part.shape for part in parts]),
            statistics=Values.concat([part.statistics for part in parts]),
            requires_grad=np.concatenate([part.requires_grad for part in parts]),
            checksum=[value for part in parts for value in part.checksum],
            data_name=[value for part in parts for value in part.data_name],
            has_data=np.concatenate([part.has_data for part in parts]),
            value=self.value,
            detail=self.detail,
            problem=self.problem,
        )


class _Part:
    """The columns of one batch of leaves."""

    def __init__(self, batch: Leaves) -> None:
        leaves = [_NULL if leaf is None else leaf for leaf in batch.leaves]
        present = np.array([leaf is not None for leaf in batch.leaves], bool)
        self.role = np.array(batch.roles, np.uint8)
        facts = Coded.of(list(map(_FACTS, leaves)))  # few combinations occur
        types, dtypes, shapes, flags = zip(*facts.values, strict=True) if facts.values else [()] * 4
        self.type = _column(facts, list(types))
        self.dtype = _column(facts, [text or "" for text in dtypes])
        self.shape = _column(facts, _valid_shapes(batch, facts, shapes))
        known = [-1 if flag is None or flag is UNSET else int(flag) for flag in flags]
        self.requires_grad = np.array(known, np.int8)[facts.codes]
        typed = np.array([bool(text) for text in dtypes], bool)[facts.codes]
        self.kind = np.where(typed, TENSOR, np.where(present, ARGUMENT, NULL)).astype(np.uint8)
        self.checksum = _optional(leaves, "md5")
        self.data_name = [name or None for name in _optional(leaves, "data_name")]
        self.has_data = np.array([name is not None for name in self.data_name], bool)
        arguments = {at: leaves[at].value for at in np.flatnonzero(self.kind == ARGUMENT).tolist()}
        self.value = {at: _restored(v) for at, v in arguments.items() if v is not UNSET}
        shown = {at: _shown(self.value.get(at)) for at in arguments}
        columns = [_statistic(leaves, key, shown) for key in ("Max", "Min", "Mean", "Norm")]
        self.statistics = Values.table(columns)


def _column(facts: Coded, values: list[Any]) -> Coded:
    """One of several facts that were factorised together."""
    distinct = Coded.of(values)
    return Coded(distinct.codes[facts.codes], distinct.values)


def _shown(value: Any) -> Any:
    """What an argument counts as in place of a statistic."""
    return str(value) if isinstance(value, (list, dict)) else value


def _optional(leaves: list[Leaf], key: str) -> list[Any]:
    """A column that most recordings lack altogether."""
    column = list(map(attrgetter(key), leaves))
    if set(map(type, column)) <= {type(UNSET)}:
        return [None] * len(column)
    return [None if value is UNSET else restore(value) for value in column]


def _restored(value: Any) -> Any:
    return value if type(value) in _PLAIN else restore(value)


def _valid_shapes(
    batch: Leaves, facts: Coded, shapes: Sequence[Any]
) -> list[tuple[int, ...] | None]:
    """The shapes of each combination of facts; an impossible one becomes a problem of its rows."""
    valid = [None if shape is UNSET or shape is None else shape for shape in shapes]
    bad = [at for at, shape in enumerate(valid) if shape and not is_possible(shape)]
    for row in np.flatnonzero(np.isin(facts.codes, bad)).tolist() if bad else ():
        shape = list(valid[facts.codes[row]])
        batch.problem.setdefault(row, f"the recorded shape {shape!s:.80} is impossible")
        batch.extra.setdefault(row, {})["shape"] = shape
    for at in bad:
        valid[at] = None
    return valid


def _statistic(leaves: list[Leaf], key: str, arguments: dict[int, Any]) -> Values:
    """One statistic of all leaves, `arguments` at their rows."""
    column = list(map(attrgetter(key), leaves))
    for at, value in arguments.items():
        column[at] = value
    kinds = set(map(type, column))
    if str in kinds:
        column = [restore(v) if type(v) is str else v for v in column]
        kinds = set(map(type, column))
    return Values.of(column, kinds)
