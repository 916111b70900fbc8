"""Converting recordings: complete, resumable, and honest about what could not be read."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
import torch
from support import DUMPS, SHARED, call, requires_shared, same_bits, tensor, write_dump

from msprobe_nb import compare, load_comparison
from msprobe_nb.errors import InvalidJSONError, UsageError
from msprobe_nb.formats import importer, open_run
from msprobe_nb.formats.importer import import_run
from msprobe_nb.store import RunWriter, layout
from msprobe_nb.store.rows import COMPONENT


def same_content(ours, theirs):
    """Assert that two packs hold the same rows, calls and values."""
    a, b = ours.index, theirs.index
    assert a.name == b.name
    for field in ("type", "dtype", "shape"):
        assert getattr(a, field).expand().tolist() == getattr(b, field).expand().tolist()
    for field in ("node", "role", "kind", "requires_grad", "has_data"):
        assert getattr(a, field).tolist() == getattr(b, field).tolist()
    assert repr(a.statistics.python().tolist()) == repr(b.statistics.python().tolist())
    assert repr(a.checksum) == repr(b.checksum)
    assert a.data_name == b.data_name
    assert repr(a.value) == repr(b.value)
    assert repr(a.detail) == repr(b.detail)
    assert ours.nodes.name == theirs.nodes.name
    for field in ("recorded", "tree_order", "micro_step", "recompute"):
        assert getattr(ours.nodes, field).tolist() == getattr(theirs.nodes, field).tolist()
    assert ours.nodes.parent.expand().tolist() == theirs.nodes.parent.expand().tolist()
    for row in range(len(ours.nodes)):
        assert ours.nodes.stack_of(row) == theirs.nodes.stack_of(row)
    for row in np.flatnonzero(a.has_data).tolist():
        assert same_bits(ours.read(row), theirs.read(row))


LOCAL = ["arg_kinds/target", "edge_md5_L1/target", "edge_xor_L1/golden", "debug_tensor/target"]


@pytest.mark.parametrize("name", LOCAL)
def test_an_imported_run_equals_its_source(tmp_path, name):
    store = import_run(DUMPS / name, tmp_path / "r.zarr", progress=False)
    for ours, theirs in zip(store, open_run(DUMPS / name), strict=True):
        same_content(ours, theirs)
        assert (ours.info, ours.mode, ours.label) == (theirs.info, theirs.mode, theirs.label)


@requires_shared
@pytest.mark.parametrize(
    "name",
    [
        *("dump/gpt/tensor/golden/dump", "dump/gpt/xor/golden/dump", "dump/ddp/stat/golden/dump"),
        *("dump/debug/tensor/dump", "mindspore/data/pynative_mix_tensor"),
        *("mindspore/data/dtypes_tensor", "mindspore/data/mode_structure", "graph/dumps/recompute"),
        "dump/nan/tensor/dump",
    ],
)
def test_imports_of_real_recordings_equal_their_source(tmp_path, name):
    store = import_run(SHARED / name, tmp_path / "r.zarr", progress=False)
    for ours, theirs in zip(store, open_run(SHARED / name), strict=True):
        same_content(ours, theirs)


@requires_shared
def test_equal_tensors_are_stored_once(tmp_path):
    """gpt/tensor/golden/step0: 372 files, 2,059,656 bytes, of which 893,320 are distinct."""
    source = SHARED / "dump/gpt/tensor/golden/dump/step0"
    pack = import_run(source, tmp_path / "r.zarr", progress=False).pack()
    held = pack.table.byte_count
    assert int(held.sum()) == 2_059_656
    distinct = {(int(at), int(n)) for at, n in zip(pack.table.byte_offset, held, strict=True) if n}
    assert sum(n for _, n in distinct) == 893_320


@pytest.fixture
def recording(tmp_path):
    """A tensor recording of three ranks with 40 tensors each."""
    root = tmp_path / "dump"
    for rank in range(3):
        folder = root / f"step0/rank{rank}"
        (folder / "dump_tensor_data").mkdir(parents=True)
        data = {}
        for at in range(20):
            name = f"Torch.add.{at}.forward"
            files = [f"{name}.input.0.pt", f"{name}.output.0.pt"]
            for number, file in enumerate(files):
                torch.save(
                    torch.full((3,), 100.0 * rank + at + number), folder / "dump_tensor_data" / file
                )
            data[name] = call(
                [tensor((3,), data_name=files[0])], [tensor((3,), data_name=files[1])]
            )
        write_dump(folder, data, task="tensor")
    return root


def test_an_interrupted_import_goes_on_where_it_stopped(recording, tmp_path, monkeypatch):
    plain, reads = importer.Pack.read_many, []

    def read_many(self, rows):
        if self.rank == 1 and len(reads) and rows[0] > 0:
            raise KeyboardInterrupt
        reads.append((self.rank, len(rows)))
        return plain(self, rows)

    monkeypatch.setattr(importer, "_BATCH", 16)
    monkeypatch.setattr(importer.Pack, "read_many", read_many)
    with pytest.raises(KeyboardInterrupt):
        import_run(recording, tmp_path / "r.zarr", progress=False)
    partial = open_run(tmp_path / "r.zarr")
    assert partial.pack(0, 0).complete
    assert not partial.pack(0, 1).complete
    assert len(partial.pack(0, 1).index) == 16

    reads.clear()
    monkeypatch.setattr(
        importer.Pack, "read_many", lambda self, rows: reads.append(self.rank) or plain(self, rows)
    )
    store = import_run(recording, tmp_path / "r.zarr", progress=False)
    assert 0 not in reads  # the complete rank was left alone
    assert reads.count(1) == 2  # only the missing 24 of 40 rows
    assert store.complete
    for ours, theirs in zip(store, open_run(recording), strict=True):
        same_content(ours, theirs)


def test_an_import_does_not_mix_two_recordings(recording, tmp_path, monkeypatch):
    plain = importer._values

    def stop(pack, index, start):
        yield from list(plain(pack, index, start))[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr(importer, "_values", stop)
    with pytest.raises(KeyboardInterrupt):
        import_run(recording, tmp_path / "r.zarr", progress=False)
    monkeypatch.undo()
    file = recording / "step0/rank0/dump.json"
    file.write_text(file.read_text().replace("1.0", "2.0"))
    with pytest.raises(UsageError, match="changed since"):
        import_run(recording, tmp_path / "r.zarr", progress=False)


def test_a_tensor_that_cannot_be_read_becomes_a_row_that_says_why(recording, tmp_path):
    data = recording / "step0/rank0/dump_tensor_data"
    (data / "Torch.add.3.forward.input.0.pt").unlink()
    (data / "Torch.add.4.forward.input.0.pt").write_bytes(b"PK garbage")
    store = import_run(recording, tmp_path / "r.zarr", progress=False)
    index = store.pack(0, 0).index
    problems = {index.name[row]: text for row, text in index.problem.items()}
    assert set(problems) == {"Torch.add.3.forward.input.0", "Torch.add.4.forward.input.0"}
    assert "missing" in problems["Torch.add.3.forward.input.0"]
    assert store["Torch.add.5.forward.input.0", 0, 0].values.tolist() == [5, 5, 5]


def test_data_of_another_shape_than_recorded_is_noted(recording, tmp_path):
    data = recording / "step0/rank0/dump_tensor_data"
    torch.save(torch.ones(7), data / "Torch.add.3.forward.input.0.pt")
    store = import_run(recording, tmp_path / "r.zarr", progress=False)
    assert not store.pack(0, 0).index.problem
    assert any("input.0: [7], recorded [3]" in note for note in store.notes)


def test_other_folders_are_left_alone(recording, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        import_run(recording, tmp_path / "mine", progress=False)


def test_importing_twice_changes_nothing(recording, tmp_path):
    import_run(recording, tmp_path / "r.zarr", progress=False)
    before = (tmp_path / "r.zarr/step0/rank0" / layout.GROUP).stat().st_mtime_ns
    import_run(recording, tmp_path / "r.zarr", progress=False)
    assert (tmp_path / "r.zarr/step0/rank0" / layout.GROUP).stat().st_mtime_ns == before


def test_another_recording_does_not_pass_for_the_one_that_is_there(recording, tmp_path):
    import_run(recording, tmp_path / "r.zarr", progress=False)
    entry = call([tensor()], [tensor()])
    write_dump(tmp_path / "other/step0/rank0", {"Torch.a.0.forward": entry})
    with pytest.raises(UsageError, match="another recording"):
        import_run(tmp_path / "other", tmp_path / "r.zarr", progress=False)


def test_a_store_can_be_imported_too(recording, tmp_path):
    first = import_run(recording, tmp_path / "a.zarr", progress=False)
    second = import_run(first, tmp_path / "b.zarr", progress=False)
    for ours, theirs in zip(second, first, strict=True):
        same_content(ours, theirs)


def test_progress_moves_to_the_end(recording, tmp_path, capsys):
    import_run(recording, tmp_path / "r.zarr")
    assert open_run(tmp_path / "r.zarr").complete


def test_lone_surrogates_anywhere_do_not_stop_an_import_or_a_saved_comparison(tmp_path):
    odd = "\ud800"
    values = [
        tensor((2,), dtype=f"torch.{odd}", Max=odd, md5=odd),
        {"type": odd, "value": [odd, {odd: odd}]},
        tensor((2,), other=odd),
    ]
    data = {f"Torch.{odd}.0.forward": {**call(values, [tensor((2,))]), "more": odd}}
    folder = write_dump(tmp_path / "a", data, header=odd)
    (folder / "stack.json").write_text(
        f'{{"0": [["Torch.{odd}.0.forward"], ["\\ud800"]]}}'.replace(odd, "\\ud800")
    )
    (folder / "construct.json").write_text('{"Torch.\\ud800.0.forward": "\\udfff"}')
    source = open_run(folder)
    store = import_run(source, tmp_path / "r.zarr", progress=False)
    assert store.pack().index.name[0] == "Torch.\\ud800.0.forward.input.0"
    assert store.pack().index.value[1] == [odd, {odd: odd}]  # JSON columns hold them as escapes
    assert store.pack().nodes.parent[0] == "\udfff"
    comparison = compare(source, source, progress=False)
    saved = load_comparison(comparison.save(tmp_path / "c.zarr"))
    assert saved.table["verdict"].tolist() == comparison.table["verdict"].tolist()
    comparison.to_csv(tmp_path / "c.csv")


@pytest.mark.parametrize(
    "value", ['[["x"], 0]', '["m", 1099511627776]', "[3, 0]", '["m", -1]', "7"]
)
def test_an_impossible_place_in_the_module_tree_counts_as_none(tmp_path, value):
    folder = write_dump(tmp_path / "a", {"Torch.a.0.forward": call([], [tensor()])})
    (folder / "construct.json").write_text(f'{{"Torch.a.0.forward": {value}, "m": null}}')
    store = import_run(folder, tmp_path / "r.zarr", progress=False)
    assert store.nodes["parent"].tolist()[0] in (None, "m")
    assert store.nodes["micro_step"].tolist() == [0, 0]
    same_content(store.pack(), open_run(folder).pack())


# ---------------------------------------------------------------- one store, one recording


def another(recording, tmp_path, change):
    """A second recording of the same names."""
    copy = tmp_path / "other"
    shutil.copytree(recording, copy)
    change(copy)
    return copy


def edit(folder):
    file = folder / "step0/rank1/dump.json"
    file.write_text(file.read_text().replace("1.0", "2.0"))


def test_a_store_of_another_recording_is_not_taken_for_this_one(recording, tmp_path):
    import_run(recording, tmp_path / "r.zarr", progress=False)
    other = another(recording, tmp_path, edit)
    with pytest.raises(UsageError, match="another recording of step 0, rank 1"):
        import_run(other, tmp_path / "r.zarr", progress=False)
    edit(recording)  # the same place, recorded again
    with pytest.raises(UsageError, match="changed since it was imported"):
        import_run(recording, tmp_path / "r.zarr", progress=False)


def test_a_moved_recording_is_still_the_same(recording, tmp_path):
    first = import_run(recording, tmp_path / "r.zarr", progress=False)
    copy = another(recording, tmp_path, lambda folder: None)
    for path in copy.rglob("dump.json"):
        os.utime(path, (1, 1))
    assert len(import_run(copy, tmp_path / "r.zarr", progress=False)) == len(first)


def test_steps_may_be_imported_one_by_one_but_not_those_of_another_recording(recording, tmp_path):
    shutil.copytree(recording / "step0", recording / "step1")
    import_run(recording / "step0", tmp_path / "r.zarr", progress=False)
    store = import_run(recording / "step1", tmp_path / "r.zarr", progress=False)
    assert store.steps == [0, 1]
    other = another(recording, tmp_path, lambda folder: (folder / "step1").rename(folder / "step2"))
    with pytest.raises(UsageError, match="of another recording"):
        import_run(other / "step2", tmp_path / "r.zarr", progress=False)


def test_a_store_can_be_completed_from_a_store_but_not_from_another(recording, tmp_path):
    first = import_run(recording, tmp_path / "a.zarr", progress=False)
    import_run(first, tmp_path / "b.zarr", progress=False)
    assert import_run(first, tmp_path / "b.zarr", progress=False).complete
    blob = tmp_path / "a.zarr/step0/rank2/blob/c/0"
    raw = bytearray(blob.read_bytes())
    raw[0] ^= 1
    blob.write_bytes(raw)
    with pytest.raises(UsageError, match="another recording"):
        import_run(tmp_path / "a.zarr", tmp_path / "b.zarr", progress=False)


@pytest.mark.parametrize("complete", [True, False])
def test_copying_a_store_keeps_compound_tensors_edges_and_shared_bytes(tmp_path, complete):
    detail = {"layout": "quantized", "scale": 0.5, "zero_point": 0}
    sparse = {"layout": "sparse_coo"}
    writer = RunWriter(tmp_path / "a.zarr").pack(0, 0, {"task": "tensor"})
    node = writer.add_node("Torch.a.0.forward")
    codes = np.array([0, 1, 2], np.uint8)
    first = writer.add(node, "output.0", codes, detail=detail, dtype="torch.quint8", nan_count=3)
    writer.add(node, "output.1", shape=(3,), detail=sparse, dtype="torch.float32")
    parts = {"indices": np.array([[0, 2]]), "values": np.array([5, 6], "f4")}
    for name, part in parts.items():
        writer.add(node, f"output.1#{name}", part, kind=COMPONENT)
    writer.add_edge(first, writer.add(node, "output.2", codes))
    writer.close() if complete else writer.abandon()
    source = open_run(tmp_path / "a.zarr")
    copy = import_run(source, tmp_path / "b.zarr", progress=False)
    assert copy.complete
    same_content(copy.pack(), source.pack())
    assert copy["Torch.a.0.forward.output.0"].values.tolist() == [0, 0.5, 1]
    assert copy["Torch.a.0.forward.output.1"].values.tolist() == [5, 0, 6]
    assert copy.pack().edges.tolist() == [[0, 2]]
    assert copy.pack().index.nan_count.tolist() == source.pack().index.nan_count.tolist()


@pytest.mark.parametrize("text", ["{", '{"task": "tensor", "data": {"Torch.a.0.forward": \xe9}}'])
def test_a_bad_rank_does_not_cost_the_others(recording, tmp_path, text):
    dump = recording / "step0/rank0/dump.json"
    good = dump.read_text()
    dump.write_bytes(text.encode("latin-1"))
    store = import_run(recording, tmp_path / "r.zarr", progress=False)
    assert store.ranks == [1, 2]
    assert not store.complete
    assert any("not imported" in note and "rank0" in note for note in store.notes)
    later = open_run(tmp_path / "r.zarr")
    assert not later.complete
    assert any("step 0 rank 0 is missing" in note for note in later.notes)
    dump.write_text(good)
    whole = import_run(recording, tmp_path / "r.zarr", progress=False)
    assert whole.complete
    assert whole.ranks == [0, 1, 2]


def test_nothing_readable_is_an_error(recording, tmp_path):
    for rank in range(3):
        (recording / f"step0/rank{rank}/dump.json").write_text("{")
    with pytest.raises(InvalidJSONError):
        import_run(recording, tmp_path / "r.zarr", progress=False)


def test_a_file_in_place_of_the_store_is_refused(recording, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="this is a file"):
        import_run(recording, tmp_path / "file", progress=False)


def test_an_import_compares_as_its_source_does(tmp_path):
    """A file of shape [1, 4], recorded as [4]: the values are the same."""
    folders = []
    for name, value in (("a", 1.0), ("b", 2.0)):
        folder = tmp_path / name
        (folder / "dump_tensor_data").mkdir(parents=True)
        torch.save(torch.full((1, 4), value), folder / "dump_tensor_data/x.pt")
        entry = call([], [tensor((4,), data_name="x.pt")])
        folders.append(write_dump(folder, {"Torch.a.0.forward": entry}, task="tensor"))
    stores = [import_run(f, f"{f}.zarr", progress=False) for f in folders]
    ours, theirs = compare(*stores, progress=False).table, compare(*folders, progress=False).table
    assert ours.drop(columns=["reason"]).equals(theirs.drop(columns=["reason"]))
    assert stores[0].pack().index.shape[0] == (4,)
    assert stores[0]["Torch.a.0.forward.output.0"].shape == (1, 4)
    assert any("recorded [4]" in note for note in stores[0].notes)


def test_equal_data_are_stored_once_also_after_an_interrupt(recording, tmp_path, monkeypatch):
    for file in (recording / "step0/rank0/dump_tensor_data").iterdir():
        torch.save(torch.ones(1000), file)
    plain = importer._values

    def stop(pack, index, start):
        yield from list(plain(pack, index, start))[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr(importer, "_values", stop)
    with pytest.raises(KeyboardInterrupt):
        import_run(recording, tmp_path / "r.zarr", progress=False)
    monkeypatch.undo()
    store = import_run(recording, tmp_path / "r.zarr", progress=False)
    assert set(store.pack(0, 0).table.byte_offset.tolist()) == {0}
