"""A run: everything that was recorded in one execution, opened and never loaded.

A :class:`Run` is a set of packs, one for each (step, rank), whatever they are stored in. What it
shows as tables and xarray objects is made when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.errors import MsProbeError, UnknownTensorError
from msprobe_nb.store.index import KINDS, ROLES, STATISTICS
from msprobe_nb.store.pack import Pack
from msprobe_nb.text import brief, size

if TYPE_CHECKING:
    import os

    import pandas as pd
    import xarray as xr
    from zarr.abc.store import Store


class Run:
    """One recorded execution.

    Parameters
    ----------
    packs : iterable of Pack
    url : str
        Path or URL it was opened from.
    kind : str
        ``run`` for our store, ``msprobe`` for a folder of the official tool, ``mindspore`` for a
        kernel dump, ``saved`` for arrays saved by hand.
    depth : str
        What the path pointed to: ``root``, ``step`` or ``pack``.
    attributes : dict
        Facts of the whole run.
    notes : sequence of str
        What the user should know about it.

    Examples
    --------
    >>> import msprobe_nb
    >>> run = msprobe_nb.open("recorded/run.zarr")                      # doctest: +SKIP
    >>> run["Functional.linear.0.forward.output.0", 0, 0]               # doctest: +SKIP
    """

    def __init__(
        self,
        packs: Iterable[Pack],
        url: str,
        *,
        kind: str = "run",
        depth: str = "root",
        attributes: dict[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.packs = {(pack.step, pack.rank): pack for pack in packs}
        self.url, self.kind, self.depth = url, kind, depth
        self.attributes = dict(attributes or {})
        self._notes = list(notes)

    # ------------------------------------------------------------ what is there

    @property
    def steps(self) -> list[int]:
        """Recorded steps, sorted."""
        return sorted({step for step, _ in self.packs})

    @property
    def ranks(self) -> list[int]:
        """Recorded ranks, sorted."""
        return sorted({rank for _, rank in self.packs})

    @property
    def complete(self) -> bool:
        """Whether every pack was finished."""
        return all(pack.complete for pack in self.packs.values())

    @cached_property
    def task(self) -> str | None:
        """The recorded task of the first pack."""
        return self._first("task")

    @cached_property
    def level(self) -> str | None:
        """The recorded level of the first pack."""
        return self._first("level")

    @cached_property
    def framework(self) -> str | None:
        """The recorded framework of the first pack."""
        return self._first("framework")

    def _first(self, fact: str) -> str | None:
        for pack in self.packs.values():
            return getattr(pack.info, fact)
        return None

    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(pack.nbytes() for pack in self.packs.values())

    @property
    def notes(self) -> list[str]:
        """What the user should know: left-out entries, unfinished or damaged packs ..."""
        found = list(self._notes)
        for pack in self.packs.values():
            try:
                found += pack.notes
            except MsProbeError as error:
                found.append(str(error))
        return found

    def __iter__(self) -> Iterator[Pack]:
        return iter(self.packs[key] for key in sorted(self.packs))

    def __len__(self) -> int:
        return len(self.packs)

    def pack(self, step: int | None = None, rank: int | None = None) -> Pack:
        """The pack of a step and rank; both may be left out when there is only one.

        Raises
        ------
        UnknownTensorError
            The run has no such pack, or more than one fits.
        """
        fitting = [
            pack
            for (s, r), pack in sorted(self.packs.items())
            if step in (None, s) and rank in (None, r)
        ]
        if len(fitting) == 1:
            return fitting[0]
        asked = f"step {'any' if step is None else step}, rank {'any' if rank is None else rank}"
        raise UnknownTensorError(
            f"{len(fitting) or 'no'} recordings fit {asked}",
            file=self.url,
            remedy=f"Recorded are steps {brief(self.steps)} and ranks {brief(self.ranks)}",
        )

    # ------------------------------------------------------------ values

    def __getitem__(self, key: str | tuple[Any, ...]) -> xr.DataArray:
        """``run[name, step, rank]``: one tensor as a lazy DataArray.

        Step and rank may be left out when only one is recorded.
        """
        from msprobe_nb.store.views import lazy_tensor

        name, step, rank = (*((key,) if isinstance(key, str) else key), None, None)[:3]
        pack = self.pack(step, rank)
        return lazy_tensor(pack, self._row(pack, name))

    def _row(self, pack: Pack, name: str) -> int:
        row = pack.index.row_of.get(name)
        if row is None:
            import difflib

            near = difflib.get_close_matches(name, pack.index.name, n=3, cutoff=0.5)
            hint = f"Nearest names: {', '.join(near)}" if near else "See run.tensors for all names"
            raise UnknownTensorError(
                f"no tensor {name!r} in step {pack.step}, rank {pack.rank}",
                file=pack.where,
                remedy=hint,
            )
        return row

    # ------------------------------------------------------------ tables

    @cached_property
    def tensors(self) -> pd.DataFrame:
        """One row for each recorded value.

        Columns: ``step rank tensor node slot role kind type dtype shape max min mean norm
        requires_grad checksum value has_data problem``. `value` is what an argument was.
        """
        import pandas as pd

        frames = [_tensor_frame(pack) for pack in self]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row for each recorded call.

        Columns: ``step rank node kind phase call parent micro_step recompute recorded stack``.
        """
        import pandas as pd

        frames = [_node_frame(pack) for pack in self]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    # ------------------------------------------------------------ xarray

    @cached_property
    def dataset(self) -> xr.Dataset:
        """Statistics of all tensors as a Dataset with dims (step, rank, tensor).

        Variables ``max min mean norm`` (float64, NaN where a tensor was not recorded) are read
        when they are used.
        """
        from msprobe_nb.store.views import statistics_dataset

        return statistics_dataset(self)

    @cached_property
    def tree(self) -> xr.DataTree:
        """The index of every pack as a DataTree with nodes ``/step<N>/rank<R>``."""
        from msprobe_nb.store.views import index_tree

        return index_tree(self)

    def sel(
        self,
        *,
        step: int | Sequence[int] | None = None,
        rank: int | Sequence[int] | None = None,
        tensor: str | Sequence[str] | None = None,
    ) -> xr.Dataset:
        """Part of :attr:`dataset`.

        Parameters
        ----------
        step, rank : int or sequence of int, optional
        tensor : str or sequence of str, optional
            A full name, several, or a pattern with ``*`` and ``?``.

        Raises
        ------
        UnknownTensorError
            Something that was not recorded.
        """
        from msprobe_nb.store.views import select

        return select(self.dataset, self.url, step=step, rank=rank, tensor=tensor)

    def store(self) -> Store:
        """A read-only Zarr store in which every tensor is an ordinary Zarr array.

        It stands at ``step<N>/rank<R>/<tensor name>``, for any tool that speaks Zarr.
        """
        from msprobe_nb.store.virtual import TensorStore

        return TensorStore(self)

    def compact(self, path: str | os.PathLike[str], *, level: int = 1) -> Run:
        """Write a compressed copy (zstd) of a run store and open it.

        Raises
        ------
        UsageError
            The run is no complete local run store, or `path` exists.
        """
        from msprobe_nb.store.compact import compact

        return compact(self, path, level)

    # ------------------------------------------------------------ display

    def summary(self) -> str:
        """A few lines of text: what, how much, from where."""
        kind = {"run": "run store", "mindspore": "kernel dump", "saved": "saved arrays"}.get(
            self.kind, "official recording"
        )
        state = "complete" if self.complete else "unfinished"
        first = ", ".join(
            str(fact) for fact in (self.framework, self.task, self.level) if fact is not None
        )
        lines = [
            f"{kind} ({state}): {first}",
            f"steps {brief(self.steps)}, ranks {brief(self.ranks)}, {size(self.nbytes())}",
            f"at {self.url}",
        ]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def __repr__(self) -> str:
        return f"<Run {self.url}: steps {brief(self.steps)}, ranks {brief(self.ranks)}>"

    def _repr_html_(self) -> str:
        from msprobe_nb.views.html import run_html

        return run_html(self)


