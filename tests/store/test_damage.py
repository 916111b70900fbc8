"""A damaged store says what is broken and keeps the rest."""

from __future__ import annotations

import contextlib
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_nb.errors import DamagedStoreError, MsProbeError, TensorReadError
from msprobe_nb.formats import open_run
from msprobe_nb.store import RunWriter


@pytest.fixture
def run_path(tmp_path):
    writer = RunWriter(tmp_path / "r.zarr", {"framework": "pytorch"})
    for rank in (0, 1):
        with writer.pack(0, rank, {"task": "tensor"}) as pack:
            node = pack.add_node("Torch.x.0.forward")
            for at in range(3):
                pack.add(node, f"output.{at}", np.full(2000, at + rank, np.float32))
    return tmp_path / "r.zarr"


def read_everything(pack):
    for row in range(len(pack.index)):
        pack.nodes.stack_of(int(pack.index.node[row]))
        pack.read(row)


FILES = [
    *("tensor/c/0", "byte_offset/c/0", "byte_count/c/0", "facts/c/0/0", "statistics/c/0/0"),
    *("records/c/0", "facts/zarr.json"),
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", ["missing", "cut", "garbage"])
def test_a_broken_index_is_reported_and_other_packs_stay_readable(run_path, file, how):
    path = run_path / "step0/rank1" / file
    raw = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    else:
        path.write_bytes(b"\xff" * len(raw))
    run = open_run(run_path)
    assert (run["Torch.x.0.forward.output.2", 0, 0].values == 2).all()
    with pytest.raises((DamagedStoreError, TensorReadError), match="rank1"):
        read_everything(run.pack(0, 1))


def test_a_missing_data_file_fails_only_the_tensors_in_it(run_path):
    (run_path / "step0/rank1/blob/c/0").unlink()
    pack = open_run(run_path).pack(0, 1)
    assert len(pack.index) == 3
    found = pack.read_many([0, 1, 2])
    assert all(isinstance(error, TensorReadError) for error in found)
    assert "output.0" in str(found[0])


def test_a_cut_data_file_fails_only_the_tensors_beyond_the_cut(run_path):
    blob = run_path / "step0/rank1/blob/c/0"
    blob.write_bytes(blob.read_bytes()[:10000])
    pack = open_run(run_path).pack(0, 1)
    assert (pack.read(0) == 1).all()
    with pytest.raises(TensorReadError, match=r"output\.2"):
        pack.read(2)


def test_a_pack_that_was_never_begun_is_noted(run_path):
    (run_path / "step0/rank7").mkdir()
    run = open_run(run_path)
    assert run.ranks == [0, 1]
    assert any("rank7" in note for note in run.notes)


@given(at=st.integers(0, 10**6), byte=st.integers(0, 255), file=st.sampled_from(FILES))
def test_a_flipped_byte_never_raises_anything_but_our_errors(
    tmp_path_factory, run_path, at, byte, file
):
    copy = tmp_path_factory.mktemp("copy") / "r.zarr"
    shutil.copytree(run_path, copy)
    path = copy / "step0/rank1" / file
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] = byte
    path.write_bytes(bytes(raw))
    with contextlib.suppress(MsProbeError):
        read_everything(open_run(copy).pack(0, 1))
