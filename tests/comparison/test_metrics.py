"""The tensor metrics against a plain reading of their definitions, on random arrays."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import LOW, PLAIN, dtype_of

from msprobe_nb.comparison import kernel
from msprobe_nb.comparison.cells import MARK_TEXTS, NUMBER
from msprobe_nb.comparison.status import STATUS_TEXTS
from msprobe_nb.comparison.tensors import COLUMNS, compare_arrays, rounded
from msprobe_nb.errors import TensorReadError

NUMERIC = [name for name in PLAIN + LOW if "complex" not in name]


def compare_one(target: np.ndarray, golden: np.ndarray):
    """(metrics by name, status, note) of one pair; texts where there is no number."""
    block = compare_arrays([target], [golden])
    metrics = {
        name: block.number[0, at] if block.mark[0, at] == NUMBER else MARK_TEXTS[block.mark[0, at]]
        for at, name in enumerate(COLUMNS)
    }
    return metrics, STATUS_TEXTS[block.status[0]], block.note.get(0, "")


def by_definition(target: np.ndarray, golden: np.ndarray) -> dict[str, float | str]:
    """The six metrics of finite or aligned arrays of two elements or more, step by step."""
    kinds = {np.dtype(a.dtype).name for a in (target, golden)}
    floats = all("float" in kind for kind in kinds)
    work = np.float32 if floats and "float64" not in kinds else np.float64
    x, y = (a.astype(np.float64).reshape(-1) for a in (target, golden))
    odd = ~(np.isfinite(x) & np.isfinite(y))
    x, y = np.where(odd, 0, x), np.where(odd, 0, y)
    size_x, size_y = (math.sqrt(math.fsum(v * v for v in a.tolist())) for a in (x, y))
    eps = 2.220446049250313e-16
    cosine: float | str
    if size_x <= eps and size_y <= eps:
        cosine = 1.0
    elif size_x <= eps or size_y <= eps:
        cosine = "Nan"
    else:
        dot = math.fsum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))
        cosine = rounded(dot / (size_x * size_y))
        cosine = round(cosine, 6) if cosine > 0.9999 else cosine
    n, b = x.astype(work), y.astype(work)
    shift = np.where(b == 0, np.finfo(work).eps, 0).astype(work)
    relative = np.abs((n + shift - (b + shift)) / (b + shift))
    difference = [a - b for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return {
        "Cosine": cosine,
        "EucDist": math.sqrt(math.fsum(d * d for d in difference)),
        "MaxAbsErr": rounded(max(map(abs, difference))),
        "MaxRelativeErr": rounded(float(relative.max())),
        "One Thousandth Err Ratio": rounded(float((relative < 0.001).mean())),
        "Five Thousandths Err Ratio": rounded(float((relative < 0.005).mean())),
    }


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one shape that differ a little, a lot, or not, with zeros and NaN at will."""
    ours = draw(st.sampled_from(NUMERIC))
    group = [n for n in NUMERIC if ("float" in n) == ("float" in ours)]
    theirs = draw(st.sampled_from(group)) if "float" in ours else ours
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5))
    values = draw(hnp.arrays(np.float64, shape, elements=st.integers(-60, 60).map(float)))
    noise = draw(st.sampled_from([0.0, 0.0005, 0.003, 0.5]))
    golden = values if "float" in ours else np.abs(values)
    target = golden * (1 + noise)
    if not any("8" in name or "int" in name or name == "bool" for name in (ours, theirs)) and draw(
        st.booleans()
    ):
        at = draw(st.integers(0, golden.size - 1))
        odd = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        golden, target = golden.copy(), target.copy()
        golden.flat[at] = target.flat[at] = odd
    with np.errstate(all="ignore"):
        return target.astype(dtype_of(ours)), golden.astype(dtype_of(theirs))


def assert_agrees(metrics: dict[str, float | str], expected: dict[str, float | str]) -> None:
    for name, value in expected.items():
        if isinstance(value, str):
            assert metrics[name] == value, name
        else:
            assert metrics[name] == pytest.approx(value, rel=1e-11, abs=5e-12), name


@given(pairs())
@example((np.zeros(3, np.float16), np.ones(3, ml_dtypes.bfloat16)))
def test_metrics_follow_their_definitions(pair):
    target, golden = pair
    if target.size == 1:
        return  # a table of its own below
    metrics, status, _ = compare_one(target, golden)
    assert status == "compared"
    assert_agrees(metrics, by_definition(target, golden))


@pytest.mark.parametrize("size", [4096, 4097, kernel.BLOCK, kernel.BLOCK + 1, 3 * kernel.BLOCK + 5])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
def test_large_arrays_are_cut_into_blocks_without_a_seam(size, name):
    random = np.random.default_rng(size)
    golden = random.normal(scale=40, size=size)
    golden[random.integers(size, size=9)] = 0
    target = golden * (1 + random.choice([0, 0.0004, 0.004, 0.3], size))
    with np.errstate(all="ignore"):
        ours, theirs = (a.astype(dtype_of(name)) for a in (target, golden))
    metrics, status, _ = compare_one(ours, theirs)
    assert status == "compared"
    assert_agrees(metrics, by_definition(ours, theirs))


