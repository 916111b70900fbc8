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

from msprobe_nb.errors import MsProbeError, NotARunError, PathNotFoundError, UnsafeFileError
from msprobe_nb.formats import open_run
from msprobe_nb.store import RunWriter
from msprobe_nb.store.sources import LocalSource, safe_parts

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
        source.child("folder")
    assert source.read("inner") == b"fine"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises((MsProbeError, OSError)):
        LocalSource(tmp_path).read(".")
