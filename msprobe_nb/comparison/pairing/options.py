"""The options of pairing, and the keys they give to the rows of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.pairing import fuzzy
from msprobe_nb.comparison.pairing.layers import LayerMapping
from msprobe_nb.comparison.pairing.translate import (
    ApiMapping,
    CellMapping,
    Translated,
    counted_names,
    translate,
)
from msprobe_nb.comparison.pairing.yaml_file import Mapping, text_table
from msprobe_nb.comparison.sides import Side
from msprobe_nb.errors import UsageError

PYTORCH = "pytorch"
Key = str | None


@dataclass(slots=True)
class Keys:
    """What to join two sides by.

    Attributes
    ----------
    target, golden : list of str or None
        Equal keys belong together; None never does.
    listed : dict
        Target row -> golden row, or -1, as a user's table says.
    by_place : set of int
        Target rows whose call was paired by its place although the names differ.
    notes : list of str
    """

    target: Sequence[Key]
    golden: Sequence[Key]
    listed: dict[int, int] = field(default_factory=dict)
    by_place: set[int] = field(default_factory=set)
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
    """

    fuzzy: bool = False
    rows: dict[str, str] | None = None
    cells: CellMapping | None = None
    apis: ApiMapping | None = None
    layers: LayerMapping | None = None

    @classmethod
    def of(
        cls,
        fuzzy: bool = False,
        data_mapping: Mapping | None = None,
        cell_mapping: Mapping | bool | None = None,
        api_mapping: Mapping | bool | None = None,
        layer_mapping: Mapping | bool | None = None,
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
        )

    @property
    def by_name(self) -> bool:
        """Whether names alone decide."""
        return not (self.fuzzy or self.cells or self.apis or self.layers) and self.rows is None

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

    def keys(self, target: Side, golden: Side) -> Keys:
        """The keys of both sides.

        Tables are written from MindSpore to PyTorch names and serve both ways round: of two
        frameworks, the names of the side that is not PyTorch are rewritten.
        """
        frameworks = tuple(side.pack.info.framework or PYTORCH for side in (target, golden))
        across = frameworks[0] != frameworks[1]
        if self.apis and not self.apis.entries and not across and PYTORCH in frameworks:
            raise UsageError(
                "the built-in API table is for MindSpore against PyTorch",
                file=target.pack.where,
                remedy="Leave out api_mapping, or give a table of your own",
            )
        turned = across and frameworks[0] == PYTORCH
        sides = (golden, target) if turned else (target, golden)
        if self.layers:
            ordered = (frameworks[1], frameworks[0]) if turned else frameworks
            nodes = [side.pack.nodes for side in sides]
            partner, notes = self.layers.pair_calls(nodes[0], nodes[1], ordered)  # type: ignore[arg-type]
            keys = _keys_of_pairs(*sides, partner, [])
            keys.notes += notes
        else:
            keys = self._name_keys(*sides)
        if turned:
            keys = _turned(keys, len(target))
        if self.rows is not None:
            self._list_rows(keys, target, golden)
        return keys

    def _name_keys(self, side: Side, other: Side) -> Keys:
        translated = Translated(counted_names(side))
        notes: list[str] = []
        if self.cells or self.apis:
            translated = translate(side, other, self.cells, self.apis)
            notes += self.apis.notes if self.apis else []
        if not self.fuzzy:
            ours: Sequence[Key] = translated.keys(side) if self.cells or self.apis else side.keys
            return Keys(ours, other.keys, notes=notes)
        partner = fuzzy.pair_calls(side, other, translated.names)
        slots: list[Key] = list(side.slots)
        for row, slot in translated.slots.items():
            slots[row] = slot
        keys = _keys_of_pairs(side, other, partner, slots)
        theirs = np.array([*counted_names(other), ""], object)
        moved = (partner >= 0) & (np.array(translated.names, object) != theirs[partner])
        keys.by_place = set(np.flatnonzero(moved[side.index.node]).tolist())
        keys.notes = notes
        return keys

    def _list_rows(self, keys: Keys, target: Side, golden: Side) -> None:
        """Enter the pairs that the user lists."""
        table = self.rows or {}
        ours, theirs = (_row_of(side) for side in (target, golden))
        if sum(name in ours for name in table) < sum(name in theirs for name in table):
            table = {theirs_: ours_ for ours_, theirs_ in table.items()}
        unknown = [name for name in table if name not in ours]
        missing = [name for name in table.values() if name not in theirs and name != "N/A"]
        for name, other in table.items():
            for row in ours.get(name, ()):
                keys.listed[row] = theirs.get(other, [-1])[0]
        for side, found in (("target", unknown), ("golden", missing)):
            if found:
                shown = ", ".join(found[:3]) + (" ..." if len(found) > 3 else "")
                keys.notes.append(
                    f"data mapping: {len(found)} names are not in the {side} ({shown})"
                )


def _row_of(side: Side) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(side.names):
        rows.setdefault(name, []).append(row)
    return rows


def _keys_of_pairs(side: Side, other: Side, partner: np.ndarray, slots: list[Key]) -> Keys:
    """Keys from paired calls: a call's row on the other side, and the slot."""
    of_row = zip(partner[side.index.node].tolist(), slots or side.slots, strict=True)
    ours = [None if at < 0 or slot is None else f"{at}.{slot}" for at, slot in of_row]
    theirs = zip(other.index.node.tolist(), other.slots, strict=True)
    return Keys(ours, [names.tensor_name(str(at), slot) for at, slot in theirs])


def _turned(keys: Keys, count: int) -> Keys:
    """The keys with both sides swapped."""
    moved = {key for row, key in enumerate(keys.target) if row in keys.by_place}
    by_place = {row for row in range(count) if keys.golden[row] in moved}
    return Keys(keys.golden, keys.target, by_place=by_place, notes=keys.notes)
