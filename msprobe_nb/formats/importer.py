"""Converting a recording into a run store.

Packs are converted one after the other; one that is already complete in the store is left alone,
and one that was interrupted goes on where it stopped. A tensor that cannot be read becomes a row
that says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from msprobe_nb.errors import FormatError, MsProbeError, UsageError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.msprobe.folder import OfficialPack
from msprobe_nb.progress import advance, track
from msprobe_nb.store import PackWriter, Run, RunWriter, layout, open_store
from msprobe_nb.store.index import ABSENT, Index, Nodes
from msprobe_nb.store.pack import Pack
from msprobe_nb.store.reader import StorePack
from msprobe_nb.store.sources import LocalSource

_BATCH = 64


def import_run(
    src: str | os.PathLike[str] | Run, dst: str | os.PathLike[str], *, progress: bool = True
) -> Run:
    """Convert a recording into a run store.

    Parameters
    ----------
    src : path, URL or Run
        What to convert: an official dump folder, or any run.
    dst : path
        Folder of the new store, by custom ending in ``.zarr``. If a store of the same recording
        already stands there, only what is missing is added.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Run
        The store, opened.

    Raises
    ------
    UsageError
        `dst` holds something else, or the recording changed since an earlier conversion began.
    """
    run = open_run(src)
    target = Path(dst)
    if target.exists() and any(target.iterdir()) and not (target / layout.GROUP).exists():
        raise UsageError(
            "the folder is not empty and no run store",
            file=target,
            remedy="Choose a folder that does not exist",
        )
    writer = RunWriter(target, _facts(run))
    todo = [pack for pack in run if not _is_there(pack, target)]
    sizes = [pack.nbytes() for pack in todo]
    with track(sum(sizes), "import", "B", show=progress) as bar:
        for pack, size in zip(todo, sizes, strict=True):
            if isinstance(pack, OfficialPack):
                pack.forget()
                pack.keep_structure = True
            _import_pack(pack, writer, target, partial(advance, bar, size))
            pack.forget()
    return open_store(LocalSource(target))


def _facts(run: Run) -> dict[str, Any]:
    kept = {k: v for k, v in run.attributes.items() if k not in ("format", "version", "created")}
    facts = {
        "framework": run.framework,
        "task": run.task,
        "level": run.level,
        "tool": "msprobe" if run.kind == "msprobe" else "msprobe_nb",
        "world_size": len(run.ranks),
    }
    return {**facts, **kept}


def _is_there(pack: Pack, target: Path) -> bool:
    """Whether the store has this pack; raises `UsageError` when it has another in its place."""
    folder = _folder(target, pack)
    if not (folder / layout.GROUP).exists():
        return False
    kept = StorePack(LocalSource(folder), pack.step, pack.rank).attributes.get("fingerprint")
    if kept is not None and kept != fingerprint(pack):
        raise UsageError(
            "the store holds another recording, or an earlier state of this one",
            file=folder,
            remedy="Choose a folder that does not exist",
        )
    return True


def _folder(target: Path, pack: Pack) -> Path:
    return target / f"step{pack.step}" / f"rank{pack.rank}"


def _import_pack(
    pack: Pack, writer: RunWriter, target: Path, advance: Callable[[float, float], None]
) -> None:
    index, nodes = pack.index, pack.nodes
    attributes = {
        "label": pack.label,
        "task": pack.info.task,
        "level": pack.info.level,
        "framework": pack.info.framework,
        **_original(pack),
        "notes": pack.notes,
        "fingerprint": fingerprint(pack),
    }
    folder = _folder(target, pack)
    if not index.has_data.any():
        writer.add_pack(pack.step, pack.rank, index, nodes, attributes)
        advance(0, 1)
        return
    if (folder / layout.JOURNAL).exists():
        out = PackWriter.resume(folder)
        if out.attributes.get("fingerprint") != attributes["fingerprint"]:
            out.abandon()
            raise UsageError(
                "the recording changed since its conversion began",
                file=pack.where,
                remedy=f"Delete {folder} and convert again",
            )
    else:
        out = writer.pack(pack.step, pack.rank, attributes)
    with out:
        _add_nodes(out, nodes)
        done = len(out.tensors)
        rows = _Rows(index, nodes)
        for row, data, problem in _values(pack, index, done):
            rows.add(out, row, data, problem)
            if row % _BATCH == 0:
                advance(row / len(index), min(1, (row + _BATCH) / len(index)))


def _original(pack: Pack) -> dict[str, Any]:
    """The attributes that only an export needs."""
    if isinstance(pack, OfficialPack):
        return pack.original.attributes()
    kept = pack.attributes if isinstance(pack, StorePack) else {}
    return {key: kept[key] for key in ("header", "original") if key in kept}


def fingerprint(pack: Pack) -> list[Any]:
    """Something that changes when the recording does."""
    if isinstance(pack, OfficialPack):
        return pack.source.fingerprint(pack.file)
    if isinstance(pack, StorePack):
        return pack.source.fingerprint(layout.GROUP)
    return []


def _add_nodes(out: PackWriter, nodes: Nodes) -> None:
    for frames in nodes.stacks:  # in their own order, whichever call has them
        out.add_stack(frames)
    for row in range(len(out.nodes), len(nodes)):
        at = int(nodes.stack[row])
        out.add_node(
            nodes.name[row],
            stack=nodes.stacks[at] if at >= 0 else None,
            parent=nodes.parent[row],
            tree_order=int(nodes.tree_order[row]),
            micro_step=int(nodes.micro_step[row]),
            recompute=int(nodes.recompute[row]),
            recorded=bool(nodes.recorded[row]),
            structure=nodes.structure[row],
        )


def _values(pack: Pack, index: Index, start: int) -> Iterator[tuple[int, np.ndarray | None, str]]:
    """(row, its data or None, what went wrong) from row `start` on."""
    for first in range(start, len(index), _BATCH):
        rows = range(first, min(first + _BATCH, len(index)))
        wanted = [row for row in rows if index.has_data[row]]
        found = dict(zip(wanted, pack.read_many(wanted), strict=True))
        for row in rows:
            data = found.get(row)
            if isinstance(data, MsProbeError):
                yield row, None, str(data)
            else:
                yield row, data, ""


class _Rows:
    """The facts of an index's rows as a writer takes them; columns are converted once."""

    def __init__(self, index: Index, nodes: Nodes) -> None:
        self.index = index
        self.nodes = index.node.tolist()
        self.prefix = [len(name) + 1 for name in nodes.name]
        self.columns = (
            index.role.tolist(),
            index.kind.tolist(),
            index.type.expand().tolist(),
            index.dtype.expand().tolist(),
            index.shape.expand().tolist(),
            index.requires_grad.tolist(),
        )
        self.statistics = index.statistics.python().tolist()
        self.recorded = (index.statistics.kind != ABSENT).any(axis=1).tolist()

    def add(self, out: PackWriter, row: int, data: np.ndarray | None, problem: str) -> None:
        """Add one row to a pack."""
        index, node = self.index, self.nodes[row]
        role, kind, type_, dtype, shape, requires_grad = (column[row] for column in self.columns)
        problem = index.problem.get(row, "") or problem
        detail = index.detail.get(row)
        if data is not None and shape is not None and data.shape != shape:
            problem = problem or (
                f"the data has shape {list(data.shape)}, recorded was {list(shape)}"
            )
            detail = {"recorded_shape": list(shape), **(detail or {})}
        facts: dict[str, Any] = {
            "role": role,
            "kind": kind,
            "type": type_,
            "dtype": dtype,
            "shape": shape,
            "requires_grad": requires_grad,
            "checksum": index.checksum[row],
            "data_name": index.data_name[row],
            "value": index.value.get(row, UNSET),
            "detail": detail,
            "problem": problem,
            "statistics": self.statistics[row] if self.recorded[row] else UNSET,
        }
        slot = index.name[row][self.prefix[node] :]
        try:
            out.add(node, slot, data, **facts)
        except FormatError as error:  # a data type the store has no place for
            out.add(node, slot, None, **{**facts, "problem": problem or str(error)})
