"""Whole processes side by side: CPU, wall time, peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """What a process and its children used."""

    cpu: float  # seconds, user and system
    wall: float  # seconds
    peak: float  # MiB of the largest process


UNITS = (("cpu", "s"), ("wall", "s"), ("peak", "MiB"))


def run(words: list[str], folder: Path, settings: dict[str, str] | None = None) -> Usage:
    """Run a program to its end; its output goes to a file in `folder`."""
    with open(folder / "output.txt", "w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            words,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(settings or {})},
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(words)} failed:\n{output.read()[-2000:]}")
    return Usage(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024)


@dataclass(frozen=True)
class Program:
    """One of the programs that are measured.

    Attributes
    ----------
    name : str
    words : list of str
    settings : dict of str to str
        Environment variables besides the usual.
    """

    name: str
    words: list[str]
    settings: dict[str, str] = field(default_factory=dict)


def compile_package() -> None:
    """Compile the package as an installation does; a checkout may never have been."""
    import compileall

    import msprobe_nb

    compileall.compile_dir(Path(msprobe_nb.__file__).parent, quiet=1)


def side_by_side(ours: list[Program], theirs: list[Program], folder: Path, runs: int) -> None:
    """Run all in turn; print the medians, and how many times more each of theirs takes."""
    compile_package()
    programs = [*ours, *theirs]
    used: dict[str, list[Usage]] = {program.name: [] for program in programs}
    for _ in range(runs):
        for program in programs:
            used[program.name].append(run(program.words, folder, program.settings))
    middle = {
        name: Usage(*(statistics.median(getattr(u, unit) for u in uses) for unit, _ in UNITS))
        for name, uses in used.items()
    }
    print(f"{'':34}" + "".join(f"{f'{unit} ({what})':>14}" for unit, what in UNITS))
    for name, usage in middle.items():
        print(f"{name:34}" + "".join(f"{getattr(usage, unit):14.2f}" for unit, _ in UNITS))
    for other in theirs:
        for one in ours:
            print(
                f"{f'{other.name} / {one.name}':34.34}"
                + "".join(
                    f"{getattr(middle[other.name], u) / getattr(middle[one.name], u):13.1f}x"
                    for u, _ in UNITS
                )
            )
