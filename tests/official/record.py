"""Records two steps of a small model with the official tool, into ``dump`` of the current folder.

Usage: record.py TASK SUMMARY_MODE FACTOR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger


class Net(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 5)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x))) * self.factor
        return self.fc(x.mean((2, 3)))


def main(task: str, summary_mode: str, factor: float) -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    detail = {"summary_mode": summary_mode} if task == "statistics" else {}
    config = {"task": task, "dump_path": "./dump", "rank": [], "step": [], "level": "mix"}
    Path("config.json").write_text(json.dumps(config | {task: detail}))
    debugger = PrecisionDebugger(config_path="./config.json")
    model = Net(factor)
    for _ in range(2):
        debugger.start(model=model)
        loss = F.cross_entropy(model(torch.randn(2, 3, 6, 6)), torch.tensor([0, 3]))
        loss.backward()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
