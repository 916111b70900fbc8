"""From rows to calls: what came in, what went out, and how much of it is explained.

A deviation of an output is *explained* when something the call depends on deviates already: its
inputs and parameters, the calls inside it, for a backward call also the forward call whose
activations it uses. Explained deviations may be amplified up to ``Thresholds.gain`` times, and
further by cancellation: where a call makes small numbers out of large ones, a relative error
grows by the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from msprobe_nb import names
from msprobe_nb.comparison.evidence.deviation import GROSS, Deviations
from msprobe_nb.comparison.part import Part
from msprobe_nb.comparison.verdict import Thresholds
from msprobe_nb.store.index import (
    ARGUMENT,
    DEBUG,
    INPUT,
    OUTPUT,
    PARAMETERS,
    PARAMETERS_GRAD,
    TENSOR,
)

# Calls that multiply matrices: devices may round their factors (TF32, bfloat16).
PRODUCTS = frozenset(
    {"linear", "bilinear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv"}
    | {"einsum", "tensordot", "__matmul__", "__rmatmul__", "dot", "inner", "dense", "bidense"}
    | {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
    | {"scaled_dot_product_attention", "multi_head_attention_forward", "npu_fusion_attention"}
    | {"lstm", "gru", "rnn_tanh", "rnn_relu", "grouped_mm", "npu_grouped_matmul"}
)
_PRODUCT_MODULES = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Dense", "Bilinear", "Attention")
_MOST_TERMS = 1 << 20
_DEEPEST = 400  # levels of modules; a damaged tree may have loops


@dataclass
class Calls:
    """The calls of one part; arrays of shape (calls,) unless said.

    Attributes
    ----------
    part : Part
    rows : Deviations
    limits : Thresholds
    noise : ndarray of float64, shape (rows,), or None
        Deviation of each row between two golden runs.
    """

    part: Part
    rows: Deviations
    limits: Thresholds
    noise: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.part.target.pack.nodes)

    # ------------------------------------------------------------ sums over a call's rows

    def worst(self, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Largest of `values` over some rows of each call; 0 for a call without any."""
        found = np.zeros(len(self))
        chosen = rows & ~np.isnan(values)
        np.maximum.at(found, self.part.node[chosen], values[chosen])
        return found

    def any(self, rows: np.ndarray) -> np.ndarray:
        """Calls that have one of these rows."""
        found = np.zeros(len(self), bool)
        found[self.part.node[rows]] = True
        return found

    @cached_property
    def is_input(self) -> np.ndarray:
        """Rows that are tensor inputs."""
        index = self.part.target.index
        return (index.role == INPUT) & (index.kind == TENSOR)

    @cached_property
    def is_parameter(self) -> np.ndarray:
        """Rows that are parameters of a module."""
        return self.part.target.index.role == PARAMETERS

    @cached_property
    def is_result(self) -> np.ndarray:
        """Rows that the call produced."""
        index = self.part.target.index
        produced = np.isin(index.role, (OUTPUT, PARAMETERS_GRAD, DEBUG))
        return produced & (index.kind == TENSOR)

    @cached_property
    def is_argument(self) -> np.ndarray:
        """Rows that are no tensors."""
        return self.part.target.index.kind == ARGUMENT

    @cached_property
    def inputs(self) -> np.ndarray:
        """Largest deviation of each call's tensor inputs."""
        return self.worst(self.rows.given, self.is_input)

    @cached_property
    def parameters(self) -> np.ndarray:
        """Largest deviation of each call's parameters."""
        return self.worst(self.rows.given, self.is_parameter)

    @cached_property
    def results(self) -> np.ndarray:
        """Largest deviation of what each call produced."""
        return self.worst(self.rows.given, self.is_result)

    # ------------------------------------------------------------ how calls hang together

    @cached_property
    def phase(self) -> np.ndarray:
        """``forward``, ``backward``, ``parameters_grad`` ... of each call."""
        return np.array([parsed.phase for parsed in self.part.target.pack.nodes.parsed], object)

    @cached_property
    def parent(self) -> np.ndarray:
        """Row of the enclosing call, -1 for none."""
        nodes = self.part.target.pack.nodes
        row_of = {name: row for row, name in enumerate(nodes.name)}
        parents = [row_of.get(name, -1) for name in nodes.parent.values]
        found = np.array(parents or [-1], np.int64)[nodes.parent.codes]
        return np.where(found == np.arange(len(found)), -1, found)

    @cached_property
    def inside(self) -> np.ndarray:
        """Largest deviation of what the calls inside each call produced or were given.

        Parameters of the inner calls count, too.
        """
        own = np.maximum(self.results, self.parameters)
        return self.climb(own)

    def climb(self, values: np.ndarray) -> np.ndarray:
        """For each call the largest of `values` (none below 0) over all calls inside it."""
        found = np.zeros(len(values), values.dtype)
        rows, up = np.arange(len(values)), self.parent
        for _ in range(_DEEPEST):
            alive = up >= 0
            if not alive.any():
                break
            rows, up = rows[alive], up[alive]
            np.maximum.at(found, up, values[rows])
            up = self.parent[up]
        return found

    @cached_property
    def has_calls_inside(self) -> np.ndarray:
        """Modules of which inner calls were recorded."""
        found = np.zeros(len(self), bool)
        recorded = self.part.target.pack.nodes.recorded & (self.parent >= 0)
        found[self.parent[recorded]] = True
        return found

    @cached_property
    def beginning(self) -> np.ndarray:
        """Place of the first call inside each call, or its own."""
        places = len(self) - np.arange(len(self), dtype=np.float64)
        return len(self) - np.maximum(self.climb(places), places)

    @cached_property
    def forward(self) -> np.ndarray:
        """Row of the forward call that a backward call belongs to, -1 for the others."""
        parsed = self.part.target.pack.nodes.parsed
        rows = {(p.stem, p.call): row for row, p in enumerate(parsed) if p.phase == names.FORWARD}
        return np.array(
            [rows.get((p.stem, p.call), -1) if p.phase == names.BACKWARD else -1 for p in parsed],
            np.int64,
        )

    @cached_property
    def relatives(self) -> np.ndarray:
        """Largest deviation in any call of the same module: what explains a parameter gradient."""
        parsed = self.part.target.pack.nodes.parsed
        suffix = f".{names.PARAMETERS_GRAD}"
        stems: dict[str, int] = {}
        group = np.array(
            [stems.setdefault(p.stem.removesuffix(suffix), len(stems)) for p in parsed]
        )
        own = np.maximum(self.inputs, self.parameters)
        own = np.where(self.phase == names.PARAMETERS_GRAD, 0.0, np.maximum(own, self.results))
        worst = np.zeros(len(stems))
        np.maximum.at(worst, group, own)
        return worst[group] if len(group) else worst

    @cached_property
    def explained(self) -> np.ndarray:
        """The deviation each call was given, by its inputs and everything else it depends on."""
        arguments = self.worst(self.rows.size, self.rows.argument)
        given = np.maximum.reduce([self.inputs, self.parameters, self.inside, arguments])
        changed = np.maximum(given, self.results)
        linked = self.forward >= 0
        given[linked] = np.maximum(given[linked], changed[self.forward[linked]])
        gradients = self.phase == names.PARAMETERS_GRAD
        given[gradients] = np.maximum(given, self.relatives)[gradients]
        # Statistics that agree but for rounding do not prove that the values do.
        blind = self.any(self.is_input & ~self.rows.exact) | ~self.any(self.is_input)
        blind |= (self.phase == names.BACKWARD) & ~linked
        return np.where(blind, np.maximum(given, self.before), given)

    def explained_without(self, calls: np.ndarray) -> np.ndarray:
        """As `explained`, but with the deviations of some calls' own results left out."""
        given = np.maximum(self.inputs, self.parameters)
        inside = self.climb(np.where(calls, 0.0, np.maximum(self.results, self.parameters)))
        return np.maximum(given, inside)

    @cached_property
    def before(self) -> np.ndarray:
        """Largest deviation of anything that earlier calls produced or used with effect."""
        # Inputs of modules may have been recorded after an inner call changed them in place.
        used = (self.effect > 0) & ~self.has_calls_inside
        own = np.maximum.reduce([self.results, self.parameters, np.where(used, self.inputs, 0.0)])
        running = np.maximum.accumulate(own) if len(own) else own
        return np.concatenate([[0.0], running[:-1]]) if len(own) else own

    # ------------------------------------------------------------ rounding

    @cached_property
    def is_product(self) -> np.ndarray:
        """Calls that multiply matrices, and modules made of one such call."""
        parsed = self.part.target.pack.nodes.parsed
        found = np.zeros(len(parsed), bool)
        for row, p in enumerate(parsed):
            if p.kind == "module":
                last = p.stem.removesuffix(f".{names.PARAMETERS_GRAD}").rpartition(".")[2]
                found[row] = last.endswith(_PRODUCT_MODULES)
            else:
                found[row] = p.stem.rpartition(".")[2] in PRODUCTS
        return found

    @cached_property
    def _factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each call's float inputs: the largest rms, the largest count, and the rms of factors.

        The last is the product of the rms of the two inputs with most elements: the factors of a
        matrix product.
        """
        rows, node = self.rows, self.part.node
        inputs = self.is_input | self.is_parameter
        floats = np.flatnonzero(inputs & (rows.epsilon > 0) & np.isfinite(rows.rms))
        largest, count, factors = np.zeros(len(self)), np.zeros(len(self)), np.zeros(len(self))
        np.maximum.at(largest, node[floats], rows.rms[floats])
        np.maximum.at(count, node[floats], rows.count[floats])
        order = floats[np.lexsort((rows.count[floats], node[floats]))][::-1]
        _, first = np.unique(node[order], return_index=True)
        place = np.arange(len(order)) - np.repeat(
            np.sort(first), np.diff([*np.sort(first), len(order)])
        )
        one, two = order[place == 0], order[place == 1]
        factors[node[one]] = rows.rms[one]
        factors[node[two]] *= rows.rms[two]
        return largest, count, factors

    @cached_property
    def terms(self) -> np.ndarray:
        """Rows: how many products or terms make one element, as far as shapes tell."""
        _, count, _ = self._factors
        given, product = count[self.part.node], self.is_product[self.part.node]
        ratio = np.where(product, np.sqrt(given), given / np.maximum(self.rows.count, 1))
        return np.clip(ratio, 1, _MOST_TERMS)

    @cached_property
    def condition(self) -> np.ndarray:
        """Rows: by how much cancellation amplifies relative errors, at least 1."""
        largest, _, factors = self._factors
        source = np.where(self.is_product & (self.phase == names.FORWARD), factors, largest)
        gradients = self.phase == names.PARAMETERS_GRAD
        source[gradients] = self._gradient_scale[gradients]
        alone = (self.is_product & (self.phase == names.BACKWARD))[self.part.node]
        terms = np.where(alone, 1.0, self.terms)
        with np.errstate(all="ignore"):
            ratio = source[self.part.node] * np.sqrt(terms) / self.rows.rms
        ratio = np.where(np.isfinite(ratio), ratio, 1.0)
        return np.where(self.is_result, np.maximum(ratio, 1.0), 1.0)

    @cached_property
    def _gradient_scale(self) -> np.ndarray:
        """Rms of the gradients that went into the backward call of the same module."""
        parsed = self.part.target.pack.nodes.parsed
        largest, _, _ = self._factors
        by_stem: dict[str, float] = {}
        for row, p in enumerate(parsed):
            if p.phase == names.BACKWARD:
                by_stem[p.stem] = max(by_stem.get(p.stem, 0.0), float(largest[row]))
        suffix = f".{names.PARAMETERS_GRAD}"
        return np.array([by_stem.get(p.stem.removesuffix(suffix), 0.0) for p in parsed])

    @cached_property
    def floor(self) -> np.ndarray:
        """Rows: what rounding alone may do to the value.

        ``epsilon * (8 + sqrt(terms)) * condition`` for results, 8 roundings for inputs, nothing
        for parameters; with a noise run also three times the noise.
        """
        rounding = np.where(
            self.is_result,
            (8 + np.sqrt(self.terms)) * self.condition,
            np.where(self.is_input, 8, 0),
        )
        floor = self.limits.rounding * rounding * self.rows.epsilon
        if self.noise is not None:
            floor = np.maximum(floor, self.limits.noise * np.nan_to_num(self.noise))
        return floor

    @cached_property
    def dirty(self) -> np.ndarray:
        """Rows that deviate by more than rounding."""
        return np.nan_to_num(self.rows.size) > self.floor

    @cached_property
    def unexplained(self) -> np.ndarray:
        """Results that deviate by more than what the call was given can explain."""
        node = self.part.node
        allowed = self.limits.gain * self.explained[node] * self.condition
        discrete = (self.rows.epsilon == 0) & (self.explained[node] > 0)
        return self.is_result & self.dirty & (self.rows.size > allowed) & ~discrete

    @cached_property
    def effect(self) -> np.ndarray:
        """Largest deviation beyond rounding that each call produced, at most ``GROSS``."""
        return np.minimum(self.worst(self.rows.size, self.is_result & self.dirty), GROSS)
