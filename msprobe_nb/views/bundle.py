"""What a result hands to the notebook: the live widget, and static HTML for every other viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def comparison_bundle(comparison: Comparison, **kwargs: Any) -> dict[str, Any]:
    """The mime bundle of a comparison."""
    from msprobe_nb.views.html import comparison_html

    bundle: dict[str, Any] = {"text/plain": comparison.summary()}
    if not in_notebook():
        return bundle
    bundle["text/html"] = comparison_html(comparison)
    live = comparison.widget()._repr_mimebundle_(**kwargs)
    widget = live[0] if isinstance(live, tuple) else live
    for mime, data in (widget or {}).items():
        bundle.setdefault(mime, data)
    return bundle
