"""What is written comes back: through our reader, through plain Zarr, through xarray."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support import arrays, same_bits

from msprobe_nb.errors import FormatError, UnknownTensorError, UsageError
from msprobe_nb.formats import open_run
from msprobe_nb.store import PackWriter, RunWriter, compact, layout
from msprobe_nb.store.index import STATISTICS

STATISTIC = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


def write_run(path, trees, **facts):
    """Write {(step, rank): {slot: array}} and open it."""
    writer = RunWriter(path, {"framework": "pytorch", "task": "tensor", **facts})
    for (step, rank), tree in trees.items():
        with writer.pack(step, rank, {"task": "tensor", "framework": "pytorch"}) as pack:
            node = pack.add_node("Torch.x.0.forward")
            for slot, array in tree.items():
                pack.add(node, slot, array)
    return open_run(path)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 3)),
        st.dictionaries(st.integers(0, 9).map("output.{}".format), arrays(), max_size=6),
        min_size=1,
        max_size=3,
    )
)
def test_random_trees_come_back_bit_for_bit(tmp_path_factory, trees):
    path = tmp_path_factory.mktemp("run") / "run.zarr"
    run = write_run(path, trees)
    assert set(run.packs) == set(trees)
    for (step, rank), tree in trees.items():
        group = zarr.open_group(path / f"step{step}" / f"rank{rank}", mode="r")
        names = group["tensor"][:].tolist() if tree else []
        for slot, array in tree.items():
            name = f"Torch.x.0.forward.{slot}"
            assert same_bits(run[name, step, rank].values, array)
            row = names.index(name)
            start, count = int(group["byte_offset"][row]), int(group["byte_count"][row])
            assert group["blob"][start : start + count].tobytes() == array.tobytes()


@given(arrays(max_side=5), st.data())
def test_part_of_a_tensor_is_what_numpy_would_cut_out(tmp_path_factory, array, data):
    run = write_run(tmp_path_factory.mktemp("run") / "r.zarr", {(0, 0): {"output.0": array}})
    key = data.draw(
        st.tuples(
            *(st.slices(n) | (st.integers(-n, n - 1) if n else st.slices(n)) for n in array.shape)
        )
    )
    assert same_bits(run.pack().read_part(0, key), array[key])


def test_reading_a_slice_reads_only_its_bytes(tmp_path, monkeypatch):
    array = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    run = write_run(tmp_path / "r.zarr", {(0, 0): {"output.0": array}})
    lazy = run["Torch.x.0.forward.output.0"]
    asked = []
    blob = type(run.pack()._blob)
    plain = blob.read
    monkeypatch.setattr(
        blob, "read", lambda self, start, count: asked.append(count) or plain(self, start, count)
    )
    assert same_bits(lazy[3:5].values, array[3:5])
    assert asked == [2 * 64 * 4]


@given(
    st.lists(st.lists(STATISTIC, min_size=4, max_size=4), min_size=1, max_size=5),
    st.dictionaries(st.text(max_size=5), STATISTIC, max_size=3),
)
def test_statistics_keep_what_was_recorded(tmp_path_factory, statistics, detail):
    path = tmp_path_factory.mktemp("run") / "run.zarr"
    with RunWriter(path).pack(0, 0) as pack:
        node = pack.add_node("Torch.x.0.forward")
        for at, values in enumerate(statistics):
            pack.add(node, f"input.{at}", statistics=list(values), detail=detail, value=values)
    index = open_run(path).pack().index
    for row, values in enumerate(statistics):
        found = [index.statistics.item(row, at) for at in range(len(STATISTICS))]
        assert list(map(repr, found)) == list(map(repr, values))
        assert repr(index.value[row]) == repr(values)
        assert repr(index.detail.get(row, {})) == repr(detail)


def test_facts_come_back(tmp_path):
    with RunWriter(tmp_path / "r.zarr").pack(3, 2, {"task": "statistics", "level": "mix"}) as pack:
        node = pack.add_node(
            "Module.a.Linear.forward.0",
            stack=["inner", "outer"],
            parent="Module.a.Block.forward.0",
            micro_step=1,
            recompute=1,
            structure='{"input_args":[0]}',
        )
        pack.add_node("optimizer", recorded=False)
        first = pack.add(node, "input.0", requires_grad=1, checksum="00ff", data_name="x.pt")
        second = pack.add(node, "output.0", shape=(2, 3), dtype="torch.float32", problem="bad")
        pack.add_edge(first, second)
    found = open_run(tmp_path / "r.zarr").pack(3, 2)
    nodes, index = found.nodes, found.index
    assert found.info.level == "mix"
    assert nodes.name == ["Module.a.Linear.forward.0", "optimizer"]
    assert nodes.stack_of(0) == ["inner", "outer"]
    assert nodes.stack_of(1) == []
    assert nodes.parent[0] == "Module.a.Block.forward.0"
    assert nodes.recorded.tolist() == [True, False]
    assert (nodes.micro_step[0], nodes.recompute[0]) == (1, 1)
    assert nodes.structure[0] == '{"input_args":[0]}'
    assert index.checksum == ["00ff", None]
    assert index.data_name == ["x.pt", None]
    assert index.requires_grad.tolist() == [1, -1]
    assert index.shape[1] == (2, 3)
    assert index.problem == {1: "bad"}
    assert found.edges.tolist() == [[first, second]]


def test_equal_data_is_stored_once(tmp_path):
    array = np.arange(1000.0)
    with RunWriter(tmp_path / "r.zarr").pack(0, 0) as pack:
        node = pack.add_node("Torch.x.0.forward")
        for at in range(5):
            pack.add(node, f"input.{at}", array.copy())
        pack.add(node, "output.0", array.reshape(10, 100).view(np.int64))  # same bytes
        size = pack.blob.size
    assert size == array.nbytes
    run = open_run(tmp_path / "r.zarr")
    assert same_bits(run["Torch.x.0.forward.input.4"].values, array)
    assert run["Torch.x.0.forward.output.0"].shape == (10, 100)


def test_data_of_one_identity_is_stored_once_and_not_hashed(tmp_path):
    with PackWriter(tmp_path / "p", dedupe=False) as pack:
        node = pack.add_node("Torch.x.0.forward")
        rows = [pack.add(node, f"input.{at}", np.ones(100), identity=(7, 1)) for at in range(3)]
        offsets = {pack.tensors[row].byte_offset for row in rows}
    assert len(offsets) == 1


def test_a_pack_has_few_files(tmp_path):
    tree = {f"output.{at}": np.full((32, 32), at, np.float32) for at in range(500)}
    write_run(tmp_path / "r.zarr", {(0, 0): tree})
    files = [
        path for path in (tmp_path / "r.zarr" / "step0" / "rank0").rglob("*") if path.is_file()
    ]
    assert len(files) <= 15


def test_blob_runs_on_over_several_shards(tmp_path, monkeypatch):
    chunk, shard = 1 << 12, 1 << 14
    monkeypatch.setattr(layout, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(layout, "SHARD_BYTES", shard)
    monkeypatch.setattr(layout, "CHUNKS_PER_SHARD", shard // chunk)
    rng = np.random.default_rng(0)
    tree = {f"output.{at}": rng.integers(0, 256, 5000 + at, np.uint8) for at in range(12)}
    run = write_run(tmp_path / "r.zarr", {(0, 0): tree})
    assert len(list((tmp_path / "r.zarr/step0/rank0/blob/c").iterdir())) > 3
    group = zarr.open_group(tmp_path / "r.zarr/step0/rank0", mode="r")
    for row, (slot, array) in enumerate(tree.items()):
        assert same_bits(run[f"Torch.x.0.forward.{slot}"].values, array)
        start = int(group["byte_offset"][row])
        assert same_bits(group["blob"][start : start + array.size], array)
    small = run.compact(tmp_path / "small.zarr")
    for slot, array in tree.items():
        assert same_bits(small[f"Torch.x.0.forward.{slot}"].values, array)


def test_xarray_opens_a_run_without_our_code(tmp_path):
    places = [(step, rank) for step in (0, 1) for rank in (0, 1, 2)]
    trees = {(s, r): {"output.0": np.full(3, s + r, np.float32)} for s, r in places}
    write_run(tmp_path / "r.zarr", trees)
    code = f"""
