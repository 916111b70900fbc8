"""Reading ``stack.json`` and ``construct.json``, the files beside a dump file."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from msprobe_nb.errors import FormatError, InvalidJSONError
from msprobe_nb.store.sources import Source


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
    file gives nothing.
    """
    if not source.exists(name):
        return {}
    tree: dict[str, tuple[str | None, int]] = {}
    for child, value in _load(source, name).items():
        if isinstance(value, list) and len(value) == 2:
            parent, step = value
            tree[child] = (parent, step if isinstance(step, int) else 0)
        elif value is None or isinstance(value, str):
            tree[child] = (value, 0)
    return tree
