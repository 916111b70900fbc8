"""Kernel dumps of MindSpore graphs as packs, so that they open and compare like every recording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from msgspec import UNSET

from msprobe_nb.errors import TensorReadError
from msprobe_nb.formats.mindspore.kernel_files import (
    KernelValue,
    has_tensors,
    is_kernel_folder,
    number_calls,
    read_table,
    read_tensor_folder,
    with_data,
)
from msprobe_nb.formats.tensor_file import read_npy
from msprobe_nb.names import FORWARD, NodeName
from msprobe_nb.store.index import INPUT, OUTPUT, TENSOR, Coded, Index, Nodes, Values
from msprobe_nb.store.pack import KERNEL_LEVEL, STATISTICS_MODE, TENSOR_MODE, Pack, PackInfo
from msprobe_nb.store.sources import Source

_RANK = re.compile(r"rank_(\d+)\Z")
_MAX_DEPTH = 7
_MAX_FOLDERS = 100_000  # whatever else a path may point to is not searched for ever
# The names of floating types in other MindSpore recordings; of these, unlike ones may be compared.
_FLOATS = {name.lower(): name for name in ("Float16", "Float32", "Float64", "BFloat16")}


class KernelPack(Pack):
    """What the kernels of one rank saw in one iteration.

    Parameters
    ----------
    source : Source
        Folder that was opened.
    step, rank : int
    folders : list of str
        The folders of all graphs, relative to `source`.
    task : str
        ``tensor`` or ``statistics``.
    """

    complete = True

    def __init__(self, source: Source, step: int, rank: int, folders: list[str], task: str) -> None:
        self.source, self.step, self.rank, self.folders = source, step, rank, folders
        self.task = task
        self.label = f"rank_{rank}"
        self.where = source.url

    @property
    def info(self) -> PackInfo:
        return PackInfo(self.task, KERNEL_LEVEL, "mindspore")

    @cached_property
    def _read(self) -> tuple[list[KernelValue], list[str]]:
        values: list[KernelValue] = []
        unknown: list[str] = []
        for folder in self.folders:
            if self.task == TENSOR_MODE:
                found, odd = read_tensor_folder(self.source, folder)
                values += found
                unknown += odd
            else:
                values += read_table(self.source, folder)
        return number_calls(values), unknown

    @cached_property
    def notes(self) -> list[str]:
        unknown = self._read[1]
        if not unknown:
            return []
        shown = ", ".join(unknown[:5]) + (" ..." if len(unknown) > 5 else "")
        return [f"{self.where}: {len(unknown)} files are named like no kernel data ({shown})"]

    @cached_property
    def _calls(self) -> dict[str, KernelValue]:
        """Name of each call -> its first value."""
        found: dict[str, KernelValue] = {}
        for value in self._read[0]:
            found.setdefault(_call_name(value), value)
        return found

    @cached_property
    def nodes(self) -> Nodes:
        calls = self._calls
        parsed = [
            NodeName(name, value.op, FORWARD, str(value.call), "api")
            for name, value in calls.items()
        ]
        return Nodes.listed(list(calls), parsed)

    @cached_property
    def index(self) -> Index:
        values = self._read[0]
        if self.task == TENSOR_MODE:
            values = [with_data(self.source, value) for value in values]
        count = len(values)
        row_of = {name: at for at, name in enumerate(self._calls)}
        table = [Values.of([_statistic(value, at) for value in values]) for at in range(4)]
        return Index(
            name=[_name(value) for value in values],
            node=np.array([row_of[_call_name(value)] for value in values], np.int32),
            role=np.array([OUTPUT if v.is_output else INPUT for v in values], np.uint8),
            kind=np.full(count, TENSOR, np.uint8),
            type=Coded.of(["mindspore.Tensor"] * count),
            dtype=Coded.of([_FLOATS.get(v.dtype.lower(), v.dtype) for v in values]),
            shape=Coded.of([value.shape for value in values]),
            statistics=Values.table(table),
            requires_grad=np.full(count, -1, np.int8),
            checksum=[None] * count,
            data_name=[None] * count,
            has_data=np.full(count, self.task == TENSOR_MODE),
            detail={
                row: {"file": value.file, "key": value.key, "op_type": value.op_type}
                for row, value in enumerate(values)
            },
            problem={row: value.problem for row, value in enumerate(values) if value.problem},
        )

    def _load(self, row: int) -> np.ndarray:
        if self.task != TENSOR_MODE:
            raise TensorReadError(
                "the tensor's values were not recorded",
                file=self.where,
                key=self.index.name[row],
                remedy="Record with task 'tensor'",
            )
        return read_npy(self.source, self._read[0][row].file)

    def fingerprint(self) -> list[Any]:
        files = {value.file for value in self._read[0]}
        return [[file, self.source.size(file)] for file in sorted(files)]

    def nbytes(self) -> int:
        return sum(self.source.total_size(folder) for folder in self.folders)


def _call_name(value: KernelValue) -> str:
    """``<op>.<task>``, and the number of the call from the second on."""
    return f"{value.op}.{value.task}" + (f".{value.call}" if value.call else "")


def _name(value: KernelValue) -> str:
    slot = value.key[len(f"{value.op}.{value.task}") :]
    return _call_name(value) + slot


def _statistic(value: KernelValue, at: int) -> Any:
    return value.statistics[at] if value.statistics else UNSET


def find_kernel_packs(source: Source) -> tuple[list[Pack], str] | None:
    """The kernel recordings below a folder and what it is (``root`` or ``pack``); None if none."""
    found: dict[tuple[int, int], list[tuple[str, bool]]] = {}
    depth = "root"
    for folder, files in islice(_folders(source, "", 0), _MAX_FOLDERS):
        place = _place(source, folder)
        if place is None or not is_kernel_folder(source.child(folder) if folder else source, files):
            continue
        if not folder:
            depth = "pack"
        found.setdefault(place, []).append((folder, has_tensors(files)))
    if not found:
        return None
    packs: list[Pack] = []
    for (step, rank), folders in sorted(found.items()):
        tensors = any(tensor for _, tensor in folders)
        chosen = [folder for folder, tensor in folders if tensor == tensors]
        task = TENSOR_MODE if tensors else STATISTICS_MODE
        packs.append(KernelPack(source, step, rank, chosen, task))
    return packs, depth


def _folders(source: Source, folder: str, depth: int) -> Iterator[tuple[str, list[str]]]:
    """The lowest folders below one, with their files."""
    entries = source.entries(folder)
    inner = [name for name, is_folder in entries if is_folder and not name.startswith(".")]
    if not inner:
        yield folder, [name for name, is_folder in entries if not is_folder]
    elif depth < _MAX_DEPTH:
        for name in inner:
            yield from _folders(source, f"{folder}/{name}" if folder else name, depth + 1)


def _place(source: Source, folder: str) -> tuple[int, int] | None:
    """(step, rank) from the names of a folder and of those around it."""
    parts = [part for part in f"{source.url}/{folder}".replace("\\", "/").split("/") if part]
    if not parts[-1:] or not parts[-1].isdigit():
        return None
    step = int(parts[-1])
    for part in reversed(parts[:-1]):
        if match := _RANK.match(part):
            return step, int(match[1])
    for part in (
        *parts[-4:-3],
        *parts[-3:-2],
    ):  # <rank>/<net>/<graph>/<step> or <rank>/<net>/<step>
        if part.isdigit():
            return step, int(part)
    return None
