"""Writing ``dump.json`` and ``debug.json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msprobe_nb.errors import DamagedStoreError
from msprobe_nb.formats.msprobe.entry_text import Columns, Slot, Template, json_text, quoted
from msprobe_nb.formats.msprobe.original import Original
from msprobe_nb.formats.msprobe.structure import Structure, parse
from msprobe_nb.formats.msprobe.usual import usual_structure
from msprobe_nb.store.index import Index, Nodes
from msprobe_nb.store.jsonsafe import restore
from msprobe_nb.store.layout import decode_json

_BLOCK = 4096  # calls whose values are turned into text together
_DEPTH = 2  # of an entry in the file


def write_dump(
    path: Path,
    index: Index,
    nodes: Nodes,
    original: Original,
    data_names: Sequence[str | None],
    where: str,
) -> None:
    """Write a dump file in the layout of the official tool.

    Parameters
    ----------
    path : Path
        The file.
    index, nodes
        What was recorded.
    original : Original
        The frame of the file.
    data_names : sequence of (str or None)
        File name of each row's data.
    where : str
        The recording, for messages.

    Raises
    ------
    DamagedStoreError
        The description of a call is broken.
    """
    header = list(original.header.items())
    keys: list[tuple[str, Any]] = [*header]
    place = min(max(original.data_at, 0), len(keys))
    keys.insert(place, ("data", None))
    # Other recorders leave out the framework's name in data types.
    prefixed = not original.official and original.header.get("framework") == "pytorch"
    columns = Columns(index, data_names, "torch." if prefixed else "")
    entries = _Entries(columns, nodes, where)
    with path.open("w", encoding="ascii") as file:
        before = "{\n "
        for at, (key, value) in enumerate(keys):
            file.write(f"{before}{quoted(key)}: ")
            if at == place:
                file.writelines(_data(entries.walk(), original.left_out))
            else:
                file.write(json_text(value, 1))
            before = ",\n "
        file.write("\n}")


def _data(
    entries: Iterator[tuple[str, str]], left_out: Sequence[tuple[int, str, str]]
) -> Iterator[str]:
    """The text of the object ``data``, with left-out entries at their places."""
    before, count = "{\n  ", 0
    others = list(reversed(left_out))

    def entry(name: str, text: str) -> str:
        nonlocal before, count
        whole = f"{before}{quoted(name)}: {text}"
        before, count = ",\n  ", count + 1
        return whole

    for name, text in entries:
        while others and others[-1][0] <= count:
            yield _other(others.pop(), entry)
        yield entry(name, text)
    while others:
        yield _other(others.pop(), entry)
    yield "\n }" if count else "{}"


def _other(left_out: tuple[int, str, str], entry: Any) -> str:
    _, name, text = left_out
    return str(entry(name, json_text(restore(decode_json(text)), _DEPTH)))


class _Entries:
    """The entries of a recording as text."""

    def __init__(self, columns: Columns, nodes: Nodes, where: str) -> None:
        self.columns, self.nodes, self.where = columns, nodes, where
        index = columns.index
        self.order = np.argsort(index.node, kind="stable")
        self.ends = np.searchsorted(index.node[self.order], np.arange(len(nodes)), side="right")
        self.templates: dict[int, tuple[Template, int] | None] = {}

    def walk(self) -> Iterator[tuple[str, str]]:
        """(name, text) of each recorded call."""
        recorded = np.flatnonzero(self.nodes.recorded).tolist()
        for first in range(0, len(recorded), _BLOCK):
            yield from self._block(recorded[first : first + _BLOCK])

    def _block(self, calls: list[int]) -> Iterator[tuple[str, str]]:
        """Several calls; each column they use is turned into text once."""
        start = int(self.ends[calls[0] - 1]) if calls[0] else 0
        rows = self.order[start : int(self.ends[calls[-1]])]
        texts: dict[Slot, list[str]] = {}
        for call in calls:
            begin = (int(self.ends[call - 1]) if call else 0) - start
            own = rows[begin : int(self.ends[call]) - start]
            template = self._template(call, own)
            for slot, _ in template.gaps:
                if slot not in texts:
                    texts[slot] = self.columns.texts(slot, rows)
            values = tuple([texts[slot][begin + leaf] for slot, leaf in template.gaps])
            yield self.nodes.name[call], template.text % values

    def _template(self, call: int, rows: np.ndarray) -> Template:
        code = int(self.nodes.structure.codes[call])
        if code not in self.templates:
            self.templates[code] = self._described(call, code)
        known = self.templates[code]
        if known is not None and known[1] == len(rows):
            return known[0]
        columns = self.columns
        usual = usual_structure(columns.index, self.nodes, call, rows.tolist(), columns.data_names)
        return Template.of(usual, _DEPTH)

    def _described(self, call: int, code: int) -> tuple[Template, int] | None:
        """Template and number of leaves of a description; None if it has no forms."""
        try:
            structure: Structure | None = parse(self.nodes.structure.values[code])
            if structure is None:
                return None
            template = Template.of(structure, _DEPTH)
            if any(not 0 <= leaf < len(structure.forms) for _, leaf in template.gaps):
                raise ValueError("it has a leaf that is not there")
            return template, len(structure.forms)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise DamagedStoreError(
                f"the description of a call is broken ({error!s:.80})",
                file=self.where,
                key=self.nodes.name[call],
                remedy="Import the original recording again",
            ) from None
