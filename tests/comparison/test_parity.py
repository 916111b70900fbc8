"""Our result files against those of the official tool, cell by cell.

Numbers are compared as numbers. Every cell in which ours differ on purpose is listed here; the
reasons stand in `docs/differences.md`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from support import DATA, DUMPS, RESNET, RESULTS, SHARED, different_cells, read_csv, requires_shared

import msprobe_nb
from msprobe_nb.errors import MsProbeError, PathNotFoundError, UsageError

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
# Cases in which the official tool pairs ranks by position.
_DECIDED_OTHERWISE = {"ranks", "ranks_badtask"}


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


# ---------------------------------------------------------------- other ways of pairing

MAPS = DATA / "maps"
MINDSPORE_PAIRS = {  # the official tool pairs repeated backward calls crosswise
    f"Functional.relu.{call}.backward.{slot}" for call in (0, 1) for slot in ("input.0", "output.0")
}
PRIMITIVE_PAIRS = {  # the user's table names primitives, which the official tool never pairs
    f"Primitive.conv2d.Conv2D.{call}.{slot}"
    for call in (0, 1)
    for slot in ("forward.input.0", "forward.input.1", "forward.output.0", "backward.input.0")
} | {"Primitive.conv2d.Conv2D.1.backward.output.0"}
RENAMED_GRADIENTS = {  # the official tool does not rename the layer of a parameter's gradient
    f"Cell.conv1.Conv2d.parameters_grad.0.{name}" for name in ("weight", "bias")
}
RENAMED, TWIN_L1 = ("conv_L0_renamed", "target", "golden"), ("twin_tensor_L1", "ms", "pt")
TWIN_L0, TWIN_MIX = ("twin_statistics_L0", "ms", "pt"), ("twin_statistics_mix", "ms", "pt")
# case: recording and sides, options, rows that are paired otherwise
PAIRED = {
    "cm_none": (RENAMED, {}, set()),
    "cm_flag": (RENAMED, {"cell_mapping": True}, set()),
    "cm_full": (RENAMED, {"cell_mapping": MAPS / "cell_full.yaml"}, set()),
    "cm_str": (RENAMED, {"cell_mapping": MAPS / "cell_str.yaml"}, set()),
    "dm": (RENAMED, {"data_mapping": MAPS / "data.yaml"}, set()),
    "dirty": (("dirty", "target", "golden"), {}, set()),
    "ms_self": (("twin_tensor_L1", "ms", "ms"), {}, set()),
    "ms_pt_plain": (TWIN_L1, {}, set()),
    "ms_pt_am": (TWIN_L1, {"api_mapping": True}, set()),
    "ms_pt_am_works": (
        TWIN_L1,
        {"api_mapping": MAPS / "api_output.yaml"},
        MINDSPORE_PAIRS | PRIMITIVE_PAIRS,
    ),
    "ms_pt_cm": (TWIN_L0, {"cell_mapping": True}, set()),
    "ms_pt_cm_file": (TWIN_L0, {"cell_mapping": MAPS / "cell_ms.yaml"}, set()),
    "ms_pt_lm": (TWIN_MIX, {"layer_mapping": MAPS / "layer.yaml"}, MINDSPORE_PAIRS),
    "ms_pt_lm2": (
        TWIN_MIX,
        {"layer_mapping": MAPS / "layer2.yaml"},
        MINDSPORE_PAIRS | RENAMED_GRADIENTS,
    ),
}
# What the official tool says of every pair of two frameworks: MindSpore records no requires_grad
# and spells data types otherwise.
_FRAMEWORK_FAULTS = (
    "error: The Required_Grad of NPU and Bench are inconsistent",
    "error: The dtype of NPU and Bench are inconsistent.",
)


def sides_of(case: tuple[str, str, str]) -> list[Path]:
    name, *sides = case
    return [next((DUMPS / name / side).glob("**/dump.json")).parent for side in sides]


def without_framework_faults(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Row name -> verdict and messages, those left out that only tell frameworks apart."""
    header, *rows = read_csv(path)
    found = {}
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        left = [text for text in json.loads(cells["Err_message"]) if text not in _FRAMEWORK_FAULTS]
        levels = {text.split(":")[0] for text in left}
        verdict = next((level for level in ("error", "warning") if level in levels), "pass")
        found[cells["NPU Name"]] = verdict, left
    return found


