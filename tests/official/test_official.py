"""Against the official tool itself: what it records we read, what it compares we compare alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support import DUMPS, call, different_cells, read_xlsx, same_cell, tensor, write_dump

import msprobe_nb
from msprobe_nb.comparison.merge import merge_results, read_merge_config

pytest.importorskip("msprobe")
pytestmark = pytest.mark.official

HERE = Path(__file__).parent
# Cells that differ on purpose are listed and checked in comparison/test_parity.py.
KINDS = [
    ("tensor", "statistics"),
    ("statistics", "statistics"),
    ("statistics", "md5"),
    ("statistics", "xor"),
]


def official(*words: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def msprobe(*words: str, cwd: Path) -> None:
    official(
        "-c", "import sys; from msprobe.msprobe import main; sys.exit(main())", *words, cwd=cwd
    )


def official_compare(target: Path, golden: Path, out: Path, *more: str) -> list[Path]:
    """The result files of ``msprobe compare``."""
    words = ["-tp", str(target), "-gp", str(golden), "-o", str(out), *more]
    msprobe("compare", *words, cwd=out.parent)
    return sorted(out.glob("*.csv"))


@pytest.fixture(scope="module", params=KINDS, ids=" ".join)
def recorded(request, tmp_path_factory):
    """One model recorded twice; the second is scaled by 1.2 in the middle."""
    task, mode = request.param
    root = tmp_path_factory.mktemp("official")
    for side, factor in (("golden", "1.0"), ("target", "1.2")):
        (root / side).mkdir()
        official(str(HERE / "record.py"), task, mode, factor, cwd=root / side)
    return root, task, mode


def test_a_fresh_recording_opens_and_holds_what_was_recorded(recorded):
    root, task, mode = recorded
    run = msprobe_nb.open(root / "golden/dump")
    assert (run.steps, run.task, run.framework) == ([0, 1], task, "pytorch")
    pack = run.pack(1)
    assert pack.mode == ("md5" if mode != "statistics" else task)
    assert "Module.fc.Linear.forward.0.output.0" in pack.index.row_of
    files = sorted(Path(root / "golden/dump/step1").rglob("*.pt"))
    assert len(files) == int(pack.index.has_data.sum())
    row_of = {name: row for row, name in enumerate(pack.index.data_name) if name}
    for path in files:
        expected = torch.load(path, weights_only=True)
        expected = expected.float() if expected.dtype == torch.bfloat16 else expected
        found = pack.read(row_of[path.name])
        np.testing.assert_array_equal(found, expected.detach().numpy(), strict=True)


def test_results_agree_in_every_cell(recorded, tmp_path):
    root, *_ = recorded
    ours = msprobe_nb.compare(root / "target/dump", root / "golden/dump", progress=False)
    assert ours.counts["pass"] < len(ours)  # the recordings do differ
    for step in (0, 1):
        sides = [next((root / side).glob(f"dump/step{step}/*")) for side in ("target", "golden")]
        out = tmp_path / f"official{step}"
        dumps = [side / "dump.json" for side in sides]
        (theirs,) = official_compare(*dumps, out)
        single = msprobe_nb.compare(*dumps, progress=False)
        (written,) = single.to_csv(tmp_path / f"ours{step}.csv")
        assert different_cells(written, theirs) == {}


@pytest.mark.parametrize("case", ["edge_statistics_L1", "edge_md5_L1", "stat_pairs", "arg_kinds"])
def test_recordings_with_every_kind_of_row_agree_with_the_installed_tool(case, tmp_path):
    place = next(p for p in (DUMPS / case / "target").glob("**/dump.json"))
    place = place.relative_to(DUMPS / case / "target")
    sides = [DUMPS / case / side / place for side in ("target", "golden")]
    (theirs,) = official_compare(*sides, tmp_path / "official")
    (ours,) = msprobe_nb.compare(*sides, progress=False).to_csv(tmp_path / "ours.csv")
    assert different_cells(ours, theirs) == {}


@pytest.mark.parametrize(
    ("case", "words", "options"),
    [
        ("conv_L0_renamed/target", ["-cm", "cell_full.yaml"], {"cell_mapping": "cell_full.yaml"}),
        ("conv_L0_renamed/target", ["-cm", "cell_str.yaml"], {"cell_mapping": "cell_str.yaml"}),
        ("conv_L0_renamed/target", ["-dm", "data.yaml"], {"data_mapping": "data.yaml"}),
        ("edge_tensor_L1/golden", ["-fm"], {"fuzzy": True}),  # the official one is lost otherwise
        ("dirty/target", [], {}),
    ],
)
def test_ways_of_pairing_agree_with_the_installed_tool(case, words, options, tmp_path):
    maps = DUMPS.parent / "maps"
    target = DUMPS / case
    sides = [next(side.glob("**/dump.json")) for side in (target, target.parent / "golden")]
    places = [str(maps / word) if word.endswith(".yaml") else word for word in words]
    (theirs,) = official_compare(*sides, tmp_path / "official", *places)
    tables = {key: maps / value if value is not True else True for key, value in options.items()}
    result = msprobe_nb.compare(*sides, progress=False, **tables)
    (ours,) = result.to_csv(tmp_path / "ours.csv")
    assert different_cells(ours, theirs) == {}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """Statistics of two ranks; rank 1 takes a call more and reduces something else."""
    root = tmp_path_factory.mktemp("ranks")
    reduce, square = "Distributed.all_reduce.0.forward", "Torch.square.0.forward"
    for side, factor in (("golden", 1.0), ("target", 3.0)):
        for rank in range(2):
            value = factor if rank else 1.0
            extra = {"Tensor.mul_.0.forward": call([tensor()], [tensor(value=value)])}
            write_dump(
                root / side / f"rank{rank}",
                {
                    **(extra if value == 3.0 else {}),
                    square: call([tensor(value=value)], [tensor(value=value**2)]),
                    reduce: call([tensor(value=value**2)], [tensor(value=1.0 + factor**2)]),
                },
            )
    return root


def test_spreadsheets_and_their_merging_agree_with_the_installed_tool(two_ranks, tmp_path):
    sides = two_ranks / "target", two_ranks / "golden"
    msprobe(
        *("compare", "-tp", str(sides[0]), "-gp", str(sides[1])),
        "-o",
        "theirs",
        "--xlsx",
        cwd=tmp_path,
    )
    result = msprobe_nb.compare(*sides, progress=False)
    ours = sorted(result.to_xlsx(tmp_path / "ours"))
    theirs = sorted((tmp_path / "theirs").glob("*.xlsx"))
    assert len(ours) == len(theirs) == 2
    for one, other in zip(ours, theirs, strict=True):
        assert different_cells(one, other) == {}
    (tmp_path / "merge.yaml").write_text("api: [Distributed.all_reduce, Torch.square]\n")
    # The official tool merges our files, and we theirs.
    msprobe(*("merge_result", "-i", "ours", "-o", "merged", "-config", "merge.yaml"), cwd=tmp_path)
    config = read_merge_config(tmp_path / "merge.yaml")
    written = merge_results(tmp_path / "theirs", config).to_xlsx(tmp_path)
    a, b = read_xlsx(written), read_xlsx(next((tmp_path / "merged").glob("*.xlsx")))
    assert list(a) == list(b)
    for metric, rows in a.items():
        for row, other in zip(rows, b[metric], strict=True):
            assert all(same_cell(x, y) for x, y in zip(row, other, strict=True)), (row, other)


def test_the_first_difference_is_among_those_of_the_installed_tool(two_ranks, tmp_path):
    sides = two_ranks / "target", two_ranks / "golden"
    msprobe(
        *("compare", "-tp", str(sides[0]), "-gp", str(sides[1])),
        "-o",
        "theirs",
        "-da",
        cwd=tmp_path,
    )
    first = msprobe_nb.compare(*sides, progress=False).first_differences()
    first.to_json(tmp_path / "ours")
    names = []
    for folder in ("ours", "theirs"):
        (path,) = (tmp_path / folder).glob("diff_analyze_*.json")
        found = json.loads(path.read_text())
        names.append({(rank, e["op_name"]) for rank, entries in found.items() for e in entries})
    # A call that only the target has is beyond the official tool.
    assert names[0] - {("rank_1", "Tensor.mul_.0.forward")} <= names[1]
    assert [c.node for c in first.calls] == ["Tensor.mul_.0.forward", "Torch.square.0.forward"]
