"""The rows of one pack as columns.

A *pack* is what one rank recorded in one step. Its index has one row for every value at a slot
of a node (a tensor, an argument that is no tensor, or nothing), in the order inputs, parameters,
outputs, parameter gradients of each node. Everything that looks at a run, our store and the
official folders alike, works on these columns; rows are never objects.

Statistics keep what the recording said, not only a number: the official tool writes integers
for integer tensors, booleans for boolean ones, and nothing where it has no rule. A float64
array holds the numbers and a code array says what stood there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import msgspec
import numpy as np

from msprobe_nb import names

STATISTICS = ("max", "min", "mean", "norm")
ROLES = ("input", "parameters", "output", "parameters_grad", "debug")
INPUT, PARAMETERS, OUTPUT, PARAMETERS_GRAD, DEBUG = range(5)
KINDS = ("tensor", "argument", "null")
TENSOR, ARGUMENT, NULL = range(3)

# What stood at a statistic. The order is part of the store format (docs/format.md).
ABSENT, NONE, FLOAT, INT, BOOL, TEXT = range(6)
VALUE_KINDS = ("absent", "none", "float", "int", "bool", "text")
_CODE_OF_TYPE = {
    msgspec.UnsetType: ABSENT,
    type(None): NONE,
    float: FLOAT,
    int: INT,
    bool: BOOL,
}
EXACT_INTEGER = 2**53  # beyond it a float64 cannot hold every integer


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of few distinct values: ``values[codes[i]]`` is row i's value.

    Attributes
    ----------
    codes : ndarray of int32, shape (n,)
    values : list
        Distinct, hashable.
    """

    codes: np.ndarray
    values: list[Any]

    @classmethod
    def of(cls, column: list[Any]) -> Coded:
        """Factorise a column, values in order of first appearance."""
        values = list(dict.fromkeys(column))
        code_of = dict(zip(values, range(len(values)), strict=True))
        codes = np.fromiter(map(code_of.__getitem__, column), np.int32, len(column))
        return cls(codes, values)

    @classmethod
    def concat(cls, parts: Sequence[Coded]) -> Coded:
        """One column out of several."""
        if len(parts) == 1:
            return parts[0]
        seen: dict[Any, int] = {}
        codes = []
        for part in parts:
            lookup = np.array(
                [seen.setdefault(value, len(seen)) for value in part.values], np.int32
            )
            codes.append(lookup[part.codes] if len(part.codes) else part.codes)
        return cls(np.concatenate(codes) if codes else np.empty(0, np.int32), list(seen))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Any:
        return self.values[self.codes[row]]

    def take(self, rows: np.ndarray) -> Coded:
        """The column at `rows`."""
        return Coded(self.codes[rows], self.values)

    def map(self, function: Any) -> Coded:
        """`function` applied to each distinct value once."""
        return Coded(self.codes, [function(value) for value in self.values])

    def expand(self) -> np.ndarray:
        """The column as an object array."""
        table = np.empty(len(self.values), object)
        table[:] = self.values
        return table[self.codes]


