"""The xarray views of a run. Nothing is read before it is looked at."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from xarray.backends.common import BackendArray
from xarray.core import indexing

from msprobe_nb.errors import UnknownTensorError
from msprobe_nb.store.index import KINDS, ROLES, STATISTICS
from msprobe_nb.store.pack import Pack

if TYPE_CHECKING:
    from msprobe_nb.store.run import Run


class TensorArray(BackendArray):
    """One tensor of a pack; its bytes are read when it is indexed."""

    def __init__(self, pack: Pack, row: int) -> None:
        self.pack, self.row = pack, row
        shape = pack.index.shape[row]
        self.shape, self.dtype = pack.layout_of(row, shape)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(self.pack.read_part(self.row, key))


def lazy_tensor(pack: Pack, row: int) -> xr.DataArray:
    """A tensor as a lazy DataArray.

    Its dims are ``axis_0``, ``axis_1`` ...; what was recorded about it are its attributes.
    """
    index = pack.index
    array = TensorArray(pack, row)
    dims = [f"axis_{axis}" for axis in range(len(array.shape))]
    attributes: dict[str, Any] = {
        "dtype": index.dtype[row],
        "role": ROLES[index.role[row]],
        "node": pack.nodes.name[index.node[row]],
    }
    attributes |= {
        name: value
        for at, name in enumerate(STATISTICS)
        if (value := index.statistics.item(row, at)) is not None
    }
    attributes |= index.detail.get(row, {})
    variable = xr.Variable(dims, indexing.LazilyIndexedArray(array), attributes)
    coords = {"step": pack.step, "rank": pack.rank}
    return xr.DataArray(variable, coords=coords, name=index.name[row])


class StatisticArray(BackendArray):
    """One statistic over (step, rank, tensor); packs are read as they are indexed."""

    dtype = np.dtype(np.float64)

    def __init__(
        self, run: Run, packs: dict[tuple[int, int], Pack], at: int, tensors: dict[str, int]
    ) -> None:
        self.packs, self.at, self.tensors = packs, at, tensors
        self.steps, self.ranks = run.steps, run.ranks
        self.shape = (len(self.steps), len(self.ranks), len(tensors))

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        axes = [np.arange(size)[k] for size, k in zip(self.shape, key, strict=True)]
        picks = [np.atleast_1d(axis) for axis in axes]
        out = np.full([len(pick) for pick in picks], np.nan)
        for i, step in enumerate(picks[0].tolist()):
            for j, rank in enumerate(picks[1].tolist()):
                pack = self.packs.get((self.steps[step], self.ranks[rank]))
                if pack is not None:
                    out[i, j] = self._column(pack)[picks[2]]
        return out[tuple(0 if axis.ndim == 0 else slice(None) for axis in axes)]

    def _column(self, pack: Pack) -> np.ndarray:
        """The statistic of a pack, placed at the positions of the common names."""
        index = pack.index
        column = np.full(len(self.tensors), np.nan)
        places = [self.tensors[name] for name in index.name]
        # Of a repeated name the first value counts, so it is written last.
        column[places[::-1]] = index.statistics.number[::-1, self.at]
        return column


def statistics_dataset(run: Run) -> xr.Dataset:
    """Statistics over (step, rank, tensor); see :attr:`Run.dataset`."""
    tensors: dict[str, int] = {}
    packs = {(pack.step, pack.rank): pack for pack in run.readable()}
    for pack in packs.values():
        for name in pack.index.name:
            tensors.setdefault(name, len(tensors))
    names = np.empty(len(tensors), object)
    names[:] = list(tensors)
    dims = ("step", "rank", "tensor")
    variables = {
        name: (dims, indexing.LazilyIndexedArray(StatisticArray(run, packs, at, tensors)))
        for at, name in enumerate(STATISTICS)
    }
    coords = {"step": run.steps, "rank": run.ranks, "tensor": names}
    return xr.Dataset(variables, coords, {"source": run.url})


def index_tree(run: Run) -> xr.DataTree:
    """One node ``/step<N>/rank<R>`` for each pack; see :attr:`Run.tree`."""
    groups = {f"/step{pack.step}/rank{pack.rank}": pack_dataset(pack) for pack in run.readable()}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=_plain(run.attributes)), **groups})


def pack_dataset(pack: Pack) -> xr.Dataset:
    """The index of one pack as a Dataset with dim ``tensor``."""
    index = pack.index
    nodes = np.array(pack.nodes.name, object)
    text = np.array(index.name, object)
    columns: dict[str, Any] = {
        "node": nodes[index.node] if len(index) else text,
        "role": np.array(ROLES, object)[index.role],
        "kind": np.array(KINDS, object)[index.kind],
        "type": index.type.expand(),
        "dtype": index.dtype.expand(),
        "has_data": index.has_data,
        "requires_grad": index.requires_grad,
    }
    columns |= {name: index.statistics.number[:, at] for at, name in enumerate(STATISTICS)}
    info = pack.info
    facts = {"task": info.task, "level": info.level, "framework": info.framework}
    return xr.Dataset(
        {name: ("tensor", data) for name, data in columns.items()},
        coords={"tensor": text, "step": pack.step, "rank": pack.rank},
        attrs=_plain({**facts, "complete": pack.complete}),
    )


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if value is not None}


def select(
    dataset: xr.Dataset,
    url: str,
    *,
    step: int | Sequence[int] | None,
    rank: int | Sequence[int] | None,
    tensor: str | Sequence[str] | None,
) -> xr.Dataset:
    """Part of a run's dataset; see :meth:`Run.sel`."""
    places = {"step": step, "rank": rank}
    wanted: dict[str, Any] = {dim: value for dim, value in places.items() if value is not None}
    if isinstance(tensor, str) and any(c in tensor for c in "*?"):
        names = dataset["tensor"].values
        hits = [name for name in names.tolist() if fnmatch.fnmatchcase(name, tensor)]
        if not hits:
            raise UnknownTensorError(f"no tensor fits {tensor!r}", file=url)
        wanted["tensor"] = hits
    elif tensor is not None:
        wanted["tensor"] = tensor if isinstance(tensor, str) else list(tensor)
    try:
        return dataset.sel(wanted)
    except KeyError as error:
        raise UnknownTensorError(
            f"not recorded: {error.args[0] if error.args else wanted}",
            file=url,
            remedy="See run.steps, run.ranks and run.tensors",
        ) from None
