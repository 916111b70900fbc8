"""Reading .pt files without torch, fast and without running anything."""

from __future__ import annotations

import collections
import functools
import mmap
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_nb.errors import MsProbeError, TensorReadError, UnsafeFileError
from msprobe_nb.formats.tensor_file import read_tensor_file
from msprobe_nb.formats.torch_file import read_torch
from msprobe_nb.store.sources import LocalSource

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2),
]


def read(path):
    return read_torch(LocalSource(path.parent), path.name)


def bits(value: torch.Tensor) -> bytes:
    plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[1:, 2],
        lambda x: x[0, 0],
        lambda x: x[:0],
        lambda x: x[:, :1].expand(3, 5),
        lambda x: x.unsqueeze(0)[:, 1:2],
    ],
)
def test_every_dtype_and_view_reads_as_torch_reads_it(tmp_path, dtype, view):
    value = view(torch.arange(12).reshape(3, 4).to(torch.float32).to(dtype))
    torch.save(value, tmp_path / "x.pt")
    found = read(tmp_path / "x.pt")
    assert found.shape == tuple(value.shape)
    assert np.ascontiguousarray(found).tobytes() == bits(torch.load(tmp_path / "x.pt"))


def test_parameters_and_lazy_conjugates(tmp_path):
    torch.save(torch.nn.Parameter(torch.ones(2)), tmp_path / "p.pt")
    torch.save(torch.tensor([1 + 2j]).conj(), tmp_path / "c.pt")
    assert read(tmp_path / "p.pt").tolist() == [1, 1]
    assert read(tmp_path / "c.pt")[0] == 1 - 2j


def test_large_files_are_mapped_not_copied(tmp_path):
    value = torch.arange(3_000_000, dtype=torch.float32)
    torch.save(value, tmp_path / "x.pt")
    found = read(tmp_path / "x.pt")
    owner = found
    while isinstance(owner, np.ndarray):  # down to what holds the bytes
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    assert (found == value.numpy()).all()


def test_forms_only_torch_knows_are_read_through_it(tmp_path):
    value = torch.arange(6.0)
    torch.save(value, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(value.to_sparse(), tmp_path / "sparse.pt")
    assert read(tmp_path / "old.pt").tolist() == list(range(6))
    assert read(tmp_path / "sparse.pt").tolist() == list(range(6))


def test_reading_a_usual_file_does_not_import_torch(tmp_path):
    torch.save(torch.ones(3), tmp_path / "x.pt")
    code = f"""
import sys
from msprobe_nb.formats.torch_file import read_torch
from msprobe_nb.store.sources import LocalSource
print(read_torch(LocalSource({str(tmp_path)!r}), "x.pt").tolist(), "torch" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1.0, 1.0, 1.0] False"


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path, function=os.mkdir):
        self.path, self.function = path, function

    def __reduce__(self):
        return self.function, (str(self.path),)


@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": x}])
def test_a_file_with_code_is_refused_and_nothing_runs(tmp_path, new_format, wrap):
    trap = tmp_path / "ran"
    torch.save(wrap(Touch(trap)), tmp_path / "x.pt", _use_new_zipfile_serialization=new_format)
    with pytest.raises((UnsafeFileError, TensorReadError)) as caught:
        read(tmp_path / "x.pt")
    assert not trap.exists()
    assert str(tmp_path / "x.pt") in str(caught.value)
    if new_format and wrap(1) == 1:
        assert isinstance(caught.value, UnsafeFileError)
        assert "mkdir" in str(caught.value)


def description_file(path, program: bytes) -> None:
    """A .pt file whose description is the given program."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/data/0", b"\0" * 64)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        Touch("ran", os.system),
        functools.partial(os.system, "ran"),
        collections.Counter("ab"),
        os.system,
        print,
    ],
)
def test_other_programs_are_refused(tmp_path, protocol, value):
    description_file(tmp_path / "x.pt", pickle.dumps(value, protocol))
    with pytest.raises((UnsafeFileError, TensorReadError)):
        read(tmp_path / "x.pt")


