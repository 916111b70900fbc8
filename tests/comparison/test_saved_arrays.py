"""Arrays saved under tags: measures, official spreadsheets, and opening them as a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import DUMPS, RESULTS, read_xlsx, same_cell

import msprobe_nb
from msprobe_nb.comparison.saved_arrays import COLUMNS, compare_arrays, compare_saved
from msprobe_nb.errors import NotARunError, TensorReadError

NAN, INF = np.nan, np.inf


def save(root: Path, tag: str, value, *, step=0, rank=0, micro=None, file=None) -> Path:
    folder = root / f"data/{tag}/step{step}/rank{rank}"
    if micro is not None:
        folder /= f"micro_step{micro}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file or f"{tag}.npy")
    np.save(path, np.asarray(value))
    return path


def measures(target, golden) -> dict:
    found = compare_arrays(np.asarray(target), np.asarray(golden))
    return dict(zip(COLUMNS[4:], found, strict=True))


def test_spreadsheets_are_those_of_the_official_tool(tmp_path):
    sides = [DUMPS / "single" / side for side in "ab"]
    result = compare_saved(*sides)
    assert list(result) == ["logits", "loss"]
    for path in result.to_xlsx(tmp_path):
        ours, theirs = read_xlsx(path), read_xlsx(RESULTS / "single" / path.name)
        assert list(ours) == list(theirs)
        (a,), (b,) = ours.values(), theirs.values()
        assert [len(row) for row in a] == [len(row) for row in b]
        for row, other in zip(a, b, strict=True):
            # The official tool divides in float32.
            assert all(same_cell(x, y, 1e-6) for x, y in zip(row, other, strict=True)), (row, other)


def test_measures_of_one_pair():
    found = measures([1.0, 2.0, 4.0, 0.0], [1.0, 2.001, 4.1, 0.0])
    assert found["same_percent"] == 50
    assert found["first_mismatch"] == 1
    assert found["max_abs"] == pytest.approx(0.1)
    assert found["max_rel"] == pytest.approx(0.1 / 4.1)
    assert (found["within_1_1000_percent"], found["within_1_100_percent"]) == (75, 75)


def test_equal_arrays():
    found = measures([[1, 2]], [[1, 2]])
    assert (found["same_percent"], found["first_mismatch"], found["max_rel"]) == (100, None, 0)


def test_arrays_are_cut_to_the_common_size():
    found = measures(np.ones((2, 3)), np.ones((4, 2)))
    assert (found["target_shape"], found["golden_shape"]) == ((2, 3), (4, 2))
    assert found["same_percent"] == 100
    assert measures(np.arange(6).reshape(2, 3), np.arange(4))["same_percent"] == 100
    assert measures(5.0, [5.0, 6.0])["same_percent"] == 100


def test_nan_and_infinity():
    assert measures([NAN, INF, -INF], [NAN, INF, -INF])["same_percent"] == 100
    for odd in ([NAN, 1.0], [INF, 1.0]):
        found = measures(odd, [1.0, 1.0])
        assert (found["max_abs"], found["max_rel"], found["first_mismatch"]) == (INF, INF, 0)
        assert found["within_1_100_percent"] == 50
    assert measures([INF], [-INF])["max_rel"] == INF


def test_integers_do_not_wrap_and_large_ones_are_told_apart():
    assert measures(np.uint8([3]), np.uint8([5]))["max_abs"] == 2
    assert measures(np.int64([2**53 + 1]), np.int64([2**53]))["same_percent"] == 0
    assert measures(np.complex64([1 + 2j]), np.complex64([1 + 3j]))["max_abs"] == 1


def test_empty_arrays_have_no_measures():
    found = measures(np.zeros((0, 3)), np.zeros((2, 3)))
    assert np.isnan(found["same_percent"])
    assert found["first_mismatch"] is None


def test_all_forms_of_names_are_paired(tmp_path):
    for side, value in (("a", 1.0), ("b", 2.0)):
        root = tmp_path / side
        save(root, "loss", [value])
        save(root, "loss", [value], file="loss_1.npy")
        save(root, "loss", [value], rank=1, micro=0)
        save(root, "loss", [value], rank=1, micro=2)
        save(root, "loss", [value], rank=1, micro=2, file="loss.3.npy")
        save(root, "loss", [value], step=10)
    table = compare_saved(tmp_path / "a", tmp_path / "b")["loss"]
    keys = table[["step", "rank", "micro_step", "id"]].to_numpy().tolist()
    assert keys == [
        [0, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 1, 0, 0],
        [0, 1, 2, 0],
        [0, 1, 2, 3],
        [10, 0, 0, 0],
    ]


def test_what_only_one_side_has_is_told(tmp_path):
    save(tmp_path / "a", "loss", [1.0])
    save(tmp_path / "b", "loss", [1.0])
    save(tmp_path / "a", "loss", [1.0], step=1)
    save(tmp_path / "b", "grad", [1.0])
    result = compare_saved(tmp_path / "a", tmp_path / "b")
    assert (len(result["loss"]), len(result["grad"])) == (1, 0)
    assert any("1 arrays are only in the target: loss step 1" in note for note in result.notes)
    assert any("only in the golden: grad step 0" in note for note in result.notes)
    written = result.to_xlsx(tmp_path / "out")
    assert [path.name for path in written] == ["grad.xlsx", "loss.xlsx"]
    assert len(read_xlsx(written[0])["Sheet1"]) == 1
    assert "loss: 1 of 1 arrays are the same" in result.summary()


def test_a_broken_array_does_not_stop_the_rest(tmp_path):
    for side in "ab":
        save(tmp_path / side, "loss", [1.0])
        path = save(tmp_path / side, "loss", [1.0], step=1)
    path.write_bytes(b"broken")
    result = compare_saved(tmp_path / "a", tmp_path / "b")
    assert list(result["loss"]["step"]) == [0]
    assert any("loss step 1" in note and "was not compared" in note for note in result.notes)
    with pytest.raises(NotARunError):
        compare_saved(tmp_path / "a", tmp_path)


def test_saved_arrays_open_as_a_run(tmp_path):
    for side, value in (("a", 1.5), ("b", 1.0)):
        root = tmp_path / side
        save(root, "loss", np.float32([1, value]))
        save(root, "loss", np.float32([1, value]), file="loss_1.npy")
        save(root, "acc", np.float32(value), rank=1, micro=2)
    run = msprobe_nb.open(tmp_path / "a")
    assert (run.kind, run.steps, run.ranks, run.level) == ("saved", [0], [0, 1], "debug")
    assert list(run.tensors["tensor"]) == ["loss.0.debug", "loss.0.debug.1", "acc.2.debug"]
    assert run["loss.0.debug.1", 0, 0].values.tolist() == [1, 1.5]
    assert list(run.nodes["micro_step"]) == [0, 2]
    assert len(msprobe_nb.open(tmp_path / "a/data").tensors) == 3
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    assert result.table["MaxAbsErr"].tolist() == [0.5, 0.5, 0.5]
    names = [path.name for path in result.to_csv(tmp_path / "out")]
    assert all(name.startswith("debug_compare_result_rank") for name in names)
    listed = msprobe_nb.list_runs(tmp_path)
    assert set(listed["kind"]) == {"saved arrays"}


def test_a_broken_saved_array_is_a_row_that_says_so(tmp_path):
    save(tmp_path / "a", "loss", [1.0]).write_bytes(b"broken")
    run = msprobe_nb.open(tmp_path / "a")
    assert "header is broken" in run.tensors["problem"][0]
    with pytest.raises(TensorReadError):
        run.pack().read(0)


def test_folders_with_other_contents_are_no_saved_arrays(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    (tmp_path / "data/tag/step0/rank0").mkdir(parents=True)
    with pytest.raises(NotARunError):
        msprobe_nb.open(tmp_path)
