"""``%msprobe``: the commands in a notebook, with completion of options, paths and variables.

``%load_ext msprobe_nb`` turns it on. A command returns its result object, so
``c = %msprobe compare -tp A -gp B`` works; where a path is expected, the name of a variable that
holds a run does too.
"""

from __future__ import annotations

import argparse
import glob
import os
import shlex
from typing import Any

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
        """Run a command of msprobe_nb; ``%msprobe help`` lists them."""
        context = Context(self.shell.user_ns, interactive=True)
        try:
            return run(shlex.split(line), context, "%msprobe")
        except CommandHelp as text:
            print(str(text).rstrip())
            return None
        except MsProbeError as error:
            # The message says what to do; the way through our code would only hide it.
            shown = [f"{type(error).__name__}: {error}"]
            error._render_traceback_ = lambda: shown  # type: ignore[attr-defined]
            raise
        except (CommandUsageError, ValueError) as error:
            raise UsageError(str(error)) from None


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
        The unfinished word.
    candidates : list of str
    """
    words = line.split(" ")
    fragment, done = words[-1], [word for word in words[1:-1] if word]
    if not done:
        return fragment, [name for name in (*COMMANDS, "help") if name.startswith(fragment)]
    if done[0] == "help":
        return fragment, [name for name in COMMANDS if name.startswith(fragment)]
    command = COMMANDS.get(done[0])
    if command is None:
        return fragment, []
    _, parsers = build_parser("%msprobe")
    actions = parsers[command.name]._actions
    pending = next((a for a in actions if done[-1] in a.option_strings and a.nargs != 0), None)
    if pending is not None and pending.choices:
        return fragment, [str(c) for c in pending.choices if str(c).startswith(fragment)]
    options = [
        option
        for action in actions
        if action.dest != "help" and not set(action.option_strings) & set(done)
        for option in action.option_strings
        if option.startswith(fragment)
    ]
    if fragment.startswith("-"):
        return fragment, options
    takes_path = (
        pending.dest in command.paths if pending else _next_positional(actions, done, command)
    )
    found = [*_runs(fragment, variables), *_paths(fragment)] if takes_path else []
    return fragment, found + (options if not fragment and pending is None else [])


def _next_positional(actions: list[argparse.Action], done: list[str], command: Any) -> bool:
    """Whether a path may stand here as a positional argument."""
    return any(not a.option_strings and a.dest in command.paths for a in actions)


def _runs(fragment: str, variables: dict[str, Any]) -> list[str]:
    from msprobe_nb.store import Run

    return sorted(
        name
        for name, value in variables.items()
        if name.startswith(fragment) and not name.startswith("_") and isinstance(value, Run)
    )


def _paths(fragment: str) -> list[str]:
    found = sorted(glob.glob(glob.escape(os.path.expanduser(fragment)) + "*"))[:200]
    return [path + "/" if os.path.isdir(path) else path for path in found]


def _matcher(shell: InteractiveShell) -> Any:
    @context_matcher(identifier=_MATCHER)
    def match(context: CompletionContext) -> dict[str, Any]:
        line = context.line_with_cursor[: context.cursor_position].split("\n")[-1].lstrip()
        at = line.find("%msprobe ")
        if at < 0 or (at > 0 and not line[:at].rstrip().endswith("=")):
            return {"completions": [], "suppress": False}
        fragment, found = completions(line[at:], shell.user_ns)
        return {
            "completions": [SimpleCompletion(text, type="magic") for text in found],
            "matched_fragment": fragment,
            "suppress": bool(found),
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
