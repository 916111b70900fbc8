"""One side of a comparison: the rows of a pack as the official tool shows them.

Non-tensor values have a shown dtype, shape and statistics of their own (a Python type, ``[]``,
the value four times); this module holds those rules, and everything after it works on columns.
Source of the rules: behaviour of MindStudio Probe 26.2.0 (specification 02, section 2).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from msprobe_nb import names
from msprobe_nb.store.index import ABSENT, ARGUMENT, NONE, NULL, TENSOR, TEXT, Coded, Index, Values
from msprobe_nb.store.pack import Pack

NOT_AVAILABLE = "N/A"
_PEERS = (".src", ".dst", ".group_src", ".group_dst")


@dataclass
class Side:
    """The rows of a pack, ready to be matched.

    Attributes
    ----------
    pack : Pack
    names : list of str
        Shown names: the data file's name without extension where there is one.
    dtype, shape, requires_grad : Coded of str
        Shown texts; ``N/A`` where nothing was recorded.
    statistics : Values, shape (n, 4)
        Shown statistics.
    """

    pack: Pack
    names: list[str]
    dtype: Coded
    shape: Coded
    requires_grad: Coded
    statistics: Values

    @property
    def index(self) -> Index:
        """The rows as recorded."""
        return self.pack.index

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def keys(self) -> list[str]:
        """Matching keys: the shown names, with repeated backward calls counted.

        They are counted in the order in which they ran. A recomputed layer has its backward
        numbered like its second forward pass on one side and not on the other; counting makes both
        equal.
        """
        keys = list(self.names)
        renamed, nodes, index = self.renumbered, self.pack.nodes, self.index
        if renamed:
            for row in np.flatnonzero(np.isin(index.node, list(renamed))).tolist():
                at = int(index.node[row])
                keys[row] = keys[row].replace(nodes.name[at], renamed[at])
        return keys

    @cached_property
    def renumbered(self) -> dict[int, str]:
        """Backward calls whose number is not that of their turn: row of the call -> its key."""
        nodes = self.pack.nodes
        seen: dict[str, int] = {}
        renamed: dict[int, str] = {}
        if self.pack.is_debug:
            return renamed
        for at, node in enumerate(nodes.parsed):
            if node.phase == names.BACKWARD and nodes.recorded[at]:
                call = seen.get(node.stem, 0)
                seen[node.stem] = call + 1
                key = node.renumbered(call)
                if key != node.name:
                    renamed[at] = key
        return renamed

    @cached_property
    def slots(self) -> list[str]:
        """The slot part of each row's shown name, such as ``input.0``."""
        nodes = self.pack.nodes.name
        of_row = zip(self.names, self.index.name, self.index.node.tolist(), strict=True)
        return [
            names.slot_of(shown if shown.startswith(nodes[at]) else name, nodes[at])
            for shown, name, at in of_row
        ]

    @cached_property
    def checksums(self) -> list[str]:
        """Shown check values.

        The recorded one, the CRC-32 of an argument's text, ``N/A`` for nothing.
        """
        index = self.index
        found: list[str] = [str(value) if value is not None else "" for value in index.checksum]
        for row, text in enumerate(found):
            if text:
                continue
            if index.kind[row] == NULL:
                found[row] = NOT_AVAILABLE
            else:
                found[row] = _check_value(index, row, self.names[row])
        return found


def _check_value(index: Index, row: int, name: str) -> str:
    if index.kind[row] == ARGUMENT:
        if index.type[row] == "torch.ProcessGroup":
            return str(index.detail.get(row, {}).get("group_ranks"))
        if name.endswith(_PEERS):
            return str(index.value.get(row))
    return f"{zlib.crc32(str(index.value.get(row, '')).encode()):08x}"


