"""The run store: what is recorded, one Zarr group for each (step, rank).

``docs/format.md`` describes the bytes. :class:`RunWriter` and :class:`PackWriter` write,
:func:`open_store` reads, :func:`recover` completes what a killed writer left.
"""

from __future__ import annotations

from msprobe_nb.store.open import is_store, open_store
from msprobe_nb.store.pack import Pack, PackInfo
from msprobe_nb.store.run import Run
from msprobe_nb.store.writer import PackWriter, RunWriter, recover

__all__ = [
    "Pack",
    "PackInfo",
    "PackWriter",
    "Run",
    "RunWriter",
    "is_store",
    "open_store",
    "recover",
]
