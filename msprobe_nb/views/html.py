"""Static HTML: what a viewer without a kernel sees. Every text that came from a file is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_nb.comparison import conclusion
from msprobe_nb.text import brief, number, percent, plural, size
from msprobe_nb.views.palette import MARKS, css_variables

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison
    from msprobe_nb.store import Run

TOP_ROWS = 30
TOP_CALLS = 12


@cache
def style() -> str:
    """The style element of static HTML."""
    css = (Path(__file__).parent / "static.css").read_text("utf-8")
    return f"<style>{css_variables()}{css}</style>"


def symbol(verdict: str) -> str:
    """The coloured symbol of a verdict."""
    return f'<span class="k-{escape(verdict)}">{MARKS[verdict].symbol}</span>'


def table(
    header: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]], numeric: Sequence[bool] = ()
) -> str:
    """A table; each row comes with its mark. Cells are escaped unless they are `Markup`."""
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    lines = []
    for mark, cells in rows:
        line = "".join(
            f'<td class="{"n" if at < len(numeric) and numeric[at] else ""}">{_cell(cell)}</td>'
            for at, cell in enumerate(cells)
        )
        lines.append(f'<tr data-mark="{escape(mark)}">{line}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


class Markup(str):
    """HTML that is already safe."""


def _cell(value: Any) -> str:
    if isinstance(value, Markup):
        return value
    return escape("" if value is None else str(value))


# ---------------------------------------------------------------- comparison


def comparison_head(comparison: Comparison) -> str:
    """Conclusion, counts and what stands behind them."""
    counts = comparison.counts
    legend = "".join(
        f'<span class="chip">{symbol(name)} {MARKS[name].text} <b>{counts[name]:,}</b></span>'
        for name in ("error", "warning", "pass")
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


def first_calls(comparison: Comparison, count: int = TOP_CALLS) -> str:
    """The first wrong calls as a table; empty when nothing is marked."""
    found = comparison.marked_calls
    if not found:
        return ""
    level = dict(zip(comparison.nodes["node"], comparison.nodes["verdict"], strict=True))
    several = len(comparison.parts) > 1
    rows = []
    for at, call in enumerate(found[:count], 1):
        verdict = level.get(call.node, "error")
        place = [f"{call.step}/{call.rank}"] if several else []
        sentence = call.sentence.removeprefix(f"{call.node}.")
        cells = [at, Markup(symbol(verdict)), *place, call.node, call.kind, sentence]
        rows.append((verdict, cells))
    header = ["", "", *(["step/rank"] if several else []), "call", "kind", "what is wrong"]
    more = len(found) - count
    rest = f'<p class="soft">and {plural(more, "more call")} (.origins)</p>' if more > 0 else ""
    return f"<p><b>Where to look first</b></p>{table(header, rows)}{rest}"


def comparison_html(comparison: Comparison) -> str:
    """The static view of a comparison: conclusion, first wrong calls, worst rows."""
    return (
        f'{style()}<div class="msnb">{comparison_head(comparison)}{first_calls(comparison)}'
        f"{top_rows(comparison)}</div>"
    )


def top_rows(comparison: Comparison, count: int = TOP_ROWS) -> str:
    """The first marked rows as a table, folded in; the first rows when nothing is marked."""
    frame = comparison.table
    if not len(frame):
        return ""
    marked = frame[frame["verdict"] != "pass"]
    shown = (marked if len(marked) else frame).head(count)
    metrics = main_metrics(comparison)
    header = ["", "target", *metrics, "dtype", "shape", "reason"]
    rows = [
        (
            row["verdict"],
            [
                Markup(symbol(row["verdict"])),
                row["target"],
                *(_number(row[name], comparison, name) for name in metrics),
                row["target dtype"],
                row["target shape"],
                row["reason"],
            ],
        )
        for row in shown.to_dict("records")
    ]
    what = "marked rows" if len(marked) else "rows"
    total = len(marked) if len(marked) else len(frame)
    title = f"First {len(shown):,} of {total:,} {what}"
    numeric = [False, False, *[True] * len(metrics)]
    return f"<details><summary>{title}</summary>{table(header, rows, numeric)}</details>"


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
    return name == "Relative L2" or any(
        name in part.metrics and part.metrics[name].percent for part in comparison.parts[:1]
    )


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
        ("steps", f"{brief(run.steps)}  ({len(run.steps)})"),
        ("ranks", f"{brief(run.ranks)}  ({len(run.ranks)})"),
        ("size", size(run.nbytes())),
        ("path", run.url),
    ]
    if len(run) == 1:
        pack = run.pack()
        tensors, calls = len(pack.tensor_rows), int(pack.nodes.recorded.sum())
        facts.insert(3, ("content", f"{plural(calls, 'call')}, {plural(tensors, 'tensor')}"))
    rows = [("", [name, value]) for name, value in facts]
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in run.notes)
    return (
        f'{style()}<div class="msnb"><h3>{kind}, {state}</h3>{table(["", ""], rows)}{notes}</div>'
    )
