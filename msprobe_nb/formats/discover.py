"""What runs are there below a folder?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_nb.errors import MsProbeError
from msprobe_nb.store import Run, layout
from msprobe_nb.text import brief, size

if TYPE_CHECKING:
    import pandas as pd

_SKIPPED = {"node_modules", "__pycache__", "dump_tensor_data", "blob"}
_MAX_DEPTH = 6


def list_runs(folder: str | os.PathLike[str] = ".") -> pd.DataFrame:
    """All runs below a folder: our stores and official dump folders.

    Parameters
    ----------
    folder : path
        Searched to a depth of 6 levels; hidden folders are left out.

    Returns
    -------
    DataFrame
        Columns ``path kind framework task level steps ranks size complete note``. A run that
        cannot be opened is listed with the reason in ``note``.
    """
    import pandas as pd

    root = Path(folder)
    if not root.is_dir():
        from msprobe_nb.errors import PathNotFoundError

        raise PathNotFoundError("the folder does not exist", file=root)
    columns = ("path", "kind", "framework", "task", "level", "steps", "ranks", "size")
    rows = [_describe(path, root) for path in _candidates(root, 0)]
    return pd.DataFrame(rows, columns=[*columns, "complete", "note"])


def _candidates(folder: Path, depth: int) -> list[Path]:
    """Folders that hold a run, outermost first; nothing is searched inside a run."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    files = {entry.name for entry in entries if entry.is_file()}
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    is_run = (
        bool(files & {layout.GROUP, layout.JOURNAL, "dump.json", "debug.json"})
        or any(name.startswith(("rank", "proc")) and name[4:].isdigit() for name in folders)
        or any(name.startswith("step") and name[4:].isdigit() for name in folders)
        or any(name.startswith("rank_") and name[5:].isdigit() for name in folders)
        or ("data" in folders and _holds_saved(folder))
    )
    if is_run and _is_run(folder):
        return [folder]
    if depth >= _MAX_DEPTH:
        return []
    return [
        found
        for name in folders
        if name not in _SKIPPED and not name.startswith(".")
        for found in _candidates(folder / name, depth + 1)
    ]


def _holds_saved(folder: Path) -> bool:
    from msprobe_nb.formats.single_save import find_saved
    from msprobe_nb.store.sources import LocalSource

    try:
        return find_saved(LocalSource(folder)) is not None
    except MsProbeError:  # a link that leads elsewhere
        return False


def _is_run(folder: Path) -> bool:
    from msprobe_nb.formats import open_run

    try:
        return bool(len(open_run(folder)))
    except MsProbeError as error:
        return "zarr.json" not in str(error)


def _describe(path: Path, root: Path) -> tuple[Any, ...]:
    from msprobe_nb.formats import open_run

    shown = os.path.relpath(path, root)
    try:
        run: Run = open_run(path)
        kind = {"run": "run store", "mindspore": "kernel dump", "saved": "saved arrays"}.get(
            run.kind, "official"
        )
        head = (run.framework, run.task, run.level)
        what = (brief(run.steps), brief(run.ranks), size(run.nbytes()))
        return (shown, kind, *head, *what, run.complete, "")
    except MsProbeError as error:
        return (shown, "unreadable", "", "", "", "", "", "", False, str(error))
