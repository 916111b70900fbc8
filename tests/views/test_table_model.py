"""Filtering, sorting and paging against what pandas gives."""

from __future__ import annotations

import math
import operator
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_nb.views.table_model import Column, TableModel

TEXTS = st.sampled_from(["conv1", "Conv2", "layer.weight", "a|b", "", "*", None, "\u5c42.0"])
NUMBERS = st.floats(-10, 10) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0])


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(0, 25))
    return pd.DataFrame(
        {
            "name": pd.Series(draw(st.lists(TEXTS, min_size=rows, max_size=rows)), dtype=object),
            "error": np.array(draw(st.lists(NUMBERS, min_size=rows, max_size=rows)), float),
            "rank": np.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), int),
        }
    )


def model_of(frame: pd.DataFrame) -> TableModel:
    columns = [Column("name", "text"), Column("error", "fraction"), Column("rank", "integer")]
    return TableModel(frame, columns)


def view(frame: pd.DataFrame, sort=(), choices=None, **filters: str) -> list[int]:
    model = model_of(frame)
    model.apply(filters, sort, choices)
    assert not model.faults
    return model.view.tolist()


def where(frame: pd.DataFrame, mask) -> list[int]:
    return np.flatnonzero(np.asarray(mask, bool)).tolist()


@given(frames(), st.sampled_from(["c", "CONV", "layer.w", "|", "*", "\u5c42"]))
def test_text_contains_without_regard_to_case(frame, part):
    texts = frame["name"].fillna("").astype(str)
    hits = [part.lower() in text.lower() for text in texts]
    assert view(frame, name=part) == where(frame, hits)
    assert view(frame, name="!" + part) == where(frame, [not hit for hit in hits])


@given(frames(), st.sampled_from(["^conv", r"\d$", "a.b", "(?i)CONV", "^$"]))
def test_regular_expressions(frame, pattern):
    hits = [re.search(pattern, text) is not None for text in frame["name"].fillna("").astype(str)]
    assert view(frame, name=f"/{pattern}/") == where(frame, hits)


OPERATORS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}


@given(frames(), st.sampled_from(list(OPERATORS)), st.floats(-10, 10))
def test_numeric_conditions(frame, sign, limit):
    expected = where(frame, OPERATORS[sign](frame["error"].to_numpy(), limit))
    assert view(frame, error=f"{sign}{limit!r}") == expected
    assert view(frame, error=f"{sign}{limit * 100!r}%") == where(
        frame, OPERATORS[sign](frame["error"].to_numpy(), limit * 100 / 100)
    )


@given(frames(), st.floats(-5, 5), st.floats(-5, 5))
def test_several_conditions_and_ranges(frame, low, high):
    error = frame["error"].to_numpy()
    assert view(frame, error=f">={low!r} <{high!r}") == where(
        frame, (error >= low) & (error < high)
    )
    assert view(frame, error=f"{low!r}..{high!r}") == where(frame, (error >= low) & (error <= high))
    assert view(frame, error=f"..{high!r}") == where(frame, error <= high)


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("nan", np.isnan),
        ("!nan", lambda x: ~np.isnan(x)),
        ("inf", np.isinf),
        ("+inf", lambda x: x == np.inf),
        ("-inf", lambda x: x == -np.inf),
        ("!inf", lambda x: ~np.isinf(x)),
        ("!nan !inf", np.isfinite),
    ],
)
@given(frames())
def test_nan_and_infinity(text, test, frame):
    assert view(frame, error=text) == where(frame, test(frame["error"].to_numpy()))


@given(frames(), st.booleans(), st.booleans())
def test_sorting_by_several_columns_with_missing_values_last(frame, first_down, second_down):
    sort = [
        ("rank", "desc" if first_down else "asc"),
        ("error", "desc" if second_down else "asc"),
    ]
    expected = frame.reset_index().sort_values(
        ["rank", "error"], ascending=[not first_down, not second_down], kind="stable"
    )
    found = frame.iloc[view(frame, sort)]
    for name in ("rank", "error"):
        np.testing.assert_array_equal(found[name].to_numpy(), expected[name].to_numpy())
    assert sorted(view(frame, sort)) == list(range(len(frame)))


