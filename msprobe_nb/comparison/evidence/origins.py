"""Where it began: the candidates of all steps and ranks, in order of likelihood.

Candidates of one step are ordered so that the earliest of those that matter comes first: one
matters when it causes at least a thirtieth of the largest deviation among those still to be
ordered. What another rank sends, and what an earlier step left in the weights, is no origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.evidence.calls import Calls
from msprobe_nb.comparison.evidence.candidates import Candidate, candidates_of
from msprobe_nb.comparison.evidence.deviation import Deviations
from msprobe_nb.comparison.evidence.drift import Drift, flushed_rows, recognise, split_drift
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.verdict import Thresholds
from msprobe_nb.text import percent, plural

_MATTERS = 1 / 30
_SAME_SIZE = 30  # parameters that deviate by sizes within this factor differ for one reason
_NEW_IN_A_LATER_STEP = ("argument", "dtype", "shape", "unmatched", "overflow")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the evidence of one part amounts to.

    Attributes
    ----------
    calls : Calls
    origins : list of Candidate
        In order of likelihood within the part.
    drift : list of Drift
    """

    calls: Calls
    origins: list[Candidate]
    drift: list[Drift]


def weigh(
    parts: Sequence[Part],
    deviations: Sequence[Deviations],
    limits: Thresholds,
    noise: Sequence[np.ndarray | None],
) -> list[Evidence]:
    """Find the origins in all parts.

    Parameters
    ----------
    parts : sequence of Part
    deviations : sequence of Deviations
    limits : Thresholds
    noise : sequence of (ndarray or None)
        For each part the deviation of its rows between two golden runs.
    """
    measured = [
        Calls(part, rows, limits, floor)
        for part, rows, floor in zip(parts, deviations, noise, strict=True)
    ]
    found: dict[int, tuple[list[Candidate], list[Drift]]] = {}
    inherited, wrong = 0.0, False
    known: set[tuple[int, str, str]] = set()
    for step in sorted({part.step for part in parts}):
        here = [at for at, part in enumerate(parts) if part.step == step]
        for at in here:
            kept, drift = split_drift(measured[at], candidates_of(measured[at], inherited))
            if wrong:
                kept = [c for c in kept if c.kind in _NEW_IN_A_LATER_STEP]
                kept = [c for c in kept if (parts[at].rank, c.name, c.kind) not in known]
            found[at] = kept, drift
        if wrong or len(here) > 1:
            _drop_received(measured, {at: found[at][0] for at in here})
        for at in here:
            known |= {(parts[at].rank, c.name, c.kind) for c in found[at][0]}
            if not wrong and not found[at][0] and not found[at][1]:
                found[at][1].extend(recognise(measured[at]))
            if flushed_rows(measured[at]).any():
                found[at][1].append(_flushed(measured[at]))
        wrong = wrong or any(found[at][0] for at in here)
        inherited = max([inherited, *(_gradients(measured[at]) for at in here)])
    return [
        Evidence(calls, ordered(_grouped(calls, found[at][0])), found[at][1])
        for at, calls in enumerate(measured)
    ]


def _flushed(calls: Calls) -> Drift:
    count = int(flushed_rows(calls).sum())
    return Drift(
        "flush to zero",
        f"{plural(count, 'value')} below the smallest normal number on one side "
        f"{'is' if count == 1 else 'are'} 0 on the other",
    )


def _gradients(calls: Calls) -> float:
    """The largest deviation of a gradient: what the next step's weights inherit."""
    backward = (calls.phase == names.BACKWARD) | (calls.phase == names.PARAMETERS_GRAD)
    if not backward.any():  # recorded forward only; any difference may reach the weights
        return float(np.max(calls.results, initial=0.0))
    return float(np.max(calls.results[backward], initial=0.0))


def _drop_received(measured: list[Calls], found: dict[int, list[Candidate]]) -> None:
    """Drop what another rank sent that was wrong before.

    Communication is not always recorded (the gradients of data parallel training are summed inside
    the framework), so any value that is wrong without a cause on its own rank may have been sent.
    """

    def sends(at: int, candidate: Candidate) -> bool:
        parsed = measured[at].part.target.pack.nodes.parsed
        return candidate.node >= 0 and parsed[candidate.node].kind == "communication"

    for at, candidates in found.items():
        others = [
            c for other, own in found.items() if other != at for c in own if not sends(other, c)
        ]
        candidates[:] = [c for c in candidates if not _received(c, sends(at, c), others)]


def _received(candidate: Candidate, sends: bool, others: Sequence[Candidate]) -> bool:
    """Whether a candidate may be what another rank sent."""
    if sends and candidate.kind in ("output", "overflow", "shape"):
        return bool(others)
    first = min((c.start for c in others), default=np.inf)
    return candidate.kind in ("input", "gradient") and candidate.order > first


def _grouped(calls: Calls, found: list[Candidate]) -> list[Candidate]:
    """Candidates that differ for one reason: the first stands for all.

    Parameters or dtypes that differ alike in most modules (another checkpoint, another precision),
    and one argument that changed in the same way in many calls (a learning rate).
    """
    total = len(np.unique(calls.part.node[calls.is_parameter]))
    for kind in ("parameter", "dtype"):
        members = [c for c in found if c.kind == kind]
        if len(members) >= 4 and 2 * len(members) >= total:
            middle = float(np.median([c.weight for c in members]))
            found = _merged(found, [c for c in members if c.weight <= _SAME_SIZE * middle])
    arguments: dict[tuple[str, str], list[Candidate]] = {}
    for c in found:
        if c.kind == "argument":
            arguments.setdefault((names.parse(c.name).stem, c.sentence), []).append(c)
    for members in arguments.values():
        found = _merged(found, members)
    return found


def _merged(found: list[Candidate], alike: list[Candidate]) -> list[Candidate]:
    """Let the first of some candidates stand for all of them."""
    first, rest = alike[0], alike[1:]
    if not rest:
        return found
    note = f"; {'so does' if len(rest) == 1 else 'so do'} {plural(len(rest), 'more call')}"
    if first.kind == "parameter":
        note += f", by up to {percent(max(c.weight for c in alike))}"
    if first.kind == "argument":
        note = f"; the same in {plural(len(rest), 'more call')}"
    gone = {id(c) for c in rest}
    weight = max(c.weight for c in alike) if first.kind == "argument" else first.weight
    one = replace(first, sentence=first.sentence + note, weight=weight)
    return [one if c is first else c for c in found if id(c) not in gone]


def ordered(found: Sequence[Candidate]) -> list[Candidate]:
    """Order candidates by likelihood, see the module's text."""
    rest = sorted(found, key=lambda c: c.order)
    ranked: list[Candidate] = []
    while rest:
        limit = max(c.weight for c in rest) * _MATTERS
        at = next(at for at, c in enumerate(rest) if c.weight >= limit)
        ranked.append(rest.pop(at))
    return ranked
