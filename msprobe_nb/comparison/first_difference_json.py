"""Files of a search for the first difference, in the official structure and as valid JSON.

Every recorded call goes to ``compare_result_rank<k>_<time>.json`` with the official columns of its
rows; the findings go to ``diff_analyze_<time>.json``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from msprobe_nb.comparison.communication import peers_of
from msprobe_nb.comparison.differing import differing
from msprobe_nb.comparison.official_columns import STACK
from msprobe_nb.comparison.official_xlsx import official_frame
from msprobe_nb.comparison.part import Part, start_part
from msprobe_nb.comparison.result import JudgedPart
from msprobe_nb.comparison.verdict import judge
from msprobe_nb.store.index import INPUT, OUTPUT, ROLES
from msprobe_nb.store.layout import make_folder, write_atomic
from msprobe_nb.store.pack import STATISTICS_MODE, TENSOR_MODE

if TYPE_CHECKING:
    from msprobe_nb.comparison.first_difference import FirstDifferences

_SHOWN = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "NPU MD5")
_PEER = "NPU P2POp peer"


def write_json(result: FirstDifferences, folder: Path) -> list[Path]:
    """Write the files; see :meth:`FirstDifferences.to_json`."""
    comparison = result.comparison
    stamp = datetime.now().strftime("%Y%m%d%H%M%S")
    found: dict[int, dict[str, Any]] = {}
    written = []
    for part in comparison.parts:
        calls = dict(_calls(part, result.limit))
        target = folder / f"step{part.step}" if len(comparison.steps) > 1 else folder
        make_folder(target)
        path = target / f"compare_result_rank{part.rank}_{stamp}.json"
        _write(path, calls)
        written.append(path)
        if result.calls and part.step == result.calls[0].step:
            found[part.rank] = calls
    if result.calls:
        content: dict[str, list[Any]] = {}
        for finding in result.calls:
            items = found[finding.rank][finding.node]["op_items"]
            content.setdefault(f"rank_{finding.rank}", []).append(_finding(finding.node, items))
        path = folder / f"diff_analyze_{time.time_ns()}.json"
        _write(path, content)
        written.append(path)
    return written


def _write(path: Path, content: Any) -> None:
    write_atomic(path, msgspec.json.format(msgspec.json.encode(content), indent=2))


def _calls(part: Part, limit: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, entry) of every recorded call, in recorded order."""
    measured = differing(part)
    same = ~((measured.output > limit) | measured.alone)
    if part.mode == TENSOR_MODE:  # these files hold statistics whatever was recorded
        part = start_part(part.target, part.golden, STATISTICS_MODE, part.pairs)
    judged = JudgedPart(part, judge(part), np.arange(len(part)))
    frame = official_frame(judged)
    titles, nodes = list(frame.columns), part.target.pack.nodes
    items: dict[int, list[dict[str, Any]]] = {}
    for row, cells in enumerate(frame.itertuples(index=False, name=None)):
        at = int(part.node[row])
        item = {title: _valid(cell) for title, cell in zip(titles, cells, strict=True)}
        if STACK in item and at not in items and nodes.stack[at] >= 0:
            item[STACK] = nodes.stack_of(at)
        item["state"] = ROLES[part.target.index.role[row]]
        item["api_origin_name"] = nodes.name[at]
        item |= _transfer(part, row)
        items.setdefault(at, []).append(item)
    for at, rows in items.items():
        yield nodes.name[at], {"is_same": bool(same[at]), "op_items": rows}


def _transfer(part: Part, row: int) -> dict[str, str]:
    """Operation and peer of a row that is one transfer of a batch."""
    partner = int(part.pairs.golden[row])
    ours = peers_of(part.target.pack, row)
    theirs = peers_of(part.golden.pack, partner) if partner >= 0 else ("None", "None")
    names = ("NPU P2POp op", "Bench P2POp op", _PEER, "Bench P2POp peer")
    return dict(zip(names, (ours[0], theirs[0], ours[1], theirs[1]), strict=True))


def _valid(value: Any) -> Any:
    """A cell as JSON can hold it."""
    if isinstance(value, float) and not np.isfinite(value):
        return "Nan" if np.isnan(value) else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value if isinstance(value, (int, float, bool)) else str(value)


def _finding(name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    shown: dict[str, dict[str, Any]] = {ROLES[INPUT]: {}, ROLES[OUTPUT]: {}}
    for item in items:
        if item["state"] in shown:
            facts = {title: item[title] for title in (*_SHOWN, _PEER) if title in item}
            shown[item["state"]][item["NPU Name"]] = facts
    stacks = [item[STACK] for item in items if isinstance(item.get(STACK), list)]
    return {"op_name": name, "data_info": shown, "stack_info": stacks[0] if stacks else []}
