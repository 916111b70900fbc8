"""Our result files against those of the official tool, cell by cell.

Numbers are compared as numbers. Every cell in which ours differ on purpose is listed here; the
reasons stand in `docs/differences.md`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support import DUMPS, RESNET, RESULTS, SHARED, different_cells, read_csv, requires_shared

import msprobe_nb
from msprobe_nb.errors import MsProbeError

METRICS = (
    *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
    *("One Thousandth Err Ratio", "Five Thousandths Err Ratio"),
)


def of(name: str, *columns: str, slot: str = "input.0") -> set[tuple[str, str]]:
    return {(f"Torch.{name}.0.forward.{slot}", column) for column in columns}


# Cells that differ, with the kind of reason.
COMPLEX = of("c64", *METRICS) | of("angle", "EucDist", "MaxAbsErr", "MaxRelativeErr")
OPPOSITE_INFINITIES = of("posinf_vs_neginf", *METRICS)
WRAPPED_INTEGERS = of("uint8_0d", "MaxAbsErr") | of("int8_0d", "MaxAbsErr")
ROUNDED_AWAY = (
    of("f64_tiny", "MaxAbsErr", "MaxRelativeErr")
    | of("under_eps_both", "MaxAbsErr")
    | of("subnormal", "MaxAbsErr")
)
UNREADABLE = of("missing_file", "Result", "Err_message")
ON_PURPOSE = COMPLEX | OPPOSITE_INFINITIES | WRAPPED_INTEGERS | ROUNDED_AWAY | UNREADABLE

COPIED = {
    "arg_kinds": "arg_kinds",
    "conv_stat_L1": "conv_statistics_L1",
    "debug_tensor": "debug_tensor",
    "edge_md5": "edge_md5_L1",
    "edge_statistics": "edge_statistics_L1",
    "edge_tensor": "edge_tensor_L1",
    "edge_xor": "edge_xor_L1",
    "formulas": "formulas",
    "stat_pairs": "stat_pairs",
    "stat_rules": "stat_rules",
}


def write(target: Path, golden: Path, out: Path) -> list[Path]:
    return msprobe_nb.compare(target, golden, progress=False).to_csv(out)


def assert_same(ours: Path, theirs: Path) -> None:
    differing = different_cells(ours, theirs)
    surprising = {cell: texts for cell, texts in differing.items() if cell not in ON_PURPOSE}
    assert not surprising


@pytest.mark.parametrize("case", COPIED)
def test_result_files_of_recordings_with_every_kind_of_row(tmp_path, case):
    place = next(p.parent for p in (DUMPS / COPIED[case] / "target").glob("**/d*.json"))
    place = place.relative_to(DUMPS / COPIED[case] / "target")
    sides = [DUMPS / COPIED[case] / side / place for side in ("target", "golden")]
    (written,) = write(*sides, tmp_path)
    assert_same(written, RESULTS / f"{case}.csv")


def test_resnet50_agrees_in_every_cell(tmp_path):
    result = msprobe_nb.compare(RESNET / "cpu", RESNET / "gpu", progress=False)
    assert result.counts == {"pass": 4026, "warning": 89, "error": 0}
    (written,) = result.to_csv(tmp_path)
    assert len(read_csv(written)) == 1 + 4115
    assert different_cells(written, RESULTS / "resnet50.csv.gz") == {}


def test_every_listed_difference_is_real(tmp_path):
    """A difference that went away must leave the list."""
    found: set[tuple[str, str]] = set()
    for case in ("formulas", "edge_tensor"):
        place = "" if case == "formulas" else "step0/rank0"
        sides = [DUMPS / COPIED[case] / side / place for side in ("target", "golden")]
        (written,) = write(*sides, tmp_path / case)
        found |= set(different_cells(written, RESULTS / f"{case}.csv"))
    assert found == ON_PURPOSE


# ---------------------------------------------------------------- all recordings

# Options that belong to other ways of comparing.
_OTHER = re.compile(r" -(fm|cm|dm|da|am|lm|m|-config|-consistent_check|-rank)\b")
# Cases in which the official tool pairs ranks by position, cleans data first, or refuses.
_DECIDED_OTHERWISE = {"ranks", "ranks_badtask", "dirty"}


def _cases(*, answered: bool) -> list[tuple[str, str, str]]:
    listing = SHARED / "compare/scripts/cases.txt"
    if not listing.is_file():
        return []
    found = []
    for line in listing.read_text().splitlines():
        match = re.match(r"(\w+) \| compare -tp (\S+) -gp (\S+) -o @OUT(.*)$", line)
        if not match or _OTHER.search(match[4]) or match[1] in _DECIDED_OTHERWISE:
            continue
        if any((SHARED / "compare/results" / match[1]).glob("*.csv")) == answered:
            found.append((match[1], match[2], match[3]))
    return found


@requires_shared
@pytest.mark.parametrize(("case", "target", "golden"), _cases(answered=True))
def test_every_recorded_case(tmp_path, case, target, golden):
    """Where the official tool wrote result files, ours say the same."""
    theirs = sorted((SHARED / "compare/results" / case).glob("*.csv"))
    written = sorted(write(SHARED / "compare" / target, SHARED / "compare" / golden, tmp_path))
    assert len(written) == len(theirs)
    for ours, other in zip(written, theirs, strict=True):
        assert_same(ours, other)


_REFUSED = [case for case in _cases(answered=False) if case[0].startswith("bad_")]
_HARMLESS = {"bad_data_empty", "bad_file_dir", "bad_formula_name", "bad_formula_value"}


@requires_shared
@pytest.mark.parametrize(("case", "target", "golden"), _REFUSED)
def test_what_the_official_tool_refuses_never_passes_in_silence(case, target, golden):
    """A typed error that names the file, a row that names the fault, or a fault we can bear."""
    sides = SHARED / "compare" / target, SHARED / "compare" / golden
    try:
        result = msprobe_nb.compare(*sides, progress=False)
    except MsProbeError as error:
        fault = error.file or ""
    else:
        marked = result.table[result.table["verdict"] == "error"]
        fault = " ".join([*marked["reason"], *result.notes])
    assert fault or case in _HARMLESS


@requires_shared
def test_ranks_are_paired_by_number_not_by_position(tmp_path):
    both = SHARED / "compare/dumps/ranks"
    shutil.copytree(both / "target", tmp_path / "golden")
    (tmp_path / "golden/rank0").rename(tmp_path / "golden/rank3")
    result = msprobe_nb.compare(both / "target", tmp_path / "golden", progress=False)
    assert result.ranks == [2, 10]
    assert [note for note in result.notes if "only in the target: step 0 rank 0" in note]
    assert [note for note in result.notes if "only in the golden: step 0 rank 3" in note]
