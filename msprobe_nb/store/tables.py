"""The stored tables of a pack: from rows to disk, and from disk to columns.

A Zarr array costs two files, so columns share arrays: every integer fact of a tensor is a column
of ``facts``, the four statistics are columns of ``statistics``, and texts go to one columnar JSON
document, the bytes of ``records``. ``docs/format.md`` describes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from msprobe_nb import names
from msprobe_nb.store import jsonsafe
from msprobe_nb.store.index import STATISTICS, Coded, Index, Nodes, Values
from msprobe_nb.store.limits import is_possible
from msprobe_nb.store.rows import COMPONENT, NO_DATA, NodeRow, TensorRow

FACTS = (
    *("node", "role", "kind", "dtype_code", "dtype_label", "type", "requires_grad"),
    *("nan_count", "inf_count", "producer", "statistic_kind", "n_axes"),
)
NO_SHAPE = -1  # n_axes of a row without a recorded shape
_UNRECORDED = [UNSET] * len(STATISTICS)
_TEXTS = ("checksum", "data_name", "value", "detail", "problem", "recorded_shape", "exact")
_KIND_BITS = 4  # each statistic's kind code takes 4 bits of `statistic_kind`


class Sparse(msgspec.Struct):
    """A column that most rows lack."""

    row: list[int]
    value: list[Any]


class NodeColumns(msgspec.Struct):
    """The calls, as columns; ``parent``, ``stack`` and ``structure`` point into lists."""

    name: list[str]
    parent: list[int]
    stack: list[int]
    structure: list[int]
    tree_order: list[int]
    micro_step: list[int]
    recompute: list[int]
    recorded: list[bool]


class Records(msgspec.Struct):
    """The content of ``records``."""

    version: int
    nodes: NodeColumns
    parents: list[str | None]
    stacks: list[list[str]]
    structures: list[str]
    tensors: dict[str, Sparse]


class TensorTable(msgspec.Struct):
    """The index arrays of a pack.

    Attributes
    ----------
    name : list of str
    byte_offset, byte_count : ndarray of int64, shape (n,)
    statistics : ndarray of float64, shape (n, 4)
    facts : ndarray of int64, shape (n, number of columns)
        Columns ``FACTS``, then one axis length each.
    dtypes, dtype_labels, types : list of str
        What the codes in `facts` stand for.
    exact : dict
        Row -> the statistics that float64 cannot hold, of rows that were not read from disk.
    """

    name: list[str]
    byte_offset: np.ndarray
    byte_count: np.ndarray
    statistics: np.ndarray
    facts: np.ndarray
    dtypes: list[str]
    dtype_labels: list[str]
    types: list[str]
    exact: dict[int, dict[str, Any]] = {}

    def fact(self, column: str) -> np.ndarray:
        """One column of `facts`."""
        return self.facts[:, FACTS.index(column)]

    def shape(self, row: int) -> tuple[int, ...]:
        """Axis lengths of a row."""
        axes = int(self.facts[row, FACTS.index("n_axes")])
        return tuple(self.facts[row, len(FACTS) : len(FACTS) + max(0, axes)].tolist())

    def check(self) -> None:
        """Raise `ValueError` when the parts do not fit together."""
        size = len(self.name)
        for what in (self.byte_offset, self.byte_count, self.statistics, self.facts):
            if len(what) != size:
                raise ValueError(f"an index array has {len(what)} rows, expected {size}")
        if self.facts.shape[1] < len(FACTS):
            raise ValueError("'facts' has too few columns")
        if size == 0:
            return
        for column, texts in (("dtype_label", self.dtype_labels), ("type", self.types)):
            codes = self.fact(column)
            if codes.min() < 0 or codes.max() >= len(texts):
                raise ValueError(f"a code of '{column}' has no text")
        if self.fact("n_axes").max() > self.facts.shape[1] - len(FACTS):
            raise ValueError("a tensor has more axes than lengths")

    def index(self, rows: np.ndarray, texts: dict[str, Sparse]) -> Index:
        """The rows at `rows` as an index."""
        facts = self.facts[rows]

        def fact(column: str, dtype: str) -> np.ndarray:
            return facts[:, FACTS.index(column)].astype(dtype)

        place = np.full(len(self.name), -1)
        place[rows] = np.arange(len(rows))
        sparse = {key: _placed(texts.get(key), place) for key in _TEXTS}
        packed = fact("statistic_kind", "i8")
        kind = np.stack([packed >> (_KIND_BITS * at) & 15 for at in range(4)], axis=1)
        exact = {
            row * len(STATISTICS) + STATISTICS.index(key): value
            for row, values in sparse["exact"].items()
            for key, value in values.items()
        }
        has_data = self.byte_offset[rows] != NO_DATA
        for row, facts_of_row in sparse["detail"].items():
            if facts_of_row.get("layout") not in (None, "meta"):
                has_data[row] = True
        size = len(rows)
        return Index(
            name=[self.name[row] for row in rows.tolist()],
            node=fact("node", "i4"),
            role=fact("role", "u1"),
            kind=fact("kind", "u1"),
            type=Coded(fact("type", "i4"), self.types),
            dtype=Coded(fact("dtype_label", "i4"), self.dtype_labels),
            shape=_with_recorded(_shapes(facts), sparse["recorded_shape"]),
            statistics=Values(self.statistics[rows], kind.astype(np.uint8), exact),
            requires_grad=fact("requires_grad", "i1"),
            checksum=_dense(sparse["checksum"], size),
            data_name=_dense(sparse["data_name"], size),
            has_data=has_data,
            value=sparse["value"],
            detail=sparse["detail"],
            problem=sparse["problem"],
            nan_count=fact("nan_count", "i8"),
            inf_count=fact("inf_count", "i8"),
        )


def _placed(column: Sparse | None, place: np.ndarray) -> dict[int, Any]:
    """New row -> value, for the rows that are kept."""
    if column is None:
        return {}
    if len(column.row) != len(column.value):
        raise ValueError("a text column has as many rows as values")
    new = place[np.array(column.row, np.int64)].tolist()
    return {at: jsonsafe.restore(v) for at, v in zip(new, column.value, strict=True) if at >= 0}


def _dense(column: dict[int, Any], size: int) -> list[Any]:
    dense: list[Any] = [None] * size
    for row, value in column.items():
        dense[row] = value
    return dense


def _shapes(facts: np.ndarray) -> Coded:
    keys = facts[:, FACTS.index("n_axes") :]
    # Sorting one number a row is much faster than sorting rows; a clash of the numbers is found
    # and sorted out the slow way.
    with np.errstate(over="ignore"):
        digest = keys @ _multipliers(keys.shape[1])
    _, first, codes = np.unique(digest, return_index=True, return_inverse=True)
    distinct = keys[first]
    if not np.array_equal(distinct[codes], keys):
        distinct, codes = np.unique(keys, axis=0, return_inverse=True)
    values = [None if key[0] < 0 else tuple(key[1 : key[0] + 1]) for key in distinct.tolist()]
    return Coded(codes.reshape(-1).astype(np.int32), values)


def _with_recorded(shapes: Coded, recorded: dict[int, Any]) -> Coded:
    """Shapes of the data, and where the recording says something else, what it says."""
    if not recorded:
        return shapes
    column = shapes.expand().tolist()
    for row, shape in recorded.items():
        if not isinstance(shape, list) or not is_possible(shape):
            raise ValueError("a recorded shape is impossible")
        column[row] = tuple(shape)
    return Coded.of(column)


def _multipliers(count: int) -> np.ndarray:
    """Odd 64-bit numbers with well mixed bits (the golden ratio and its powers)."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    found = [pow(golden, at + 1, 2**64) & mask for at in range(count)]
    return np.array(found, np.uint64).view(np.int64)


