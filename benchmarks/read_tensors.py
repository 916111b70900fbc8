"""Reading ``.pt`` files: msprobe_nb beside ``torch.load(weights_only=True)``, in one process.

python benchmarks/read_tensors.py --files 2000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from msprobe_nb.formats.torch_file import read_torch
from msprobe_nb.store.sources import LocalSource


def seconds(read: Callable[[str], object], names: list[str]) -> float:
    start = time.perf_counter()
    for name in names:
        read(name)
    return (time.perf_counter() - start) / len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--elements", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = [f"Torch.x.{number}.forward.input.0.pt" for number in range(options.files)]
        for name in names:
            torch.save(torch.randn(options.elements), folder / name)
        source = LocalSource(folder)

        def ours(name: str) -> object:
            return read_torch(source, name).sum()

        def theirs(name: str) -> object:
            return torch.load(folder / name, weights_only=True).numpy().sum()

        pairs = [(seconds(ours, names), seconds(theirs, names)) for _ in range(options.rounds)]
        one, other = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
        print(f"a file of {options.elements:,} float32: msprobe_nb {one * 1e6:.0f} us, ", end="")
        print(f"torch.load {other * 1e6:.0f} us, ratio {other / one:.1f}x")


if __name__ == "__main__":
    main()
