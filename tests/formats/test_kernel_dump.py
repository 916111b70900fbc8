"""Kernel dumps of MindSpore graphs open like every recording."""

from __future__ import annotations

import numpy as np
import pytest
from support import SHARED, requires_shared, same_bits

import msprobe_nb
from msprobe_nb.errors import FormatError, NotARunError, TensorReadError

TIME = 1700000000000000
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value"
HEAD += ",Min Value,Avg Value,L2Norm Value\n"
NAME = "Add.add.3.0.{}.{}.DefaultFormat.Float32.npy"


@pytest.fixture
def dump(tmp_path):
    folder = tmp_path / "dump/rank_2/Net/1/5"
    folder.mkdir(parents=True)
    np.save(folder / NAME.format(TIME, "input.0"), np.float32([[1, -3]]))
    np.save(folder / NAME.format(TIME + 1, "output.0"), np.int64([4, 2, 6]))
    return tmp_path / "dump"


def test_tensors_and_their_statistics(dump):
    run = msprobe_nb.open(dump)
    assert (run.kind, run.steps, run.ranks, run.task) == ("mindspore", [5], [2], "tensor")
    assert run.framework == "mindspore"
    first, second = run.tensors.to_dict("records")
    assert (first["tensor"], first["node"], first["slot"]) == ("add.3.input.0", "add.3", "input.0")
    assert [first[key] for key in ("max", "min", "mean")] == [1, -3, -1]
    assert first["norm"] == pytest.approx(10**0.5)
    assert (first["dtype"], second["dtype"], second["shape"]) == ("Float32", "int64", (3,))
    assert (first["role"], second["role"]) == ("input", "output")
    assert same_bits(run["add.3.output.0"].values, np.int64([4, 2, 6]))
    assert "kernel dump" in run.summary()


@pytest.mark.parametrize("inner", ["rank_2", "rank_2/Net/1/5"])
def test_a_folder_inside_opens_too(dump, inner):
    run = msprobe_nb.open(dump / inner)
    assert (run.steps, run.ranks, len(run.tensors)) == ([5], [2], 2)


def test_the_graphs_of_one_iteration_are_one_recording(dump):
    other = dump / "rank_2/Net/7/5"
    other.mkdir(parents=True)
    np.save(other / NAME.format(TIME - 9, "output.0").replace("add", "sub"), np.float32([1]))
    run = msprobe_nb.open(dump)
    assert list(run.tensors["tensor"]) == ["sub.3.output.0", "add.3.input.0", "add.3.output.0"]


def test_a_rank_without_a_word_in_front(tmp_path):
    folder = tmp_path / "dump/4/Net/0/1"
    folder.mkdir(parents=True)
    np.save(folder / NAME.format(TIME, "input.0"), np.float32([1]))
    assert msprobe_nb.open(tmp_path / "dump").ranks == [4]


def test_files_with_short_names_are_found_in_the_mapping(dump):
    folder = dump / "rank_2/Net/1/5"
    np.save(folder / "123.npy", np.float32([7]))
    long_name = NAME.format(TIME + 5, "output.1").replace("add", "a" * 300)
    (folder / "mapping.csv").write_text(f"short,long\n123.npy,{long_name}\n")
    np.save(folder / "odd.npy", np.float32([7]))
    run = msprobe_nb.open(dump)
    assert run["a" * 300 + ".3.output.1"].values == [7]
    assert [note for note in run.notes if "odd.npy" in note]


def test_a_broken_tensor_is_a_row_that_says_so(dump):
    (path,) = (dump / "rank_2/Net/1/5").glob("*input*")
    path.write_bytes(path.read_bytes()[:-3])
    first, second = msprobe_nb.open(dump).tensors.to_dict("records")
    assert "ends in the middle" in first["problem"]
    assert second["problem"] == ""


def test_a_table_of_statistics(tmp_path):
    folder = tmp_path / "dump/rank_0/Net/0/3"
    folder.mkdir(parents=True)
    rows = [
        f'Add,add,0,0,{TIME},input,0,24,float32,"(2,3)",2.5,-1,0.5,3',
        f'Not,not,0,0,{TIME},output,0,2,bool,"(2,)",True,False,null,null',
        f'Log,log,0,0,{TIME},output,0,4,float32,"()",nan,-inf,0,0',
    ]
    (folder / "statistic.csv").write_text(HEAD + "\n".join(rows) + "\n")
    run = msprobe_nb.open(tmp_path / "dump")
    assert run.task == "statistics"
    add, no, log = run.tensors.to_dict("records")
    assert (add["max"], add["norm"], add["shape"]) == (2.5, 3, (2, 3))
    assert (no["max"], no["min"]) == (1, 0)
    assert np.isnan(no["mean"])
    assert np.isnan(log["max"])
    assert (log["min"], log["shape"]) == (-np.inf, ())
    with pytest.raises(TensorReadError, match="not recorded"):
        run.pack().read(0)


def test_a_damaged_table_is_refused_with_its_row(tmp_path):
    folder = tmp_path / "dump/rank_0/Net/0/3"
    folder.mkdir(parents=True)
    (folder / "statistic.csv").write_text(HEAD + "Add,add,0\n")
    with pytest.raises(FormatError, match=r"row 2 .*statistic\.csv"):
        _ = msprobe_nb.open(tmp_path / "dump").tensors


def test_other_tables_and_arrays_are_no_kernel_dump(tmp_path):
    folder = tmp_path / "dump/rank_0/Net/0/3"
    folder.mkdir(parents=True)
    (folder / "statistic.csv").write_text("Device and PID,Execution Count,Op Name\n0_1,0,a\n")
    np.save(folder / "x.npy", np.zeros(3))
    with pytest.raises(NotARunError):
        msprobe_nb.open(tmp_path / "dump")


def test_conversion_keeps_everything(dump, tmp_path):
    run = msprobe_nb.open(dump)
    store = msprobe_nb.import_run(dump, tmp_path / "run.zarr", progress=False)
    assert store.level == run.level
    assert store.tensors.equals(run.tensors)
    for name in run.tensors["tensor"]:
        assert same_bits(store[name].values, run[name].values)
    result = msprobe_nb.compare(store, run, progress=False)
    assert result.counts == {"pass": 2, "warning": 0, "error": 0}


def test_lists_name_kernel_dumps(dump):
    (row,) = msprobe_nb.list_runs(dump.parent).to_dict("records")
    assert (row["path"], row["kind"], row["steps"]) == ("dump", "kernel dump", "5")


@requires_shared
@pytest.mark.parametrize(
    ("case", "steps"), [("mode_kernel_graph", [0, 1]), ("mode_exception", [0, 1])]
)
def test_recorded_graphs_open(case, steps):
    folder = SHARED / "mindspore/data" / case
    run = msprobe_nb.open(folder)
    assert run.steps == steps
    assert len(run.tensors) == len(list(folder.rglob("*.npy")))
    assert run.notes == []
    assert not run.tensors["problem"].any()
