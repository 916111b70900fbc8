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
    color, bright : str
        Strong colour, for symbols, on light and on dark ground.
    light, dark : str
        Background tint of a row on light and on dark ground.
    symbol : str
    text : str
        Legend entry.
    """

    color: str
    bright: str
    light: str
    dark: str
    symbol: str
    text: str


# In the order of `comparison.marks.MARKS`.
MARKS = {
    "error": Mark("#d55e00", "#ff8f4d", "#fbe6d8", "#4d2a12", "\u2716", "error"),
    "unreadable": Mark("#a8437e", "#ee9cc9", "#f8e6f0", "#46283a", "\u2298", "unreadable"),
    "warning": Mark("#c98500", "#f5b83d", "#fdf1d6", "#4a3a10", "\u25b2", "warning"),
    "gated": Mark("#00795a", "#3fc79c", "#def2ec", "#143a2f", "\u2260", "gated"),
    "unmatched": Mark("#27749f", "#7cc7f0", "#e3f1fa", "#1d3545", "\u25c7", "unmatched"),
    "not measured": Mark("#6c717a", "#a2a8b2", "#f1f2f4", "#2b2d31", "\u25cb", "not measured"),
    "pass": Mark("#0072b2", "#5cb3ea", "transparent", "transparent", "\u25cf", "pass"),
}
TARGET, GOLDEN, DIFFERENCE = "#d55e00", "#0072b2", "#009e73"


def key(name: str) -> str:
    """A mark's name as part of a CSS name."""
    return name.replace(" ", "-")


def css() -> str:
    """The palette as CSS: custom properties for both themes, symbols, rows and texts."""
    light, dark, rules = [], [], []
    for name, mark in MARKS.items():
        short = key(name)
        light += [f"--msnb-{short}:{mark.color}", f"--msnb-{short}-row:{mark.light}"]
        dark += [f"--msnb-{short}:{mark.bright}", f"--msnb-{short}-row:{mark.dark}"]
        rules.append(f".msnb-sym-{short},.msnb .k-{short}{{color:var(--msnb-{short})}}")
        if mark.light != "transparent":
            rules.append(
                f'.msnb-row[data-mark="{name}"],.msnb tr[data-mark="{name}"] td'
                f"{{background:var(--msnb-{short}-row)}}"
            )
    return (
        f":root{{{';'.join(light)}}}"
        f"[data-jp-theme-light=false]{{{';'.join(dark)}}}"
        f"@media (prefers-color-scheme:dark){{:root:not(:has([data-jp-theme-light]))"
        f"{{{';'.join(dark)}}}}}" + "".join(rules)
    )
