"""The commands, each defined once, for the command line and for ``%msprobe``."""

from __future__ import annotations

import argparse
from typing import Any

from msprobe_nb import __version__
from msprobe_nb.commands.base import Command, CommandHelp, CommandUsageError, Context, Parser
from msprobe_nb.commands.compare import COMMAND as COMPARE
from msprobe_nb.commands.merge import COMMAND as MERGE
from msprobe_nb.commands.runs import EXPORT, IMPORT, LS, OPEN

COMMANDS: dict[str, Command] = {
    command.name: command for command in (COMPARE, MERGE, OPEN, LS, IMPORT, EXPORT)
}


def build_parser(prog: str) -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """The parser of all commands, and the parser of each.

    Parameters
    ----------
    prog : str
        How the commands are called, for usage texts: ``msprobe-nb`` or ``%msprobe``.
    """
    parser = Parser(
        prog=prog, description="Find where a model goes numerically wrong.", add_help=True
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    parsers: dict[str, argparse.ArgumentParser] = {}
    for command in COMMANDS.values():
        parsers[command.name] = choices.add_parser(
            command.name, help=command.help, description=command.help
        )
        command.arguments(parsers[command.name])
    parsers["help"] = choices.add_parser("help", help="explain the commands, or one of them")
    parsers["help"].add_argument("topic", nargs="?", metavar="COMMAND")
    return parser, parsers


def run(words: list[str], context: Context, prog: str) -> Any:
    """Run one command line.

    Parameters
    ----------
    words : list of str
        The words after the program's name.
    context : Context
    prog : str
        See :func:`build_parser`.

    Returns
    -------
    object
        What the command gives: a Run, a Comparison, a DataFrame ...

    Raises
    ------
    CommandUsageError, CommandHelp
        The words cannot be understood, or help was asked for.
    MsProbeError
        The job failed.
    """
    parser, parsers = build_parser(prog)
    arguments = parser.parse_args(words)
    if arguments.version:
        raise CommandHelp(f"{prog} {__version__}")
    if arguments.command in (None, "help"):
        topic = getattr(arguments, "topic", None)
        if topic is not None and topic not in parsers:
            known = ", ".join(COMMANDS)
            raise CommandUsageError(
                f"unknown command {topic!r}; the commands are {known}\n"
                f"{parser.format_usage().rstrip()}"
            )
        raise CommandHelp((parsers[topic] if topic else parser).format_help())
    return COMMANDS[arguments.command].run(arguments, context)


__all__ = [
    "COMMANDS",
    "Command",
    "CommandHelp",
    "CommandUsageError",
    "Context",
    "build_parser",
    "run",
]
