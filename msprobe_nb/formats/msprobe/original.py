"""What the files of an official recording hold beside rows and calls, kept for an export."""

from __future__ import annotations

from typing import Any

import msgspec

from msprobe_nb.errors import DamagedStoreError
from msprobe_nb.formats.msprobe.sidecars import Sidecar
from msprobe_nb.store import jsonsafe
from msprobe_nb.store.pack import Pack
from msprobe_nb.store.reader import StorePack

DUMP, DEBUG, DATA_FOLDER = "dump.json", "debug.json", "dump_tensor_data"


class Original(msgspec.Struct):
    """The frame of an official recording.

    Attributes
    ----------
    file : str
        ``dump.json`` or ``debug.json``.
    header : dict
        The top-level keys of that file except ``data``.
    data_at : int
        Position of ``data`` among them.
    left_out : list of (int, str, str)
        Position in the file, name and JSON text of entries that are no calls.
    stack, construct : Sidecar or None
        The files beside it; None where there was none.
    official : bool
        Whether the official tool recorded it.
    """

    file: str
    header: dict[str, Any]
    data_at: int
    left_out: list[tuple[int, str, str]]
    stack: Sidecar | None
    construct: Sidecar | None
    official: bool = True

    def attributes(self) -> dict[str, Any]:
        """The attributes ``header`` and ``original`` of an imported pack."""
        kept = msgspec.to_builtins(self)
        original = {key: kept[key] for key in _Kept.__struct_fields__ if kept[key]}
        return {"header": jsonsafe.dumps(self.header), "original": original}


class _Kept(msgspec.Struct):
    """The attribute ``original``."""

    file: str = DUMP
    data_at: int = 0
    left_out: list[tuple[int, str, str]] = []
    stack: Sidecar | None = None
    construct: Sidecar | None = None


def original_of(pack: StorePack) -> Original:
    """The frame of a pack in a run store.

    What was not imported from an official recording, or by an older version, gets the usual frame.

    Raises
    ------
    DamagedStoreError
        The attributes are broken.
    """
    attributes = pack.attributes
    try:
        header = jsonsafe.loads(str(attributes.get("header", "{}")))
        if not isinstance(header, dict):
            raise ValueError("the header is no object")
        if "original" not in attributes:
            return usual(pack, header)
        kept = msgspec.convert(attributes["original"], _Kept)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedStoreError(
            f"the attributes 'header' and 'original' are broken ({error!s:.80})",
            file=pack.where,
            remedy="Import the original recording again",
        ) from None
    file = DEBUG if kept.file == DEBUG else DUMP
    return Original(file, header, kept.data_at, kept.left_out, kept.stack, kept.construct)


def usual(pack: Pack, header: dict[str, Any]) -> Original:
    """The frame that the official tool would have written."""
    nodes = pack.nodes
    official = bool(header)
    debug = pack.is_debug or pack.info.level == "debug"
    if not header:
        task = pack.info.task or ("tensor" if pack.index.has_data.any() else "statistics")
        header = {
            "task": task,
            "level": pack.info.level or ("debug" if debug else "mix"),
            "framework": pack.info.framework or "pytorch",
            "dump_data_dir": None,
        }
    tree = bool((nodes.tree_order >= 0).any())
    beside = not debug and (tree or len(nodes.stacks) > 0)
    steps = bool((nodes.micro_step > 0).any())
    return Original(
        file=DEBUG if debug else DUMP,
        header=header,
        data_at=len(header),
        left_out=[],
        stack=Sidecar("grouped") if beside else None,
        construct=Sidecar("with_steps" if steps else "plain") if beside else None,
        official=official,
    )
