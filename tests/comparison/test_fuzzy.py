"""Fuzzy matching: aligning sequences of calls."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import DUMPS, back, calls_in_order, op, paired_calls, tensor, write_dump

import msprobe_nb
from msprobe_nb.comparison.pairing.align import align
from msprobe_nb.comparison.pairing.slide import slide

# ---------------------------------------------------------------- alignment


def longest_common_subsequence(a: Sequence[int], b: Sequence[int]) -> int:
    """By the table of all prefixes."""
    row = [0] * (len(b) + 1)
    for x in a:
        above = row
        row = [0]
        for at, y in enumerate(b, 1):
            row.append(above[at - 1] + 1 if x == y else max(above[at], row[-1]))
    return row[-1]


codes = st.lists(st.integers(0, 4), max_size=40).map(lambda values: np.array(values, np.int64))


@given(codes, codes)
def test_an_alignment_is_a_longest_common_subsequence(a, b):
    ours, theirs = align(a, b)
    assert (a[ours] == b[theirs]).all()
    assert (np.diff(ours) > 0).all()
    assert (np.diff(theirs) > 0).all()
    assert len(ours) == longest_common_subsequence(a.tolist(), b.tolist())


@given(codes, codes)
def test_an_alignment_that_stops_early_is_still_one(a, b):
    from msprobe_nb.comparison.pairing import align as module

    limit, module.LIMIT = module.LIMIT, 2
    try:
        ours, theirs = align(a, b)
    finally:
        module.LIMIT = limit
    assert (a[ours] == b[theirs]).all()
    assert (np.diff(ours) > 0).all()
    assert (np.diff(theirs) > 0).all()


def test_long_sequences_that_differ_much_are_aligned_in_seconds():
    random = np.random.default_rng(1)
    a = random.integers(0, 50, 20_000)
    b = np.delete(a, random.integers(0, len(a), 300))
    start = time.perf_counter()
    assert len(align(a, b)[0]) == len(b)
    assert len(align(a[:6000], random.permutation(a[:6000]))[0]) > 1200
    assert time.perf_counter() - start < 30


def test_a_block_slides_to_where_values_agree():
    apart = {(2, 0): 0.0, (3, 1): 0.0}
    partner = np.array([0, 1, -1, -1])
    slide(np.array([1, 2, 1, 2]), partner, lambda at, other: apart.get((at, other), 1.0))
    assert partner.tolist() == [-1, -1, 0, 1]
    partner = np.array([-1, -1, 0, 1])
    slide(np.array([1, 2, 1, 2]), partner, lambda at, other: float((at, other) not in {(0, 0)}))
    assert partner.tolist() == [0, -1, -1, 1] or partner.tolist() == [0, 1, -1, -1]


# ---------------------------------------------------------------- fuzzy


def test_an_extra_call_does_not_shift_the_others(tmp_path):
    golden = calls_in_order("Torch.a", "Torch.relu", "Torch.b", "Torch.relu", "Torch.c")
    target = calls_in_order(
        "Torch.a", "Torch.relu", "Torch.relu", "Torch.b", "Torch.relu", "Torch.c"
    )
    target["Torch.relu.1.forward"] = op(99.0)
    target["Torch.relu.2.forward"] = golden["Torch.relu.1.forward"]
    found = paired_calls(tmp_path, target, golden, fuzzy=True)
    assert found["Torch.relu.1.forward"] == ""
    assert found["Torch.relu.2.forward"] == "Torch.relu.1.forward"
    assert sum(other == "" for other in found.values()) == 1
    by_name = paired_calls(tmp_path, target, golden)
    assert by_name["Torch.relu.1.forward"] == "Torch.relu.1.forward"  # what fuzzy is for


@pytest.mark.parametrize("extra", [0, 1, 2, 3])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_extra_layer_is_found_by_its_values(tmp_path, extra, swapped):
    layer = ("Torch.mm", "Torch.add", "Torch.relu")
    long = calls_in_order(*layer * 4, norms=[10.0 * (at // 3 + 1) + at % 3 for at in range(12)])
    short = calls_in_order(*layer * 3)
    kept = [name for at, name in enumerate(long) if at // 3 != extra]
    short = dict(zip(short, (long[name] for name in kept), strict=True))
    expected = dict(zip(kept, short, strict=True))
    if swapped:
        found = paired_calls(tmp_path, short, long, fuzzy=True)
        assert found == {theirs: ours for ours, theirs in expected.items()}
    else:
        found = paired_calls(tmp_path, long, short, fuzzy=True)
        assert {ours: theirs for ours, theirs in found.items() if theirs} == expected


def test_shapes_tell_the_extra_call(tmp_path):
    golden = {"Torch.relu.0.forward": op(1.0, (4, 4))}
    target = {"Torch.relu.0.forward": op(1.0, (2, 3)), "Torch.relu.1.forward": op(7.0, (4, 4))}
    found = paired_calls(tmp_path, target, golden, fuzzy=True)
    assert found == {"Torch.relu.0.forward": "", "Torch.relu.1.forward": "Torch.relu.0.forward"}


def test_class_names_may_differ_and_paths_may_not(tmp_path):
    target = {f"Module.{name}.forward.0": op() for name in ("fc.MyLinear", "head.Linear")}
    golden = {f"Module.{name}.forward.0": op() for name in ("fc.Linear", "tail.Linear")}
    found = paired_calls(tmp_path, target, golden, fuzzy=True)
    assert found == {
        "Module.fc.MyLinear.forward.0": "Module.fc.Linear.forward.0",
        "Module.head.Linear.forward.0": "",
    }


def test_a_backward_call_goes_with_its_forward_call(tmp_path):
    golden = {"Torch.relu.0.forward": op(1.0), "Torch.relu.0.backward": back(5.0)}
    target = {
        "Torch.relu.0.forward": op(9.0),
        "Torch.relu.1.forward": op(1.0),
        "Torch.relu.1.backward": back(5.0),
        "Torch.relu.0.backward": back(5.0),
    }
    found = paired_calls(tmp_path, target, golden, fuzzy=True)
    assert found["Torch.relu.1.backward"] == "Torch.relu.0.backward"
    assert found["Torch.relu.0.backward"] == ""


def test_gradients_that_come_in_another_order_are_paired(tmp_path):
    a, b = "Module.a.Linear.parameters_grad", "Module.b.Linear.parameters_grad"
    grad = {"weight": [tensor()]}
    found = paired_calls(tmp_path, {a: grad, b: grad}, {b: grad, a: grad}, fuzzy=True)
    assert {name: other.split(".weight")[0] for name, other in found.items()} == {a: a, b: b}


def test_rows_paired_by_place_say_so(tmp_path):
    write_dump(tmp_path / "a", {"Torch.x.3.forward": op()})
    write_dump(tmp_path / "b", {"Torch.x.0.forward": op()})
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", fuzzy=True, progress=False)
    assert result.table["reason"].str.contains("paired by its place").all()
    assert "Paired by fuzzy matching." in result.summary()
    same = msprobe_nb.compare(tmp_path / "a", tmp_path / "a", fuzzy=True, progress=False)
    assert (same.table["reason"] == "").all()


def test_fuzzy_matching_of_equal_runs_is_matching_by_name():
    for name in ("conv_statistics_L1", "edge_md5_L1", "debug_tensor"):
        sides = [DUMPS / name / side for side in ("target", "golden")]
        fuzzy = msprobe_nb.compare(sides[1], sides[1], fuzzy=True, progress=False)
        plain = msprobe_nb.compare(sides[1], sides[1], progress=False)
        assert fuzzy.data_mapping == plain.data_mapping
