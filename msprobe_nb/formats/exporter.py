"""Writing a run as a folder of the official tool, on which its commands work.

Each pack is written into a hidden folder beside its place and moved there when it is whole, so
that an official reader sees a finished recording or none. An interrupted export goes on where it
stopped. A tensor that cannot be read is left without a file, as in a recording that lost one.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np

from msprobe_nb.errors import MsProbeError, UsageError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.importer import fingerprint
from msprobe_nb.formats.msprobe.data_names import DataNames
from msprobe_nb.formats.msprobe.dump_writer import write_dump
from msprobe_nb.formats.msprobe.folder import OfficialPack
from msprobe_nb.formats.msprobe.original import DATA_FOLDER, Original, original_of, usual
from msprobe_nb.formats.msprobe.sidecars import CONSTRUCT, STACK, sidecar_text
from msprobe_nb.formats.tensor_file import write_tensor_file
from msprobe_nb.progress import advance, track
from msprobe_nb.store import Run, layout
from msprobe_nb.store.index import Index
from msprobe_nb.store.jsonsafe import dumps
from msprobe_nb.store.pack import TENSOR_MODE, Pack
from msprobe_nb.store.reader import StorePack

MARK = ".msprobe_nb_export.json"  # stands in the folder until the export is complete
_LABEL = re.compile(r"(?:rank(?:0|[1-9]\d*)?|proc\d+)\Z")
_BATCH, _BATCH_BYTES = 64, 64 << 20
_WIDEST = 16  # bytes of an element of unknown type


@dataclass(slots=True)
class Exported:
    """What an export gave.

    Attributes
    ----------
    path : Path
        The folder.
    notes : list of str
        Tensors without a file and names that had to be changed, with the reason.
    """

    path: Path
    notes: list[str] = field(default_factory=list)


def export_run(
    run: Run | str | os.PathLike[str], dst: str | os.PathLike[str], *, progress: bool = True
) -> Path:
    """Write a run as a folder of the official tool (MindStudio Probe).

    ``dump.json`` (or ``debug.json``), ``stack.json`` and ``construct.json`` of an imported
    recording come back as they were; tensors become ``.pt`` or ``.npy`` files.

    Parameters
    ----------
    run : Run, path or URL
        What to write.
    dst : path
        A folder that does not exist or is empty, or one where an export of the same run was
        interrupted, which then goes on.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Path
        The folder. Tensors that could not be written are told in one warning.

    Raises
    ------
    UsageError
        `dst` holds something else.
    """
    done = export(run, dst, progress=progress)
    if done.notes:
        more = f" and {len(done.notes) - 3} more" if len(done.notes) > 3 else ""
        warnings.warn("; ".join(done.notes[:3]) + more, stacklevel=2)
    return done.path


def export(
    run: Run | str | os.PathLike[str], dst: str | os.PathLike[str], *, progress: bool = True
) -> Exported:
    """The work of :func:`export_run`, with everything there is to say about it."""
    run = open_run(run)
    done = Exported(Path(dst))
    packs = list(run)
    if any(pack.is_kernel for pack in packs):
        raise UsageError(
            "kernels of a graph are no calls, a dump.json cannot hold them",
            file=run.url,
            remedy="Copy the recorded folder as it is",
        )
    _prepare(done.path, packs)
    labels = _labels(packs)
    todo = [pack for pack in packs if not (done.path / labels[pack.step, pack.rank]).exists()]
    sizes = [pack.nbytes() for pack in todo]
    with track(sum(sizes), "export", "B", show=progress) as bar:
        for pack, size in zip(todo, sizes, strict=True):
            folder = done.path / labels[pack.step, pack.rank]
            done.notes += _export_pack(pack, folder, partial(advance, bar, size))
    (done.path / MARK).unlink(missing_ok=True)
    return done


def _prepare(target: Path, packs: list[Pack]) -> None:
    """Make the folder and mark it, or find the mark of an interrupted export of these packs."""
    mark = dumps({"export": [[p.step, p.rank, *fingerprint(p)] for p in packs]}).encode()
    if target.exists():
        if not target.is_dir():
            raise UsageError("the path is no folder", file=target, remedy="Choose another one")
        if (target / MARK).exists():
            if (target / MARK).read_bytes() == mark:
                return
            raise UsageError(
                "an export of another run, or of an earlier state of it, was interrupted here",
                file=target,
                remedy="Delete the folder, or choose another one",
            )
        if any(target.iterdir()):
            raise UsageError(
                "the folder is not empty",
                file=target,
                remedy="Choose a folder that does not exist",
            )
    target.mkdir(parents=True, exist_ok=True)
    layout.write_atomic(target / MARK, mark)


def _labels(packs: list[Pack]) -> dict[tuple[int, int], str]:
    """(step, rank) -> the pack's place below the root: its own folder name where that is one."""
    found: dict[tuple[int, int], str] = {}
    for pack in packs:
        alone = sum(other.step == pack.step for other in packs) == 1
        fits = alone if pack.label.startswith("proc") else _number(pack.label) == pack.rank
        label = pack.label if _LABEL.match(pack.label) and fits else f"rank{pack.rank}"
        found[pack.step, pack.rank] = f"step{pack.step}/{label}"
    return found


