"""Result files in the official columns: names, quoting, safety, splitting."""

from __future__ import annotations

import csv
import io
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import DUMPS, call, read_csv, tensor, write_dump

import msprobe_nb
from msprobe_nb.comparison import official_csv
from msprobe_nb.errors import UsageError

NAME = "Torch.add.0.forward"
FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "%x",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff05x",
    "\t=1",
]


def compare(target, golden):
    return msprobe_nb.compare(target, golden, progress=False)


@pytest.fixture(scope="module")
def result():
    return compare(DUMPS / "edge_tensor_L1/target", DUMPS / "edge_tensor_L1/golden")


def rows_of(path) -> list[dict[str, str]]:
    header, *rows = read_csv(path)
    return [dict(zip(header, row, strict=True)) for row in rows]


# ---------------------------------------------------------------- file names


def test_a_folder_gets_the_official_name(result, tmp_path):
    (written,) = result.to_csv(tmp_path / "new/folder")
    assert written.parent == tmp_path / "new/folder"
    assert re.fullmatch(r"compare_result_\d{14}\.csv", written.name)


def test_a_single_save_comparison_has_a_name_of_its_own(tmp_path):
    result = compare(DUMPS / "debug_tensor/target", DUMPS / "debug_tensor/golden")
    (written,) = result.to_csv(tmp_path)
    assert re.fullmatch(r"debug_compare_result_\d{14}\.csv", written.name)


def test_several_ranks_and_steps_make_several_files(tmp_path):
    for place in ("step0/rank0", "step0/rank1", "step3/rank0"):
        write_dump(tmp_path / "run" / place, {NAME: call([tensor()], [])})
    result = compare(tmp_path / "run", tmp_path / "run")
    written = [p.relative_to(tmp_path / "out") for p in result.to_csv(tmp_path / "out")]
    assert [str(p.parent) for p in written] == ["step0", "step0", "step3"]
    assert [p.name.rsplit("_", 1)[0] for p in written] == [
        "compare_result_rank0",
        "compare_result_rank1",
        "compare_result_rank0",
    ]
    named = [p.name for p in result.to_csv(tmp_path / "x.csv")]
    assert named == ["x_step0_rank0.csv", "x_step0_rank1.csv", "x_step3_rank0.csv"]


def test_other_kinds_of_files_are_refused(result, tmp_path):
    with pytest.raises(UsageError, match=r"'\.xls'"):
        result.to_csv(tmp_path / "x.xls")


def test_more_rows_than_a_file_may_have_are_split(result, tmp_path, monkeypatch):
    (whole,) = result.to_csv(tmp_path / "whole.csv")
    monkeypatch.setattr(official_csv, "MAX_ROWS", 50)
    parts = result.to_csv(tmp_path / "x.csv")
    assert [p.name for p in parts] == ["x_part_1.csv", "x_part_2.csv", "x_part_3.csv"]
    header, *rows = read_csv(whole)
    assert [len(read_csv(p)) - 1 for p in parts] == [50, 50, 7]
    assert all(read_csv(p)[0] == header for p in parts)
    assert [row for p in parts for row in read_csv(p)[1:]] == rows


def test_an_existing_file_is_replaced_whole(result, tmp_path):
    target = tmp_path / "x.csv"
    target.write_text("old" * 100_000)
    result.to_csv(target)
    assert len(read_csv(target)) == 108
    assert list(tmp_path.iterdir()) == [target]


# ---------------------------------------------------------------- content


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(tmp_path, text):
    entry = call([{"type": "str", "value": f"{text}x", "Max": f"{text}x"}], [tensor()])
    for side in ("a", "b"):
        write_dump(tmp_path / side, {f"{text}.0.forward": entry, NAME: entry})
    (written,) = compare(tmp_path / "a", tmp_path / "b").to_csv(tmp_path / "x.csv")
    for cell in {cell for row in read_csv(written)[1:] for cell in row}:
        assert not cell.startswith(tuple("=+@%\uff1d\uff0b\uff0d\uff05\uff20\t")), cell
        if cell.startswith("-"):
            float(cell.rstrip("%"))


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12))
def test_any_text_survives_the_file(text):
    cell = official_csv._quoted(text).decode()
    (row,) = list(csv.reader(io.StringIO(f"{cell},end", newline="")))
    assert row[-1] == "end"
    assert row[0] in (text, "'" + text)


def test_non_finite_statistics_look_as_in_official_files(tmp_path):
    for side in ("a", "b"):
        write_dump(tmp_path / side, {NAME: call([tensor(value=float("inf"))], [])})
    text = (tmp_path / "a/dump.json").read_text().replace('"Min": Infinity', '"Min": NaN')
    (tmp_path / "a/dump.json").write_text(text)
    (row,) = rows_of(compare(tmp_path / "a", tmp_path / "b").to_csv(tmp_path / "x.csv")[0])
    assert (row["NPU max"], row["NPU min"]) == (" inf", "Nan")
    assert (row["Max diff"], row["Min diff"]) == ("0", "Nan")


def test_the_stack_column_is_there_only_with_a_stack(tmp_path):
    for side in ("target", "golden"):
        shutil.copytree(DUMPS / "edge_statistics_L1" / side, tmp_path / side)
    (written,) = compare(tmp_path / "target", tmp_path / "golden").to_csv(tmp_path / "a.csv")
    assert "NPU_Stack_Info" in read_csv(written)[0]
    for stack in (tmp_path / "target").rglob("stack.json"):
        stack.unlink()
    (written,) = compare(tmp_path / "target", tmp_path / "golden").to_csv(tmp_path / "b.csv")
    assert "NPU_Stack_Info" not in read_csv(written)[0]
