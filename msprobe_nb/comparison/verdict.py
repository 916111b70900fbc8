"""Verdicts: pure functions on what was measured.

The rules are those of the official tool (specification 02, section 5). All rows of one call are
judged together: a rule compares the outputs of a call with its inputs, so that a difference that
only passes through is not marked. Nothing is read here, so judging again with other thresholds is
immediate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.cells import NUMBER, Metric
from msprobe_nb.comparison.kernel_verdict import MISSED, kernel_verdicts
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.comparison.status import UNREADABLE
from msprobe_nb.store.dtypes import canonical
from msprobe_nb.store.index import FLOAT, INT, TEXT, Coded, Values
from msprobe_nb.store.pack import CHECKSUM_MODE, TENSOR_MODE

# In order of severity. The rules of the official tool know pass, warning and error only.
PASS, UNMATCHED, GATED, WARNING, UNREADABLE_ROW, ERROR = range(6)
VERDICTS = ("pass", "unmatched", "gated", "warning", "unreadable", "error")


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason to mark a row.

    Attributes
    ----------
    name : str
    level : int
        ``WARNING`` or ``ERROR``.
    text : str
        What the official files say.
    """

    name: str
    level: int
    text: str


RULES = (
    Rule("unreadable", ERROR, "The data of NPU or Bench could not be read."),
    Rule("inf_nan", ERROR, "There is nan/inf/-inf in the maximum or minimum value of NPU."),
    Rule("norm_error", ERROR, "The NormRelativeErr of output is greater than 0.5."),
    Rule(
        "thousandth",
        ERROR,
        "The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6.",
    ),
    Rule("requires_grad", ERROR, "The Required_Grad of NPU and Bench are inconsistent"),
    Rule("scalar", ERROR, "The scalar parameters of NPU and Bench are inconsistent."),
    Rule("dtype", ERROR, "The dtype of NPU and Bench are inconsistent."),
    Rule("shape", ERROR, "The shape of NPU and Bench are inconsistent."),
    Rule("norm_ratio", WARNING, "The norm relative error of output is 10 times that of input."),
    Rule(
        "cosine",
        WARNING,
        "The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1",
    ),
    Rule("checksum", ERROR, "The CRC-32 value of NPU differs from that of the bench."),
    Rule("checksum_unmatched", WARNING, "The parameter of NPU does not match the bench."),
    Rule("kernel", ERROR, "Accuracy is not reached."),
)
BIT = {rule.name: 1 << at for at, rule in enumerate(RULES)}

