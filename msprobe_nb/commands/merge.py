"""``merge_result``: the same calls over many ranks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msprobe_nb.commands.base import Command, Context

if TYPE_CHECKING:
    from msprobe_nb.comparison.merge import MergedResults


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("-i", "--input_dir"),
        required=True,
        metavar="DIR",
        help="folder with the results of several ranks; in a notebook also a Comparison",
    )
    parser.add_argument(
        *("-o", "--output_dir"),
        metavar="DIR",
        help="folder for the merged spreadsheet (command line: ./output)",
    )
    parser.add_argument(
        *("-config", "--config-path"),
        required=True,
        metavar="YAML",
        help="file that lists calls (api) and metrics (compare_index)",
    )


def _run(arguments: argparse.Namespace, context: Context) -> MergedResults:
    from msprobe_nb.comparison.merge import merge_results, read_merge_config
    from msprobe_nb.comparison.result import Comparison

    config = read_merge_config(arguments.config_path)
    source = context.variables.get(arguments.input_dir)
    merged = merge_results(
        source if isinstance(source, Comparison) else arguments.input_dir, config
    )
    folder = arguments.output_dir or (None if context.interactive else "./output")
    if folder is not None:
        context.say(f"merged: {merged.to_xlsx(folder)}")
    return merged


COMMAND = Command(
    "merge_result",
    "show the same calls over many ranks side by side",
    _arguments,
    _run,
    frozenset({"input_dir", "output_dir", "config_path"}),
)
