"""``compare``: target against golden."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_nb.commands.base import Command, Context, numbers

if TYPE_CHECKING:
    from msprobe_nb.comparison.first_difference import FirstDifferences
    from msprobe_nb.comparison.result import Comparison


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("-tp", "--target_path"),
        required=True,
        metavar="TARGET",
        help="run under suspicion: a path, a URL, or in a notebook a variable",
    )
    parser.add_argument(
        *("-gp", "--golden_path"), required=True, metavar="GOLDEN", help="reference run"
    )
    parser.add_argument(
        *("-o", "--output_path"),
        nargs="?",
        const="./output",
        metavar="DIR",
        help="folder for the result in official columns (command line: ./output)",
    )
    parser.add_argument(
        "--rules", choices=["msprobe"], default="msprobe", help="verdict rules (default: msprobe)"
    )
    parser.add_argument("--step", type=numbers, metavar="N,N-N", help="compare only these steps")
    parser.add_argument("--rank", type=numbers, metavar="N,N-N", help="compare only these ranks")
    parser.add_argument("--html", metavar="FILE", help="also write a self-contained report")
    parser.add_argument(
        *("-da", "--diff_analyze"),
        action="store_true",
        help="search the first difference over all ranks and write it as JSON",
    )
    parser.add_argument(
        "--xlsx", action="store_true", help="write the result as .xlsx instead of .csv"
    )


def _run(arguments: argparse.Namespace, context: Context) -> Comparison | FirstDifferences:
    from msprobe_nb.comparison.engine import compare

    result = compare(
        context.resolve(arguments.target_path),
        context.resolve(arguments.golden_path),
        rules=arguments.rules,
        steps=arguments.step,
        ranks=arguments.rank,
    )
    first = result.first_differences() if arguments.diff_analyze else None
    folder = arguments.output_path or (None if context.interactive else "./output")
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        if first is not None:
            written = first.to_json(folder)
        else:
            written = result.to_xlsx(folder) if arguments.xlsx else result.to_csv(folder)
        for path in written:
            context.say(f"result: {path}")
    if arguments.html:
        context.say(f"report: {result.to_html(arguments.html)}")
    return result if first is None else first


COMMAND = Command(
    "compare",
    "compare a target run with a golden run",
    _arguments,
    _run,
    frozenset({"target_path", "golden_path", "output_path", "html"}),
)
