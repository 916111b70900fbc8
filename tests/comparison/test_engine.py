"""Pairing runs: what is compared with what, what is refused, and what one fault may cost."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from support import DUMPS, call, tensor, write_dump

import msprobe_nb
from msprobe_nb.comparison import engine
from msprobe_nb.errors import (
    CompareError,
    FormatError,
    FrameworkMismatchError,
    InvalidJSONError,
    NoCommonRankError,
    NotARunError,
    PathNotFoundError,
    TaskMismatchError,
    UsageError,
)

NAME = "Torch.add.0.forward"


def entry(value: float = 1.0, **more):
    return {NAME: call([tensor(value=value)], [tensor(value=value)], **more)}


def tree(root: Path, places: dict[str, float], **head) -> Path:
    for place, value in places.items():
        write_dump(root / place, entry(value), **head)
    return root


def compare(target: Path, golden: Path, **options):
    return msprobe_nb.compare(target, golden, progress=False, **options)


# ---------------------------------------------------------------- steps and ranks


def test_steps_and_ranks_are_paired_by_number(tmp_path):
    ours = tree(tmp_path / "a", {"step1/rank0": 1, "step2/rank0": 2, "step2/rank1": 3})
    theirs = tree(tmp_path / "b", {"step2/rank1": 3, "step2/rank0": 2, "step7/rank0": 9})
    result = compare(ours, theirs)
    assert [(part.step, part.rank) for part in result.parts] == [(2, 0), (2, 1)]
    assert result.counts == {"pass": 4, "warning": 0, "error": 0}
    assert any("only in the target: step 1 rank 0" in note for note in result.notes)
    assert any("only in the golden: step 7 rank 0" in note for note in result.notes)


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"steps": 2}, [(2, 0), (2, 1)]),
        ({"steps": [1, 2], "ranks": 0}, [(1, 0), (2, 0)]),
        ({"ranks": [1]}, [(2, 1)]),
    ],
)
def test_steps_and_ranks_can_be_chosen(tmp_path, options, places):
    run = tree(tmp_path, {"step1/rank0": 1, "step2/rank0": 2, "step2/rank1": 3})
    result = compare(run, run, **options)
    assert [(part.step, part.rank) for part in result.parts] == places
    assert not result.notes  # what was not asked for is not missing


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        ("step1", "step5", [(1, 0), (1, 1)]),
        ("step1/rank1", "step5/rank0", [(1, 1)]),
        ("step1/rank1/dump.json", "step5/rank0", [(1, 1)]),
    ],
)
def test_a_path_to_a_part_names_it_so_its_number_need_not_agree(tmp_path, one, other, places):
    run = tree(tmp_path, {"step1/rank0": 1, "step1/rank1": 1, "step5/rank0": 1, "step5/rank1": 1})
    result = compare(run / one, run / other)
    assert [(part.step, part.rank) for part in result.parts] == places


def test_no_common_rank_tells_both_sides(tmp_path):
    ours = tree(tmp_path / "a", {"step0/rank0": 1, "step0/rank1": 1})
    theirs = tree(tmp_path / "b", {"step0/rank4": 1, "step0/rank5": 1})
    with pytest.raises(NoCommonRankError, match="ranks 0-1, the golden steps 0 and ranks 4-5"):
        compare(ours, theirs)


def test_an_official_folder_and_a_run_store_can_be_compared(tmp_path):
    dump = DUMPS / "edge_tensor_L1"
    store = msprobe_nb.import_run(dump / "golden", tmp_path / "golden.zarr", progress=False)
    mixed, plain = compare(dump / "target", store.url), compare(dump / "target", dump / "golden")
    assert mixed.table.equals(plain.table)


# ---------------------------------------------------------------- refusals

MISMATCHES = [
    ({"task": ...}, {}, TaskMismatchError, "does not say which task"),
    ({}, {"task": "tensor"}, TaskMismatchError, "'statistics', the golden with 'tensor'"),
    ({"task": "nan_check"}, {"task": "nan_check"}, TaskMismatchError, "hold nothing to compare"),
    ({"framework": "jax"}, {}, FrameworkMismatchError, "a 'jax' target"),
    ({}, {"framework": "tensorflow"}, FrameworkMismatchError, "'tensorflow' golden cannot be"),
]


@pytest.mark.parametrize(("ours", "theirs", "error", "text"), MISMATCHES)
def test_runs_that_cannot_be_compared(tmp_path, ours, theirs, error, text):
    write_dump(tmp_path / "a", entry(), **ours)
    write_dump(tmp_path / "b", entry(), **theirs)
    with pytest.raises(error, match=text) as caught:
        compare(tmp_path / "a", tmp_path / "b")
    assert caught.value.file
    assert caught.value.remedy


def test_check_values_on_one_side_only(tmp_path):
    write_dump(tmp_path / "a", {NAME: call([tensor(md5="f7366f35")], [])})
    write_dump(tmp_path / "b", entry())
    with pytest.raises(TaskMismatchError, match="on one side only"):
        compare(tmp_path / "a", tmp_path / "b")


def test_saved_by_hand_against_recorded_by_hooks():
    with pytest.raises((CompareError, TaskMismatchError)):
        compare(DUMPS / "debug_tensor/target", DUMPS / "edge_tensor_L1/golden")


@pytest.mark.parametrize("target", ["pytorch", "mindspore", "mindtorch"])
@pytest.mark.parametrize("golden", ["pytorch", "mindspore", "mindtorch"])
def test_frameworks(tmp_path, target, golden):
    for side, framework in zip("ab", (target, golden), strict=True):
        write_dump(tmp_path / side, entry(), framework=framework)
    assert compare(tmp_path / "a", tmp_path / "b").counts["pass"] == 2


def test_a_missing_framework_is_taken_as_pytorch_and_told(tmp_path):
    write_dump(tmp_path / "a", entry(), framework=...)
    result = compare(tmp_path / "a", tmp_path / "a")
    assert [note for note in result.notes if "taken as pytorch" in note]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", InvalidJSONError),
        ('{"task": "statistics", "data": {"Torch', InvalidJSONError),
        ('{"task": "statistics"}', FormatError),
        ('{"task": "statistics", "data": []}', FormatError),
        (b'{"task": "statistics", "data": {"\xff": 1}}', InvalidJSONError),
    ],
)
def test_broken_files_are_named(tmp_path, content, error):
    good = write_dump(tmp_path / "good", entry())
    bad = tmp_path / "bad"
    bad.mkdir()
    raw = content if isinstance(content, bytes) else content.encode()
    (bad / "dump.json").write_bytes(raw)
    for sides in ((bad, good), (good, bad)):
        with pytest.raises(error) as caught:
            compare(*sides)
        assert str(caught.value.file).endswith("bad/dump.json")


def test_wrong_paths_and_options(tmp_path):
    good = write_dump(tmp_path / "good", entry())
    with pytest.raises(PathNotFoundError):
        compare(tmp_path / "nope", good)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotARunError):
        compare(good, tmp_path / "empty")
    with pytest.raises(UsageError, match="unknown rules"):
        compare(good, good, rules="strict")


# ---------------------------------------------------------------- one fault, one row or one rank


def test_one_bad_rank_does_not_stop_the_others(tmp_path):
    ours = tree(tmp_path / "a", {"step0/rank0": 1, "step0/rank1": 1, "step0/rank2": 1})
    theirs = tree(tmp_path / "b", {"step0/rank0": 1, "step0/rank1": 1, "step0/rank2": 1})
    write_dump(ours / "step0/rank1", entry(), task="tensor")
    (theirs / "step0/rank2/dump.json").write_text("{")
    result = compare(ours, theirs)
    assert result.ranks == [0]
    assert len(result.failures) == 2
    notes = "\n".join(result.notes)
    assert "step 0 rank 1 was not compared: the target was recorded with task 'tensor'" in notes
    assert "step 0 rank 2 was not compared: the file ends in the middle" in notes


def test_when_every_rank_fails_the_first_fault_is_raised(tmp_path):
    ours = tree(tmp_path / "a", {"step0/rank0": 1, "step0/rank1": 1}, task="tensor")
    theirs = tree(tmp_path / "b", {"step0/rank0": 1, "step0/rank1": 1})
    with pytest.raises(TaskMismatchError):
        compare(ours, theirs)


@pytest.fixture
def recording(tmp_path):
    """A copy of a tensor recording that may be broken."""
    for side in ("target", "golden"):
        shutil.copytree(DUMPS / "edge_tensor_L1" / side, tmp_path / side)
    return tmp_path


def data_file(side: Path, name: str) -> Path:
    return next(side.glob(f"**/dump_tensor_data/{name}.pt"))


BAD = "Torch.sqrt.0.forward.input.0"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda path: path.unlink(), "the tensor file is missing"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "target: "),
        (lambda path: path.write_bytes(b"not a tensor" * 50), "target: "),
        (lambda path: path.write_bytes(evil(path.with_name("ran"))), "would"),
    ],
)
def test_one_bad_tensor_is_one_row_with_a_reason(recording, fault, reason):
    clean = compare(recording / "target", recording / "golden").table.set_index("target")
    fault(data_file(recording / "target", BAD))
    table = compare(recording / "target", recording / "golden").table.set_index("target")
    row = table.loc[BAD]
    assert (row["verdict"], row["status"]) == ("error", "unreadable")
    assert reason in row["reason"]
    assert BAD in row["reason"]  # the file is named
    assert not list(recording.rglob("ran"))
    others = table.index != BAD
    metrics = ["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "status"]
    assert table.loc[others, metrics].equals(clean.loc[others, metrics])


def evil(mark: Path) -> bytes:
    """A .pt file that would write a file if it were loaded carelessly."""
    import io
    import os
    import pickle
    import zipfile

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {mark}",)

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(Evil(), protocol=2))
        archive.writestr("x/version", "3\n")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": "2x3"}, "shape"),
        ({"shape": [-1, 3]}, "impossible"),
        ({"shape": [2**40, 2**40]}, "impossible"),
        ({"requires_grad": "yes"}, "requires_grad"),
        ({"dtype": 7}, "dtype"),
    ],
)
def test_a_faulty_record_is_one_row_with_a_reason(tmp_path, change, text):
    write_dump(tmp_path / "golden", entry())
    data = entry()
    data[NAME]["output"] = [tensor(**{}) | change]
    write_dump(tmp_path / "target", data)
    for sides in (("target", "golden"), ("golden", "target")):
        table = compare(*(tmp_path / side for side in sides)).table
        assert table["verdict"].tolist() == ["pass", "error"]
        assert text in table["reason"].iloc[1]
        assert table["reason"].iloc[1].startswith(("target: ", "golden: "))


def test_repeated_names_are_all_kept_and_paired_in_order(tmp_path):
    body = json.dumps(call([tensor(value=1)], []))
    other = json.dumps(call([tensor(value=5)], []))
    text = f'{{"task":"statistics","data":{{"{NAME}":{body},"{NAME}":{other}}}}}'
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "dump.json").write_text(text)
    result = compare(tmp_path / "a", tmp_path / "b")
    assert len(result) == 2
    assert result.counts["pass"] == 2
    assert result.table["reason"].str.contains("more than once").all()


def test_empty_and_structure_recordings_have_nothing_to_compare(tmp_path):
    write_dump(tmp_path / "empty", {})
    result = compare(tmp_path / "empty", tmp_path / "empty")
    assert len(result) == 0
    assert result.summary().startswith("Nothing to compare")
    assert result.to_csv(tmp_path / "out") == []


def test_rows_of_one_side_only(tmp_path):
    write_dump(tmp_path / "a", entry() | {"Torch.mul.0.forward": call([tensor()], [])})
    write_dump(tmp_path / "b", entry() | {"Torch.sub.0.forward": call([tensor()], [tensor()])})
    result = compare(tmp_path / "a", tmp_path / "b")
    lonely = result.table.iloc[2]
    assert (lonely["status"], lonely["reason"]) == (
        "unmatched",
        "only in the target: no golden row of this name",
    )
    assert result.golden_only["golden"].tolist() == [
        "Torch.sub.0.forward.input.0",
        "Torch.sub.0.forward.output.0",
    ]
    assert "1 value could not be measured: only in the target" in result.summary()


# ---------------------------------------------------------------- backward calls


def test_backward_calls_are_counted_in_the_order_they_ran(tmp_path):
    """A recomputed layer's backward is numbered otherwise on one side."""
    for side, numbers in (("a", (1, 0)), ("b", (3, 1))):
        data = {
            f"Module.l.Linear.backward.{number}": call([tensor(value=at + 1)], [tensor()])
            for at, number in enumerate(numbers)
        }
        write_dump(tmp_path / side, data, level="L0")
    result = compare(tmp_path / "a", tmp_path / "b")
    assert result.counts["pass"] == 4
    assert (result.table["status"] == "compared").all()
    assert result.table["target"].iloc[0] == "Module.l.Linear.backward.1.input.0"
    assert result.table["golden"].iloc[0] == "Module.l.Linear.backward.3.input.0"


