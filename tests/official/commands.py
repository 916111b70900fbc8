"""Runs several commands of the official tool, since starting it takes long.

Usage: commands.py COMMANDS_JSON. The file holds a list of argument lists; for each a line says
``ok`` or how it ended. Each runs in a process of its own, forked after the tool was loaded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch  # noqa: F401 - loaded once for all
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
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        os._exit(run(words))
    _, status = os.waitpid(child, 0)
    return "ok" if status == 0 else f"ended with {status}"


if __name__ == "__main__":
    commands = json.loads(Path(sys.argv[1]).read_text())
    for words in commands:
        print(outcome(words))
