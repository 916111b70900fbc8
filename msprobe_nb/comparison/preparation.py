"""What is done to tensor values before they are compared.

*Padding*: some operators fill only the first rows of their outputs and leave garbage in the rest;
an argument says how many rows count. The others are set to 0 on both sides.

*Products*: values that one side recorded in another basis are multiplied by matrices of the user,
``x @ M`` or ``M @ x`` (specification 02, section 4.6).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.yaml_file import Mapping as Table
from msprobe_nb.comparison.yaml_file import read_yaml
from msprobe_nb.errors import FormatError, MsProbeError
from msprobe_nb.formats.tensor_file import read_tensor_file
from msprobe_nb.store.dtypes import widen
from msprobe_nb.store.index import INPUT, OUTPUT
from msprobe_nb.store.pack import Pack
from msprobe_nb.store.sources import open_source

TARGET, GOLDEN = "target", "golden"
ValidRows = Mapping[str, str | Callable[[dict[str, np.ndarray]], int]]
# Part of an API's name -> keyword argument whose sum is the number of rows that count.
VALID_ROWS: dict[str, str] = {
    "npu_dequant_swiglu_quant": "group_index",
    "npu_grouped_matmul": "group_list",
}
RIGHT, LEFT = "right", "left"
# Sections of the file in the order in which they act, with their keys.
_SECTIONS = {
    "right_matmul": {f"{side}_tensor_map": (RIGHT, side) for side in (TARGET, GOLDEN)},
    "left_matmul": {f"{side}_tensor_map": (LEFT, side) for side in (TARGET, GOLDEN)},
    "left_right_matmul": {
        f"{hand}_{side}_tensor_map": (hand, side)
        for hand in (LEFT, RIGHT)
        for side in (TARGET, GOLDEN)
    },
}


@dataclass(slots=True)
class Products:
    """The matrices to multiply by.

    Attributes
    ----------
    steps : dict
        Side -> {data file name: [(``left`` or ``right``, path of the matrix), ...]}.
    folder : Path
        Where relative paths may start besides the current folder.
    notes : list of str
    """

    steps: dict[str, dict[str, list[tuple[str, str]]]]
    folder: Path = field(default_factory=Path)
    notes: list[str] = field(default_factory=list)
    _matrices: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, argument: Table | None) -> Products:
        """From a ``config`` argument.

        Raises
        ------
        FormatError, PathNotFoundError
            It is no such table.
        """
        found = cls({TARGET: {}, GOLDEN: {}})
        if argument is None:
            return found
        content, where = read_yaml(argument, "post-processing table")
        _check_form(content or {}, where)
        if isinstance(argument, (str, os.PathLike)):
            found.folder = Path(argument).parent
        for section in content or {}:
            if section not in _SECTIONS:
                found.notes.append(f"{where}: unknown section {section!r}, left out")
        for section, known in _SECTIONS.items():
            tables = (content or {}).get(section) or {}
            for key in tables:
                if key not in known:
                    found.notes.append(f"{where}: unknown key {key!r} in {section}, left out")
            for key, (hand, side) in known.items():
                for matrix, data_names in (tables.get(key) or {}).items():
                    listed = data_names if isinstance(data_names, list) else [data_names]
                    for data_name in listed:
                        steps = found.steps[side].setdefault(str(data_name), [])
                        steps.append((hand, str(matrix)))
        return found

    def apply(self, side: str, data_name: str | None, array: np.ndarray) -> tuple[np.ndarray, str]:
        """The array after its products, and what was done; failing ones are left out and told."""
        done = []
        for hand, path in self.steps[side].get(data_name or "", ()):
            try:
                matrix, value = widen(self._matrix(path)), np.squeeze(widen(array))
                array = matrix @ value if hand == LEFT else value @ matrix
                done.append(f"multiplied by {path} from the {hand}")
            except (MsProbeError, ValueError, TypeError) as error:
                done.append(f"not multiplied by {path} from the {hand} ({error!s:.120})")
        return array, f"{side} {', '.join(done)}" if done else ""

    def _matrix(self, path: str) -> np.ndarray:
        if path not in self._matrices:
            place = Path(path) if Path(path).is_file() else self.folder / path
            self._matrices[path] = read_tensor_file(open_source(place.parent), place.name)
        return self._matrices[path]


def _check_form(content: Any, where: str) -> None:
    """Refuse a table that is not ``{section: {key: {matrix: names}}}``."""
    if isinstance(content, dict):
        sections = [value for key, value in content.items() if key in _SECTIONS and value]
        if all(
            isinstance(section, dict)
            and all(isinstance(table or {}, dict) for table in section.values())
            for section in sections
        ):
            return
    raise FormatError(
        "the post-processing table has another form",
        file=where,
        remedy="Write sections such as right_matmul, in them target_tensor_map and "
        "golden_tensor_map, in these the path of a matrix and a list of data file names",
    )


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done to the values of one pair of packs.

    Attributes
    ----------
    products : Products
    valid : dict
        Side -> {row: number of rows that count, or why it is not known}.
    """

    products: Products
    valid: dict[str, dict[int, int | str]]

    @classmethod
    def of(
        cls, target: Pack, golden: Pack, products: Products, valid_rows: ValidRows
    ) -> Preparation | None:
        """For one pair of packs; None when nothing is to be done."""
        valid = {
            side: valid_rows_of(pack, valid_rows)
            for side, pack in ((TARGET, target), (GOLDEN, golden))
        }
        any_products = products.steps[TARGET] or products.steps[GOLDEN]
        return cls(products, valid) if any_products or valid[TARGET] or valid[GOLDEN] else None

    def apply(self, side: str, pack: Pack, row: int, array: np.ndarray) -> tuple[np.ndarray, str]:
        """The values to compare, and what was done to them; an empty text for nothing."""
        told = []
        limit = self.valid[side].get(row)
        if isinstance(limit, str):
            told.append(limit)
        elif limit is not None and array.ndim and array.shape[0] > limit:
            array = array.copy()
            array[limit:] = 0
            told.append(f"{side} rows from {limit} on are padding and count as 0")
        array, done = self.products.apply(side, pack.index.data_name[row], array)
        return array, "; ".join([*told, done] if done else told)