# Calls that are not judged at all, and calls of which only the outputs are (by bare API name).
UNJUDGED = frozenset(
    {"empty", "empty_like", "numpy", "to", "__setitem__", "empty_with_format"}
    | {"new_empty_strided", "new_empty", "empty_strided"}
)
OUTPUTS_ONLY = frozenset(
    {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"}
)
_MERGED_WEIGHTS = ("qkv", "gate_up")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The numbers in the rules; relative errors are fractions.

    Attributes
    ----------
    norm_input, norm_output : float
        Statistics: an output whose norm is off by more than `norm_output` is an error if no input
        is off by `norm_input` or more.
    norm_ratio, norm_output_alone : float
        Statistics: a warning if the largest output error is more than `norm_ratio` times the
        largest input error, or above `norm_output_alone` when the inputs are exact.
    thousandth_input, thousandth_output : float
        Tensors: an error if in every input more than `thousandth_input` of the elements are
        within 1/1000 and in some output fewer than `thousandth_output`.
    cosine_input, cosine_drop : float
        Tensors: a warning if the inputs' cosine is above `cosine_input` and an output's is lower
        by more than `cosine_drop`.
    rounding : float
        Evidence: the rounding that is expected of a call is multiplied by this.
    gain : float
        Evidence: a call may amplify the deviation it was given so many times before it counts as
        an origin itself.
    noise : float
        Evidence: a deviation up to so many times that between two golden runs is noise.
    drift : float
        Evidence: products may deviate by so many roundings of a reduced precision and count as
        drift, if other products do, too.
    """

    norm_input: float = 0.1
    norm_output: float = 0.5
    norm_ratio: float = 10.0
    norm_output_alone: float = 0.1
    thousandth_input: float = 0.9
    thousandth_output: float = 0.1
    cosine_input: float = 0.9
    cosine_drop: float = 0.1
    rounding: float = 1.0
    gain: float = 100.0
    noise: float = 3.0
    drift: float = 4.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts of one part.

    Attributes
    ----------
    rules : ndarray of uint16, shape (n,)
        Bits of the rules that fired, see ``BIT``.
    level : ndarray of uint8, shape (n,)
        ``PASS``, ``WARNING`` or ``ERROR``.
    """

    rules: np.ndarray
    level: np.ndarray

    by_rules: ClassVar[bool] = True  # whether the official rules gave the levels

    def reason(self, row: int) -> str:
        """What the verdict rests on besides the rules; empty for nothing."""
        return ""


def judge(part: Part, thresholds: Thresholds | None = None) -> Judgement:
    """Judge all rows of a part."""
    limits = thresholds or Thresholds()
    rules = np.zeros(len(part), np.uint16)
    scope = _scope(part)
    if part.mode == CHECKSUM_MODE:
        _judge_checksums(part, rules, scope)
    else:
        _mark(rules, scope.any, "inf_nan", _overflows(part))
        _judge_facts(part, rules, scope)
        if part.mode == TENSOR_MODE:
            _judge_tensors(part, rules, limits, scope)
        else:
            _judge_statistics(part, rules, limits, scope)
    if part.target.pack.is_kernel:
        _mark(rules, scope.any, "kernel", kernel_verdicts(part) == MISSED)
    rules[part.status == UNREADABLE] |= BIT["unreadable"]
    level = np.zeros(len(part), np.uint8)
    for rule in RULES:
        fired = (rules & BIT[rule.name]) != 0
        level[fired] = np.maximum(level[fired], rule.level)
    return Judgement(rules, level)


def _mark(rules: np.ndarray, where: np.ndarray, name: str, condition: np.ndarray) -> None:
    rules[where & condition] |= BIT[name]


@dataclass(frozen=True, slots=True)
class _Scope:
    """Which rows the rules look at.

    All judged rows, the inputs among them, and the outputs that are set against inputs.
    """

    any: np.ndarray
    inputs: np.ndarray
    outputs: np.ndarray


def _scope(part: Part) -> _Scope:
    output, parsed = part.is_output, part.target.pack.nodes.parsed
    with_inputs = np.zeros(len(parsed), bool)
    with_inputs[part.node[~output]] = True
    exempt = np.zeros(len(parsed), np.uint8)
    for at in np.flatnonzero(with_inputs).tolist():
        if parsed[at].kind != "module":
            api = names.api_of(parsed[at].name)
            exempt[at] = 2 if api in UNJUDGED else 1 if api in OUTPUTS_ONLY else 0
    level = exempt[part.node]
    inputs = ~output & (level == 0)
    return _Scope(inputs | (output & (level < 2)), inputs, output & (level == 0))


def _overflows(part: Part) -> np.ndarray:
    """Target max or min not finite where golden's both are (or golden is missing)."""
    ours, theirs = _not_finite(part.target.statistics), _not_finite(part.golden_statistics)
    return np.any(ours[:, :2], axis=1) & ~np.any(theirs[:, :2], axis=1)


def _not_finite(values: Values) -> np.ndarray:
    odd = ((values.kind == FLOAT) | (values.kind == INT)) & ~np.isfinite(values.number)
    for at, value in values.exact.items():
        if values.kind.flat[at] == TEXT and str(value).strip().lower() in ("inf", "-inf", "nan"):
            odd.flat[at] = True
    return odd


def _judge_facts(part: Part, rules: np.ndarray, scope: _Scope) -> None:
    """The rules on dtype, shape, requires_grad and scalar arguments."""
    rows = np.flatnonzero(part.matched)
    partner = part.pairs.golden[rows]
    target, golden = part.target, part.golden

    def differs(name: str, meaning: Callable[[str], str] = str) -> np.ndarray:
        ours, theirs = getattr(target, name), getattr(golden, name)
        joint = Coded.of([meaning(text) for text in (*ours.values, *theirs.values)]).codes
        code, other = joint[: len(ours.values)], joint[len(ours.values) :]
        unequal = np.zeros(len(part), bool)
        unequal[rows] = code[ours.codes[rows]] != other[theirs.codes[partner]]
        return unequal

    across = part.across_frameworks
    grad = differs("requires_grad")
    if across:  # MindSpore records none
        grad[rows] &= _known(target.requires_grad)[rows] & _known(golden.requires_grad)[partner]
    _mark(rules, scope.any, "requires_grad", grad)
    _mark(rules, scope.any, "shape", differs("shape"))
    unequal = differs("dtype", canonical if across else str)
    for row in np.flatnonzero(unequal).tolist():
        name = golden.names[part.pairs.golden[row]]
        unequal[row] = not any(word in name for word in _MERGED_WEIGHTS)
    _mark(rules, scope.any, "dtype", unequal)
    _mark(rules, scope.inputs, "scalar", _changed_scalars(part, scope))


def _known(column: Coded) -> np.ndarray:
    """Which rows of a shown column say something."""
    return np.array([text != NOT_AVAILABLE for text in column.values], bool)[column.codes]


def _changed_scalars(part: Part, scope: _Scope) -> np.ndarray:
    """Arguments that are no tensors and differ in value."""
    target, golden = part.target, part.golden
    rows = np.flatnonzero(part.matched)
    partner = part.pairs.golden[rows]
    plain = np.array(["class" in text for text in target.dtype.values], bool)[target.dtype.codes]
    theirs_plain = np.array(["class" in text for text in golden.dtype.values], bool)
    plain[rows] &= theirs_plain[golden.dtype.codes[partner]]
    empty = np.array([text == "[]" for text in target.shape.values], bool)[target.shape.codes]
    changed = np.zeros(len(part), bool)
    ours, theirs = target.statistics, part.golden_statistics
    scalars = plain & empty & part.matched & scope.inputs
    alike = (ours.number[:, 0] == theirs.number[:, 0]) & (ours.kind[:, 0] == theirs.kind[:, 0])
    for row in np.flatnonzero(scalars & ~alike).tolist():
        changed[row] = not _same(ours.item(row, 0), theirs.item(row, 0))
    return changed


def _same(ours: object, theirs: object) -> bool:
    return ours == theirs or (ours != ours and theirs != theirs)


def _group(
    part: Part, rows: np.ndarray, values: np.ndarray, start: float, worst: np.ufunc
) -> np.ndarray:
    """The worst value of each call over some of its rows; `start` where it has none."""
    found = np.full(len(part.target.pack.nodes), start)
    worst.at(found, part.node[rows], values[rows])
    return found


def _first_outputs(part: Part) -> np.ndarray:
    """The first output row of each call."""
    rows = np.flatnonzero(part.is_output)
    _, first = np.unique(part.node[rows], return_index=True)
    mark = np.zeros(len(part), bool)
    mark[rows[first]] = True
    return mark


def norm_errors(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """For each call: the largest relative norm error (fraction) of its inputs and outputs."""
    metric = part.metrics["NormRelativeErr"]
    error = np.abs(metric.value())
    numbers = metric.mark == NUMBER
    return (
        _group(part, ~part.is_output & numbers, error, 0.0, np.maximum),
        _group(part, part.is_output & numbers, error, 0.0, np.maximum),
    )


def _judge_statistics(part: Part, rules: np.ndarray, limits: Thresholds, scope: _Scope) -> None:
    into, out = norm_errors(part)
    error = np.abs(part.metrics["NormRelativeErr"].value())
    exact_inputs = into[part.node] < limits.norm_input
    _mark(rules, scope.outputs, "norm_error", exact_inputs & (error > limits.norm_output))
    with np.errstate(all="ignore"):
        ratio = out / into
    grown = np.where(into == 0, out > limits.norm_output_alone, ratio > limits.norm_ratio)
    _mark(rules, scope.outputs & _first_outputs(part), "norm_ratio", grown[part.node])


def worst_of(part: Part, metric: Metric) -> tuple[np.ndarray, np.ndarray]:
    """For each call: the smallest value of a metric, over its inputs and over its outputs.

    1 where there is none.
    """
    numbers, value = metric.mark == NUMBER, metric.value()
    return (
        _group(part, ~part.is_output & numbers, value, 1.0, np.minimum),
        _group(part, part.is_output & numbers, value, 1.0, np.minimum),
    )


def _judge_tensors(part: Part, rules: np.ndarray, limits: Thresholds, scope: _Scope) -> None:
    first = scope.outputs & _first_outputs(part)
    into, out = worst_of(part, part.metrics["One Thousandth Err Ratio"])
    lost = (into > limits.thousandth_input) & (out < limits.thousandth_output)
    _mark(rules, first, "thousandth", lost[part.node])
    into, out = worst_of(part, part.metrics["Cosine"])
    turned = (into > limits.cosine_input) & (into - out > limits.cosine_drop)
    _mark(rules, first, "cosine", turned[part.node])


def _judge_checksums(part: Part, rules: np.ndarray, scope: _Scope) -> None:
    ours, theirs = (np.array(side, object) for side in part.checksums)
    unequal = ours != theirs
    missing = np.isin(ours, [NOT_AVAILABLE, "nan", ""]) | np.isin(
        theirs, [NOT_AVAILABLE, "nan", ""]
    )
    _mark(rules, scope.any, "checksum", unequal & ~missing)
    _mark(rules, scope.any, "checksum_unmatched", unequal & missing)
