"""Where target and golden part, over all ranks.

On one rank the first differing call is the first in recorded order. Over several ranks a
difference may have come from a peer: a call is no origin when a differing call of another rank
reaches it through communication calls. What remains are origins that do not depend on each other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from msprobe_nb.comparison.communication import Exchange, exchanges, is_communication
from msprobe_nb.comparison.differing import Differing, differing
from msprobe_nb.comparison.part import Part
from msprobe_nb.errors import UsageError
from msprobe_nb.names import slot_of
from msprobe_nb.store.index import DEBUG, INPUT, OUTPUT, PARAMETERS
from msprobe_nb.store.pack import CHECKSUM_MODE
from msprobe_nb.text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.result import Comparison

_NEVER = 2**62
_PASSES_ON = 1e-3  # a communication call whose inputs are off by less carries no difference


class Finding(NamedTuple):
    """A call at which a difference begins: a row of :attr:`FirstDifferences.findings`.

    Attributes
    ----------
    step, rank : int
    node : str
    kind : str
        ``call``, ``communication``, or ``target only`` for a call that the golden run does not
        have and that made the differing inputs of the next finding.
    error, input_error : float
        The largest relative difference of its outputs and of its inputs; infinite for NaN on one
        side, another shape or check value. NaN for a call that only the target has.
    sentence : str
    """

    step: int
    rank: int
    node: str
    kind: str
    error: float
    input_error: float
    sentence: str


@dataclass
class FirstDifferences:
    """The calls at which target and golden part.

    Attributes
    ----------
    comparison : Comparison
    limit : float
        Relative difference from which on a call differs.
    calls : list of Finding
    """

    comparison: Comparison
    limit: float
    calls: list[Finding]

    @cached_property
    def findings(self) -> pd.DataFrame:
        """One row for each finding: ``step rank node kind error input_error sentence``."""
        import pandas as pd

        return pd.DataFrame(self.calls, columns=list(Finding._fields))

    @property
    def sentence(self) -> str:
        """The conclusion."""
        if not self.calls:
            if self.comparison.parts and self.comparison.mode == CHECKSUM_MODE:
                return "No call of both runs has other check values."
            return f"No output of a call of both runs differs by more than {percent(self.limit)}."
        several = len(self.comparison.parts) > 1
        told = [
            f"{call.sentence} (step {call.step}, rank {call.rank})" if several else call.sentence
            for call in self.calls
        ]
        return f"The first difference: {'; '.join(told)}."

    def summary(self) -> str:
        """The conclusion and what was compared."""
        parts = plural(len(self.comparison.parts), "recording")
        lines = [self.sentence, f"Searched {parts} for outputs off by {percent(self.limit)}."]
        if not self.comparison.complete:
            lines.append("Interrupted: only what was compared until then was searched.")
        return "\n".join(lines + [f"Note: {note}" for note in self.comparison.notes])

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        import html

        return f"<p>{html.escape(self.sentence)}</p>{self.findings.to_html(escape=True)}"

    def to_json(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the official files.

        Parameters
        ----------
        folder : path
            Gets ``compare_result_rank<k>_<time>.json`` for each rank and, if something differs,
            ``diff_analyze_<time>.json``; in a folder for each step when there are several.

        Returns
        -------
        list of Path
        """
        from msprobe_nb.comparison.first_difference_json import write_json

        return write_json(self, Path(folder))


def first_differences(comparison: Comparison, *, limit: float = 0.5) -> FirstDifferences:
    """Search the calls at which target and golden part.

    Parameters
    ----------
    comparison : Comparison
        Of any kind of recording; of several steps the first one with a difference counts.
    limit : float
        A call differs when one of its outputs is off by more than this, relative to the size of
        the golden tensor. Any differing check value, shape, or NaN on one side is a difference.

    Raises
    ------
    UsageError
        `limit` is not positive.
    """
    if not limit > 0:
        raise UsageError(f"the limit must be above 0, not {limit}")
    for step in comparison.steps:
        parts = {part.rank: part for part in comparison.parts if part.step == step}
        found = _search(parts, limit)
        if found:
            return FirstDifferences(comparison, limit, found)
    return FirstDifferences(comparison, limit, [])


def _search(parts: Mapping[int, Part], limit: float) -> list[Finding]:
    measured = {rank: differing(part) for rank, part in parts.items()}
    first = {
        rank: at
        for rank, part in parts.items()
        if (at := _first_call(part, measured[rank], limit)) is not None
    }
    if not first:
        return []
    taken_over = {rank: measured[rank].input[at] > limit for rank, at in first.items()}
    joined = exchanges({rank: part.target.pack for rank, part in parts.items()})
    explained = _explained(first, taken_over, measured, joined) if len(parts) > 1 else set()
    return [
        finding
        for rank, at in sorted(first.items())
        if rank not in explained
        for finding in _findings(parts[rank], measured[rank], at, limit)
    ]


