"""Sphinx configuration."""

from __future__ import annotations

from importlib.metadata import version as installed

project = "msprobe_nb"
author = "the msprobe_nb authors"
copyright = f"2026, {author}"
release = version = installed("msprobe_nb")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "msprobe_nb"
nb_execution_mode = "off"  # the tests execute the notebooks
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "none"
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
suppress_warnings = ["myst.xref_missing"]