def _tensor_frame(pack: Pack) -> pd.DataFrame:
    import pandas as pd

    index = pack.index
    node_names = np.array(pack.nodes.name, object)
    values = np.full(len(index), None, object)
    for row, value in index.value.items():
        values[row] = value
    problems = np.full(len(index), "", object)
    for row, text in index.problem.items():
        problems[row] = text
    nodes = node_names[index.node] if len(index) else np.empty(0, object)
    columns: dict[str, Any] = {
        "step": pack.step,
        "rank": pack.rank,
        "tensor": index.name,
        "node": nodes,
        "slot": [name[len(node) + 1 :] for name, node in zip(index.name, nodes, strict=True)],
        "role": np.array(ROLES, object)[index.role],
        "kind": np.array(KINDS, object)[index.kind],
        "type": index.type.expand(),
        "dtype": index.dtype.expand(),
        "shape": index.shape.expand(),
    }
    columns |= {name: index.statistics.number[:, at] for at, name in enumerate(STATISTICS)}
    columns |= {
        "requires_grad": np.array([None, False, True], object)[
            np.where(index.requires_grad < 0, 0, index.requires_grad + 1)
        ],
        "checksum": np.array(index.checksum, object),
        "value": values,
        "has_data": index.has_data,
        "problem": problems,
    }
    return pd.DataFrame(columns)


def _node_frame(pack: Pack) -> pd.DataFrame:
    import pandas as pd

    nodes = pack.nodes
    return pd.DataFrame(
        {
            "step": pack.step,
            "rank": pack.rank,
            "node": nodes.name,
            "kind": [parsed.kind for parsed in nodes.parsed],
            "phase": [parsed.phase for parsed in nodes.parsed],
            "call": [parsed.call for parsed in nodes.parsed],
            "parent": nodes.parent.expand(),
            "micro_step": nodes.micro_step,
            "recompute": np.array([None, False, True], object)[nodes.recompute + 1],
            "recorded": nodes.recorded,
            "stack": ["\n".join(nodes.stack_of(row)) for row in range(len(nodes))],
        }
    )
