"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from msprobe_nb.text import percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0%"), (0.00136, "0.136%"), (0.5, "50%"), (4.8, "480%"), (17.8, "1,780%")),
        *((12345.6, "1,234,560%"), (1e9, "1e+11%"), (math.nan, "nan"), (-0.25, "-25%")),
    ],
)
def test_percent(value, text):
    assert percent(value) == text
