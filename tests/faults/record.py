"""Records every fault and the healthy runs with the official tool.

Usage: record.py FOLDER TASK [SET]. Each recording is made in a process of its own, forked after the
imports, because the official debugger cannot start twice in one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from faults import CONFIRMING, FIRST_CONFIRMING, TUNING, Fault, build, data_of
from models import MODELS
from msprobe.pytorch import PrecisionDebugger


def record(folder: Path, task: str, model_name: str, fault: Fault | None, threads: int) -> None:
    torch.set_num_threads(threads)
    folder.mkdir(parents=True)
    os.chdir(folder)
    config = {"task": task, "dump_path": "./dump", "rank": [], "step": [], "level": "mix"}
    Path("config.json").write_text(json.dumps(config | {task: {"summary_mode": "statistics"}}))
    model, data = build(model_name), data_of(model_name)
    if fault is not None:
        fault.inject(model, data)
    debugger = PrecisionDebugger(config_path="./config.json")
    debugger.start(model=model)
    logits = model(data["inputs"])
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), data["labels"])
    if data["factor"] is not None:
        loss = loss * data["factor"]
    loss.backward()
    debugger.stop()
    debugger.step()


def main(folder: Path, task: str, which: str) -> None:
    jobs = [(folder / f"{name}.golden", name, None, 1) for name in MODELS]
    jobs += [(folder / f"{name}.threads", name, None, 2) for name in MODELS]
    sets = {"tuning": TUNING, "first": FIRST_CONFIRMING, "confirming": CONFIRMING}
    faults = sets[which] if which in sets else [fault for group in sets.values() for fault in group]
    jobs += [(folder / fault.folder, fault.model, fault, 1) for fault in faults]
    for job in jobs:
        child = os.fork()
        if not child:
            status = 1
            try:
                record(job[0], task, *job[1:])
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{job[0].name} was not recorded")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "all")
