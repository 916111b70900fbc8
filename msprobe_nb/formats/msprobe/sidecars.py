"""Reading and writing ``stack.json`` and ``construct.json``, the files beside a dump file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from msprobe_nb.errors import FormatError, InvalidJSONError
from msprobe_nb.store.index import Nodes
from msprobe_nb.store.sources import Source

STACK, CONSTRUCT = "stack.json", "construct.json"


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


class Sidecar(msgspec.Struct, omit_defaults=True):
    """What one of the files was, apart from what the calls know.

    Attributes
    ----------
    form : str
        A key of `FORMS`; empty when no form gives the file back.
    text : str
        Then, the file itself.
    """

    form: str = ""
    text: str = ""


def _grouped(nodes: Nodes) -> dict[str, Any]:
    """``{"0": [[names], [frames]]}``."""
    members: list[list[str]] = [[] for _ in nodes.stacks]
    for row in np.flatnonzero(nodes.stack >= 0).tolist():
        members[nodes.stack[row]].append(nodes.name[row])
    used = [(names, nodes.stacks[at]) for at, names in enumerate(members) if names]
    return {str(at): [names, frames] for at, (names, frames) in enumerate(used)}


def _single(nodes: Nodes) -> dict[str, Any]:
    """``{name: [frames]}``."""
    rows = np.flatnonzero(nodes.stack >= 0).tolist()
    return {nodes.name[row]: nodes.stack_of(row) for row in rows}


def _in_tree(nodes: Nodes) -> list[int]:
    rows = np.flatnonzero(nodes.tree_order >= 0)
    return rows[np.argsort(nodes.tree_order[rows], kind="stable")].tolist()


def _plain(nodes: Nodes) -> dict[str, Any]:
    """``{name: parent}``."""
    return {nodes.name[row]: nodes.parent[row] for row in _in_tree(nodes)}


def _with_steps(nodes: Nodes) -> dict[str, Any]:
    """``{name: [parent, micro step]}``."""
    return {
        nodes.name[row]: [nodes.parent[row], int(nodes.micro_step[row])] for row in _in_tree(nodes)
    }


FORMS: dict[str, dict[str, Callable[[Nodes], dict[str, Any]]]] = {
    STACK: {"grouped": _grouped, "single": _single},
    CONSTRUCT: {"plain": _plain, "with_steps": _with_steps},
}


def describe_sidecar(source: Source, name: str, nodes: Nodes) -> Sidecar | None:
    """What is needed to write one of the files again; None where it does not exist."""
    if not source.exists(name):
        return None
    raw = source.read(name)
    wanted = json.loads(raw, object_pairs_hook=list)
    for form, build in FORMS[name].items():
        if [list(pair) for pair in build(nodes).items()] == [list(pair) for pair in wanted]:
            return Sidecar(form)
    return Sidecar(text=json.dumps(json.loads(raw), indent=1))


def sidecar_text(name: str, sidecar: Sidecar, nodes: Nodes) -> str:
    """The file's content."""
    if sidecar.form not in FORMS[name]:
        return sidecar.text
    return json.dumps(FORMS[name][sidecar.form](nodes), indent=1)
