"""The xarray engine ``msprobe``: opens run stores and official folders alike.

>>> import xarray as xr
>>> xr.open_datatree("dump", engine="msprobe")                          # doctest: +SKIP
>>> xr.open_dataset("dump", engine="msprobe")                           # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint


class MsProbeBackend(BackendEntrypoint):
    """Datasets of statistics, and trees with one index for each (step, rank)."""

    description = "Open runs recorded by msprobe_nb or by MindStudio Probe"
    supports_groups = True
    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None
    ) -> xr.Dataset:
        """The statistics of a run over (step, rank, tensor)."""
        from msprobe_nb.formats import open_run

        return open_run(filename_or_obj).dataset.drop_vars(drop_variables or [])

    def open_datatree(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None
    ) -> xr.DataTree:
        """The index of each pack at ``/step<N>/rank<R>``."""
        from msprobe_nb.formats import open_run

        tree = open_run(filename_or_obj).tree
        return tree.map_over_datasets(
            lambda ds: ds.drop_vars(drop_variables or [], errors="ignore")
        )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Only what is certainly ours: a folder with a ``dump.json`` or a run's ``zarr.json``."""
        from msprobe_nb.store import is_store
        from msprobe_nb.store.sources import LocalSource

        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        if not os.path.isdir(filename_or_obj):
            return False
        source = LocalSource(filename_or_obj)
        return source.exists("dump.json") or is_store(source)
