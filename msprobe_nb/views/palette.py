"""One palette and one legend for every view.

The colours are from the Okabe-Ito set, which stays distinguishable with the common forms of
colour blindness; a symbol says the same without colour.
"""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """How one verdict looks.

    Attributes
    ----------
    color : str
        Strong colour, for symbols, lines and chips.
    light, dark : str
        Background tint of a row on light and on dark ground.
    symbol : str
    text : str
        Legend entry.
    """

    color: str
    light: str
    dark: str
    symbol: str
    text: str


MARKS = {
    "error": Mark("#d55e00", "#fbe6d8", "#4d2a12", "\u2716", "error"),
    "warning": Mark("#e69f00", "#fdf1d6", "#4a3a10", "\u25b2", "warning"),
    "pass": Mark("#0072b2", "transparent", "transparent", "\u25cf", "pass"),
    "not measured": Mark("#8a8f98", "#f1f2f4", "#2b2d31", "\u25cb", "not measured"),
}
TARGET, GOLDEN, DIFFERENCE = "#d55e00", "#0072b2", "#009e73"


def css_variables() -> str:
    """The palette as CSS custom properties, for both themes."""
    light, dark = [], []
    for name, mark in MARKS.items():
        key = name.replace(" ", "-")
        light += [f"--msnb-{key}:{mark.color}", f"--msnb-{key}-row:{mark.light}"]
        dark += [f"--msnb-{key}-row:{mark.dark}"]
    return (
        f":root{{{';'.join(light)}}}"
        f"[data-jp-theme-light=false]{{{';'.join(dark)}}}"
        f"@media (prefers-color-scheme:dark){{:root:not(:has([data-jp-theme-light]))"
        f"{{{';'.join(dark)}}}}}"
    )
