"""Comparing kernel dumps of MindSpore graphs: pairing, verdicts and the official columns."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support import DUMPS, RESULTS, SHARED, read_csv, read_table, requires_shared, same_cell

import msprobe_nb

MINDSPORE = SHARED / "mindspore/data"
TIME = 1700000000000000
HEAD = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,Avg Value,L2Norm Value\n"
)


def save(folder: Path, op: str, value, *, time: int = 0, io: str = "output.0") -> Path:
    place = folder / "rank_0/Net/0/0"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{op.title()}.{op}.0.0.{TIME + time}.{io}.DefaultFormat.Float32.npy"
    np.save(path, np.asarray(value))
    return path


def table(folder: Path, *rows: str, rank: int = 0) -> None:
    place = folder / f"rank_{rank}/Net/0/3"
    place.mkdir(parents=True, exist_ok=True)
    (place / "statistic.csv").write_text(HEAD + "".join(row + "\n" for row in rows))


def entry(name: str, high, low=-1, mean=0.5, norm=3, shape='"(2,3)"', dtype="float32") -> str:
    return f"Op,{name},0,0,{TIME},output,0,24,{dtype},{shape},{high},{low},{mean},{norm}"


def compare(tmp_path: Path, **options):
    return msprobe_nb.compare(tmp_path / "target", tmp_path / "golden", progress=False, **options)


def official_cells(ours: Path, theirs: Path, tolerance: float = 2e-6):
    """(name, column) -> cells that differ; only the names of files count, not their folders."""
    a, b = read_table(ours), read_table(theirs)
    assert a[0] == b[0]
    assert len(a) == len(b)
    differing = {}
    for row, other in zip(a[1:], b[1:], strict=True):
        for title, x, y in zip(a[0], row, other, strict=True):
            if title.endswith(("Name", "File")):
                x, y = x.rpartition("/")[2], y.rpartition("/")[2]
            if not same_cell(x, y, tolerance):
                differing[row[0].rpartition("/")[2], title] = (x, y)
    return differing


@pytest.mark.parametrize("kind", ["to_csv", "to_xlsx"])
def test_tensors_agree_with_the_official_result(tmp_path, kind):
    sides = [DUMPS / "ms_kernel_npy" / side for side in ("target", "golden")]
    result = msprobe_nb.compare(*sides, ranks=0, progress=False)
    (written,) = getattr(result, kind)(tmp_path)
    assert written.name.startswith("compare_result_0_3_")
    assert official_cells(written, RESULTS / "msk_npy.csv") == {}


def test_statistics_agree_with_the_official_result(tmp_path):
    sides = [DUMPS / "ms_kernel_stat" / side for side in ("target", "golden")]
    (written,) = msprobe_nb.compare(*sides, ranks=0, steps=3, progress=False).to_csv(tmp_path)
    assert official_cells(written, RESULTS / "msk_stat.csv", 1e-4) == {
        # `null` is nothing recorded, not 0.
        ("b.0.output.0", "NPU mean"): ("", "0.0"),
        ("b.0.output.0", "NPU l2norm"): ("", "0.0"),
        ("b.0.output.0", "Bench mean"): ("", "0.0"),
        ("b.0.output.0", "Bench l2norm"): ("", "0.0"),
        ("b.0.output.0", "Mean diff"): ("", "0.0"),
        ("b.0.output.0", "L2norm diff"): ("", "0.0"),
        ("b.0.output.0", "MeanRelativeErr"): ("", "N/A"),
        ("b.0.output.0", "NormRelativeErr"): ("", "N/A"),
    }


@requires_shared
def test_a_recorded_graph_agrees_with_the_official_result(tmp_path):
    """One value changed, one file missing; a dot in a folder's name, which they fail on."""
    for side in ("target", "golden.v2"):
        shutil.copytree(MINDSPORE / "mode_kernel_graph", tmp_path / side)
    folder = tmp_path / "golden.v2/rank_0/Net/0/0"
    (path,) = folder.glob("BiasAdd.Default_BiasAdd-op0.*.output.0.*")
    changed = np.load(path)
    changed[0, 0] *= 1.1
    np.save(path, changed)
    theirs = MINDSPORE / "expected/kernel_compare.csv"
    for row in read_csv(theirs)[1:]:
        if not row[1]:
            for missing in (tmp_path / "golden.v2/rank_0").rglob(row[0].rpartition("/")[2]):
                missing.unlink()
    sides = tmp_path / "target", tmp_path / "golden.v2"
    result = msprobe_nb.compare(*sides, steps=0, progress=False)
    (written,) = result.to_csv(tmp_path / "out")
    differing = official_cells(written, theirs)
    missing_shape = [at for at, cells in differing.items() if cells == ("", "None")]
    assert [title for _, title in missing_shape] == ["Bench Tensor Shape"]
    del differing[missing_shape[0]]  # an empty side is empty, not `None`
    columns = {title for _, title in differing}
    values = {cells for (_, title), cells in differing.items() if title.startswith("Accuracy")}
    # Values of one element have a verdict here; 0-d ones are compared at all.
    assert values <= {("Yes", "None"), ("Yes", "")}
    one = {name for name, title in differing if title.startswith("Accuracy")}
    assert {name for name, _ in differing} == one
    assert columns <= {
        *("Accuracy Reached or Not", "Err_message", "Cosine", "EucDist", "MaxAbsErr"),
        *("MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"),
    }


