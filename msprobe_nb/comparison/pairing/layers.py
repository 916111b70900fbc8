"""Layer mapping: calls are paired by their place in the module tree.

Each call has a *scope*: the path of its module, then its own name; an API stands in the module
that called it (``construct.json``), below the framework function that called it when the call
stack names one. A user's table says which children of a class are called otherwise on the other
side. Calls of equal scope and direction are paired in order. Rules: specification 02, section 3.8,
and specification 07, section 13.1.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.pairing.fuzzy import follow_forward
from msprobe_nb.comparison.yaml_file import Mapping, as_texts, read_yaml
from msprobe_nb.errors import FormatError
from msprobe_nb.store.index import Nodes

TOP = "TopLayer"
_OLD_TOP = "Cell"
Scope = tuple[str, ...]
_FRAMEWORK_FILES = re.compile(r"(?:site-packages|package)/(?:torch|mindspore)\b")
_SKIPPED_FILES = ("msprobe", "MindSpeed")
# Functions through which every module is called; they say nothing about where.
_DISPATCH = frozenset(
    {"construct", "__call__", "_call_impl", "_wrapped_call_impl", "inner"}
    | {"_run_construct", "_run_construct_inner", "_run_grad_construct", "jit_forbidden"}
)
_NO_STACK = ("Primitive", "Jit")
_STACK_LIMITS = {"mindspore": r"construct", "pytorch": r"in (?:for|back)ward,"}
_PIPELINE = ("ParallelTransformer", "layers")


@dataclass(frozen=True, slots=True)
class LayerMapping:
    """Which children of a class are called otherwise on the other side.

    Attributes
    ----------
    rules : dict
        Class -> list of (path here, path there), longest first.
    """

    rules: dict[str, list[tuple[Scope, Scope]]] = field(default_factory=dict)

    @classmethod
    def of(cls, argument: Mapping | bool) -> LayerMapping:
        """From a ``layer_mapping`` argument.

        Raises
        ------
        FormatError
            The table is not ``{class: {path: path}}``.
        """
        if argument is True:
            return cls()
        content, where = read_yaml(argument, "layer mapping")  # type: ignore[arg-type]
        if not isinstance(content or {}, dict):
            raise FormatError(
                "the layer mapping is no mapping of classes",
                file=where,
                remedy="Write a section for each class, TopLayer for the whole model",
            )
        rules: dict[str, list[tuple[Scope, Scope]]] = {}
        for kind, section in (content or {}).items():
            table = as_texts(section or {}, f"section {kind} of the layer mapping", where)
            pairs = [
                (tuple(ours.split(".")), tuple(theirs.split("(")[0].split(".")))
                for ours, theirs in table.items()
            ]
            place = TOP if kind == _OLD_TOP else str(kind)
            rules.setdefault(place, []).extend(pairs)
        for section in rules.values():
            section.sort(key=lambda pair: -len(pair[0]))
        return cls(rules)

    def translate(self, scope: Scope, classes: dict[Scope, str]) -> Scope:
        """A scope in the other side's terms.

        Parameters
        ----------
        scope : tuple of str
        classes : dict
            Scope -> class of the module there.
        """
        found: list[str] = []
        at = 0
        while at < len(scope):
            kind = classes.get(scope[:at], scope[at - 1]) if at else TOP
            for ours, theirs in self.rules.get(kind, ()):
                if scope[at : at + len(ours)] == ours:
                    found += theirs
                    at += len(ours)
                    break
            else:
                found.append(scope[at])
                at += 1
        return tuple(found)

    def pair_calls(
        self, target: Nodes, golden: Nodes, frameworks: tuple[str, str]
    ) -> tuple[np.ndarray, list[str]]:
        """The golden partner of each target call, and notes for the user.

        Returns
        -------
        partner : ndarray of int64
            Row of the golden call, or -1.
        notes : list of str
        """
        scopes = [
            scopes_of(nodes, kind) for nodes, kind in zip((target, golden), frameworks, strict=True)
        ]
        classes = {
            scopes[0][at]: node.components[-1]
            for at, node in enumerate(target.parsed)
            if node.kind == "module"
        }
        places: dict[tuple[Scope, str], list[int]] = defaultdict(list)
        for at in np.flatnonzero(golden.recorded).tolist():
            places[scopes[1][at], golden.parsed[at].phase].append(at)
        turn: dict[tuple[Scope, str], int] = defaultdict(int)
        partner = np.full(len(target), -1)
        for at in np.flatnonzero(target.recorded).tolist():
            scope, phase = scopes[0][at], target.parsed[at].phase
            there = places.get((self.translate(scope, classes), phase), [])
            if turn[scope, phase] < len(there):
                partner[at] = there[turn[scope, phase]]
            turn[scope, phase] += 1
        follow_forward(partner, target.parsed, golden.parsed)
        return partner, _notes(target, golden)


def scopes_of(nodes: Nodes, framework: str) -> list[Scope]:
    """The scope of each call; a backward call has that of its forward call."""
    row_of = {name: at for at, name in enumerate(nodes.name)}
    scopes: list[Scope] = []
    for at, node in enumerate(nodes.parsed):
        twin = row_of.get(node.in_phase(names.FORWARD), at)
        scopes.append(_scope(nodes, twin, framework))
    return _relative_layers(nodes, scopes)


def _scope(nodes: Nodes, at: int, framework: str) -> Scope:
    node = nodes.parsed[at]
    if node.kind == "module":
        return node.components[1:-1]
    parent = nodes.parent[at]
    above = names.parse(parent).components[1:-1] if parent else ()
    own = node.components[-1]
    if node.components[0] in _NO_STACK:
        return (*above, own)
    return (*above, *_framework_function(nodes.stack_of(at), framework), own)


def _framework_function(stack: list[str], framework: str) -> tuple[str, ...]:
    """The outermost framework function between the recorder and the user's code, if it matters."""
    frames = _between_limits(stack, _STACK_LIMITS.get(framework, _STACK_LIMITS["pytorch"]))
    last = None
    for frame in frames:
        file = frame.split(",")[0]
        if not _FRAMEWORK_FILES.search(file):
            break
        last = frame
    if last is None:
        return ()
    file, *rest = last.split(",")
    words = rest[1].split() if len(rest) > 1 else []
    if len(words) < 2 or words[1] in _DISPATCH or any(part in file for part in _SKIPPED_FILES):
        return ()
    return (words[1],)


