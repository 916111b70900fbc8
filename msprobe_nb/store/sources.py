"""Where bytes come from: a local folder, a zip file or any fsspec URL.

A :class:`Source` is a read-only folder. Paths inside it are relative, use ``/`` and can never
leave it; a source can be pickled and reopens itself in the other process.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from msprobe_nb.errors import (
    MsProbeError,
    PathNotFoundError,
    TensorReadError,
    UnreachableError,
    UnsafeFileError,
    UsageError,
    reason_of,
)

MAP_BYTES = 4 << 20  # local reads of at least this size are mapped instead of copied
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_NOT_THERE = (FileNotFoundError, NotADirectoryError, KeyError)
_LAYOUT = re.compile(r"(step\d+|rank\d*|proc\d+)\Z")
_MAX_NESTING = 8
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


def safe_parts(path: str) -> list[str]:
    """The components of a relative path.

    Raises
    ------
    UnsafeFileError
        The path is absolute, climbs with ``..``, or holds a backslash.
    TensorReadError
        It holds a NUL, which no file name can have.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if "\0" in path:
        raise TensorReadError(f"the name {path!r:.80} is none that a file can have")
    if path.startswith("/") or ".." in parts or "\\" in path:
        raise UnsafeFileError(
            f"the path {path!r} leaves the folder it is recorded in",
            remedy="Do not use this recording unless you know why it points elsewhere",
        )
    return parts


class Source(ABC):
    """A read-only folder of files."""

    url: str

    @abstractmethod
    def entries(self, path: str = "") -> list[tuple[str, bool]]:
        """(name, is a folder) of everything directly inside `path`, sorted; empty if absent."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole file; raises `PathNotFoundError`."""

    @abstractmethod
    def read_range(self, path: str, start: int, count: int) -> np.ndarray:
        """`count` bytes from `start` as a uint8 array, possibly read-only.

        Raises `TensorReadError` when the file is shorter.
        """

    def read_end(self, path: str, limit: int) -> tuple[bytes, int]:
        """The last `limit` bytes (all of a smaller file) and the file's size.

        Raises `PathNotFoundError`.
        """
        size = self.size(path)
        if size is None or size <= limit:
            raw = self.read(path)
            return raw, len(raw)
        return self.read_range(path, size - limit, limit).tobytes(), size

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Bytes of the file, or None when it does not exist."""

    @abstractmethod
    def child(self, path: str) -> Source:
        """The folder `path` inside this one as a source.

        Callers give names of the layout (``step0``, ``rank0``, ``dump_tensor_data`` ...). Such a
        folder may be a link to another disk; links inside it may not leave it again.
        """

    @abstractmethod
    def parts(self) -> list[str]:
        """The names along the absolute path to this folder; its own is the last."""

    def total_size(self, path: str = "") -> int:
        """Bytes of all files below `path`."""
        return sum(self.size(file) or 0 for file in self.files(path))

    def files(self, path: str = "") -> Iterator[str]:
        """Paths of all files below `path`, sorted."""
        for name, folder in self.entries(path):
            inner = f"{path}/{name}" if path else name
            if folder:
                yield from self.files(inner)
            else:
                yield inner

    def exists(self, path: str) -> bool:
        """Whether a file of that name exists."""
        return self.size(path) is not None

    def digest(self, path: str) -> str:
        """A number in hexadecimal that changes when the file's content does."""
        return blake2b(self.read(path), digest_size=16).hexdigest()

    def where(self, path: str = "") -> str:
        """The full path or URL, for messages."""
        return f"{self.url.rstrip('/')}/{path}" if path else self.url

    def _short(self, path: str, start: int, count: int) -> TensorReadError:
        return TensorReadError(
            f"the file ends before byte {start + count}"
            if self.size(path)
            else "the file is empty",
            file=self.where(path),
            remedy="It was cut off while being written or copied; copy it again",
        )


