"""Against the official tool itself: what it records we read, what it compares we compare alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support import DUMPS, different_cells

import msprobe_nb

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


def official_compare(target: Path, golden: Path, out: Path, *more: str) -> list[Path]:
    """The result files of ``msprobe compare``."""
    code = "import sys; from msprobe.msprobe import main; sys.exit(main())"
    words = ["compare", "-tp", str(target), "-gp", str(golden), "-o", str(out), *more]
    official("-c", code, *words, cwd=out.parent)
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
