"""The known right answers of every metric and verdict rule.

Values are those of MindStudio Probe 26.2.0 on the recordings in `tests/data/dumps`, except where
`docs/differences.md` says that ours differ on purpose; those stand in tables of their own.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support import DUMPS, call, tensor, write_dump

import msprobe_nb
from msprobe_nb import Comparison

METRICS = [
    *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
    *("One Thousandth Err Ratio", "Five Thousandths Err Ratio"),
]
N = math.nan


def compared(name: str) -> Comparison:
    target = DUMPS / name / "target"
    place = "step0/rank0" if (target / "step0").is_dir() else ""
    return msprobe_nb.compare(target / place, DUMPS / name / "golden" / place, progress=False)


def row_of(result: Comparison, target: str):
    return result.table.set_index("target").loc[target]


@pytest.fixture(scope="module")
def formulas():
    return compared("formulas")


# ---------------------------------------------------------------- tensors: metrics

SAME_AS_OFFICIAL = {
    "one_off": (0.993999088548, 1.0, 1.0, 0.20000000298, 0.75, 0.75),
    "zeros_zeros": (1.0, 0.0, 0.0, 0.0, 1.0, 1.0),
    "zeros_ones": (N, 1.7320508075688772, 1.0, 1.0, 0.0, 0.0),
    "ones_zeros": (N, 1.7320508075688772, 1.0, 8388608.0, 0.0, 0.0),
    "one_zero_elem": (1.0, 9.999999974752427e-07, 1e-06, 8.388607978821, 0.5, 0.5),
    "nan_aligned": (
        *(0.99899905395, 0.20000004768371582, 0.200000047684),
        *(0.100000023842, 0.666666666667, 0.666666666667),
    ),
    "bool": (0.866025403784, 1.0, 1.0, 1.0, 0.75, 0.75),
    "bool_0d": (N, N, 1.0, 4503599627370496.0, N, N),
    "int8": (-0.999100404818, 282.842712474619, 200.0, 2.0, 0.333333333333, 0.333333333333),
    "int64_big": (1.0, 0.0, 0.0, 0.0, 1.0, 1.0),
    "f16": (1.0, 0.001953125, 0.001953125, 0.0009765625, 1.0, 1.0),
    "bf16": (0.999994, 0.015625, 0.015625, 0.0078125, 0.666666666667, 0.666666666667),
    "f8": (0.998516979756, 0.25, 0.25, 0.125, 0.666666666667, 0.666666666667),
    "bf16_vs_f32": (1.0, 0.004374980926513672, 0.004374980927, 0.002165832091, 0.5, 1.0),
    "squeeze_1x4": (1.0, 2.0, 1.0, 0.5, 0.0, 0.0),
    "len1": (N, N, 2.0, 0.5, N, N),
    "0d_zero_bench": (N, N, 2.0, 16777215.0, N, N),
    "0d_nan_target": (N, N, N, N, N, N),
    "under_eps_target": (N, 1.4142135623730951, 1.0, 1.0, 0.0, 0.0),
    "huge": (1.0, 2.0000001388812345e38, 1.0000000694406173e38, 0.500000059605, 0.0, 0.0),
    "thousandth_edge": (0.999998, 0.007128814768248478, 0.005, 0.005, 0.5, 1.0),
}
# Where the official tool computes something else: complex numbers without their imaginary part,
# wrapped unsigned integers, a difference rounded away.
RIGHT_BY_US = {
    "uint8_0d": (N, N, 2.0, 0.4, N, N),
    "f64_tiny": (1.0, 3.999023334699814e-13, 3.999023334699814e-13, 3.999023334699814e-13, 1, 1),
    "c64": (0.915811, 7.0, 7.0, 2.474873734153, 0.5, 0.5),
}


@pytest.mark.parametrize("case", [*SAME_AS_OFFICIAL, *RIGHT_BY_US])
def test_tensor_metrics(formulas, case):
    row = row_of(formulas, f"Torch.{case}.0.forward.input.0")
    expected = np.array({**SAME_AS_OFFICIAL, **RIGHT_BY_US}[case], float)
    if case == "c64":
        x, y = np.array([1 + 1j, 2 + 9j]), np.array([1 + 1j, 2 + 2j])
        expected[0] = np.vdot(y, x).real / np.linalg.norm(x) / np.linalg.norm(y)
    np.testing.assert_allclose(
        row[METRICS].astype(float), expected, rtol=1e-9 if case == "c64" else 1e-12, atol=5e-13
    )


@pytest.mark.parametrize(
    ("case", "status", "verdict", "reason"),
    [
        ("nan_misaligned", "non-finite differ", "pass", "NaN or infinity at 2 of 3 places"),
        ("posinf_vs_neginf", "non-finite differ", "pass", "1 inf; golden: 1 -inf"),
        ("shape_4_5", "shape differs", "error", "shape [4], golden [5]"),
        ("i32_vs_i64", "dtype gate", "pass", "torch.int32, the golden row of this name has"),
        ("f32_vs_i64", "dtype gate", "pass", "not compared: dtype"),
        ("bool_vs_u8", "dtype gate", "pass", "not compared: dtype"),
        ("empty", "empty", "pass", "both tensors are empty"),
        ("missing_file", "unreadable", "error", "target: the tensor file is missing"),
    ],
)
def test_tensors_that_cannot_be_measured(formulas, case, status, verdict, reason):
    row = row_of(formulas, f"Torch.{case}.0.forward.input.0")
    assert row[METRICS].isna().all()
    assert (row["status"], row["verdict"]) == (status, verdict)
    assert reason in row["reason"]
    assert isinstance(row["golden"], str) == (status != "dtype gate")


# ---------------------------------------------------------------- tensors: verdicts


def tensor_pair(folder: Path, **values: tuple[np.ndarray, np.ndarray]) -> Comparison:
    """A call recorded on both sides with the given (target, golden) values."""
    for side, at in (("target", 0), ("golden", 1)):
        data: dict[str, list] = {"input": [], "output": []}
        for slot, arrays in values.items():
            array = arrays[at]
            name = f"Torch.add.0.forward.{slot}.0.npy"
            (folder / side / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
            np.save(folder / side / "dump_tensor_data" / name, array)
            facts = tensor(array.shape, "torch.float32", data_name=name)
            facts["Max"], facts["Min"] = float(array.max()), float(array.min())
            data[slot].append(facts)
        entry = {"Torch.add.0.forward": call(data["input"], data["output"])}
        write_dump(folder / side, entry, task="tensor")
    return msprobe_nb.compare(folder / "target", folder / "golden", progress=False)


def with_share(share: float) -> tuple[np.ndarray, np.ndarray]:
    """Ten numbers of which that share agrees to 1/1000, all with a cosine near 1."""
    golden = np.ones(10, np.float32)
    target = golden.copy()
    target[round(share * 10) :] *= 1.01
    return target, golden


def with_cosine(cosine: float) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of that cosine; no element agrees to 1/1000, but the inputs do not either."""
    angle = math.acos(cosine)
    golden = np.array([1, 0], np.float32)
    return np.array([math.cos(angle), math.sin(angle)], np.float32) * 2, golden * 1


