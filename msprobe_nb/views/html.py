"""Static HTML: what a viewer without a kernel sees. Every text that came from a file is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.comparison import conclusion
from msprobe_nb.comparison.marks import MARKS as ORDER
from msprobe_nb.comparison.marks import UNMEASURED, mark_counts, row_marks
from msprobe_nb.text import brief, number, percent, plural, size
from msprobe_nb.views.palette import MARKS, key
from msprobe_nb.views.palette import css as palette_css

if TYPE_CHECKING:
    from msprobe_nb.comparison.nodes import Origin
    from msprobe_nb.comparison.result import Comparison
    from msprobe_nb.store import Run

TOP_ROWS = 30
TOP_CALLS = 10
MARK_RANK = {mark: rank for rank, mark in enumerate(ORDER)}
_SHARES = ("Relative L2", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")


@cache
def style() -> str:
    """The style element of static HTML."""
    css = (Path(__file__).parent / "static.css").read_text("utf-8")
    return f"<style>{palette_css()}{css}</style>"


def symbol(verdict: str) -> str:
    """The coloured symbol of a verdict."""
    return f'<span class="k-{key(verdict)}">{MARKS[verdict].symbol}</span>'


def table(
    header: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]], kinds: Sequence[str] = ()
) -> str:
    """A table; each row comes with its mark. Cells are escaped unless they are `Markup`.

    Parameters
    ----------
    header : sequence of str
        Titles; without any there is no title row.
    rows : iterable of (str, sequence)
        Mark and cells.
    kinds : sequence of str
        For each column ``n`` for numbers, ``s`` for short texts that stay in one line, or nothing.
    """
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    lines = []
    for mark, cells in rows:
        line = "".join(
            f'<td class="{kinds[at] if at < len(kinds) else ""}">{_cell(cell)}</td>'
            for at, cell in enumerate(cells)
        )
        lines.append(f'<tr data-mark="{escape(mark)}">{line}</tr>')
    titles = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f'<div class="wide"><table>{titles}<tbody>{"".join(lines)}</tbody></table></div>'


class Markup(str):
    """HTML that is already safe."""


def _cell(value: Any) -> str:
    if isinstance(value, Markup):
        return value
    return escape("" if value is None else str(value))


# ---------------------------------------------------------------- comparison


def comparison_head(comparison: Comparison) -> str:
    """Conclusion, counts and what stands behind them."""
    legend = "".join(
        f'<span class="chip">{symbol(name)} {MARKS[name].text} <b>{count:,}</b></span>'
        for name, count in mark_counts(comparison).items()
    )
    lines = [
        f"<h3>{escape(conclusion.headline(comparison))}</h3>",
        *(f"<p>{escape(text)}</p>" for text in [conclusion.first_finding(comparison)] if text),
        f'<div class="chips">{legend}</div>' if len(comparison) else "",
        *(
            f'<p class="soft">{escape(text)}</p>'
            for text in (*conclusion.details(comparison), *comparison.notes)
        ),
    ]
    return "".join(lines)


def grouped_calls(comparison: Comparison) -> list[tuple[Origin, list[str]]]:
    """The marked calls, an API together with the module that called it.

    Returns
    -------
    list of (Origin, list of str)
        Each with the other calls that say the same: marked calls of one kind of which one is
        inside the other.
    """
    parents: dict[tuple[int, int], dict[str, Any]] = {}
    for part in comparison.parts:
        nodes = part.target.pack.nodes
        parents[part.step, part.rank] = dict(zip(nodes.name, nodes.parent.expand(), strict=True))
    found: list[tuple[Origin, list[str]]] = []
    place: dict[tuple[int, int, str], int] = {}  # of the calls that lead a group
    inside: dict[tuple[int, int, str], int] = {}  # parent of a leading call -> its group
    for call in comparison.marked_calls:
        where = call.step, call.rank
        parent = parents[where].get(call.node)
        at = inside.get((*where, call.node), place.get((*where, parent or "")))
        if at is not None and found[at][0].kind == call.kind:
            found[at][1].append(call.node)
            continue
        place[*where, call.node] = len(found)
        if parent:
            inside.setdefault((*where, parent), len(found))
        found.append((call, []))
    return found


def first_calls(comparison: Comparison, count: int = TOP_CALLS, more_at: str = "") -> str:
    """The first wrong calls as a table; empty when nothing is marked.

    `more_at` says where the rest is.
    """
    found = grouped_calls(comparison)
    if not found:
        return ""
    nodes = comparison.nodes
    places = zip(nodes["step"], nodes["rank"], nodes["node"], strict=True)
    level = dict(zip(places, nodes["verdict"], strict=True))
    several = len(comparison.parts) > 1
    rows = []
    for at, (call, others) in enumerate(found[:count], 1):
        verdict = level.get((call.step, call.rank, call.node), "error")
        place = [f"{call.step}/{call.rank}"] if several else []
        names = escape(call.node) + "".join(
            f'<br><span class="soft">and {escape(name)}</span>' for name in others[:3]
        )
        cells = [at, Markup(symbol(verdict)), *place, Markup(names), call.kind, call.sentence]
        rows.append((verdict, cells))
    header = ["", "", *(["step/rank"] if several else []), "call", "kind", "what is wrong"]
    more = len(found) - count
    rest = (
        f'<p class="soft">and {plural(more, "more call")}{escape(more_at)}</p>' if more > 0 else ""
    )
    return f"<p><b>Where to look first</b></p>{table(header, rows)}{rest}"


def comparison_html(comparison: Comparison) -> str:
    """The static view of a comparison: conclusion, first wrong calls, worst rows."""
    return (
        f'{style()}<div class="msnb">{comparison_head(comparison)}'
        f"{first_calls(comparison, more_at=', listed by .origins')}{top_rows(comparison)}</div>"
    )


def top_rows(comparison: Comparison, count: int = TOP_ROWS) -> str:
    """The first marked rows, most severe first, as a table, folded in.

    The first rows when nothing is marked.
    """
    frame = comparison.table
    if not len(frame):
        return ""
    rank = np.array([MARK_RANK[mark] for mark in row_marks(comparison)])
    marked = np.flatnonzero(rank < MARK_RANK[UNMEASURED])
    order = (
        marked[np.argsort(rank[marked], kind="stable")] if len(marked) else np.arange(len(frame))
    )
    metrics = main_metrics(comparison)
    header = ["", "target", *metrics, "dtype", "shape", "reason"]
    rows = [
        (
            row["verdict"],
            [
                Markup(symbol(row["verdict"])),
                row["target"],
                *(_number(row[name], comparison, name) for name in metrics),
                short_dtype(row["target dtype"]),
                short_shape(row["target shape"]),
                row["reason"],
            ],
        )
        for row in frame.iloc[order[:count]].to_dict("records")
    ]
    what = "marked rows" if len(marked) else "rows"
    title = f"First {len(rows):,} of {len(order):,} {what}"
    kinds = ["", "", *["n"] * len(metrics), "s", "s"]
    return f"<details><summary>{title}</summary>{table(header, rows, kinds)}</details>"


def main_metrics(comparison: Comparison) -> list[str]:
    """The few columns that say most."""
    chosen = {
        "tensor": ["Cosine", "MaxAbsErr", "Relative L2", "One Thousandth Err Ratio"],
        "statistics": ["NormRelativeErr", "MaxRelativeErr", "L2norm diff"],
        "md5": ["target checksum", "golden checksum"],
    }
    return chosen.get(comparison.mode, [])


def is_fraction(comparison: Comparison, name: str) -> bool:
    """Whether a column holds fractions that are best shown in percent."""
    return name in _SHARES or any(
        name in part.metrics and part.metrics[name].percent for part in comparison.parts[:1]
    )


def short_dtype(text: Any) -> Any:
    """``float32`` of ``torch.float32``, ``int`` of ``<class 'int'>``; other values as they are."""
    if not isinstance(text, str):
        return text
    return text.removeprefix("<class '").removesuffix("'>").removeprefix("torch.")


def short_shape(text: Any) -> Any:
    """A recorded shape; nothing for an argument, whose shape the official tool writes ``[]``."""
    return "" if text == "[]" else text


def _number(value: Any, comparison: Comparison, name: str) -> str:
    if isinstance(value, str):
        return value
    if value != value:
        return "\u2013"
    return percent(value) if is_fraction(comparison, name) else number(value)


# ---------------------------------------------------------------- run


def run_html(run: Run) -> str:
    """The static view of a run."""
    kind = "Run store" if run.kind == "run" else "Official recording"
    state = "complete" if run.complete else "unfinished"
    facts = [
        ("framework, task, level", ", ".join(str(f) for f in (run.framework, run.task, run.level))),
        ("steps", _listed(run.steps)),
        ("ranks", _listed(run.ranks)),
        ("size", size(run.nbytes())),
        ("path", run.url),
    ]
    if len(run) == 1:
        pack = run.pack()
        tensors, calls = len(pack.tensor_rows), int(pack.nodes.recorded.sum())
        facts.insert(3, ("content", f"{plural(calls, 'call')}, {plural(tensors, 'tensor')}"))
    rows = [("", [name, value]) for name, value in facts]
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in run.notes)
    return f'{style()}<div class="msnb"><h3>{kind}, {state}</h3>{table([], rows)}{notes}</div>'


def _listed(numbers: Sequence[int]) -> str:
    """``0-3, 7 (5 in all)``."""
    return brief(numbers) + (f" ({len(numbers)} in all)" if len(numbers) > 1 else "")
