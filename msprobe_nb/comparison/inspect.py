"""Looking closely at one row: what was recorded on both sides, and how their values differ.

Everything the detail pane shows is computed here and is plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe_nb.comparison.marks import marks_of
from msprobe_nb.comparison.reasons import Reasons
from msprobe_nb.comparison.verdict import VERDICTS
from msprobe_nb.errors import MsProbeError
from msprobe_nb.store.dtypes import widen
from msprobe_nb.store.index import ARGUMENT, STATISTICS
from msprobe_nb.store.pack import TENSOR_MODE

if TYPE_CHECKING:
    from msprobe_nb.comparison.result import Comparison, JudgedPart
    from msprobe_nb.comparison.sides import Side

BINS = 60
WORST = 20
_SAMPLE = 1 << 24  # larger tensors are sampled for histograms
_HEAT = 256  # a heat map has at most this many cells a side


@dataclass(slots=True)
class Histogram:
    """Counts over common bins.

    Attributes
    ----------
    edges : ndarray, shape (bins + 1,)
    counts : dict of str to ndarray of int, shape (bins,)
    left_out : dict of str to int
        Elements that are NaN or infinite.
    """

    edges: np.ndarray
    counts: dict[str, np.ndarray]
    left_out: dict[str, int]


@dataclass(slots=True)
class RowDetail:
    """One row of a comparison.

    Attributes
    ----------
    target, golden : dict
        What was recorded: name, dtype, shape, statistics ... ; `golden` is empty without partner.
    verdict, reason : str
    mark : str
        The verdict as shown: ``not measured`` for a pass that nothing was measured for.
    metrics : dict
        Result columns of the row.
    stack : list of str
        Where the target called it, innermost frame first.
    problem : str
        Why the values cannot be compared; empty when they can.
    sides : dict of str to ndarray
        The values of each side that has numbers to show, axes of length 1 removed.
    """

    target: dict[str, Any]
    golden: dict[str, Any]
    verdict: str
    reason: str
    metrics: dict[str, float]
    stack: list[str]
    mark: str
    problem: str = ""
    sides: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    _arrays: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @property
    def has_values(self) -> bool:
        """Whether both sides' values are at hand and of one shape."""
        return self._arrays is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the compared values, axes of length 1 removed."""
        return self._arrays[0].shape if self._arrays else ()

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Target and golden values, axes of length 1 removed, in a dtype numpy computes with."""
        if self._arrays is None:
            raise ValueError(self.problem)
        return self._arrays

    # ------------------------------------------------------------ pictures as data

    def histogram(self) -> Histogram:
        """The values of each side that has some, over common bins."""
        return _histogram({name: _sample(_real(array)) for name, array in self.sides.items()})

    def difference_histogram(self) -> Histogram:
        """Target minus golden."""
        return _histogram({"difference": _sample(self.difference())})

    def difference(self) -> np.ndarray:
        """Target minus golden in float64 (complex numbers: the modulus of the difference)."""
        ours, theirs = self.arrays()
        with np.errstate(all="ignore"):
            if ours.dtype.kind == "c" or theirs.dtype.kind == "c":
                return np.abs(ours - theirs)
            return ours.astype(np.float64) - theirs.astype(np.float64)

    def worst(self, count: int = WORST) -> list[dict[str, Any]]:
        """The elements with the largest absolute difference, NaN first.

        Returns
        -------
        list of dict
            ``index`` (tuple), ``target``, ``golden``, ``difference``, ``relative``.
        """
        ours, theirs = (array.reshape(-1) for array in self.arrays())
        error = np.abs(self.difference()).reshape(-1)
        size = np.where(np.isnan(error), np.inf, error)
        count = min(count, size.size)
        top = np.argpartition(-size, count - 1)[:count] if size.size else np.empty(0, int)
        top = top[np.argsort(-size[top], kind="stable")]
        found = []
        for at in top.tolist():
            golden = complex(theirs[at]) if theirs.dtype.kind == "c" else float(theirs[at])
            target = complex(ours[at]) if ours.dtype.kind == "c" else float(ours[at])
            with np.errstate(all="ignore"):
                relative = float(np.float64(error[at]) / np.float64(abs(golden)))
            found.append(
                {
                    "index": tuple(int(i) for i in np.unravel_index(at, self.shape)),
                    "target": target,
                    "golden": golden,
                    "difference": float(error[at]),
                    "relative": relative,
                }
            )
        return found

    def heat(
        self, vertical: int, horizontal: int | None, fixed: dict[int, int], what: str = "difference"
    ) -> np.ndarray:
        """A plane through the values for a heat map.

        Parameters
        ----------
        vertical, horizontal : int
            Axes of the plane; `horizontal` None for one-dimensional values.
        fixed : dict of int to int
            Index on each of the other axes (0 where absent).
        what : str
            ``difference`` (absolute), ``target`` or ``golden``.

        Returns
        -------
        ndarray of float64, two-dimensional
            At most 256 cells a side; a cell that stands for several elements shows the largest
            difference among them, or their mean for values.
        """
        ours, theirs = self.arrays()
        key = tuple(
            slice(None) if axis in (vertical, horizontal) else fixed.get(axis, 0)
            for axis in range(ours.ndim)
        )
        planes = ours[key], theirs[key]
        if what == "difference":
            with np.errstate(all="ignore"):
                plane = np.abs(_real(planes[0]) - _real(planes[1]))
        else:
            plane = _real(planes[0] if what == "target" else planes[1])
        if horizontal is None:
            plane = plane.reshape(1, -1)
        elif vertical > horizontal:
            plane = plane.T
        return _reduce(plane, np.nanmax if what == "difference" else np.nanmean)


