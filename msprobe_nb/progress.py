"""Progress of long work: a bar in notebooks and terminals, nothing when not wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Silent:
    """A bar that shows nothing."""

    def update(self, count: int = 1) -> None:
        """Count without showing."""


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
    if not show or total == 0:
        yield _Silent()
        return
    from tqdm.auto import tqdm

    scale = unit == "B"
    label = unit if scale else f" {unit}s"
    with tqdm(total=total, desc=what, unit=label, unit_scale=scale, delay=0.5, leave=False) as bar:
        yield bar


def advance(bar: Any, size: int, done: float, now: float) -> None:
    """Move a bar from one share (0 to 1) of a part of `size` units to another."""
    bar.update(int(now * size) - int(done * size))