def _between_limits(stack: list[str], end: str) -> list[str]:
    """Stack lines after the recorder's ``Template`` up to the next call of a module's body."""
    start = next((at for at in range(len(stack) - 1, -1, -1) if "Template" in stack[at]), None)
    if start is None:
        return stack
    for at in range(start + 1, len(stack)):
        if re.search(end, stack[at]):
            return stack[start + 1 : at]
    return stack[start + 1 :]


def _relative_layers(nodes: Nodes, scopes: list[Scope]) -> list[Scope]:
    """Layer numbers of pipeline stages counted from the stage's first layer."""
    kind, child = _PIPELINE
    stems = {
        (*scopes[at], child)
        for at, node in enumerate(nodes.parsed)
        if node.kind == "module" and node.components[-1] == kind
    }
    for stem in stems:
        depth = len(stem)
        inside = [at for at, scope in enumerate(scopes) if scope[:depth] == stem]
        numbers = {
            at: int(found[-1])
            for at in inside
            if len(scopes[at]) > depth and (found := re.findall(r"\d+", scopes[at][depth]))
        }
        first = min(numbers.values(), default=0)
        for at, number in numbers.items():
            scopes[at] = (*stem, str(number - first), *scopes[at][depth + 1 :])
    return scopes


def _notes(target: Nodes, golden: Nodes) -> list[str]:
    found = []
    for side, nodes in (("target", target), ("golden", golden)):
        api = any(node.kind not in ("module", "debug") for node in nodes.parsed)
        if api and not (nodes.tree_order >= 0).any():
            found.append(
                f"layer mapping: the {side} has no construct.json, so its APIs count as called "
                "by the whole model"
            )
    return found
