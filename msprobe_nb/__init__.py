"""msprobe_nb: find where a model goes numerically wrong, in a notebook.

A *run* is one recorded execution. Open two of them, compare, and look::

    import msprobe_nb as mp

    target = mp.open("npu/dump")            # our store, or a folder of MindStudio Probe
    golden = mp.open("gpu/dump")
    result = mp.compare(target, golden)
    result                                  # in a notebook: conclusion and live table

``%load_ext msprobe_nb`` gives the same as ``%msprobe`` commands. Nothing heavy is imported before
it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from msprobe_nb.comparison.engine import compare
    from msprobe_nb.comparison.persist import load_comparison
    from msprobe_nb.comparison.result import Comparison
    from msprobe_nb.comparison.verdict import Thresholds
    from msprobe_nb.errors import MsProbeError
    from msprobe_nb.formats import open_run as open  # noqa: A004
    from msprobe_nb.formats.discover import list_runs
    from msprobe_nb.formats.exporter import export_run
    from msprobe_nb.formats.importer import import_run
    from msprobe_nb.magics import load_ipython_extension as load_ipython_extension
    from msprobe_nb.magics import unload_ipython_extension as unload_ipython_extension
    from msprobe_nb.store import Run

_WHERE = {
    "open": ("formats", "open_run"),
    "import_run": ("formats.importer", "import_run"),
    "export_run": ("formats.exporter", "export_run"),
    "list_runs": ("formats.discover", "list_runs"),
    "compare": ("comparison.engine", "compare"),
    "load_comparison": ("comparison.persist", "load_comparison"),
    "Comparison": ("comparison.result", "Comparison"),
    "Thresholds": ("comparison.verdict", "Thresholds"),
    "Run": ("store", "Run"),
    "MsProbeError": ("errors", "MsProbeError"),
    "load_ipython_extension": ("magics", "load_ipython_extension"),
    "unload_ipython_extension": ("magics", "unload_ipython_extension"),
}


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _WHERE[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(f".{module}", __name__), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


__all__ = [
    "Comparison",
    "MsProbeError",
    "Run",
    "Thresholds",
    "__version__",
    "compare",
    "export_run",
    "import_run",
    "list_runs",
    "load_comparison",
    "open",
]
