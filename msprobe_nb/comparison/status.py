"""What became of a row, apart from its verdict: was it compared at all, and if not, why?"""

from __future__ import annotations

(
    COMPARED,
    UNMATCHED,
    GATED,
    ARGUMENT,
    NO_DATA,
    UNREADABLE,
    EMPTY,
    SHAPE,
    NON_FINITE,
    PENDING,
) = range(10)

STATUS_TEXTS = (
    "compared",
    "unmatched",
    "dtype gate",
    "argument",
    "no data",
    "unreadable",
    "empty",
    "shape differs",
    "non-finite differ",
    "not reached",
)
# Rows with these statuses carry no measurement, so their `pass` means nothing; summaries say so.
NOT_MEASURED = (UNMATCHED, GATED, NO_DATA, UNREADABLE, SHAPE, NON_FINITE, PENDING)