class LocalSource(Source):
    """A folder on this machine."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.url = os.fspath(root)

    def path(self, path: str) -> str:
        """The file's local path."""
        return os.path.join(self.url, *safe_parts(path))

    def entries(self, path: str = "") -> list[tuple[str, bool]]:
        try:
            with os.scandir(self.path(path)) as entries:
                return sorted((entry.name, entry.is_dir()) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _open(self, path: str) -> int:
        """A descriptor of a regular file inside the folder; never waits, as a pipe would."""
        local = self.path(path)
        try:
            descriptor = self._descriptor(local)
        except (FileNotFoundError, NotADirectoryError):
            raise PathNotFoundError("the file does not exist", file=local) from None
        except UnsafeFileError:
            raise
        except (OSError, ValueError) as error:
            raise TensorReadError(
                f"the file cannot be opened ({reason_of(error)})", file=local
            ) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise TensorReadError("this is a folder, a pipe or a device, not a file", file=local)
        return descriptor

    def _descriptor(self, local: str) -> int:
        try:
            return os.open(local, _OPEN_FLAGS)
        except OSError:
            if not os.path.islink(local):
                raise
        return os.open(self._link_target(local), _OPEN_FLAGS)

    def _link_target(self, local: str) -> str:
        """Where a link points to, which must be inside the folder."""
        target, root = os.path.realpath(local), os.path.realpath(self.root)
        if os.path.commonpath([target, root]) != root:
            raise UnsafeFileError(
                "the file is a link that leaves its folder",
                file=local,
                remedy="Copy the file it points to into the folder",
            )
        return target

    def read(self, path: str) -> bytes:
        with os.fdopen(self._open(path), "rb") as file:
            return file.read()

    def read_end(self, path: str, limit: int) -> tuple[bytes, int]:
        descriptor = self._open(path)
        try:
            size = os.fstat(descriptor).st_size
            return os.pread(descriptor, limit, max(0, size - limit)), size
        finally:
            os.close(descriptor)

    def read_range(self, path: str, start: int, count: int) -> np.ndarray:
        descriptor = self._open(path)
        try:
            if start + count > os.fstat(descriptor).st_size:
                raise self._short(path, start, count)
            if count >= MAP_BYTES:
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    mapped = np.memmap(file, np.uint8, "r", offset=start, shape=(count,))
                    return mapped.view(np.ndarray)  # slices of a memmap cost ten times more
            buffer = np.empty(count, np.uint8)
            if os.preadv(descriptor, [buffer.data], start) != count:
                raise self._short(path, start, count)
            return buffer
        finally:
            os.close(descriptor)

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(self.path(path))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            return None
        except ValueError:  # a name that no file system can hold
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def child(self, path: str) -> LocalSource:
        return LocalSource(self.path(path))

    def parts(self) -> list[str]:
        return os.path.abspath(self.url).split(os.sep)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalSource, (self.url,)


class FsspecSource(Source):
    """A folder behind any fsspec file system: ``memory://``, ``s3://``, ``zip::...`` ..."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        import fsspec

        self.url, self.options = url, dict(options or {})
        try:
            with self._access():
                self.fs, root = fsspec.core.url_to_fs(url, **self.options)
        except _NOT_THERE:
            raise PathNotFoundError("nothing exists at this URL", file=url) from None
        self.root = root.rstrip("/")

    @contextmanager
    def _access(self, path: str = "") -> Iterator[None]:
        """The boundary behind which a server, an archive or a library can raise anything."""
        try:
            yield
        except (MsProbeError, *_NOT_THERE):
            raise
        except Exception as error:
            raise UnreachableError(
                f"this cannot be read ({reason_of(error)})",
                file=self.where(path),
                remedy="The archive is broken or was cut off; copy it again"
                if self.url.startswith("zip")
                else "Check the address, the network, and that you may read it",
            ) from error

    def _full(self, path: str) -> str:
        return "/".join(part for part in (self.root, *safe_parts(path)) if part)

    def entries(self, path: str = "") -> list[tuple[str, bool]]:
        full = self._full(path)
        try:
            with self._access(path):
                found = self.fs.ls(full, detail=True)
        except _NOT_THERE:
            return []
        return sorted(
            (entry["name"].rstrip("/").rpartition("/")[2], entry["type"] == "directory")
            for entry in found
            if entry["name"].strip("/") != full.strip("/")
        )

    def _cat(self, path: str, **part: int) -> bytes:
        try:
            with self._access(path):
                return bytes(self.fs.cat_file(self._full(path), **part))
        except _NOT_THERE:
            raise PathNotFoundError("the file does not exist", file=self.where(path)) from None

    def read(self, path: str) -> bytes:
        return self._cat(path)

    def read_range(self, path: str, start: int, count: int) -> np.ndarray:
        raw = self._cat(path, start=start, end=start + count)
        if len(raw) != count:
            raise self._short(path, start, count)
        return np.frombuffer(raw, np.uint8)

    def size(self, path: str) -> int | None:
        try:
            with self._access(path):
                info = self.fs.info(self._full(path))
        except _NOT_THERE:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def where(self, path: str = "") -> str:
        inner, sep, outer = self.url.partition("::")
        if not (path and sep):
            return super().where(path)
        folder = f"{inner}/" if "://" in inner else f"{inner}://"
        return f"{folder}{path}{sep}{outer}"

    def parts(self) -> list[str]:
        return [part for part in self.url.partition("::")[0].split("/") if part]

    def child(self, path: str) -> FsspecSource:
        head, sep, tail = self.url.partition("::")
        source = FsspecSource.__new__(FsspecSource)
        source.fs, source.options = self.fs, self.options
        source.root = self._full(path)
        # In a chained URL (zip::...) the inner path comes first.
        base = f"zip://{source.root}" if sep and head.startswith("zip") else None
        source.url = f"{base}{sep}{tail}" if base else f"{self.url.rstrip('/')}/{path}"
        return source

    def __reduce__(self) -> tuple[Any, ...]:
        return FsspecSource, (self.url, self.options)


def is_url(path: str) -> bool:
    """Whether a path is meant for fsspec."""
    return "://" in path or "::" in path


def local_path(path: str | os.PathLike[str]) -> str:
    """A path as text, with ``~`` replaced; a URL unchanged."""
    text = os.fspath(path)
    return text if is_url(text) else os.path.expanduser(text)


def check_options(path: str, options: dict[str, Any]) -> None:
    """Refuse the options of a file system where there is none; most likely they are misspelt."""
    if options:
        raise UsageError(
            f"unknown option {', '.join(map(repr, options))}",
            file=path,
            remedy="Only URLs take options for their file system",
        )


def open_source(path: str | os.PathLike[str], **options: Any) -> Source:
    """The source for a folder, a ``.zip`` file or an fsspec URL.

    Raises
    ------
    PathNotFoundError
        Nothing exists there.
    UnreachableError
        The archive is broken, or the server cannot be reached.
    UsageError
        Options are given for a local path.
    """
    text = local_path(path)
    if is_url(text):
        if "::" not in text and text.lower().endswith(".zip"):
            protocol = text.partition("://")[0]
            text, options = f"zip::{text}", {protocol: options} if options else {}
        source: Source = FsspecSource(text, options)
        if text.startswith("zip"):
            source = _enter_single_folder(source)
        if not source.entries():
            raise PathNotFoundError("nothing exists at this URL", file=text)
        return source
    check_options(text, options)
    if not os.path.exists(text):
        raise PathNotFoundError(
            "the path does not exist", file=text, remedy="Check the spelling and the mount"
        )
    if os.path.isfile(text) and text.lower().endswith(".zip"):
        return _enter_single_folder(FsspecSource(f"zip::{os.path.abspath(text)}"))
    return LocalSource(text)


def _enter_single_folder(source: Source) -> Source:
    """Step into the folders of a zip that was made from outside the run folder."""
    for _ in range(_MAX_NESTING):
        entries = source.entries()
        if len(entries) != 1 or not entries[0][1] or _LAYOUT.match(entries[0][0]):
            break
        source = source.child(entries[0][0])
    return source