import sys, xarray as xr
tree = xr.open_datatree({str(tmp_path / "r.zarr")!r}, engine="zarr", consolidated=False)
ds = tree["step1/rank2"].to_dataset().sel(tensor="Torch.x.0.forward.output.0")
start, count = int(ds.byte_offset), int(ds.byte_count)
print(ds.blob.values[start:start + count].view("f4").tolist(), "msprobe_nb" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[3.0, 3.0, 3.0] False"


def test_compact_copies_keep_every_tensor(tmp_path):
    tree = {"output.0": np.zeros((300, 300), np.float32), "output.1": np.arange(7, dtype=np.int8)}
    run = write_run(tmp_path / "r.zarr", {(0, 0): tree})
    small = run.compact(tmp_path / "small.zarr")
    assert small.nbytes() < run.nbytes() / 10
    for slot, array in tree.items():
        assert same_bits(small[f"Torch.x.0.forward.{slot}"].values, array)
    group = zarr.open_group(tmp_path / "small.zarr/step0/rank0", mode="r")
    start = int(group["byte_offset"][1])
    assert group["blob"][start : start + 7].tolist() == list(range(7))
    with pytest.raises(UsageError, match="exists"):
        run.compact(tmp_path / "small.zarr")


def test_readers_travel_between_processes(tmp_path):
    run = write_run(tmp_path / "r.zarr", {(0, 0): {"output.0": np.arange(5.0)}})
    pack = run.pack()
    pack.read(0)  # opens files
    copy = pickle.loads(pickle.dumps(pack))
    assert same_bits(copy.read(0), np.arange(5.0))


def test_read_many_gives_what_single_reads_give(tmp_path):
    rng = np.random.default_rng(0)
    tree = {f"output.{at}": rng.standard_normal((at % 7, 3)) for at in range(40)}
    pack = write_run(tmp_path / "r.zarr", {(0, 0): tree}).pack()
    rows = rng.permutation(40).tolist()
    for row, array in zip(rows, pack.read_many(rows), strict=True):
        assert same_bits(array, pack.read(row))


def test_a_second_writer_does_not_touch_a_recording(tmp_path):
    write_run(tmp_path / "r.zarr", {(0, 0): {"output.0": np.ones(3)}})
    with pytest.raises(UsageError, match="already stands"):
        RunWriter(tmp_path / "r.zarr").pack(0, 0)


def test_the_root_is_written_once(tmp_path):
    RunWriter(tmp_path / "r.zarr", {"framework": "pytorch"})
    before = (tmp_path / "r.zarr/zarr.json").read_bytes()
    RunWriter(tmp_path / "r.zarr", {"framework": "other"})
    assert (tmp_path / "r.zarr/zarr.json").read_bytes() == before


def test_a_newer_format_is_refused_with_advice(tmp_path):
    write_run(tmp_path / "r.zarr", {(0, 0): {"output.0": np.ones(3)}})
    for path in (tmp_path / "r.zarr", tmp_path / "r.zarr/step0/rank0"):
        file = path / "zarr.json"
        text = file.read_text()
        file.write_text(text.replace('"version":1', '"version":9'))
        with pytest.raises(FormatError, match="Upgrade msprobe_nb"):
            open_run(path).pack().index  # noqa: B018
        file.write_text(text)


def test_unknown_names_get_near_ones(tmp_path):
    run = write_run(tmp_path / "r.zarr", {(0, 0): {"output.0": np.ones(3)}})
    with pytest.raises(UnknownTensorError, match=r"Torch\.x\.0\.forward\.output\.0"):
        run["Torch.x.0.forward.output.1"]
    with pytest.raises(UnknownTensorError, match="steps 0"):
        run["Torch.x.0.forward.output.0", 5, 0]


def test_engine_msprobe_opens_runs_in_xarray(tmp_path):
    write_run(tmp_path / "r.zarr", {(0, 0): {"output.0": np.ones(3)}})
    tree = xr.open_datatree(tmp_path / "r.zarr", engine="msprobe")
    assert tree["step0/rank0"]["dtype"].values.tolist() == ["float64"]
    dataset = xr.open_dataset(tmp_path / "r.zarr", engine="msprobe")
    assert dataset.sizes == {"step": 1, "rank": 1, "tensor": 1}


def test_an_interrupted_compaction_leaves_nothing(tmp_path, monkeypatch):
    with RunWriter(tmp_path / "r.zarr").pack(0, 0, {"task": "tensor"}) as pack:
        pack.add(pack.add_node("Torch.a.0.forward"), "output.0", np.ones(5))
    run = open_run(tmp_path / "r.zarr")

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(compact, "_compress", stop)
    with pytest.raises(KeyboardInterrupt):
        run.compact(tmp_path / "c.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["r.zarr"]
    monkeypatch.undo()
    assert run.compact(tmp_path / "c.zarr")["Torch.a.0.forward.output.0"].values.sum() == 5
