"""How a result shows itself in a notebook.

Two outputs: static HTML with the conclusion and the first rows, which stays readable in every
viewer and after the kernel is gone, and below it the live widget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison

_NO_KERNEL = (
    '<p style="color:var(--jp-ui-font-color2,#666)">'
    "The live table needs a running kernel: run this cell.</p>"
)
# In a notebook that was opened again the place of the table only shows that a model is missing,
# so what to do is also said above it, where it always can be read.
_LIVE_BELOW = (
    '<div class="msnb"><p class="soft">The live table below needs a running kernel: '
    "in a reopened notebook, run this cell again.</p></div>"
)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def show_comparison(comparison: Comparison) -> None:
    """Display a comparison: in a notebook static HTML and the live table, else its summary."""
    if not in_notebook():
        print(comparison.summary())  # noqa: T201
        return
    from IPython.display import HTML, display

    from msprobe_nb.views.html import comparison_html

    live = len(comparison) > 0
    display(HTML(comparison_html(comparison) + (_LIVE_BELOW if live else "")))
    if live:
        display(live_bundle(comparison), raw=True)


def live_bundle(comparison: Comparison) -> dict[str, Any]:
    """The mime bundle of the live table, with a hint for viewers that cannot show it."""
    live = comparison.widget()._repr_mimebundle_()
    bundle = dict(live[0] if isinstance(live, tuple) else live or {})
    bundle["text/plain"] = "live table"
    bundle["text/html"] = _NO_KERNEL
    return bundle