# ---------------------------------------------------------------- interrupts


def test_an_interrupt_between_ranks_keeps_what_is_done(tmp_path, monkeypatch):
    run = tree(tmp_path, {f"step0/rank{rank}": 1 for rank in range(4)})
    start = engine.start_part
    calls = iter(range(10))

    def interrupted(*arguments, **options):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return start(*arguments, **options)

    monkeypatch.setattr(engine, "start_part", interrupted)
    result = compare(run, run)
    assert not result.complete
    assert result.ranks == [0, 1]
    assert result.summary().startswith(
        "Interrupted after 4 of 4 values and 2 recordings not begun. No differences found"
    )
    assert result.counts["pass"] == 4


def test_an_interrupt_before_anything_is_done_says_so(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "start_part", interrupted)
    run = tree(tmp_path, {"step0/rank0": 1})
    assert compare(run, run).summary().startswith("Interrupted before anything was compared")


def test_an_interrupt_within_tensor_data_keeps_what_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "_BLOCK_PAIRS", 10)
    compare_block = engine.compare_block
    calls = iter(range(100))

    def interrupted(*arguments):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return compare_block(*arguments)

    monkeypatch.setattr(engine, "compare_block", interrupted)
    dump = DUMPS / "edge_tensor_L1"
    result = compare(dump / "target", dump / "golden")
    whole = len(result.parts[0])
    assert not result.complete
    assert 0 < len(result) < whole == 107
    assert result.summary().startswith(f"Interrupted after {len(result)} of 107 values.")
    assert len(result.table) == len(result)
    assert (result.table["status"] != "not reached").all()
    assert sum(result.counts.values()) == len(result)
    assert result.to_csv(tmp_path)[0].name.endswith("_partial.csv")
    (written,) = result.to_csv(tmp_path / "part.csv")
    assert len(written.read_text().splitlines()) == 1 + len(result)
    assert result.widget() is not None


