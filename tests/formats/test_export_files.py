"""Exported tensor files and folders: every type, nothing outside, safe to interrupt."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from export_support import same_values, there_and_back
from hypothesis import given, settings
from support import DUMPS, arrays, call, tensor, write_dump

from msprobe_nb.errors import DamagedStoreError, FormatError, UsageError
from msprobe_nb.formats import exporter, open_run
from msprobe_nb.formats.exporter import MARK, export, export_run
from msprobe_nb.formats.msprobe import dump_writer
from msprobe_nb.formats.tensor_file import write_tensor_file
from msprobe_nb.store import PackWriter, RunWriter
from msprobe_nb.store.index import INPUT

# ---------------------------------------------------------------- tensor files


@settings(deadline=None)
@given(arrays())
def test_pt_files_hold_every_type_bit_for_bit(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("pt") / "a.pt"
    write_tensor_file(path, array)
    found = torch.load(path, weights_only=True)
    assert found.shape == array.shape
    assert str(found.dtype) == f"torch.{array.dtype.name}"
    codes = found.reshape(-1).view(torch.uint8).numpy() if found.numel() else np.empty(0, np.uint8)
    assert codes.tobytes() == array.tobytes()


def test_files_hold_no_more_than_their_tensor(tmp_path):
    base = np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000)
    write_tensor_file(tmp_path / "a.pt", base[::500, 3:5].T)
    found = torch.load(tmp_path / "a.pt", weights_only=True)
    assert found.tolist() == [[3, 500_003], [4, 500_004]]
    assert (tmp_path / "a.pt").stat().st_size < 4096
    base.flags.writeable = False
    write_tensor_file(tmp_path / "b.npy", base[:2, :2])
    assert np.load(tmp_path / "b.npy").tolist() == [[0, 1], [1000, 1001]]


def test_npy_files_hold_text_and_widened_types(tmp_path):
    write_tensor_file(tmp_path / "t.npy", np.array(["ab", "c"]))
    assert np.load(tmp_path / "t.npy", allow_pickle=False).tolist() == ["ab", "c"]
    low = np.array([1.5, -2], ml_dtypes.bfloat16)
    write_tensor_file(tmp_path / "b.npy", low)
    assert np.load(tmp_path / "b.npy").dtype == np.float32
    for name, array in (("t.pt", np.array(["ab"])), ("x.bin", np.ones(2))):
        with pytest.raises(FormatError):
            write_tensor_file(tmp_path / name, array)


TENSORS = {
    "view": torch.arange(24.0).reshape(4, 6)[1:3, ::2],
    "transposed": torch.arange(6).reshape(2, 3).T,
    "expanded": torch.tensor([1.0]).expand(3, 2),
    "conjugate": torch.tensor([1 + 2j, 3j]).conj(),
    "bfloat16": torch.tensor([1.0, float("nan"), -0.0]).bfloat16(),
    "float8": torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn),
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.empty(0, 3, dtype=torch.float16),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "flags": torch.tensor([True, False]),
}


def test_recorded_tensors_of_every_kind_come_back(tmp_path):
    names = {kind: f"Torch.a.{at}.forward.input.0.pt" for at, kind in enumerate(TENSORS)}
    data = {
        name.removesuffix(".input.0.pt"): call(
            [tensor(tuple(TENSORS[k].shape), str(TENSORS[k].dtype), data_name=name)], []
        )
        for k, name in names.items()
    }
    pack = write_dump(tmp_path / "in/step0/rank0", data, task="tensor")
    (pack / "dump_tensor_data").mkdir()
    for kind, value in TENSORS.items():
        torch.save(value, pack / "dump_tensor_data" / names[kind])
    out = there_and_back(tmp_path / "in", tmp_path) / "step0/rank0"
    for kind, value in TENSORS.items():
        found = torch.load(out / "dump_tensor_data" / names[kind], weights_only=True)
        assert type(found) is torch.Tensor, kind
        assert same_values(found, value.detach().resolve_conj()), kind
        assert found.is_contiguous(), kind


# ---------------------------------------------------------------- safety


def hostile_store(folder: Path, data_names: list[str | None], slots: list[str] | None = None):
    run = RunWriter(folder / "run.zarr", {"framework": "pytorch", "task": "tensor"})
    with run.pack(0, 0, {"label": "../../rank0", "framework": "pytorch", "task": "tensor"}) as pack:
        node = pack.add_node("Torch.a.0.forward")
        for at, name in enumerate(data_names):
            slot = slots[at] if slots else f"input.{at}"
            pack.add(node, slot, np.full(2, at, np.float32), role=INPUT, data_name=name)
    return open_run(folder / "run.zarr")


@pytest.mark.parametrize(
    "name",
    [
        "../../x.pt",
        "/tmp/x.pt",
        "..",
        ".",
        "a/b.pt",
        "a\\b.pt",
        "x\0.pt",
        "x" * 253 + ".pt",
        "x.sh",
    ],
)
def test_files_stay_inside_whatever_names_say(tmp_path, name):
    run = hostile_store(tmp_path / "in", [name, "fine.pt"])
    before = sorted(tmp_path.rglob("*"))
    with pytest.warns(UserWarning, match="no safe file name"):
        out = export_run(run, tmp_path / "out/here", progress=False)
    data = out / "step0/rank0/dump_tensor_data"
    assert sorted(p.name for p in data.iterdir()) == ["Torch.a.0.forward.input.0.pt", "fine.pt"]
    added = set(tmp_path.rglob("*")) - set(before)
    assert all(p.is_relative_to(tmp_path / "out") for p in added)
    args = json.loads((out / "step0/rank0/dump.json").read_text())["data"]["Torch.a.0.forward"]
    assert [a["data_name"] for a in args["input_args"]] == [
        "Torch.a.0.forward.input.0.pt",
        "fine.pt",
    ]


def test_rows_without_a_recorded_name_get_official_ones(tmp_path):
    slots = ["input.0", "input.a/../b", "input." + "k" * 300, "input.a_.._b"]
    run = hostile_store(tmp_path, [None] * 4, slots)
    data = export_run(run, tmp_path / "out", progress=False) / "step0/rank0/dump_tensor_data"
    found = {torch.load(p, weights_only=True)[0].item(): p.name for p in data.iterdir()}
    assert found[0] == "Torch.a.0.forward.input.0.pt"
    assert found[1] == "Torch.a.0.forward.input.a_.._b.pt"
    assert found[3] == "Torch.a.0.forward.input.a_.._b.1.pt"
    assert len(found[2]) < 200


def test_a_shared_file_is_written_once_and_other_data_apart(tmp_path):
    folder = tmp_path / "in"
    with RunWriter(folder).pack(0, 0, {"task": "tensor"}) as pack:
        node = pack.add_node("Torch.a.0.forward")
        for at, value in enumerate((1, 1, 2)):
            pack.add(node, f"input.{at}", np.full(2, value), role=INPUT, data_name="same.pt")
    done = export(folder, tmp_path / "out", progress=False)
    pack = open_run(done.path).pack()
    assert pack.index.data_name == ["same.pt", "same.pt", "Torch.a.0.forward.input.2.pt"]
    assert [int(pack.read(row)[0]) for row in range(3)] == [1, 1, 2]


def test_a_tensor_that_cannot_be_read_is_left_without_a_file(tmp_path):
    entry = call([tensor((2,), data_name=f"{n}.pt") for n in ("good", "gone", "broken")], [])
    pack = write_dump(tmp_path / "in/step0/rank0", {"Torch.a.0.forward": entry}, task="tensor")
    data = pack / "dump_tensor_data"
    data.mkdir()
    torch.save(torch.ones(2), data / "good.pt")
    (data / "broken.pt").write_bytes(b"PK")
    with pytest.warns(UserWarning, match=r"input\.1 has no file.*missing.*; .*input\.2"):
        out = export_run(tmp_path / "in", tmp_path / "out", progress=False) / "step0/rank0"
    assert [p.name for p in (out / "dump_tensor_data").iterdir()] == ["good.pt"]
    assert (out / "dump.json").read_bytes() == (pack / "dump.json").read_bytes()


def test_a_broken_description_is_told(tmp_path):
    for at, structure in enumerate(
        [
            '{"output":[3]}\n[[0],[["type"]]]',
            "[0]\n[[5],[]]",
            "{\n{",
            '[0]\n[[0],[["foo"]]]',
            "[0]\n[]",
        ]
    ):
        folder = tmp_path / str(at)
        with PackWriter(folder / "step0/rank0") as pack:
            node = pack.add_node("Torch.a.0.forward", structure=structure)
            pack.add(node, "input.0", np.ones(2), role=INPUT)
        with pytest.raises(DamagedStoreError, match="description of a call"):
            export_run(folder / "step0/rank0", tmp_path / f"out{at}", progress=False)


# ---------------------------------------------------------------- the folder


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    (tmp_path / "file").write_text("x")
    for place, what in (("mine", "not empty"), ("file", "no folder")):
        with pytest.raises(UsageError, match=what):
            export_run(DUMPS / "stat_rules/target", tmp_path / place, progress=False)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["file"]


def test_an_interrupted_export_goes_on_where_it_stopped(tmp_path, monkeypatch):
    source = tmp_path / "in"
    for rank in range(3):
        write_dump(source / f"step0/rank{rank}", {"Torch.a.0.forward": call([tensor()], [])})
    plain, calls = dump_writer.write_dump, []

    def stop_at_second(path, *rest):
        calls.append(path)
        plain(path, *rest)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(exporter, "write_dump", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        export_run(source, tmp_path / "out", progress=False)
    assert [p.parent.name for p in sorted((tmp_path / "out/step0").glob("rank*/dump.json"))] == [
        "rank0"
    ]
    with pytest.raises(UsageError, match="another run"):
        export_run(DUMPS / "stat_rules/target", tmp_path / "out", progress=False)
    stamp = (tmp_path / "out/step0/rank0/dump.json").stat().st_mtime_ns
    out = export_run(source, tmp_path / "out", progress=False)
    assert len(calls) == 4  # rank 0, rank 1 twice, rank 2
    assert (out / "step0/rank0/dump.json").stat().st_mtime_ns == stamp
    assert sorted(p.name for p in (out / "step0").iterdir()) == ["rank0", "rank1", "rank2"]
    assert not (out / MARK).exists()


def test_an_open_run_is_left_as_it_was(tmp_path):
    run = open_run(DUMPS / "stat_rules/target")
    index = run.pack().index
    export_run(run, tmp_path / "out")
    assert run.pack().index is index
