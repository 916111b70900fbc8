"""The notebook as a user has it: JupyterLab in Chromium, a result, a table of 200,000 rows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from lab import FLAGS, LabPage, find_chromium, running_lab, write_notebook
from support import DUMPS, RESNET, call, tensor, write_dump

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed"),
]

CALLS = 50_000 - 3  # four values each; three more calls are special
HOSTILE = "<img src=x onerror=window.hacked=1>"


def entry(output: dict) -> dict:
    return call([tensor(value=1.0), tensor(value=2.0), tensor(value=3.0)], [output])


def repeat(path: Path, factor: float) -> None:
    """Put many calls in place of the call ``op@``."""
    text = path.read_text()
    start, end = text.index('  "Torch.op@'), text.index('  "Torch.<')
    block = text[start:end].replace("1000000.0", "NORM")
    calls = (
        block.replace("@", str(number)).replace("NORM", repr(factor * (1.0 + number)))
        for number in range(CALLS)
    )
    path.write_text(text[:start] + "".join(calls) + text[end:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings and notebooks for JupyterLab to serve."""
    root = tmp_path_factory.mktemp("lab")
    for side, factor in (("target", 1.0), ("golden", 1.001)):
        marked = side == "target"
        write_dump(
            root / "many" / side,
            {
                "Torch.first.0.forward": entry(tensor(value=1, norm=1e9 if marked else 1)),
                "Torch.second.0.forward": entry(tensor(value=float("nan") if marked else 1)),
                "Torch.op@.0.forward": entry(tensor(norm=1e6)),
                f"Torch.{HOSTILE}.0.forward": entry(tensor(norm=factor * 9)),
            },
        )
        repeat(root / "many" / side / "dump.json", factor)
    shutil.copytree(DUMPS / "edge_tensor_L1", root / "tensors")
    shutil.copytree(RESNET, root / "resnet50")
    load = "%load_ext msprobe_nb"
    write_notebook(
        root / "many.ipynb", load, "c = %msprobe compare -tp many/target -gp many/golden\nc"
    )
    write_notebook(
        root / "tensors.ipynb",
        load,
        "c = %msprobe compare -tp tensors/target -gp tensors/golden\nc",
    )
    write_notebook(
        root / "resnet.ipynb", load, "%msprobe compare -tp resnet50/cpu -gp resnet50/gpu"
    )
    shutil.copytree(RESNET.parent / "faults", root / "faults")
    write_notebook(
        root / "far.ipynb",
        load,
        "c = %msprobe compare -tp faults/encoder_layer_norm_eps.zip -gp faults/encoder_golden.zip "
        "--rules evidence\nc",
        *["print('\\n'.join('far' for _ in range(60)))"] * 4,
    )
    return root


