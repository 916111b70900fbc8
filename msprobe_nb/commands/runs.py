"""``open``, ``ls``, ``import`` and ``export``: finding, opening and converting runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_nb.commands.base import Command, Context

if TYPE_CHECKING:
    import pandas as pd

    from msprobe_nb.store import Run


def _open_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="run store, dump folder, dump.json, .zip or URL")
    parser.add_argument(
        "--salvage", action="store_true", help="read the whole entries of a truncated dump.json"
    )


def _open(arguments: argparse.Namespace, context: Context) -> Run:
    from msprobe_nb.formats import open_run

    return open_run(context.resolve(arguments.path), salvage=arguments.salvage)


def _ls_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", help="folder to search (default: here)")


def _ls(arguments: argparse.Namespace, context: Context) -> pd.DataFrame:
    from msprobe_nb.formats.discover import list_runs

    return list_runs(arguments.folder)


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="dump folder or run to convert")
    parser.add_argument("destination", help="folder of the new run store, such as run.zarr")


def _import(arguments: argparse.Namespace, context: Context) -> Run:
    from msprobe_nb.formats.importer import import_run

    return import_run(context.resolve(arguments.source), arguments.destination)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run store or dump folder to write")
    parser.add_argument("folder", metavar="DIR", help="new folder in the official layout")


def _export(arguments: argparse.Namespace, context: Context) -> Path:
    from msprobe_nb.formats.exporter import export

    done = export(context.resolve(arguments.run), arguments.folder)
    for note in done.notes:
        context.say(f"note: {note}")
    return done.path


OPEN = Command("open", "open a run", _open_arguments, _open, frozenset({"path"}))
LS = Command("ls", "list the runs below a folder", _ls_arguments, _ls, frozenset({"folder"}))
IMPORT = Command(
    "import",
    "convert a recording into a run store",
    _import_arguments,
    _import,
    frozenset({"source", "destination"}),
)
EXPORT = Command(
    "export",
    "write a run as a folder of the official tool",
    _export_arguments,
    _export,
    frozenset({"run", "folder"}),
)