def _number(label: str) -> int:
    """The rank in a folder name; -1 where there is none."""
    digits = label.removeprefix("rank")
    return int(digits) if digits.isdecimal() else 0 if label == "rank" else -1


def _export_pack(pack: Pack, folder: Path, advance_to: Callable[[float, float], None]) -> list[str]:
    """Write one pack at its place; return what there is to say about it."""
    source = _whole(pack)
    unfinished = folder.with_name(f".{folder.name}.partial")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    notes = _write_pack(source, unfinished, advance_to)
    os.replace(unfinished, folder)
    return notes


def _write_pack(pack: Pack, folder: Path, advance_to: Callable[[float, float], None]) -> list[str]:
    """Write the files of one pack into a folder."""
    original, index, nodes = _original(pack), pack.index, pack.nodes
    names = DataNames(index, original.header.get("framework"))
    data = folder / DATA_FOLDER
    if index.has_data.any() or pack.info.task == TENSOR_MODE:
        data.mkdir(parents=True)
    notes = names.notes + _write_tensors(pack, index, names, data, advance_to)
    write_dump(folder / original.file, index, nodes, original, names.names, pack.where)
    for name, sidecar in ((STACK, original.stack), (CONSTRUCT, original.construct)):
        if sidecar is not None:
            (folder / name).write_text(sidecar_text(name, sidecar, nodes), "utf-8")
    if not index.has_data.any():
        advance_to(0, 1)
    return notes


def _whole(pack: Pack) -> Pack:
    """A pack of its own for the export, which knows the structure of entries."""
    if isinstance(pack, OfficialPack):
        own = OfficialPack(
            pack.source, pack.step, pack.rank, pack.label, pack.file, salvage=pack.salvage
        )
        own.keep_structure = True
        return own
    return StorePack(pack.source, pack.step, pack.rank) if isinstance(pack, StorePack) else pack


def _original(pack: Pack) -> Original:
    if isinstance(pack, OfficialPack):
        return pack.original
    return original_of(pack) if isinstance(pack, StorePack) else usual(pack, {})


def _write_tensors(
    pack: Pack,
    index: Index,
    names: DataNames,
    folder: Path,
    advance_to: Callable[[float, float], None],
) -> list[str]:
    """Write the data of all rows; return which have none, and why."""
    notes = []
    written: dict[str, bytes] = {}  # names that several rows have -> digest of the data
    rows = np.flatnonzero(index.has_data).tolist()
    count = 0
    for batch in _batches(index, rows):
        for row, data in zip(batch, pack.read_many(batch), strict=True):
            try:
                if isinstance(data, MsProbeError):
                    raise data
                name = _place(row, data, names, written)
                if name is not None:
                    write_tensor_file(folder / name, data)
            except (MsProbeError, ValueError) as error:
                notes.append(f"{index.name[row]} has no file: {error}")
        advance_to(count / len(rows), (count + len(batch)) / len(rows))
        count += len(batch)
    return notes


def _place(row: int, data: np.ndarray, names: DataNames, written: dict[str, bytes]) -> str | None:
    """The file of a row; None if another row with the same data wrote it already."""
    name = names.names[row]
    assert name is not None  # of a row with data
    if name not in names.shared:
        return name
    plain = np.ascontiguousarray(data)
    digest = blake2b(repr((plain.dtype, plain.shape)).encode(), digest_size=16)
    digest.update(plain.reshape(-1).view(np.uint8).data if plain.size else b"")
    if written.setdefault(name, digest.digest()) != digest.digest():
        return names.rename(row)
    first = names.claim(name)
    return name if first else None


def _batches(index: Index, rows: list[int]) -> Iterator[list[int]]:
    """`rows` in runs of bounded count and size."""
    shapes = [
        int(np.prod(shape, dtype=object)) * _WIDEST if shape else _WIDEST
        for shape in index.shape.values
    ]
    codes = index.shape.codes
    batch: list[int] = []
    size = 0
    for row in rows:
        size += shapes[codes[row]]
        if batch and (len(batch) == _BATCH or size > _BATCH_BYTES):
            yield batch
            batch, size = [], shapes[codes[row]]
        batch.append(row)
    if batch:
        yield batch
