"""The result call by call: verdicts, how they add up in the module tree, and where it began."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.reasons import Reasons
from msprobe_nb.comparison.result import EVIDENCE
from msprobe_nb.comparison.tensors import RELATIVE_L2
from msprobe_nb.comparison.verdict import BIT, PASS, VERDICTS
from msprobe_nb.store.index import ARGUMENT, DEBUG, INPUT, OUTPUT, PARAMETERS, TENSOR
from msprobe_nb.store.pack import CHECKSUM_MODE, TENSOR_MODE

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.comparison.part import Part
    from msprobe_nb.comparison.result import Comparison, JudgedPart

NODE_COLUMNS = [
    *("step", "rank", "node", "kind", "phase", "verdict", "worst_descendant", "score", "rows"),
]
# The kind of an origin by the rule that marked its row; the others depend on the row's role.
_KIND_OF_RULE = {
    "scalar": "argument",
    "requires_grad": "argument",
    "dtype": "dtype",
    "shape": "shape",
    "checksum_unmatched": "unmatched",
}


def node_levels(judged: JudgedPart) -> np.ndarray:
    """The worst level of each call's rows."""
    worst = np.zeros(len(judged.part.target.pack.nodes), np.uint8)
    np.maximum.at(worst, judged.part.node[judged.rows], judged.level)
    return worst


def node_scores(judged: JudgedPart) -> np.ndarray:
    """The largest relative L2 error of each call's outputs.

    From the data in tensor mode, from the norms in statistics mode; 1 for a differing check value.
    """
    part, rows = judged.part, judged.rows
    if part.mode == CHECKSUM_MODE:
        error = (judged.judgement.rules & BIT["checksum"] != 0).astype(np.float64)
    elif part.mode == TENSOR_MODE:
        error = part.metrics[RELATIVE_L2].value()
    else:
        error = np.abs(part.metrics["NormRelativeErr"].value())
    scores = np.zeros(len(part.target.pack.nodes))
    counted = rows[part.is_output[rows] & ~np.isnan(error[rows])]
    np.maximum.at(scores, part.node[counted], error[counted])
    return scores


def worst_descendants(judged: JudgedPart) -> np.ndarray:
    """For each call the worst level among itself and all calls inside it."""
    nodes = judged.part.target.pack.nodes
    worst = node_levels(judged).copy()
    row_of = {name: row for row, name in enumerate(nodes.name)}
    parent = np.array([row_of.get(nodes.parent[row], -1) for row in range(len(nodes))], np.int64)
    rows = np.arange(len(nodes))
    climbing = parent.copy()
    for _ in range(len(nodes)):  # as many rounds as the tree is deep; a damaged tree may have loops
        up = climbing >= 0
        if not up.any():
            break
        before = worst.copy()
        np.maximum.at(worst, climbing[up], worst[rows[up]])
        if np.array_equal(before, worst):
            break
    return worst


def node_table(comparison: Comparison) -> pd.DataFrame:
    """See :attr:`Comparison.nodes`."""
    import pandas as pd

    frames = []
    for judged in comparison.judged:
        nodes = judged.part.target.pack.nodes
        counts = np.bincount(judged.part.node[judged.rows], minlength=len(nodes))
        frames.append(
            pd.DataFrame(
                {
                    "step": judged.part.step,
                    "rank": judged.part.rank,
                    "node": nodes.name,
                    "kind": [parsed.kind for parsed in nodes.parsed],
                    "phase": [parsed.phase for parsed in nodes.parsed],
                    "verdict": np.array(VERDICTS, object)[node_levels(judged)],
                    "worst_descendant": np.array(VERDICTS, object)[worst_descendants(judged)],
                    "score": node_scores(judged),
                    "rows": counts,
                }
            )
        )
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=NODE_COLUMNS)


class Origin(NamedTuple):
    """A call at which something went wrong: a row of :attr:`Comparison.origins`.

    `sentence` does not name the call again; it begins with the value's place in the call.
    """

    step: int
    rank: int
    node: str
    kind: str
    score: float
    sentence: str


def find_origins(comparison: Comparison) -> list[Origin]:
    """The origins by the evidence rules, or else the marked calls; likeliest first."""
    if comparison.rules == EVIDENCE:
        return _by_evidence(comparison)
    found = [origin for judged in comparison.judged for origin in _origins(judged)]
    return [origin for _, origin in sorted(found, key=lambda pair: pair[0])]


def _by_evidence(comparison: Comparison) -> list[Origin]:
    from msprobe_nb.comparison.evidence.judge import EvidenceJudgement, ranked_origins

    judgements = [judged.judgement for judged in comparison.judged]
    evidence = [j.evidence for j in judgements if isinstance(j, EvidenceJudgement)]
    return [
        Origin(
            comparison.parts[at].step,
            comparison.parts[at].rank,
            found.name,
            found.kind,
            found.weight,
            found.sentence,
        )
        for at, found in ranked_origins(comparison.parts, evidence)
    ]


def origin_table(comparison: Comparison) -> pd.DataFrame:
    """See :attr:`Comparison.origins`."""
    import pandas as pd

    return pd.DataFrame(find_origins(comparison), columns=list(Origin._fields))


def _origins(judged: JudgedPart) -> list[tuple[tuple[int, ...], Origin]]:
    """(sort key, origin) of each marked call.

    Sorted by level; then calls whose tensor inputs are not marked before those that only pass a
    difference on; then by step and order of execution.
    """
    part, rules = judged.part, judged.judgement.rules
    index = part.target.index
    marked = judged.rows[(judged.level > PASS) & (rules[judged.rows] != BIT["unreadable"])]
    if not len(marked):
        return []
    scores, reasons = node_scores(judged), Reasons(judged)
    inputs = marked[(index.role[marked] == INPUT) & (index.kind[marked] == TENSOR)]
    passes_on = np.zeros(len(scores), bool)
    passes_on[part.node[inputs]] = True
    levels = judged.judgement.level
    order = np.lexsort((marked, -levels[marked].astype(int), part.node[marked]))
    nodes, first = np.unique(part.node[marked[order]], return_index=True)
    found: list[tuple[tuple[int, ...], Origin]] = []
    for node, at in zip(nodes.tolist(), first.tolist(), strict=True):
        row = int(marked[order[at]])
        name = part.target.pack.nodes.name[node]
        place = part.target.names[row].removeprefix(f"{name}.")
        sentence = f"{place}: {reasons.of(row)}"
        key = (-int(levels[row]), int(passes_on[node]), part.step, row, part.rank)
        kind = _kind(part, row, int(rules[row]))
        score = float(scores[node])
        found.append((key, Origin(part.step, part.rank, name, kind, score, sentence)))
    return found


def _kind(part: Part, row: int, rules: int) -> str:
    """The kind of an origin, from the first rule that marked its row and the row's role."""
    for rule, kind in _KIND_OF_RULE.items():
        if rules & BIT[rule]:
            return kind
    index = part.target.index
    role = int(index.role[row])
    if index.kind[row] == ARGUMENT:
        return "argument"
    if role == PARAMETERS:
        return "parameter"
    if role not in (OUTPUT, DEBUG):
        return "input" if role == INPUT else "gradient"
    if rules & BIT["inf_nan"]:
        return "overflow"
    phase = part.target.pack.nodes.parsed[int(index.node[row])].phase
    return "gradient" if phase == names.BACKWARD else "output"
