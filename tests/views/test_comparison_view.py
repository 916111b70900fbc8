"""The live view, the static view and the report, without a browser."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from support import DUMPS, RESNET, call, tensor, write_dump

import msprobe_nb
from msprobe_nb.views.bundle import live_bundle, show_comparison
from msprobe_nb.views.detail import HeatMap
from msprobe_nb.views.html import comparison_html, run_html


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
    table = view.comparison.table
    assert header["start"] == 10
    assert header["text"][0] == table["target"].iloc[10:20].tolist()
    assert np.frombuffer(buffers[0], "<i4").tolist() == list(range(10, 20))
    np.testing.assert_array_equal(np.frombuffer(buffers[1], "<f8"), table["EucDist"].iloc[10:20])
    header, _ = wire.ask(kind="rows", id=0, start=0, stop=10**9, columns=["target", "__class__"])
    assert header["columns"] == ["target"]
    assert len(header["text"][0]) == len(table)


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
    assert "torch.float32" in text
    assert "Called from" in text
    assert len(view.detail._plots.children) == 2
    view.grid.selected = []
    assert view.detail.detail is None
    assert not view.detail._plots.children


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
    heat = HeatMap(view.detail.detail)
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
