"""``compare``: target against golden."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_nb.commands.base import Command, Context, numbers

if TYPE_CHECKING:
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
        help="folder or .csv file for the result in official columns (command line: ./output)",
    )
    parser.add_argument(
        "--rules",
        choices=["msprobe", "evidence"],
        default="msprobe",
        help="verdict rules (default: msprobe)",
    )
    parser.add_argument("--step", type=numbers, metavar="N,N-N", help="compare only these steps")
    parser.add_argument("--rank", type=numbers, metavar="N,N-N", help="compare only these ranks")
    parser.add_argument("--html", metavar="FILE", help="also write a self-contained report")


def _run(arguments: argparse.Namespace, context: Context) -> Comparison:
    from msprobe_nb.comparison.engine import compare

    folder = arguments.output_path or (None if context.interactive else "./output")
    _check_outputs(folder, arguments.html)
    result = compare(
        context.resolve(arguments.target_path),
        context.resolve(arguments.golden_path),
        rules=arguments.rules,
        steps=arguments.step,
        ranks=arguments.rank,
    )
    if folder is not None:
        for path in result.to_csv(folder):
            context.say(f"result: {path}")
    if arguments.html:
        context.say(f"report: {result.to_html(arguments.html)}")
    return result


def _check_outputs(result: str | None, report: str | None) -> None:
    """Make the folders that will be written to, before hours are spent on the comparison."""
    from msprobe_nb.store.layout import make_folder

    if result is not None:
        is_file = result.endswith(".csv") and not Path(result).is_dir()
        make_folder(Path(result).parent if is_file else Path(result))
    if report:
        make_folder(Path(report).parent)


COMMAND = Command(
    "compare",
    "compare a target run with a golden run",
    _arguments,
    _run,
    frozenset({"target_path", "golden_path", "output_path", "html"}),
)
