"""Whole processes side by side: CPU, wall time, peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """What a process and its children used."""

    cpu: float  # seconds, user and system
    wall: float  # seconds
    peak: float  # MiB of the largest process


def run(words: list[str], folder: Path) -> Usage:
    """Run a program to its end; its output goes to a file in `folder`."""
    with open(folder / "output.txt", "w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(words)} failed:\n{output.read()[-2000:]}")
    return Usage(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024)


def side_by_side(ours: list[str], theirs: list[str], folder: Path, runs: int) -> None:
    """Run both in turn and print the medians and their ratios."""
    pairs = [(run(ours, folder), run(theirs, folder)) for _ in range(runs)]
    print(f"{'':12}{'msprobe_nb':>12}{'official':>12}{'ratio':>10}")
    for name, unit in (("cpu", "s"), ("wall", "s"), ("peak", "MiB")):
        one, other = (
            statistics.median(getattr(pair[side], name) for pair in pairs) for side in (0, 1)
        )
        print(f"{f'{name} ({unit})':12}{one:12.2f}{other:12.2f}{other / one:9.1f}x")
