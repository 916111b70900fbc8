"""Comparing two recordings: msprobe_nb beside the official tool, whole processes.

    python benchmarks/compare.py statistics --size 200000
    python benchmarks/compare.py tensor --size 2000

Both tools get the same recordings, made here, and write the same result file. Needs the test
extra (``mindstudio-probe``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure import Program, side_by_side

from msprobe_nb import import_run

APIS = ["Functional.linear", "Torch.matmul", "Tensor.__add__", "Functional.gelu", "Torch.softmax"]
OFFICIAL = "import sys; from msprobe.msprobe import main; sys.exit(main())"


def facts(statistics: Any, shape: tuple[int, ...], **more: Any) -> dict[str, Any]:
    """A tensor as dump.json describes it."""
    high, low, mean, norm = (float(number) for number in statistics)
    return {
        **{"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape)},
        **{"Max": high, "Min": low, "Mean": mean, "Norm": norm, "requires_grad": False},
        **more,
    }


def write(folder: Path, task: str, data: dict[str, Any]) -> None:
    """Write a recording with a call stack for every call."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}, indent=1))
    frames = [f"File model.py, line {n}, in forward, \n x = self.layer{n}(x)" for n in range(8)]
    (folder / "stack.json").write_text(json.dumps({"0": [list(data), frames]}, indent=1))
    (folder / "construct.json").write_text("{}")


def call(inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    return {"input_args": inputs, "input_kwargs": {}, "output": outputs}


def name(number: int) -> str:
    return f"{APIS[number % len(APIS)]}.{number // len(APIS)}.forward"


def record_statistics(root: Path, rows: int) -> None:
    """Calls of two tensors, a number and an output; golden and target differ by about 1e-3."""
    random = np.random.default_rng(0)
    golden = random.standard_normal((rows // 4, 3, 4))
    target = golden * (1 + 1e-3 * random.standard_normal(golden.shape))
    number = {"type": "float", "value": 0.5}
    for side, values in (("golden", golden), ("target", target)):
        data = {
            name(at): call(
                [facts(first, (8, 128)), facts(second, (8, 128)), number],
                [facts(output, (8, 128))],
            )
            for at, (first, second, output) in enumerate(values)
        }
        write(root / side, "statistics", data)


def record_tensors(root: Path, count: int, elements: int) -> None:
    """Calls of two inputs and an output, all with data."""
    import torch

    random = np.random.default_rng(0)
    sides: dict[str, dict[str, Any]] = {"golden": {}, "target": {}}
    for side in sides:
        (root / side / "dump_tensor_data").mkdir(parents=True)
    for at in range(count // 3):
        found: dict[str, list[Any]] = {side: [] for side in sides}
        for slot in ("input.0", "input.1", "output.0"):
            golden = random.standard_normal(elements, dtype=np.float32).reshape(-1, 128)
            noise = random.standard_normal(golden.shape, dtype=np.float32)
            file = f"{name(at)}.{slot}.pt"
            for side, values in (("golden", golden), ("target", golden * (1 + 1e-3 * noise))):
                torch.save(torch.from_numpy(values), root / side / "dump_tensor_data" / file)
                numbers = values.max(), values.min(), values.mean(), np.linalg.norm(values)
                found[side].append(facts(numbers, values.shape, data_name=file))
        for side, data in sides.items():
            data[name(at)] = call(found[side][:2], found[side][2:])
    for side, data in sides.items():
        write(root / side, "tensor", data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["statistics", "tensor"])
    parser.add_argument("--size", type=int, default=200_000, help="rows, or tensors")
    parser.add_argument("--elements", type=int, default=16_384, help="elements of a tensor")
    parser.add_argument(
        "--best-only", action="store_true", help="leave out the official tool's default"
    )
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        if options.task == "statistics":
            record_statistics(root, options.size)
        else:
            record_tensors(root, options.size, options.elements)
        for side in ("target", "golden"):
            import_run(root / side, root / f"{side}.zarr", progress=False)
        print(f"{options.task}, {options.size:,}; medians of {options.runs}")
        side_by_side(*programs(options), root, options.runs)


def programs(options: argparse.Namespace) -> tuple[list[Program], list[Program]]:
    """Ours and theirs."""
    files = ["-tp", "target/dump.json", "-gp", "golden/dump.json", "-o"]
    stores = ["-tp", "target.zarr", "-gp", "golden.zarr", "-o"]
    command = [sys.executable, "-m", "msprobe_nb", "compare"]
    official = [sys.executable, "-c", OFFICIAL, "compare", *files]
    ours = [
        Program("msprobe_nb, official folder", [*command, *files, "ours"]),
        Program("msprobe_nb, run store", [*command, *stores, "ours"]),
    ]
    theirs = [] if options.best_only else [Program("official", [*official, "theirs"])]
    if options.task == "tensor":
        best = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        theirs.append(Program("official, one BLAS thread", [*official, "best"], best))
    return ours, theirs


if __name__ == "__main__":
    main()
