"""The documentation says what is true: its code runs, its links lead somewhere."""

from __future__ import annotations

import ast
import re
import shutil

import pytest
from support import DUMPS, RESNET, ROOT

import msprobe_nb
from msprobe_nb.commands import COMMANDS, build_parser

DOCS = ROOT / "docs"
PAGES = [*DOCS.rglob("*.md"), *ROOT.glob("README*.md"), ROOT / "benchmarks/README.md"]
GUIDE = ["compare", "runs", "commands"]


def blocks(path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)


@pytest.mark.parametrize("page", ["compare", "runs"])
def test_the_code_of_the_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RESNET, "resnet50")
    found = blocks(DOCS / "guide" / f"{page}.md")
    assert len(found) > 3
    names: dict[str, object] = {}
    for block in found:
        exec(compile(block, page, "exec"), names)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # sums of NaN and infinity
def test_the_reader_of_the_format_page_reads_a_store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = msprobe_nb.import_run(DUMPS / "edge_tensor_L1/golden", "run.zarr", progress=False)
    capsys.readouterr()
    (reader,) = blocks(DOCS / "format.md")
    assert "msprobe_nb" not in reader
    exec(compile(reader, "format", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    index = run.pack().index
    assert [line.split(" of ")[0] for line in lines if " of " in line][-1] == index.name[-1]
    for name in ("Torch.sum.0.forward.output.0", "Tensor.__mul__.0.forward.output.0"):
        if name in index.row_of:
            total = run[name].values.sum()
            assert any(line.startswith(name) and line.endswith(str(total)) for line in lines)


@pytest.mark.parametrize("page", GUIDE)
def test_both_languages_show_the_same_code(page):
    english, chinese = DOCS / "guide" / f"{page}.md", DOCS / "zh" / f"{page}.md"
    code = [[ast.dump(ast.parse(block)) for block in blocks(path)] for path in (english, chinese)]
    assert code[0] == code[1]  # comments are translated
    assert english.read_text().count("\n## ") == chinese.read_text().count("\n## ")
    assert english.read_text().count("\n|") == chinese.read_text().count("\n|")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("language", ["guide", "zh"])
def test_the_command_page_lists_every_command_and_option(language):
    text = (DOCS / language / "commands.md").read_text()
    _, parsers = build_parser("msprobe-nb")
    for name in COMMANDS:
        assert f"`{name} " in text
    for action in parsers["compare"]._actions:
        if action.dest != "help":
            assert any(option in text for option in action.option_strings), action.option_strings


def test_every_dependency_has_a_reason():
    text = (DOCS / "dependencies.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", project, re.S | re.M)[1]
    for name in re.findall(r'"([\w-]+)', listed):
        assert name in text, name
