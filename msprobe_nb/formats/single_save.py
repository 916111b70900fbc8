"""Arrays that a training script saved under tags, as older versions of the official tool do.

::

    data/<tag>/step<i>/rank<j>/<tag>.npy                   also <tag>_<id>.npy
    data/<tag>/step<i>/rank<j>/micro_step<k>/<tag>.npy     also <tag>.<id>.npy

They open as a run whose values are named like those of ``debug.json``: ``<tag>.<k>.debug``, and
``.<id>`` behind it from the second array on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET

from msprobe_nb import names
from msprobe_nb.errors import MsProbeError
from msprobe_nb.formats.array_facts import ArrayFacts, array_facts
from msprobe_nb.formats.tensor_file import read_npy
from msprobe_nb.store.index import DEBUG, TENSOR, Coded, Index, Nodes, Values
from msprobe_nb.store.pack import TENSOR_MODE, Pack, PackInfo
from msprobe_nb.store.sources import Source

_FOLDER = {kind: re.compile(rf"{kind}(\d+)\Z") for kind in ("step", "rank", "micro_step")}
_ID_OF_MICRO_STEP = re.compile(r".*\.(\d+)\.npy\Z")
_ID_OF_RANK = re.compile(r"\w{1,100}_(\d{1,100})\.npy\Z")
_ROOT = "data"


class SavedKey(NamedTuple):
    """What identifies a saved array."""

    tag: str
    step: int
    rank: int
    micro_step: int
    id: int


@dataclass(frozen=True, slots=True)
class SavedArrays:
    """The arrays below a folder.

    Attributes
    ----------
    source : Source
        The folder that holds the tags.
    files : dict of SavedKey to str
        Paths relative to `source`, sorted by key.
    notes : list of str
        Files that are not used.
    """

    source: Source
    files: dict[SavedKey, str]
    notes: list[str] = field(default_factory=list)

    def packs(self) -> list[Pack]:
        """One pack for each step and rank."""
        found: dict[tuple[int, int], dict[SavedKey, str]] = {}
        for key, file in self.files.items():
            found.setdefault((key.step, key.rank), {})[key] = file
        return [SavedPack(self.source, *place, files) for place, files in sorted(found.items())]

    def read(self, key: SavedKey) -> np.ndarray:
        """One array.

        Raises
        ------
        TensorReadError, UnsafeFileError
            It cannot be read.
        """
        return read_npy(self.source, self.files[key])


def find_saved(source: Source) -> SavedArrays | None:
    """The saved arrays in a folder that holds ``data``, or in ``data``; None without any."""
    for folder in (source.child(_ROOT) if _is_folder(source, _ROOT) else None, source):
        if folder is None:
            continue
        files: dict[SavedKey, str] = {}
        notes = []
        for key, path in sorted(_walk(folder)):
            if key in files:
                notes.append(
                    f"{folder.where(path)}: the same tag, step, rank and number as another"
                )
            files.setdefault(key, path)
        if files:
            return SavedArrays(folder, files, notes)
    return None


def _is_folder(source: Source, name: str) -> bool:
    return (name, True) in source.entries()


def _numbered(source: Source, folder: str, kind: str) -> Iterator[tuple[int, str]]:
    for name, is_folder in source.entries(folder):
        match = _FOLDER[kind].match(name)
        if is_folder and match:
            yield int(match[1]), f"{folder}/{name}"


def _walk(source: Source) -> Iterator[tuple[SavedKey, str]]:
    tags = [name for name, is_folder in source.entries() if is_folder and name[0] != "."]
    for tag in tags:
        for step, in_step in _numbered(source, tag, "step"):
            for rank, in_rank in _numbered(source, in_step, "rank"):
                for number, path in _arrays(source, in_rank, _ID_OF_RANK):
                    yield SavedKey(tag, step, rank, 0, number), path
                for micro, inside in _numbered(source, in_rank, "micro_step"):
                    for number, path in _arrays(source, inside, _ID_OF_MICRO_STEP):
                        yield SavedKey(tag, step, rank, micro, number), path


def _arrays(source: Source, folder: str, numbered: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for name, is_folder in source.entries(folder):
        if not is_folder and name.endswith(".npy"):
            match = numbered.match(name)
            yield int(match[1]) if match else 0, f"{folder}/{name}"


class SavedPack(Pack):
    """The arrays that one rank saved in one step.

    Which framework made them is not recorded; they are taken as those of PyTorch.
    """

    complete = True

    def __init__(self, source: Source, step: int, rank: int, files: dict[SavedKey, str]) -> None:
        self.source, self.step, self.rank, self.files = source, step, rank, files
        self.label, self.where = f"rank{rank}", source.url

    @property
    def info(self) -> PackInfo:
        return PackInfo(TENSOR_MODE, "debug", "pytorch")

    @property
    def notes(self) -> list[str]:
        return []

    @cached_property
    def _calls(self) -> dict[str, int]:
        found = dict.fromkeys(_call_name(key) for key in self.files)
        return {name: at for at, name in enumerate(found)}

    @cached_property
    def nodes(self) -> Nodes:
        calls = list(self._calls)
        micro_steps = [int(name.split(".")[-2]) for name in calls]
        return Nodes.listed(calls, [names.parse(name) for name in calls], micro_steps)

    @cached_property
    def index(self) -> Index:
        facts: list[ArrayFacts] = []
        problem: dict[int, str] = {}
        for row, file in enumerate(self.files.values()):
            try:
                facts.append(array_facts(read_npy(self.source, file)))
            except MsProbeError as error:
                facts.append(ArrayFacts("", (), ()))
                problem[row] = str(error)
        count = len(facts)
        shapes: list[Any] = [None if row in problem else f.shape for row, f in enumerate(facts)]
        return Index(
            name=[_name(key) for key in self.files],
            node=np.array([self._calls[_call_name(key)] for key in self.files], np.int32),
            role=np.full(count, DEBUG, np.uint8),
            kind=np.full(count, TENSOR, np.uint8),
            type=Coded.of(["numpy.ndarray"] * count),
            dtype=Coded.of([f"torch.{f.dtype}" if f.dtype else "" for f in facts]),
            shape=Coded.of(shapes),
            statistics=Values.table(
                [
                    Values.of([f.statistics[at] if f.statistics else UNSET for f in facts])
                    for at in range(4)
                ]
            ),
            requires_grad=np.full(count, -1, np.int8),
            checksum=[None] * count,
            data_name=[None] * count,
            has_data=np.ones(count, bool),
            detail={row: {"file": file} for row, file in enumerate(self.files.values())},
            problem=problem,
        )

    def _load(self, row: int) -> np.ndarray:
        return read_npy(self.source, list(self.files.values())[row])

    def fingerprint(self) -> list[Any]:
        return [[file, self.source.size(file)] for file in sorted(self.files.values())]

    def nbytes(self) -> int:
        return sum(self.source.size(file) or 0 for file in self.files.values())


def _call_name(key: SavedKey) -> str:
    return f"{key.tag}.{key.micro_step}.{names.DEBUG}"


def _name(key: SavedKey) -> str:
    return _call_name(key) + (f".{key.id}" if key.id else "")
