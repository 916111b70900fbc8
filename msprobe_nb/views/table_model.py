"""A table of any size: filtering, sorting and paging, without a widget.

Text columns are factorised on first use, so that ``contains`` looks at each distinct text once;
a view is an array of row positions. A million rows filter and sort in a fraction of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_COMPARISONS: dict[str, Callable[[Any, float], Any]] = {
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "!=": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "=": np.equal,
}
FILTER_HELP = (
    "text: part of it, /regex/, =exact, !without; "
    "numbers: >1e-3, <=0.5, 1..2, nan, inf, !nan; several separated by blanks"
)


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is shown.

    Attributes
    ----------
    name : str
        Column of the frame.
    kind : str
        ``text``, ``number``, ``integer`` or ``fraction`` (shown in percent).
    width : int
        In pixels.
    visible : bool
        At first.
    help : str
        Shown when the pointer rests on the title.
    ranks : tuple of str
        Texts in the order that sorting follows, smallest first; without any, the alphabet.
    first : str
        Direction of the first click on the title, ``asc`` or ``desc``.
    """

    name: str
    kind: str
    width: int = 96
    visible: bool = True
    help: str = ""
    ranks: tuple[str, ...] = ()
    first: str = "desc"


class FilterError(ValueError):
    """A filter that cannot be understood."""


