"""Converting recordings: complete, resumable, and honest about what could not be read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import DUMPS, SHARED, call, requires_shared, same_bits, tensor, write_dump

from msprobe_nb.errors import UsageError
from msprobe_nb.formats import importer, open_run
from msprobe_nb.formats.importer import import_run
from msprobe_nb.store import layout


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
    index = import_run(recording, tmp_path / "r.zarr", progress=False).pack(0, 0).index
    assert list(index.problem.values()) == ["the data has shape [7], recorded was [3]"]


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