@given(frames(), st.booleans())
def test_sorting_texts(frame, down):
    found = frame["name"].iloc[view(frame, [("name", "desc" if down else "asc")])].tolist()
    texts = [text for text in found if text is not None]
    assert texts == sorted(texts, reverse=down)
    assert all(text is None for text in found[len(texts) :])


@given(frames(), st.sets(st.sampled_from(["conv1", "a|b", "other"])))
def test_choices_of_texts(frame, wanted):
    expected = where(frame, frame["name"].isin(wanted)) if wanted else list(range(len(frame)))
    assert view(frame, choices={"name": list(wanted)}) == expected


@given(frames(), st.integers(0, 30), st.integers(0, 30))
def test_pages_are_parts_of_the_view(frame, start, stop):
    model = model_of(frame)
    model.apply({}, [("error", "desc")], {})
    texts, numbers, labels = model.page(start, stop, ["name", "error", "rank"])
    rows = model.view[start:stop]
    assert labels.tolist() == rows.tolist()
    assert texts[0] == ["" if v is None else v for v in frame["name"].iloc[rows].tolist()]
    assert texts[1:] == [None, None]
    np.testing.assert_array_equal(numbers[0], frame["error"].to_numpy()[rows])
    np.testing.assert_array_equal(numbers[1], frame["rank"].to_numpy()[rows])


@pytest.mark.parametrize(
    ("column", "text"), [("name", "/(/"), ("error", ">x"), ("error", "1..y"), ("rank", "five")]
)
def test_a_filter_that_makes_no_sense_is_named_and_left_out(column, text):
    frame = pd.DataFrame({"name": ["a", "b"], "error": [1.0, 2.0], "rank": [0, 1]})
    model = model_of(frame)
    model.apply({column: text, "unknown": "x"})
    assert list(model.faults) == [column]
    assert len(model.view) == 2


def test_a_hostile_regular_expression_cannot_be_had_by_accident():
    """A filter without slashes is plain text, whatever is in it."""
    frame = pd.DataFrame({"name": ["(a+)+$", "b"], "error": [1.0, 2.0], "rank": [0, 1]})
    assert view(frame, name="(a+)+$") == [0]


def test_counts_are_those_of_the_whole_table():
    frame = pd.DataFrame({"name": ["a", "b", None, "a"], "error": [1.0] * 4, "rank": [0] * 4})
    model = model_of(frame)
    model.apply({"name": "b"})
    assert model.counts("name") == {"a": 2, "b": 1}


@pytest.mark.parametrize("text", ["> 1e-3", ">  0.001 <   5", ">1e-3", ">= 0.0011 & != 7"])
def test_blanks_after_a_sign_do_not_count(text):
    frame = pd.DataFrame({"name": ["a", "b"], "error": [0.0, 0.5], "rank": [0, 0]})
    assert view(frame, error=text) == [1]


def test_a_filter_that_is_not_understood_says_which_word():
    frame = pd.DataFrame({"name": ["a"], "error": [0.5], "rank": [0]})
    model = model_of(frame)
    model.apply({"error": "> 1 or < 2"})
    assert model.faults == {"error": "'or' is no number"}
    assert model.view.tolist() == [0]


def test_a_column_may_have_an_order_of_its_own():
    frame = pd.DataFrame({"verdict": ["error", "pass", "odd", "warning", "pass"]})
    ranks = ("pass", "warning", "error")
    model = TableModel(frame, [Column("verdict", "text", ranks=ranks)])
    model.apply({}, [("verdict", "asc")])
    assert frame["verdict"].iloc[model.view].tolist() == [
        *("pass", "pass", "warning", "error", "odd")
    ]
    model.apply({}, [("verdict", "desc")])
    assert frame["verdict"].iloc[model.view].tolist()[1] == "error"
