"""Opening a run store."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from msprobe_nb.errors import DamagedStoreError, FormatError
from msprobe_nb.store import layout
from msprobe_nb.store.reader import StorePack
from msprobe_nb.store.run import Run
from msprobe_nb.store.sources import Source

_STEP, _RANK = re.compile(r"step(\d+)\Z"), re.compile(r"rank(\d+)\Z")


def read_attributes(source: Source) -> dict[str, Any] | None:
    """The attributes of the group at `source`; None when it is no Zarr group.

    Raises
    ------
    DamagedStoreError
        The file exists and cannot be read.
    """
    if not source.exists(layout.GROUP):
        return None
    try:
        metadata = layout.decode_json(source.read(layout.GROUP))
        attributes = metadata.get("attributes", {})
    except (msgspec.MsgspecError, ValueError, AttributeError) as error:
        raise DamagedStoreError(
            f"the group's metadata is broken ({error!s:.80})",
            file=source.where(layout.GROUP),
            remedy="Copy this file again, or write it anew as docs/format.md describes",
        ) from None
    return attributes if isinstance(attributes, dict) else {}


def is_store(source: Source) -> bool:
    """Whether a run store, or one step or pack of it, stands at `source`."""
    if source.exists(layout.JOURNAL):
        return True
    attributes = read_attributes(source) or {}
    return attributes.get("format") in (layout.RUN_FORMAT, layout.PACK_FORMAT) or (
        "step" in attributes and _STEP.search(source.url.rstrip("/")) is not None
    )


def open_store(source: Source) -> Run:
    """Open a run store, one of its steps, or one pack.

    Raises
    ------
    FormatError
        Written by a newer version.
    DamagedStoreError
        The root's metadata is broken.
    """
    attributes = read_attributes(source) or {}
    if attributes.get("format") == layout.RUN_FORMAT and attributes.get("version", 0) > (
        layout.VERSION
    ):
        raise FormatError(
            f"the run has format version {attributes['version']}, this reader knows "
            f"{layout.VERSION}",
            file=source.url,
            remedy="Upgrade msprobe_nb",
        )
    if attributes.get("format") == layout.PACK_FORMAT or source.exists(layout.JOURNAL):
        step, rank = _place(source, attributes)
        return Run([StorePack(source, step, rank)], source.url, depth="pack", attributes=attributes)
    if attributes.get("format") != layout.RUN_FORMAT:
        packs, notes = _packs_of_step(source, int(attributes.get("step", 0)))
        return Run(packs, source.url, depth="step", notes=notes, attributes=attributes)
    packs, notes = [], []
    for name, folder in source.entries():
        if folder and (match := _STEP.match(name)):
            found, more = _packs_of_step(source.child(name), int(match[1]))
            packs += found
            notes += more
    return Run(packs, source.url, attributes=attributes, notes=notes)


def _packs_of_step(source: Source, step: int) -> tuple[list[StorePack], list[str]]:
    packs, notes = [], []
    for name, folder in source.entries():
        if not (folder and (match := _RANK.match(name))):
            continue
        child = source.child(name)
        if child.exists(layout.GROUP) or child.exists(layout.JOURNAL):
            packs.append(StorePack(child, step, int(match[1])))
        else:
            notes.append(f"{child.url}: neither complete nor being written, left out")
    return packs, notes


def _place(source: Source, attributes: dict[str, Any]) -> tuple[int, int]:
    """Step and rank of a pack: its attributes, else its path."""
    parts = source.url.rstrip("/").split("/")
    rank, step = _RANK.match(parts[-1]), _STEP.match(parts[-2] if len(parts) > 1 else "")
    place = {"step": step[1] if step else 0, "rank": rank[1] if rank else 0, **attributes}
    return int(place["step"]), int(place["rank"])
