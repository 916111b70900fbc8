"""Runs several commands of the official tool, since starting it takes long.

Usage: commands.py COMMANDS_JSON OUTCOMES_JSON. The first holds a list of argument lists; the
second gets, for each, ``ok`` or how it ended. Each runs in a process of its own, forked after the
tool was loaded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import msprobe.overflow_check.analyzer
import msprobe.pytorch.compare.pt_compare
import msprobe.visualization.graph_service  # noqa: F401 - loaded once for all
from msprobe.msprobe import main

LIMIT = 100  # seconds


def run(words: list[str]) -> int:
    sys.argv = ["msprobe", *words]
    signal.alarm(LIMIT)
    try:
        main()
    except SystemExit as end:
        return int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def outcome(words: list[str]) -> str:
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        os._exit(run(words))
    _, status = os.waitpid(child, 0)
    return "ok" if status == 0 else f"ended with {status}"


if __name__ == "__main__":
    commands, outcomes = map(Path, sys.argv[1:])
    outcomes.write_text(json.dumps([outcome(words) for words in json.loads(commands.read_text())]))
