"""The pairs of a comparison as a data mapping, the table that ``data_mapping`` takes."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.sides import NOT_AVAILABLE
from msprobe_nb.store.layout import make_folder, write_atomic

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison


def data_mapping(part: Part) -> dict[str, str]:
    """Target name -> golden name of one step and rank, ``N/A`` without partner."""
    theirs = [*part.golden.names, NOT_AVAILABLE]
    partner = part.pairs.golden.tolist()
    return {name: theirs[row] for name, row in zip(part.target.names, partner, strict=True)}


def write_data_mapping(comparison: Comparison, folder: str | os.PathLike[str]) -> list[Path]:
    """See :meth:`Comparison.write_data_mapping`."""
    import yaml

    stamp = datetime.now().strftime("%Y%m%d%H%M%S")
    written = []
    for part in comparison.parts:
        place = Path(folder)
        if len(comparison.steps) > 1:
            place /= f"step{part.step}"
        label = f"{part.target.pack.label}_" if len(comparison.parts) > 1 else ""
        path = place / f"data_mapping_{label}{stamp}.yaml"
        make_folder(place)
        text = yaml.safe_dump(data_mapping(part), sort_keys=False, allow_unicode=True, width=10**9)
        write_atomic(path, text.encode())
        written.append(path)
    return written