@pytest.mark.parametrize(
    ("inputs", "outputs", "verdict"),
    [(1.0, 0.0, "error"), (1.0, 0.1, "pass"), (1.0, 0.5, "pass"), (0.9, 0.0, "pass")],
)
def test_the_thousandth_rule(tmp_path, inputs, outputs, verdict):
    result = tensor_pair(tmp_path, input=with_share(inputs), output=with_share(outputs))
    assert list(result.table["verdict"]) == ["pass", verdict]
    assert ("within 1/1000" in result.table["reason"].iloc[1]) == (verdict == "error")


@pytest.mark.parametrize(
    ("inputs", "outputs", "verdict"),
    [
        (1.0, 0.8899, "warning"),
        (1.0, 0.9001, "pass"),
        (0.95, 0.84, "warning"),
        (0.95, 0.86, "pass"),
        (0.8999, 0.5, "pass"),
        (0.91, 0.5, "warning"),
    ],
)
def test_the_cosine_rule(tmp_path, inputs, outputs, verdict):
    result = tensor_pair(tmp_path, input=with_cosine(inputs), output=with_cosine(outputs))
    assert list(result.table["verdict"]) == ["pass", verdict]
    assert ("cosine" in result.table["reason"].iloc[1]) == (verdict == "warning")


def test_an_overflow_of_the_target_alone_is_an_error(tmp_path):
    golden = np.ones(3, np.float32)
    target = np.array([1, np.inf, 1], np.float32)
    one = tensor_pair(tmp_path / "a", input=(golden, golden), output=(target, golden))
    assert list(one.table["verdict"]) == ["pass", "error"]
    assert one.origins["kind"].tolist() == ["overflow"]
    both = tensor_pair(tmp_path / "b", input=(golden, golden), output=(target, target))
    assert list(both.table["verdict"]) == ["pass", "pass"]


def test_axes_of_length_one_do_not_hinder_the_metrics_but_are_an_error(tmp_path):
    values = np.arange(4, dtype=np.float32)
    result = tensor_pair(tmp_path, input=(values, values), output=(values[None], values))
    row = result.table.iloc[1]
    assert row[METRICS].tolist() == [1, 0, 0, 0, 1, 1]
    assert (row["verdict"], row["status"]) == ("error", "compared")
    assert result.origins["kind"].tolist() == ["shape"]


# ---------------------------------------------------------------- statistics


