"""The xarray and pandas views of a run, and the virtual Zarr store."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support import arrays, call, same_bits, tensor, write_dump

from msprobe_nb.errors import UnknownTensorError
from msprobe_nb.formats import open_run
from msprobe_nb.store import RunWriter


@pytest.fixture
def run(tmp_path):
    """Two steps, two ranks; rank 1 lacks one tensor, step 1 has one more."""
    writer = RunWriter(tmp_path / "r.zarr", {"framework": "pytorch", "task": "statistics"})
    for step in (0, 5):
        for rank in (0, 1):
            with writer.pack(step, rank, {"task": "statistics"}) as pack:
                node = pack.add_node("Torch.add.0.forward")
                value = 10.0 * step + rank
                pack.add(node, "input.0", statistics=[value, 0.0, 1.0, 2.0], role=0)
                if rank == 0:
                    pack.add(node, "output.0", statistics=[value + 0.5, 0.0, 1.0, 2.0])
                if step == 5:
                    pack.add(node, "output.1", statistics=[-1.0, None, 1.0, 2.0])
    return open_run(tmp_path / "r.zarr")


def test_dataset_spans_steps_ranks_and_tensors(run):
    dataset = run.dataset
    assert dict(dataset.sizes) == {"step": 2, "rank": 2, "tensor": 3}
    assert dataset["max"].sel(step=5, rank=1, tensor="Torch.add.0.forward.input.0") == 51.0
    assert dataset["max"].sel(step=0, rank=0, tensor="Torch.add.0.forward.output.0") == 0.5


def test_what_was_not_recorded_is_nan(run):
    maxima = run.dataset["max"]
    assert np.isnan(maxima.sel(step=0, rank=1, tensor="Torch.add.0.forward.output.0"))
    assert np.isnan(maxima.sel(step=0, rank=0, tensor="Torch.add.0.forward.output.1"))
    assert np.isnan(run.dataset["min"].sel(step=5, rank=0, tensor="Torch.add.0.forward.output.1"))


def test_dataset_reductions_agree_with_the_table(run):
    table = run.tensors
    for name, values in run.dataset["max"].groupby("tensor"):
        held = table.loc[table["tensor"] == name, "max"]
        assert float(values.max()) == held.max()


def test_dataset_reads_only_the_packs_it_needs(tmp_path, run, monkeypatch):
    lazy = run.dataset["max"]
    asked = []
    for key, pack in run.packs.items():
        pack.forget()
        plain = type(pack).table.func
        monkeypatch.setattr(
            type(pack).table,
            "func",
            lambda self, plain=plain: asked.append((self.step, self.rank)) or plain(self),
        )
        del key
        break
    lazy.sel(step=5, rank=0).values  # noqa: B018
    assert {place for place in asked if place != (5, 0)} <= {(5, 0)}


def test_sel_takes_names_lists_and_patterns(run):
    assert run.sel(step=5).sizes == {"rank": 2, "tensor": 3}
    assert run.sel(tensor="*.output.*").sizes["tensor"] == 2
    assert "tensor" not in run.sel(tensor="Torch.add.0.forward.input.0").sizes
    assert run.sel(tensor=["Torch.add.0.forward.input.0"], rank=[1]).sizes["rank"] == 1


@pytest.mark.parametrize("wrong", [{"step": 3}, {"rank": 9}, {"tensor": "x"}, {"tensor": "x*"}])
def test_sel_of_what_is_not_there_says_so(run, wrong):
    with pytest.raises(UnknownTensorError):
        run.sel(**wrong)


def test_tree_has_a_node_for_each_pack(run):
    assert "/step5/rank1" in run.tree.groups
    node = run.tree["step5/rank1"].to_dataset().sel(tensor="Torch.add.0.forward.input.0")
    assert (str(node["role"].values), float(node["max"])) == ("input", 51.0)


def test_tensors_and_nodes_are_tables(run):
    assert len(run.tensors) == 8
    row = run.tensors.iloc[0]
    assert (row["slot"], row["role"], row["node"]) == ("input.0", "input", "Torch.add.0.forward")
    assert run.nodes["phase"].tolist() == ["forward"] * 4


def test_a_run_describes_itself(run):
    assert "steps 0, 5, ranks 0-1" in run.summary()
    assert "steps 0, 5" in repr(run)
    assert "<table" in run._repr_html_()


def test_lazy_tensor_carries_what_was_recorded(tmp_path):
    with RunWriter(tmp_path / "r.zarr").pack(0, 0) as pack:
        node = pack.add_node("Torch.add.0.forward")
        pack.add(node, "output.0", np.ones((2, 3)), statistics=[1.0, 1.0, 1.0, 2.4])
    array = open_run(tmp_path / "r.zarr")["Torch.add.0.forward.output.0", 0, 0]
    assert array.dims == ("axis_0", "axis_1")
    assert array.attrs["max"] == 1.0
    assert array.attrs["role"] == "output"
    assert float(array.mean()) == 1.0


@given(st.dictionaries(st.integers(0, 9).map("output.{}".format), arrays(), max_size=5))
def test_every_tensor_is_a_zarr_array_of_the_virtual_store(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("run") / "r.zarr"
    with RunWriter(path).pack(0, 0) as pack:
        node = pack.add_node("Torch.x.0.forward")
        for slot, array in tree.items():
            pack.add(node, slot, array)
    group = zarr.open_group(open_run(path).store(), mode="r")
    assert sorted(group["step0/rank0"].keys()) == sorted(f"Torch.x.0.forward.{s}" for s in tree)
    for slot, array in tree.items():
        assert same_bits(group[f"step0/rank0/Torch.x.0.forward.{slot}"][...], array)


def test_the_virtual_store_cannot_be_written(tmp_path, run):
    with pytest.raises((PermissionError, ValueError)):
        zarr.open_group(run.store(), mode="a").create_group("x")


def test_tensors_of_any_shape_text_and_name_are_in_one_xarray_dataset(tmp_path):
    arrays = [np.ones((3, 4)), np.ones((5, 3)), np.float32(2), np.array(["ab", "c"])]
    with RunWriter(tmp_path / "r.zarr").pack(0, 0, {"task": "tensor"}) as pack:
        for at, array in enumerate(arrays):
            pack.add(pack.add_node(f"a/b%2F{at}.0.debug"), "", np.asarray(array))
    run = open_run(tmp_path / "r.zarr")
    dataset = xr.open_zarr(run.store(), group="step0/rank0", consolidated=False)
    assert len(dataset) == len(arrays)
    for name, array in zip(sorted(dataset), arrays, strict=True):
        assert dataset[name].values.tolist() == array.tolist()
        assert dataset[name].dtype.kind == np.asarray(array).dtype.kind


def test_looking_at_official_tensors_reads_only_their_heads(tmp_path, monkeypatch):
    data = tmp_path / "a/dump_tensor_data"
    data.mkdir(parents=True)
    np.save(data / "x.npy", np.ones((3, 1000)))
    torch.save(torch.ones(1000, 200), data / "y.pt")
    entry = call([tensor(data_name="x.npy")], [tensor(data_name="y.pt")])
    run = open_run(write_dump(tmp_path / "a", {"Torch.a.0.forward": entry}, task="tensor"))
    monkeypatch.setattr(type(run.pack()), "_load", None)
    assert run["Torch.a.0.forward.input.0"].shape == (3, 1000)
    assert run["Torch.a.0.forward.output.0"].shape == (1000, 200)
    group = zarr.open_group(run.store(), mode="r")["step0/rank0"]
    assert {name: array.shape for name, array in group.arrays()} == {
        "Torch.a.0.forward.input.0": (3, 1000),
        "Torch.a.0.forward.output.0": (1000, 200),
    }


def test_one_broken_rank_leaves_the_others_usable(tmp_path):
    for rank, value in enumerate((1.0, 2.0, 3.0)):
        entry = call([], [tensor(value=value)])
        write_dump(tmp_path / f"step0/rank{rank}", {"Torch.a.0.forward": entry})
    (tmp_path / "step0/rank0/dump.json").write_text("{")
    run = open_run(tmp_path)
    assert (run.complete, run.task, run.framework) == (False, "statistics", "pytorch")
    assert run.tensors["rank"].tolist() == [1, 2]
    assert run.nodes["rank"].tolist() == [1, 2]
    assert "rank0" in run.summary()
    assert "rank0" in run._repr_html_()
    assert set(run.tree["step0"]) == {"rank1", "rank2"}
    assert run.sel(rank=2)["max"].values.ravel().tolist() == [3]
    assert np.isnan(run.dataset["max"].values[0, 0]).all()
    assert len(list(zarr.open_group(run.store(), mode="r")["step0/rank1"].arrays())) == 0


def test_a_damaged_pack_of_a_store_is_among_the_notes(tmp_path):
    writer = RunWriter(tmp_path / "r.zarr")
    for rank in (0, 1):
        with writer.pack(0, rank, {"task": "statistics"}) as pack:
            pack.add(pack.add_node("Torch.a.0.forward"), "output.0", statistics=[1.0] * 4)
    (tmp_path / "r.zarr/step0/rank1/facts/c/0/0").unlink()
    run = open_run(tmp_path / "r.zarr")
    assert run.tensors["rank"].tolist() == [0]
    assert any("rank1" in note for note in run.notes)


def test_a_mistyped_name_among_many_is_answered_at_once(tmp_path):
    with RunWriter(tmp_path / "r.zarr").pack(0, 0, {"task": "statistics"}) as pack:
        for at in range(20_000):
            pack.add(
                pack.add_node(f"Module.module.layers.{at}.linear.Linear.forward.0"), "output.0"
            )
    run = open_run(tmp_path / "r.zarr")
    began = time.monotonic()
    with pytest.raises(
        UnknownTensorError, match=r"layers\.777\.linear\.Linear\.forward\.0\.output\.0"
    ):
        _ = run["Module.module.layers.777.liner.Linear.forward.0.output.0"]
    assert time.monotonic() - began < 3
