"""Several tables of one kind with the notes that belong to them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class Tables(dict[str, "pd.DataFrame"]):
    """Name -> DataFrame; shows itself in a notebook as tables one below the other.

    Attributes
    ----------
    notes : list of str
        What the user should know besides the tables.
    """

    def __init__(self, tables: Mapping[str, pd.DataFrame], notes: Sequence[str] = ()) -> None:
        super().__init__(tables)
        self.notes = list(notes)

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(note)}</p>" for note in self.notes]
        for name, table in self.items():
            parts.append(f"<h4>{html.escape(name)}</h4>")
            parts.append(table.to_html(escape=True, max_rows=40, index=False))
        return "".join(parts)
