"""Spreadsheets in the official columns: the same cells as in csv, with types, and harmless."""

from __future__ import annotations

import re

import openpyxl
import pytest
from support import (
    DUMPS,
    RESULTS,
    SHARED,
    call,
    different_cells,
    read_table,
    read_xlsx,
    requires_shared,
    tensor,
    write_dump,
)

import msprobe_nb
from msprobe_nb import spreadsheet
from msprobe_nb.errors import UsageError

NAME = "Torch.add.0.forward"


def compare(target, golden):
    return msprobe_nb.compare(target, golden, progress=False)


def dump(case: str, side: str):
    return next(p.parent for p in (DUMPS / case / side).glob("**/d*.json"))


@pytest.fixture(scope="module")
def result():
    return compare(dump("edge_tensor_L1", "target"), dump("edge_tensor_L1", "golden"))


@pytest.mark.parametrize(
    ("case", "recording"),
    [("edge_statistics", "edge_statistics_L1"), ("stat_pairs", "stat_pairs")],
)
def test_cells_are_those_of_the_official_tool(tmp_path, case, recording):
    (written,) = compare(dump(recording, "target"), dump(recording, "golden")).to_xlsx(tmp_path)
    assert different_cells(written, RESULTS / f"{case}.xlsx") == {}


@pytest.mark.parametrize(
    ("case", "recording"),
    [
        ("dist_stat", "dist_statistics_statistics"),
        pytest.param("dist_tensor", "dist_tensor_statistics", marks=requires_shared),
        pytest.param("dist_md5", "dist_statistics_md5", marks=requires_shared),
    ],
)
def test_every_rank_gets_the_official_file(tmp_path, case, recording):
    here = (DUMPS / recording).is_dir()
    dumps, results = (
        (DUMPS, RESULTS) if here else (SHARED / "compare/dumps", SHARED / "compare/results")
    )
    sides = [dumps / recording / side for side in ("target", "golden")]
    written = sorted(compare(*sides).to_xlsx(tmp_path))
    official = sorted((results / case).glob("*.xlsx"))
    assert [p.name[:21] for p in written] == [p.name[:21] for p in official]
    for ours, theirs in zip(written, official, strict=True):
        assert different_cells(ours, theirs) == {}


@pytest.mark.parametrize(
    "case", ["arg_kinds", "edge_md5_L1", "edge_tensor_L1", "formulas", "stat_rules"]
)
def test_a_spreadsheet_says_what_the_csv_says(tmp_path, case):
    comparison = compare(dump(case, "target"), dump(case, "golden"))
    (sheet,), (text,) = comparison.to_xlsx(tmp_path), comparison.to_csv(tmp_path)
    assert different_cells(sheet, text) == {}


def test_numbers_are_numbers_and_texts_are_texts(result, tmp_path):
    (written,) = result.to_xlsx(tmp_path / "x.xlsx")
    header, *rows = openpyxl.load_workbook(written).active.iter_rows()
    kinds = {title.value: {row[title.column - 1].data_type for row in rows} for title in header}
    assert kinds["NPU Name"] == kinds["Result"] == kinds["NPU Tensor Shape"] == {"s"}
    assert kinds["Requires_grad Consistent"] == {"b"}
    assert "n" in kinds["Cosine"]
    for row in rows:
        for cell in row:
            if cell.data_type == "s" and header[cell.column - 1].value in ("Cosine", "NPU max"):
                with pytest.raises(ValueError, match="could not convert"):
                    float(cell.value.replace("Nan", "x").replace("inf", "x"))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "{=1}", "http://x.y", "%x", "'"])
def test_no_text_becomes_a_formula_or_a_link(tmp_path, text):
    entry = call([{"type": "str", "value": text}], [tensor()])
    for side in ("a", "b"):
        write_dump(tmp_path / side, {f"{text}.0.forward": entry, NAME: entry})
    (written,) = compare(tmp_path / "a", tmp_path / "b").to_xlsx(tmp_path / "x.xlsx")
    cells = [c for row in openpyxl.load_workbook(written).active.iter_rows() for c in row]
    assert not [c for c in cells if c.data_type == "f" or c.hyperlink]
    names = [c.value for c in cells if c.column == 1]
    assert f"{text}.0.forward.input.0" in names


def test_texts_that_xml_cannot_hold_leave_a_readable_file(tmp_path):
    odd = 'a\x00\x0b\x1f\ufffe\ud800<&>"]]>'
    entry = call([{"type": "str", "value": odd + "x" * 40_000}], [tensor()])
    for side in ("a", "b"):
        write_dump(tmp_path / side, {NAME: entry})
    (written,) = compare(tmp_path / "a", tmp_path / "b").to_xlsx(tmp_path / "x.xlsx")
    header, first, _ = read_table(written)
    cell = first[header.index("NPU max")]
    assert cell.startswith("a_x0000_")
    assert '<&>"]]>xxx' in cell


def test_long_results_are_split_into_equal_sheets(result, tmp_path, monkeypatch):
    (whole,) = result.to_xlsx(tmp_path / "whole.xlsx")
    monkeypatch.setattr(spreadsheet, "MAX_ROWS", 50)
    (parts,) = result.to_xlsx(tmp_path / "parts.xlsx")
    sheets = read_xlsx(parts)
    assert list(sheets) == ["part_0", "part_1", "part_2"]
    header, *rows = read_table(whole)
    assert [len(sheet) - 1 for sheet in sheets.values()] == [36, 36, 35]
    assert all(sheet[0] == header for sheet in sheets.values())
    assert [row for sheet in sheets.values() for row in sheet[1:]] == rows


def test_names_of_files(result, tmp_path):
    (written,) = result.to_xlsx(tmp_path / "folder")
    assert re.fullmatch(r"compare_result_\d{14}\.xlsx", written.name)
    with pytest.raises(UsageError, match=r"'\.csv'"):
        result.to_xlsx(tmp_path / "x.csv")
    target = tmp_path / "folder" / "x.xlsx"
    target.write_text("old")
    assert result.to_xlsx(target) == [target]
    assert len(read_table(target)) == 108
    assert sorted(p.name for p in target.parent.iterdir()) == sorted([written.name, "x.xlsx"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_spreadsheet_leaves_nothing_behind(tmp_path):
    def rows():
        yield ["a", 1]
        raise KeyboardInterrupt

    target = tmp_path / "x.xlsx"
    target.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        spreadsheet.write_workbook(target, [("Sheet1", ["t", "n"], rows())])
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_text() == "before"