@pytest.fixture(scope="module")
def address(folder):
    with running_lab(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def lab(browser, address):
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    yield LabPage(page, address)
    page.close()


def opened(lab: LabPage, notebook: str) -> LabPage:
    """The notebook, run, with its table on the screen."""
    lab.open(notebook)
    lab.wait_idle()
    lab.page.wait_for_selector(".msnb-row .msnb-cell")
    return lab


def info(lab: LabPage, text: str) -> None:
    """Wait until the table says how many rows it shows."""
    lab.page.wait_for_function(
        "(text) => document.querySelector('.msnb-info')?.textContent === text", arg=text
    )


def first_row(lab: LabPage, text: str) -> None:
    """Wait until the first row on the screen holds a text."""
    lab.page.wait_for_function(
        "(text) => document.querySelector('.msnb-row')?.textContent.includes(text)", arg=text
    )


def fill(lab: LabPage, name: str, text: str) -> None:
    box = lab.page.locator(f'.msnb-head input[aria-label="filter {name}"]')
    box.fill(text)
    box.press("Enter")


def title(lab: LabPage, name: str):
    return lab.page.locator(".msnb-title", has=lab.page.get_by_text(name, exact=True))


def until(lab: LabPage, condition: str) -> None:
    lab.page.wait_for_function(condition)


def selected(lab: LabPage, row: int) -> None:
    """Wait until the kernel knows that this row of the table is selected."""
    for _ in range(50):
        if lab.python("print(c.widget().grid.selected)") == f"[{row}]":
            return
        lab.page.wait_for_timeout(100)
    raise AssertionError(lab.python("print(c.widget().grid.selected)"))


def test_two_hundred_thousand_rows(lab, folder):
    opened(lab, "many.ipynb")
    total = 200_000
    info(lab, f"{total:,} rows")

    # Only what is on the screen is in the page, wherever one scrolls.
    grid = lab.page.locator(".msnb-scroll")
    for place in (0.25, 0.5, 0.9, 1.0):
        grid.evaluate("(e, place) => { e.scrollTop = place * e.scrollHeight; }", place)
        until(lab, "() => document.querySelector('.msnb-row .msnb-cell')")
        assert lab.page.locator(".msnb-row").count() < 60
    lab.page.wait_for_function(
        "(name) => [...document.querySelectorAll('.msnb-row')].at(-1).textContent.includes(name)",
        arg=f"Torch.{HOSTILE}.0.forward.output.0",
    )

    # Text, regular expression, number, NaN.
    fill(lab, "target", "op1234.")
    info(lab, f"4 of {total:,} rows")
    fill(lab, "target", r"/op4999[56]\..*output/")
    info(lab, f"2 of {total:,} rows")
    fill(lab, "target", "")
    fill(lab, "NormRelativeErr", ">1e-3")
    info(lab, f"1 of {total:,} rows")
    first_row(lab, "Torch.first.")
    # Typing is enough; what is not understood is said below the table.
    lab.page.locator('.msnb-head input[aria-label="filter NormRelativeErr"]').fill("> 1 or 2")
    lab.page.get_by_text("NormRelativeErr: 'or' is no number, filter ignored").wait_for()
    assert (
        lab.page.locator(".msnb-head input.msnb-fault").evaluate(
            "(box) => getComputedStyle(box).outlineStyle"
        )
        == "solid"
    )
    lab.page.get_by_role("button", name="Clear").click()
    info(lab, f"{total:,} rows")

    # The keyboard reaches rows that were not loaded, and fast keys lose no step.
    lab.page.locator(".msnb-scroll").focus()
    lab.page.keyboard.press("End")
    selected(lab, total - 1)
    lab.page.keyboard.press("Home")
    for _ in range(30):
        lab.page.keyboard.press("ArrowDown")
    selected(lab, 30)

    # Sorting.
    title(lab, "NormRelativeErr").click()
    first_row(lab, "Torch.first.")

    # The legend filters too.
    lab.page.get_by_role("button", name=re.compile("error")).click()
    until(lab, "() => document.querySelector('.msnb-info').textContent.startsWith('2 of')")

    # A file of what is shown.
    lab.page.get_by_role("button", name="Export").click()
    until(lab, "() => document.querySelector('.msnb-note').textContent.startsWith('2 rows')")
    assert len((folder / "comparison_rows.csv").read_text().splitlines()) == 3
    assert lab.page.evaluate("() => window.hacked") is None
    assert (lab.outside, lab.errors) == ([], [])


def test_from_a_row_to_its_values(lab):
    opened(lab, "tensors.ipynb")
    name = "Tensor.__mul__.0.forward.output.0"
    fill(lab, "target", name)
    until(lab, "() => document.querySelectorAll('.msnb-row').length === 1")
    lab.page.locator(".msnb-row").click()
    lab.page.wait_for_selector("text=Worst elements")
    lab.page.wait_for_selector("text=Called from")
    plots = lab.page.locator(".bk-Canvas")  # two histograms and the heat map
    plots.nth(2).wait_for(state="attached")
    assert plots.count() == 3
    assert lab.python("print(*c.widget().selected['target'])") == name
    assert lab.python("print(len(c.widget().filtered))") == "1"

    # Selecting in Python shows in the browser.
    lab.page.get_by_role("button", name="Clear").click()
    lab.python("c.widget().select('Torch.square.0.forward.output.0')")
    until(
        lab,
        "() => document.querySelector('.msnb-row[aria-selected=true]')"
        "?.textContent.includes('Torch.square.0.forward.output.0')",
    )

    # Columns can be chosen, rows walked with the keyboard.
    lab.page.get_by_role("button", name="Columns").click()
    lab.page.locator(".msnb-menu label", has_text="golden dtype").locator("input").check()
    until(
        lab,
        "() => [...document.querySelectorAll('.msnb-title')]"
        ".some((t) => t.textContent.startsWith('golden dtype'))",
    )
    lab.page.keyboard.press("Escape")
    assert lab.page.locator(".msnb-menu").count() == 0
    lab.page.locator(".msnb-scroll").focus()
    lab.page.keyboard.press("Home")
    first = "Tensor.__mul__.0.forward.input.0"
    until(
        lab,
        "() => document.querySelector('.msnb-row[aria-selected=true]')"
        f"?.textContent.includes('{first}')",
    )
    selected(lab, 0)  # the kernel hears of it when the keys come to rest
    assert lab.python("print(*c.widget().selected['target'])") == first
    lab.page.locator(".msnb-row").nth(4).click(modifiers=["Shift"])
    until(lab, "() => document.querySelectorAll('.msnb-row[aria-selected=true]').length === 5")

    # Another theme reaches the plots; fast changes of the row break nothing.
    lab.python(f"c.widget().select('{name}')")
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('apputils:change-theme',"
        " { theme: 'JupyterLab Dark' })"
    )
    until(
        lab,
        "() => Bokeh.documents.some((d) => [...d._all_models.values()]"
        ".some((m) => m.type === 'Title' && m.text_color === '#c8ccd2'))",
    )
    for _ in range(3):
        lab.python("for row in range(12): c.widget().grid.selected = [row]")
    assert (lab.outside, lab.errors) == ([], [])


def test_the_table_shows_the_origin_also_after_it_was_out_of_sight(lab):
    opened(lab, "far.ipynb")

    def look_at(cell: int) -> None:
        lab.page.evaluate(
            "async (cell) => { await window.notebook.content.scrollToItem(cell, 'start'); }", cell
        )
        lab.page.wait_for_timeout(300)

    for _ in range(2):
        look_at(5)
        look_at(1)
        until(
            lab,
            "() => document.querySelector('.msnb-scroll')?.scrollTop > 1000 && "
            "[...document.querySelectorAll('.msnb-row')].some((row) => "
            "row.textContent.includes('Functional.layer_norm.5.forward.input.4'))",
        )
    assert lab.errors == []


def test_a_saved_notebook_keeps_the_conclusion_without_a_kernel(lab, folder):
    opened(lab, "resnet.ipynb")
    lab.page.evaluate("async () => { await window.notebook.context.save(); }")
    saved = (folder / "resnet.ipynb").read_text()
    assert len(saved) < 200_000
    assert "89 warnings among 4,115 values" in json.dumps(json.loads(saved)["cells"][1]["outputs"])
    lab.open("resnet.ipynb", run=False)
    output = lab.page.locator(".jp-OutputArea")
    output.get_by_text("No errors, 89 warnings among 4,115 values.").first.wait_for()
    output.get_by_text("Where to look first").first.wait_for()
    output.get_by_text("The live table below needs a running kernel").first.wait_for()


def test_the_kernel_completes_commands_and_paths(lab):
    lab.open("tensors.ipynb")
    lab.wait_idle()

    def complete(code: str) -> list[str]:
        return lab.page.evaluate(
            """async (code) => {
                const kernel = window.notebook.context.sessionContext.session.kernel;
                const reply = await kernel.requestComplete({ code, cursor_pos: code.length });
                return reply.content.matches;
            }""",
            code,
        )

    assert complete("%msprobe co") == ["compare"]
    assert "--golden_path" in complete("%msprobe compare --g")
    assert "many/target/" in complete("c = %msprobe compare -tp many/t")
