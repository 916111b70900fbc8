"""The text of entries: the values of an index put into the frame that their structure gives.

Texts are those of ``json.dump(..., indent=1)``, which the official tool uses, to the byte. Values
are turned into text column by column, and calls of one structure share one template.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np

from msprobe_nb.formats.msprobe.structure import LITERAL, Structure, unescaped
from msprobe_nb.store.index import FLOAT, STATISTICS, Index, python_value
from msprobe_nb.store.jsonsafe import restore

_STATISTIC = {"Max": "max", "Min": "min", "Mean": "mean", "Norm": "norm"}
_NESTING = frozenset(("shape", "value"))  # their text depends on how deep they stand
_COLUMNS = frozenset(
    ("type", "dtype", "shape", *_STATISTIC, "requires_grad", "data_name", "md5", "value")
)
_FLAG = {-1: "null", 0: "false", 1: "true"}
quoted = encode_basestring_ascii  # a text as JSON, in quotation marks
Slot = tuple[str, int]  # a key and, for the keys of `_NESTING`, a depth


def json_text(value: Any, depth: int = 0) -> str:
    """A value as ``json.dump`` writes it `depth` levels deep with an indent of 1."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    text = json.dumps(value, indent=1)
    return text.replace("\n", "\n" + " " * depth) if depth and "\n" in text else text


@dataclass(frozen=True, slots=True)
class Template:
    """The text of an entry with gaps.

    Attributes
    ----------
    text : str
        A format for the ``%`` operator.
    gaps : list of (slot, int)
        What stands in each gap: a column and the number of a leaf.
    """

    text: str
    gaps: list[tuple[Slot, int]]

    @classmethod
    def of(cls, structure: Structure, depth: int) -> Template:
        """The template of a structure `depth` levels deep in its file."""
        builder = _Builder(structure.forms)
        builder.put(structure.outline, depth)
        return cls("".join(builder.parts), builder.gaps)


class _Builder:
    def __init__(self, forms: Sequence[Any]) -> None:
        self.forms = forms
        self.parts: list[str] = []
        self.gaps: list[tuple[Slot, int]] = []

    def write(self, text: str) -> None:
        self.parts.append(text.replace("%", "%%"))

    def put(self, outline: Any, depth: int) -> None:
        if isinstance(outline, list):
            self._enclose("[]", [("", child) for child in outline], depth)
        elif not isinstance(outline, dict):
            self._leaf(outline, depth)
        elif set(outline) == {LITERAL}:
            self.write(json_text(restore(outline[LITERAL]), depth))
        else:
            items = unescaped(outline).items()
            self._enclose("{}", [(f"{quoted(key)}: ", child) for key, child in items], depth)

    def _enclose(self, brackets: str, items: list[tuple[str, Any]], depth: int) -> None:
        if not items:
            self.write(brackets)
            return
        before = f"{brackets[0]}\n" + " " * (depth + 1)
        for label, child in items:
            self.write(before + label)
            self.put(child, depth + 1)
            before = ",\n" + " " * (depth + 1)
        self.write("\n" + " " * depth + brackets[1])

    def _leaf(self, number: int, depth: int) -> None:
        form = self.forms[number]
        if form is None:
            self.write("null")
        elif isinstance(form, dict):
            self.write(json_text(restore(form[LITERAL]), depth))
        else:
            before = "{\n" + " " * (depth + 1)
            for item in form:
                key, *literal = [item] if isinstance(item, str) else item
                self.write(f"{before}{quoted(key)}: ")
                if literal:
                    self.write(json_text(restore(literal[0]), depth + 1))
                elif key not in _COLUMNS:
                    raise ValueError(f"the key {key!r:.80} has no value")
                else:
                    self.parts.append("%s")
                    self.gaps.append(((key, depth + 1 if key in _NESTING else 0), number))
                before = ",\n" + " " * (depth + 1)
            self.write("\n" + " " * depth + "}")


class Columns:
    """The texts of an index's values.

    Parameters
    ----------
    index : Index
    data_names : list of (str or None)
        File name of every row.
    dtype_prefix : str
        Stands before data types that were recorded without one, such as ``torch.``.
    """

    def __init__(
        self, index: Index, data_names: Sequence[str | None], dtype_prefix: str = ""
    ) -> None:
        self.index, self.data_names = index, data_names
        self.types = [quoted(text) for text in index.type.values]
        self.dtypes = [
            quoted(text if "." in text or not text.islower() else dtype_prefix + text)
            for text in index.dtype.values
        ]
        self.shapes: dict[int, list[str]] = {}
        self.exact: dict[int, dict[int, Any]] = {}
        for flat, value in index.statistics.exact.items():
            row, at = divmod(flat, len(STATISTICS))
            self.exact.setdefault(row, {})[at] = value

    def texts(self, slot: Slot, rows: np.ndarray) -> list[str]:
        """The texts of one column at `rows`."""
        key, depth = slot
        index = self.index
        if key == "type":
            return [self.types[code] for code in index.type.codes[rows].tolist()]
        if key == "dtype":
            return [self.dtypes[code] for code in index.dtype.codes[rows].tolist()]
        if key == "shape":
            return self._shapes(rows, depth)
        if key in _STATISTIC:
            return self._statistic(rows, STATISTICS.index(_STATISTIC[key]))
        if key == "requires_grad":
            return [_FLAG[flag] for flag in index.requires_grad[rows].tolist()]
        if key == "value":
            return [json_text(index.value.get(row), depth) for row in rows.tolist()]
        column = self.data_names if key == "data_name" else index.checksum
        return [json_text(column[row]) for row in rows.tolist()]

    def _shapes(self, rows: np.ndarray, depth: int) -> list[str]:
        if depth not in self.shapes:
            self.shapes[depth] = [json_text(shape, depth) for shape in self.index.shape.values]
        texts = self.shapes[depth]
        found = [texts[code] for code in self.index.shape.codes[rows].tolist()]
        if self.index.detail:
            for at, row in enumerate(rows.tolist()):
                recorded = self.index.detail.get(row, {}).get("recorded_shape")
                if recorded is not None:
                    found[at] = json_text(recorded, depth)
        return found

    def _statistic(self, rows: np.ndarray, at: int) -> list[str]:
        number, kind = self.index.statistics.number[rows, at], self.index.statistics.kind[rows, at]
        texts = list(map(repr, number.tolist()))  # as json.dump prints a float
        for place in np.flatnonzero((kind != FLOAT) | ~np.isfinite(number)).tolist():
            texts[place] = json_text(python_value(float(number[place]), int(kind[place])))
        if self.exact:
            for place, row in enumerate(rows.tolist()):
                if at in self.exact.get(row, ()):
                    texts[place] = json_text(self.exact[row][at])
        return texts
