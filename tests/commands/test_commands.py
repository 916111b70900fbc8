"""The commands: the same on the command line and as ``%msprobe``."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from support import DATA, DUMPS, RESNET, call, read_csv, read_xlsx, tensor, write_dump

import msprobe_nb
from msprobe_nb import Comparison, Run
from msprobe_nb.cli import main
from msprobe_nb.commands import COMMANDS
from msprobe_nb.commands.base import numbers
from msprobe_nb.errors import MsProbeError, UsageError, WriteError
from msprobe_nb.magics import MsProbeMagics, completions
from msprobe_nb.store.layout import write_atomic

TARGET, GOLDEN = (str(DUMPS / "edge_tensor_L1" / side) for side in ("target", "golden"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- command line


def test_compare_prints_the_conclusion_and_writes_the_result(here, capsys):
    assert main(["compare", "-tp", TARGET, "-gp", GOLDEN]) == 0
    out = capsys.readouterr().out
    (written,) = (here / "output").iterdir()
    assert f"result: output/{written.name}" in out
    assert "25 errors among 107 values." in out
    assert len(read_csv(written)) == 108


def test_options_of_compare(here, capsys):
    for rank in range(3):
        write_dump(here / f"run/step0/rank{rank}", {"Torch.a.0.forward": call([tensor()], [])})
    words = ["compare", "--target_path", "run", "--golden_path=run", "--rank", "0,2", "-o", "out"]
    assert main([*words, "--html", "report.html"]) == 0
    out = capsys.readouterr().out
    assert len(list((here / "out").glob("*rank[02]_*.csv"))) == 2
    assert "report: report.html" in out
    assert "<html" in (here / "report.html").read_text()


PAIRED = [
    (["-fm"], {"fuzzy": True}),
    (["--fuzzy_match"], {"fuzzy": True}),
    (["-cm"], {"cell_mapping": True}),
    (["--cell_mapping", str(DATA / "maps/cell_ms.yaml")], "cell_ms"),
    (["-am"], {"api_mapping": True}),
    (["--api_mapping", str(DATA / "maps/api.yaml")], "api"),
    (["-lm"], {"layer_mapping": True}),
    (["--layer_mapping", str(DATA / "maps/layer.yaml")], "layer"),
    (["-dm", str(DATA / "maps/data.yaml")], "data"),
]


@pytest.mark.parametrize(("words", "option"), PAIRED)
def test_ways_of_pairing(here, words, option):
    if isinstance(option, str):
        option = {words[0].strip("-").replace("dm", "data_mapping"): words[1]}
    sides = [str(DUMPS / "twin_statistics_mix" / side) for side in ("ms", "pt")]
    assert main(["compare", "-m", "auto", "-tp", sides[0], "-gp", sides[1], *words]) == 0
    expected = msprobe_nb.compare(*sides, progress=False, **option)
    (expected_csv,) = expected.to_csv(here / "expected")
    (written,) = (here / "output").glob("*.csv")
    assert read_csv(written) == read_csv(expected_csv)
    mappings = list((here / "output").glob("data_mapping_*.yaml"))
    assert len(mappings) == ("layer_mapping" in option)


def test_values_can_be_prepared_and_measured_otherwise(here, capsys):
    (here / "alg_size.py").write_text(
        "def column_name(): return 'Size'\ndef compare(n, b): return n.numel()\n"
    )
    (here / "table.yaml").write_text("nonsense: {}\n")
    words = ["compare", "-tp", TARGET, "-gp", GOLDEN, "--algorithm", "alg_size.py"]
    assert main([*words, "--config", "table.yaml", "-tensor_log"]) == 0
    out = capsys.readouterr().out
    assert "table.yaml: unknown section 'nonsense'" in out
    line = "[Tensor.__mul__.0.forward.input.0] Compare result: Cosine 1.0, EucDist 0.0, "
    assert "start compare: Tensor.__mul__.0.forward.input.0" in out.splitlines()
    assert [text for text in out.splitlines() if text.startswith(line) and "Size 24" in text]
    assert out.count("start compare: ") == 107
    (written,) = (here / "output").glob("*.csv")
    assert "Size" in read_csv(written)[0]


@pytest.mark.parametrize("topic", [[], ["help"], ["--help"]])
def test_help_lists_the_commands(topic, capsys):
    assert main(topic) == 0
    out = capsys.readouterr().out
    for command in COMMANDS.values():
        assert command.name in out
        assert command.help in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    assert main([command, "--help"]) == main(["help", command]) == 0
    first, second = capsys.readouterr().out.split("usage:")[1:]
    assert first == second
    assert COMMANDS[command].help in first


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["compare"],
        ["compare", "-tp", "a"],
        ["compare", "-tp", "a", "-gp", "b", "--rank", "x"],
        ["compare", "-tp", "a", "-gp", "b", "--rank", "4-2"],
        ["compare", "-tp", "a", "-gp", "b", "--rules", "strict"],
        ["help", "nonsense"],
        ["open"],
    ],
)
def test_wrong_use_is_status_2_with_the_usage(words, capsys):
    assert main(words) == 2
    assert "usage: msprobe-nb" in capsys.readouterr().err


def test_a_failed_job_is_status_1_with_one_line(here, capsys):
    assert main(["compare", "-tp", "nope", "-gp", GOLDEN]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "nope" in err


def test_a_csv_file_may_be_named(here, capsys):
    assert main(["compare", "-tp", TARGET, "-gp", GOLDEN, "-o", "deep/res.csv"]) == 0
    assert "result: deep/res.csv" in capsys.readouterr().out
    assert [path.name for path in (here / "deep").iterdir()] == ["res.csv"]


@pytest.mark.parametrize("words", [["-o", "/proc/x"], ["-o", "file/x"], ["--html", "file/r.html"]])
def test_a_place_that_cannot_be_written_is_told_before_the_work(here, capsys, monkeypatch, words):
    monkeypatch.setattr("msprobe_nb.comparison.engine.compare", None)  # is not reached
    (here / "file").write_text("")
    assert main(["compare", "-tp", TARGET, "-gp", GOLDEN, *words]) == 1
    err = capsys.readouterr().err
    assert "cannot be written" in err
    assert err.count("\n") == 1
    assert "Errno" not in err


def test_a_failed_write_leaves_nothing_behind(here):
    (here / "taken").mkdir()
    with pytest.raises(WriteError, match="cannot be written"):
        write_atomic(here / "taken", b"x")
    assert [path.name for path in here.iterdir()] == ["taken"]


def test_a_selection_without_a_match_is_named(here, capsys):
    assert main(["compare", "-tp", TARGET, "-gp", GOLDEN, "--step", "5,7"]) == 1
    err = capsys.readouterr().err
    assert "among the chosen steps 5, 7" in err
    assert "Choose steps and ranks that both have" in err


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"msprobe-nb {msprobe_nb.__version__}"


def test_an_unknown_topic_lists_the_commands(capsys):
    assert main(["help", "nonsense"]) == 2
    err = capsys.readouterr().err
    assert all(name in err for name in COMMANDS)


def test_a_comparison_without_marks_is_success_and_one_with_errors_too(here):
    """The status says whether the job was done, not what it found."""
    assert main(["compare", "-tp", GOLDEN, "-gp", GOLDEN]) == 0


def test_ls_open_and_import(here, capsys):
    write_dump(here / "some/dump/step0/rank0", {"Torch.a.0.forward": call([tensor()], [])})
    assert main(["ls"]) == 0
    assert "some/dump" in capsys.readouterr().out
    assert main(["import", "some/dump", "run.zarr"]) == 0
    capsys.readouterr()
    assert main(["open", "run.zarr"]) == 0
    assert "run.zarr" in capsys.readouterr().out


def test_export_writes_an_official_folder_and_says_what_it_could_not(here, capsys):
    entry = call([tensor(data_name="gone.pt")], [])
    write_dump(here / "run/step0/rank0", {"Torch.a.0.forward": entry}, task="tensor")
    assert main(["export", "run", "official"]) == 0
    note, path = capsys.readouterr().out.splitlines()
    assert note.startswith(
        "note: Torch.a.0.forward.input.0 has no file: the tensor file is missing"
    )
    assert path == "official"
    ours, theirs = (here / f"{name}/step0/rank0/dump.json" for name in ("official", "run"))
    assert ours.read_bytes() == theirs.read_bytes()
    assert main(["export", "run", "official"]) == 1
    assert "not empty" in capsys.readouterr().err


def test_a_truncated_dump_can_be_salvaged(here, capsys):
    folder = write_dump(
        here / "x", {f"Torch.a.{n}.forward": call([tensor()], []) for n in range(9)}
    )
    text = (folder / "dump.json").read_text()
    (folder / "dump.json").write_text(text[: len(text) // 2])
    assert main(["compare", "-tp", "x", "-gp", "x"]) == 1
    assert "salvage" in capsys.readouterr().err
    assert main(["open", "x", "--salvage"]) == 0


def test_the_module_runs_as_a_program(here):
    words = [sys.executable, "-m", "msprobe_nb", "compare", "-tp", str(RESNET / "cpu")]
    done = subprocess.run(
        [*words, "-gp", str(RESNET / "gpu"), "-o", "out"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "No errors, 89 warnings among 4,115 values." in done.stdout
    assert "Traceback" not in done.stderr


def test_lists_of_numbers():
    assert numbers("0,2-4, 9") == [0, 2, 3, 4, 9]
    assert numbers("3,3,1") == [1, 3]


# ---------------------------------------------------------------- notebook


@pytest.fixture
def shell(here):
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "msprobe_nb")
    yield shell
    shell.run_line_magic("unload_ext", "msprobe_nb")
    shell.user_ns.clear()


def test_the_magic_returns_objects(shell, here):
    result = shell.run_line_magic("msprobe", f"compare -tp {TARGET} -gp {GOLDEN}")
    assert isinstance(result, Comparison)
    assert not list(here.iterdir())  # files are written only when asked for
    assert isinstance(shell.run_line_magic("msprobe", f"open {TARGET}"), Run)
    assert isinstance(shell.run_line_magic("msprobe", f"ls {DUMPS}"), pd.DataFrame)
    assert isinstance(shell.run_line_magic("msprobe", f"import {TARGET} run.zarr"), Run)
    shell.run_line_magic("msprobe", f"compare -tp {TARGET} -gp {GOLDEN} -o")
    assert list((here / "output").glob("compare_result_*.csv"))


def test_variables_stand_for_runs_and_paths(shell):
    shell.user_ns["target"] = shell.run_line_magic("msprobe", f"open {TARGET}")
    shell.user_ns["golden"] = GOLDEN
    result = shell.run_line_magic("msprobe", "compare -tp target -gp golden")
    assert len(result) == 107
    shell.user_ns["target"] = 5
    with pytest.raises(UsageError, match="variable target is an int"):
        shell.run_line_magic("msprobe", "compare -tp target -gp golden")


def test_a_name_that_means_two_things_is_refused(shell, here):
    run = shell.run_line_magic("msprobe", f"import {TARGET} run")
    assert isinstance(run, Run)
    shell.user_ns["run"] = run  # the run that stands there: no doubt
    assert shell.run_line_magic("msprobe", "open run") is run
    shell.user_ns["run"] = GOLDEN
    with pytest.raises(UsageError, match="both a variable and a path"):
        shell.run_line_magic("msprobe", "open run")
    assert shell.run_line_magic("msprobe", "open ./run").url.endswith("run")
    shell.user_ns["run"] = 3  # nothing that could be meant
    assert isinstance(shell.run_line_magic("msprobe", "open run"), Run)


def test_the_magic_works_on_either_side_of_an_assignment(shell):
    shell.run_cell(f"c = %msprobe compare -tp {TARGET} -gp {GOLDEN}").raise_error()
    assert shell.user_ns["c"].counts["error"] == 25


def test_errors_are_short_and_say_what_to_do(shell, capsys):
    outcome = shell.run_cell("%msprobe compare -tp nope -gp nope")
    assert isinstance(outcome.error_in_exec, MsProbeError)
    shown = "".join(capsys.readouterr())
    assert "PathNotFoundError: the path does not exist (file nope)." in shown
    assert "Traceback" not in shown
    shell.run_cell("%msprobe compare -tp nope")
    assert "UsageError" in "".join(capsys.readouterr())
    shell.run_cell(f"%msprobe compare -tp {TARGET} -gp {GOLDEN} -o /proc/x")
    shown = "".join(capsys.readouterr())
    assert "WriteError: it cannot be written" in shown
    assert "Traceback" not in shown
    shell.run_cell("%msprobe open 'half")
    assert "No closing quotation" in "".join(capsys.readouterr())


def test_help_in_the_notebook(shell, capsys):
    assert shell.run_line_magic("msprobe", "help") is None
    assert "usage: %msprobe" in capsys.readouterr().out
    assert shell.run_line_magic("msprobe", "compare --help") is None
    assert "--golden_path" in capsys.readouterr().out
    usage = MsProbeMagics.msprobe.__doc__
    assert all(f"%msprobe {name} " in usage for name in COMMANDS)


# ---------------------------------------------------------------- completion


def complete(line: str, **variables) -> set[str]:
    return set(completions(line, variables)[1])


def test_commands_and_options_complete():
    assert complete("%msprobe ") == {*COMMANDS, "help"}
    assert complete("%msprobe co") == {"compare"}
    assert complete("%msprobe help o") == {"open"}
    assert {"--target_path", "--golden_path", "--rules"} <= complete("%msprobe compare --")
    assert "-tp" not in complete("%msprobe compare -tp x -")
    assert complete("%msprobe compare --rules ") == {"msprobe", "evidence"}
    assert complete("%msprobe nonsense ") == set()


def test_paths_and_variables_complete(here):
    (here / "runs/a").mkdir(parents=True)
    (here / "readme").write_text("")
    run = Run.__new__(Run)
    found = complete("%msprobe compare -tp r", ref=run, rubbish=3, road="runs/a", rhyme="no path")
    assert found == {"ref", "road", "runs/", "readme"}
    assert complete("%msprobe compare -tp runs/") == {"runs/a/"}
    assert complete("%msprobe open run") == {"runs/"}
    for option in ("-dm", "--cell_mapping", "-am", "-lm", "--config", "--algorithm"):
        assert complete(f"%msprobe compare {option} re") == {"readme"}
    assert complete("%msprobe compare --rank r") == set()


def test_names_with_blanks_can_be_completed(here, monkeypatch):
    (here / "my runs/the first").mkdir(parents=True)
    assert completions("%msprobe open m", {}) == ("m", ["my\\ runs/"])
    assert completions("%msprobe open my\\ runs/", {}) == (
        "my\\ runs/",
        ["my\\ runs/the\\ first/"],
    )
    assert completions("%msprobe open 'my r", {}) == ("'my r", ["'my runs/"])
    assert completions("%msprobe compare --target_path=my", {}) == ("my", ["my\\ runs/"])
    assert completions("%msprobe compare --rules=e", {}) == ("e", ["evidence"])
    monkeypatch.setenv("HOME", str(here))
    assert completions("%msprobe open ~/m", {}) == ("~/m", ["~/my\\ runs/"])


@pytest.mark.parametrize(
    "line", ["%msprobe compare --step ", "%msprobe nonsense ", "%msprobe open ~/none"]
)
def test_python_names_are_never_offered(shell, line):
    with provisionalcompleter():
        found = [c.text for c in shell.Completer.completions(line, len(line))]
    assert found in ([], [""], [line.split(" ")[-1]])


def test_the_kernel_asks_our_completer(shell, here):
    (here / "runs").mkdir()
    line = "c = %msprobe compare -tp ru"
    with provisionalcompleter():
        found = {c.text for c in shell.Completer.completions(line, len(line))}
    assert "runs/" in found


def test_compare_writes_spreadsheets(here, capsys):
    assert main(["compare", "-tp", TARGET, "-gp", GOLDEN, "--xlsx", "-o", "out"]) == 0
    (written,) = (here / "out").iterdir()
    assert written.suffix == ".xlsx"
    assert f"result: out/{written.name}" in capsys.readouterr().out


def test_merge_result_writes_one_sheet_for_each_metric(here, capsys):
    for side, value in (("a", 1.0), ("b", 2.0)):
        for rank in range(2):
            entry = call([tensor()], [tensor(value=value)])
            write_dump(here / side / f"rank{rank}", {"Torch.add.0.forward": entry})
    (here / "merge.yaml").write_text("api: [Torch.add]\ncompare_index: [Max diff, L2norm diff]\n")
    assert main(["compare", "-tp", "b", "-gp", "a", "-o", "out", "--xlsx"]) == 0
    assert main(["merge_result", "-i", "out", "-o", "merged", "-config", "merge.yaml"]) == 0
    (written,) = (here / "merged").iterdir()
    sheets = read_xlsx(written)
    assert list(sheets) == ["Max diff", "L2norm diff"]
    assert sheets["Max diff"][0] == ["NPU Name", "rank0", "rank1"]
    assert "2 values over rank0, rank1: Max diff, L2norm diff" in capsys.readouterr().out


def test_first_differences_and_merged_ranks_in_a_notebook(shell, here):
    for side, value in (("a", 1.0), ("b", 4.0)):
        for rank in range(2):
            entry = call([tensor()], [tensor(value=value)])
            write_dump(here / side / f"rank{rank}", {"Torch.<b>.0.forward": entry})
    before = sorted(here.rglob("*"))
    first = shell.run_line_magic("msprobe", "compare -tp b -gp a -da")
    assert first.findings["rank"].tolist() == [0, 1]
    assert "<b>" not in first._repr_html_()
    (here / "m.yaml").write_text("api: ['Torch.<b>']\n")
    shell.user_ns["c"] = shell.run_line_magic("msprobe", "compare -tp b -gp a")
    merged = shell.run_line_magic("msprobe", "merge_result -i c -config m.yaml")
    assert list(merged["Max diff"].columns) == ["NPU Name", "rank0", "rank1"]
    assert "Torch.<b>" not in merged._repr_html_()
    assert sorted(here.rglob("*")) == [*sorted([*before, here / "m.yaml"])]