@given(st.binary(max_size=60))
def test_random_programs_never_raise_anything_but_our_errors(tmp_path_factory, program):
    path = tmp_path_factory.mktemp("x") / "x.pt"
    description_file(path, b"\x80\x02" + program)
    with pytest.raises(MsProbeError):
        read(path)


@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_flipped_byte_never_raises_anything_but_our_errors(tmp_path_factory, at, byte):
    path = tmp_path_factory.mktemp("x") / "x.pt"
    torch.save(torch.arange(6.0).reshape(2, 3).t(), path)
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] = byte
    path.write_bytes(bytes(raw))
    try:
        found = read(path)
    except MsProbeError:
        return
    assert found.nbytes < 10**6


@given(st.data())
def test_truncated_files_are_read_errors(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("x") / "x.pt"
    torch.save(torch.arange(100.0), path)
    raw = path.read_bytes()
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(TensorReadError) as caught:
        read(path)
    assert caught.value.file
    assert caught.value.remedy


def test_a_missing_file_is_a_read_error(tmp_path):
    with pytest.raises(TensorReadError, match="missing"):
        read(tmp_path / "none.pt")


def test_impossible_shapes_are_refused(tmp_path):
    torch.save(torch.arange(4.0), tmp_path / "x.pt")
    raw = (tmp_path / "x.pt").read_bytes()
    # The shape (4,) stands as BININT1 4; make it 200 elements of a 4-element storage.
    (tmp_path / "x.pt").write_bytes(raw.replace(b"K\x04\x85q", b"K\xc8\x85q"))
    with pytest.raises(TensorReadError, match="needs 200 elements"):
        read(tmp_path / "x.pt")


def test_npy_files(tmp_path):
    source = LocalSource(tmp_path)
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["a", "bc"]),
        np.array(3.5),
        np.empty((0, 2), np.int8),
        np.arange(2_000_000),
    ):
        np.save(tmp_path / "x.npy", array)
        found = read_tensor_file(source, "x.npy")
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert (found == array).all()


def test_npy_files_with_objects_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([Touch(tmp_path / "ran")], object), allow_pickle=True)
    with pytest.raises(UnsafeFileError, match="Python objects"):
        read_tensor_file(LocalSource(tmp_path), "x.npy")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("keep", [0, 3, 10, 60, 130, 150])
def test_broken_npy_files_are_read_errors(tmp_path, keep):
    np.save(tmp_path / "x.npy", np.arange(10.0))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:keep])
    with pytest.raises(TensorReadError):
        read_tensor_file(LocalSource(tmp_path), "x.npy")


def test_npy_with_a_shape_larger_than_the_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10.0))
    raw = (tmp_path / "x.npy").read_bytes().replace(b"(10,)", b"(99,)")
    (tmp_path / "x.npy").write_bytes(raw)
    with pytest.raises(TensorReadError, match="ends in the middle"):
        read_tensor_file(LocalSource(tmp_path), "x.npy")


def test_unknown_kinds_of_files_are_refused(tmp_path):
    with pytest.raises(TensorReadError, match="unknown kind"):
        read_tensor_file(LocalSource(tmp_path), "x.bin")


def test_zip64_records_are_found(tmp_path):
    torch.save(torch.arange(5.0), tmp_path / "x.pt")
    raw = (tmp_path / "x.pt").read_bytes()
    assert b"PK\x06\x06" in raw  # torch writes the large-file records always
    end = raw.rfind(b"PK\x05\x06")
    # Make the small record say "see the large one" for the directory's place.
    hidden = raw[: end + 16] + struct.pack("<I", 0xFFFFFFFF) + raw[end + 20 :]
    (tmp_path / "x.pt").write_bytes(hidden)
    assert read(tmp_path / "x.pt").tolist() == list(range(5))
