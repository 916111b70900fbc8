"""Converting a recording into a run store.

Packs are converted one after the other; one that is already complete in the store is left alone,
and one that was interrupted goes on where it stopped. A tensor that cannot be read becomes a row
that says why, a pack that cannot be read a note; the store then knows that it is missing. Packs of
another run store are copied as they are.
"""

from __future__ import annotations

import os
import re
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
from msprobe_nb.store.copy import copy_pack, same_pack
from msprobe_nb.store.index import ABSENT, Index, Nodes
from msprobe_nb.store.open import read_attributes
from msprobe_nb.store.pack import Pack
from msprobe_nb.store.reader import StorePack
from msprobe_nb.store.sources import LocalSource, is_url, local_path

_BATCH = 64
_OWN = {"format", "version", "created", "packs", "source"}  # of each store itself


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
        already stands there, only what is missing is added. Recordings are told apart by the
        content of their ``dump.json``.
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
    MsProbeError
        Nothing of it can be read.
    """
    run = open_run(src)
    target = Path(local_path(dst))
    _check_target(target, run)
    writer = RunWriter(target, _facts(run))
    writer.expect((pack.step, pack.rank) for pack in run)
    todo = [pack for pack in run if not (_folder(target, pack) / layout.GROUP).exists()]
    sizes = [pack.nbytes() for pack in todo]
    faults: list[MsProbeError] = []
    with track(sum(sizes), "import", "B", show=progress) as bar:
        for pack, size in zip(todo, sizes, strict=True):
            try:
                _convert(pack, writer, target, partial(advance, bar, size))
            except UsageError:
                raise
            except MsProbeError as error:  # the other packs are still worth having
                faults.append(error)
            pack.forget()
    if faults and len(faults) == len(run):
        raise faults[0]
    store = open_store(LocalSource(target))
    store.add_notes(f"not imported: {error}" for error in faults)
    return store


def _check_target(target: Path, run: Run) -> None:
    """Refuse a place that holds anything but an earlier conversion of the same recording."""
    if target.exists() and not target.is_dir():
        raise UsageError("this is a file", file=target, remedy="Choose a folder for the store")
    if not target.exists() or not any(target.iterdir()):
        return
    if not (target / layout.GROUP).exists():
        raise UsageError(
            "the folder is not empty and no run store",
            file=target,
            remedy="Choose a folder that does not exist",
        )
    shared = [pack for pack in run if (_folder(target, pack) / layout.GROUP).exists()]
    for pack in shared:
        if not _is_copy(StorePack(LocalSource(_folder(target, pack)), pack.step, pack.rank), pack):
            raise UsageError(
                f"the store holds another recording of step {pack.step}, rank {pack.rank}, or this "
                "one changed since it was imported",
                file=target,
                remedy="Choose a folder that does not exist, or delete the store and import again",
            )
    origin = (read_attributes(LocalSource(target)) or {}).get("source")
    if not shared and origin not in (None, _origin(run)):
        raise UsageError(
            f"the store holds steps or ranks of another recording ({origin})",
            file=target,
            remedy="Choose a folder that does not exist",
        )


def _is_copy(stored: StorePack, pack: Pack) -> bool:
    """Whether a complete pack of the store was made from `pack` as it is now."""
    if isinstance(pack, StorePack):
        return same_pack(pack, stored)
    return bool(stored.attributes.get("fingerprint") == pack.fingerprint())


def _origin(run: Run) -> str:
    """Where the whole recording stands, also when only a step or rank of it was opened."""
    url = run.url if is_url(run.url) else os.path.abspath(run.url)
    parts = url.rstrip("/").split("/")
    while parts and re.fullmatch(r"step\d+|rank\d*|proc\d+|(dump|debug)\.json", parts[-1]):
        parts.pop()
    return "/".join(parts)


def _convert(
    pack: Pack, writer: RunWriter, target: Path, advance: Callable[[float, float], None]
) -> None:
    if isinstance(pack, StorePack):
        folder, _ = writer.place(pack.step, pack.rank, None)
        copy_pack(pack, folder)
        advance(0, 1)
        return
    if isinstance(pack, OfficialPack):
        pack.forget()
        pack.keep_structure = True
    _import_pack(pack, writer, target, advance)


def _facts(run: Run) -> dict[str, Any]:
    kept = {k: v for k, v in run.attributes.items() if k not in _OWN}
    facts = {
        "framework": run.framework,
        "task": run.task,
        "level": run.level,
        "tool": "msprobe" if run.kind == "msprobe" else "msprobe_nb",
        "world_size": len(run.ranks),
        "source": _origin(run),
    }
    return {**facts, **kept}


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
        "fingerprint": pack.fingerprint(),
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
        out.attributes["notes"] = [*pack.notes, *_shape_notes(out)]


def _shape_notes(out: PackWriter) -> list[str]:
    """Which tensors have another shape in their file than was recorded."""
    found = [row for row in out.tensors if row.recorded_shape is not None]
    shown = "; ".join(
        f"{row.name}: {list(row.shape or ())}, recorded {list(row.recorded_shape or ())}"
        for row in found[:5]
    )
    more = " ..." if len(found) > 5 else ""
    note = f"{len(found)} tensors differ in shape from what was recorded ({shown}{more})"
    return [note] if found else []


def _original(pack: Pack) -> dict[str, Any]:
    """The attributes that only an export needs."""
    if isinstance(pack, OfficialPack):
        return pack.original.attributes()
    kept = pack.attributes if isinstance(pack, StorePack) else {}
    return {key: kept[key] for key in ("header", "original") if key in kept}


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
