"""Finding recordings in folders."""

from __future__ import annotations

import pytest
from support import call, tensor, write_dump

from msprobe_nb import compare, import_run, load_comparison
from msprobe_nb.errors import FormatError, NotARunError, PathNotFoundError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.discover import list_runs
from msprobe_nb.store import RunWriter

DATA = {"Torch.add.0.forward": call([tensor()], [tensor()])}


@pytest.fixture
def root(tmp_path):
    for step in (0, 2, 10):
        for rank in ("rank0", "rank3", "rank10"):
            write_dump(tmp_path / f"dump/step{step}/{rank}", DATA)
    return tmp_path / "dump"


def test_a_whole_tree(root):
    run = open_run(root)
    assert (run.steps, run.ranks, run.depth) == ([0, 2, 10], [0, 3, 10], "root")


@pytest.mark.parametrize(
    ("path", "place", "depth"),
    [
        ("step2", {(2, 0), (2, 3), (2, 10)}, "step"),
        ("step2/rank3", {(2, 3)}, "pack"),
        ("step2/rank3/dump.json", {(2, 3)}, "pack"),
    ],
)
def test_parts_of_a_tree_know_their_place(root, path, place, depth):
    run = open_run(root / path)
    assert (set(run.packs), run.depth) == (place, depth)


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        *(("step2", "rank3/"), ("step2", "./rank3"), ("step2/rank3", "."), ("", "step2/rank3")),
        *(("step2/rank3", "dump.json"), ("step2/rank10", "../rank3"), ("step0", "../step2/rank3")),
    ],
)
def test_relative_paths_know_their_place(root, monkeypatch, folder, path):
    monkeypatch.chdir(root / folder)
    assert set(open_run(path).packs) == {(2, 3)}


@pytest.mark.parametrize("path", [".", "rank0", "../step1", "../step1/rank0"])
def test_relative_paths_into_a_store_know_their_place(tmp_path, monkeypatch, path):
    RunWriter(tmp_path / "r.zarr").pack(1, 0, {"task": "tensor"}).close()
    monkeypatch.chdir(tmp_path / "r.zarr/step1")
    assert set(open_run(path).packs) == {(1, 0)}


def test_a_tilde_is_the_home_folder(root, monkeypatch):
    monkeypatch.setenv("HOME", str(root.parent))
    assert open_run("~/dump").steps == [0, 2, 10]
    assert set(open_run("~/dump/step2/rank3/dump.json").packs) == {(2, 3)}
    store = import_run("~/dump", "~/r.zarr", progress=False)
    assert (root.parent / "r.zarr/zarr.json").exists()
    assert store.steps == [0, 2, 10]
    compare("~/dump", "~/r.zarr", progress=False).save("~/c.zarr")
    assert load_comparison("~/c.zarr").steps == [0, 2, 10]
    assert sorted(list_runs("~")["path"]) == ["dump", "r.zarr"]  # nothing inside the comparison


def test_a_process_without_rank_is_rank_0_and_keeps_its_name(tmp_path):
    write_dump(tmp_path / "step0/proc871", DATA)
    pack = open_run(tmp_path).pack()
    assert (pack.rank, pack.label) == (0, "proc871")


def test_several_processes_without_rank_are_not_guessed_at(tmp_path):
    for name in ("proc1", "proc2"):
        write_dump(tmp_path / "step0" / name, DATA)
    with pytest.raises(FormatError, match="2 processes without a rank"):
        open_run(tmp_path)


def test_processes_beside_ranks_are_left_over(tmp_path):
    write_dump(tmp_path / "step0/rank0", DATA)
    write_dump(tmp_path / "step0/proc7", DATA)
    run = open_run(tmp_path)
    assert [pack.label for pack in run] == ["rank0"]
    assert any("proc7" in note for note in run.notes)


def test_a_rank_without_a_dump_is_noted(root):
    (root / "step2/rank5").mkdir()
    assert any("rank5" in note for note in open_run(root).notes)


def test_rank_and_rank0_are_the_same(tmp_path):
    for name in ("rank", "rank0"):
        write_dump(tmp_path / "step0" / name, DATA)
    with pytest.raises(FormatError, match="same rank twice"):
        open_run(tmp_path)


def test_graph_and_pynative_folders_have_to_be_chosen(tmp_path):
    write_dump(tmp_path / "pynative/step0/rank0", DATA)
    (tmp_path / "graph").mkdir()
    with pytest.raises(FormatError, match="pynative"):
        open_run(tmp_path)
    assert len(open_run(tmp_path / "pynative")) == 1


@pytest.mark.parametrize("name", ["other.json", "stack.json", "x.txt"])
def test_other_files_are_refused(root, name):
    path = root / "step0/rank0" / name
    path.write_text("{}")
    with pytest.raises(FormatError, match=r"must be named dump\.json or debug\.json"):
        open_run(path)


def test_what_is_not_there(tmp_path):
    with pytest.raises(PathNotFoundError):
        open_run(tmp_path / "none")
    with pytest.raises(NotARunError):
        open_run(tmp_path)


def test_opening_reads_no_dump(root):
    (root / "step0/rank0/dump.json").write_text("not JSON")
    run = open_run(root)  # only the folder names are read
    assert len(run.pack(2, 3).index) == 2
    assert any("holds no JSON object" in note for note in run.notes)


def test_runs_below_a_folder_are_listed(root, tmp_path):
    RunWriter(tmp_path / "deep/er/run.zarr").pack(0, 0, {"task": "tensor"}).close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/dump.json").write_text("{")
    found = list_runs(tmp_path).set_index("path")
    assert found.loc["dump", "kind"] == "official"
    assert found.loc["dump", "steps"] == "0, 2, 10"
    assert found.loc["deep/er/run.zarr", "kind"] == "run store"
    assert "ends in the middle" in found.loc["broken", "note"]
    with pytest.raises(PathNotFoundError):
        list_runs(tmp_path / "none")
