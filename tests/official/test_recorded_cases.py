"""The recorded results that ours are held against are what the installed tool gives today.

Together with ``comparison/test_parity.py``, which compares ours with them cell by cell, this
compares ours with the tool itself on every case.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from export_support import run_official
from support import SHARED, different_cells, requires_shared

pytest.importorskip("msprobe")
PARTS = 4


def cases() -> list[tuple[str, list[str]]]:
    """(name, words) of every recorded comparison that has result files."""
    listing = SHARED / "compare/scripts/cases.txt"
    if not listing.is_file():
        return []
    found = []
    for line in listing.read_text().splitlines():
        match = re.match(r"(\w+) \| (compare .*)$", line)
        if not match or " -m " in match[2] or "--consistent_check" in match[2]:
            continue
        if results(SHARED / "compare/results" / match[1]):
            found.append((match[1], match[2].split()))
    return found


def results(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in (".csv", ".xlsx"))


@requires_shared
@pytest.mark.official_all
@pytest.mark.parametrize("part", range(PARTS))
def test_recorded_results_are_those_of_the_installed_tool(part, tmp_path):
    chosen = cases()[part::PARTS]
    commands = [
        [str(tmp_path / name) if word == "@OUT" else word for word in words]
        for name, words in chosen
    ]
    run_official(commands, tmp_path, SHARED / "compare")
    for name, _ in chosen:
        live, stored = results(tmp_path / name), results(SHARED / "compare/results" / name)
        assert len(live) == len(stored) > 0, name
        for ours, theirs in zip(live, stored, strict=True):
            assert different_cells(ours, theirs) == {}, name


@requires_shared
def test_there_are_many_recorded_cases():
    assert len(cases()) > 30
