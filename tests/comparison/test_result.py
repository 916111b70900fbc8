"""What a comparison offers: tables, calls, origins, words, files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support import DUMPS, RESNET, call, tensor, write_dump

import msprobe_nb
from msprobe_nb import Comparison, Thresholds, load_comparison
from msprobe_nb.comparison.inspect import inspect_row
from msprobe_nb.errors import DamagedStoreError, NotARunError, UsageError

LEADING = ["step", "rank", "node", "target", "golden", "verdict", "reason", "status"]


def compared(name: str) -> Comparison:
    return msprobe_nb.compare(DUMPS / name / "target", DUMPS / name / "golden", progress=False)


@pytest.fixture(scope="module")
def resnet():
    return msprobe_nb.compare(RESNET / "cpu", RESNET / "gpu", progress=False)


@pytest.fixture(scope="module")
def tensors():
    return compared("edge_tensor_L1")


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        (
            "edge_tensor_L1",
            [
                *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
                *("One Thousandth Err Ratio", "Five Thousandths Err Ratio", "Relative L2"),
            ],
        ),
        (
            "edge_statistics_L1",
            [
                *("Max diff", "Min diff", "Mean diff", "L2norm diff"),
                *("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
            ],
        ),
        ("edge_md5_L1", ["target checksum", "golden checksum"]),
    ],
)
def test_the_table_has_the_fixed_columns_then_the_metrics(name, metrics):
    table = compared(name).table
    assert list(table.columns[: len(LEADING)]) == LEADING
    assert list(table.columns[len(LEADING) : len(LEADING) + len(metrics)]) == metrics
    assert set(table["verdict"]) <= {"pass", "warning", "error"}


def test_every_marked_or_unmeasured_row_has_a_reason(tensors, resnet):
    for result in (tensors, resnet, compared("edge_md5_L1"), compared("arg_kinds")):
        table = result.table
        plain = (table["verdict"] == "pass") & table["status"].isin(["compared", "argument"])
        assert (table.loc[~plain, "reason"] != "").all()


def test_relative_l2_is_the_distance_over_the_golden_norm(tensors):
    table = tensors.table
    measured = table[table["Relative L2"].notna() & table["Cosine"].notna()]
    for position in measured.index[:20]:
        x, y = inspect_row(tensors, position).arrays()
        if np.isfinite(x).all() and np.isfinite(y).all() and np.any(y):
            x, y = x.reshape(-1).astype(complex), y.reshape(-1).astype(complex)
            expected = np.linalg.norm(x - y) / np.linalg.norm(y)
            assert table.loc[position, "Relative L2"] == pytest.approx(expected, rel=1e-6)


# ---------------------------------------------------------------- calls


def test_nodes_have_one_row_a_call_and_add_up_in_the_module_tree(resnet):
    nodes = resnet.nodes.set_index("node")
    assert len(nodes) == len(resnet.parts[0].target.pack.nodes)
    assert nodes["rows"].sum() == len(resnet)
    worst = resnet.table.groupby("node", sort=False)["verdict"].agg(
        lambda verdicts: max(verdicts, key=["pass", "warning", "error"].index)
    )
    own = nodes.loc[worst.index, "verdict"]
    assert (own == worst).all()
    order = ["pass", "warning", "error"].index
    assert (nodes["worst_descendant"].map(order) >= nodes["verdict"].map(order)).all()
    pack = resnet.parts[0].target.pack
    parents = dict(zip(pack.nodes.name, pack.nodes.parent, strict=True))
    for node, parent in parents.items():
        if parent in nodes.index:
            inner, outer = nodes.loc[node], nodes.loc[parent]
            assert order(outer["worst_descendant"]) >= order(inner["worst_descendant"])


def test_a_loop_in_the_module_tree_does_no_harm(tmp_path):
    data = {
        f"Module.{name}.Linear.forward.0": call([tensor()], [tensor(norm=norm)])
        for name, norm in (("a", 1.0), ("b", 9.0))
    }
    write_dump(tmp_path / "x", data, level="mix")
    write_dump(tmp_path / "y", {k: call([tensor()], [tensor()]) for k in data}, level="mix")
    names = list(data)
    for side in ("x", "y"):
        loop = {names[0]: names[1], names[1]: names[0]}
        (tmp_path / side / "construct.json").write_text(json.dumps(loop))
    nodes = msprobe_nb.compare(tmp_path / "x", tmp_path / "y", progress=False).nodes
    assert nodes["worst_descendant"].tolist() == ["error", "error"]


def test_origins_come_in_order_of_likelihood(tmp_path):
    """A call whose inputs are right comes before calls that only pass a difference on."""
    good, bad = tensor(norm=1.0), tensor(norm=9.0)
    target = {
        "Torch.first.0.forward": call([good], [good]),
        "Torch.guilty.0.forward": call([good], [bad]),
        "Torch.follower.0.forward": call([bad | {"shape": [3, 2]}], [bad]),
    }
    golden = {name: call([good], [good]) for name in target}
    write_dump(tmp_path / "a", target)
    write_dump(tmp_path / "b", golden)
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    assert list(result.origins.columns) == ["step", "rank", "node", "kind", "score", "sentence"]
    assert result.origins["node"].tolist() == ["Torch.guilty.0.forward", "Torch.follower.0.forward"]
    first = result.origins.iloc[0]
    assert (first["kind"], first["score"]) == ("output", 8.0)
    assert first["sentence"].startswith("output.0: the output norm is off by")
    assert "Look first at Torch.guilty.0.forward" in result.summary()


@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("Torch.add.0.forward", {"output": [tensor(dtype="torch.float16")]}, "dtype"),
        ("Torch.add.0.forward", {"output": [tensor((3, 2))]}, "shape"),
        ("Torch.add.0.forward", {"output": [tensor(value=float("inf"))]}, "overflow"),
        ("Torch.add.0.forward", {"input_args": [{"type": "int", "value": 3}]}, "argument"),
        ("Torch.add.0.forward", {"output": [tensor(requires_grad=True)]}, "argument"),
        ("Module.a.Linear.forward.0", {"parameters": {"w": tensor((3, 2))}}, "shape"),
        ("Module.a.Linear.backward.0", {"output": [tensor(norm=9.0)]}, "gradient"),
        ("Torch.add.0.forward", {"output": [tensor(norm=9.0)]}, "output"),
        ("Torch.add.0.forward", {"input_args": [tensor(value=float("nan"))]}, "input"),
    ],
)
def test_kinds_of_origins(tmp_path, name, change, kind):
    entry = call([{"type": "int", "value": 2, "Max": 2, "Min": 2}], [tensor()])
    if "parameters" in change:
        entry["parameters"] = {"w": tensor()}
    if "input_args" in change and "dtype" in change["input_args"][0]:
        entry["input_args"] = [tensor()]
    write_dump(tmp_path / "a", {name: entry | change})
    write_dump(tmp_path / "b", {name: entry})
    origins = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False).origins
    assert origins["kind"].tolist() == [kind]
    assert origins["node"].tolist() == [name]


# ---------------------------------------------------------------- verdicts again


def test_judging_again_with_other_limits_reads_nothing(resnet, tmp_path):
    strict = resnet.rejudge(replace(resnet.thresholds, norm_ratio=2.0))
    loose = resnet.rejudge(Thresholds(norm_ratio=1e9, norm_output_alone=1e9))
    assert strict.counts["warning"] > resnet.counts["warning"] == 89
    assert loose.counts["warning"] == 0
    assert strict.parts is resnet.parts


# ---------------------------------------------------------------- saving


@pytest.mark.parametrize("name", ["edge_tensor_L1", "edge_statistics_L1", "edge_md5_L1"])
def test_a_saved_comparison_is_the_same(tmp_path, name):
    result = compared(name).rejudge(Thresholds(norm_output=0.7))
    result.save(tmp_path / "saved")
    again = load_comparison(tmp_path / "saved")
    pd.testing.assert_frame_equal(again.table, result.table)
    pd.testing.assert_frame_equal(again.nodes, result.nodes)
    pd.testing.assert_frame_equal(again.origins, result.origins)
    pd.testing.assert_frame_equal(again.golden_only, result.golden_only)
    assert again.summary() == result.summary()
    assert again.thresholds == result.thresholds
    one = result.to_csv(tmp_path / "one.csv")[0].read_text()
    assert again.to_csv(tmp_path / "two.csv")[0].read_text() == one


def test_a_saved_comparison_still_shows_values(tmp_path, tensors):
    tensors.save(tmp_path / "saved")
    again = load_comparison(tmp_path / "saved")
    position = int(np.flatnonzero(tensors.table["status"] == "compared")[0])
    for ours, theirs in zip(
        inspect_row(again, position).arrays(), inspect_row(tensors, position).arrays(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_saving_and_loading_refuse_the_wrong_place(tmp_path, tensors):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        tensors.save(tmp_path / "full")
    assert (tmp_path / "full/precious").read_text() == "x"
    with pytest.raises(NotARunError):
        load_comparison(tmp_path / "full")
    tensors.save(tmp_path / "saved")
    for damage in (b"", b"{}", b"rubbish"):
        (tmp_path / "saved/part0/metric/c/0/0").write_bytes(damage)
        with pytest.raises(DamagedStoreError, match="damaged"):
            load_comparison(tmp_path / "saved")


# ---------------------------------------------------------------- one row, closely


def test_a_row_in_detail(tensors):
    table = tensors.table
    position = table.index[table["target"] == "Tensor.__mul__.0.forward.output.0"][0]
    detail = inspect_row(tensors, position)
    assert detail.target["name"] == "Tensor.__mul__.0.forward.output.0"
    assert detail.has_values
    x, y = detail.arrays()
    worst = detail.worst(3)
    largest = float(np.nanmax(np.abs(x.astype(float) - y.astype(float))))
    assert worst[0]["difference"] == pytest.approx(largest)
    assert x[worst[0]["index"]] == worst[0]["target"]
    assert (
        sum(c.sum() for c in detail.histogram().counts.values())
        == np.isfinite(np.stack([x, y])).sum()
    )
    plane = detail.heat(0, 1 if x.ndim > 1 else None, {})
    assert plane.ndim == 2
    with pytest.raises(IndexError):
        inspect_row(tensors, len(tensors))


def test_large_values_are_reduced_to_a_readable_heat_map(tmp_path):
    big = np.random.default_rng(0).normal(size=(700, 3, 901)).astype(np.float32)
    for side, array in (("a", big), ("b", big.copy())):
        folder = tmp_path / side
        (folder / "dump_tensor_data").mkdir(parents=True)
        if side == "b":
            array[411, 1, 800] += 5
        np.save(folder / "dump_tensor_data/Torch.x.0.forward.input.0.npy", array)
        facts = tensor(array.shape, data_name="Torch.x.0.forward.input.0.npy")
        write_dump(folder, {"Torch.x.0.forward": call([facts], [])}, task="tensor")
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    detail = inspect_row(result, 0)
    plane = detail.heat(0, 2, {1: 1})
    assert max(plane.shape) <= 256
    assert plane.max() == pytest.approx(5, rel=1e-5)
    assert np.unravel_index(plane.argmax(), plane.shape) == (411 // 3, 800 // 4)
    assert detail.heat(0, 2, {1: 0}).max() == 0
    assert detail.worst(1)[0]["index"] == (411, 1, 800)


# ---------------------------------------------------------------- words


def test_the_conclusion_comes_first(resnet, tmp_path):
    first, second, *_ = resnet.summary().splitlines()
    assert first == "No errors, 89 warnings among 4,115 values."
    assert second.startswith("Look first at ")
    write_dump(tmp_path, {"Torch.add.0.forward": call([tensor()], [tensor()])})
    same = msprobe_nb.compare(tmp_path, tmp_path, progress=False)
    assert same.summary().startswith("No differences found: all 2 compared values are equal.")
    assert str(same) == same.summary()


def test_a_pass_is_not_called_equal(tmp_path):
    write_dump(tmp_path / "a", {"Torch.add.0.forward": call([tensor()], [tensor(norm=1.05)])})
    write_dump(tmp_path / "b", {"Torch.add.0.forward": call([tensor()], [tensor()])})
    found = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    assert found.counts == {"pass": 2, "warning": 0, "error": 0}
    assert found.summary().startswith(
        "Nothing is marked: all 2 compared values pass, the largest deviation is "
        "Torch.add.0.forward.output.0, by 4.76%."
    )


def test_nothing_measured_is_not_called_equal(tmp_path):
    write_dump(tmp_path / "a", {"Torch.add.0.forward": call([tensor(dtype="torch.int32")], [])})
    for name, dtype in (("add", "torch.int64"), ("sub", "torch.int32")):
        data = {f"Torch.{name}.0.forward": call([tensor(dtype=dtype)], [])}
        golden = write_dump(tmp_path / name, data)
        for rules in ("msprobe", "evidence"):
            found = msprobe_nb.compare(tmp_path / "a", golden, rules=rules, progress=False)
            known = rules == "evidence" and name == "add"  # the dtype itself is an origin there
            start = "It began at Torch.add.0.forward" if known else "Nothing could be compared"
            assert found.summary().startswith(start)


def test_errors_are_told_also_where_nothing_could_be_measured(tmp_path):
    odd = float("nan")
    bad = tensor(Max=odd, Min=odd, Mean=odd, norm=odd)
    write_dump(tmp_path / "a", {"Torch.add.0.forward": call([], [bad])})
    write_dump(tmp_path / "b", {"Torch.sub.0.forward": call([], [tensor()])})
    found = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    assert found.counts["error"] == 1
    assert found.summary().startswith("1 error among 1 value.")


def test_rounding_of_statistics_is_not_called_equal(tmp_path):
    for side, norm in (("a", 1.0), ("b", 1.0 + 1e-9)):
        write_dump(tmp_path / side, {"Torch.add.0.forward": call([], [tensor(norm=norm)])})
    for rules in ("msprobe", "evidence"):
        found = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", rules=rules, progress=False)
        assert found.summary().startswith("No differences beyond rounding")


HOSTILE = "<img src=x onerror=alert(1)>"


def test_names_and_values_from_files_never_become_html(tmp_path):
    name = f"Torch.{HOSTILE}.0.forward"
    entry = call(
        [{"type": "str", "value": HOSTILE, "Max": HOSTILE, "Min": HOSTILE}],
        [tensor(norm=9.0, dtype=HOSTILE)],
        **{},
    )
    other = json.loads(json.dumps(entry))
    other["output"][0]["Norm"] = 1.0
    other["input_args"][0].update(value="other", Max="other", Min="other")
    for side, data in (("a", entry), ("b", other)):
        folder = write_dump(tmp_path / side, {name: data})
        (folder / "stack.json").write_text(json.dumps({name: [HOSTILE]}))
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    assert result.counts["error"] > 0
    view = result.widget()
    view.select(result.table["target"].iloc[1])
    shown = [
        result._repr_html_(),
        (result.to_html(tmp_path / "r.html")).read_text(),
        *(w.value for w in _html_widgets(view)),
    ]
    assert HOSTILE in view.detail.detail.target["dtype"]
    for text in shown:
        assert "<img" not in text
        assert "onerror=alert(1)&gt;" in text or "onerror" not in text


def _html_widgets(widget, seen=None):
    import ipywidgets

    seen = set() if seen is None else seen
    if id(widget) in seen:
        return
    seen.add(id(widget))
    if isinstance(widget, ipywidgets.HTML):
        yield widget
    for child in getattr(widget, "children", ()):
        yield from _html_widgets(child, seen)


def test_a_file_is_no_place_to_save_in(tmp_path):
    folder = write_dump(tmp_path / "a", {"Torch.a.0.forward": call([], [tensor()])})
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="this is a file"):
        msprobe_nb.compare(folder, folder, progress=False).save(tmp_path / "file")


def test_folders_for_result_files_may_have_dots(tmp_path):
    folder = write_dump(tmp_path / "a", {"Torch.a.0.forward": call([], [tensor()])})
    result = msprobe_nb.compare(folder, folder, ranks=np.int64(0), progress=False)
    (written,) = result.to_csv(tmp_path / "out_26.2")
    assert written.parent == tmp_path / "out_26.2"


def test_a_reason_says_a_fact_once():
    result = msprobe_nb.compare(
        DUMPS / "edge_tensor_L1/target", DUMPS / "edge_tensor_L1/golden", progress=False
    )
    reasons = result.table.set_index("target")["reason"]
    overflow = reasons["Torch.sqrt.0.forward.output.0"]
    assert overflow.count("NaN or infinity") == 1
    assert "24 of 24 places" in overflow
    few = reasons["Tensor.__mul__.0.forward.output.0"]
    assert "within 1/1000 of the golden ones, but all of each input's" in few
