"""One official recording: a folder with ``dump.json`` or ``debug.json``, opened lazily.

The JSON files are parsed when something asks for rows or nodes; tensor files are read one by
one when their values are wanted. ``dump_data_dir`` inside the JSON is where the data once was
and is ignored: the data folder is always the sibling ``dump_tensor_data``.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from msprobe_nb import names
from msprobe_nb.errors import TensorReadError, UnsafeFileError
from msprobe_nb.formats.msprobe.dump_json import DumpFile, parse_dump
from msprobe_nb.formats.msprobe.flatten import Flattened, flatten
from msprobe_nb.formats.msprobe.original import DATA_FOLDER, DEBUG, DUMP, Original
from msprobe_nb.formats.msprobe.sidecars import (
    CONSTRUCT,
    STACK,
    describe_sidecar,
    read_construct,
    read_stacks,
)
from msprobe_nb.store.index import Coded, Index, Nodes
from msprobe_nb.store.pack import Pack, PackInfo
from msprobe_nb.store.sources import Source


class OfficialPack(Pack):
    """A folder of the official tool.

    Parameters
    ----------
    source : Source
        The folder.
    step, rank : int
    label : str
        Name of the folder, such as ``rank0`` or ``proc871``.
    file : str
        ``dump.json`` or ``debug.json``.
    salvage : bool
        Read the whole entries of a truncated file.

    Attributes
    ----------
    keep_structure : bool
        Set before rows are read: also describe how each entry's values nest, which a conversion
        needs and a comparison does not.
    """

    def __init__(
        self,
        source: Source,
        step: int = 0,
        rank: int = 0,
        label: str = "rank0",
        file: str = DUMP,
        *,
        salvage: bool = False,
    ) -> None:
        self.source, self.step, self.rank, self.label = source, step, rank, label
        self.file, self.salvage = file, salvage
        self.keep_structure = False
        self.where = source.where(file)

    @cached_property
    def _dump(self) -> DumpFile:
        return parse_dump(self.source.read(self.file), self.where, salvage=self.salvage)

    @cached_property
    def _flat(self) -> Flattened:
        flat = flatten(self._dump.entries(), with_structure=self.keep_structure)
        self._dump.release()  # decoded entries are not needed any more
        return flat

    @property
    def original(self) -> Original:
        """What an export needs beside rows and calls; complete only with `keep_structure`."""
        return Original(
            file=self.file,
            header=self._dump.header,
            data_at=self._dump.data_at,
            left_out=self._flat.left_out,
            stack=describe_sidecar(self.source, STACK, self.nodes),
            construct=describe_sidecar(self.source, CONSTRUCT, self.nodes),
        )

    @cached_property
    def info(self) -> PackInfo:
        head = self._dump.header

        def text(key: str) -> str | None:
            value = head.get(key)
            return None if value is None else str(value)

        return PackInfo(text("task"), text("level"), text("framework"))

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return self._dump.truncated is None

    @property
    def index(self) -> Index:
        return self._flat.index

    @cached_property
    def nodes(self) -> Nodes:
        flat = self._flat
        return build_nodes(self.source, flat)

    @cached_property
    def notes(self) -> list[str]:
        notes = []
        if self._dump.truncated is not None:
            notes.append(str(self._dump.truncated))
        for what, found in (
            ("entries were left out because their names are no call", self._flat.skipped),
            ("entry names occur more than once; all were kept", self._dump.repeated),
        ):
            if found:
                shown = ", ".join(found[:5]) + (" ..." if len(found) > 5 else "")
                notes.append(f"{self.where}: {len(found)} {what} ({shown})")
        return notes

    @cached_property
    def _data(self) -> Source:
        return self.source.child(DATA_FOLDER)

    def read(self, row: int) -> np.ndarray:
        from msprobe_nb.formats.tensor_file import read_tensor_file

        data_name = self.index.data_name[row]
        if data_name is None:
            raise TensorReadError(
                "the tensor's values were not recorded",
                file=self.where,
                key=self.index.name[row],
                remedy="Record with task 'tensor'",
            )
        if "/" in data_name or "\\" in data_name:
            raise UnsafeFileError(
                f"the data file {data_name!r:.80} lies outside the recording",
                file=self.where,
                key=self.index.name[row],
                remedy="Do not use this recording unless you know why",
            )
        return read_tensor_file(self._data, data_name)

    def nbytes(self) -> int:
        return self.source.total_size()


def build_nodes(source: Source, flat: Flattened) -> Nodes:
    """The calls of a folder: its entries, then what only the module tree knows."""
    stack_of, stacks = read_stacks(source)
    tree = read_construct(source)
    parsed = list(flat.node_names)
    known = {node.name for node in parsed}
    recorded = len(parsed)
    parsed += [names.parse(name) for name in tree if name not in known]
    order = {name: at for at, name in enumerate(tree)}
    all_names = [node.name for node in parsed]
    places = [tree.get(name, (None, 0)) for name in all_names]
    extra = len(parsed) - recorded
    return Nodes(
        name=all_names,
        parsed=parsed,
        recorded=np.arange(len(parsed)) < recorded,
        parent=Coded.of([parent for parent, _ in places]),
        tree_order=np.array([order.get(name, -1) for name in all_names], np.int32),
        micro_step=np.array([step for _, step in places], np.int32),
        recompute=np.array([*flat.recompute, *[-1] * extra], np.int8),
        stack=np.array([stack_of.get(name, -1) for name in all_names], np.int32),
        stacks=stacks,
        structure=Coded.of([*flat.structure, *[""] * (len(parsed) - len(flat.structure))]),
    )


def find_file(source: Source) -> str | None:
    """``dump.json`` or ``debug.json``, whichever the folder has; None if neither."""
    for name in (DUMP, DEBUG):
        if source.exists(name):
            return name
    return None