def valid_rows_of(pack: Pack, valid_rows: ValidRows) -> dict[int, int | str]:
    """For each output of a padding operator: how many of its rows count, or why nobody knows.

    Parameters
    ----------
    pack : Pack
    valid_rows : mapping
        Part of an API's name -> keyword argument whose sum is the number, or a function of the
        recorded keyword arguments that gives it.
    """
    found: dict[int, int | str] = {}
    if not valid_rows:
        return found
    index = pack.index
    for at, name in enumerate(pack.nodes.name):
        api = next((api for api in valid_rows if api in name), None)
        if api is None:
            continue
        rows = np.flatnonzero(index.node == at)
        outputs = rows[index.role[rows] == OUTPUT].tolist()
        inputs = {
            names.slot_parts(names.slot_of(index.name[row], name))[1]: row
            for row in rows[(index.role[rows] == INPUT) & index.has_data[rows]].tolist()
        }
        limit = _valid(pack, inputs, valid_rows[api])
        found |= dict.fromkeys(outputs, limit) if limit is not None else {}
    return found


def _valid(pack: Pack, inputs: dict[str, int], rule: Any) -> int | str | None:
    try:
        if callable(rule):
            limit = rule({place: widen(pack.read(row)) for place, row in inputs.items()})
        elif rule not in inputs:
            return None
        else:
            lengths = pack.read(inputs[rule])
            if lengths.dtype.kind not in "iub":
                return f"padding not removed: {rule} is {lengths.dtype}, expected integers"
            limit = int(lengths.sum())
        return int(limit) if limit >= 0 else f"padding not removed: {limit} rows would count"
    except Exception as error:  # also a user's function; the comparison goes on without it
        return f"padding not removed: {error!s:.120}"
