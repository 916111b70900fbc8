"""Whatever stands in place of a tensor file, only its own row fails, and quickly."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import struct
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import call, tensor, write_dump

from msprobe_nb import compare
from msprobe_nb.errors import MsProbeError, TensorReadError, UnsafeFileError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.importer import import_run
from msprobe_nb.formats.torch_file import read_torch
from msprobe_nb.store.sources import LocalSource

GOOD = "Torch.add.0.forward.input.0.pt"


def recording(folder: Path, name: object, content: bytes | None) -> Path:
    """A good tensor, and one whose data file is called `name` and holds `content`."""
    data = folder / "dump_tensor_data"
    data.mkdir(parents=True)
    torch.save(torch.ones(2), data / GOOD)
    if content is not None:
        (data / str(name)).write_bytes(content)
    entry = call([tensor((2,), data_name=GOOD)], [tensor((2,), data_name=name)])
    return write_dump(folder, {"Torch.add.0.forward": entry}, task="tensor")


def saved(value: object, **options: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def npy(shape: str, dtype: str = "'<f4'", data: bytes = bytes(8), version: int = 1) -> bytes:
    head = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(10 + len(head) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(head)) + head + data


def archive(program: bytes, data: bytes = bytes(8)) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", program)
        file.writestr("archive/byteorder", b"little")
        file.writestr("archive/data/0", data)
        file.writestr("archive/version", b"3\n")
    return stream.getvalue()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x10" + value.to_bytes(16, "little", signed=True)


def named(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


STORAGE = (
    b"(" + text("storage") + named("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x02tQ"
)
ORDERED = named("collections", "OrderedDict") + b")R"


def program(
    storage: bytes = STORAGE,
    shape: bytes = b"K\x02\x85",
    stride: bytes = b"K\x01\x85",
    tail: bytes = b"\x89" + ORDERED,
) -> bytes:
    head = b"\x80\x02" + named("torch._utils", "_rebuild_tensor_v2") + b"("
    return head + storage + b"K\0" + shape + stride + tail + b"tR."


DOUBLING = b"K\x01" + b"".join(b"q%ch%c\x86" % (at, at) for at in range(100))
"""A tuple of 2**100 elements in 500 bytes."""

BAD = {
    "expanded.pt": saved(torch.ones(1).expand(2**40)),
    "no storage.pt": archive(program(storage=b"N")),
    "number as storage.pt": archive(program(storage=b"K\x01")),
    "stride 0.pt": archive(program(shape=number(2**62) + b"\x85", stride=b"K\0\x85")),
    "beyond int64.pt": archive(program(shape=number(2**70) + b"\x85", stride=b"K\0\x85")),
    "zero and huge.pt": archive(
        program(shape=b"K\0" + number(2**62) * 2 + b"\x87", stride=b"K\0K\0K\0\x87")
    ),
    "100 axes.pt": archive(
        program(shape=b"(" + b"K\x01" * 100 + b"t", stride=b"(" + b"K\0" * 100 + b"t")
    ),
    "shape as dictionary.pt": archive(program(shape=b"}")),
    "true as length.pt": archive(program(shape=b"\x88\x85")),
    "deep.pt": archive(b"\x80\x02N" + b"\x85" * 50_000 + b"Q."),
    "deep call.pt": archive(b"\x80\x02N" + b"\x85" * 50_000 + b")R."),
    "endless shape.pt": archive(program(shape=DOUBLING)),
    "endless stride.pt": archive(program(stride=DOUBLING)),
    "endless function.pt": archive(b"\x80\x02" + DOUBLING + b")R."),
    "endless reference.pt": archive(b"\x80\x02" + DOUBLING + b"Q."),
    "endless key.pt": archive(b"\x80\x02}" + DOUBLING + b"Ns."),
    "endless keys.pt": archive(b"\x80\x02}(" + DOUBLING + b"Nu."),
    "endless name.pt": archive(b"\x80\x02" + DOUBLING + text("x") + b"\x93."),
    "endless storage.pt": archive(
        program(storage=STORAGE.replace(text("0"), DOUBLING)),
    ),
    "endless dtype.pt": archive(
        program().replace(b"_v2", b"_v3").replace(b"tR.", DOUBLING + b"tR.")
    ),
    "half packed.pt": saved(torch.zeros(4, dtype=torch.uint8).view(torch.complex32)),
    "bits.pt": saved(torch.zeros(4, dtype=torch.uint8).view(torch.bits8)),
    "list.pt": saved([torch.ones(2)]),
    "protocol 0.pt": saved(torch.ones(2), pickle_protocol=0),
    "one negative.npy": npy("(-1,)"),
    "two negative.npy": npy("(-1, -2)"),
    "zero and huge.npy": npy(f"(0, {2**62})"),
    "70 axes.npy": npy(str((1,) * 70)),
    "true.npy": npy("(True,)", "'<f8'"),
    "text as shape.npy": npy("'ab'"),
    "subarray.npy": npy("(1,)", "('<f4', (2,))"),
    "record.npy": npy("(2,)", "[('a', '<f4')]"),
    "void.npy": npy("(2,)", "'|V4'"),
    "time.npy": npy("(1,)", "'<M8[s]'"),
    "parentheses.npy": npy("(" * 200 + ")" * 200),
    "version 9.npy": npy("(2,)", version=9),
    "empty.npy": b"",
    "empty.pt": b"",
    "x" * 300 + ".pt": None,
    "x" * 300 + ".npy": None,
    "a\0.pt": None,
    "..": None,
    "../dump.json": None,
    "\\x.pt": None,
    ".npy": None,
}


@pytest.mark.parametrize("name", BAD, ids=lambda name: name[:24].replace("\0", "NUL"))
def test_a_bad_tensor_file_is_the_reason_of_its_row_and_of_no_other(tmp_path, name):
    began = time.monotonic()
    folder = recording(tmp_path / "a", name, BAD[name])
    result = compare(folder, folder, progress=False)
    assert result.table["status"].tolist() == ["compared", "unreadable"]
    reason = result.table["reason"].iloc[1]
    assert "\x1b" not in reason
    assert "file " in reason
    store = import_run(folder, tmp_path / "r.zarr", progress=False)
    assert store["Torch.add.0.forward.input.0"].values.tolist() == [1, 1]
    assert list(store.pack().index.problem) == [1]
    assert time.monotonic() - began < 10


def test_a_name_that_is_no_text_is_an_error_of_its_row(tmp_path):
    for name in (float("inf"), float("nan"), "\ud800.pt"):
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        folder = recording(tmp_path / "a", name, None)
        result = compare(folder, folder, progress=False)
        assert result.table["verdict"].tolist() == ["pass", "error"]
        import_run(folder, tmp_path / f"{name!r}.zarr", progress=False)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link outside", "loop", "outside loop"])
@pytest.mark.parametrize("name", ["x.pt", "x.npy"])
def test_what_is_no_file_is_not_read(tmp_path, kind, name):
    folder = recording(tmp_path / "a", name, None)
    path = folder / "dump_tensor_data" / name
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"link outside": "/etc/hostname", "loop": name}.get(kind, "/x/../y"))
    found = open_run(folder).pack().read_many([0, 1])
    assert isinstance(found[0], np.ndarray)
    assert isinstance(found[1], MsProbeError)


def test_small_expanded_tensors_are_read(tmp_path):
    (tmp_path / "x.pt").write_bytes(saved(torch.ones(1, 3).expand(1000, 3)))
    assert read_torch(LocalSource(tmp_path), "x.pt").sum() == 3000


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_every_pickle_protocol_that_torch_reads_is_read(tmp_path, protocol):
    (tmp_path / "x.pt").write_bytes(saved(torch.arange(3.0), pickle_protocol=protocol))
    assert read_torch(LocalSource(tmp_path), "x.pt").tolist() == [0, 1, 2]


def test_harmless_files_are_not_called_unsafe(tmp_path):
    for value, protocol in (([torch.ones(2)], 2), (torch.ones(2), 0), ((torch.ones(2),), 2)):
        (tmp_path / "x.pt").write_bytes(saved(value, pickle_protocol=protocol))
        with pytest.raises(TensorReadError):
            read_torch(LocalSource(tmp_path), "x.pt")


def test_code_is_still_called_unsafe(tmp_path):
    call_system = b"\x80\x02" + named("os", "system") + text("id") + b"\x85R."
    hidden = b"\x80\x02]" + named("os", "system") + text("id") + b"\x85Ra."
    for content in (call_system, hidden, b"\x80\x02](" + call_system[2:-1] + b"e."):
        (tmp_path / "x.pt").write_bytes(archive(content))
        with pytest.raises(UnsafeFileError):
            read_torch(LocalSource(tmp_path), "x.pt")


@given(data=st.data())
def test_damage_in_a_torch_file_raises_only_our_errors(tmp_path_factory, data):
    raw = bytearray(saved(torch.arange(6.0)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(1, len(raw))) :]
    folder = tmp_path_factory.mktemp("damage")
    (folder / "x.pt").write_bytes(bytes(raw))
    with contextlib.suppress(MsProbeError):
        read_torch(LocalSource(folder), "x.pt")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RecursionError("deep"), zlib.error("bad"), KeyError("codecs"), OSError()],
)
def test_any_failure_of_a_read_becomes_an_error_with_a_place(tmp_path, monkeypatch, error):
    pack = open_run(recording(tmp_path / "a", "x.npy", npy("(2,)"))).pack()
    plain = type(pack)._load

    def load(self, row):
        if row == 0:
            raise error
        return plain(self, row)

    monkeypatch.setattr(type(pack), "_load", load)
    found = pack.read_many([0, 1])
    assert isinstance(found[0], TensorReadError)
    assert (found[0].key, found[0].file) == ("Torch.add.0.forward.input.0", pack.where)
    assert found[1].tolist() == [0, 0]
