"""From nested entries to rows."""

from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import call, tensor

from msprobe_nb import names
from msprobe_nb.formats.msprobe.flatten import flatten
from msprobe_nb.formats.msprobe.leaves import Leaves
from msprobe_nb.store.index import ARGUMENT, INPUT, NULL, OUTPUT, PARAMETERS, TENSOR


def raw(entry) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(entry).encode())


def rows(entry, name="Torch.add.0.forward"):
    return flatten([(name, raw(entry))]).index


def test_rows_come_in_official_order():
    entry = {
        "output": [tensor()],
        "parameters": {"weight": tensor(), "bias": None},
        "input_kwargs": {"alpha": {"type": "float", "value": 2.0}},
        "input_args": [tensor(), [tensor(), None]],
    }
    index = rows(entry, "Module.a.Linear.forward.0")
    start = "Module.a.Linear.forward.0."
    assert [name.removeprefix(start) for name in index.name] == [
        *("input.0", "input.1.0", "input.1.1", "input.alpha"),
        *("parameters.weight", "parameters.bias", "output.0"),
    ]
    assert index.role.tolist() == [INPUT] * 4 + [PARAMETERS] * 2 + [OUTPUT]
    assert index.kind.tolist() == [TENSOR, TENSOR, NULL, ARGUMENT, TENSOR, NULL, TENSOR]


def test_values_of_every_kind():
    arguments = [
        {"type": "int", "value": 3},
        {"type": "float", "value": 2.5},
        {"type": "bool", "value": True},
        {"type": "str", "value": "s"},
        {"type": "slice", "value": [0, 5, None]},
        {"type": "torch.Size", "value": [1, 2]},
        {"type": "torch.memory_format", "format": "contiguous_format"},
        {},
        [],
    ]
    index = rows(call(arguments, []))
    assert len(index) == 7  # the empty containers are no rows
    assert [index.value.get(row) for row in range(7)] == [
        3,
        2.5,
        True,
        "s",
        [0, 5, None],
        [1, 2],
        None,
    ]
    assert index.detail == {6: {"format": "contiguous_format"}}
    assert [index.statistics.item(row, 3) for row in range(4)] == [3, 2.5, True, "s"]


def test_gradients_of_parameters_have_no_list_index():
    index = rows({"weight": [tensor()], "bias": [None]}, "Module.a.Linear.parameters_grad.0")
    assert index.name == [
        "Module.a.Linear.parameters_grad.0.weight",
        "Module.a.Linear.parameters_grad.0.bias",
    ]


def test_saved_values_may_be_values_themselves():
    assert rows(tensor(), "loss.0.debug").name == ["loss.0.debug"]
    nested = rows({"x": tensor(), "mix": [1, None, [tensor()]]}, "nest.0.debug")
    assert nested.name == ["nest.0.debug.x", "nest.0.debug.mix.1", "nest.0.debug.mix.2.0"]


def test_point_to_point_operations_keep_their_facts():
    operation = {
        "class_type": "torch.distributed.P2POp",
        **{"op": "isend", "peer": 1, "tag": 0, "group_id": "ab", "tensor": tensor((4,))},
    }
    index = rows(call([[operation]], []), "Distributed.batch_isend_irecv.0.forward")
    assert index.name[0].endswith("input.0.0")
    assert index.shape[0] == (4,)
    assert index.detail[0]["peer"] == 1


def test_further_keys_of_a_tensor_are_kept():
    entry = call([tensor(device_mesh=[0, 1], placements=[{"Shard": {"dim": 0}}])], [])
    assert rows(entry).detail[0]["placements"] == [{"Shard": {"dim": 0}}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": "nope"}, "shape"),
        ({"shape": [2, "x"]}, "shape"),
        ({"shape": [2, -1]}, "impossible"),
        ({"shape": [10**12, 10**12]}, "impossible"),
        ({"shape": [1] * 100}, "impossible"),
        ({"requires_grad": "yes"}, "requires_grad"),
        ({"dtype": 7}, "dtype"),
    ],
)
def test_a_faulty_tensor_becomes_a_row_with_a_reason(change, message):
    index = rows(call([{**tensor(), **change}, tensor()], []))
    assert len(index) == 2
    assert message in index.problem[0]
    assert 1 not in index.problem


def test_deep_nesting_is_a_row_with_a_reason():
    deep: object = tensor()
    for _ in range(600):
        deep = [deep]
    good = ("Torch.b.0.forward", raw(call([tensor()], [])))
    for entry in (raw(call([deep], [])), call([deep], [])):
        index = flatten([("Torch.a.0.forward", entry), good]).index
        assert "nest deeper" in index.problem[0]
        assert index.name[1] == "Torch.b.0.forward.input.0"


def test_entries_that_are_no_calls_are_listed():
    assert flatten([("foo", raw(call([], [])))]).skipped == ["foo"]


def test_statistics_that_are_literals_are_numbers():
    index = flatten(
        [("Torch.a.0.forward", call([tensor(value="\x00nan"), tensor(value="\x00-inf")], []))]
    ).index
    assert math.isnan(index.statistics.item(0, 0))
    assert index.statistics.item(1, 0) == -math.inf


LEAVES = st.sampled_from(
    [
        tensor(),
        tensor((), "torch.int64", value=3),
        None,
        {"type": "int", "value": 1},
        {"type": "slice", "value": [None, 2, None]},
        {"type": "torch.Tensor", "odd": [1]},
    ]
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=2)
    ),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "input_args": st.lists(NESTED, max_size=3),
        "input_kwargs": st.dictionaries(st.text("xyz", min_size=1), NESTED, max_size=2),
        "output": st.lists(NESTED, max_size=2),
        "parameters": st.dictionaries(st.text("pqr", min_size=1), LEAVES, max_size=2),
        "is_recompute": st.booleans(),
        "is_nan": st.integers(0, 1),
    },
)


@given(ENTRIES)
def test_the_fast_way_and_the_free_way_find_the_same_rows(entry):
    node = names.parse("Module.a.Linear.forward.0")
    fast, free = Leaves(), Leaves()
    flags = fast.add_entry(node, raw(entry)), free.add_entry(node, entry)
    assert flags[0] == flags[1]
    assert fast.full_names == free.full_names
    assert fast.roles == free.roles
    assert fast.leaves == free.leaves
    assert fast.extra == free.extra


def test_rows_of_many_batches_keep_their_order():
    data = [
        (f"Torch.add.{at}.forward", raw(call([tensor((at % 7,))], [tensor()])))
        for at in range(9000)
    ]
    index = flatten(data).index
    assert len(index) == 18000
    assert index.name[17998] == "Torch.add.8999.forward.input.0"
    assert index.node.tolist() == np.repeat(np.arange(9000), 2).tolist()
    assert index.shape[17998] == (8999 % 7,)
