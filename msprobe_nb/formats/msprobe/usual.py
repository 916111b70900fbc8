"""How the official tool would have nested values that it did not record itself.

Rows of other recorders, and those that an older version imported, have no description
(:mod:`.structure`), or one without forms. Their slots say where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msprobe_nb import names
from msprobe_nb.formats.msprobe.leaves import P2P
from msprobe_nb.formats.msprobe.structure import LITERAL, Structure, parse_outline
from msprobe_nb.store import jsonsafe
from msprobe_nb.store.index import (
    ABSENT,
    ARGUMENT,
    INPUT,
    NULL,
    PARAMETERS,
    STATISTICS,
    Index,
    Nodes,
)

_KEYS = {"max": "Max", "min": "Min", "mean": "Mean", "norm": "Norm"}
# Descriptions of this package, which the official format has no place for.
_OURS = frozenset(
    ("layout", "scale", "zero_point", "channel_axis", "shapes", "global_shape", "recorded_shape")
)
_BEFORE_DATA = ("device_mesh", "placements")
_MAX_GAP = 64  # arguments that a recording may have left out of a list
_NULL_ITEM = {LITERAL: None}


def usual_structure(
    index: Index, nodes: Nodes, node: int, rows: Sequence[int], data_names: Sequence[str | None]
) -> Structure:
    """The structure of a call from its rows.

    Parameters
    ----------
    index, nodes
    node : int
        The call.
    rows : sequence of int
        Its rows.
    data_names : sequence of (str or None)
        File name of every row of the index.
    """
    forms = [_form(index, row, data_names[row]) for row in rows]
    operations = {
        number: index.detail[row]
        for number, row in enumerate(rows)
        if index.detail.get(row, {}).get("class_type") == P2P
    }
    outline = parse_outline(nodes.structure[node])
    if outline is None or sorted(_leaves(outline)) != list(range(len(rows))):
        outline = _outline(index, nodes, node, rows)
    return Structure(_with_operations(outline, operations), forms)


def _form(index: Index, row: int, data_name: str | None) -> Any:
    """The keys of a value as the official tool writes them."""
    if index.kind[row] == NULL:
        return None
    detail = jsonsafe.replace(
        {k: v for k, v in index.detail.get(row, {}).items() if k not in _OURS}
    )
    if detail.get("class_type") == P2P:
        detail = {}
    name = ["data_name"] if data_name else []
    if index.kind[row] == ARGUMENT:
        value = ["value"] if row in index.value else []
        return ["type", *value, *([k, v] for k, v in detail.items()), *name]
    checksum = ["md5"] if index.checksum[row] is not None else []
    more = [[key, detail.pop(key)] for key in _BEFORE_DATA if key in detail]
    rest = [[key, value] for key, value in detail.items()]
    head = ["type", "dtype", "shape"]
    if checksum and (index.statistics.kind[row] == ABSENT).all():
        return [*head, *checksum, "requires_grad", *more, *name, *rest]
    numbers = [_KEYS[key] for key in STATISTICS]
    return [*head, *numbers, "requires_grad", *more, *name, *checksum, *rest]


def _leaves(outline: Any) -> Iterator[int]:
    """The leaf numbers of an outline."""
    if isinstance(outline, int) and not isinstance(outline, bool):
        yield outline
    elif isinstance(outline, list):
        for child in outline:
            yield from _leaves(child)
    elif isinstance(outline, dict) and set(outline) != {LITERAL}:
        for child in outline.values():
            yield from _leaves(child)


def _with_operations(outline: Any, operations: dict[int, dict[str, Any]]) -> Any:
    """An outline with the keys of point-to-point operations around their tensors."""
    if not operations:
        return outline
    if isinstance(outline, int):
        detail = operations.get(outline)
        if detail is None:
            return outline
        before = {"class_type": {LITERAL: P2P}, "tensor": outline}
        others = {k: {LITERAL: v} for k, v in detail.items() if k != "class_type"}
        return {**before, **others}
    if isinstance(outline, list):
        return [_with_operations(child, operations) for child in outline]
    if set(outline) == {LITERAL}:
        return outline
    return {key: _with_operations(child, operations) for key, child in outline.items()}


def _outline(index: Index, nodes: Nodes, node: int, rows: Sequence[int]) -> Any:
    parsed = nodes.parsed[node]
    slots = [names.slot_of(index.name[row], parsed.name) for row in rows]
    if parsed.phase == names.DEBUG:
        if slots == [""]:
            return 0
        return _nested({tuple(names.slot_path(s)): n for n, s in enumerate(slots)})
    if parsed.phase == names.PARAMETERS_GRAD:
        gradients: dict[str, Any] = {}
        for number, slot in enumerate(slots):
            gradients.setdefault(slot, []).append(number)
        return gradients
    inputs: dict[tuple[str, ...], int] = {}
    keywords: dict[tuple[str, ...], int] = {}
    outputs: dict[tuple[str, ...], int] = {}
    parameters: dict[str, int] = {}
    for number, slot in enumerate(slots):
        _, *path = names.slot_path(slot)
        role = int(index.role[rows[number]])
        if role == PARAMETERS:
            parameters[".".join(path)] = number
        elif role != INPUT:
            outputs[tuple(path)] = number
        elif path and path[0].isdigit():
            inputs[tuple(path)] = number
        else:
            keywords[tuple(path)] = number
    if parsed.phase == names.BACKWARD:
        return {"input": _listed(inputs | keywords), "output": _listed(outputs)}
    entry = {
        "input_args": _listed(inputs),
        "input_kwargs": _mapped(keywords),
        "output": _listed(outputs),
    }
    if parameters or parsed.kind == "module":
        entry["parameters"] = parameters
    if nodes.recompute[node] >= 0:
        entry["is_recompute"] = {LITERAL: bool(nodes.recompute[node])}
    return entry


def _listed(leaves: dict[tuple[str, ...], int]) -> list[Any]:
    """A section that is a list, whatever the slots are called."""
    found = _nested(leaves)
    return found if isinstance(found, list) else list(found.values()) if leaves else []


def _mapped(leaves: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """A section that is an object, whatever the slots are called."""
    found = _nested(leaves)
    if isinstance(found, list):
        return {str(at): child for at, child in enumerate(found)}
    return found


def _nested(leaves: dict[tuple[str, ...], int]) -> Any:
    """Values at their paths: lists where the keys are positions, objects elsewhere."""
    groups: dict[str, dict[tuple[str, ...], int]] = {}
    for path, number in leaves.items():
        head, *rest = path or ("",)
        groups.setdefault(head, {})[tuple(rest)] = number
    built: dict[str, Any] = {}
    for key, inner in groups.items():
        alone = inner.pop((), None)  # a value that stands where others nest keeps the key
        if alone is not None:
            built[key] = alone
        if inner and alone is None:
            built[key] = _nested(inner)
        elif inner:
            built |= {".".join((key, *path)): number for path, number in inner.items()}
    positions = {int(key): child for key, child in built.items() if _is_position(key)}
    if built and len(positions) == len(built) and max(positions) < len(positions) + _MAX_GAP:
        return [positions.get(at, _NULL_ITEM) for at in range(max(positions) + 1)]
    return built


def _is_position(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and str(int(key)) == key
