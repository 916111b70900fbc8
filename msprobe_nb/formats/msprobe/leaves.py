"""The leaves of an entry: the values that stand at its slots.

One entry is one call. Its values nest in lists and objects; a leaf is an object with a text
``type``, a point-to-point operation, or ``null``. Nearly all entries fit a fixed shape and are
decoded straight into structures; the others (deeper nesting, unusual keys) are decoded freely
and walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from msprobe_nb import names
from msprobe_nb.formats.msprobe.dump_json import MAX_DEPTH, TOO_DEEP
from msprobe_nb.store.index import DEBUG, INPUT, OUTPUT, PARAMETERS, PARAMETERS_GRAD

# In the order in which the official comparison lists them.
SECTIONS = (
    ("input_args", "input", INPUT),
    ("input_kwargs", "input", INPUT),
    ("input", "input", INPUT),
    ("parameters", "parameters", PARAMETERS),
    ("output", "output", OUTPUT),
)
_FREE_PHASES = (names.DEBUG, names.PARAMETERS_GRAD)
P2P = "torch.distributed.P2POp"
_MAX_AXES, _MAX_ELEMENTS = 64, 2**63 - 1


class Leaf(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One recorded value with the keys that nearly all have; UNSET where a key is absent."""

    type: str  # an object without one is a container
    dtype: str | None = None
    shape: tuple[int, ...] | UnsetType | None = UNSET
    Max: Any = UNSET
    Min: Any = UNSET
    Mean: Any = UNSET
    Norm: Any = UNSET
    requires_grad: bool | UnsetType | None = UNSET
    data_name: str | UnsetType | None = UNSET
    md5: Any = UNSET
    value: Any = UNSET


_Value = Leaf | list[Leaf | list[Leaf | None] | None] | None