def verdicts(tmp_path: Path) -> dict[str, str]:
    """Operator -> verdict."""
    (path,) = compare(tmp_path).to_csv(tmp_path / "out")
    header, *rows = read_csv(path)
    at = header.index("Accuracy Reached or Not")
    place = 1 if rows[0][0].endswith(".npy") else 0
    return {row[0].rpartition("/")[2].split(".")[place]: row[at] for row in rows}


def test_verdicts_of_statistics(tmp_path):
    pairs = {
        "same": (2, 2),
        "close": (2, 2.9),
        "larger": (6, 2),
        "smaller": (0.5, 2),  # the official verdict is Yes: it keeps the sign
        "negative": (-1, -3),
        "turned": (-2, 2),
        "zero": (0, 0),
        "nan_both": ("nan", "nan"),
        "nan_target": ("nan", 1),
        "inf_both": ("inf", "inf"),
        "inf_target": ("inf", 1),
    }
    table(tmp_path / "target", *(entry(name, ours) for name, (ours, _) in pairs.items()))
    table(tmp_path / "golden", *(entry(name, theirs) for name, (_, theirs) in pairs.items()))
    found = verdicts(tmp_path)
    yes = {"same", "close", "zero", "nan_both", "inf_both"}
    assert {name for name, verdict in found.items() if verdict == "Yes"} == yes
    assert {name for name, verdict in found.items() if verdict == "No"} == set(pairs) - yes


def test_verdicts_of_tensors(tmp_path):
    x = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
    nan = x.copy()
    nan[0, 0] = np.nan
    pairs = {
        "same": (x, x),
        "close": (x * 1.01, x),
        "turned": (-x, x),
        "tiny_turned": (-x * 1e-6, x * 1e-6),
        "far": (x + 2, x),
        "zero": (x * 0, x * 0.5),
        "nan": (nan, x),
        "nan_both": (nan, nan),
        "one": (np.float32([2.0]), np.float32([2.01])),
        "one_off": (np.float32([0.5]), np.float32([0.9])),
        "scalar": (np.float32(2), np.float32(2)),
    }
    for name, (ours, theirs) in pairs.items():
        save(tmp_path / "target", name, ours)
        save(tmp_path / "golden", name, theirs)
    found = verdicts(tmp_path)
    yes = {"same", "close", "nan_both", "one", "scalar"}
    assert {name for name, verdict in found.items() if verdict == "Yes"} == yes
    assert {name for name, verdict in found.items() if verdict == "No"} == set(pairs) - yes


def test_the_verdict_of_the_table_includes_the_kernels(tmp_path):
    table(tmp_path / "target", entry("a", 6), entry("b", 2))
    table(tmp_path / "golden", entry("a", 2), entry("b", 2))
    result = compare(tmp_path)
    assert result.counts == {"pass": 1, "warning": 0, "error": 1}
    assert "max 6.0, golden 2.0" in result.summary()
    save(tmp_path / "x/target", "c", [0.0, 3.0])
    save(tmp_path / "x/golden", "c", [3.0, 0.0])
    assert "accuracy is not reached" in compare(tmp_path / "x").summary()


def test_values_of_one_side_stay_in_the_file(tmp_path):
    save(tmp_path / "target", "both", [1.0, 2.0])
    save(tmp_path / "golden", "both", [1.0, 2.0])
    save(tmp_path / "target", "ours", [1.0])
    save(tmp_path / "golden", "theirs", [1.0])
    for kind in ("to_csv", "to_xlsx"):
        (path,) = getattr(compare(tmp_path), kind)(tmp_path / kind)
        header, *rows = read_table(path)
        sides = [[bool(cell) for cell in row[:2]] for row in rows]
        assert sides == [[True, True], [True, False], [False, True]]
        assert [row[header.index("Err_message")] for row in rows][1:] == [
            "Dump file is not ndarray.\n"
        ] * 2


def test_repeated_values_are_paired_by_call(tmp_path):
    for side, shift in (("target", 0), ("golden", 500)):
        for call in range(3):
            save(tmp_path / side, "loop", [1.0, call], time=call * 10 + shift)
            save(tmp_path / side, "loop", [2.0, call], time=call * 10 + shift - 5, io="input.0")
    result = compare(tmp_path)
    assert result.counts == {"pass": 6, "warning": 0, "error": 0}
    assert list(result.nodes["node"]) == ["loop.0", "loop.0.1", "loop.0.2"]
    assert list(result.table["target"][:2]) == ["loop.0.input.0", "loop.0.output.0"]


def test_a_saved_result_writes_the_same_files(tmp_path):
    save(tmp_path / "target", "a", [1.0, 2.5])
    save(tmp_path / "golden", "a", [1.0, 2.0])
    result = compare(tmp_path)
    again = msprobe_nb.load_comparison(result.save(tmp_path / "saved.zarr"))
    (first,), (second,) = result.to_csv(tmp_path / "x"), again.to_csv(tmp_path / "y")
    assert first.read_bytes() == second.read_bytes()


def test_ranks_and_steps_are_chosen_as_elsewhere(tmp_path):
    for rank in range(3):
        for side in ("target", "golden"):
            table(tmp_path / side, entry("a", rank + 1), rank=rank)
    assert compare(tmp_path, ranks=[0, 2]).ranks == [0, 2]
    written = compare(tmp_path).to_csv(tmp_path / "out")
    assert [path.name.rpartition("_")[0] for path in written] == [
        f"compare_result_{rank}_3" for rank in range(3)
    ]
