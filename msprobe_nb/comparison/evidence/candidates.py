"""Calls that may be origins: each kind of evidence found in one part, with its sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.evidence.calls import Calls
from msprobe_nb.comparison.evidence.deviation import GROSS
from msprobe_nb.comparison.evidence.unmatched import Cause, Unmatched
from msprobe_nb.store.index import STATISTICS
from msprobe_nb.store.pack import STATISTICS_MODE
from msprobe_nb.text import number, percent

# Kinds in the order in which one explains the next at the same call.
_EXPLAINS = (
    *("argument", "parameter", "dtype", "shape", "overflow", "unmatched", "input", "output"),
    "gradient",
)
# APIs whose second and later tensors are weights: what a recording without modules shows of them.
_TAKES_WEIGHTS = frozenset(
    {"linear", "dense", "bilinear", "bidense", "embedding", "embedding_bag", "prelu", "layer_norm"}
    | {"batch_norm", "group_norm", "instance_norm", "rms_norm", "npu_rms_norm", "conv1d", "conv2d"}
    | {"conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "lstm", "gru"}
)
_OVERFLOW_LIMIT = 0.3  # inputs that are off by more may well overflow an innocent call


@dataclass(slots=True)
class Candidate:
    """A call that may be an origin.

    Attributes
    ----------
    name, kind, sentence : str
        As in :attr:`Comparison.origins`; the sentence without the call's name.
    node : int
        Row of the call in the target, or of the call that shows the lack of a golden one.
    row : int
        Target row that is the evidence; -1 if the target has none.
    weight : float
        Deviation it causes, at most 1.
    order : float
        When it happens, in calls of the target.
    start : float
        Place of the first call that it concerns: a module's inner calls ran before it was done.
    """

    name: str
    kind: str
    sentence: str
    node: int
    row: int
    weight: float
    order: float
    start: float


def candidates_of(calls: Calls, inherited: float) -> list[Candidate]:
    """All candidates of one part, in order of execution.

    Parameters
    ----------
    calls : Calls
    inherited : float
        What earlier steps explain: the largest deviation of the gradients before this step.
    """
    search = _Search(calls)
    found = [
        *search.overflows(),
        *search.changed_types(),
        *search.arguments(inherited),
        *search.parameters(inherited),
        *search.results(inherited),
    ]
    found += search.jumps(inherited, {c.node for c in found})
    return _without_echoes(calls, _one_for_each_call(found))


class _Search:
    def __init__(self, calls: Calls) -> None:
        self.calls, self.rows, self.part = calls, calls.rows, calls.part
        self.node = self.part.node
        self.nodes = self.part.target.pack.nodes
        self.unmatched = Unmatched(calls)

    def _make(self, kind: str, row: int, weight: float, sentence: str) -> Candidate:
        node = int(self.node[row])
        name, weight = self.nodes.name[node], min(float(weight), 1.0)
        start = float(self.calls.beginning[node])
        return Candidate(name, kind, sentence, node, row, weight, float(node), start)

    def slot(self, row: int) -> str:
        """The slot of a row: ``input.0``."""
        return names.slot_of(self.part.target.index.name[row], self.nodes.name[self.node[row]])

    def first_of(self, rows: np.ndarray) -> list[int]:
        """The row of largest deviation of each call, in order of execution."""
        chosen = np.flatnonzero(rows)
        size = np.nan_to_num(self.rows.size[chosen], nan=0.0)
        order = np.lexsort((chosen, -size, self.node[chosen]))
        _, first = np.unique(self.node[chosen][order], return_index=True)
        return [int(chosen[order][at]) for at in first.tolist()]

    # ------------------------------------------------------------ kinds of evidence

    def overflows(self) -> list[Candidate]:
        """Calls that make NaN or infinity out of finite inputs."""
        calls, born = self.calls, self.rows.born
        given = calls.any(born & ~calls.is_result)
        made = calls.any(born & calls.is_result)
        forward = calls.forward
        given |= (forward >= 0) & (made | given)[forward]
        given |= calls.climb(made.astype(float)) > 0
        given |= calls.explained_without(made) > _OVERFLOW_LIMIT
        gradients = calls.phase == names.PARAMETERS_GRAD
        given |= gradients & (calls.relatives >= GROSS)
        rows = self.first_of(born & calls.is_result & ~given[self.node])
        found = []
        for row in rows:
            high, low = (self.part.target.statistics.item(row, at) for at in (0, 1))
            text = f"{self.slot(row)} has NaN or infinity (max {high}, min {low})"
            found.append(self._make("overflow", row, 1.0, f"{text}, its inputs are finite"))
        return found

    def changed_types(self) -> list[Candidate]:
        """Calls at which a dtype or a shape changes first."""
        found = []
        for kind, differs in (("dtype", self.rows.dtype), ("shape", self.rows.shape)):
            calls = self.calls
            own = calls.any(differs & (calls.is_result | calls.is_parameter)).astype(float)
            seen = np.concatenate([[0.0], np.maximum.accumulate(own)[:-1]]) if len(own) else own
            given = calls.any(differs & calls.is_input)
            given |= calls.climb(own) > 0
            linked = calls.forward >= 0
            given[linked] |= (given | (own > 0))[calls.forward[linked]]
            given |= (calls.phase == names.PARAMETERS_GRAD) & (seen > 0)
            blank = ~calls.any(calls.is_input & (self.rows.partner >= 0)) & (seen > 0)
            new = differs & calls.is_parameter
            new |= differs & calls.is_result & ~given[self.node] & ~blank[self.node]
            new |= differs & calls.is_input & (seen[self.node] == 0)
            for row in self.first_of(new):
                ours, theirs = self._texts(row, kind)
                sentence = f"{self.slot(row)} has {kind} {ours}, golden {theirs}"
                weight = max(calls.effect[self.node[row]], 1e-3)
                found.append(self._make(kind, row, weight, sentence))
        return found

    def _texts(self, row: int, name: str) -> tuple[str, str]:
        partner = int(self.rows.partner[row])
        ours = getattr(self.part.target, name)[row]
        return str(ours), str(getattr(self.part.golden, name)[partner])

    def arguments(self, inherited: float) -> list[Candidate]:
        """Calls with another argument that is no tensor."""
        calls = self.calls
        given = np.maximum(calls.before, inherited)[self.node]
        rows = self.rows.argument & (self.rows.size > calls.limits.gain * given)
        found = []
        for row in self.first_of(rows):
            partner = int(self.rows.partner[row])
            ours = self.part.target.index.value.get(row)
            theirs = self.part.golden.index.value.get(partner)
            sentence = f"{self.slot(row)} is {ours!r:.80}, golden {theirs!r:.80}"
            found.append(self._make("argument", row, self._effect(row), sentence))
        return found

    def _effect(self, row: int) -> float:
        """What an argument changed; little where nothing can be seen of it."""
        node = int(self.node[row])
        effect = float(self.calls.effect[node])
        return effect if effect > 0 else 1e-6

    def parameters(self, inherited: float) -> list[Candidate]:
        """Modules whose parameters differ."""
        calls = self.calls
        rows = calls.is_parameter & calls.dirty & ~self.rows.shape
        rows &= self.rows.size > calls.limits.gain * inherited
        rows &= calls.phase[self.node] == names.FORWARD
        return [
            self._make("parameter", row, self.rows.size[row], self._difference(row))
            for row in self.first_of(rows)
        ]

    def results(self, inherited: float) -> list[Candidate]:
        """Calls whose results deviate although what they depend on does not."""
        calls = self.calls
        rows = calls.unexplained & ~self.rows.shape & ~self.rows.born
        rows &= self.rows.size > calls.limits.gain * inherited
        found = []
        for row in self.first_of(rows):
            node = int(self.node[row])
            phase, given = calls.phase[node], float(calls.explained[node])
            kind = "output" if phase not in (names.BACKWARD, names.PARAMETERS_GRAD) else "gradient"
            if given > 0:
                cause = f"what the call was given only by {percent(given)}"
            else:
                agree = "agree" if self.part.mode == STATISTICS_MODE else "agrees"
                what = "the statistics of " if agree == "agree" else ""
                cause = f"{what}what the call was given {agree}"
            found.append(
                self._make(kind, row, self.rows.size[row], f"{self._difference(row)}; {cause}")
            )
        return found

    def jumps(self, inherited: float, known: set[int]) -> list[Candidate]:
        """Inputs that deviate although nothing recorded before does.

        The difference arose in a call that only one side has, in a parameter, or outside.
        """
        calls, size = self.calls, np.nan_to_num(self.rows.size)
        given = np.maximum(np.maximum(calls.before, calls.inside), inherited)[self.node]
        rows = calls.is_input & calls.dirty & (size > calls.limits.gain * given)
        rows &= ~calls.has_calls_inside[self.node]  # the calls inside would show it
        rows &= (calls.effect > 0)[self.node] | ~calls.any(calls.is_result)[self.node]
        found: list[Candidate] = []
        used: set[str] = set()
        for row in self.first_of(rows):
            cause = self.unmatched.cause_of(row)
            if cause is not None and cause.chain & known:
                continue
            candidate = self._jump(row, cause)
            if candidate.name not in used:
                used.add(candidate.name)
                found.append(candidate)
        return found

    def _jump(self, row: int, cause: Cause | None) -> Candidate:
        node = int(self.node[row])
        if cause is not None:
            weight = min(float(self.rows.size[row]), 1.0)
            return Candidate(
                *(cause.name, "unmatched", cause.sentence, cause.node, cause.row),
                *(weight, cause.order, cause.order),
            )
        index = self.part.target.index
        slot = self.slot(row)
        takes_weights = names.api_of(self.nodes.name[node]) in _TAKES_WEIGHTS
        if takes_weights and index.requires_grad[row] == 1 and not slot.endswith(".0"):
            return self._make("parameter", row, self.rows.size[row], self._difference(row))
        kind = "gradient" if self.calls.phase[node] == names.BACKWARD else "input"
        sentence = f"{self._difference(row)}; nothing recorded before it does"
        return self._make(kind, row, self.rows.size[row], sentence)

    def _difference(self, row: int) -> str:
        """By how much a row deviates, with the statistic that shows it best."""
        size = float(self.rows.size[row])
        ours = self.part.target.statistics
        theirs = self.part.golden.statistics
        partner = int(self.rows.partner[row])
        shown = ""
        best = 0.0
        for at, name in enumerate(STATISTICS):
            x, y = ours.number[row, at], theirs.number[partner, at]
            with np.errstate(all="ignore"):
                change = abs(x - y) / max(abs(x), abs(y)) if x != y else 0.0
            if not change <= best:
                best = change if change == change else best
                shown = f" ({name} {number(x)}, golden {number(y)})"
        by = "entirely" if size >= GROSS else f"by {percent(size)}"
        return f"{self.slot(row)} differs {by}{shown}"


def _one_for_each_call(found: list[Candidate]) -> list[Candidate]:
    """One candidate a call, of the kind that explains the others, in order of execution."""
    ranked = sorted(found, key=lambda c: (c.order, _EXPLAINS.index(c.kind)))
    kept: dict[str, Candidate] = {}
    for candidate in ranked:
        first = kept.setdefault(candidate.name, candidate)
        first.weight = max(first.weight, candidate.weight)
    return list(kept.values())


def _without_echoes(calls: Calls, found: list[Candidate]) -> list[Candidate]:
    """Drop candidates that repeat another one.

    A changed weight shows at the module as parameter and at the API inside it as input: the
    module is kept. Otherwise a module repeats what was found inside it.
    """
    parameters = {c.node for c in found if c.row >= 0 and calls.is_parameter[c.row]}
    dropped: set[int] = set()
    for candidate in found:
        if candidate.row < 0 or candidate.node in parameters:
            continue
        parent = int(calls.parent[candidate.node]) if candidate.node >= 0 else -1
        if parent in parameters and candidate.kind in ("parameter", "input", "dtype", "shape"):
            dropped.add(id(candidate))
    kept = [c for c in found if id(c) not in dropped]
    inside = np.zeros(len(calls))
    for candidate in kept:
        if candidate.node >= 0:
            inside[candidate.node] = 1
    covered = calls.climb(inside) > 0
    return [
        c
        for c in kept
        if c.node in parameters or c.node < 0 or not covered[c.node] or c.kind == "argument"
    ]