@given(st.lists(pairs(), min_size=1, max_size=12))
def test_many_pairs_at_once_give_the_same_as_one_by_one(found):
    block = compare_arrays([t for t, _ in found], [g for _, g in found])
    for at, (target, golden) in enumerate(found):
        alone = compare_arrays([target], [golden])
        np.testing.assert_array_equal(block.mark[at], alone.mark[0])
        np.testing.assert_allclose(block.number[at], alone.number[0], rtol=1e-13)
        assert (block.status[at], block.note.get(at)) == (alone.status[0], alone.note.get(0))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integer_scalars_are_exact_and_do_not_wrap(target, golden):
    metrics, *_ = compare_one(np.array(target, np.int64), np.array(golden, np.int64))
    assert metrics["MaxAbsErr"] == float(abs(Fraction(target) - golden))
    assert metrics["Cosine"] == metrics["EucDist"] == "unsupported"


@given(
    hnp.arrays(np.complex128, st.integers(2, 40), elements=st.complex_numbers(max_magnitude=1e3)),
    st.floats(-0.5, 0.5),
)
def test_complex_numbers_are_compared_whole(golden, turn):
    target = golden * np.exp(1j * turn)
    metrics, *_ = compare_one(target, golden)
    assert metrics["EucDist"] == pytest.approx(np.linalg.norm(target - golden), rel=1e-9, abs=1e-12)
    assert metrics["MaxAbsErr"] == pytest.approx(np.abs(target - golden).max(), rel=1e-9, abs=1e-11)
    if np.linalg.norm(golden) > 1e-6:
        assert metrics["Cosine"] == pytest.approx(math.cos(turn), abs=2e-6)


@given(st.sampled_from([np.nan, np.inf, -np.inf]), st.sampled_from([1.0, np.nan, np.inf, -np.inf]))
@pytest.mark.parametrize("size", [5, 5000])
def test_non_finite_values_must_stand_at_the_same_places(size, ours, theirs):
    target, golden = np.ones(size), np.ones(size)
    target[2], golden[2] = ours, theirs
    metrics, status, note = compare_one(target, golden)
    if ours == theirs or (np.isnan(ours) and np.isnan(theirs)):
        assert (status, metrics["MaxAbsErr"]) == ("compared", 0.0)
        assert f"1 of {size} elements" in note
    else:
        assert (status, set(metrics.values())) == ("non-finite differ", {"N/A"})
        assert f"at 1 of {size} places" in note


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-310, 1e154])
def test_squares_that_leave_the_range_of_float64(scale):
    golden = np.array([3.0, 4.0, 0.5, -1.0]) * scale
    target = np.array([3.0, 4.0, 0.5, 1.0]) * scale
    metrics, status, _ = compare_one(target, golden)
    assert status == "compared"
    if scale > 1:
        assert metrics["EucDist"] == pytest.approx(2 * scale, rel=1e-12)
        assert metrics["Cosine"] == pytest.approx(24.25 / 26.25, rel=1e-12)
    assert metrics["MaxAbsErr"] == pytest.approx(2 * scale, rel=1e-9)


def test_differences_that_float64_cannot_show_are_told():
    ours = np.array([2**53 + 1, 2**62 + 1, 5])
    metrics, _, note = compare_one(ours, ours - [1, 1, 0])
    assert metrics["MaxAbsErr"] == 0
    assert note == "2 integers beyond 2**53 differ by less than float64 can show"


def test_shapes():
    ones = np.ones((2, 1, 3))
    assert compare_one(ones, np.ones((2, 3)))[1] == "compared"
    assert compare_one(ones, np.ones((1, 2, 3, 1)))[1] == "compared"
    assert compare_one(ones, np.ones((3, 2)))[1] == "shape differs"
    assert compare_one(ones, np.ones((6,)))[1] == "shape differs"
    assert compare_one(np.ones((0, 3)), np.ones((0, 3)))[1] == "empty"
    assert compare_one(np.array(["a"]), np.array(["a"]))[1] == "no data"


def test_a_tensor_that_cannot_be_read_is_one_row():
    fault = TensorReadError("the file ends in the middle", file="x.pt")
    good = np.ones(4)
    block = compare_arrays([good, fault, fault], [good, good, fault])
    assert [STATUS_TEXTS[code] for code in block.status] == ["compared", "unreadable", "unreadable"]
    assert block.note[1] == f"target: {fault}"
    assert block.note[2] == f"target: {fault}; golden: {fault}"


@pytest.mark.parametrize("count", [1, 3, 5000])
def test_the_relative_distance_of_numbers_whose_squares_overflow(count):
    x, y = np.full(count, 1.5e300), np.full(count, 1e300)
    block = compare_arrays([x], [y])
    assert block.metrics()["Relative L2"].number[0] == pytest.approx(0.5)
