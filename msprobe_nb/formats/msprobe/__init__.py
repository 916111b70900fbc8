"""The official format: dump folders of MindStudio Probe, PyTorch, MindSpore and MSAdapter."""

from __future__ import annotations

from msprobe_nb.formats.msprobe.folder import OfficialPack
from msprobe_nb.formats.msprobe.tree import find_packs

__all__ = ["OfficialPack", "find_packs"]
