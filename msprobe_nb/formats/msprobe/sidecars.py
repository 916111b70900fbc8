"""Reading ``stack.json`` and ``construct.json``, the files beside a dump file."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from msprobe_nb.errors import FormatError, InvalidJSONError
from msprobe_nb.store.sources import Source

_MAX_STEP = 2**31


def _load(source: Source, name: str) -> dict[str, Any]:
    raw = source.read(name)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise InvalidJSONError(
                f"invalid JSON: {error}",
                file=source.where(name),
                remedy="Delete the file to go on without it, or restore it",
            ) from None
    if not isinstance(value, dict):
        raise FormatError("the file holds no JSON object", file=source.where(name))
    return value


def read_stacks(source: Source, name: str = "stack.json") -> tuple[dict[str, int], list[list[str]]]:
    """Node name -> row in the list of distinct stacks, and that list.

    Both forms are read: ``{"0": [[names], [frames]]}`` and the older ``{name: [frames]}``.
    A missing file gives nothing.
    """
    if not source.exists(name):
        return {}, []
    of_node: dict[str, int] = {}
    stacks: list[list[str]] = []
    seen: dict[tuple[str, ...], int] = {}
    for key, value in _load(source, name).items():
        grouped = (
            isinstance(value, list)
            and len(value) == 2
            and isinstance(value[0], list)
            and isinstance(value[1], list)
        )
        members, frames = value if grouped else ([key], value)
        if not isinstance(frames, list):
            continue
        text = tuple(str(frame) for frame in frames)
        at = seen.setdefault(text, len(stacks))
        if at == len(stacks):
            stacks.append(list(text))
        of_node.update((str(member), at) for member in members)
    return of_node, stacks


def read_construct(
    source: Source, name: str = "construct.json"
) -> dict[str, tuple[str | None, int]]:
    """Node name -> (name of its parent, micro step), in file order.

    Megatron recordings hold ``[parent, micro_step]``; plain values are micro step 0. A missing
    file gives nothing. A parent that is no name and an impossible micro step count as not recorded.
    """
    if not source.exists(name):
        return {}
    tree: dict[str, tuple[str | None, int]] = {}
    for child, value in _load(source, name).items():
        pair = isinstance(value, list) and len(value) == 2
        if not (pair or value is None or isinstance(value, str)):
            continue  # Megatron's own counters stand here too
        parent, step = value if pair else (value, 0)
        tree[child] = (
            parent if isinstance(parent, str) else None,
            step if type(step) is int and 0 <= step < _MAX_STEP else 0,
        )
    return tree
