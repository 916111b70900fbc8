"""The options of pairing, and the pairs they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from msprobe_nb.comparison.pairing import fuzzy
from msprobe_nb.comparison.pairing.in_order import pair_in_order
from msprobe_nb.comparison.pairing.join import Key, join, rows_of_calls, turned
from msprobe_nb.comparison.pairing.layers import LayerMapping
from msprobe_nb.comparison.pairing.translate import (
    ApiMapping,
    CellMapping,
    counted_names,
    translate,
)
from msprobe_nb.comparison.sides import NOT_AVAILABLE, Side
from msprobe_nb.comparison.yaml_file import Mapping, text_table
from msprobe_nb.errors import UsageError

PYTORCH = "pytorch"


@dataclass(slots=True)
class Joined:
    """Paired rows, before the dtype gate.

    Attributes
    ----------
    rows : ndarray of int64
        Golden row of each target row, or -1.
    repeated, by_place : ndarray of bool
        See :class:`~msprobe_nb.comparison.match.Pairs`.
    notes : list of str
    """

    rows: np.ndarray
    repeated: np.ndarray
    by_place: np.ndarray
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pairing:
    """How the rows of two packs find each other; see :mod:`msprobe_nb.comparison.pairing`.

    Attributes
    ----------
    fuzzy : bool
    rows : dict of str to str, or None
        Data mapping.
    cells : CellMapping or None
    apis : ApiMapping or None
    layers : LayerMapping or None
    in_order : bool
        Where names alone would decide, calls that only one side has do not shift the others.
    """

    fuzzy: bool = False
    rows: dict[str, str] | None = None
    cells: CellMapping | None = None
    apis: ApiMapping | None = None
    layers: LayerMapping | None = None
    in_order: bool = False

    @classmethod
    def of(
        cls,
        fuzzy: bool = False,
        data_mapping: Mapping | None = None,
        cell_mapping: Mapping | bool | None = None,
        api_mapping: Mapping | bool | None = None,
        layer_mapping: Mapping | bool | None = None,
        *,
        in_order: bool = False,
    ) -> Pairing:
        """From the arguments of :func:`msprobe_nb.compare`.

        Raises
        ------
        UsageError, PathNotFoundError, FormatError
            Options that exclude each other, or a table that cannot be read.
        """
        layers = layer_mapping is not None and layer_mapping is not False
        others = fuzzy or any(m is not None and m is not False for m in (cell_mapping, api_mapping))
        if layers and others:
            raise UsageError(
                "layer mapping pairs calls by itself and goes with no other way but data mapping",
                remedy="Leave out fuzzy, cell_mapping and api_mapping, or layer_mapping",
            )
        return cls(
            fuzzy,
            None if data_mapping is None else text_table(data_mapping, "data mapping"),
            None if cell_mapping in (None, False) else CellMapping.of(cell_mapping),
            None if api_mapping in (None, False) else ApiMapping.of(api_mapping),
            LayerMapping.of(layer_mapping) if layers else None,  # type: ignore[arg-type]
            in_order=in_order,
        )

    @property
    def by_name(self) -> bool:
        """Whether names alone decide."""
        mapped = self.fuzzy or self.cells or self.apis or self.layers or self.rows is not None
        return not (mapped or self.in_order)

    @property
    def ignores_dtypes(self) -> bool:
        """Whether pairs need not pass the dtype gate: somebody said that they belong together."""
        return self.rows is not None or self.layers is not None

    def describe(self) -> str:
        """What is used, in words; empty for names alone."""
        used = {
            "fuzzy matching": self.fuzzy,
            "cell mapping": self.cells is not None,
            "API mapping": self.apis is not None,
            "layer mapping": self.layers is not None,
            "data mapping": self.rows is not None,
        }
        return ", ".join(name for name, is_used in used.items() if is_used)

    def join(self, target: Side, golden: Side) -> Joined:
        """Pair the rows of two sides.

        Tables are written from MindSpore to PyTorch names and serve both ways round: of two
        frameworks, the names of the side that is not PyTorch are rewritten.

        Raises
        ------
        UsageError
            The built-in API table for two PyTorch runs.
        """
        frameworks = [side.pack.info.framework or PYTORCH for side in (target, golden)]
        across = frameworks[0] != frameworks[1]
        if self.apis and not self.apis.entries and not across and PYTORCH in frameworks:
            raise UsageError(
                "the built-in API table is for MindSpore against PyTorch",
                file=target.pack.where,
                remedy="Leave out api_mapping, or give a table of your own",
            )
        turn = across and frameworks[0] == PYTORCH
        side, other = (golden, target) if turn else (target, golden)
        joined = self._join_calls(side, other, turn) or self._join_names(side, other, turn)
        if self.rows is not None:
            self._list_rows(joined, target, golden)
        return joined

    def _join_names(self, side: Side, other: Side, turn: bool) -> Joined:
        """By the names of `side` rewritten into those of `other`."""
        ours: Sequence[Key] = side.keys
        if self.cells or self.apis:
            ours = translate(side, other, self.cells, self.apis).keys(side)
        rows, repeated = join(other.keys, ours) if turn else join(ours, other.keys)
        return Joined(rows, repeated, np.zeros(len(rows), bool), self._notes())

    def _join_calls(self, side: Side, other: Side, turn: bool) -> Joined | None:
        """By paired calls; None when names decide."""
        notes = self._notes()
        slots: list[Key] = list(side.slots) if self.layers or self.fuzzy or self.in_order else []
        moved = np.zeros(len(side.pack.nodes), bool)
        if self.layers:
            packs = side.pack, other.pack
            partner, told = self.layers.pair_calls(
                packs[0].nodes,
                packs[1].nodes,
                (packs[0].info.framework or PYTORCH, packs[1].info.framework or PYTORCH),
            )
            notes += told
        elif self.fuzzy:
            translated = translate(side, other, self.cells, self.apis)
            for row, slot in translated.slots.items():
                slots[row] = slot
            partner = fuzzy.pair_calls(side, other, translated.names)
            theirs = np.array([*counted_names(other), ""], object)
            moved = (partner >= 0) & (np.array(translated.names, object) != theirs[partner])
        elif self.in_order and not (self.cells or self.apis or side.pack.is_debug):
            found = pair_in_order(side.pack.nodes, other.pack.nodes)
            if found is None:
                return None
            partner = found
        else:
            return None
        rows = rows_of_calls(side, other, partner, slots)
        by_place = moved[side.index.node] & (rows >= 0)
        if turn:
            back = turned(rows, len(other))
            by_place = np.append(by_place, False)[back]
            rows = back
        return Joined(rows, np.zeros(len(rows), bool), by_place, notes)

    def _notes(self) -> list[str]:
        return list(self.apis.notes) if self.apis else []

    def _list_rows(self, joined: Joined, target: Side, golden: Side) -> None:
        """Enter the pairs that the user lists."""
        table = self.rows or {}
        ours, theirs = (_rows_of_names(side) for side in (target, golden))
        if sum(name in ours for name in table) < sum(name in theirs for name in table):
            table = {other: name for name, other in table.items()}
        for name, other in table.items():
            for row in ours.get(name, ()):
                joined.rows[row] = theirs.get(other, [-1])[0]
                joined.by_place[row] = False
        unknown = [name for name in table if name not in ours]
        missing = [name for name in table.values() if name not in theirs and name != NOT_AVAILABLE]
        for where, found in (("target", unknown), ("golden", missing)):
            if found:
                shown = ", ".join(found[:3]) + (" ..." if len(found) > 3 else "")
                joined.notes.append(
                    f"data mapping: {len(found)} names are not in the {where} ({shown})"
                )


def _rows_of_names(side: Side) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(side.names):
        rows.setdefault(name, []).append(row)
    return rows
