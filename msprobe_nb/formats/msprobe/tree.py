"""Finding the recordings in a folder of the official layout.

::

    <root>/step<N>/rank<R>/dump.json        a process that knew its rank
    <root>/step<N>/proc<pid>/dump.json      a single process
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from msprobe_nb.errors import FormatError
from msprobe_nb.formats.msprobe.folder import OfficialPack, find_file
from msprobe_nb.formats.msprobe.original import DEBUG, DUMP
from msprobe_nb.store.sources import Source

_STEP = re.compile(r"step(\d+)\Z")
_RANK = re.compile(r"rank(0|[1-9]\d*)?\Z")
_PROCESS = re.compile(r"proc(\d+)\Z")
_MODES = {"graph", "pynative"}


@dataclass(slots=True)
class OfficialTree:
    """The recordings of a folder.

    Attributes
    ----------
    packs : list of OfficialPack
    depth : str
        What the path pointed to: ``root``, ``step`` or ``pack``.
    notes : list of str
    """

    packs: list[OfficialPack]
    depth: str
    notes: list[str] = field(default_factory=list)


def find_packs(source: Source, *, salvage: bool = False) -> OfficialTree | None:
    """The recordings below `source`; None when it is no official folder.

    Raises
    ------
    FormatError
        A layout that cannot be resolved without guessing.
    """
    file = find_file(source)
    if file is not None:
        step, rank, label = _from_path(source.url)
        pack = OfficialPack(source, step, rank, label, file, salvage=salvage)
        return OfficialTree([pack], "pack")
    entries = [name for name, folder in source.entries() if folder]
    steps = sorted((int(m[1]), m[0]) for name in entries if (m := _STEP.match(name)))
    if steps:
        tree = OfficialTree([], "root")
        for step, name in steps:
            packs, notes = _ranks(source.child(name), step, salvage)
            tree.packs += packs
            tree.notes += notes
        return tree if tree.packs else None
    packs, notes = _ranks(source, _from_path(source.url + "/x")[0], salvage)
    if packs:
        return OfficialTree(packs, "step", notes)
    if _MODES & set(entries):
        raise FormatError(
            "the folder holds graph and PyNative recordings side by side",
            file=source.url,
            remedy="Open its 'pynative' or its 'graph' folder",
        )
    return None


def single_file(source: Source, file: str, *, salvage: bool = False) -> OfficialTree:
    """The recording of one ``dump.json`` or ``debug.json``."""
    if file not in (DUMP, DEBUG):
        raise FormatError(
            f"the file must be named {DUMP} or {DEBUG}",
            file=source.where(file),
            remedy="Open the folder that holds the recording",
        )
    step, rank, label = _from_path(source.url)
    return OfficialTree([OfficialPack(source, step, rank, label, file, salvage=salvage)], "pack")


def _ranks(source: Source, step: int, salvage: bool) -> tuple[list[OfficialPack], list[str]]:
    folders = [name for name, folder in source.entries() if folder]
    ranks = sorted((int(m[1] or 0), m[0]) for name in folders if (m := _RANK.match(name)))
    processes = [name for name in folders if _PROCESS.match(name)]
    notes: list[str] = []
    if ranks and processes:
        shown = ", ".join(processes[:3])
        notes.append(f"{source.url}: {shown} beside rank folders: left over, not opened")
    packs = []
    for rank, name in ranks or [(0, name) for name in processes]:
        folder = source.child(name)
        file = find_file(folder)
        if file is None:
            notes.append(f"{folder.url}: no {DUMP} in it, not opened")
        else:
            packs.append(OfficialPack(folder, step, rank, name, file, salvage=salvage))
    if not ranks and len(packs) > 1:
        raise FormatError(
            f"{len(packs)} processes without a rank ({', '.join(p.label for p in packs[:4])})",
            file=source.url,
            remedy="Open one of these folders, or delete those of earlier runs",
        )
    numbers = [pack.rank for pack in packs]
    if len(set(numbers)) < len(numbers):
        raise FormatError(
            "both 'rank' and 'rank0' exist, which is the same rank twice",
            file=source.url,
            remedy="Delete or rename one of them",
        )
    return packs, notes


def _from_path(url: str) -> tuple[int, int, str]:
    """Step, rank and label from the names of a pack's folder and its parent."""
    parts = [part for part in url.replace("\\", "/").split("/") if part]
    label = parts[-1] if parts else "rank0"
    parent = parts[-2] if len(parts) > 1 else ""
    rank, step = _RANK.match(label), _STEP.match(parent)
    return int(step[1]) if step else 0, int(rank[1] or 0) if rank else 0, label
