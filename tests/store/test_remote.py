"""Runs in a zip file, in memory, and on an S3 server."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import fsspec
import numpy as np
import pytest
from support import DUMPS, same_bits

from msprobe_nb.errors import (
    DamagedStoreError,
    FormatError,
    MsProbeError,
    NotARunError,
    PathNotFoundError,
    UnreachableError,
    UnsafeFileError,
    UsageError,
)
from msprobe_nb.formats import open_run
from msprobe_nb.store import RunWriter
from msprobe_nb.store.sources import LocalSource, safe_parts

PACK = DUMPS / "edge_tensor_L1/target/step0/rank0"
TENSOR = np.arange(300, dtype=np.float32).reshape(3, 100)


@pytest.fixture
def local(tmp_path) -> Path:
    with RunWriter(tmp_path / "run.zarr", {"framework": "pytorch"}).pack(0, 0) as pack:
        node = pack.add_node("Torch.x.0.forward")
        pack.add(node, "output.0", TENSOR)
        pack.add(node, "output.1", np.ones(7, np.int8))
    return tmp_path / "run.zarr"


def check(run) -> None:
    assert same_bits(run["Torch.x.0.forward.output.0"].values, TENSOR)
    assert same_bits(run["Torch.x.0.forward.output.0"][1:2].values, TENSOR[1:2])
    assert same_bits(run["Torch.x.0.forward.output.1"].values, np.ones(7, np.int8))


def copy_to(folder: Path, url: str, **options) -> None:
    fs, root = fsspec.core.url_to_fs(url, **options)
    for path in folder.rglob("*"):
        if path.is_file():
            fs.pipe(f"{root}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def test_memory_file_system(local):
    copy_to(local, "memory://bucket/run.zarr")
    check(open_run("memory://bucket/run.zarr"))


def test_official_folder_in_memory():
    copy_to(DUMPS / "edge_tensor_L1/target", "memory://bucket/dump")
    run = open_run("memory://bucket/dump")
    ours = open_run(DUMPS / "edge_tensor_L1/target")
    row = int(np.flatnonzero(ours.pack().index.has_data)[0])
    assert same_bits(run.pack().read(row), ours.pack().read(row))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("outside", [True, False])
def test_zip_files(local, tmp_path, compression, outside):
    target = tmp_path / "run.zip"
    base = local.parent if outside else local
    with zipfile.ZipFile(target, "w", compression) as archive:
        for path in local.rglob("*"):
            archive.write(path, path.relative_to(base))
    check(open_run(target))
    check(open_run(f"zip::{target}"))


def test_zip_of_an_official_folder(tmp_path):
    folder = DUMPS / "edge_tensor_L1/target"
    shutil.make_archive(str(tmp_path / "dump"), "zip", folder)
    ours, zipped = open_run(folder).pack(), open_run(tmp_path / "dump.zip").pack()
    assert zipped.index.name == ours.index.name
    row = int(np.flatnonzero(ours.index.has_data)[0])
    assert same_bits(zipped.read(row), ours.read(row))


def test_s3_server(local, monkeypatch):
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for key in list(os.environ):
        if key.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(key)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="recordings")
        options = {"endpoint_url": endpoint}
        copy_to(local, "s3://recordings/run.zarr", **options)
        check(open_run("s3://recordings/run.zarr", **options))
    finally:
        server.stop()


@pytest.mark.parametrize("where", ["/no/such/run", "memory://no/such/run", "zip::/no/such.zip"])
def test_what_is_not_there_is_said_to_be_missing(where):
    with pytest.raises((PathNotFoundError, FileNotFoundError)):
        open_run(where)


def test_an_empty_folder_is_no_run(tmp_path):
    with pytest.raises(NotARunError, match="neither a run store nor a dump folder"):
        open_run(tmp_path)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a\\b"])
def test_paths_cannot_leave_a_source(path):
    with pytest.raises(UnsafeFileError, match="leaves the folder"):
        safe_parts(path)


def test_links_out_of_a_recording_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/link").symlink_to(tmp_path / "secret")
    (tmp_path / "run/folder").symlink_to(tmp_path)
    (tmp_path / "run/inner").symlink_to(tmp_path / "run/real")
    (tmp_path / "run/real").write_text("fine")
    source = LocalSource(tmp_path / "run")
    for read in (source.read, lambda path: source.read_range(path, 0, 1)):
        with pytest.raises(UnsafeFileError, match="link that leaves"):
            read("link")
    with pytest.raises(UnsafeFileError, match="link that leaves"):
        LocalSource(tmp_path / "run").child("folder").child("run").read("link")
    assert source.read("inner") == b"fine"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises((MsProbeError, OSError)):
        LocalSource(tmp_path).read(".")


def test_folders_of_the_layout_may_be_links_to_another_disk(tmp_path):
    away = tmp_path / "disk"
    shutil.copytree(PACK, away / "pack")
    shutil.move(away / "pack/dump_tensor_data", away / "data")
    (away / "pack/dump_tensor_data").symlink_to(away / "data")
    (tmp_path / "dump/step0").mkdir(parents=True)
    (tmp_path / "dump/step0/rank0").symlink_to(away / "pack")
    pack = open_run(tmp_path / "dump").pack()
    rows = np.flatnonzero(pack.index.has_data).tolist()
    found = pack.read_many(rows)
    ours = open_run(PACK).pack().read_many(rows)
    assert [isinstance(a, np.ndarray) for a in found] == [isinstance(a, np.ndarray) for a in ours]
    assert any(isinstance(a, np.ndarray) for a in found)
    name = pack.index.data_name[rows[0]]
    (away / "data" / name).unlink()
    (away / "data" / name).symlink_to("/etc/hostname")
    assert isinstance(pack.read_many(rows)[0], UnsafeFileError)


def zipped(folder: Path, target: Path, prefix: str) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*"):
            archive.write(path, prefix + path.relative_to(folder).as_posix())
    return target


@pytest.mark.parametrize("prefix", ["", "run/", "stepwise/", "rank_run/", "a/b/", "steps/x/y/"])
def test_zips_may_have_any_folders_around_the_run(local, tmp_path, prefix):
    check(open_run(zipped(local, tmp_path / "r.ZIP", prefix)))
    fsspec.filesystem("memory").pipe("/r.zip", (tmp_path / "r.ZIP").read_bytes())
    check(open_run("memory://r.zip"))


def test_a_zip_of_steps_is_not_stepped_into(tmp_path):
    folder = tmp_path / "dump/step3/rank5"
    shutil.copytree(PACK, folder)
    run = open_run(zipped(tmp_path / "dump", tmp_path / "d.zip", ""))
    assert set(run.packs) == {(3, 5)}
    assert run.pack().where == f"zip://step3/rank5/dump.json::{tmp_path / 'd.zip'}"


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04junk", b"x" * 1000, None])
def test_a_broken_zip_is_named(local, tmp_path, raw):
    target = zipped(local, tmp_path / "r.zip", "")
    target.write_bytes(target.read_bytes()[:-100] if raw is None else raw)
    with pytest.raises(UnreachableError, match=r"copy it again") as caught:
        open_run(target)
    assert "r.zip" in caught.value.file


def test_a_broken_member_fails_only_its_own_tensors(tmp_path):
    target = zipped(PACK, tmp_path / "r.zip", "")
    pack = open_run(target).pack()
    rows = np.flatnonzero(pack.index.has_data).tolist()
    before = pack.read_many(rows)
    victim = next(at for at, array in enumerate(before) if isinstance(array, np.ndarray))
    with zipfile.ZipFile(target) as archive:
        info = archive.getinfo(f"dump_tensor_data/{pack.index.data_name[rows[victim]]}")
    raw = bytearray(target.read_bytes())
    start = info.header_offset + 30 + len(info.filename) + 2
    raw[start : start + 20] = b"\xff" * 20
    target.write_bytes(raw)
    after = open_run(target).pack().read_many(rows)
    assert isinstance(after[victim], MsProbeError)
    good = [isinstance(array, np.ndarray) for array in after]
    assert sum(good) >= sum(isinstance(array, np.ndarray) for array in before) - 2


@pytest.mark.parametrize("url", ["nosuch://x/y", "http://127.0.0.1:9/x", "zip::nosuch://x.zip"])
def test_urls_that_cannot_be_reached_are_our_errors(url):
    with pytest.raises(MsProbeError) as caught:
        open_run(url)
    assert caught.value.remedy or isinstance(caught.value, PathNotFoundError)


def test_one_file_behind_a_url():
    copy_to(PACK, "memory://bucket/step3/rank5")
    assert set(open_run("memory://bucket/step3/rank5/dump.json").packs) == {(3, 5)}


@pytest.mark.parametrize("open_what", ["folder", "file", "zip", "run"])
def test_misspelt_options_are_refused(local, tmp_path, open_what):
    path = {
        "folder": PACK,
        "file": DUMPS / "edge_tensor_L1/target/dump.json",
        "zip": zipped(local, tmp_path / "r.zip", ""),
        "run": open_run(local),
    }[open_what]
    with pytest.raises(UsageError, match="unknown option 'salvag'"):
        open_run(path, salvag=True)


@pytest.mark.parametrize("version", ['"2"', "null", "true", "[1]", "1.5"])
def test_a_version_that_is_no_number_is_damage(local, version):
    for place in ("zarr.json", "step0/rank0/zarr.json"):
        file = local / place
        text = file.read_text()
        file.write_text(text.replace('"version":1', f'"version":{version}'))
        with pytest.raises(DamagedStoreError, match="format version"):
            _ = open_run(local).pack().attributes
        file.write_text(text.replace('"version":1', '"version":2'))
        with pytest.raises(FormatError, match="Upgrade"):
            _ = open_run(local).pack().attributes
        file.write_text(text)
