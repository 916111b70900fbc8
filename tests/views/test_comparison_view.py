"""The live view, the static view and the report, without a browser."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from support import DUMPS, RESNET, call, tensor, write_dump

import msprobe_nb
from msprobe_nb.comparison.marks import mark_counts
from msprobe_nb.views.bundle import live_bundle, show_comparison
from msprobe_nb.views.html import (
    comparison_html,
    grouped_calls,
    run_html,
    short_dtype,
    table,
)


@pytest.fixture(scope="module")
def resnet():
    return msprobe_nb.compare(RESNET / "cpu", RESNET / "gpu", progress=False)


@pytest.fixture(scope="module")
def tensors():
    return msprobe_nb.compare(
        DUMPS / "edge_tensor_L1/target", DUMPS / "edge_tensor_L1/golden", progress=False
    )


class Wire:
    """Stands for the browser: keeps what a widget sends to it."""

    def __init__(self, grid, monkeypatch):
        self.sent: list[tuple[dict, list[bytes]]] = []
        monkeypatch.setattr(
            grid, "send", lambda content, buffers=None: self.sent.append((content, buffers))
        )
        self.grid = grid

    def ask(self, **request):
        self.grid._handle_custom_msg(request, [])
        return self.sent[-1]


@pytest.fixture
def view(tensors):
    return type(tensors.widget())(tensors)


# ---------------------------------------------------------------- the live table


def test_only_the_asked_rows_travel(view, monkeypatch):
    wire = Wire(view.grid, monkeypatch)
    columns = ["target", "EucDist"]
    header, buffers = wire.ask(kind="rows", id=0, start=10, stop=20, columns=columns)
    rows = view.comparison.table
    assert header["start"] == 10
    assert header["text"][0] == rows["target"].iloc[10:20].tolist()
    assert np.frombuffer(buffers[0], "<i4").tolist() == list(range(10, 20))
    np.testing.assert_array_equal(np.frombuffer(buffers[1], "<f8"), rows["EucDist"].iloc[10:20])
    header, _ = wire.ask(kind="rows", id=0, start=0, stop=10**9, columns=["target", "__class__"])
    assert header["columns"] == ["target"]
    assert len(header["text"][0]) == len(rows)


def test_filters_and_sorting_change_the_view(view):
    table = view.comparison.table
    version = view.grid.version
    view.grid.filters = {"verdict": "error", "target": "/output/"}
    view.grid.sort = [["MaxAbsErr", "desc"]]
    expected = table[(table["verdict"] == "error") & table["target"].str.contains("output")]
    assert view.grid.total == len(view.filtered) == len(expected)
    assert view.grid.version > version
    assert set(view.filtered["target"]) == set(expected["target"])
    shown = view.filtered["MaxAbsErr"].dropna().tolist()
    assert shown == sorted(shown, reverse=True)
    view.grid.filters = {"MaxAbsErr": "rubbish"}
    assert view.grid.total == len(table)
    assert "MaxAbsErr" in view.grid.faults


def test_rows_that_were_not_measured_are_set_apart(view):
    legend = {entry["value"]: entry["count"] for entry in view.grid.legend}
    table = view.comparison.table
    assert legend["error"] == (table["verdict"] == "error").sum()
    assert legend["not measured"] > 0
    assert sum(legend.values()) == len(table)
    view.grid.choices = {"verdict": ["not measured"]}
    assert view.grid.total == legend["not measured"]
    assert (view.filtered["reason"] != "").all()


@pytest.mark.parametrize("rules", ["msprobe", "evidence"])
def test_every_view_shows_the_same_counts(tensors, rules):
    result = msprobe_nb.compare(
        DUMPS / "edge_tensor_L1/target",
        DUMPS / "edge_tensor_L1/golden",
        rules=rules,
        progress=False,
    )
    counts = mark_counts(result)
    assert sum(counts.values()) == len(result)
    assert ("unmatched" in counts) == ("gated" in counts) == (rules == "evidence")
    assert ("not measured" in counts) == (rules == "msprobe")
    legend = {entry["value"]: entry["count"] for entry in result.widget().grid.legend}
    assert legend == counts
    chips = re.findall(r"</span> ([a-z ]+) <b>([\d,]+)</b>", comparison_html(result))
    assert [(name, int(count)) for name, count in chips] == list(counts.items())
    for verdict, count in result.counts.items():  # nothing is lost but passes without a measurement
        shown = counts.get(verdict, 0)
        assert shown == count or (verdict == "pass" and shown + counts["not measured"] == count)


def test_sorting_shows_the_worst_rows_first(view):
    first = {column["name"]: column["first"] for column in view.grid.columns}
    assert first["verdict"] == first["MaxAbsErr"] == first["Relative L2"] == "desc"
    assert first["Cosine"] == first["One Thousandth Err Ratio"] == first["target"] == "asc"
    view.grid.sort = [["verdict", first["verdict"]]]
    shown = view.marks[view.grid.model.view].tolist()
    assert shown == sorted(shown, key=["error", "warning", "not measured", "pass"].index)


def test_the_table_opens_at_the_first_marked_row(view, resnet):
    assert view.grid.reveal[0] == view.comparison.table["verdict"].tolist().index("error")
    assert resnet.widget().grid.reveal[0] == resnet.table["verdict"].tolist().index("warning")
    assert view.grid.selected == []


def test_the_selection_is_available_in_python(view):
    view.grid.selected = [3, 5]
    pd.testing.assert_frame_equal(view.selected, view.comparison.table.iloc[[3, 5]])
    name = view.comparison.table["target"].iloc[7]
    view.select(name)
    assert view.selected["target"].tolist() == [name]
    assert view.grid.reveal[0] == 7
    with pytest.raises(KeyError):
        view.select("no such value")


def test_the_filtered_rows_can_be_exported(view, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view.grid.filters = {"verdict": "error"}
    wire = Wire(view.grid, monkeypatch)
    view.grid._handle_custom_msg({"kind": "export"}, [])
    view.grid._handle_custom_msg({"kind": "export"}, [])
    assert wire.sent == []
    assert view.grid.message == "25 rows written to comparison_rows_2.csv"
    for name in ("comparison_rows.csv", "comparison_rows_2.csv"):
        written = pd.read_csv(tmp_path / name)
        assert written["target"].tolist() == view.filtered["target"].tolist()
    view.grid.filters = {}
    view.export(tmp_path / "all.csv")
    marks = pd.read_csv(tmp_path / "all.csv")["mark"].value_counts().to_dict()
    assert marks == {k: n for k, n in mark_counts(view.comparison).items() if n}


def test_an_export_that_fails_says_so(view, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        type(view), "export", lambda *_: (_ for _ in ()).throw(PermissionError("read-only"))
    )
    view.grid._handle_custom_msg({"kind": "export"}, [])
    assert view.grid.message == "Not written: read-only"


def test_steps_and_ranks_can_be_chosen_when_there_are_several(tmp_path):
    for rank in (0, 1, 4):
        write_dump(tmp_path / f"step0/rank{rank}", {"Torch.a.0.forward": call([tensor()], [])})
    result = msprobe_nb.compare(tmp_path, tmp_path, progress=False)
    grid = result.widget().grid
    assert grid.selectors == [{"name": "rank", "values": [0, 1, 4]}]
    grid.filters = {"rank": "=4"}
    assert grid.total == 1


def test_what_crosses_the_wire_at_first_is_small():
    """Metadata and one page, whatever the number of rows."""
    from msprobe_nb.views.grid import Grid
    from msprobe_nb.views.table_model import Column

    frame = pd.DataFrame({"name": [f"n{i}" for i in range(50_000)], "x": np.arange(50_000.0)})
    grid = Grid(frame, [Column("name", "text"), Column("x", "number")])
    state = {k: v for k, v in grid.get_state().items() if k not in ("_esm", "_css")}
    assert len(repr(state)) < 5_000


# ---------------------------------------------------------------- detail


def test_a_selected_row_is_shown_closely(view):
    view.select("Tensor.__mul__.0.forward.output.0")
    detail = view.detail.detail
    assert detail.target["name"] == "Tensor.__mul__.0.forward.output.0"
    text = view.detail._facts.value
    assert "float32" in text
    assert "Called from" in text
    assert [len(box.children) for box in view.detail.children[1:]] == [2, 2]
    view.grid.selected = []
    assert view.detail.detail is None
    assert not any(box.children for box in view.detail.children[1:])


def test_the_next_row_moves_what_is_there(view):
    """Widgets and figures are made once; another row only changes what they show."""
    view.select("Tensor.__mul__.0.forward.output.0")
    pane = view.detail
    plots = [pane.values.plot, pane.differences.plot, pane.heat._plot]
    widgets = [child for box in pane.children[1:] for child in box.children]
    view.select("Torch.square.0.forward.output.0")
    assert [child for box in pane.children[1:] for child in box.children] == widgets
    assert plots == [pane.values.plot, pane.differences.plot, pane.heat._plot]
    counts = pane.values.sources["target"].data["count"]
    np.testing.assert_array_equal(counts, pane.detail.histogram().counts["target"])


def test_several_changes_travel_as_one(view):
    view.select("Tensor.__mul__.0.forward.output.0")
    sent = []
    for shown in (view.detail.values.view, view.detail.heat._view):
        shown.send = lambda content, buffers=None: sent.append(content["kind"])
    view.select("Torch.square.0.forward.output.0")
    assert sent == ["patch", "patch"]


def test_a_row_with_one_side_shows_that_side(view):
    view.select("Torch.cos.0.forward.output.0")  # only in the target
    detail = view.detail.detail
    assert (detail.mark, list(detail.sides)) == ("not measured", ["target"])
    assert [len(box.children) for box in view.detail.children[1:]] == [1]
    assert view.detail.values.sources["target"].data["count"].sum() == detail.sides["target"].size
    assert len(view.detail.values.sources["golden"].data["count"]) == 0
    view.select("Torch.sigmoid.0.forward.input.0")  # of another shape
    assert list(view.detail.detail.sides) == ["target", "golden"]
    assert "differ" in view.detail.detail.problem
    assert len(view.detail.values.sources["golden"].data["count"]) > 0


def test_an_argument_is_its_value(view):
    view.select("Tensor.__mul__.0.forward.input.1")
    page = re.sub(r"<style>.*?</style>", "", view.detail._facts.value, flags=re.S)
    text = re.sub(r"<[^>]+>", " ", page)
    assert re.search(r"value\s+1\.001\s+1\.0", text)
    assert re.search(r"dtype\s+float\s+float", text)
    for word in ("max", "norm", "shape", "metric", "No values"):
        assert word not in text


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Torch.sqrt.0.forward.output.0", "Absolute difference: all NaN or infinite"),
        ("Tensor.__mul__.0.forward.input.0", "Absolute difference: none, both sides are equal"),
        ("Tensor.__mul__.0.forward.output.0", "Absolute difference"),
    ],
)
def test_a_heat_map_says_what_a_plain_colour_means(view, name, title):
    view.select(name)
    heat = view.detail.heat
    assert heat._plot.title.text == title
    assert heat._bar.visible == (title == "Absolute difference")
    assert (heat._plot.x_range.start, heat._plot.x_range.end) == (-0.5, 5.5)


def test_of_several_rows_the_last_is_shown(view):
    view.grid.selected = [3, 5]
    assert view.detail.detail.target["name"] == view.comparison.table["target"].iloc[5]


def test_every_row_can_be_looked_at(view):
    for position in range(len(view.comparison.table)):
        view.grid.selected = [position]
        assert view.detail.detail is not None


def test_a_heat_map_follows_its_controls(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for side, array in (("a", values), ("b", values * 2)):
        folder = tmp_path / side
        (folder / "dump_tensor_data").mkdir(parents=True)
        np.save(folder / "dump_tensor_data/Torch.x.0.forward.input.0.npy", array)
        facts = tensor(values.shape, data_name="Torch.x.0.forward.input.0.npy")
        write_dump(folder, {"Torch.x.0.forward": call([facts], [])}, task="tensor")
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    view = result.widget()
    view.grid.selected = [0]
    heat = view.detail.heat
    heat.places[0].value = 1
    np.testing.assert_array_equal(heat._source.data["image"][0], values[1])
    heat.what.value = "golden"
    np.testing.assert_array_equal(heat._source.data["image"][0], values[1] * 2)
    heat.vertical.value, heat.horizontal.value, heat.places[1].value = 2, 0, 0
    np.testing.assert_array_equal(heat._source.data["image"][0], values[:, 0].T * 2)


# ---------------------------------------------------------------- static views


def test_the_static_view_says_it_all_without_a_kernel(resnet):
    page = comparison_html(resnet)
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    text = re.sub(r"<[^>]+>", " ", text)
    assert text.index("No errors, 89 warnings among 4,115 values.") < 200
    assert resnet.marked_calls[0].node in text
    assert "<script" not in page
    assert len(page) < 200_000


def test_a_module_stands_with_the_call_it_made(resnet):
    grouped = grouped_calls(resnet)
    assert grouped[0][0].node == "Functional.conv2d.0.forward"
    assert grouped[0][1] == ["Module.conv1.Conv2d.forward.0"]
    listed = [name for call, others in grouped for name in (call.node, *others)]
    assert sorted(listed) == sorted(call.node for call in resnet.marked_calls)


def test_static_tables_keep_short_texts_whole():
    assert [short_dtype(x) for x in ("torch.float32", "<class 'int'>", "Float16", None)] == [
        *("float32", "int", "Float16", None)
    ]
    assert "<thead>" not in table([], [("", ["a", "b"])])


def test_the_live_table_leaves_a_hint_where_it_cannot_run(resnet):
    bundle = live_bundle(resnet)
    assert "needs a running kernel" in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_outside_a_notebook_the_summary_is_printed(resnet, capsys):
    show_comparison(resnet)
    assert capsys.readouterr().out.strip() == resnet.summary()


def test_the_report_is_self_contained(resnet, tmp_path):
    page = resnet.to_html(tmp_path / "deep/report.html").read_text()
    assert not re.search(r"<script|<link|<img|@import|\bsrc=|https?://", page)
    assert "default-src 'none'" in page
    assert "89 warnings" in page
    assert page.count("<tr") > 89


def test_a_run_shows_what_it_holds():
    run = msprobe_nb.open(RESNET / "gpu")
    page = run_html(run)
    assert "Official recording, complete" in page
    assert run._repr_html_() == page
