"""The package as a whole: what it exports, what importing it costs, who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

import msprobe_nb

PACKAGE = ROOT / "msprobe_nb"
# Each layer may use those before it; api and views come last.
LAYERS = ["store", "formats", "comparison", "views", "commands"]


def loaded_after(code: str) -> set[str]:
    """Top-level modules that are loaded after some code ran in a fresh interpreter."""
    script = f"{code}\nimport sys; print('\\n'.join(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy():
    heavy = {"numpy", "pandas", "xarray", "zarr", "torch", "bokeh", "ipywidgets", "IPython"}
    assert not loaded_after("import msprobe_nb") & heavy


def test_comparing_statistics_needs_neither_torch_nor_widgets_nor_pandas():
    code = (
        "from msprobe_nb.cli import main\n"
        f"main(['compare','-tp',{str(PACKAGE.parent / 'tests/data/dumps/arg_kinds/target')!r},"
        f"'-gp',{str(PACKAGE.parent / 'tests/data/dumps/arg_kinds/golden')!r},'-o','/dev/null/x'])"
    )
    assert not loaded_after(code) & {"torch", "pandas", "xarray", "zarr", "bokeh", "ipywidgets"}


@pytest.mark.parametrize("name", [n for n in msprobe_nb.__all__ if n != "__version__"])
def test_every_public_name_resolves_and_is_documented(name):
    assert getattr(msprobe_nb, name).__doc__


def test_compare_stays_a_function_after_its_modules_were_imported():
    import msprobe_nb.commands
    import msprobe_nb.comparison.engine

    assert callable(msprobe_nb.compare)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        msprobe_nb.nope  # noqa: B018


def module_level_imports(path: Path) -> set[str]:
    """Modules that a file imports when it is imported; those for type checkers do not count."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_only_those_below(layer):
    above = LAYERS[LAYERS.index(layer) + 1 :]
    for path in (PACKAGE / layer).rglob("*.py"):
        for module in module_level_imports(path):
            parts = module.split(".")
            assert parts[:1] != ["msprobe_nb"] or len(parts) < 2 or parts[1] not in above, (
                f"{path.name} imports {module}"
            )


@pytest.mark.parametrize("layer", ["store", "formats", "comparison"])
def test_data_layers_import_no_widgets(layer):
    for path in (PACKAGE / layer).rglob("*.py"):
        tops = {module.partition(".")[0] for module in module_level_imports(path)}
        assert not tops & {"ipywidgets", "anywidget", "bokeh", "torch", "IPython"}, path


def test_the_wheel_holds_the_front_end_files():
    for name in ("grid.js", "grid.css", "bokeh_view.js", "static.css"):
        assert (PACKAGE / "views" / name).stat().st_size > 0