class TableModel:
    """Rows of a frame under filters and sorting.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of Column

    Attributes
    ----------
    view : ndarray of int64
        Positions of the rows that pass the filters, in order.
    faults : dict of str to str
        Column -> why its filter was not applied.
    """

    def __init__(self, frame: pd.DataFrame, columns: Sequence[Column]) -> None:
        self.frame, self.columns = frame, list(columns)
        self._kind = {column.name: column.kind for column in columns}
        self._ranks = {column.name: column.ranks for column in columns if column.ranks}
        self._texts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._numbers: dict[str, np.ndarray] = {}
        self.view = np.arange(len(frame))
        self.faults: dict[str, str] = {}

    # ------------------------------------------------------------ columns

    def _factorised(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(codes, distinct texts) of a text column."""
        if name not in self._texts:
            import pandas as pd

            values = self.frame[name].astype(object).to_numpy()
            codes, distinct = pd.factorize(values, use_na_sentinel=True)
            texts = np.array([*(str(value) for value in distinct), ""], object)
            self._texts[name] = codes.astype(np.int32), texts
        return self._texts[name]

    def numbers(self, name: str) -> np.ndarray:
        """A numeric column as float64."""
        if name not in self._numbers:
            self._numbers[name] = self.frame[name].to_numpy(np.float64, na_value=np.nan)
        return self._numbers[name]

    def counts(self, name: str) -> dict[str, int]:
        """Rows of each distinct text of a column, in the whole table."""
        codes, texts = self._factorised(name)
        found = np.bincount(codes[codes >= 0], minlength=len(texts) - 1)
        return dict(zip(texts[:-1].tolist(), found.tolist(), strict=True))

    # ------------------------------------------------------------ view

    def apply(
        self,
        filters: Mapping[str, str],
        sort: Sequence[Sequence[str]] = (),
        choices: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Set the view.

        Parameters
        ----------
        filters : mapping of str to str
            Column -> filter text, see ``FILTER_HELP``. One that cannot be understood is left out
            and noted in `faults`.
        sort : sequence of (column, "asc" or "desc")
            First key first; NaN and missing texts come last either way.
        choices : mapping of str to sequence of str
            Column -> texts to keep; an empty sequence keeps all.
        """
        keep = np.ones(len(self.frame), bool)
        self.faults = {}
        for name, text in filters.items():
            if not text.strip() or name not in self._kind:
                continue
            try:
                keep &= self._mask(name, text)
            except FilterError as error:
                self.faults[name] = str(error)
        for name, wanted in (choices or {}).items():
            if wanted:
                codes, texts = self._factorised(name)
                keep &= np.isin(texts, list(wanted))[codes] & (codes >= 0)
        view = np.flatnonzero(keep)
        for name, direction in reversed([(key[0], key[1]) for key in sort]):
            if name in self._kind:
                view = view[self._order(name, view, direction == "desc")]
        self.view = view

    def _mask(self, name: str, text: str) -> np.ndarray:
        if self._kind[name] == "text":
            codes, texts = self._factorised(name)
            return _text_test(text)(texts)[codes]
        return _number_test(text, self._kind[name] == "fraction")(self.numbers(name))

    def _order(self, name: str, view: np.ndarray, descending: bool) -> np.ndarray:
        if self._kind[name] == "text":
            codes, texts = self._factorised(name)
            rank = np.empty(len(texts))
            if ranks := self._ranks.get(name):
                place = {text: at for at, text in enumerate(ranks)}
                rank[:] = [place.get(text, len(ranks)) for text in texts.tolist()]
            else:
                rank[np.argsort(texts.astype(str), kind="stable")] = np.arange(len(texts))
            rank[-1] = np.nan  # missing
            key = rank[codes][view]
        else:
            key = self.numbers(name)[view]
        missing = np.isnan(key)
        order = np.argsort(-key if descending else key, kind="stable")
        return np.concatenate([order[~missing[order]], order[missing[order]]])

    def page(
        self, start: int, stop: int, names: Sequence[str]
    ) -> tuple[list[list[str] | None], list[np.ndarray], np.ndarray]:
        """Part of the view.

        Returns
        -------
        texts : list
            For each column the texts, or None for a numeric one.
        numbers : list of ndarray of float64
            One for each numeric column, in order.
        labels : ndarray of int64
            Row numbers in the frame.
        """
        rows = self.view[max(0, start) : max(0, stop)]
        texts: list[list[str] | None] = []
        numbers: list[np.ndarray] = []
        for name in names:
            if self._kind[name] == "text":
                codes, distinct = self._factorised(name)
                texts.append(distinct[codes[rows]].tolist())
            else:
                texts.append(None)
                numbers.append(np.ascontiguousarray(self.numbers(name)[rows]))
        return texts, numbers, rows


# ---------------------------------------------------------------- filters


def _text_test(text: str) -> Callable[[np.ndarray], np.ndarray]:
    """A test of texts."""
    text = text.strip()
    negate = text.startswith("!") and len(text) > 1
    if negate:
        text = text[1:].strip()
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        try:
            pattern = re.compile(text[1:-1])
        except re.error as error:
            raise FilterError(f"not a regular expression: {error}") from None

        def hit(value: str) -> bool:
            return pattern.search(value) is not None
    elif text.startswith("="):
        exact = text[1:].strip()

        def hit(value: str) -> bool:
            return value == exact
    else:
        part = text.lower()

        def hit(value: str) -> bool:
            return part in value.lower()

    def test(values: np.ndarray) -> np.ndarray:
        found = np.array([hit(value) for value in values.tolist()], bool)
        return ~found if negate else found

    return test


def _number_test(text: str, fraction: bool) -> Callable[[np.ndarray], np.ndarray]:
    """A test of numbers: all of the conditions in the text; blanks after a sign do not count."""
    joined = re.sub(r"([<>]=?|!=|=)\s+", r"\1", text.replace("&", " "))
    tests = [_condition(word, fraction) for word in joined.split()]

    def test(values: np.ndarray) -> np.ndarray:
        found = np.ones(len(values), bool)
        with np.errstate(invalid="ignore"):
            for one in tests:
                found &= one(values)
        return found

    return test


def _condition(word: str, fraction: bool) -> Callable[[np.ndarray], np.ndarray]:
    lower = word.lower()
    negate = lower.startswith("!") and not lower.startswith("!=")
    kind = lower.lstrip("!") if negate else lower
    special: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "nan": np.isnan,
        "inf": np.isinf,
        "+inf": lambda values: values == np.inf,
        "-inf": lambda values: values == -np.inf,
    }
    if kind in special:
        chosen = special[kind]
        return (lambda values: ~chosen(values)) if negate else chosen
    low, dots, high = word.partition("..")
    if dots:
        first, last = _value(low or "-inf", fraction), _value(high or "inf", fraction)
        return lambda values: (values >= first) & (values <= last)
    operator = next((sign for sign in _COMPARISONS if word.startswith(sign)), "=")
    limit = _value(word.removeprefix(operator), fraction)
    compare = _COMPARISONS[operator]
    return lambda values: compare(values, limit)


def _value(text: str, fraction: bool) -> float:
    """A number; in a column of fractions ``5%`` is 0.05."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text)
    except ValueError:
        raise FilterError(f"{text!r} is no number") from None