@pytest.mark.parametrize("case", PAIRED)
def test_result_files_of_every_way_of_pairing(tmp_path, case):
    recording, options, rows = PAIRED[case]
    sides = sides_of(recording)
    (written,) = msprobe_nb.compare(*sides, **options, progress=False).to_csv(tmp_path)
    theirs = RESULTS / f"{case}.csv.gz"
    differing = different_cells(written, theirs)
    across = recording[1] == "ms" and recording[2] == "pt"
    judged = {"Result", "Err_message"} if across else set()
    assert {row for row, column in differing if column not in judged} == rows
    if across:
        ours, other = without_framework_faults(written), without_framework_faults(theirs)
        assert {row for row in ours if ours[row] != other[row]} <= rows
        messages = gzip.decompress(theirs.read_bytes()).decode()
        assert all(fault in messages for fault in _FRAMEWORK_FAULTS)
        kept = [fault in written.read_text() for fault in _FRAMEWORK_FAULTS]
        assert kept == [False, case == "ms_pt_lm2"]  # there a null is paired with a tensor


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"data_mapping": MAPS / "nope.yaml"}, PathNotFoundError),
        ({"layer_mapping": MAPS / "nope.yaml"}, PathNotFoundError),
        ({"api_mapping": True}, UsageError),
    ],
    ids=["dm_missing", "lm_pt", "am_pt"],
)
def test_tables_that_cannot_be_used_are_refused(options, error):
    """Also a layer mapping between PyTorch runs, which the official tool ignores in silence."""
    with pytest.raises(error):
        msprobe_nb.compare(*sides_of(RENAMED), **options, progress=False)


@pytest.mark.parametrize("table", ["api.yaml", "api_doc.yaml"])
def test_api_tables_of_the_documented_form_work(table):
    """The official tool breaks down on them."""
    result = msprobe_nb.compare(*sides_of(TWIN_L1), api_mapping=MAPS / table, progress=False)
    pairs = result.data_mapping
    assert pairs["Functional.relu.0.forward.input.0"] == "Torch.relu.0.forward.input.0"
    assert pairs["Functional.relu.1.backward.output.0"] == "Torch.relu.1.backward.output.0"


def test_a_pytorch_target_against_a_mindspore_golden():
    """The official tool refuses; the pairs are those of the other direction."""
    sides = sides_of(TWIN_MIX)
    there = msprobe_nb.compare(*sides, layer_mapping=True, progress=False).data_mapping
    back = msprobe_nb.compare(*sides[::-1], layer_mapping=True, progress=False).data_mapping
    assert {(b, a) for a, b in there.items() if b != "N/A"} == {
        pair for pair in back.items() if pair[1] != "N/A"
    }


def test_layer_mapping_is_written_as_the_official_data_mapping(tmp_path):
    result = msprobe_nb.compare(*sides_of(TWIN_MIX), layer_mapping=True, progress=False)
    (path,) = result.write_data_mapping(tmp_path)
    assert re.fullmatch(r"data_mapping_\d{14}\.yaml", path.name)
    written = yaml.safe_load(path.read_text())
    official = yaml.safe_load((RESULTS / "ms_pt_lm_data_mapping.yaml").read_text())
    assert written == official
    assert list(written) == result.table["target"].tolist()
    again = msprobe_nb.compare(*sides_of(TWIN_MIX), data_mapping=path, progress=False)
    assert again.data_mapping == written


def test_fuzzy_matching_gives_the_official_pairs_and_loses_no_row(tmp_path):
    sides = [DUMPS / "edge_tensor_L1" / side for side in ("target", "golden")]
    result = msprobe_nb.compare(*sides, fuzzy=True, progress=False)
    assert len(result) == 107
    official = {row[0]: row[1] for row in read_csv(RESULTS / "edge_tensor_fm.csv.gz")[1:]}
    assert len(official) == 99
    ours = {name: other for name, other in result.data_mapping.items() if name in official}
    differing = {
        name: (ours[name], official[name]) for name in ours if ours[name] != official[name]
    }
    # `x * 2` and `relu(x * 2)` are the target's extra calls; the official tool takes the one for
    # `x * 1.0` of the golden run, and stops at the other.
    golden = "Tensor.__mul__.4.forward"
    assert differing == {
        f"Tensor.__mul__.4.forward.{slot}": ("N/A", f"{golden}.{slot}")
        for slot in ("input.0", "output.0")
    }
    assert ours["Torch.relu.0.forward.input.0"] == "N/A"
    assert result.data_mapping["Torch.relu.1.forward.output.0"] == "Torch.relu.0.forward.output.0"
    assert result.data_mapping["Tensor.__mul__.5.forward.output.0"] == f"{golden}.output.0"


