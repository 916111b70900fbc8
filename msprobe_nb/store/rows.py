"""One row of each table of a pack, as a writer holds it. Defaults mean "not recorded"."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from msprobe_nb.store.index import OUTPUT, TENSOR

COMPONENT = 3  # kind of a row that is part of another: the indices of a sparse tensor, say
NO_DATA = -1


class TensorRow(msgspec.Struct, omit_defaults=True, gc=False, tag="tensor", tag_field="row"):
    """One value at one slot of a call.

    Attributes
    ----------
    name, node, slot
        Full name, row of the call, and the slot part of the name.
    role, kind : int
        Codes of ``index.ROLES`` and ``index.KINDS`` (or `COMPONENT`).
    type, dtype : str
        As recorded, such as ``torch.Tensor`` and ``torch.float32``.
    shape : tuple of int, or None
        Of the data, where there are any.
    recorded_shape : tuple of int, or None
        What the recording says instead, if it differs.
    statistics : list
        max, min, mean and norm as Python values; UNSET where not recorded.
    requires_grad : int
        1, 0, or -1.
    checksum : str, float or None
    data_name : str or None
        File name in the official layout.
    value : any JSON value
        Of an argument.
    detail : dict
        Everything else.
    problem : str
        What is wrong with the row.
    nan_count, inf_count : int
        -1 where not counted.
    byte_offset, byte_count, storage_dtype
        Where the bytes are in the blob and what they are; offset -1 without data.
    digest : str
        Hash of the bytes where this row brought them; kept in the journal only.
    """

    name: str
    node: int
    slot: str
    role: int = OUTPUT
    kind: int = TENSOR
    type: str = "torch.Tensor"
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    recorded_shape: tuple[int, ...] | None = None
    statistics: list[Any] | UnsetType = UNSET
    requires_grad: int = -1
    checksum: Any = None
    data_name: str | None = None
    value: Any = UNSET
    detail: dict[str, Any] | None = None
    problem: str = ""
    nan_count: int = -1
    inf_count: int = -1
    byte_offset: int = NO_DATA
    byte_count: int = 0
    storage_dtype: str = ""
    digest: str = ""


class NodeRow(msgspec.Struct, omit_defaults=True, gc=False, tag="node", tag_field="row"):
    """One call.

    Attributes
    ----------
    name : str
    stack : int
        Row in the table of stacks, -1 without one.
    parent : str or None
        Name of the enclosing call.
    tree_order : int
        Position in the module tree, -1 when not in it.
    micro_step : int
    recompute : int
        1, 0, or -1 where not recorded.
    recorded : bool
        False for a call that is only known from the module tree.
    structure : str
        How its values nest, for an export.
    """

    name: str
    stack: int = -1
    parent: str | None = None
    tree_order: int = -1
    micro_step: int = 0
    recompute: int = -1
    recorded: bool = True
    structure: str = ""


class StackRow(msgspec.Struct, gc=False, tag="stack", tag_field="row"):
    """One distinct call stack, innermost frame first."""

    frames: list[str]


class EdgeRow(msgspec.Struct, gc=False, tag="edge", tag_field="row"):
    """Row `consumer` read the values that row `producer` made."""

    producer: int
    consumer: int


class HeadRow(msgspec.Struct, tag="pack", tag_field="row"):
    """The first line of a journal."""

    version: int
    attributes: dict[str, Any]


Row = TensorRow | NodeRow | StackRow | EdgeRow | HeadRow
