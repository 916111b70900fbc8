"""The main job on the ResNet-50 pair: compare, execute the notebook, write a report, say what was
found. Run by ``make demo``; everything it writes goes to ``build/demo``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msprobe_nb as mp

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "demo"
NOTEBOOK = "01-first-comparison.ipynb"


def execute_notebook() -> Path:
    """Run the notebook on a copy of the data and return the executed file."""
    shutil.copy(ROOT / "notebooks" / NOTEBOOK, OUT)
    shutil.copytree(ROOT / "notebooks" / "data", OUT / "data", dirs_exist_ok=True)
    command = [
        *(sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--inplace"),
        *("--to", "notebook", "--ExecutePreprocessor.store_widget_state=False", NOTEBOOK),
    ]
    done = subprocess.run(command, cwd=OUT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"The notebook failed:\n{done.stderr}")
    return OUT / NOTEBOOK


def main() -> int:
    """Do the demo and print where everything is."""
    OUT.mkdir(parents=True, exist_ok=True)
    data = Path(os.path.relpath(ROOT / "notebooks" / "data" / "resnet50"))
    print("Comparing ResNet-50 on two devices ...")
    result = mp.compare(data / "cpu", data / "gpu")
    report = result.to_html(OUT / "report.html")
    (table,) = result.to_csv(OUT / "compare_result.csv")
    print("Executing the notebook ...\n")
    notebook = execute_notebook()
    print(result.summary())
    began = result.rejudge(rules="evidence").summary().splitlines()[0]
    print(
        f"\nBy evidence instead (--rules evidence): {began}"
        f"\n\nNotebook  {os.path.relpath(notebook)}"
        f"\nReport    {os.path.relpath(report)}   (opens in any browser)"
        f"\nTable     {os.path.relpath(table)}   (columns of the official tool)"
        f"\n\nTo look around yourself:\n"
        f"  {os.path.relpath(Path(sys.executable).parent / 'jupyter')} lab "
        f"{os.path.relpath(notebook)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