def test_post_processing_agrees_with_the_official_tool(tmp_path, monkeypatch):
    monkeypatch.chdir(DATA)
    sides = [DUMPS / "edge_tensor_L1" / side / "step0/rank0" for side in ("target", "golden")]
    result = msprobe_nb.compare(*sides, config="maps/matmul.yaml", progress=False)
    (written,) = result.to_csv(tmp_path)
    assert_same(written, RESULTS / "postproc.csv.gz")
    assert [note for note in result.notes if "'oops' in left_right_matmul" in note]


@requires_shared
@pytest.mark.parametrize("rank", range(3))
def test_ranks_agree_when_they_are_named(tmp_path, rank):
    """The official tool pairs ranks by position; ours compares them when both are named."""
    both, names = SHARED / "compare/dumps/ranks", ("rank0", "rank2", "rank10")
    (written,) = write(both / "target" / names[rank], both / f"golden/rank{4 + rank}", tmp_path)
    (theirs,) = (SHARED / "compare/results/ranks").glob(f"*_{names[rank]}_*.csv")
    assert different_cells(written, theirs) == {}


@requires_shared
@pytest.mark.parametrize("step", [0, 1])
def test_one_step_of_one_execution_mode_agrees(tmp_path, step):
    sides = [
        SHARED / f"compare/dumps/mix/{side}/pynative/step{step}" for side in ("target", "golden")
    ]
    (written,) = write(*sides, tmp_path)
    (theirs,) = (SHARED / f"compare/results/mix/pynative/step{step}").glob("*.csv")
    assert different_cells(written, theirs) == {}


# ---------------------------------------------------------------- MindSpore recordings

_MINDSPORE = SHARED / "mindspore"
_MIX = "pynative_mix_{}", "torch_mix_{}"
_ALIKE = "pynative_mix_statistics", "torch_renamed_mix_statistics"
CROSS = {
    "cross_none": (_MIX, {}),
    "cross_am": (_MIX, {"api_mapping": True}),
    "cross_amw": (_MIX, {"api_mapping": "api_works.yaml"}),
    "cross_cm": (_MIX, {"cell_mapping": True}),
    "cross_cmf": (_MIX, {"cell_mapping": "cell.yaml"}),
    "cross_lm": (_MIX, {"layer_mapping": True}),
    "cross_lmf": (_MIX, {"layer_mapping": "layer.yaml"}),
    "cross_dmf": (_MIX, {"data_mapping": "data.yaml"}),
    "cross_cm_renamed": (_ALIKE, {"cell_mapping": "cell_renamed.yaml"}),
    "cross_lm_renamed": (_ALIKE, {"layer_mapping": "layer_renamed.yaml"}),
}


@requires_shared
@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("case", CROSS)
def test_pairs_of_mindspore_and_pytorch(case, task):
    """The official pairs, and the same ones with the sides swapped."""
    names, options = CROSS[case]
    places = [
        next((_MINDSPORE / "data" / name.format(task)).rglob("dump.json")).parent for name in names
    ]
    options = {
        key: value if value is True else _MINDSPORE / "maps" / value
        for key, value in options.items()
    }
    pairs = json.loads((_MINDSPORE / "data/expected/cross_pairs.json").read_text())[case]
    expected = {tuple(pair) for pair in pairs}
    if case == "cross_lm_renamed":  # its official result lacks the gradients of renamed layers
        for layer, other in (("conv1.Conv2d", "blk.conv.Conv2d"), ("fc.Dense", "blk.head.Linear")):
            ends = [f"parameters_grad.0.{name}" for name in ("weight", "bias")]
            expected |= {(f"Cell.{layer}.{end}", f"Module.{other}.{end}") for end in ends}
    for turned in (False, True):
        ordered = places[::-1] if turned else places
        result = msprobe_nb.compare(*ordered, **options, progress=False)
        found = {pair for pair in result.data_mapping.items() if pair[1] != "N/A"}
        assert found == ({pair[::-1] for pair in expected} if turned else expected)
        assert result.counts["error"] == 0


# ---------------------------------------------------------------- ranks


@requires_shared
def test_ranks_are_paired_by_number_not_by_position(tmp_path):
    both = SHARED / "compare/dumps/ranks"
    shutil.copytree(both / "target", tmp_path / "golden")
    (tmp_path / "golden/rank0").rename(tmp_path / "golden/rank3")
    result = msprobe_nb.compare(both / "target", tmp_path / "golden", progress=False)
    assert result.ranks == [2, 10]
    assert [note for note in result.notes if "only in the target: step 0 rank 0" in note]
    assert [note for note in result.notes if "only in the golden: step 0 rank 3" in note]
