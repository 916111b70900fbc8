"""Copying a pack of a run store byte for byte, and telling whether a pack is such a copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from msprobe_nb.store.reader import StorePack
from msprobe_nb.store.sources import Source
from msprobe_nb.store.writer import recover

_PIECE = 64 << 20


def copy_pack(pack: StorePack, folder: Path) -> None:
    """Copy a pack, compound tensors, edges and all; an unfinished one is completed.

    The copy appears in one piece: until it is whole it has another name, which readers ignore.

    Parameters
    ----------
    pack : StorePack
    folder : Path
        ``<run>/step<N>/rank<R>``.
    """
    growing = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(growing, ignore_errors=True)
    for path in pack.source.files():
        target = growing / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            for piece in _pieces(pack.source, path):
                file.write(piece.data)
    if not pack.complete:
        recover(growing)
    os.replace(growing, folder)


def same_pack(one: StorePack, other: StorePack) -> bool:
    """Whether two packs hold the same, byte for byte; of an unfinished one only the rows count."""
    if not (one.complete and other.complete):
        return one.index.name == other.index.name
    paths = list(one.source.files())
    return paths == list(other.source.files()) and all(
        one.source.size(path) == other.source.size(path)
        and all(
            np.array_equal(ours, theirs)
            for ours, theirs in zip(
                _pieces(one.source, path), _pieces(other.source, path), strict=True
            )
        )
        for path in paths
    )


def _pieces(source: Source, path: str) -> Iterator[np.ndarray]:
    """The bytes of a file, as much at a time as memory easily holds."""
    size = source.size(path) or 0
    for start in range(0, size, _PIECE):
        yield source.read_range(path, start, min(_PIECE, size - start))
