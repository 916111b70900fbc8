"""Progress of long work: a bar in notebooks and terminals, nothing when not wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DELAY = 0.5  # seconds before a bar appears; short work shows none and imports nothing


class _Bar:
    """A bar that appears when the work turns out to be long."""

    def __init__(self, options: dict[str, Any] | None) -> None:
        self._options, self._count = options, 0
        self._bar: Any = None
        self._start = time.perf_counter()

    def update(self, count: int = 1) -> None:
        """Count some units."""
        if self._options is None:
            return
        self._count += count
        if self._bar is not None:
            self._bar.update(count)
        elif time.perf_counter() - self._start > _DELAY:
            from tqdm.auto import tqdm

            self._bar = tqdm(initial=self._count, leave=False, **self._options)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


@contextmanager
def track(total: int, what: str, unit: str, *, show: bool = True) -> Iterator[Any]:
    """A progress bar with ``update(n)``.

    Parameters
    ----------
    total : int
        Number of units.
    what : str
        What is being done.
    unit : str
        What is counted; ``B`` for bytes.
    show : bool
        Without it, nothing appears and nothing is imported.
    """
    scale = unit == "B"
    label = unit if scale else f" {unit}s"
    options = {"total": total, "desc": what, "unit": label, "unit_scale": scale}
    bar = _Bar(options if show and total else None)
    try:
        yield bar
    finally:
        bar.close()


def advance(bar: Any, size: int, done: float, now: float) -> None:
    """Move a bar from one share (0 to 1) of a part of `size` units to another."""
    bar.update(int(now * size) - int(done * size))
