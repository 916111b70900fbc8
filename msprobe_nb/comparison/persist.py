"""Saving a comparison and reading it back.

A saved comparison is a Zarr group. It holds the names, arguments and statistics of both runs as
packs without data (the format of a run store) and what was measured as arrays, so it opens and is
judged without the runs; only tensor values are still read from where they were recorded.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from msprobe_nb.comparison.cells import Metric
from msprobe_nb.comparison.match import Pairs, match
from msprobe_nb.comparison.part import Part, start_part
from msprobe_nb.comparison.result import Comparison
from msprobe_nb.comparison.sides import Side, side_of
from msprobe_nb.comparison.verdict import Thresholds
from msprobe_nb.errors import DamagedStoreError, NotARunError, TensorReadError, UsageError
from msprobe_nb.store import jsonsafe, layout
from msprobe_nb.store.finish import write_pack
from msprobe_nb.store.open import read_attributes
from msprobe_nb.store.pack import Pack
from msprobe_nb.store.reader import StorePack
from msprobe_nb.store.sources import Source, local_path, open_source

if TYPE_CHECKING:
    from msprobe_nb.store.run import Run

_NOISE = "noise"
_PAIRS = {  # arrays that hold who belongs to whom
    "golden": "<i8",
    "gated": "<i8",
    "repeated": "|b1",
    "golden_only": "<i8",
    "by_place": "|b1",
}


def save(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Save a comparison; see :meth:`Comparison.save`.

    Raises
    ------
    UsageError
        Something that is no saved comparison stands at `path`.
    """
    target = Path(local_path(path))
    if target.exists() and not target.is_dir():
        raise UsageError("this is a file", file=target, remedy="Choose a folder")
    if target.exists() and any(target.iterdir()):
        raise UsageError("the folder is not empty", file=target, remedy="Choose another one")
    layout.make_folder(target)
    for number, part in enumerate(comparison.parts):
        _save_part(target / f"part{number}", part)
    if comparison.noise is not None:
        save(comparison.noise, target / _NOISE)
    attributes = {
        "format": layout.COMPARISON_FORMAT,
        "version": layout.VERSION,
        "target": comparison.target_url,
        "golden": comparison.golden_url,
        "rules": comparison.rules,
        "parts": len(comparison.parts),
        "thresholds": msgspec.to_builtins(comparison.thresholds),
        "noise": comparison.noise is not None,
        "unfinished": comparison.unfinished,
        "complete": comparison.complete,
        "paired_by": comparison.paired_by,
        "notes": comparison.notes,
    }
    layout.write_atomic(target / layout.GROUP, layout.group_metadata(attributes))
    return target


def _save_part(folder: Path, part: Part) -> None:
    for side, pack in (("target", part.target.pack), ("golden", part.golden.pack)):
        info = pack.info
        facts = {
            "step": pack.step,
            "rank": pack.rank,
            "label": pack.label,
            "task": info.task,
            "level": info.level,
            "framework": info.framework,
            "where": pack.where,
        }
        write_pack(folder / side, pack.index, pack.nodes, facts)
        layout.write_array(folder, f"{side}_has_data", pack.index.has_data, ["row"])
    rows = len(part)
    metrics = list(part.metrics)
    number, mark = np.empty((rows, len(metrics))), np.empty((rows, len(metrics)), np.uint8)
    for at, metric in enumerate(part.metrics.values()):
        number[:, at], mark[:, at] = metric.number, metric.mark
    layout.write_array(folder, "metric", number, ["row", "column"], metrics)
    layout.write_array(folder, "mark", mark, ["row", "column"], metrics)
    layout.write_array(folder, "status", part.status, ["row"])
    pairs = part.pairs
    for name in _PAIRS:
        dims = ["golden_row" if name == "golden_only" else "row"]
        layout.write_array(folder, f"pair_{name}", getattr(pairs, name), dims)
    attributes = {
        "mode": part.mode,
        "golden_only": len(pairs.golden_only),
        "custom": jsonsafe.replace(part.custom),
        "metrics": metrics,
        "percent": [metric.percent for metric in part.metrics.values()],
        "note": {str(row): text for row, text in part.note.items()},
    }
    layout.write_atomic(folder / layout.GROUP, layout.group_metadata(attributes))


def load_comparison(path: str | os.PathLike[str]) -> Comparison:
    """Read a saved comparison.

    Parameters
    ----------
    path : path or URL

    Raises
    ------
    NotARunError
        No saved comparison stands there.
    DamagedStoreError
        It is incomplete or broken.
    """
    return _load(open_source(path))