def test_a_comparison_changes_nothing_on_disk(tmp_path):
    shutil.copytree(DUMPS / "edge_tensor_L1", tmp_path / "x")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    result = compare(tmp_path / "x/target", tmp_path / "x/golden")
    assert np.isfinite(result.table["EucDist"]).any()
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("golden", [{}, {"Torch.a.0.forward": None}, {"Torch.a.0.forward": []}])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_side_without_values_leaves_all_rows_unmatched(tmp_path, golden, task):
    full = write_dump(
        tmp_path / "a", {"Torch.a.0.forward": call([tensor()], [tensor()])}, task=task
    )
    empty = write_dump(tmp_path / "b", golden, task=task)
    assert compare(full, empty).table["status"].tolist() == ["unmatched"] * 2
    assert set(compare(empty, full).table["status"]) <= {"unmatched"}


@pytest.mark.parametrize(
    ("value", "shown", "verdict"),
    [
        *(("Nan", "Nan", "warning"), ("nan", "nan", "error"), ("N/A", "N/A", "warning")),
        *((math.nan, "N/A", "warning"), ("12345678", "12345678", "error")),
    ],
)
def test_check_values_that_say_nothing_are_warnings(tmp_path, value, shown, verdict):
    """As the official tool: ``Nan``, ``N/A`` and a bare NaN are no check values, ``nan`` is one."""
    folders = [
        write_dump(tmp_path / name, {"Torch.a.0.forward": call([], [tensor(md5=md5)])})
        for name, md5 in (("a", value), ("b", "00000000"))
    ]
    table = compare(*folders).table
    assert table["target checksum"].tolist() == [shown]
    assert table["verdict"].tolist() == [verdict]
