"""What is done to values before they are compared, and metrics of the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import DUMPS, call, read_csv, tensor, write_dump

import msprobe_nb
from msprobe_nb import Comparison, load_comparison
from msprobe_nb.comparison.algorithms import load_algorithm
from msprobe_nb.errors import FormatError, PathNotFoundError, UsageError

NAME = "NPU.npu_grouped_matmul.0.forward"


def write(
    folder: Path, name: str, inputs: dict[str, np.ndarray], outputs: list[np.ndarray]
) -> Path:
    """A recording of one call with keyword arguments."""
    data = folder / "dump_tensor_data"
    data.mkdir(parents=True)

    def put(slot: str, array: np.ndarray) -> dict[str, object]:
        file = f"{name}.{slot}.npy"
        np.save(data / file, array)
        return tensor(array.shape, f"torch.{array.dtype}", data_name=file)

    kwargs = {key: put(f"input.{key}", array) for key, array in inputs.items()}
    listed = [put(f"output.{at}", array) for at, array in enumerate(outputs)]
    entry = {**call([], listed), "input_kwargs": kwargs}
    return write_dump(folder, {name: entry}, task="tensor")


def two(tmp_path: Path, ours: list[np.ndarray], theirs: list[np.ndarray], **options) -> Comparison:
    lengths = options.pop("lengths", {"group_list": np.array([2, 1])})
    name = options.pop("name", NAME)
    sides = [
        write(tmp_path / side, name, lengths, outputs)
        for side, outputs in (("a", ours), ("b", theirs))
    ]
    return msprobe_nb.compare(*sides, progress=False, **options)


# ---------------------------------------------------------------- padding

GARBAGE = np.array([[1.0, 2], [3, 4], [5, 6], [7, 8], [9, 9]], np.float32)
CLEAN = np.array([[1.0, 2], [3, 4], [5, 6], [0, 0], [1, 1]], np.float32)


def test_padding_is_no_difference(tmp_path):
    result = two(tmp_path, [GARBAGE], [CLEAN])
    row = result.table.iloc[-1]
    assert (row["EucDist"], row["MaxAbsErr"]) == (0.0, 0.0)
    assert "target rows from 3 on are padding" in row["reason"]
    assert "golden rows from 3 on are padding" in row["reason"]


def test_a_difference_before_the_padding_is_seen(tmp_path):
    changed = GARBAGE.copy()
    changed[2, 1] += 1
    assert two(tmp_path, [changed], [CLEAN]).table.iloc[-1]["EucDist"] == 1.0


def test_other_operators_are_left_alone(tmp_path):
    result = two(tmp_path, [GARBAGE], [CLEAN], name="NPU.npu_other.0.forward")
    assert result.table.iloc[-1]["MaxAbsErr"] == 8.0


@pytest.mark.parametrize("rule", ["group_list", lambda inputs: int(inputs["group_list"].sum())])
def test_operators_can_be_added(tmp_path, rule):
    result = two(
        *(tmp_path, [GARBAGE], [CLEAN]),
        name="NPU.npu_other.0.forward",
        valid_rows={"npu_other": rule},
    )
    assert result.table.iloc[-1]["MaxAbsErr"] == 0.0


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        (np.array([2.0, 1.0], np.float32), "expected integers"),
        (np.array([-9]), "-9 rows would count"),
    ],
)
def test_lengths_that_mean_nothing_leave_the_padding_and_tell(tmp_path, lengths, text):
    result = two(tmp_path, [GARBAGE], [CLEAN], lengths={"group_list": lengths})
    row = result.table.iloc[-1]
    assert row["MaxAbsErr"] == 8.0
    assert "padding not removed" in row["reason"]
    assert text in row["reason"]


# ---------------------------------------------------------------- products


def test_values_are_multiplied_from_both_hands(tmp_path):
    left, right = np.array([[2.0, 0], [0, 3]]), np.array([[0.0, 1], [1, 0]])
    np.save(tmp_path / "left.npy", left)
    np.save(tmp_path / "right.npy", right)
    value = np.array([[1.0, 2], [3, 4]])
    file = f"{NAME}.output.0.npy"
    table = {
        "right_matmul": {"golden_tensor_map": {str(tmp_path / "right.npy"): [file]}},
        "left_matmul": {"golden_tensor_map": {str(tmp_path / "left.npy"): [file]}},
    }
    result = two(tmp_path, [left @ value @ right], [value], config=table, lengths={})
    row = result.table.iloc[-1]
    assert row["EucDist"] == 0.0
    assert "from the right" in row["reason"]
    assert "from the left" in row["reason"]


def test_paths_may_start_at_the_table(tmp_path):
    np.save(tmp_path / "two.npy", 2 * np.eye(2))
    file = f"{NAME}.output.0.npy"
    (tmp_path / "table.yaml").write_text(
        f"left_right_matmul:\n  left_target_tensor_map: {{two.npy: [{file}]}}\n"
    )
    value = np.array([[1.0, 2], [3, 4]])
    result = two(tmp_path, [value], [2 * value], config=tmp_path / "table.yaml", lengths={})
    assert result.table.iloc[-1]["EucDist"] == 0.0


@pytest.mark.parametrize("matrix", ["gone.npy", "big.npy"])
def test_a_product_that_fails_leaves_the_values_and_tells(tmp_path, matrix):
    np.save(tmp_path / "big.npy", np.eye(7))
    file = f"{NAME}.output.0.npy"
    table = {
        "left_matmul": {"target_tensor_map": {str(tmp_path / matrix): file}, "strange_map": {}},
        "other": {},
    }
    result = two(tmp_path, [GARBAGE], [GARBAGE], config=table, lengths={})
    row = result.table.iloc[-1]
    assert row["EucDist"] == 0.0
    assert "not multiplied by" in row["reason"]
    assert [note for note in result.notes if "strange_map" in note]
    assert [note for note in result.notes if "'other'" in note]


@pytest.mark.parametrize(
    "table", [["a"], {"left_matmul": ["a"]}, {"left_matmul": {"target_tensor_map": ["a"]}}]
)
def test_tables_of_another_form_are_refused(tmp_path, table):
    with pytest.raises(FormatError, match="another form"):
        two(tmp_path, [GARBAGE], [GARBAGE], config=table)


# ---------------------------------------------------------------- algorithms


def test_own_metrics_become_columns(tmp_path):
    def largest(target: np.ndarray, golden: np.ndarray) -> float:
        wide = np.result_type(target, np.float64)
        return float(np.abs(np.subtract(target, golden, dtype=wide)).max())

    def shape(target: np.ndarray, golden: np.ndarray) -> str:
        return str(list(target.shape))

    sides = [DUMPS / "edge_tensor_L1" / side for side in ("target", "golden")]
    algorithms = {"Largest": largest, "Shape": shape}
    result = msprobe_nb.compare(*sides, algorithms=algorithms, progress=False)
    table = result.table
    compared = table[table["status"] == "compared"]
    assert len(compared) > 30
    np.testing.assert_allclose(compared["Largest"], compared["MaxAbsErr"], atol=1e-11, rtol=1e-5)
    assert table["Largest"].isna().sum() == (table["status"] != "compared").sum()
    (path,) = result.to_csv(tmp_path / "out.csv")
    header, *rows = read_csv(path)
    at = header.index("Five Thousandths Err Ratio")
    assert header[at + 1 : at + 3] == ["Largest", "Shape"]
    assert header[at + 3] == "NPU max"
    for row, value in zip(rows, table["Largest"], strict=True):
        none = value != value
        assert row[at + 1] == (row[header.index("MaxAbsErr")] if none else str(value))
    plain = msprobe_nb.compare(*sides, progress=False)
    assert plain.table["verdict"].tolist() == table["verdict"].tolist()
    result.save(tmp_path / "saved")
    assert load_comparison(tmp_path / "saved").table.equals(table)


def test_an_own_metric_that_fails_tells_why(tmp_path):
    def broken(target: np.ndarray, golden: np.ndarray) -> float:
        raise ZeroDivisionError("no luck")

    result = two(
        *(tmp_path, [GARBAGE], [GARBAGE]),
        algorithms={"Bad": broken, "Flag": lambda t, g: bool(t.size), "Good": lambda t, g: t.ndim},
    )
    row = result.table.iloc[-1]
    assert np.isnan(row["Bad"])
    assert row["Good"] == 2
    assert "Bad failed: ZeroDivisionError: no luck" in row["reason"]
    assert "Flag failed: TypeError: gave bool" in row["reason"]
    (path,) = result.to_csv(tmp_path / "out.csv")
    header, *rows = read_csv(path)
    cells = dict(zip(header, rows[-1], strict=True))
    assert (cells["Bad"], cells["Flag"], cells["Good"]) == ("unsupported", "unsupported", "2")


def test_own_metrics_see_no_nan_that_both_sides_have(tmp_path):
    value = GARBAGE.copy()
    value[0, 0] = np.nan
    result = two(
        *(tmp_path, [value], [value]),
        lengths={},
        algorithms={
            "Sum": lambda t, g: float(t.sum()),
            "Kept": lambda t, g: t.__setitem__(..., 0) or 1,
        },
    )
    assert result.table.iloc[-1]["Sum"] == GARBAGE.sum() - 1


def test_values_of_a_run_store_are_prepared_like_those_of_a_folder(tmp_path):
    file = f"{NAME}.output.0.npy"
    np.save(tmp_path / "two.npy", 2 * np.eye(2, dtype=np.float32))
    table = {"right_matmul": {"golden_tensor_map": {str(tmp_path / "two.npy"): [file]}}}
    plain = two(tmp_path, [2 * GARBAGE], [CLEAN], config=table)
    stores = [
        msprobe_nb.import_run(tmp_path / side, tmp_path / f"{side}.zarr", progress=False)
        for side in "ab"
    ]
    stored = msprobe_nb.compare(*stores, config=table, progress=False)
    assert stored.table.iloc[-1]["EucDist"] == 0.0
    assert stored.table.equals(plain.table)


@pytest.mark.parametrize("name", ["", "Cosine", "NPU max", "verdict", "Relative L2", "Data_name"])
def test_columns_that_are_taken(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be the column"):
        two(tmp_path, [GARBAGE], [GARBAGE], algorithms={name: lambda t, g: 0})


FILE = """
import torch

def column_name():
    return "MeanAbsErr"

def compare(n_value, b_value):
    assert isinstance(n_value, torch.Tensor)
    return float((n_value.double() - b_value.double()).abs().mean())
"""


def test_an_algorithm_file_of_the_official_form(tmp_path):
    (tmp_path / "alg_mean.py").write_text(FILE)
    algorithms = load_algorithm(tmp_path / "alg_mean.py")
    result = two(tmp_path, [GARBAGE], [GARBAGE + 2], lengths={}, algorithms=algorithms)
    assert result.table.iloc[-1]["MeanAbsErr"] == 2.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, PathNotFoundError),
        ("1 / 0", FormatError),
        ("def column_name(): return 'x'", FormatError),
        ("def column_name(): return 'x'\ndef compare(a): return 1", FormatError),
        ("def column_name(): return 1\ndef compare(a, b): return 1", FormatError),
    ],
)
def test_algorithm_files_that_are_none(tmp_path, text, error):
    if text is not None:
        (tmp_path / "alg_x.py").write_text(text)
    with pytest.raises(error) as caught:
        load_algorithm(tmp_path / "alg_x.py")
    assert "alg_x.py" in str(caught.value)