def table_of(rows: Sequence[TensorRow], edges: Iterable[tuple[int, int]]) -> TensorTable:
    """The index arrays for rows that a writer holds or a journal gave back."""
    dtypes = Coded.of([row.storage_dtype for row in rows])
    labels = Coded.of([row.dtype for row in rows])
    types = Coded.of([row.type for row in rows])
    recorded = [_UNRECORDED if row.statistics is UNSET else row.statistics for row in rows]
    statistics = Values.table([Values.of([row[at] for row in recorded]) for at in range(4)])
    width = max((len(row.shape) for row in rows if row.shape), default=1)
    facts = np.zeros((len(rows), len(FACTS) + width), "<i8")
    for column in ("node", "role", "kind", "requires_grad", "nan_count", "inf_count"):
        facts[:, FACTS.index(column)] = [getattr(row, column) for row in rows]
    for column, coded in (("dtype_code", dtypes), ("dtype_label", labels), ("type", types)):
        facts[:, FACTS.index(column)] = coded.codes
    producer = facts[:, FACTS.index("producer")]
    producer[:] = -1
    for source, consumer in edges:
        producer[consumer] = source
    shifts = np.arange(4) * _KIND_BITS
    facts[:, FACTS.index("statistic_kind")] = (statistics.kind.astype(np.int64) << shifts).sum(1)
    for at, row in enumerate(rows):
        axes = NO_SHAPE if row.shape is None else len(row.shape)
        facts[at, FACTS.index("n_axes")] = axes
        if row.shape:
            facts[at, len(FACTS) : len(FACTS) + axes] = row.shape
    exact: dict[int, dict[str, Any]] = {}
    for flat, value in statistics.exact.items():
        exact.setdefault(flat // 4, {})[STATISTICS[flat % 4]] = value
    return TensorTable(
        name=[row.name for row in rows],
        byte_offset=np.array([row.byte_offset for row in rows], "<i8"),
        byte_count=np.array([row.byte_count for row in rows], "<i8"),
        statistics=statistics.number,
        facts=facts,
        dtypes=dtypes.values,
        dtype_labels=labels.values,
        types=types.values,
        exact=exact,
    )


def table_of_index(index: Index) -> TensorTable:
    """The index arrays of rows without data, from columns that are already there."""
    size = len(index)
    shapes = index.shape.values
    width = max((len(shape) for shape in shapes if shape), default=1)
    lengths = np.zeros((len(shapes), 1 + width), np.int64)
    for at, shape in enumerate(shapes):
        lengths[at, 0] = NO_SHAPE if shape is None else len(shape)
        lengths[at, 1 : 1 + len(shape or ())] = shape or ()
    shifts = np.arange(4) * _KIND_BITS
    facts = np.zeros((size, len(FACTS) + width), "<i8")
    columns = {
        "node": index.node,
        "role": index.role,
        "kind": index.kind,
        "dtype_label": index.dtype.codes,
        "type": index.type.codes,
        "requires_grad": index.requires_grad,
        "nan_count": -1 if index.nan_count is None else index.nan_count,
        "inf_count": -1 if index.inf_count is None else index.inf_count,
        "producer": -1,
        "statistic_kind": (index.statistics.kind.astype(np.int64) << shifts).sum(axis=1),
    }
    for name, column in columns.items():
        facts[:, FACTS.index(name)] = column
    facts[:, FACTS.index("n_axes") :] = lengths[index.shape.codes] if size else 0
    exact: dict[int, dict[str, Any]] = {}
    for flat, value in index.statistics.exact.items():
        exact.setdefault(flat // 4, {})[STATISTICS[flat % 4]] = value
    return TensorTable(
        name=index.name,
        byte_offset=np.full(size, NO_DATA, "<i8"),
        byte_count=np.zeros(size, "<i8"),
        statistics=index.statistics.number,
        facts=facts,
        dtypes=[],
        dtype_labels=index.dtype.values,
        types=index.type.values,
        exact=exact,
    )


def records_of_index(index: Index, nodes: Nodes, exact: dict[int, dict[str, Any]]) -> Records:
    """The content of ``records`` for columns that are already there."""
    columns = NodeColumns(
        name=nodes.name,
        parent=nodes.parent.codes.tolist(),
        stack=nodes.stack.tolist(),
        structure=nodes.structure.codes.tolist(),
        tree_order=nodes.tree_order.tolist(),
        micro_step=nodes.micro_step.tolist(),
        recompute=nodes.recompute.tolist(),
        recorded=nodes.recorded.tolist(),
    )
    texts = {
        "checksum": {at: value for at, value in enumerate(index.checksum) if value is not None},
        "data_name": {at: value for at, value in enumerate(index.data_name) if value},
        "value": index.value,
        "detail": index.detail,
        "problem": index.problem,
        "exact": exact,
    }
    structures = nodes.structure.values
    return Records(1, columns, nodes.parent.values, nodes.stacks, structures, _sparse(texts))


def texts_of(rows: Sequence[TensorRow], exact: dict[int, dict[str, Any]]) -> dict[str, Sparse]:
    """The text columns of rows, each with only the rows that have one."""
    held: dict[str, dict[int, Any]] = {
        "checksum": {at: r.checksum for at, r in enumerate(rows) if r.checksum is not None},
        "data_name": {at: r.data_name for at, r in enumerate(rows) if r.data_name},
        "value": {at: r.value for at, r in enumerate(rows) if r.value is not UNSET},
        "detail": {at: r.detail for at, r in enumerate(rows) if r.detail},
        "problem": {at: r.problem for at, r in enumerate(rows) if r.problem},
        "recorded_shape": {
            at: r.recorded_shape for at, r in enumerate(rows) if r.recorded_shape is not None
        },
    }
    return _sparse({**held, "exact": exact})


def _sparse(columns: dict[str, dict[int, Any]]) -> dict[str, Sparse]:
    return {
        key: Sparse(list(held), [jsonsafe.replace(value) for value in held.values()])
        for key, held in columns.items()
    }


def records_of(
    nodes: Sequence[NodeRow],
    stacks: list[list[str]],
    tensors: Sequence[TensorRow],
    exact: dict[int, dict[str, Any]],
) -> Records:
    """The content of ``records``."""
    parents = Coded.of([row.parent for row in nodes])
    structures = Coded.of([row.structure for row in nodes])
    columns = NodeColumns(
        name=[row.name for row in nodes],
        parent=parents.codes.tolist(),
        stack=[row.stack for row in nodes],
        structure=structures.codes.tolist(),
        tree_order=[row.tree_order for row in nodes],
        micro_step=[row.micro_step for row in nodes],
        recompute=[row.recompute for row in nodes],
        recorded=[row.recorded for row in nodes],
    )
    return Records(1, columns, parents.values, stacks, structures.values, texts_of(tensors, exact))


def nodes_of(records: Records) -> Nodes:
    """The calls of a pack; raises `ValueError` when columns do not fit together."""
    columns = records.nodes
    size = len(columns.name)
    if any(len(getattr(columns, field)) != size for field in columns.__struct_fields__):
        raise ValueError("the columns of the calls differ in length")
    for codes, values in (
        (columns.parent, records.parents),
        (columns.structure, records.structures),
    ):
        if size and not 0 <= min(codes) <= max(codes) < len(values):
            raise ValueError("a call points to a text that is not there")
    if size and max(columns.stack) >= len(records.stacks):
        raise ValueError("a call points to a stack that is not there")
    return Nodes(
        name=columns.name,
        parsed=[names.parse(name) for name in columns.name],
        recorded=np.array(columns.recorded, bool),
        parent=Coded(np.array(columns.parent, np.int32), list(records.parents)),
        tree_order=np.array(columns.tree_order, np.int32),
        micro_step=np.array(columns.micro_step, np.int32),
        recompute=np.array(columns.recompute, np.int8),
        stack=np.array(columns.stack, np.int32),
        stacks=records.stacks,
        structure=Coded(np.array(columns.structure, np.int32), records.structures),
    )


def is_component(table: TensorTable) -> np.ndarray:
    """Which rows are parts of compound tensors."""
    return table.fact("kind") == COMPONENT
