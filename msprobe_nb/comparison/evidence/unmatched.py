"""Calls that only one side made, and whether a difference comes from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from msprobe_nb.comparison.evidence.calls import Calls
from msprobe_nb.comparison.sides import Side
from msprobe_nb.store.index import OUTPUT, TENSOR

_NEAR = 4  # calls between a difference and the unmatched call it may come from


@dataclass(frozen=True, slots=True)
class Cause:
    """An unmatched call that explains a difference.

    Attributes
    ----------
    name, sentence : str
    node : int
        Row of the call in the target; -1 if only the golden made it.
    row : int
        A row of the call in the target; -1 if it has none.
    order : float
        Its place among the target's calls.
    chain : frozenset of int
        This and the unmatched calls of the target that its result went through.
    """

    name: str
    sentence: str
    node: int
    row: int
    order: float
    chain: frozenset[int] = frozenset()


class Unmatched:
    """The calls of a part that have no partner."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.part = calls, calls.part

    @cached_property
    def partner(self) -> np.ndarray:
        """Golden call of each target call, -1 for none."""
        rows = np.flatnonzero(self.calls.rows.partner >= 0)
        found = np.full(len(self.calls), -1)
        golden = self.part.golden.index.node[self.calls.rows.partner[rows]]
        found[self.part.node[rows][::-1]] = golden[::-1]
        return found

    @cached_property
    def target_only(self) -> np.ndarray:
        """Rows of calls that only the target made, in order."""
        nodes = self.part.target.pack.nodes
        with_rows = np.bincount(self.part.node, minlength=len(nodes)) > 0
        return np.flatnonzero(nodes.recorded & with_rows & (self.partner < 0))

    @cached_property
    def golden_only(self) -> np.ndarray:
        """Rows (in the golden) of calls that only the golden made, in order."""
        golden = self.part.golden
        nodes = golden.pack.nodes
        with_rows = np.bincount(golden.index.node, minlength=len(nodes)) > 0
        matched = np.zeros(len(nodes), bool)
        matched[self.partner[self.partner >= 0]] = True
        return np.flatnonzero(nodes.recorded & with_rows & ~matched)

    @cached_property
    def _made(self) -> dict[tuple[str, ...], list[int]]:
        return _fingerprints(self.part.target, self.target_only)

    @cached_property
    def _lacking(self) -> dict[tuple[str, ...], list[int]]:
        return _fingerprints(self.part.golden, self.golden_only)

    def cause_of(self, row: int) -> Cause | None:
        """The unmatched call from which the deviation of an input row comes, if one does."""
        node = int(self.part.node[row])
        user = self.part.target.pack.nodes.name[node]
        ours = _latest(self._made.get(_fingerprint(self.part.target, row), []), node)
        partner = int(self.calls.rows.partner[row])
        place = int(self.part.golden.index.node[partner])
        theirs = _latest(self._lacking.get(_fingerprint(self.part.golden, partner), []), place)
        if ours < 0 and theirs < 0:
            ours = self._near(self.target_only, node)
            theirs = self._near(self.golden_only, place)
        if ours >= 0:
            return self._extra(ours, theirs, user)
        if theirs >= 0:
            return self._missing(theirs, node, user)
        return None

    def _near(self, unmatched: np.ndarray, node: int) -> int:
        earlier = unmatched[(unmatched < node) & (unmatched >= node - _NEAR)]
        return int(earlier[-1]) if len(earlier) else -1

    def _extra(self, node: int, golden: int, user: str) -> Cause:
        """A call only the target made; of a chain of them the first."""
        target, index = self.part.target, self.part.target.index
        chain, first = {node}, node
        for earlier in self.target_only[self.target_only < node][::-1].tolist():
            results = np.flatnonzero((index.node == earlier) & (index.role == OUTPUT))
            prints = {_fingerprint(target, int(row)) for row in results}
            inputs = np.flatnonzero((index.node == first) & (index.role != OUTPUT))
            if prints & {
                _fingerprint(target, int(row)) for row in inputs if index.kind[row] == TENSOR
            }:
                first = earlier
                chain.add(earlier)
            else:
                break
        name = target.pack.nodes.name[first]
        instead = ""
        if golden >= 0:
            instead = f" in place of the golden's {self.part.golden.pack.nodes.name[golden]}"
        rows = np.flatnonzero(index.node == first)
        sentence = f"only the target makes this call{instead}; {user} works on its result"
        return Cause(name, sentence, first, int(rows[0]), float(first), frozenset(chain))

    def _missing(self, golden: int, node: int, user: str) -> Cause:
        name = self.part.golden.pack.nodes.name[golden]
        sentence = f"the golden makes this call, the target does not; {user} works on its result"
        return Cause(name, sentence, -1, -1, node - 0.5)


def _latest(nodes: list[int], before: int) -> int:
    earlier = [node for node in nodes if node < before]
    return earlier[-1] if earlier else -1


def _fingerprints(side: Side, nodes: np.ndarray) -> dict[tuple[str, ...], list[int]]:
    """What the results of some calls look like -> those calls."""
    index = side.index
    found: dict[tuple[str, ...], list[int]] = {}
    rows = np.isin(index.node, nodes) & (index.role == OUTPUT) & (index.kind == TENSOR)
    for row in np.flatnonzero(rows).tolist():
        found.setdefault(_fingerprint(side, row), []).append(int(index.node[row]))
    return found


def _fingerprint(side: Side, row: int) -> tuple[str, ...]:
    """Number of elements and extremes: what views and other orders of summation leave alone."""
    shape = side.index.shape[row]
    high, low = side.statistics.number[row, :2].tolist()
    checksum = side.index.checksum[row]
    return str(np.prod(shape or (1,))), repr(high), repr(low), str(checksum or "")