def side_of(pack: Pack) -> Side:
    """The rows of a pack as the official tool shows them."""
    index = pack.index
    special = _special_arguments(index)
    arguments = np.flatnonzero(index.kind == ARGUMENT)
    nothing = np.flatnonzero(index.kind == NULL)
    dtype = _Shown(index.dtype, nothing)
    kinds = Coded.of([type(index.value.get(row)) for row in arguments.tolist()])
    dtype.put(arguments, kinds.map(str))
    shape = _Shown(index.shape.map(lambda s: NOT_AVAILABLE if s is None else str(list(s))), nothing)
    shape.put(arguments, Coded(np.zeros(len(arguments), np.int32), ["[]"]))
    rows = np.array(list(special), np.int64)
    dtype.put(rows, Coded.of([texts[0] for texts in special.values()]))
    shape.put(rows, Coded.of([texts[1] for texts in special.values()]))
    odd = {  # no list of lengths; shown as it was recorded
        row: str(facts["shape"])
        for row, facts in index.detail.items()
        if "shape" in facts and index.kind[row] == TENSOR
    }
    shape.put(np.array(list(odd), np.int64), Coded.of(list(odd.values())))
    grad = Coded(index.requires_grad.astype(np.int32) + 1, [NOT_AVAILABLE, "False", "True"])
    return Side(pack, _names(index), dtype.done(), shape.done(), grad, _statistics(index, special))


def _names(index: Index) -> list[str]:
    if not any(index.data_name):
        return index.name
    return [
        names.without_extension(data_name) if data_name else name
        for name, data_name in zip(index.name, index.data_name, strict=True)
    ]


class _Shown:
    """A column of few distinct texts while some of its rows are replaced."""

    def __init__(self, column: Coded, nothing: np.ndarray) -> None:
        self.codes, self.values = column.codes.copy(), list(column.values)
        self.put(nothing, Coded(np.zeros(len(nothing), np.int32), [NOT_AVAILABLE]))

    def put(self, rows: np.ndarray, texts: Coded) -> None:
        """Show other texts in some rows."""
        self.codes[rows] = texts.codes + len(self.values)
        self.values += texts.values

    def done(self) -> Coded:
        """The column, each text once."""
        distinct = Coded.of(self.values)
        return Coded(distinct.codes[self.codes], distinct.values)


def _special_arguments(index: Index) -> dict[int, tuple[str, str, Any]]:
    """Row -> shown dtype, shape and value of the arguments that have rules of their own."""
    special: dict[int, tuple[str, str, Any]] = {}
    codes = {text: code for code, text in enumerate(index.type.values)}
    by_type = {
        kind: np.flatnonzero((index.type.codes == codes[kind]) & (index.kind == ARGUMENT)).tolist()
        for kind in ("torch.Size", "slice", "ellipsis", "torch.ProcessGroup")
        if kind in codes
    }
    for row in by_type.get("torch.Size", ()):
        special[row] = "torch.Size", str(index.value.get(row)), None
    for row in by_type.get("slice", ()):
        special[row] = "slice", str(np.shape(np.array(index.value.get(row), object))), None
    for row in by_type.get("ellipsis", ()):
        special[row] = "ellipsis", "[]", index.value.get(row)
    for row in by_type.get("torch.ProcessGroup", ()):
        ranks = index.detail.get(row, {}).get("group_ranks")
        special[row] = "torch.ProcessGroup", "[]", str(ranks)
    for row, value in index.value.items():
        if row not in special and index.name[row].endswith(_PEERS):
            special[row] = index.type[row], "[]", str(value)
    return special


def _statistics(index: Index, special: dict[int, tuple[str, str, Any]]) -> Values:
    """The shown statistics: nothing recorded counts as None."""
    recorded = index.statistics
    if not special and not (recorded.kind == ABSENT).any():
        return recorded
    shown = Values(recorded.number, recorded.kind.copy(), dict(recorded.exact))
    shown.kind[shown.kind == ABSENT] = NONE
    for row, (_, _, value) in special.items():
        kind = NONE if value is None else TEXT
        shown.kind[row] = kind
        for at in range(row * 4, row * 4 + 4):
            shown.exact.pop(at, None)
            if kind == TEXT:
                shown.exact[at] = value
    if special:
        shown.number = shown.number.copy()
        shown.number[list(special)] = np.nan
    return shown
