"""Rewriting the names of one side into those of the other: cell and API mapping.

Rules: specification 02, sections 3.5 and 3.7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msprobe_nb import names
from msprobe_nb.comparison.pairing.api_table import APIS, PREFIXES
from msprobe_nb.comparison.sides import Side
from msprobe_nb.comparison.yaml_file import Mapping, read_yaml, text_table
from msprobe_nb.errors import FormatError

ROLES = ("args", "output", "parameters", "parameters_grad")
_ROLE_OF_SLOT = {"input": "args", "output": "output", "parameters": "parameters"}
_MODULES = {"Cell": "Module"}


@dataclass(slots=True)
class Translated:
    """The calls of one side under names of the other.

    Attributes
    ----------
    names : list of str
        Name of each call, backward calls counted as in :attr:`Side.renumbered`.
    slots : dict
        Row -> slot on the other side, or None for a row that a user's table leaves out.
    """

    names: list[str]
    slots: dict[int, str | None] = field(default_factory=dict)

    def keys(self, side: Side) -> list[str | None]:
        """The matching key of each row; None for a row without partner."""
        slots: list[str | None] = list(side.slots)
        for row, slot in self.slots.items():
            slots[row] = slot
        of_row = zip(slots, side.index.node.tolist(), strict=True)
        return [None if s is None else names.tensor_name(self.names[at], s) for s, at in of_row]


def counted_names(side: Side) -> list[str]:
    """The names of a side's calls, repeated backward calls counted."""
    return [side.renumbered.get(at, name) for at, name in enumerate(side.pack.nodes.name)]


@dataclass(frozen=True, slots=True)
class CellMapping:
    """Rewrites module names: ``Cell`` becomes ``Module``, then a user's table.

    Attributes
    ----------
    table : dict
        ``path.Class`` or a part of it -> what the other side has there.
    """

    table: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, argument: Mapping | bool) -> CellMapping:
        """From a ``cell_mapping`` argument."""
        return cls() if argument is True else cls(text_table(argument, "cell mapping"))  # type: ignore[arg-type]

    def rename(self, components: tuple[str, ...]) -> tuple[str, ...]:
        """The components of a module's name on the other side."""
        head, *rest = components
        if not rest:
            return components
        path = ".".join(rest)
        if path in self.table:
            path = self.table[path]
        else:
            for part, other in self.table.items():
                path = path.replace(part, other, 1)
        return _MODULES.get(head, head), *path.split(".")


@dataclass(frozen=True, slots=True)
class ApiEntry:
    """One entry of a user's API table.

    Attributes
    ----------
    ours, theirs : str
        First two components of the name on the MindSpore and on the PyTorch side.
    places : dict
        Role -> {place on the MindSpore side: place on the PyTorch side}.
    """

    ours: str
    theirs: str
    places: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class ApiMapping:
    """Rewrites API names: a user's entries, then the built-in table.

    Attributes
    ----------
    entries : dict of str to ApiEntry
    notes : list of str
        Entries that were left out, and why.
    """

    entries: dict[str, ApiEntry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, argument: Mapping | bool) -> ApiMapping:
        """From an ``api_mapping`` argument: a list of entries or a single one.

        Raises
        ------
        FormatError
            An entry without ``ms_api`` and ``pt_api``.
        """
        if argument is True:
            return cls()
        content, where = read_yaml(argument, "api mapping")  # type: ignore[arg-type]
        found = content if isinstance(content, list) else [content] if content else []
        entries: dict[str, ApiEntry] = {}
        notes: list[str] = []
        for number, raw in enumerate(found, 1):
            if not isinstance(raw, dict) or not {"ms_api", "pt_api"} <= set(raw):
                raise FormatError(
                    f"entry {number} of the api mapping names no ms_api and pt_api",
                    file=where,
                    remedy="Each entry needs both, such as Functional.relu and Torch.relu",
                )
            places, unequal = _places(raw)
            if unequal:
                notes.append(
                    f"api mapping {raw['ms_api']}: left out, since {unequal} has not as many "
                    "places on both sides"
                )
            else:
                ours, theirs = str(raw["ms_api"]), str(raw["pt_api"])
                entries[ours] = ApiEntry(ours, theirs, places)
        return cls(entries, notes)

    def rename(self, components: tuple[str, ...], present: set[str]) -> tuple[str, ...]:
        """The components of an API's name on the other side.

        Parameters
        ----------
        components : tuple of str
        present : set of str
            APIs that the other side has; entries for others do not count.
        """
        api = api_of(components)
        entry = self.entries.get(api)
        if entry and entry.theirs in present:
            # a primitive is recorded as attribute and class; PyTorch knows no such pair
            rest = () if components[0] == "Primitive" else components[2:]
            return (*entry.theirs.split("."), *rest)
        if components[0] in PREFIXES:
            return PREFIXES[components[0]], *components[1:]
        return (*APIS.get(api, api).split("."), *components[2:])

    def slot(self, api: str, phase: str, slot: str) -> str | None:
        """The slot on the other side; None when the user's entry does not list it."""
        places = self.entries[api].places
        if phase == names.PARAMETERS_GRAD:
            return places["parameters_grad"].get(slot)
        role, place = names.slot_parts(slot)
        other = places.get(_ROLE_OF_SLOT.get(role, ""), {}).get(place)
        return None if other is None else f"{role}.{other}"


def api_of(components: tuple[str, ...]) -> str:
    """The first two components: what tables of APIs speak of."""
    return ".".join(components[:2])


def _places(raw: dict[str, Any]) -> tuple[dict[str, dict[str, str]], str]:
    """The places of each role, and the first role whose lists are unequal."""
    places: dict[str, dict[str, str]] = {}
    for role in ROLES:
        sides = []
        for side in ("ms", "pt"):
            keys = (f"{side}_{role}", f"{side}_{role}s")  # both spellings are in use
            value: Any = next((raw[key] for key in keys if raw.get(key) is not None), [])
            sides.append([str(place) for place in (value if isinstance(value, list) else [value])])
        if len(sides[0]) != len(sides[1]):
            return {}, role
        places[role] = dict(zip(*sides, strict=True))
    return places, ""


def translate(
    side: Side, other: Side, cells: CellMapping | None, apis: ApiMapping | None
) -> Translated:
    """The calls of `side` under the names of `other`."""
    present = {api_of(node.components) for node in other.pack.nodes.parsed} if apis else set()
    counted = counted_names(side)
    result = Translated([])
    special: dict[int, str] = {}
    for at, (name, node) in enumerate(zip(counted, side.pack.nodes.parsed, strict=True)):
        components = node.components
        if node.kind == "module" and cells:
            renamed = cells.rename(components)
        elif node.kind not in ("module", "debug") and apis and len(components) > 1:
            renamed = apis.rename(components, present)
            entry = apis.entries.get(api_of(components))
            if entry and entry.theirs in present:
                special[at] = entry.ours
        else:
            renamed = components
        if renamed != components:
            name = names.parse(name).with_components(renamed)
        result.names.append(name)
    if special and apis:
        for row, at in enumerate(side.index.node.tolist()):
            if at in special:
                phase = side.pack.nodes.parsed[at].phase
                result.slots[row] = apis.slot(special[at], phase, side.slots[row])
    return result
