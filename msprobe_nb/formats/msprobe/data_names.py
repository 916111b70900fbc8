"""Names of data files: those that were recorded where they are safe, official ones elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import blake2b
from typing import Any

from msprobe_nb.formats.tensor_file import NUMPY, TORCH
from msprobe_nb.store.index import Index

_UNUSUAL = re.compile(r"[^A-Za-z0-9_.\-]")  # characters that the official tool refuses in paths
_LONGEST, _MAX_BYTES = 180, 255


class DataNames:
    """The file name of each row of an index.

    Parameters
    ----------
    index : Index
    framework : any
        As recorded; MindSpore keeps ``.npy`` files.

    Attributes
    ----------
    names : list of (str or None)
        None where a row has no data file.
    shared : set of str
        Names that several rows have.
    notes : list of str
        Which names were replaced, and why.
    """

    def __init__(self, index: Index, framework: Any) -> None:
        self.index = index
        self.extension = NUMPY[0] if framework == "mindspore" else TORCH[0]
        self.names = list(index.data_name)
        self.notes: list[str] = []
        self._claimed: set[str] = set()
        counts = Counter(name for name in self.names if name is not None)
        self._taken = set(counts)
        self.shared = {name for name, count in counts.items() if count > 1}
        for row, name in enumerate(self.names):
            if name is None:
                if index.has_data[row]:
                    self.names[row] = self._official(row)
            elif not is_safe(name) or (index.has_data[row] and not name.endswith(TORCH + NUMPY)):
                self.names[row] = self._official(row)
                self.notes.append(
                    f"{index.name[row]}: the data file {name!r:.80} is no safe file name, "
                    f"{self.names[row]} instead"
                )

    def rename(self, row: int) -> str:
        """Give a row a name of its own."""
        self.names[row] = name = self._official(row)
        return name

    def claim(self, name: str) -> bool:
        """Whether nobody claimed this name before."""
        first = name not in self._claimed
        self._claimed.add(name)
        return first

    def _official(self, row: int) -> str:
        """``<row name>.pt``, shortened or numbered where it must be."""
        text = self.index.name[row]
        stem = _UNUSUAL.sub("_", text)
        if len(stem) > _LONGEST:
            mark = blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
            stem = f"{stem[:_LONGEST]}.{mark}"
        name, number = stem + self.extension, 0
        while name in self._taken:
            number += 1
            name = f"{stem}.{number}{self.extension}"
        self._taken.add(name)
        return name


def is_safe(name: str) -> bool:
    """Whether a recorded name is that of one file inside the data folder."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return name not in (".", "..") and not set(name) & set("/\\\0") and 0 < size <= _MAX_BYTES
