"""What a command is. The command line, ``%msprobe`` and other front ends run the same objects."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from msprobe_nb.errors import UsageError


class CommandUsageError(Exception):
    """A command line that cannot be understood; the message includes the usage."""


class CommandHelp(Exception):
    """``--help`` was asked for; the message is the help text."""


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process, which would end a notebook's kernel."""

    def error(self, message: str) -> NoReturn:
        """Raise :class:`CommandUsageError`."""
        raise CommandUsageError(f"{message}\n{self.format_usage().rstrip()}")

    def print_help(self, file: Any = None) -> None:
        """Raise :class:`CommandHelp`."""
        raise CommandHelp(self.format_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise, see :meth:`error`."""
        raise CommandUsageError(message or "")


@dataclass(frozen=True, slots=True)
class Context:
    """Where a command runs.

    Attributes
    ----------
    variables : mapping
        Notebook variables that may stand where a path is expected; empty on the command line.
    interactive : bool
        In a notebook: results are returned and shown there, files are written only when asked
        for.
    say : callable
        Called with messages about files written and the like.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    interactive: bool = False
    say: Callable[[str], None] = print

    def resolve(self, text: str) -> Any:
        """The run or path in the variable of that name, else the text itself as a path or URL.

        Raises
        ------
        UsageError
            Both a variable and a path have that name, or the variable holds neither.
        """
        from msprobe_nb.store import Run

        if text not in self.variables:
            return text
        value, there = self.variables[text], os.path.exists(text)
        if isinstance(value, (Run, str, os.PathLike)):
            if there and os.path.abspath(_place(value)) != os.path.abspath(text):
                raise UsageError(
                    f"{text!r} is both a variable and a path",
                    remedy=f"Write ./{text} for the path, or give the variable another name",
                )
            return value
        if there:
            return text
        kind = type(value).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        raise UsageError(
            f"the variable {text} is {article} {kind}, not a run or a path, and no path of that "
            "name exists",
            remedy="Give a path, or a variable that holds a run or a path",
        )


def _place(value: Any) -> str:
    """Where the run or path of a variable is."""
    return str(value.url if hasattr(value, "url") else os.fspath(value))


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes
    ----------
    name, help : str
    arguments : callable
        Adds its arguments to a parser.
    run : callable
        ``run(arguments, context)`` does the work and returns the result object.
    paths : frozenset of str
        Names of the arguments that are paths, for completion.
    """

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Context], Any]
    paths: frozenset[str] = frozenset()


def numbers(text: str) -> list[int]:
    """A comma list of integers and ranges such as ``0,2-4``, as an argument type."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            start, stop = int(first), int(last if dash else first)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of numbers such as 0,2-4"
            ) from None
        if stop < start:
            raise argparse.ArgumentTypeError(f"{part.strip()!r} ends before it begins")
        found += range(start, stop + 1)
    return sorted(set(found))
