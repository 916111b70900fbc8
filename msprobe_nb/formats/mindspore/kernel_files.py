"""The files of a kernel dump of a MindSpore graph: what their names and tables say.

::

    rank_<r>/<net>/<graph>/<iteration>/<Type>.<op>.<task>.<stream>.<time>.<io>.<i>.<format>.<dtype>.npy
    rank_<r>/<net>/<graph>/<iteration>/statistic.csv

Every value has a time of its own. A value that occurs several times belongs to as many calls.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from msprobe_nb.errors import FormatError, MsProbeError
from msprobe_nb.formats.array_facts import array_facts
from msprobe_nb.formats.tensor_file import read_npy
from msprobe_nb.store.sources import Source

STATISTIC, MAPPING = "statistic.csv", "mapping.csv"
_FILE = re.compile(
    r"([^.]+)\.(.+)\.([^.]+)\.([^.]+)\.(\d{10,})(?:\.\d+)*\.(input|output)((?:\.\d+)*)"
    r"\.([^.]+)\.([^.]+)\.npy\Z"
)
_HEAD = ["optype", "opname", "taskid", "streamid", "timestamp", "io", "slot"]
_NUMBERS = ("Max Value", "Min Value", "Avg Value", "L2Norm Value")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "": None}


@dataclass(frozen=True, slots=True)
class KernelValue:
    """One recorded value.

    Attributes
    ----------
    op_type, op, task : str
    is_output : bool
    slot : str
        Number of the input or output; empty if it has none.
    time : int
    file : str
        Path of its file (or of the table it stands in), relative to the recording.
    call : int
        Number of the call among those of the same operator and task.
    dtype : str
        As recorded.
    shape : tuple of int, or None
    statistics : tuple
        max, min, mean, norm as recorded; empty when they have to be computed from the data.
    problem : str
        What is wrong with it.
    """

    op_type: str
    op: str
    task: str
    is_output: bool
    slot: str
    time: int
    file: str
    call: int = 0
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    statistics: tuple[Any, ...] = ()
    problem: str = ""

    @property
    def key(self) -> str:
        """``<op>.<task>.<input or output>.<slot>``, the name of the value in result files."""
        role = "output" if self.is_output else "input"
        return ".".join(part for part in (self.op, self.task, role, self.slot) if part)


def is_kernel_folder(source: Source, files: Iterable[str]) -> bool:
    """Whether a folder with these files holds kernel data."""
    names = set(files)
    if any(_FILE.match(name) for name in names):
        return True
    if MAPPING in names and any(name.endswith(".npy") for name in names):
        return True
    return STATISTIC in names and _is_head(_first_row(source, STATISTIC))


def has_tensors(files: Iterable[str]) -> bool:
    """Whether a kernel folder holds tensors; a table beside them is then ignored."""
    return any(name.endswith(".npy") for name in files)


def _first_row(source: Source, path: str) -> list[str]:
    size = source.size(path) or 0
    text = source.read_range(path, 0, min(size, 4096)).tobytes().decode("utf-8", "replace")
    return next(csv.reader(io.StringIO(text, newline="")), [])


def _is_head(row: list[str]) -> bool:
    return [title.replace(" ", "").lower() for title in row[: len(_HEAD)]] == _HEAD


def read_tensor_folder(source: Source, folder: str) -> tuple[list[KernelValue], list[str]]:
    """The values of a folder of ``.npy`` files, and the files whose names say nothing."""
    entries = [name for name, is_folder in source.entries(folder) if not is_folder]
    long_names = _mapping(source, folder) if MAPPING in entries else {}
    values, unknown = [], []
    for name in entries:
        if not name.endswith(".npy"):
            continue
        match = _FILE.match(long_names.get(name, name))
        if match is None:
            unknown.append(name)
            continue
        op_type, op, task, _, time, role, slot, _, dtype = match.groups()
        path = f"{folder}/{name}" if folder else name
        is_output, slot = role == "output", slot.lstrip(".")
        values.append(KernelValue(op_type, op, task, is_output, slot, int(time), path, dtype=dtype))
    return values, unknown


def _mapping(source: Source, folder: str) -> dict[str, str]:
    """Short file name -> the long one that the file system could not hold."""
    rows = _rows(source, f"{folder}/{MAPPING}" if folder else MAPPING)
    return {row[0].strip(): row[1].strip() for row in rows[1:] if len(row) > 1}


def _rows(source: Source, path: str) -> list[list[str]]:
    try:
        text = source.read(path).decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"no readable csv ({error!s:.80})", file=source.where(path)) from None


def read_table(source: Source, folder: str) -> list[KernelValue]:
    """The values of a ``statistic.csv``.

    Raises
    ------
    FormatError
        A row is too short, or its time is no number.
    """
    path = f"{folder}/{STATISTIC}" if folder else STATISTIC
    head, *rows = _rows(source, path) or [[]]
    at = {title.strip(): place for place, title in enumerate(head)}
    values = []
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        if len(row) < 13 or not row[4].strip().isdigit():
            raise FormatError(
                f"row {number} is incomplete or damaged",
                file=source.where(path),
                remedy="Copy the file again from where it was recorded",
            )

        def cell(title: str, row: list[str] = row) -> str:
            place = at.get(title)
            return row[place].strip() if place is not None and place < len(row) else ""

        values.append(
            KernelValue(
                *(row[0], row[1], row[2], row[5].strip() == "output", row[6].strip()),
                int(row[4]),
                path,
                dtype=cell("Data Type"),
                shape=_shape(cell("Shape")),
                statistics=tuple(_number(cell(title)) for title in _NUMBERS),
            )
        )
    return values


def _shape(text: str) -> tuple[int, ...] | None:
    inner = text.strip("()[] ")
    parts = [part.strip() for part in inner.split(",") if part.strip()]
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def _number(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text


def number_calls(values: list[KernelValue]) -> list[KernelValue]:
    """The values call by call in order of time, inputs before outputs.

    The k-th time a value is recorded it belongs to the k-th call of its operator.
    """
    seen: dict[tuple[str, str, bool, str], int] = {}
    numbered: list[KernelValue] = []
    start: dict[tuple[str, str, int], tuple[int, int]] = {}
    for value in sorted(values, key=lambda value: value.time):
        key = (value.op, value.task, value.is_output, value.slot)
        call = seen.get(key, 0)
        seen[key] = call + 1
        numbered.append(replace(value, call=call))
        start.setdefault((value.op, value.task, call), (value.time, len(numbered)))
    return sorted(
        numbered,
        key=lambda v: (start[v.op, v.task, v.call], v.is_output, len(v.slot), v.slot),
    )


def with_data(source: Source, value: KernelValue) -> KernelValue:
    """A value of a tensor folder with the facts that only its file tells."""
    try:
        facts = array_facts(read_npy(source, value.file))
    except MsProbeError as error:
        return replace(value, problem=str(error))
    return replace(value, **facts._asdict())