class Entry(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An entry of the usual shape."""

    input_args: list[_Value] = []
    input_kwargs: dict[str, _Value] = {}
    input: list[_Value] = []
    parameters: dict[str, _Value] = {}
    output: list[_Value] = []
    is_recompute: bool | None = None


_ENTRY_DECODER = msgspec.json.Decoder(Entry)
_ENTRIES_DECODER = msgspec.json.Decoder(list[Entry])
_FREE_DECODER = msgspec.json.Decoder()
_FIELDS = frozenset(Leaf.__struct_fields__)


class _Form(NamedTuple):
    """Slots and roles of an entry without nested lists."""

    slots: list[str]
    roles: list[int]


@lru_cache(maxsize=1024)
def _form(
    args: int, kwargs: tuple[str, ...], gradients: int, parameters: tuple[str, ...], output: int
) -> _Form:
    """The form of all entries with as many values and the same keys."""
    sections = (
        (range(args), "input", INPUT),
        (kwargs, "input", INPUT),
        (range(gradients), "input", INPUT),
        (parameters, "parameters", PARAMETERS),
        (range(output), "output", OUTPUT),
    )
    slots = [f".{slot}.{key}" for keys, slot, _ in sections for key in keys]
    return _Form(slots, [role for keys, _, role in sections for _ in keys])


def _decode_usual(
    nodes: Sequence[names.NodeName], entries: Sequence[Any]
) -> list[Entry | None] | None:
    """Some entries decoded in one go: None for those that are never of the usual shape.

    None altogether if one of the others is not: which one shows only when each is tried.
    """
    places = [
        at
        for at, node in enumerate(nodes)
        if node.phase not in _FREE_PHASES and type(entries[at]) is msgspec.Raw
    ]
    try:
        found = _ENTRIES_DECODER.decode(b"[%b]" % b",".join([entries[at] for at in places]))
    except (msgspec.ValidationError, RecursionError):
        return None
    usual: list[Entry | None] = [None] * len(nodes)
    for at, entry in zip(places, found, strict=True):
        usual[at] = entry
    return usual


def is_leaf(value: Any) -> bool:
    """Whether a decoded object is a value, not a container."""
    return isinstance(value, dict) and (
        isinstance(value.get("type"), str) or value.get("class_type") == P2P
    )


@dataclass(slots=True)
class Leaves:
    """Leaves in official row order, as parallel lists.

    Attributes
    ----------
    full_names : list of str
        Full tensor names.
    roles : list of int
    leaves : list of (Leaf or None)
        None for ``null``.
    extra, problem : dict
        Position in these lists -> further keys, or what is wrong.
    """

    full_names: list[str] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    leaves: list[Leaf | None] = field(default_factory=list)
    extra: dict[int, dict[str, Any]] = field(default_factory=dict)
    problem: dict[int, str] = field(default_factory=dict)

    def add_entries(
        self, nodes: Sequence[names.NodeName], entries: Sequence[Any]
    ) -> tuple[list[bool | None], list[int]]:
        """Add the leaves of some entries, given as JSON bytes (``msgspec.Raw``) or decoded.

        Returns
        -------
        recompute : list of (bool or None)
            The recompute flag of each, None where it has none.
        counts : list of int
            Number of leaves of each.
        """
        usual = _decode_usual(nodes, entries)
        recompute, ends = [], [len(self.full_names)]
        for at, node in enumerate(nodes):
            entry = usual[at] if usual else None
            recompute.append(
                self._add_usual(node.name, entry) if entry else self.add_entry(node, entries[at])
            )
            ends.append(len(self.full_names))
        return recompute, [end - start for start, end in pairwise(ends)]

    def add_entry(self, node: names.NodeName, raw: Any) -> bool | None:
        """Add the leaves of one entry and return its recompute flag."""
        if isinstance(raw, msgspec.Raw):
            if node.phase not in _FREE_PHASES:
                try:
                    return self._add_usual(node.name, _ENTRY_DECODER.decode(raw))
                except (msgspec.ValidationError, RecursionError):
                    pass
            try:
                raw = _FREE_DECODER.decode(raw)
            except RecursionError:
                raw = TOO_DEEP
        return self._add_free(node, raw)

    def _add_usual(self, name: str, entry: Entry) -> bool | None:
        args, kwargs, gradients = entry.input_args, entry.input_kwargs, entry.input
        parameters, output = entry.parameters, entry.output
        leaves = [*args, *kwargs.values(), *gradients, *parameters.values(), *output]
        form = _form(len(args), tuple(kwargs), len(gradients), tuple(parameters), len(output))
        if list in map(type, leaves):
            for value, slot, role in zip(leaves, form.slots, form.roles, strict=True):
                self._add_nested(name + slot, value, role)
        else:
            self.full_names += [name + slot for slot in form.slots]
            self.roles += form.roles
            self.leaves += leaves  # type: ignore[arg-type]  # no lists among them
        return entry.is_recompute

    def _add_nested(self, name: str, value: Any, role: int) -> None:
        if type(value) is list:
            for at, inner in enumerate(value):
                self._add_nested(f"{name}.{at}", inner, role)
        else:
            self._put(name, role, value)

    def _add_free(self, node: names.NodeName, entry: Any) -> bool | None:
        start = len(self.full_names)
        try:
            if entry is TOO_DEEP:
                raise RecursionError
            if node.phase == names.DEBUG:
                self._walk(entry, node.name, DEBUG)
            elif node.phase == names.PARAMETERS_GRAD:
                self._walk(entry, node.name, PARAMETERS_GRAD, index_lists=False)
            elif isinstance(entry, dict):
                for section, slot, role in SECTIONS:
                    if section in entry:
                        self._walk(entry[section], f"{node.name}.{slot}", role)
        except RecursionError:
            for column in (self.full_names, self.roles, self.leaves):
                del column[start:]
            self._put(node.name, INPUT, None)
            self.problem[start] = f"values nest deeper than {MAX_DEPTH} levels"
        flag = entry.get("is_recompute") if isinstance(entry, dict) else None
        return flag if isinstance(flag, bool) else None

    def _put(self, name: str, role: int, leaf: Leaf | None) -> None:
        self.full_names.append(name)
        self.roles.append(role)
        self.leaves.append(leaf)

    def _walk(
        self, value: Any, name: str, role: int, *, index_lists: bool = True, depth: int = 0
    ) -> None:
        if depth > MAX_DEPTH:
            raise RecursionError
        if value is None:
            self._put(name, role, None)
        elif is_leaf(value):
            self._add_leaf(value, name, role)
        elif isinstance(value, dict):
            for key, child in value.items():
                self._walk(child, f"{name}.{key}", role, index_lists=index_lists, depth=depth + 1)
        elif isinstance(value, list):
            for at, child in enumerate(value):
                child_name = f"{name}.{at}" if index_lists else name
                self._walk(child, child_name, role, index_lists=index_lists, depth=depth + 1)

    def _add_leaf(self, value: dict[str, Any], name: str, role: int) -> None:
        """A freely decoded leaf: keys that a :class:`Leaf` has no place for go to `extra`."""
        at = len(self.full_names)
        if value.get("class_type") == P2P:
            self.extra[at] = {k: v for k, v in value.items() if k != "tensor"}
            tensor = value.get("tensor")
            value = tensor if isinstance(tensor, dict) else {}
        fields = {k: v for k, v in value.items() if k in _FIELDS}
        others = {k: v for k, v in value.items() if k not in _FIELDS}
        for key, check in _CHECKS.items():
            if key in fields and not check(fields[key]):
                others[key] = fields.pop(key)
                if key in _EXPECTED:
                    self.problem[at] = (
                        f"the recorded {key} is {others[key]!r:.80}, expected {_EXPECTED[key]}"
                    )
        if isinstance(fields.get("shape"), list):
            fields["shape"] = tuple(fields["shape"])
        if others:
            self.extra.setdefault(at, {}).update(others)
        fields.setdefault("type", "")
        self._put(name, role, Leaf(**fields) if value else None)


def is_possible(shape: Sequence[int]) -> bool:
    """Whether a tensor can have this shape."""
    elements = 1
    for length in shape:
        if length < 0:
            return False
        elements *= max(length, 1)
    return len(shape) <= _MAX_AXES and elements <= _MAX_ELEMENTS


def _is_shape(shape: Any) -> bool:
    return shape is None or (isinstance(shape, list) and all(type(n) is int for n in shape))


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_CHECKS = {
    "type": lambda kind: isinstance(kind, str),
    "dtype": _is_text,
    "shape": _is_shape,
    "requires_grad": lambda flag: flag is None or isinstance(flag, bool),
    "data_name": _is_text,
}
_EXPECTED = {
    "dtype": "a text",
    "shape": "a list of axis lengths",
    "requires_grad": "true or false",
    "data_name": "a file name",
}
