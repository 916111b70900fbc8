"""Why a row is marked, in a sentence with the numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msprobe_nb.comparison.result import JudgedPart
from msprobe_nb.comparison.status import (
    ARGUMENT,
    COMPARED,
    NON_FINITE,
    STATUS_TEXTS,
    UNMATCHED,
)
from msprobe_nb.comparison.verdict import BIT, RULES, norm_errors, worst_of
from msprobe_nb.store.index import ARGUMENT as ARGUMENT_KIND
from msprobe_nb.store.pack import TENSOR_MODE
from msprobe_nb.text import number, percent


class Reasons:
    """Sentences for the rows of one judged part."""

    def __init__(self, judged: JudgedPart) -> None:
        self.part, self.judgement = judged.part, judged.judgement

    @cached_property
    def _norms(self) -> Any:
        return norm_errors(self.part)

    @cached_property
    def _thousandths(self) -> Any:
        return worst_of(self.part, self.part.metrics["One Thousandth Err Ratio"])

    @cached_property
    def _cosines(self) -> Any:
        return worst_of(self.part, self.part.metrics["Cosine"])

    def of(self, row: int) -> str:
        """Everything there is to say about a row; empty for a plain pass."""
        fired = int(self.judgement.rules[row])
        told = self.judgement.reason(row)
        note, status = self.part.note.get(row), int(self.part.status[row])
        if note and status == NON_FINITE:
            fired &= ~BIT["inf_nan"]  # the note says it with the counts
        sentences = [
            getattr(self, f"_{rule.name}")(row) for rule in RULES if fired & BIT[rule.name]
        ]
        sentences = [told, *sentences] if told else sentences
        if note and not fired & BIT["unreadable"]:
            sentences.append(note)
        if not sentences and status == UNMATCHED:
            sentences.append("only in the target: no golden row of this name")
        if not sentences and status not in (COMPARED, ARGUMENT):
            sentences.append(STATUS_TEXTS[status])
        return "; ".join(sentences)

    def _values(self, row: int, at: int) -> tuple[Any, Any]:
        return (
            self.part.target.statistics.item(row, at),
            self.part.golden_statistics.item(row, at),
        )

    def _unreadable(self, row: int) -> str:
        return self.part.note.get(row, "the data cannot be read")

    def _inf_nan(self, row: int) -> str:
        (high, golden_high), (low, golden_low) = self._values(row, 0), self._values(row, 1)
        high, low, golden_high, golden_low = (
            number(value) if isinstance(value, float) else value
            for value in (high, low, golden_high, golden_low)
        )
        text = f"NaN or infinity in the target (max {high}, min {low})"
        if not self.part.matched[row]:
            return f"{text}, no golden row to compare with"
        return f"{text}, the golden is finite (max {golden_high}, min {golden_low})"

    def _norm_error(self, row: int) -> str:
        error = float(self.part.metrics["NormRelativeErr"].value()[row])
        into = float(self._norms[0][self.part.node[row]])
        found = percent(abs(error))
        return f"the output norm is off by {found}, the inputs by at most {percent(into)}"

    def _norm_ratio(self, row: int) -> str:
        node = self.part.node[row]
        into, out = float(self._norms[0][node]), float(self._norms[1][node])
        if into == 0:
            return f"the output norms are off by up to {percent(out)} while the inputs are exact"
        return (
            f"the output norms are off by up to {percent(out)}, {out / into:.3g} times the inputs' "
            f"{percent(into)}"
        )

    def _thousandth(self, row: int) -> str:
        into, out = (float(side[self.part.node[row]]) for side in self._thousandths)
        return (
            f"only {percent(out)} of an output's elements are within 1/1000 of the golden ones, "
            f"but {'all' if into == 1 else f'at least {percent(into)}'} of each input's"
        )

    def _cosine(self, row: int) -> str:
        into, out = (float(side[self.part.node[row]]) for side in self._cosines)
        return f"an output's cosine is {number(out)}, the inputs' at least {number(into)}"

    def _texts(self, row: int, name: str) -> str:
        ours = getattr(self.part.target, name)[row]
        theirs = getattr(self.part.golden, name)[int(self.part.pairs.golden[row])]
        return f"{name} {ours}, golden {theirs}"

    def _requires_grad(self, row: int) -> str:
        return self._texts(row, "requires_grad")

    def _dtype(self, row: int) -> str:
        return self._texts(row, "dtype")

    def _shape(self, row: int) -> str:
        return self._texts(row, "shape")

    def _scalar(self, row: int) -> str:
        ours, theirs = self._values(row, 0)
        return f"the argument is {ours!r:.80}, golden {theirs!r:.80}"

    def _kernel(self, row: int) -> str:
        text = "the kernel's accuracy is not reached: "
        if self.part.mode == TENSOR_MODE:
            cosine, distance = (
                number(float(self.part.metrics[name].value()[row]))
                for name in ("Cosine", "MaxAbsErr")
            )
            return f"{text}cosine {cosine}, largest absolute error {distance}"
        ours, theirs = self._values(row, 0)
        return f"{text}max {ours}, golden {theirs}"

    def _checksum(self, row: int) -> str:
        if self.part.target.index.kind[row] == ARGUMENT_KIND:
            return self._scalar(row)
        ours, theirs = (side[row] for side in self.part.checksums)
        return f"check value {ours}, golden {theirs}"

    def _checksum_unmatched(self, row: int) -> str:
        if not self.part.matched[row]:
            return "only in the target: no golden row of this name"
        ours, theirs = (side[row] for side in self.part.checksums)
        return f"no check value to compare (target {ours}, golden {theirs})"
