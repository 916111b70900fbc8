"""``%msprobe``: the commands in a notebook, with completion of options, paths and variables.

``%load_ext msprobe_nb`` turns it on. A command returns its result object, so
``c = %msprobe compare -tp A -gp B`` works; where a path is expected, the name of a variable that
holds a run does too.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shlex
from typing import Any, NamedTuple

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class

from msprobe_nb.commands import COMMANDS, CommandHelp, CommandUsageError, Context, build_parser, run
from msprobe_nb.errors import MsProbeError

_MATCHER = "msprobe_nb"


@magics_class
class MsProbeMagics(Magics):
    """Holds the ``%msprobe`` magic."""

    @line_magic
    def msprobe(self, line: str) -> Any:
        """Run a command of msprobe_nb."""
        context = Context(self.shell.user_ns, interactive=True)
        try:
            words = [os.path.expanduser(word) for word in shlex.split(line)]
        except ValueError as error:
            raise UsageError(f"{error} in: {line}") from None
        try:
            return run(words, context, "%msprobe")
        except CommandHelp as text:
            print(str(text).rstrip())
            return None
        except (MsProbeError, OSError) as error:
            # The message says what to do; the way through our code would only hide it.
            shown = [f"{type(error).__name__}: {error}"]
            error._render_traceback_ = lambda: shown  # type: ignore[union-attr]
            raise
        except CommandUsageError as error:
            raise UsageError(str(error)) from None


def _usage() -> str:
    """What ``%msprobe?`` shows."""
    wide = max(map(len, COMMANDS))
    commands = "\n".join(f"    %msprobe {c.name:<{wide}}  {c.help}" for c in COMMANDS.values())
    return (
        f"Run a command of msprobe_nb::\n\n{commands}\n"
        "    %msprobe help [COMMAND]  the options of a command\n\n"
        "A command returns its object: ``c = %msprobe compare -tp npu/dump -gp gpu/dump``. Where\n"
        "a path is expected, the name of a variable that holds a run or a path does, too. The Tab\n"
        "key completes commands, options, paths and variables.\n"
    )


MsProbeMagics.msprobe.__doc__ = _usage()


# ---------------------------------------------------------------- completion


class _Line(NamedTuple):
    """A line up to the cursor: whole words, and the unfinished one as it stands and as meant."""

    done: list[str]
    raw: str
    fragment: str


def _read(line: str) -> _Line:
    """Split as a shell does, also where a quotation mark is still open."""
    done: list[str] = []
    word, start, quote, escaped = "", 0, "", False
    for at, char in enumerate(line):
        if escaped:
            word, escaped = word + char, False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            word, quote = (word, "") if char == quote else (word + char, quote)
        elif char in "'\"":
            quote = char
        elif char.isspace():
            if at > start:
                done.append(word)
            word, start = "", at + 1
        else:
            word += char
    return _Line(done, line[start:], word)


def completions(line: str, variables: dict[str, Any]) -> tuple[str, list[str]]:
    """What may follow at the end of a line that begins with ``%msprobe``.

    Parameters
    ----------
    line : str
        Up to the cursor, without what stands before ``%msprobe``.
    variables : dict
        The notebook's variables.

    Returns
    -------
    fragment : str
        The unfinished word, as it stands in the line.
    candidates : list of str
    """
    words = _read(line)
    raw, fragment, done = words.raw, words.fragment, words.done[1:]
    if not done:
        return raw, [name for name in (*COMMANDS, "help") if name.startswith(fragment)]
    if done[0] == "help":
        return raw, [name for name in COMMANDS if name.startswith(fragment)]
    command = COMMANDS.get(done[0])
    if command is None:
        return raw, []
    _, parsers = build_parser("%msprobe")
    actions = parsers[command.name]._actions
    option = done[-1]
    if fragment.startswith("--") and "=" in fragment:
        option, _, fragment = fragment.partition("=")
        raw = raw.partition("=")[2]
    pending = next((a for a in actions if option in a.option_strings and a.nargs != 0), None)
    if pending is not None and pending.choices:
        return raw, [str(c) for c in pending.choices if str(c).startswith(fragment)]
    options = [
        name
        for action in actions
        if action.dest != "help" and not set(action.option_strings) & set(done)
        for name in action.option_strings
        if name.startswith(fragment)
    ]
    if fragment.startswith("-"):
        return raw, options
    takes_path = (
        pending.dest in command.paths if pending else _next_positional(actions, done, command)
    )
    found = [*_variables(fragment, variables), *_paths(raw, fragment)] if takes_path else []
    return raw, found + (options if not fragment and pending is None else [])


def _next_positional(actions: list[argparse.Action], done: list[str], command: Any) -> bool:
    """Whether a path may stand here as a positional argument."""
    return any(not a.option_strings and a.dest in command.paths for a in actions)


def _variables(fragment: str, variables: dict[str, Any]) -> list[str]:
    """Variables that may stand for a run; texts only when a path stands there."""
    from msprobe_nb.store import Run

    return sorted(
        name
        for name, value in variables.items()
        if name.startswith(fragment)
        and not name.startswith("_")
        and (
            isinstance(value, (Run, os.PathLike))
            or (isinstance(value, str) and ("://" in value or os.path.exists(value)))
        )
    )


def _paths(raw: str, fragment: str) -> list[str]:
    """Paths that begin so, written as the word was begun: in quotes, or with escaped blanks."""
    start = os.path.expanduser(fragment)
    home = start.removesuffix(fragment[1:]) if start != fragment else ""
    found = []
    for path in sorted(glob.glob(glob.escape(start) + "*"))[:200]:
        folder = os.path.isdir(path)
        text = "~" + path.removeprefix(home) if home else path
        if raw[:1] in ("'", '"'):
            found.append(raw[0] + text + ("/" if folder else raw[0]))
        else:
            found.append(re.sub(r"([^\w@%+=:,./~-])", r"\\\1", text) + "/" * folder)
    return found


def _matcher(shell: InteractiveShell) -> Any:
    @context_matcher(identifier=_MATCHER)
    def match(context: CompletionContext) -> dict[str, Any]:
        line = context.line_with_cursor[: context.cursor_position].split("\n")[-1].lstrip()
        at = line.find("%msprobe ")
        if at < 0 or (at > 0 and not line[:at].rstrip().endswith("=")):
            return {"completions": [], "suppress": False}
        fragment, found = completions(line[at:], shell.user_ns)
        # IPython asks its other matchers, which know Python only, unless something is found here:
        # where nothing fits, what stands there already is offered.
        return {
            "completions": [SimpleCompletion(text, type="magic") for text in found or [fragment]],
            "matched_fragment": fragment,
            "suppress": True,
            "ordered": True,
        }

    return match


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext msprobe_nb``."""
    shell.register_magics(MsProbeMagics(shell))
    _drop_matcher(shell)
    shell.Completer.custom_matchers.append(_matcher(shell))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """``%unload_ext msprobe_nb``."""
    _drop_matcher(shell)
    shell.magics_manager.magics["line"].pop("msprobe", None)


def _drop_matcher(shell: InteractiveShell) -> None:
    shell.Completer.custom_matchers[:] = [
        matcher
        for matcher in shell.Completer.custom_matchers
        if getattr(matcher, "matcher_identifier", "") != _MATCHER
    ]
