"""Columns of results: a number, or a mark that says why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

(
    NUMBER,
    SAME,
    NOT_AVAILABLE,
    NAN,
    INFINITE,
    NEGATIVE_INFINITE,
    DIFFERENT,
    UNSUPPORTED,
    SHAPE_UNMATCHED,
) = range(9)

# What the official files show for each mark; a number shows itself.
MARK_TEXTS = ("", "0", "N/A", "Nan", "inf", "-inf", "Diff", "unsupported", "shape unmatched")
_AS_FLOAT = np.array([0.0, 0.0, np.nan, np.nan, np.inf, -np.inf, np.nan, np.nan, np.nan])


@dataclass(slots=True)
class Metric:
    """One result column.

    Attributes
    ----------
    number : ndarray of float64, shape (n,)
        Valid where the mark is ``NUMBER``.
    mark : ndarray of uint8, shape (n,)
        Index into ``MARK_TEXTS``.
    percent : bool
        Whether `number` is in percent (shown with a ``%`` in official files).
    """

    number: np.ndarray
    mark: np.ndarray
    percent: bool = False

    @classmethod
    def filled(cls, size: int, mark: int, *, percent: bool = False) -> Metric:
        """A column of one mark."""
        return cls(np.full(size, np.nan), np.full(size, mark, np.uint8), percent)

    def take(self, rows: np.ndarray) -> Metric:
        """The column at `rows`."""
        return Metric(self.number[rows], self.mark[rows], self.percent)

    def value(self) -> np.ndarray:
        """The column as float64: NaN where there is no number; percent as fraction."""
        number = self.number / 100 if self.percent else self.number
        return np.where(self.mark == NUMBER, number, _AS_FLOAT[self.mark])
