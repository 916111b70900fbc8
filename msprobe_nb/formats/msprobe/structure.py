"""How the values of an entry nest and which keys they have, apart from the values.

An export needs it to write the entry back exactly. A description is text of two lines, so that
calls of one kind share one description::

    {"input_args": [0, [1, 2]], "input_kwargs": {"alpha": 3}, "output": [4]}
    [[0, 0, 1, 2, 0], [["type", "dtype", "shape"], null, ["type", "value"]]]

The first is the *outline*: the entry with every leaf replaced by its number in official row
order. What is neither a leaf nor a container, and keys outside the value sections such as
``is_recompute``, is kept literally as ``{"=": value}``. (A container whose only key consists of
``=`` gets one more of them.)

The second has one code for each leaf and the *forms* these stand for: the keys of a leaf in
their order. A key alone means that the value is in the columns of the index; ``[key, value]``
holds a value that no column can give back; ``null`` is a null, ``{"=": value}`` a leaf that is
kept whole. Descriptions without a second line are older: their leaves have the official keys.

Values inside a description are in the form of :mod:`msprobe_nb.store.jsonsafe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from msprobe_nb import names
from msprobe_nb.formats.msprobe.dump_json import TOO_DEEP
from msprobe_nb.formats.msprobe.leaves import P2P, SECTIONS, is_leaf, is_possible
from msprobe_nb.store import layout

LITERAL = "="
_SECTIONS = frozenset(section for section, _, _ in SECTIONS)
_STATISTICS = frozenset(("Max", "Min", "Mean", "Norm"))
_SCALARS = frozenset((type(None), bool, int, float, str))
_CACHED = 4096


@dataclass(frozen=True, slots=True)
class Structure:
    """A description, taken apart.

    Attributes
    ----------
    outline : any JSON value
    forms : list
        The form of each leaf.
    """

    outline: Any
    forms: list[Any]


def encode_text(value: Any) -> str:
    """`value` as compact JSON text."""
    return layout.encode_json(value).decode()


def describe(entry: Any, node: names.NodeName) -> str:
    """The description of an entry; empty for one that nests too deeply.

    Parameters
    ----------
    entry : msgspec.Raw or any JSON value
        As :meth:`~msprobe_nb.formats.msprobe.dump_json.DumpFile.entries` gives it.
    node : NodeName
        The entry's name.
    """
    if isinstance(entry, msgspec.Raw):
        try:
            entry = layout.decode_json(entry)
        except RecursionError:
            entry = TOO_DEEP
    if entry is TOO_DEEP:
        return ""
    leaves = _Leaves()
    try:
        if node.phase in (names.DEBUG, names.PARAMETERS_GRAD):
            outline = leaves.outline(entry)
        elif not isinstance(entry, dict):
            outline = {LITERAL: entry}
        else:
            # Leaves are numbered in official row order, whatever the order of the keys.
            parts = {s: leaves.outline(entry[s]) for s, _, _ in SECTIONS if s in entry}
            outline = _escaped(
                {
                    key: parts[key] if key in _SECTIONS else {LITERAL: value}
                    for key, value in entry.items()
                }
            )
    except RecursionError:
        return ""
    return f"{encode_text(outline)}\n{leaves.text()}"


class _Leaves:
    """Numbers the leaves of an entry and gathers their forms."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.code_of: dict[str, int] = {}

    def outline(self, value: Any) -> Any:
        if value is None:
            return self._add("null")
        if is_leaf(value):
            return self._operation(value) if value.get("class_type") == P2P else self._put(value)
        if isinstance(value, dict):
            return _escaped({key: self.outline(child) for key, child in value.items()})
        if isinstance(value, list):
            return [self.outline(child) for child in value]
        return {LITERAL: value}

    def _operation(self, value: dict[str, Any]) -> Any:
        """A point-to-point operation: its row has the columns of its tensor."""
        tensor = value.get("tensor")
        if not isinstance(tensor, dict) or not tensor:
            return self._add(encode_text({LITERAL: value}))
        return {
            key: self._put(tensor) if key == "tensor" else {LITERAL: child}
            for key, child in value.items()
        }

    def _put(self, leaf: dict[str, Any]) -> int:
        return self._add(_form(leaf))

    def _add(self, form: str) -> int:
        self.codes.append(self.code_of.setdefault(form, len(self.code_of)))
        return len(self.codes) - 1

    def text(self) -> str:
        codes = ",".join(map(str, self.codes))
        return f"[[{codes}],[{','.join(self.code_of)}]]"


def _escaped(outline: dict[str, Any]) -> dict[str, Any]:
    if len(outline) == 1 and (key := next(iter(outline))) and not key.strip(LITERAL):
        return {key + LITERAL: outline[key]}
    return outline


_usual: dict[tuple[Any, ...], str] = {}  # keys and types of a leaf -> form without literal values


def _form(leaf: dict[str, Any]) -> str:
    """The form of a leaf as JSON text."""
    key = (*leaf, *map(type, leaf.values()))
    form = _usual.get(key)
    if form is not None and _is_held_if_typed(leaf):
        return form
    is_tensor = isinstance(leaf.get("dtype"), str) and leaf["dtype"] != ""
    items = [k if _is_held(k, v, is_tensor) else [k, v] for k, v in leaf.items()]
    form = encode_text(items)
    if len(_usual) < _CACHED and all(type(item) is str for item in items):
        _usual[key] = form
    return form


def _is_held(key: str, value: Any, is_tensor: bool) -> bool:
    """Whether the columns of the index give back this very value."""
    if key in ("type", "dtype", "data_name"):
        return type(value) is str and value != ""
    if key == "shape":
        return type(value) is list and _is_plain_shape(value)
    if key in _STATISTICS:
        return is_tensor and type(value) in _SCALARS
    if key == "requires_grad":
        return type(value) is bool
    if key == "md5":
        return value is not None and type(value) in _SCALARS
    return key == "value" and not is_tensor


def _is_held_if_typed(leaf: dict[str, Any]) -> bool:
    """The part of :func:`_is_held` that types alone do not decide."""
    if leaf.get("type") == "" or leaf.get("dtype") == "" or leaf.get("data_name") == "":
        return False
    shape = leaf.get("shape")
    return type(shape) is not list or _is_plain_shape(shape)


def _is_plain_shape(shape: list[Any]) -> bool:
    return all(type(length) is int for length in shape) and is_possible(shape)


def parse(description: str) -> Structure | None:
    """A description, taken apart; None where it is empty or has no forms.

    Raises
    ------
    ValueError
        The parts do not fit together.
    """
    outline, _, rest = description.partition("\n")
    if not rest:
        return None
    codes, forms = layout.decode_json(rest)
    return Structure(layout.decode_json(outline), [forms[code] for code in codes])


def parse_outline(description: str) -> Any:
    """The outline of a description, of an older one too; None where it is empty."""
    return layout.decode_json(description.partition("\n")[0]) if description else None


def unescaped(outline: dict[str, Any]) -> dict[str, Any]:
    """A container of an outline with the key that it had."""
    if len(outline) == 1 and (key := next(iter(outline))) and not key.strip(LITERAL):
        return {key.removesuffix(LITERAL): outline[key]}
    return outline
