"""Numbers and lists as people read them; used by every summary, table and report."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LIKELY = 200


def close_names(wanted: str, known: Sequence[str], count: int = 3) -> list[str]:
    """The known names nearest to a mistyped one, best first.

    Comparing with all of many names takes seconds, so only those are compared that agree longest
    at both ends together.
    """
    import difflib
    import heapq

    backwards = wanted[::-1]

    def agreement(name: str) -> int:
        return _shared(wanted, name) + _shared(backwards, name[::-1])

    likely = heapq.nlargest(_LIKELY, known, key=agreement)
    return difflib.get_close_matches(wanted, likely, n=count, cutoff=0.5)


def _shared(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def brief(numbers: Sequence[int], limit: int = 8) -> str:
    """``0-3, 7`` for [0, 1, 2, 3, 7]; at most `limit` ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in ranges[:limit]]
    return (", ".join(shown) + (" ..." if len(ranges) > limit else "")) or "none"


def size(count: float) -> str:
    """A number of bytes in a readable unit (decimal)."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number(value: float) -> str:
    """A float with four significant digits: ``0.003124``, ``1.2e-09``, ``nan``."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4g}"


def percent(value: float) -> str:
    """A fraction as percent with three significant digits; ``1,780%`` and the like in full."""
    if not math.isfinite(value):
        return str(value)
    if 10 <= abs(value) < 1e5:
        return f"{value * 100:,.0f}%"
    return f"{value * 100:.3g}%"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """``1 warning``, ``4,026 warnings``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
