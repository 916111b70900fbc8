"""What a pack can do, whatever it is stored in.

A *pack* is what one rank recorded in one step. Comparison, views and exports see only this
class; our store (:mod:`.reader`) and the official folders (``formats.msprobe.folder``) fill it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from msprobe_nb.errors import MsProbeError
from msprobe_nb.store.index import DEBUG, TENSOR, Index, Nodes

TENSOR_MODE, STATISTICS_MODE, CHECKSUM_MODE, STRUCTURE_MODE = (
    "tensor",
    "statistics",
    "md5",
    "structure",
)

KERNEL_LEVEL = "kernel"  # level of what the kernels of a compiled graph recorded


@dataclass(frozen=True, slots=True)
class PackInfo:
    """The head of a recording.

    Attributes
    ----------
    task : str or None
        ``statistics``, ``tensor``, ``structure`` ... as recorded.
    level : str or None
        ``L0``, ``L1``, ``mix``, ``debug``, ``kernel`` ...
    framework : str or None
        ``pytorch``, ``mindspore`` or ``mindtorch``.
    """

    task: str | None
    level: str | None
    framework: str | None


class Pack(ABC):
    """One (step, rank) of a run, read lazily.

    Attributes
    ----------
    step, rank : int
    label : str
        Folder name it was recorded under, such as ``rank0`` or ``proc871``.
    where : str
        Path or URL, for messages.
    complete : bool
        Whether the recording was finished.
    """

    step: int
    rank: int
    label: str
    where: str
    complete: bool

    @property
    @abstractmethod
    def info(self) -> PackInfo:
        """Task, level and framework."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """All values, one row each."""

    @property
    @abstractmethod
    def nodes(self) -> Nodes:
        """All calls."""

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """What a reader should know: skipped entries, repeated names, where a file breaks off."""

    @abstractmethod
    def read(self, row: int) -> np.ndarray:
        """The values of a tensor in its own dtype (possibly read-only).

        Raises
        ------
        TensorReadError, UnsafeFileError
            The values are missing, damaged, or unsafe to read.
        """

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes on disk."""

    def layout_of(
        self, row: int, recorded: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype that :meth:`read` will give.

        Without further knowledge the tensor has to be read.
        """
        array = self.read(row)
        return array.shape, array.dtype

    def read_part(self, row: int, key: tuple[Any, ...]) -> np.ndarray:
        """A basic selection (integers and slices) of a tensor."""
        return self.read(row)[key]

    def read_many(self, rows: Sequence[int]) -> list[np.ndarray | MsProbeError]:
        """Several tensors; a failing one gives its error instead of an array."""
        found: list[np.ndarray | MsProbeError] = []
        for row in rows:
            try:
                found.append(self.read(row))
            except MsProbeError as error:
                found.append(error)
        return found

    @cached_property
    def mode(self) -> str:
        """What can be compared: ``tensor``, ``statistics``, ``md5`` or ``structure``."""
        task = self.info.task
        if task == "statistics":
            return CHECKSUM_MODE if any(c is not None for c in self.index.checksum) else task
        return task or ""

    @cached_property
    def is_debug(self) -> bool:
        """Whether values were saved by hand (``debug.json``) instead of recorded by hooks."""
        roles = self.index.role
        return len(roles) > 0 and bool((roles == DEBUG).all())

    @property
    def is_kernel(self) -> bool:
        """Whether the kernels of a compiled graph were recorded."""
        return self.info.level == KERNEL_LEVEL

    def forget(self) -> None:
        """Drop what was read; it is read again when needed.

        Keeps the memory of long walks over many packs bounded.
        """
        for kind in type(self).__mro__:
            for name, member in vars(kind).items():
                if isinstance(member, cached_property):
                    self.__dict__.pop(name, None)

    @property
    def tensor_rows(self) -> np.ndarray:
        """Rows that are tensors."""
        return np.flatnonzero(self.index.kind == TENSOR)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} step {self.step} rank {self.rank}: {self.where}>"