@dataclass(slots=True)
class Values:
    """A column or table of numbers that remembers what was recorded.

    Attributes
    ----------
    number : ndarray of float64
        The value as a number; NaN where there is none.
    kind : ndarray of uint8, same shape
        Code of what was recorded, see ``VALUE_KINDS``.
    exact : dict
        Flat position -> Python value, for text and for integers beyond 2**53.
    """

    number: np.ndarray
    kind: np.ndarray
    exact: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, column: list[Any], types: set[type] | None = None) -> Values:
        """Encode one column of Python values; `types` are the types in it, if known."""
        size = len(column)
        if (set(map(type, column)) if types is None else types) <= {float}:
            return cls(np.array(column, np.float64), np.full(size, FLOAT, np.uint8))
        code = _CODE_OF_TYPE.get
        kind = np.fromiter(map(code, map(type, column), repeat(TEXT)), np.uint8, size)
        exact: dict[int, Any] = {}
        numeric = (kind == FLOAT) | (kind == INT) | (kind == BOOL)
        number = np.full(size, np.nan)
        if INT in kind:
            for row in np.flatnonzero(kind == INT).tolist():
                if not -EXACT_INTEGER <= column[row] <= EXACT_INTEGER:
                    exact[row] = column[row]
        try:
            number[numeric] = [column[row] for row in np.flatnonzero(numeric).tolist()]
        except OverflowError:  # an integer beyond float64
            number[numeric] = [_to_float(column[row]) for row in np.flatnonzero(numeric).tolist()]
        for row in np.flatnonzero(kind == TEXT).tolist():
            exact[row] = column[row]
        return cls(number, kind, exact)

    @classmethod
    def table(cls, columns: Sequence[Values]) -> Values:
        """Side by side: shape (n, number of columns)."""
        width = len(columns)
        exact = {
            row * width + at: value
            for at, column in enumerate(columns)
            for row, value in column.exact.items()
        }
        return cls(
            np.stack([column.number for column in columns], axis=1),
            np.stack([column.kind for column in columns], axis=1),
            exact,
        )

    @classmethod
    def concat(cls, parts: Sequence[Values]) -> Values:
        """One below the other."""
        if len(parts) == 1:
            return parts[0]
        exact: dict[int, Any] = {}
        offset = 0
        for part in parts:
            exact.update((offset + at, value) for at, value in part.exact.items())
            offset += part.number.size
        return cls(
            np.concatenate([part.number for part in parts]),
            np.concatenate([part.kind for part in parts]),
            exact,
        )

    def take(self, rows: np.ndarray) -> Values:
        """The rows at `rows`; -1 gives an absent row."""
        if np.array_equal(rows, np.arange(len(self.number))):
            return self
        missing = rows < 0
        if missing.all():
            shape = (len(rows), *self.number.shape[1:])
            return Values(np.full(shape, np.nan), np.full(shape, ABSENT, np.uint8))
        number, kind = self.number[rows], self.kind[rows]
        number[missing], kind[missing] = np.nan, ABSENT
        exact: dict[int, Any] = {}
        if self.exact:
            width = self.number.shape[1] if self.number.ndim == 2 else 1
            places: dict[int, list[int]] = {}
            wanted = {at // width for at in self.exact}
            for new, old in enumerate(rows.tolist()):
                if old in wanted:
                    places.setdefault(old, []).append(new)
            for at, value in self.exact.items():
                for new in places.get(at // width, ()):
                    exact[new * width + at % width] = value
        return Values(number, kind, exact)

    def python(self) -> np.ndarray:
        """All entries as Python values.

        An object array of the same shape: float, int, bool, text, None, and UNSET where nothing
        was recorded.
        """
        out = self.number.astype(object)
        integer = (self.kind == INT) & np.isfinite(self.number)
        out[integer] = [int(value) for value in self.number[integer].tolist()]
        boolean = self.kind == BOOL
        out[boolean] = self.number[boolean].astype(bool).astype(object)
        out[self.kind == NONE] = None
        out[self.kind == ABSENT] = msgspec.UNSET
        flat = out.reshape(-1)
        for at, value in self.exact.items():
            flat[at] = value
        return out

    def item(self, *at: int) -> Any:
        """The Python value that was recorded; None also where nothing was."""
        flat = int(np.ravel_multi_index(at, self.number.shape))
        if flat in self.exact:
            return self.exact[flat]
        return python_value(float(self.number[at]), int(self.kind[at]))


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def python_value(number: float, kind: int) -> Any:
    """A number and its kind code back to the Python value."""
    if kind == FLOAT:
        return number
    if kind == INT:
        return int(number)
    if kind == BOOL:
        return bool(number)
    return None


@dataclass(slots=True)
class Index:
    """All rows of one pack.

    Attributes
    ----------
    name : list of str
        Full name, ``<node>.<slot>``.
    node : ndarray of int32
        Row of the node in `Nodes`.
    role, kind : ndarray of uint8
        Codes into ``ROLES`` and ``KINDS``.
    type : Coded of str
        Recorded type, such as ``torch.Tensor`` or ``int``.
    dtype : Coded of str
        Recorded data type, such as ``torch.float32``; empty for arguments.
    shape : Coded of tuple of int, or None
        None where no valid shape was recorded.
    statistics : Values, shape (n, 4)
        max, min, mean, norm (L2).
    requires_grad : ndarray of int8
        1, 0, or -1 where it was not recorded.
    checksum : list
        CRC-32 or XOR text; the float itself for the XOR of a scalar; None if absent.
    data_name : list of (str or None)
        File name of the tensor's data in the official layout.
    has_data : ndarray of bool
        Whether the tensor's values were recorded (the file may still be missing).
    value : dict
        Row -> the argument's Python value.
    detail : dict
        Row -> everything else that was recorded (placements, group, layout ...).
    problem : dict
        Row -> what is wrong with the row, found while reading it.
    nan_count, inf_count : ndarray of int64, or None
        Number of NaN and infinite elements; -1 where not counted.
    """

    name: list[str]
    node: np.ndarray
    role: np.ndarray
    kind: np.ndarray
    type: Coded
    dtype: Coded
    shape: Coded
    statistics: Values
    requires_grad: np.ndarray
    checksum: list[Any]
    data_name: list[str | None]
    has_data: np.ndarray
    value: dict[int, Any] = field(default_factory=dict)
    detail: dict[int, dict[str, Any]] = field(default_factory=dict)
    problem: dict[int, str] = field(default_factory=dict)
    nan_count: np.ndarray | None = None
    inf_count: np.ndarray | None = None
    _row_of: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.name)

    @property
    def row_of(self) -> dict[str, int]:
        """Name -> row, official file names (without extension) included.

        The first row of a repeated name wins.
        """
        if self._row_of is None:
            rows: dict[str, int] = {}
            for row, data_name in enumerate(self.data_name):
                if data_name:
                    rows.setdefault(names.without_extension(data_name), row)
            rows.update(zip(reversed(self.name), range(len(self.name) - 1, -1, -1), strict=True))
            self._row_of = rows
        return self._row_of


@dataclass(slots=True)
class Nodes:
    """The calls of one pack.

    Those with values come first, in recorded order, then those that are only known from the module
    tree.

    Attributes
    ----------
    name : list of str
    parsed : list of NodeName
    recorded : ndarray of bool
        Whether the node has an entry of its own (else it appears only in the module tree).
    parent : Coded of (str or None)
        Name of the enclosing node.
    tree_order : ndarray of int32
        Position in the recorded module tree (``construct.json``), -1 when not in it.
    micro_step : ndarray of int32
    recompute : ndarray of int8
        1 for the second pass of activation checkpointing, 0 for a first pass, -1 unknown.
    stack : ndarray of int32
        Row in `stacks`, -1 without a stack.
    stacks : list of list of str
        Distinct call stacks, innermost frame first.
    structure : Coded of str
        JSON of how the node's values nest (see ``formats.msprobe.structure``), empty if unknown.
    """

    name: list[str]
    parsed: list[names.NodeName]
    recorded: np.ndarray
    parent: Coded
    tree_order: np.ndarray
    micro_step: np.ndarray
    recompute: np.ndarray
    stack: np.ndarray
    stacks: list[list[str]]
    structure: Coded

    @classmethod
    def listed(
        cls,
        name: Sequence[str],
        parsed: Sequence[names.NodeName],
        micro_step: Sequence[int] | None = None,
    ) -> Nodes:
        """Recorded calls without a module tree, stacks or structure.

        Parameters
        ----------
        name, parsed : sequence, n entries each
        micro_step : sequence of int, optional
            0 for all if not given.
        """
        count = len(name)
        return cls(
            name=list(name),
            parsed=list(parsed),
            recorded=np.ones(count, bool),
            parent=Coded.of([None] * count),
            tree_order=np.full(count, -1, np.int32),
            micro_step=np.array([0] * count if micro_step is None else micro_step, np.int32),
            recompute=np.full(count, -1, np.int8),
            stack=np.full(count, -1, np.int32),
            stacks=[],
            structure=Coded.of([""] * count),
        )

    def __len__(self) -> int:
        return len(self.name)

    def stack_of(self, node: int) -> list[str]:
        """The call stack of a node, innermost frame first; empty when unknown."""
        at = int(self.stack[node])
        return self.stacks[at] if at >= 0 else []
