"""Which calls differ, for the search of the first difference.

A verdict compares the outputs of a call with its inputs; here only the size of a difference
counts. It is measured against the size of the tensor, not of the statistic: a mean near zero, or
the smallest of values that reach far up, may change by any factor without meaning anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison import statistics
from msprobe_nb.comparison.cells import NOT_AVAILABLE as NO_PARTNER
from msprobe_nb.comparison.cells import NUMBER, SAME
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.comparison.status import COMPARED, NON_FINITE, SHAPE, UNMATCHED
from msprobe_nb.comparison.tensors import RELATIVE_L2
from msprobe_nb.store.index import DEBUG, INPUT, OUTPUT, PARAMETERS, STATISTICS
from msprobe_nb.store.pack import CHECKSUM_MODE, TENSOR_MODE

_NOISE = 1e-5  # of the inputs' largest value: results that cancel out leave this much behind
# Outputs that are no results: the state of the random generator of a fused attention.
_NO_RESULTS = {"npu_fusion_attention": (4, 5)}
_FILLED_LATER = ("empty", "new_empty", "fill")  # calls whose values are chance, or a constant


@dataclass(frozen=True, slots=True)
class Differing:
    """How much the rows and calls of one part differ.

    Attributes
    ----------
    error : ndarray of float64, shape (rows,)
        Size of the difference relative to the golden tensor; infinite for differing check
        values, shapes, and NaN or infinity on one side only; 0 where nothing was compared.
    measure : list of str
        What was off by that much, for each row.
    output, input : ndarray of float64, shape (calls,)
        The largest error among the outputs, and among inputs and parameters.
    alone : ndarray of bool, shape (calls,)
        Whether only the target has the call.
    """

    error: np.ndarray
    measure: list[str]
    output: np.ndarray
    input: np.ndarray
    alone: np.ndarray


def differing(part: Part) -> Differing:
    """Measure the calls of a part; in tensor mode by their data, else by what was recorded."""
    if part.mode == CHECKSUM_MODE:
        error, measure = _checksum_errors(part), ["check value"] * len(part)
    else:
        error, measure = _statistic_errors(part)
        if part.mode == TENSOR_MODE:
            _use_data(part, error, measure)
        _add_shapes(part, error, measure)
    role = part.target.index.role
    is_output = (role == OUTPUT) | (role == DEBUG)
    is_output &= ~_no_results(part)
    calls = len(part.target.pack.nodes)
    output, into, matched = np.zeros(calls), np.zeros(calls), np.zeros(calls, bool)
    np.maximum.at(output, part.node[is_output], error[is_output])
    is_input = (role == INPUT) | (role == PARAMETERS)
    np.maximum.at(into, part.node[is_input], error[is_input])
    output[_unjudged(part)] = 0
    matched[part.node[part.status != UNMATCHED]] = True
    has_rows = np.bincount(part.node, minlength=calls) > 0
    return Differing(error, measure, output, into, has_rows & ~matched)


def _checksum_errors(part: Part) -> np.ndarray:
    ours, theirs = (np.array(side, object) for side in part.checksums)
    missing = (ours == NOT_AVAILABLE) | (theirs == NOT_AVAILABLE)
    return np.where((ours != theirs) & ~missing & part.matched, np.inf, 0.0)


def _statistic_errors(part: Part) -> tuple[np.ndarray, list[str]]:
    """The largest difference of the four statistics, each relative to its scale."""
    found = statistics.compare_statistics(part.target.statistics, part.golden_statistics)
    metrics = [found[name] for name in statistics.DIFFERENCES]
    number = np.abs(np.stack([metric.number for metric in metrics], axis=1))
    mark = np.stack([metric.mark for metric in metrics], axis=1)
    with np.errstate(all="ignore"):
        error = number / _scales(part)
    error[(mark == NUMBER) & (number == 0)] = 0
    error[mark != NUMBER] = np.inf
    error[(mark == SAME) | (mark == NO_PARTNER)] = 0
    worst = error.argmax(axis=1) if len(error) else np.zeros(0, np.int64)
    return error.max(axis=1, initial=0.0), [STATISTICS[at] for at in worst.tolist()]


def _scales(part: Part) -> np.ndarray:
    """The size of each golden statistic that a difference is measured against, shape (n, 4).

    Largest absolute value for max and min; root mean square for the mean; the norm for the norm.
    """
    golden = np.nan_to_num(np.abs(part.golden_statistics.number), posinf=0.0)
    shapes = part.target.index.shape
    sizes = [float(np.prod(shape, dtype=object)) if shape else 1.0 for shape in shapes.values]
    root = np.sqrt(np.maximum(np.array(sizes, np.float64), 1.0))[shapes.codes]
    peak = golden[:, :2].max(axis=1, initial=0.0)
    into = np.zeros(len(part.target.pack.nodes))
    role = part.target.index.role
    is_input = (role == INPUT) | (role == PARAMETERS)
    np.maximum.at(into, part.node[is_input], peak[is_input])
    noise = _NOISE * into[part.node]
    typical = np.maximum(golden[:, 3] / root, golden[:, 2])
    scales = np.stack([peak, peak, typical, golden[:, 3]], axis=1)
    return np.maximum(scales, np.stack([noise, noise, noise, noise * root], axis=1))


def _use_data(part: Part, error: np.ndarray, measure: list[str]) -> None:
    """Replace errors by those of the data, where data were compared."""
    metric = part.metrics[RELATIVE_L2]
    value = metric.value()
    known = (part.status == COMPARED) & (metric.mark == NUMBER) & np.isfinite(value)
    error[known] = value[known]
    error[part.status == NON_FINITE] = np.inf
    for row in np.flatnonzero(known).tolist():
        measure[row] = "data"
    for row in np.flatnonzero(part.status == NON_FINITE).tolist():
        measure[row] = "NaN or infinity"


def _add_shapes(part: Part, error: np.ndarray, measure: list[str]) -> None:
    rows = np.flatnonzero(part.matched)
    ours, theirs = part.target.shape, part.golden.shape
    shared = {text: code for code, text in enumerate(ours.values)}
    translate = np.array([shared.get(text, -1) for text in theirs.values], np.int64)
    if len(rows):
        unequal = ours.codes[rows] != translate[theirs.codes[part.pairs.golden[rows]]]
        rows = rows[unequal | (part.status[rows] == SHAPE)]
    error[rows] = np.inf
    for row in rows.tolist():
        measure[row] = "shape"


def _no_results(part: Part) -> np.ndarray:
    """Outputs of some calls that are no results."""
    marked = np.zeros(len(part), bool)
    nodes = part.target.pack.nodes
    for at, parsed in enumerate(nodes.parsed):
        ignored = _NO_RESULTS.get(names.api_of(parsed.name))
        if ignored:
            rows = np.flatnonzero((part.node == at) & part.is_output)
            marked[[rows[place] for place in ignored if place < len(rows)]] = True
    return marked


def _unjudged(part: Part) -> np.ndarray:
    found = []
    for parsed in part.target.pack.nodes.parsed:
        api = names.api_of(parsed.name)
        plain = parsed.kind != "module"
        found.append(plain and (api == "__setitem__" or api.startswith(_FILLED_LATER)))
    return np.array(found, bool)
