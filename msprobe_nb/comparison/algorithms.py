"""Metrics of the user's own, as further result columns.

An algorithm is a function of two arrays, target and golden, with axes of length 1 removed and in a
dtype numpy computes with; elements that are NaN or infinite in the same way on both sides are 0. It
gives a number or a text. What it gives takes no part in verdicts.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msprobe_nb.comparison import table
from msprobe_nb.comparison.official_columns import COLUMNS, DATA_NAME, STACK
from msprobe_nb.comparison.status import COMPARED
from msprobe_nb.comparison.tensors import RELATIVE_L2, BlockResult
from msprobe_nb.errors import FormatError, MsProbeError, PathNotFoundError, UsageError
from msprobe_nb.store.dtypes import widen

Algorithm = Callable[[np.ndarray, np.ndarray], Any]
_LOCK = threading.Lock()  # functions of users need not bear several threads


def checked(algorithms: Mapping[str, Algorithm] | None) -> dict[str, Algorithm]:
    """The algorithms, if they can be used.

    Raises
    ------
    UsageError
        A column name that is taken or empty, or something that cannot be called.
    """
    taken = {
        *COLUMNS["tensor"],
        STACK,
        DATA_NAME,
    }
    taken |= {*table.LEADING, RELATIVE_L2}
    for name, function in (algorithms or {}).items():
        if not isinstance(name, str) or not name.strip() or name in taken:
            raise UsageError(
                f"{name!r} cannot be the column of an algorithm",
                remedy="Choose a name that no result column has",
            )
        if not callable(function):
            raise UsageError(f"the algorithm {name!r} is no function")
    return dict(algorithms or {})


def run(
    algorithms: Mapping[str, Algorithm],
    target: Sequence[np.ndarray | MsProbeError],
    golden: Sequence[np.ndarray | MsProbeError],
    block: BlockResult,
) -> None:
    """Enter the results of all algorithms for the pairs of a block that were compared."""
    for name in algorithms:
        block.custom[name] = [None] * len(target)
    for at in np.flatnonzero(block.status == COMPARED).tolist():
        ours, theirs = target[at], golden[at]
        if isinstance(ours, MsProbeError) or isinstance(theirs, MsProbeError):
            continue
        pair = _prepared(ours), _prepared(theirs)
        for name, function in algorithms.items():
            try:
                with _LOCK:
                    block.custom[name][at] = _result(function(pair[0].copy(), pair[1].copy()))
            except Exception as error:  # whatever a user's function does, the rows go on
                block.add_note(at, f"{name} failed: {type(error).__name__}: {error!s:.120}")


def _prepared(array: np.ndarray) -> np.ndarray:
    values = np.squeeze(widen(array))
    if values.dtype.kind in "fc":
        odd = ~np.isfinite(values)
        if odd.any():
            values = np.where(odd, values.dtype.type(0), values)
    return values


def _result(value: Any) -> int | float | str:
    if isinstance(value, (np.number, np.ndarray)) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"gave {type(value).__name__}, expected a number or a text")
    return value


def load_algorithm(path: str | os.PathLike[str]) -> dict[str, Algorithm]:
    """An algorithm from a Python file, which is run: only for files that the user names.

    The file defines ``column_name()``, which gives the column's name, and
    ``compare(n_value, b_value)``, which gets torch tensors.

    Raises
    ------
    PathNotFoundError, FormatError
        There is no such file, or it does not define both.
    """
    file = Path(path)
    if not file.is_file():
        raise PathNotFoundError("the algorithm file does not exist", file=path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise FormatError("an algorithm file is Python source", file=path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        name, function = module.column_name(), module.compare
        wanted = [
            p for p in inspect.signature(function).parameters.values() if p.default is p.empty
        ]
    except Exception as error:
        raise FormatError(
            f"the algorithm cannot be loaded ({type(error).__name__}: {error!s:.120})",
            file=path,
            remedy="Define column_name() and compare(n_value, b_value)",
        ) from error
    if len(wanted) != 2 or not isinstance(name, str):
        raise FormatError(
            "column_name() has to give a text and compare() to take two values", file=path
        )

    def on_tensors(target: np.ndarray, golden: np.ndarray) -> Any:
        import torch

        with torch.no_grad():
            return function(torch.from_numpy(target), torch.from_numpy(golden))

    return {name: on_tensors}
