"""The official naming grammar: one place that takes names apart and builds them.

A *node* is one call of a module, API or communication operator, in one direction::

    Functional.linear.0.forward               API call: prefix, api, call number, phase
    Module.layers.0.mlp.Linear.forward.1      module call: prefix, path, class, phase, call number
    Module.layers.0.mlp.Linear.parameters_grad.0
    loss.0.debug                              a value saved by hand

A *tensor* is one value at one slot of a node: ``<node>.<slot>`` with slots such as
``input.0``, ``input.alpha``, ``output.1``, ``parameters.weight``. Nothing outside this
module splits names on dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FORWARD, BACKWARD, PARAMETERS_GRAD, DEBUG = "forward", "backward", "parameters_grad", "debug"
_DIRECTIONS = (FORWARD, BACKWARD)
_MODULE_STARTS = ("Module.", "Cell.")
_COMMUNICATION_STARTS = ("Distributed.", "MintDistributed.")


class NodeName(NamedTuple):
    """The parts of a node name.

    Attributes
    ----------
    name : str
        The name as recorded.
    stem : str
        The name without call number and phase: what repeated calls have in common.
    phase : str
        ``forward``, ``backward``, ``parameters_grad``, ``debug``, or empty when the name does
        not follow the grammar.
    call : str
        The call number as written, empty when there is none.
    kind : str
        ``module``, ``api``, ``communication`` or ``debug``.
    """

    name: str
    stem: str
    phase: str
    call: str
    kind: str

    @property
    def valid(self) -> bool:
        """Whether the name follows the grammar."""
        return bool(self.phase) and bool(self.stem)

    @property
    def components(self) -> tuple[str, ...]:
        """What stands before call number and phase: prefix, path and class, or prefix and api."""
        stem = self.stem
        if self.phase == PARAMETERS_GRAD:
            stem = stem.removesuffix(f".{PARAMETERS_GRAD}")
        return tuple(stem.split("."))

    def with_components(self, components: Sequence[str]) -> str:
        """The name with other components and the same call number and phase."""
        tail = self.name[len(".".join(self.components)) :]
        return ".".join(components) + tail

    def in_phase(self, phase: str) -> str:
        """The name of the same call in another direction."""
        if self.phase not in _DIRECTIONS:
            return self.name
        head, tail = self.stem, self.name[len(self.stem) :].split(".")
        return ".".join([head, *(phase if part == self.phase else part for part in tail[1:])])

    def renumbered(self, call: int) -> str:
        """The name with its call number replaced, for matching repeated backward calls."""
        tail = self.name[len(self.stem) + 1 :]
        number, _, phase = tail.partition(".")
        if phase == self.phase and number.isdigit():
            return f"{self.stem}.{call}.{phase}"
        if number == self.phase and phase.isdigit():
            return f"{self.stem}.{number}.{call}"
        return self.name


def parse(name: str) -> NodeName:
    """Take a node name apart.

    The phase is the last or the last but one component (APIs count before it, modules after
    it), which keeps a module path that happens to contain ``forward`` intact.
    """
    kind = (
        "module"
        if name.startswith(_MODULE_STARTS)
        else "communication"
        if name.startswith(_COMMUNICATION_STARTS)
        else "api"
    )
    parts = name.rsplit(".", 2)
    if len(parts) == 3:
        stem, second, last = parts
        if last in _DIRECTIONS:
            return NodeName(name, stem, last, second, kind)
        if second in _DIRECTIONS:
            return NodeName(name, stem, second, last, kind)
        if second == PARAMETERS_GRAD:
            return NodeName(name, f"{stem}.{second}", PARAMETERS_GRAD, last, kind)
        if last == DEBUG:
            return NodeName(name, stem, DEBUG, second, "debug")
    if parts[-1] == PARAMETERS_GRAD and len(parts) > 1:
        return NodeName(name, name[: -len(PARAMETERS_GRAD) - 1], PARAMETERS_GRAD, "", kind)
    return NodeName(name, "", "", "", kind)


def tensor_name(node: str, slot: str) -> str:
    """The full name of the value at `slot` of `node`; the node's own without a slot."""
    return f"{node}.{slot}" if slot else node


def slot_of(tensor: str, node: str) -> str:
    """The slot part of a full tensor name."""
    return tensor[len(node) + 1 :]


def slot_path(slot: str) -> list[str]:
    """The components of a slot: ``input``, ``1`` and ``0`` of ``input.1.0``."""
    return slot.split(".")


def api_of(tensor: str) -> str:
    """The second component of a name: the bare API (``add`` of ``Torch.add.0.forward``)."""
    parts = tensor.split(".", 2)
    return parts[1] if len(parts) > 1 else ""


def slot_parts(slot: str) -> tuple[str, str]:
    """Role and place of a slot: ``input`` and ``0.1`` of ``input.0.1``."""
    role, _, place = slot.partition(".")
    return role, place


def without_extension(data_name: str) -> str:
    """``a.b.input.0`` of the file name ``a.b.input.0.pt``."""
    return data_name.rpartition(".")[0] or data_name
