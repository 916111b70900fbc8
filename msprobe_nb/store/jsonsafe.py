"""JSON that keeps NaN and infinity.

Strict JSON has no such numbers. Wherever this package writes JSON text, they stand as texts that
begin with a NUL; reading puts the numbers back. A text that itself begins with one gets a second.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import UNSET

from msprobe_nb.store import layout

LITERALS = {"\x00nan": math.nan, "\x00inf": math.inf, "\x00-inf": -math.inf}
_NUL = "\x00"
_ABSENT = "\x00absent"  # a value that was not recorded, where null is a value of its own


def _restore_text(text: str) -> Any:
    if text == _ABSENT:
        return UNSET
    return LITERALS[text] if text in LITERALS else text.removeprefix(_NUL)


def restore(value: Any) -> Any:
    """A decoded value with the numbers put back."""
    if isinstance(value, str):
        return _restore_text(value) if value[:1] == _NUL else value
    if isinstance(value, list):
        return [restore(item) for item in value]
    if isinstance(value, dict):
        return {key: restore(item) for key, item in value.items()}
    return value


def replace(value: Any) -> Any:
    """A value with NaN and infinity replaced, ready for strict JSON."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "\x00nan" if math.isnan(value) else "\x00inf" if value > 0 else "\x00-inf"
    if isinstance(value, str):
        return _NUL + value if value[:1] == _NUL else value
    if value is UNSET:
        return _ABSENT
    if isinstance(value, (list, tuple)):
        return [replace(item) for item in value]
    if isinstance(value, dict):
        return {str(key): replace(item) for key, item in value.items()}
    return value


def dumps(value: Any) -> str:
    """JSON text."""
    return layout.encode_json(replace(value)).decode()


def loads(text: str) -> Any:
    """Inverse of :func:`dumps`."""
    return restore(layout.decode_json(text))
