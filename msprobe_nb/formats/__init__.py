"""Reading what others wrote, and opening anything that is a run."""

from __future__ import annotations

import os
from typing import Any

from msprobe_nb.errors import NotARunError
from msprobe_nb.store import Run, is_store, open_store
from msprobe_nb.store.sources import (
    LocalSource,
    Source,
    check_options,
    is_url,
    local_path,
    open_source,
)


def open_run(path: str | os.PathLike[str] | Run, *, salvage: bool = False, **options: Any) -> Run:
    """Open a run: our store or what another tool recorded, local, zipped or at a URL.

    Parameters
    ----------
    path : path, URL or Run
        A run store, a dump folder (the root, one ``step``, one ``rank`` or ``proc`` folder), a
        ``dump.json`` or ``debug.json``, a folder with ``rank_<r>/<net>/<graph>/<step>`` kernel
        dumps or ``data/<tag>/step<i>/rank<j>`` arrays, a ``.zip`` of these, or any fsspec URL. A
        Run is returned unchanged.
    salvage : bool
        Read the whole entries of a truncated ``dump.json`` instead of refusing it.
    **options
        Passed to the fsspec file system of a URL.

    Returns
    -------
    Run
        Opened lazily: only folder names are read here.

    Raises
    ------
    PathNotFoundError
        Nothing exists there.
    NotARunError
        Something exists that is neither.
    UnreachableError
        A URL that cannot be read, or a broken archive.
    UsageError
        Options are given although the path is no URL.
    """
    if isinstance(path, Run):
        check_options(path.url, options)
        return path
    from msprobe_nb.formats.msprobe.original import DEBUG, DUMP
    from msprobe_nb.formats.msprobe.tree import OfficialTree, find_packs, single_file

    text = local_path(path)
    folder, _, name = text.rpartition("/")
    tree: OfficialTree | None
    if is_url(text) and name in (DUMP, DEBUG):
        tree = single_file(open_source(folder, **options), name, salvage=salvage)
    elif os.path.isfile(text) and not text.lower().endswith(".zip"):
        check_options(text, options)
        folder, name = os.path.split(text)
        tree = single_file(LocalSource(folder or "."), name, salvage=salvage)
    else:
        source = open_source(text, **options)
        if is_store(source):
            return open_store(source)
        found = find_packs(source, salvage=salvage)
        if found is None:
            return _open_arrays(source, text)
        tree = found
    return Run(tree.packs, text, kind="msprobe", depth=tree.depth, notes=tree.notes)


def _open_arrays(source: Source, url: str) -> Run:
    """A folder of plain arrays whose names say what they are."""
    from msprobe_nb.formats.mindspore.kernel_pack import find_kernel_packs
    from msprobe_nb.formats.single_save import find_saved

    saved = find_saved(source)
    if saved is not None:
        return Run(saved.packs(), url, kind="saved", notes=saved.notes)
    kernel = find_kernel_packs(source)
    if kernel is not None:
        return Run(kernel[0], url, kind="mindspore", depth=kernel[1])
    raise NotARunError(
        "neither a run store nor a dump folder (no zarr.json, dump.json or step folders)",
        file=url,
        remedy="Open the folder that holds step0, step1 ..., or list what is there with the "
        "command ls",
    )