def inspect_row(comparison: Comparison, position: int) -> RowDetail:
    """Look closely at one row.

    Parameters
    ----------
    comparison : Comparison
    position : int
        Row of :attr:`Comparison.table`.

    Raises
    ------
    IndexError
        There is no such row.
    """
    for judged in comparison.judged:
        if position < len(judged.rows):
            mark = marks_of(judged)[position]
            return _inspect(judged, int(judged.rows[position]), str(mark))
        position -= len(judged.rows)
    raise IndexError("no such row")


def _inspect(judged: JudgedPart, row: int, mark: str) -> RowDetail:
    part = judged.part
    partner = max(int(part.pairs.golden[row]), int(part.pairs.gated[row]))
    metrics = {name: float(metric.value()[row]) for name, metric in part.metrics.items()}
    for name, values in part.custom.items():
        if isinstance(values[row], (int, float)):
            metrics[name] = float(values[row])
    detail = RowDetail(
        target=_facts(part.target, row),
        golden=_facts(part.golden, partner) if partner >= 0 else {},
        verdict=VERDICTS[judged.judgement.level[row]],
        reason=Reasons(judged).of(row),
        metrics=metrics,
        stack=part.target.pack.nodes.stack_of(int(part.node[row])),
        mark=mark,
    )
    if part.checksums[0]:
        detail.target["checksum"] = part.checksums[0][row]
        if partner >= 0:
            detail.golden["checksum"] = part.checksums[1][row]
    if part.target.index.kind[row] == ARGUMENT:
        return detail
    if part.mode != TENSOR_MODE:
        detail.problem = "Only statistics were recorded; record with task 'tensor' to see values."
    else:
        _load(detail, {"target": (part.target, row), "golden": (part.golden, partner)})
    return detail


def _facts(side: Side, row: int) -> dict[str, Any]:
    index = side.index
    facts: dict[str, Any] = {"name": side.names[row], "dtype": side.dtype[row]}
    if index.kind[row] == ARGUMENT and row in index.value:
        # The official tool gives an argument's value as its maximum, minimum, mean and norm.
        return facts | {"value": index.value[row]} | index.detail.get(row, {})
    facts["shape"], facts["requires_grad"] = side.shape[row], side.requires_grad[row]
    facts |= {name: side.statistics.item(row, at) for at, name in enumerate(STATISTICS)}
    if row in index.value:
        facts["value"] = index.value[row]
    facts |= index.detail.get(row, {})
    if index.data_name[row]:
        facts["file"] = index.data_name[row]
    return facts


def _load(detail: RowDetail, rows: dict[str, tuple[Side, int]]) -> None:
    """Read the values of both sides, as far as they are there."""
    problems = []
    for name, (side, row) in rows.items():
        if row < 0:
            problems.append("There is no golden row to compare values with.")
        elif not side.index.has_data[row]:
            problems.append(f"No values were recorded for the {name}.")
        else:
            try:
                array = np.squeeze(widen(side.pack.read(row)))
            except MsProbeError as error:
                problems.append(str(error))
                continue
            if array.size == 0:
                problems.append(f"The {name}'s tensor is empty.")
            elif array.dtype.kind not in "biufc":
                problems.append(f"The {name}'s values are no numbers.")
            else:
                detail.sides[name] = array
    shapes = [list(array.shape) for array in detail.sides.values()]
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        detail._arrays = detail.sides["target"], detail.sides["golden"]
    elif len(shapes) == 2:
        problems.append(f"Shapes {shapes[0]} and {shapes[1]} differ.")
    detail.problem = " ".join(problems)


def heat_step(size: int) -> int:
    """How many elements of an axis of this size one cell of a heat map stands for."""
    return -(-size // _HEAT)


def _real(array: np.ndarray) -> np.ndarray:
    return np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64, copy=False)


def _sample(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1)
    return flat[:: -(-flat.size // _SAMPLE)] if flat.size > _SAMPLE else flat


def _histogram(columns: dict[str, np.ndarray]) -> Histogram:
    finite = {name: column[np.isfinite(column)] for name, column in columns.items()}
    held = [column for column in finite.values() if column.size]
    low = min((float(column.min()) for column in held), default=0.0)
    high = max((float(column.max()) for column in held), default=1.0)
    if low == high:
        pad = abs(low) * 1e-6 or 0.5
        low, high = low - pad, high + pad
    if not np.isfinite(high - low):  # the range itself overflows
        low, high = np.nan_to_num(low / 2), np.nan_to_num(high / 2)
    edges = np.linspace(low, high, BINS + 1)
    return Histogram(
        edges,
        {name: np.histogram(column, edges)[0] for name, column in finite.items()},
        {name: columns[name].size - finite[name].size for name in columns},
    )


def _reduce(plane: np.ndarray, combine: Any) -> np.ndarray:
    """At most 256 cells a side, neighbours combined."""
    import warnings

    plane = np.asarray(plane, np.float64)
    for axis in (0, 1):
        step = heat_step(plane.shape[axis])
        if step == 1:
            continue
        pad = [(0, 0), (0, 0)]
        pad[axis] = (0, -plane.shape[axis] % step)
        padded = np.pad(plane, pad, constant_values=np.nan)
        parts = np.split(padded, padded.shape[axis] // step, axis)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a cell of NaN alone stays NaN
            plane = np.stack([combine(part, axis=axis) for part in parts], axis)
    return plane