def _first_call(part: Part, measured: Differing, limit: float) -> int | None:
    """The first differing call; of calls inside each other the innermost one."""
    found = np.flatnonzero(measured.output > limit)
    if not len(found):
        return None
    nodes = part.target.pack.nodes
    row_of = {name: at for at, name in enumerate(nodes.name)}
    around: set[int] = set()  # calls around another differing call
    for at in found.tolist():
        outer = row_of.get(nodes.parent[at], -1)
        while outer >= 0 and outer not in around:
            around.add(outer)
            outer = row_of.get(nodes.parent[outer], -1)
    innermost = [at for at in found.tolist() if at not in around]
    return int(min(innermost or found.tolist()))


def _explained(
    first: Mapping[int, int],
    taken_over: Mapping[int, bool],
    measured: Mapping[int, Differing],
    joined: Sequence[Exchange],
) -> set[int]:
    """Ranks whose first differing call was reached by a difference of another rank.

    `tainted` is, for each rank, the first call that may have seen a difference: after the first
    differing call, or at it if its inputs already differ. Exchanges lower it until nothing changes.
    """
    tainted = {rank: at if taken_over[rank] else at + 1 for rank, at in first.items()}
    explained: set[int] = set()
    changed = True
    while changed:
        changed = False
        for exchange in joined:
            carriers = {
                rank
                for rank, at in exchange.sources
                if tainted.get(rank, _NEVER) <= at
                and (measured[rank].input[at] > _PASSES_ON or measured[rank].alone[at])
            }
            for rank, at in exchange.targets:
                if not carriers - {rank}:
                    continue
                own = first.get(rank, _NEVER)
                # A call that gives differing inputs away cannot have them from what it receives;
                # the inputs of one that only receives are buffers.
                gives = taken_over.get(rank, False) and (rank, at) in exchange.sources
                if at < own or (at == own and not gives):
                    explained.add(rank)
                if at < tainted.get(rank, _NEVER):
                    tainted[rank] = at
                    changed = True
    return explained


def _findings(part: Part, measured: Differing, at: int, limit: float) -> list[Finding]:
    """The finding of one rank, after the calls that only the target has and that lead to it."""
    name = part.target.pack.nodes.name[at]
    kind = "communication" if is_communication(name) else "call"
    output, into = float(measured.output[at]), float(measured.input[at])
    row = _worst_row(part, measured, at, (OUTPUT, DEBUG))
    text = f"{part.target.names[row]} is {_off(measured, row)}"
    if into:
        row = _worst_row(part, measured, at, (INPUT, PARAMETERS))
        text += f", {slot_of(part.target.names[row], name)} already {_off(measured, row)}"
    elif kind != "communication":
        text += ", its inputs are the same"
    finding = Finding(part.step, part.rank, name, kind, output, into, text)
    return [*_target_only(part, measured, at, limit), finding]


def _worst_row(part: Part, measured: Differing, at: int, roles: tuple[int, ...]) -> int:
    """The row of a call that differs most, among those of some roles."""
    rows = np.flatnonzero((part.node == at) & np.isin(part.target.index.role, roles))
    return int(rows[measured.error[rows].argmax()])


def _off(measured: Differing, row: int) -> str:
    what, error = measured.measure[row], float(measured.error[row])
    if what in ("check value", "shape"):
        return f"of another {what}"
    if np.isinf(error):
        return f"without a comparable value ({what})"
    return f"off by {percent(error)} ({what})"


def _target_only(part: Part, measured: Differing, at: int, limit: float) -> list[Finding]:
    """Calls that only the target has and whose outputs are the differing inputs of a call."""
    index = part.target.index
    role = index.role
    is_input = (role == INPUT) | (role == PARAMETERS)
    rows = np.flatnonzero((part.node == at) & is_input & (measured.error > limit))
    wanted = {_fingerprint(part, row) for row in rows.tolist()} - {None}
    if not wanted:
        return []
    alone = measured.alone[part.node] & (part.node < at) & (role == OUTPUT)
    makers: dict[object, int] = {}
    for row in np.flatnonzero(alone).tolist():
        makers[_fingerprint(part, row)] = int(part.node[row])  # the last one counts
    nodes = part.target.pack.nodes
    found = sorted({makers[key] for key in wanted if key in makers})
    return [
        Finding(
            part.step,
            part.rank,
            nodes.name[call],
            "target only",
            np.nan,
            np.nan,
            f"{nodes.name[call]} is only in the target and made what {nodes.name[at]} takes",
        )
        for call in found
    ]


def _fingerprint(part: Part, row: int) -> object:
    """Something equal for equal values: the check value or the recorded statistics."""
    if part.mode == CHECKSUM_MODE:
        return part.checksums[0][row]
    numbers = part.target.statistics.number[row]
    return None if np.isnan(numbers).all() else (part.target.shape[row], *numbers.tolist())