# Relative norm errors of input and output in percent, as recorded, and the output's verdict.
STATISTICS_RULES = [
    *[("5 60", "error"), ("5 50", "pass"), ("10 60", "pass"), ("0 9", "pass"), ("0 10", "warning")],
    *[("0 11", "warning"), ("1 10", "pass"), ("1 11", "warning")],
    *[("20 210", "warning"), ("20 200", "warning")],
]


@pytest.mark.parametrize(
    ("at", "case", "verdict"), [(i, *c) for i, c in enumerate(STATISTICS_RULES)]
)
def test_statistics_rules(at, case, verdict):
    table = compared("stat_rules").table.set_index("target")
    for api in ("add", "to", "all_to_all_single"):
        rows = table.loc[[f"Torch.{api}.{at}.forward.{slot}.0" for slot in ("input", "output")]]
        errors = (rows["NormRelativeErr"] * 100).tolist()
        assert errors == pytest.approx([float(error) for error in case.split()])
        # The other two are never judged, or not set against their inputs.
        assert rows["verdict"].tolist() == ["pass", verdict if api == "add" else "pass"]
    reason = table.loc[f"Torch.add.{at}.forward.output.0", "reason"]
    assert reason.count("norm") == {"5 60": 2, "1 11": 1}.get(case, int(verdict != "pass"))


def test_a_differing_statistic_in_all_columns():
    result = compared("edge_statistics_L1")
    row = row_of(result, "Tensor.__mul__.0.forward.output.0")
    assert row["Max diff"] == pytest.approx(0.001405954360961914, rel=1e-12)
    assert row["L2norm diff"] == pytest.approx(0.00485992431640625, rel=1e-12)
    assert row["MaxRelativeErr"] == pytest.approx(0.001000072160539988, rel=1e-12)
    assert row["NormRelativeErr"] == pytest.approx(0.001000080265468716, rel=1e-12)
    assert row["verdict"] == "pass"


def test_a_golden_zero_gives_infinite_relative_errors():
    row = row_of(compared("edge_statistics_L1"), "Torch.square.0.forward.output.0")
    differences = row[["Max diff", "Min diff", "Mean diff", "L2norm diff"]].tolist()
    assert differences == [1.0, 1.0, 1.0, 2.4494898319244385]
    relative = row[["MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"]]
    assert np.isposinf(relative.astype(float)).all()
    assert row["verdict"] == "error"


def test_two_rules_on_one_row_are_both_told():
    row = row_of(compared("edge_statistics_L1"), "Torch.div.0.forward.output.0")
    assert row["Max diff"] == math.inf
    overflow, norm = row["reason"].split("; ")
    assert overflow.startswith("NaN or infinity in the target")
    assert norm.startswith("the output norm is off by")


def test_arguments_of_every_kind():
    result = compared("arg_kinds")
    assert result.counts == {"pass": 14, "warning": 0, "error": 5}
    marked = result.table[result.table["verdict"] == "error"]
    kinds = dict(zip(result.origins["node"], result.origins["kind"], strict=True))
    assert set(kinds.values()) <= {"argument", "shape"}
    assert sorted(marked["reason"].str.split().str[0]) == sorted(
        ["the", "the", "the", "the", "shape"]
    )


# ---------------------------------------------------------------- check values


def test_check_values_of_arguments():
    table = compared("edge_md5_L1").table
    values = {*table["target checksum"], *table["golden checksum"]}
    assert {"f7366f35", "b07d6d7f", "84b12bae"} <= values


def test_the_same_run_recorded_with_both_kinds_of_check_value():
    md5, xor = compared("edge_md5_L1"), compared("edge_xor_L1")
    assert md5.counts == {"pass": 44, "warning": 14, "error": 49}
    assert xor.counts == {"pass": 47, "warning": 14, "error": 46}
    differing = md5.table["target"][md5.table["verdict"] != xor.table["verdict"]].tolist()
    assert differing == [
        "Torch.sqrt.0.forward.input.0",
        "Torch.trunc.0.forward.input.0",
        "Torch.trunc.0.forward.output.0",
    ]
    same = xor.table.set_index("target").loc[differing]
    assert (same["target checksum"] == same["golden checksum"]).all()


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize(
    ("name", "rows", "unmatched", "counts"),
    [
        ("edge_tensor_L1", 107, 19, (82, 0, 25)),
        ("edge_statistics_L1", 107, 19, (85, 0, 22)),
        ("conv_statistics_L1", 72, 0, (71, 1, 0)),
        ("debug_tensor", 6, 0, (6, 0, 0)),
    ],
)
def test_whole_runs(name, rows, unmatched, counts):
    result = compared(name)
    assert len(result) == len(result.table) == rows
    assert result.table["golden"].isna().sum() == unmatched
    assert tuple(result.counts.values()) == counts
