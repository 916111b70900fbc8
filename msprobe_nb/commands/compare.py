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
        help="folder or .csv file for the result in official columns (command line: ./output)",
    )
    parser.add_argument(
        "--rules",
        choices=["msprobe", "evidence"],
        default="msprobe",
        help="verdict rules (default: msprobe)",
    )
    parser.add_argument(
        "--noise", metavar="RUN", help="second golden run; tells the evidence rules what is noise"
    )
    parser.add_argument("--step", type=numbers, metavar="N,N-N", help="compare only these steps")
    parser.add_argument("--rank", type=numbers, metavar="N,N-N", help="compare only these ranks")
    _matching_arguments(parser)
    parser.add_argument("--html", metavar="FILE", help="also write a self-contained report")
    parser.add_argument(
        *("-da", "--diff_analyze"),
        action="store_true",
        help="search the first difference over all ranks and write it as JSON",
    )
    parser.add_argument(
        "--xlsx", action="store_true", help="write the result as .xlsx instead of .csv"
    )


def _matching_arguments(parser: argparse.ArgumentParser) -> None:
    """How rows are paired and what is done to their values."""
    parser.add_argument(
        *("-m", "--mode"),
        choices=["auto"],
        default="auto",
        help="what is compared (default: auto, recordings of any framework)",
    )
    parser.add_argument(
        *("-fm", "--fuzzy_match"),
        action="store_true",
        help="pair calls by their place; call numbers and class names may differ",
    )
    for short, what in (("cell", "module"), ("api", "API"), ("layer", "layer")):
        parser.add_argument(
            *(f"-{short[0]}m", f"--{short}_mapping"),
            nargs="?",
            const=True,
            metavar="FILE",
            help=f"pair by rewritten {what} names, with a table of your own or without",
        )
    parser.add_argument(
        *("-dm", "--data_mapping"), metavar="FILE", help="pair the rows that a table lists"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="matrices to multiply tensors by before comparing them"
    )
    parser.add_argument(
        "--algorithm",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with a metric of your own, which is run; may be given several times",
    )
    parser.add_argument(
        *("-tensor_log", "--is_print_compare_log"),
        action="store_true",
        help="print the metrics of every row",
    )


def _print_rows(result: Comparison, context: Context) -> None:
    """The metrics of every row in tensor mode, in the official words."""
    from msprobe_nb.comparison.tensor_log import log_lines

    for line in log_lines(result):
        context.say(line)


def _run(arguments: argparse.Namespace, context: Context) -> Comparison | FirstDifferences:
    from msprobe_nb.comparison.algorithms import Algorithm, load_algorithm
    from msprobe_nb.comparison.engine import compare

    algorithms: dict[str, Algorithm] = {}
    for file in arguments.algorithm:
        algorithms |= load_algorithm(file)
    output = arguments.output_path or (None if context.interactive else "./output")
    folder = _check_outputs(output, arguments.html)
    result = compare(
        context.resolve(arguments.target_path),
        context.resolve(arguments.golden_path),
        rules=arguments.rules,
        steps=arguments.step,
        ranks=arguments.rank,
        noise=None if arguments.noise is None else context.resolve(arguments.noise),
        fuzzy=arguments.fuzzy_match,
        data_mapping=arguments.data_mapping,
        cell_mapping=arguments.cell_mapping,
        api_mapping=arguments.api_mapping,
        layer_mapping=arguments.layer_mapping,
        config=arguments.config,
        algorithms=algorithms,
    )
    if arguments.is_print_compare_log:
        _print_rows(result, context)
    first = result.first_differences() if arguments.diff_analyze else None
    if output is not None and folder is not None:
        if first is not None:
            written = first.to_json(folder)
        else:
            written = result.to_xlsx(output) if arguments.xlsx else result.to_csv(output)
        for path in written:
            context.say(f"result: {path}")
        if arguments.layer_mapping:
            for path in result.write_data_mapping(folder):
                context.say(f"pairs: {path}")
    if arguments.html:
        context.say(f"report: {result.to_html(arguments.html)}")
    return result if first is None else first


def _check_outputs(result: str | None, report: str | None) -> Path | None:
    """Make the folders that will be written to, before hours are spent on the comparison.

    Returns the folder of the result, which may be given as a file.
    """
    from msprobe_nb.store.layout import make_folder

    if report:
        make_folder(Path(report).parent)
    if result is None:
        return None
    folder = Path(result)
    if folder.suffix in (".csv", ".xlsx") and not folder.is_dir():
        folder = folder.parent
    make_folder(folder)
    return folder


COMMAND = Command(
    "compare",
    "compare a target run with a golden run",
    _arguments,
    _run,
    frozenset(
        {"target_path", "golden_path", "output_path", "html", "data_mapping", "cell_mapping"}
        | {"api_mapping", "layer_mapping", "config", "algorithm", "noise"}
    ),
)
