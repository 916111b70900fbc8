"""Makes the recordings of this folder with the official tool, from the models of the fault tests.

Usage: python make.py, with the test extra installed, on a system that can fork.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITE = HERE.parents[2] / "tests" / "faults"
sys.path.insert(0, str(SUITE))

from faults import FIRST_CONFIRMING, TUNING

import msprobe_nb as mp

CHOSEN = {
    "encoder": [
        *("feed-forward weight scaled", "one element of a query weight", "layer norm eps"),
        *("gelu approximated", "extra activation", "scale missing", "attention in bfloat16"),
        *("unseen scaling", "gradient scaled", "one token"),
    ],
    "conv": ["exploding exponential", "batch norm in evaluation mode"],
}


def keep(recording: Path, name: str) -> None:
    """Convert a recording into a run store and pack that into one file."""
    for stacks in recording.rglob("stack.json"):  # of paths keep what is the same everywhere
        stacks.write_text(re.sub(r"/[^\s,]*/(site-packages/|faults/)", r"\1", stacks.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / f"{name}.zarr"
        mp.import_run(recording, store, progress=False)
        with zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(store.rglob("*")):
                if path.is_file():
                    place = path.relative_to(store).as_posix()
                    archive.writestr(
                        zipfile.ZipInfo(place), path.read_bytes(), zipfile.ZIP_DEFLATED
                    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "recordings"
        for which in ("tuning", "first"):
            words = [
                sys.executable,
                str(SUITE / "record.py"),
                str(root / which),
                "statistics",
                which,
            ]
            subprocess.run(words, check=True, capture_output=True)
        for model in CHOSEN:
            keep(root / f"tuning/{model}.golden/dump", f"{model}_golden")
        for which, faults in (("tuning", TUNING), ("first", FIRST_CONFIRMING)):
            for fault in faults:
                if fault.name in CHOSEN.get(fault.model, ()):
                    keep(root / which / fault.folder / "dump", fault.folder)


if __name__ == "__main__":
    main()
