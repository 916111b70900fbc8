"""How the values of an entry nest, apart from the values.

An export needs it to write the entry back exactly.

A description is JSON in which every leaf is replaced by its number in official row order, so
that calls of one kind share one description::

    {"input_args": [0, [1, 2]], "input_kwargs": {"alpha": 3}, "output": [4]}

Everything that is no leaf and no container, and keys outside the value sections such as
``is_recompute``, is kept literally as ``{"=": value}``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from msprobe_nb import names
from msprobe_nb.formats.msprobe.dump_json import TOO_DEEP, decode_entry
from msprobe_nb.formats.msprobe.leaves import SECTIONS, is_leaf
from msprobe_nb.store.jsonsafe import encode

LITERAL = "="


class _Numbering:
    """Hands out leaf numbers; sections are outlined in official row order."""

    def __init__(self) -> None:
        self.count = 0

    def outline(self, value: Any) -> Any:
        if value is None or is_leaf(value):
            self.count += 1
            return self.count - 1
        if isinstance(value, dict):
            return {key: self.outline(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self.outline(child) for child in value]
        return {LITERAL: value}


def describe(entry: Any, node: names.NodeName) -> str:
    """The description of an entry as JSON text; empty for one that nests too deeply."""
    if isinstance(entry, msgspec.Raw):
        entry = decode_entry(entry, node.name)
    if entry is TOO_DEEP:
        return ""
    numbering = _Numbering()
    if node.phase in (names.DEBUG, names.PARAMETERS_GRAD) or not isinstance(entry, dict):
        outline = numbering.outline(entry)
    else:
        known = {section for section, _, _ in SECTIONS}
        parts = {s: numbering.outline(entry[s]) for s, _, _ in SECTIONS if s in entry}
        outline = {
            key: parts[key] if key in known else {LITERAL: value} for key, value in entry.items()
        }
    return encode(outline).decode()


def rebuild(description: str, leaves: list[Any]) -> Any:
    """The entry again, with ``leaves[i]`` at leaf number i.

    Parameters
    ----------
    description : str
        From :func:`describe`.
    leaves : list
        The encoded values in official row order.
    """

    def place(outline: Any) -> Any:
        if isinstance(outline, bool):
            return outline
        if isinstance(outline, int):
            return leaves[outline]
        if isinstance(outline, list):
            return [place(child) for child in outline]
        if set(outline) == {LITERAL}:
            return outline[LITERAL]
        return {key: place(child) for key, child in outline.items()}

    return place(msgspec.json.decode(description))
