"""Results of several ranks side by side: from files of both kinds and from a comparison."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support import (
    RESULTS,
    SHARED,
    call,
    read_xlsx,
    requires_shared,
    same_cell,
    tensor,
    write_dump,
)

import msprobe_nb
from msprobe_nb.comparison.merge import merge_results, read_merge_config
from msprobe_nb.comparison.official_read import read_result
from msprobe_nb.errors import FormatError, PathNotFoundError, UsageError

OFFICIAL, MAPS = SHARED / "compare/results", SHARED / "compare/maps"
ADD, REDUCE = "Torch.add.0.forward", "Distributed.all_reduce.0.forward"


def record(folder: Path, rank: int, value: float, step: int = 0) -> None:
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "7"}
    entries = {ADD: call([tensor()], [tensor(value=value)])}
    if rank != 2:
        entries[REDUCE] = call([tensor(), group], [tensor(value=value)])
    write_dump(folder / f"step{step}/rank{rank}", entries)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    root = tmp_path_factory.mktemp("merge")
    for rank in range(3):
        record(root / "golden", rank, 1.0)
        record(root / "target", rank, 1.0 + rank)
    return msprobe_nb.compare(root / "target", root / "golden", progress=False)


def merged_cells(path: Path) -> dict[tuple[str, str, str], str]:
    return {
        (sheet, row[0], title): cell
        for sheet, rows in read_xlsx(path).items()
        for row in rows[1:]
        for title, cell in zip(rows[0], row, strict=True)
    }


@requires_shared
@pytest.mark.parametrize(
    ("case", "source", "config"),
    [
        ("merge", "dist_stat", "merge"),
        ("merge", "dist_stat_csv", "merge"),
        ("merge_tensor", "dist_tensor", "merge_api_only"),
    ],
)
def test_merged_sheets_are_those_of_the_official_tool(tmp_path, case, source, config):
    merged = merge_results(OFFICIAL / source, read_merge_config(MAPS / f"{config}.yaml"))
    ours = merged_cells(merged.to_xlsx(tmp_path))
    theirs = merged_cells(next((OFFICIAL / case).glob("*.xlsx")))
    assert list(ours) == list(theirs)
    differing = {(ours[at], theirs[at]) for at in ours if not same_cell(ours[at], theirs[at])}
    # A rank of a communication call is a whole number.
    whole = {("NPU:1  Bench:1", "NPU:1.0  Bench:1.0")}
    assert differing == (whole if case == "merge_tensor" else set())


def test_merged_sheets_of_copied_results_are_those_of_the_official_tool(tmp_path):
    apis, metrics = ["Distributed.all_reduce", "Torch.square.0"], ["Max diff", "NormRelativeErr"]
    merged = merge_results(RESULTS / "dist_stat", apis, metrics)
    ours = merged_cells(merged.to_xlsx(tmp_path))
    theirs = merged_cells(next((RESULTS / "merge").glob("*.xlsx")))
    assert list(ours) == list(theirs)
    assert all(same_cell(ours[at], theirs[at]) for at in ours)


@requires_shared
def test_check_values_are_merged_as_verdicts():
    merged = merge_results(OFFICIAL / "dist_md5", ["Distributed.all_reduce"])
    table = merged["Result"].set_index("NPU Name")
    assert table.loc["Distributed.all_reduce.1.forward.input.0"].tolist() == ["pass", "error"]
    table = merge_results(OFFICIAL / "dist_md5", "Distributed.all_reduce.0", "NPU MD5")["NPU MD5"]
    assert all(len(text) == 8 for text in table["rank0"])


@requires_shared
@pytest.mark.parametrize(
    ("source", "config", "error", "text"),
    [
        ("dist_stat", "merge_bad", UsageError, "no column Cosine"),
        ("dist_stat", "merge_noapi", FormatError, "'api'"),
        ("stat_pairs_xlsx", "merge", UsageError, "0 rank"),
    ],
)
def test_what_cannot_be_merged_is_told(source, config, error, text):
    with pytest.raises(error, match=text):
        merge_results(OFFICIAL / source, read_merge_config(MAPS / f"{config}.yaml"))


def test_a_comparison_of_several_ranks(comparison):
    merged = comparison.merge(["Torch.add", "Distributed"], ["Max diff", "NormRelativeErr"])
    table = merged["Max diff"].set_index("NPU Name")
    assert list(table.columns) == ["rank0", "rank1", "rank2"]
    assert table.loc[f"{ADD}.output.0"].tolist() == [0, 1.0, 2.0]
    assert table.loc[f"{REDUCE}.output.0"].tolist() == [0, 1.0, None]
    assert merged["NormRelativeErr"].set_index("NPU Name").loc[f"{ADD}.output.0", "rank2"] == (
        "200.0%"
    )
    assert merged.notes == ["rank2 has no call Distributed"]


def test_recorded_values_stand_where_a_metric_says_nothing(tmp_path):
    for side, name in (("target", "Torch.x.0.forward"), ("golden", "Torch.y.0.forward")):
        for rank in (0, 1):
            entries = {name: call([tensor(value=5.0), None], [])}
            write_dump(tmp_path / side / f"rank{rank}", entries)
    result = msprobe_nb.compare(tmp_path / "target", tmp_path / "golden", progress=False)
    table = result.merge("Torch.x", "Max diff")["Max diff"]
    assert table["rank0"].tolist() == ["NPU:5  Bench:N/A", "NPU:None  Bench:N/A"]


@pytest.mark.parametrize("kind", ["to_csv", "to_xlsx"])
def test_files_give_what_the_comparison_gives(comparison, tmp_path, kind):
    getattr(comparison, kind)(tmp_path)
    ours = merge_results(tmp_path, ["Torch", "Distributed"])
    direct = comparison.merge(["Torch", "Distributed"])
    assert list(ours) == list(direct)
    for metric, table in ours.items():
        assert table.equals(direct[metric]), metric
    files = sorted(p for p in tmp_path.iterdir() if p.is_file())
    listed = merge_results(files, ["Torch", "Distributed"])
    assert listed["Max diff"].equals(direct["Max diff"])


def test_the_newest_result_of_a_rank_counts(comparison, tmp_path):
    for path in comparison.to_csv(tmp_path):
        stamp = path.stem.rpartition("_")[2]
        shutil.copy(path, tmp_path / path.name.replace(stamp, "20200101000000"))
    (tmp_path / "notes.csv").write_text("a,b\n")
    merged = merge_results(tmp_path, "Torch")
    assert list(merged["Max diff"].columns) == ["NPU Name", "rank0", "rank1", "rank2"]
    assert len([note for note in merged.notes if "20200101000000" in note]) == 3
    assert any("notes.csv" in note for note in merged.notes)


def test_several_steps_have_columns_of_their_own(tmp_path):
    for step in (0, 1):
        for rank in (0, 1):
            record(tmp_path / "a", rank, 1.0 + step, step)
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "a", progress=False)
    table = result.merge("Torch.add", "Max diff")["Max diff"]
    assert list(table.columns)[1:] == ["step0_rank0", "step0_rank1", "step1_rank0", "step1_rank1"]


def test_faults_of_input_are_told(comparison, tmp_path):
    with pytest.raises(PathNotFoundError):
        merge_results(tmp_path / "absent", "Torch")
    with pytest.raises(UsageError, match=r"no rank has a call Torch\.sub"):
        comparison.merge("Torch.sub")
    (tmp_path / "x.yaml").write_text("api: [a\n")
    with pytest.raises(FormatError, match="no valid YAML"):
        read_merge_config(tmp_path / "x.yaml")
    (tmp_path / "x.xlsx").write_bytes(b"PK no zip")
    with pytest.raises(FormatError, match="no readable spreadsheet"):
        read_result(tmp_path / "x.xlsx")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FormatError, match="no comparison result"):
        read_result(tmp_path / "x.csv")


def test_yaml_runs_nothing(tmp_path):
    place = tmp_path / "ran"
    (tmp_path / "x.yaml").write_text(f"api: !!python/object/apply:os.mkdir ['{place}']\n")
    with pytest.raises(FormatError):
        read_merge_config(tmp_path / "x.yaml")
    assert not place.exists()
