"""A writer that dies loses nothing that was flushed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from msprobe_nb.errors import DamagedStoreError, PathNotFoundError
from msprobe_nb.formats import open_run
from msprobe_nb.store import PackWriter, RunWriter, layout, recover

WRITER = """
import sys
import numpy as np
from msprobe_nb.store import RunWriter
pack = RunWriter(sys.argv[1]).pack(0, 0, {"task": "tensor"})
node = pack.add_node("Torch.x.0.forward", stack=["a"])
at = 0
while True:
    pack.add(node, f"output.{at}", np.full((64, 1024), at, np.float32), statistics=[at] * 4)
    at += 1
    if at % 7 == 0:
        pack.flush()
        print(at, flush=True)
"""


def kill_a_writer(path, seconds: float) -> int:
    """Let a writer run, kill it, and return how many tensors it said were flushed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline()  # the first flush
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    flushed = 7
    for line in process.stdout:
        if line.endswith("\n"):
            flushed = int(line)
    process.wait()
    return flushed


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path, seconds):
    flushed = kill_a_writer(tmp_path / "r.zarr", seconds)
    run = open_run(tmp_path / "r.zarr")
    assert not run.complete
    assert any("unfinished" in note for note in run.notes)
    found = len(run.pack().index)
    assert found >= flushed
    for at in (0, flushed - 1, found - 1):
        assert (run[f"Torch.x.0.forward.output.{at}"].values == at).all()

    assert recover(tmp_path / "r.zarr/step0/rank0") == found
    run = open_run(tmp_path / "r.zarr")
    assert run.complete
    assert run.pack().nodes.stack_of(0) == ["a"]
    for at in range(found):
        assert (run[f"Torch.x.0.forward.output.{at}"].values == at).all()
    group = zarr.open_group(tmp_path / "r.zarr/step0/rank0", mode="r")
    start = int(group["byte_offset"][found - 1])
    assert group["blob"][start : start + 4].view("f4")[0] == found - 1


def unfinished(path, count=5):
    pack = RunWriter(path).pack(0, 0, {"task": "tensor"})
    node = pack.add_node("Torch.x.0.forward")
    for at in range(count):
        pack.add(node, f"output.{at}", np.full(1000, at, np.float32))
    pack.flush()
    return pack


def test_a_running_recording_can_be_read(tmp_path):
    pack = unfinished(tmp_path / "r.zarr")
    assert len(open_run(tmp_path / "r.zarr").pack().index) == 5
    pack.add(0, "output.5", np.full(1000, 5, np.float32))
    assert len(open_run(tmp_path / "r.zarr").pack().index) == 5  # not flushed yet
    pack.close()
    run = open_run(tmp_path / "r.zarr")
    assert run.complete
    assert (run["Torch.x.0.forward.output.5"].values == 5).all()


@given(cut=st.integers(1, 2000))
def test_a_torn_journal_keeps_its_whole_lines(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("run") / "r.zarr"
    unfinished(path).abandon()
    journal = path / "step0/rank0" / layout.JOURNAL
    raw = journal.read_bytes()
    kept = raw[: max(len(raw) - cut, raw.index(b"\n") + 1)]
    journal.write_bytes(kept)
    run = open_run(path)
    whole = sum(b'"row":"tensor"' in line for line in kept.split(b"\n")[:-1])
    assert len(run.pack().index) == whole
    for at in range(whole):
        assert (run[f"Torch.x.0.forward.output.{at}"].values == at).all()
    assert recover(path / "step0/rank0") == whole


def test_rows_whose_bytes_are_missing_are_left_out(tmp_path):
    unfinished(tmp_path / "r.zarr").abandon()
    blob = tmp_path / "r.zarr/step0/rank0/blob/c/0.partial"
    blob.write_bytes(blob.read_bytes()[:9000])
    assert len(open_run(tmp_path / "r.zarr").pack().index) == 2
    assert recover(tmp_path / "r.zarr/step0/rank0") == 2


def test_resuming_goes_on_after_the_last_flushed_row(tmp_path):
    unfinished(tmp_path / "r.zarr").abandon()
    with PackWriter.resume(tmp_path / "r.zarr/step0/rank0") as pack:
        assert len(pack.tensors) == 5
        pack.add(0, "output.5", np.full(1000, 5, np.float32))
    run = open_run(tmp_path / "r.zarr")
    assert run.complete
    for at in range(6):
        assert (run[f"Torch.x.0.forward.output.{at}"].values == at).all()


def test_recovery_works_when_only_the_index_was_missing(tmp_path):
    pack = unfinished(tmp_path / "r.zarr")
    pack.blob.close()  # the process dies between the last shard and the index
    pack._journal.close()
    assert recover(tmp_path / "r.zarr/step0/rank0") == 5
    run = open_run(tmp_path / "r.zarr")
    assert (run["Torch.x.0.forward.output.4"].values == 4).all()


def test_an_exception_while_recording_keeps_what_was_recorded(tmp_path):
    def interrupted():
        with RunWriter(tmp_path / "r.zarr").pack(0, 0) as pack:
            node = pack.add_node("Torch.x.0.forward")
            pack.add(node, "output.0", np.ones(3))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(open_run(tmp_path / "r.zarr").pack().index) == 1


def test_a_journal_without_a_head_is_a_damaged_store(tmp_path):
    unfinished(tmp_path / "r.zarr").abandon()
    (tmp_path / "r.zarr/step0/rank0" / layout.JOURNAL).write_bytes(b"garbage\n")
    with pytest.raises(DamagedStoreError, match="no readable head"):
        open_run(tmp_path / "r.zarr").pack().index  # noqa: B018


def test_resuming_what_is_not_there_says_so(tmp_path):
    with pytest.raises(PathNotFoundError, match="no unfinished recording"):
        PackWriter.resume(tmp_path)


def small_shards(monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 4096)
    monkeypatch.setattr(layout, "CHUNK_BYTES", 1024)
    monkeypatch.setattr(layout, "CHUNKS_PER_SHARD", 4)


@pytest.mark.parametrize("cut", [0, 100, 1500, 5000, 9000])
def test_readers_show_what_recovery_keeps(tmp_path, monkeypatch, cut):
    small_shards(monkeypatch)
    unfinished(tmp_path / "r.zarr").abandon()
    folder = tmp_path / "r.zarr/step0/rank0"
    shards = sorted((folder / "blob/c").iterdir(), key=lambda path: int(path.stem))
    for path in reversed(shards):  # lose the last bytes, whole files included
        size = path.stat().st_size
        if cut >= size:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: size - cut])
        cut = max(0, cut - size)
    shown = open_run(tmp_path / "r.zarr").pack()
    rows = len(shown.index)
    for row in range(rows):
        assert (shown.read(row) == row).all()
    assert recover(folder) == rows
    kept = open_run(tmp_path / "r.zarr").pack()
    for row in range(rows):
        assert (kept.read(row) == row).all()


def test_recovery_leaves_no_stale_shards(tmp_path, monkeypatch):
    small_shards(monkeypatch)
    unfinished(tmp_path / "r.zarr").abandon()
    folder = tmp_path / "r.zarr/step0/rank0"
    journal = folder / layout.JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]))  # one tensor of 4,000 bytes
    assert recover(folder) == 1
    assert {path.name for path in (folder / "blob/c").iterdir()} == {"0"}