def _load(source: Source) -> Comparison:
    attributes = read_attributes(source) or {}
    if attributes.get("format") != layout.COMPARISON_FORMAT:
        raise NotARunError(
            "no saved comparison stands here",
            file=source.url,
            remedy="Give a folder that Comparison.save wrote; runs are opened with msprobe_nb.open",
        )
    try:
        parts = [
            _load_part(source.child(f"part{number}"), attributes)
            for number in range(attributes["parts"])
        ]
        comparison = Comparison(
            attributes["target"],
            attributes["golden"],
            parts,
            rules=attributes.get("rules", "msprobe"),
            thresholds=Thresholds(**attributes["thresholds"]),
            notes=attributes["notes"],
        )
    except (KeyError, TypeError, ValueError, OSError, msgspec.MsgspecError) as error:
        raise DamagedStoreError(
            f"the saved comparison is damaged ({error!s:.120})",
            file=source.url,
            remedy="Compare the runs again",
        ) from error
    comparison.complete = bool(attributes["complete"])
    comparison.unfinished = int(attributes.get("unfinished", 0))
    if attributes.get("noise"):
        comparison.noise = _load(source.child(_NOISE))
    comparison.paired_by = str(attributes.get("paired_by", ""))
    return comparison


class _SavedPack(StorePack):
    """A pack inside a saved comparison: its tensor values are where it was recorded."""

    def __init__(self, source: Source, step: int, rank: int, run_url: str) -> None:
        super().__init__(source, step, rank)
        self.run_url = run_url
        self.where = str(self.attributes.get("where", source.url))

    def __reduce__(self) -> tuple[Any, ...]:
        return _SavedPack, (self.source, self.step, self.rank, self.run_url)

    @cached_property
    def _recorded(self) -> Pack:
        from msprobe_nb.formats import open_run

        run: Run = open_run(self.run_url)
        return run.pack(self.step, self.rank)

    def _load(self, row: int) -> np.ndarray:
        names = self._recorded.index.name
        if row < len(names) and names[row] == self.index.name[row]:
            return self._recorded.read(row)
        raise TensorReadError(
            f"{self.index.name[row]} is not where it was: the run was changed after the comparison",
            file=self.where,
            remedy="Compare the runs again",
        )


def _load_part(source: Source, attributes: dict[str, Any]) -> Part:
    facts = read_attributes(source) or {}
    sides = []
    for side in ("target", "golden"):
        child = source.child(side)
        place = read_attributes(child) or {}
        pack = _SavedPack(child, int(place["step"]), int(place["rank"]), attributes[side])
        pack.index.has_data = _array(source, f"{side}_has_data", "|b1", (len(pack.index),))
        sides.append(side_of(pack))
    part = start_part(sides[0], sides[1], facts["mode"], _load_pairs(source, facts, sides))
    rows, names = len(part), facts["metrics"]
    number = _array(source, "metric", "<f8", (rows, len(names)))
    mark = _array(source, "mark", "u1", (rows, len(names)))
    part.metrics = {
        name: Metric(number[:, at], mark[:, at], percent=facts["percent"][at])
        for at, name in enumerate(names)
    }
    part.status = _array(source, "status", "u1", (rows,)).copy()
    part.note = {int(row): text for row, text in facts["note"].items()}
    part.custom = jsonsafe.restore(facts.get("custom", {}))
    return part


def _load_pairs(source: Source, facts: dict[str, Any], sides: list[Side]) -> Pairs:
    """The pairs as they were made; an older file holds none, then names decide."""
    if "golden_only" not in facts:
        return match(sides[0], sides[1])
    sizes = dict.fromkeys(_PAIRS, len(sides[0])) | {"golden_only": int(facts["golden_only"])}
    found = {
        name: _array(source, f"pair_{name}", dtype, (sizes[name],)).copy()
        for name, dtype in _PAIRS.items()
    }
    pairs = Pairs(
        found["golden"], found["gated"], found["repeated"], found["golden_only"], found["by_place"]
    )
    for rows in (pairs.golden, pairs.gated, pairs.golden_only):
        if len(rows) and not -1 <= rows.min() <= rows.max() < len(sides[1]):
            raise ValueError("a pair names a golden row that does not exist")
    return pairs


def _array(source: Source, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if 0 in shape:
        return np.empty(shape, dtype)
    stored = source.read(f"{name}/c/{'/'.join('0' * len(shape))}")
    return np.frombuffer(layout.without_checksum(stored), dtype).reshape(shape)
