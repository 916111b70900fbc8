"""Comparing recorded statistics: differences and relative errors of max, min, mean and norm.

Formulas and special cases follow the table of the official tool (specification 02, section 4.1),
with one correction: zeros of either sign and of either number type are equal.
"""

from __future__ import annotations

import numpy as np

from msprobe_nb.comparison.cells import (
    DIFFERENT,
    INFINITE,
    MARK_TEXTS,
    NAN,
    NEGATIVE_INFINITE,
    NOT_AVAILABLE,
    NUMBER,
    SAME,
    Metric,
)
from msprobe_nb.store.index import ABSENT, BOOL, FLOAT, INT, NONE, TEXT, Values

DIFFERENCES = ("Max diff", "Min diff", "Mean diff", "L2norm diff")
RELATIVE_ERRORS = ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")
COLUMNS = (*DIFFERENCES, *RELATIVE_ERRORS)
_NUM, _NAN, _INF, _NEG, _OTHER, _DEVICE, _NA = range(7)
_DEVICES = ("npu", "cpu", "cuda")


def _rule_table() -> np.ndarray:
    """Mark for each (class of target, class of golden) of unequal values."""
    table = np.full((7, 7), DIFFERENT, np.uint8)
    table[_NUM, _NUM] = NUMBER
    numeric = [_NUM, _NAN, _INF, _NEG]
    table[_NAN, numeric] = NAN
    table[numeric, _NAN] = NAN
    table[_INF, [_NUM, _NEG]] = INFINITE
    table[_NEG, [_NUM, _INF]] = NEGATIVE_INFINITE
    table[_NUM, _INF], table[_NUM, _NEG] = NEGATIVE_INFINITE, INFINITE
    table[_DEVICE, _DEVICE] = NOT_AVAILABLE
    table[_NA, :] = table[:, _NA] = NOT_AVAILABLE
    return table


_RULES = _rule_table()


def compare_statistics(target: Values, golden: Values) -> dict[str, Metric]:
    """Difference and relative error of each statistic.

    Parameters
    ----------
    target, golden : Values, shape (n, 4)
        Shown statistics (max, min, mean, norm) of matched rows; absent golden rows give ``N/A``.

    Returns
    -------
    dict of str to Metric
        ``Max diff`` ... ``L2norm diff`` (target minus golden) and ``MaxRelativeErr`` ...
        ``NormRelativeErr`` (percent of the golden value; infinite for a golden zero).
    """
    ours, our_class = _classify(target)
    theirs, their_class = _classify(golden)
    same = _equal(target, golden, ours, theirs)
    mark = np.where(same, SAME, _RULES[our_class, their_class])
    mark[golden.kind == ABSENT] = NOT_AVAILABLE
    with np.errstate(all="ignore"):
        difference = ours - theirs
        relative = np.abs(difference / theirs * 100)
    relative_mark = np.where((mark == NUMBER) & (theirs == 0), INFINITE, mark)
    columns: dict[str, Metric] = {}
    for at, name in enumerate(DIFFERENCES):
        columns[name] = Metric(difference[:, at], mark[:, at].astype(np.uint8))
    for at, name in enumerate(RELATIVE_ERRORS):
        columns[name] = Metric(relative[:, at], relative_mark[:, at].astype(np.uint8), percent=True)
    return columns


def _classify(values: Values) -> tuple[np.ndarray, np.ndarray]:
    """The values as numbers and their classes; a text that spells a number counts as one."""
    number, kind = values.number, values.kind
    classes = np.full(number.shape, _OTHER, np.uint8)
    numeric = (kind == FLOAT) | (kind == INT)
    classes[numeric] = _NUM
    classes[numeric & np.isnan(number)] = _NAN
    classes[numeric & (number == np.inf)] = _INF
    classes[numeric & (number == -np.inf)] = _NEG
    classes[kind == ABSENT] = _NA
    texts = {at: v for at, v in values.exact.items() if kind.flat[at] == TEXT}
    if texts:
        number = number.copy()
        for at, value in texts.items():
            text = str(value)
            number.flat[at], classes.flat[at] = _classify_text(text)
    return number, classes


def _classify_text(text: str) -> tuple[float, int]:
    if text == MARK_TEXTS[NOT_AVAILABLE]:
        return np.nan, _NA
    try:
        number = float(text)
    except ValueError:
        lower = text.lower()
        return np.nan, _DEVICE if any(device in lower for device in _DEVICES) else _OTHER
    if np.isnan(number):
        return number, _NAN
    if np.isinf(number):
        return number, _INF if number > 0 else _NEG
    return number, _NUM


def _equal(target: Values, golden: Values, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Which values are the same: numbers by value, everything else by text."""
    numeric = ((target.kind == FLOAT) | (target.kind == INT)) & (
        (golden.kind == FLOAT) | (golden.kind == INT)
    )
    # An integer and a float of equal value show a difference of 0.0, two equal zeros none at all.
    one_kind = (target.kind == golden.kind) | (theirs == 0)
    same = numeric & one_kind & ((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    same |= (target.kind == BOOL) & (golden.kind == BOOL) & (target.number == golden.number)
    same |= (target.kind == NONE) & (golden.kind == NONE)
    width = target.number.shape[1]
    for at in {*target.exact, *golden.exact}:
        row, column = divmod(at, width)
        if golden.kind[row, column] != ABSENT:
            same[row, column] = str(target.item(row, column)) == str(golden.item(row, column))
    return same
