"""What the tests of exports share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from support import same_bits

from msprobe_nb.formats import open_run
from msprobe_nb.formats.exporter import export_run
from msprobe_nb.formats.importer import import_run

COMMANDS = Path(__file__).parent / "official" / "commands.py"
JSON_FILES = ("dump.json", "debug.json", "stack.json", "construct.json")


def there_and_back(source, folder: Path) -> Path:
    """Import a recording and export the store."""
    store = import_run(source, folder / "run.zarr", progress=False)
    return export_run(open_run(store.url), folder / "official", progress=False)


def parsed(path: Path) -> str:
    """A JSON file with the order and the repetitions of its keys, comparable also with NaN."""
    return json.dumps(json.loads(path.read_bytes(), object_pairs_hook=list))


def load(path: Path) -> torch.Tensor | np.ndarray:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    return torch.load(path, weights_only=True)


def same_values(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return same_bits(a, b)
    codes = [t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else t for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*codes)


def same_folder(ours: Path, theirs: Path, *, to_the_byte: bool = True) -> int:
    """Assert that two packs have equal files; the number of tensors."""
    for name in JSON_FILES:
        assert (ours / name).exists() == (theirs / name).exists(), name
        if (ours / name).exists():
            assert parsed(ours / name) == parsed(theirs / name)
            if to_the_byte:
                assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    files = sorted((ours / "dump_tensor_data").glob("*"))
    for file in files:
        assert same_values(load(file), load(theirs / "dump_tensor_data" / file.name)), file.name
    return len(files)


def packs_of(root: Path) -> list[Path]:
    return sorted(p.parent for p in root.rglob("*.json") if p.name in ("dump.json", "debug.json"))


def run_official(commands: list[list[str]], folder: Path, cwd: Path | None = None) -> list[str]:
    """How each command of the official tool ended; started once for all of them."""
    files = [folder / "commands.json", folder / "outcomes.json"]
    files[0].write_text(json.dumps(commands))
    done = subprocess.run(
        [sys.executable, str(COMMANDS), *map(str, files)],
        cwd=cwd or folder,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(files[1].read_text())
