"""Differences of recorded statistics against the table of the official tool, value by value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER
from msprobe_nb.comparison.statistics import DIFFERENCES, RELATIVE_ERRORS, compare_statistics
from msprobe_nb.store.index import Values


def cell(metric, row: int) -> str:
    if metric.mark[row] != NUMBER:
        return MARK_TEXTS[metric.mark[row]]
    return f"{float(metric.number[row])!r}" + ("%" if metric.percent else "")


def table(values: list[Any]) -> Values:
    """A column that stands for all four statistics."""
    return Values.table([Values.of(values)] * 4)


def ours(target: Any, golden: Any) -> tuple[str, str]:
    """(difference, relative error) as shown."""
    columns = compare_statistics(table([target]), table([golden]))
    texts = {
        (cell(columns[d], 0), cell(columns[r], 0))
        for d, r in zip(DIFFERENCES, RELATIVE_ERRORS, strict=True)
    }
    assert len(texts) == 1  # the four statistics follow one rule
    return texts.pop()


def kind(value: Any) -> str:
    if isinstance(value, str):
        if value.lower() in ("nan", "inf", "-inf"):
            value = float(value)
        else:
            return "device" if any(d in value for d in ("npu", "cpu", "cuda")) else "other"
    if value is None or isinstance(value, bool):
        return "other"
    if math.isnan(value):
        return "NaN"
    return {math.inf: "+inf", -math.inf: "-inf"}.get(value, "number")


def by_definition(target: Any, golden: Any) -> tuple[str, str]:
    """The rule of the table, with zeros of any sign and type equal."""
    zeros = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (target, golden))
    if str(target) == str(golden) or (zeros and target == 0 == golden):
        return "0", "0"
    t, g = kind(target), kind(golden)
    if t == g == "device":
        return "N/A", "N/A"
    if "other" in (t, g) or "device" in (t, g):
        return "Diff", "Diff"
    if t == g == "NaN" or (t == g != "number"):
        return "0", "0"
    if "NaN" in (t, g):
        return "Nan", "Nan"
    if t == g == "number":
        x, y = float(target), float(golden)
        relative = "inf" if y == 0 else f"{abs((x - y) / y * 100)!r}%"
        return f"{x - y!r}", relative
    text = {"+inf": "inf", "-inf": "-inf"}.get(t) or {"+inf": "-inf", "-inf": "inf"}[g]
    return text, text


NUMBERS = st.floats(-1e6, 1e6) | st.integers(-(2**53), 2**53) | st.sampled_from([0, 0.0, -0.0, 1])
VALUES = (
    NUMBERS
    | st.sampled_from([math.nan, math.inf, -math.inf, None, True, False])
    | st.sampled_from(["abc", "npu:0", "cuda:1", "cpu", "", "torch.float32"])
)


@given(VALUES, VALUES)
def test_every_pair_of_values_follows_the_table(target, golden):
    assert ours(target, golden) == by_definition(target, golden)


@given(VALUES)
def test_a_value_equals_itself(value):
    assert ours(value, value) == ("0", "0")


@pytest.mark.parametrize(
    ("target", "golden", "texts"),
    [
        (0.0, -0.0, ("0", "0")),
        (0, 0.0, ("0", "0")),
        (1, 1.0, ("0.0", "0.0%")),
        (1.0, 0, ("1.0", "inf")),
        (2**60 + 1, 2**60, ("0.0", "0.0%")),
        ("nan", math.nan, ("0", "0")),
        ("N/A", 1.0, ("N/A", "N/A")),
        (1.0, "N/A", ("N/A", "N/A")),
        ("N/A", "N/A", ("0", "0")),
    ],
)
def test_values_of_different_types(target, golden, texts):
    assert ours(target, golden) == texts


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20))
def test_whole_columns_give_the_same_as_single_values(found):
    columns = compare_statistics(table([t for t, _ in found]), table([g for _, g in found]))
    for row, (target, golden) in enumerate(found):
        assert cell(columns["Max diff"], row) == ours(target, golden)[0]
        assert cell(columns["NormRelativeErr"], row) == ours(target, golden)[1]


def test_a_missing_golden_row_shows_as_not_available():
    values = table([1.0, 2.0])
    columns = compare_statistics(values, values.take(np.array([0, -1])))
    assert [cell(metric, 1) for metric in columns.values()] == ["N/A"] * 8
    assert np.isnan(columns["Max diff"].value()[1])


def test_relative_errors_are_fractions_in_tables():
    columns = compare_statistics(table([3.0]), table([2.0]))
    assert columns["MaxRelativeErr"].number[0] == 50.0  # percent, as official files show it
    assert columns["MaxRelativeErr"].value()[0] == 0.5
