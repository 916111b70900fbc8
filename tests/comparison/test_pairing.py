"""Pairing rows whose names differ: fuzzy matching and the four kinds of mapping."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support import DUMPS, call, tensor, write_dump

import msprobe_nb
from msprobe_nb import load_comparison
from msprobe_nb.comparison.pairing.align import align
from msprobe_nb.comparison.pairing.api_table import APIS
from msprobe_nb.comparison.pairing.layers import LayerMapping
from msprobe_nb.comparison.pairing.slide import slide
from msprobe_nb.errors import FormatError, PathNotFoundError, UsageError

# ---------------------------------------------------------------- alignment


def longest_common_subsequence(a: Sequence[int], b: Sequence[int]) -> int:
    """By the table of all prefixes."""
    row = [0] * (len(b) + 1)
    for x in a:
        above = row
        row = [0]
        for at, y in enumerate(b, 1):
            row.append(above[at - 1] + 1 if x == y else max(above[at], row[-1]))
    return row[-1]


codes = st.lists(st.integers(0, 4), max_size=40).map(lambda values: np.array(values, np.int64))


@given(codes, codes)
def test_an_alignment_is_a_longest_common_subsequence(a, b):
    ours, theirs = align(a, b)
    assert (a[ours] == b[theirs]).all()
    assert (np.diff(ours) > 0).all()
    assert (np.diff(theirs) > 0).all()
    assert len(ours) == longest_common_subsequence(a.tolist(), b.tolist())


@given(codes, codes)
def test_an_alignment_that_stops_early_is_still_one(a, b):
    from msprobe_nb.comparison.pairing import align as module

    limit, module.LIMIT = module.LIMIT, 2
    try:
        ours, theirs = align(a, b)
    finally:
        module.LIMIT = limit
    assert (a[ours] == b[theirs]).all()
    assert (np.diff(ours) > 0).all()
    assert (np.diff(theirs) > 0).all()


def test_long_sequences_that_differ_much_are_aligned_in_seconds():
    random = np.random.default_rng(1)
    a = random.integers(0, 50, 20_000)
    b = np.delete(a, random.integers(0, len(a), 300))
    start = time.perf_counter()
    assert len(align(a, b)[0]) == len(b)
    assert len(align(a[:6000], random.permutation(a[:6000]))[0]) > 1200
    assert time.perf_counter() - start < 30


def test_a_block_slides_to_where_values_agree():
    apart = {(2, 0): 0.0, (3, 1): 0.0}
    partner = np.array([0, 1, -1, -1])
    slide(np.array([1, 2, 1, 2]), partner, lambda at, other: apart.get((at, other), 1.0))
    assert partner.tolist() == [-1, -1, 0, 1]
    partner = np.array([-1, -1, 0, 1])
    slide(np.array([1, 2, 1, 2]), partner, lambda at, other: float((at, other) not in {(0, 0)}))
    assert partner.tolist() == [0, -1, -1, 1] or partner.tolist() == [0, 1, -1, -1]


# ---------------------------------------------------------------- recordings


def op(norm: float = 1.0, shape: tuple[int, ...] = (2, 3), dtype: str = "torch.float32") -> Any:
    value = tensor(shape, dtype, norm=norm)
    return call([value], [value])


def back(norm: float = 1.0, shape: tuple[int, ...] = (2, 3)) -> Any:
    return {"input": [tensor(shape, norm=norm)], "output": [tensor(shape, norm=norm)]}


def pairs(tmp_path, ours: dict[str, Any], theirs: dict[str, Any], **options: Any) -> dict[str, str]:
    """Target call -> golden call, by the first row of each; the heads may be given as well."""
    heads = [options.pop(side, {}) for side in ("target", "golden")]
    write_dump(tmp_path / "a", ours, **heads[0])
    write_dump(tmp_path / "b", theirs, **heads[1])
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False, **options)
    found = {}
    for row in result.table.itertuples():
        other = row.golden if isinstance(row.golden, str) else ""
        for mark in (".input.", ".output.", ".parameters."):
            other = other.split(mark)[0]
        found.setdefault(row.node, other)
    return found


def names(*calls: str, norms: Sequence[float] = ()) -> dict[str, Any]:
    """Forward calls, numbered, each with its norm."""
    seen: dict[str, int] = {}
    data = {}
    for at, name in enumerate(calls):
        number = seen.get(name, 0)
        seen[name] = number + 1
        data[f"{name}.{number}.forward"] = op(norms[at] if norms else 1.0 + at)
    return data


# ---------------------------------------------------------------- fuzzy


def test_an_extra_call_does_not_shift_the_others(tmp_path):
    golden = names("Torch.a", "Torch.relu", "Torch.b", "Torch.relu", "Torch.c")
    target = names("Torch.a", "Torch.relu", "Torch.relu", "Torch.b", "Torch.relu", "Torch.c")
    target["Torch.relu.1.forward"] = op(99.0)
    target["Torch.relu.2.forward"] = golden["Torch.relu.1.forward"]
    found = pairs(tmp_path, target, golden, fuzzy=True)
    assert found["Torch.relu.1.forward"] == ""
    assert found["Torch.relu.2.forward"] == "Torch.relu.1.forward"
    assert sum(other == "" for other in found.values()) == 1
    by_name = pairs(tmp_path, target, golden)
    assert by_name["Torch.relu.1.forward"] == "Torch.relu.1.forward"  # what fuzzy is for


@pytest.mark.parametrize("extra", [0, 1, 2, 3])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_extra_layer_is_found_by_its_values(tmp_path, extra, swapped):
    layer = ("Torch.mm", "Torch.add", "Torch.relu")
    long = names(*layer * 4, norms=[10.0 * (at // 3 + 1) + at % 3 for at in range(12)])
    short = names(*layer * 3)
    kept = [name for at, name in enumerate(long) if at // 3 != extra]
    short = dict(zip(short, (long[name] for name in kept), strict=True))
    expected = dict(zip(kept, short, strict=True))
    if swapped:
        found = pairs(tmp_path, short, long, fuzzy=True)
        assert found == {theirs: ours for ours, theirs in expected.items()}
    else:
        found = pairs(tmp_path, long, short, fuzzy=True)
        assert {ours: theirs for ours, theirs in found.items() if theirs} == expected


def test_shapes_tell_the_extra_call(tmp_path):
    golden = {"Torch.relu.0.forward": op(1.0, (4, 4))}
    target = {"Torch.relu.0.forward": op(1.0, (2, 3)), "Torch.relu.1.forward": op(7.0, (4, 4))}
    found = pairs(tmp_path, target, golden, fuzzy=True)
    assert found == {"Torch.relu.0.forward": "", "Torch.relu.1.forward": "Torch.relu.0.forward"}


def test_class_names_may_differ_and_paths_may_not(tmp_path):
    target = {f"Module.{name}.forward.0": op() for name in ("fc.MyLinear", "head.Linear")}
    golden = {f"Module.{name}.forward.0": op() for name in ("fc.Linear", "tail.Linear")}
    found = pairs(tmp_path, target, golden, fuzzy=True)
    assert found == {
        "Module.fc.MyLinear.forward.0": "Module.fc.Linear.forward.0",
        "Module.head.Linear.forward.0": "",
    }


def test_a_backward_call_goes_with_its_forward_call(tmp_path):
    golden = {"Torch.relu.0.forward": op(1.0), "Torch.relu.0.backward": back(5.0)}
    target = {
        "Torch.relu.0.forward": op(9.0),
        "Torch.relu.1.forward": op(1.0),
        "Torch.relu.1.backward": back(5.0),
        "Torch.relu.0.backward": back(5.0),
    }
    found = pairs(tmp_path, target, golden, fuzzy=True)
    assert found["Torch.relu.1.backward"] == "Torch.relu.0.backward"
    assert found["Torch.relu.0.backward"] == ""


def test_gradients_that_come_in_another_order_are_paired(tmp_path):
    a, b = "Module.a.Linear.parameters_grad", "Module.b.Linear.parameters_grad"
    grad = {"weight": [tensor()]}
    found = pairs(tmp_path, {a: grad, b: grad}, {b: grad, a: grad}, fuzzy=True)
    assert {name: other.split(".weight")[0] for name, other in found.items()} == {a: a, b: b}


def test_rows_paired_by_place_say_so(tmp_path):
    write_dump(tmp_path / "a", {"Torch.x.3.forward": op()})
    write_dump(tmp_path / "b", {"Torch.x.0.forward": op()})
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", fuzzy=True, progress=False)
    assert result.table["reason"].str.contains("paired by its place").all()
    assert "Paired by fuzzy matching." in result.summary()
    same = msprobe_nb.compare(tmp_path / "a", tmp_path / "a", fuzzy=True, progress=False)
    assert (same.table["reason"] == "").all()


def test_fuzzy_matching_of_equal_runs_is_matching_by_name():
    for name in ("conv_statistics_L1", "edge_md5_L1", "debug_tensor"):
        sides = [DUMPS / name / side for side in ("target", "golden")]
        fuzzy = msprobe_nb.compare(sides[1], sides[1], fuzzy=True, progress=False)
        plain = msprobe_nb.compare(sides[1], sides[1], progress=False)
        assert fuzzy.data_mapping == plain.data_mapping


# ---------------------------------------------------------------- mappings


def test_a_cell_mapping_renames_whole_stems_before_parts(tmp_path):
    target = {f"Cell.{name}.forward.0": op() for name in ("a.b.Dense", "x.Dense", "b.Dense")}
    golden = {f"Module.{name}.forward.0": op() for name in ("whole.Linear", "y.Linear", "c.Linear")}
    table = {"a.b.Dense": "whole.Linear", "Dense": "Linear", "x": "y", "b": "c"}
    found = pairs(tmp_path, target, golden, cell_mapping=table)
    assert list(found.values()) == list(golden)


def test_backward_calls_are_counted_on_both_sides(tmp_path):
    """A recomputed layer has its backward numbered like its second forward pass."""
    target = {"Cell.a.Dense.backward.1": back()}
    golden = {"Module.a.Dense.backward.0": back()}
    found = pairs(tmp_path, target, golden, cell_mapping=True)
    assert found == {"Cell.a.Dense.backward.1": "Module.a.Dense.backward.0"}


MINDSPORE, PYTORCH = {"framework": "mindspore"}, {"framework": "pytorch"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Mint.add", "Torch.add"),
        ("MintFunctional.conv2d", "Functional.conv2d"),
        ("Functional.matmul", "Torch.matmul"),
        ("Functional.dense", "Functional.linear"),
        ("Functional.relu", "Functional.relu"),
        ("Tensor.asnumpy", "Tensor.numpy"),
        ("Tensor.reshape", "Tensor.reshape"),
        ("Functional.unknown", "Functional.unknown"),
    ],
)
def test_the_built_in_api_table_serves_both_ways(tmp_path, ours, theirs):
    one, other = {f"{ours}.2.forward": op()}, {f"{theirs}.2.forward": op()}
    heads = {"target": MINDSPORE, "golden": PYTORCH}
    assert list(pairs(tmp_path, one, other, api_mapping=True, **heads).values()) == list(other)
    heads = {"target": PYTORCH, "golden": MINDSPORE}
    assert list(pairs(tmp_path, other, one, api_mapping=True, **heads).values()) == list(one)


def test_the_api_table_is_whole():
    assert (
        len([name for name in APIS if APIS[name] == name.replace("Functional.", "Torch.")]) == 167
    )
    assert len([name for name in APIS if name.split(".")[1] != APIS[name].split(".")[1]]) == 10


ENTRY = {
    "ms_api": "Functional.my_add",
    "pt_api": "Torch.add",
    "ms_args": [0, 1],
    "pt_args": [1, 0],
    "ms_output": [0],
    "pt_output": [0],
}


@pytest.mark.parametrize("form", ["list", "mapping", "outputs", "file"])
def test_a_users_api_table_moves_arguments(tmp_path, form):
    entry = dict(ENTRY)
    if form == "outputs":
        entry["ms_outputs"], entry["pt_outputs"] = entry.pop("ms_output"), entry.pop("pt_output")
    table: Any = entry if form == "mapping" else [entry]
    if form == "file":
        (tmp_path / "api.yaml").write_text(yaml.safe_dump(table))
        table = tmp_path / "api.yaml"
    values = [tensor((n,)) for n in (2, 3, 4)]
    write_dump(
        tmp_path / "a", {"Functional.my_add.0.forward": call(values, values[:2])}, **MINDSPORE
    )
    write_dump(tmp_path / "b", {"Torch.add.0.forward": call(values, values[:2])})
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", api_mapping=table, progress=False)
    ours, theirs = "Functional.my_add.0.forward.", "Torch.add.0.forward."
    assert result.data_mapping == {
        f"{ours}input.0": f"{theirs}input.1",
        f"{ours}input.1": f"{theirs}input.0",
        f"{ours}input.2": "N/A",
        f"{ours}output.0": f"{theirs}output.0",
        f"{ours}output.1": "N/A",
    }


def test_an_api_entry_of_unequal_lists_is_left_out_and_told(tmp_path):
    write_dump(tmp_path / "a", {"Functional.my_add.0.forward": op()}, **MINDSPORE)
    write_dump(tmp_path / "b", {"Torch.add.0.forward": op()})
    table = [{**ENTRY, "pt_args": [0]}]
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", api_mapping=table, progress=False)
    assert [note for note in result.notes if "Functional.my_add" in note and "args" in note]
    assert set(result.data_mapping.values()) == {"N/A"}


def test_the_built_in_api_table_is_no_use_between_pytorch_runs():
    with pytest.raises(UsageError, match="for MindSpore"):
        msprobe_nb.compare(DUMPS / "arg_kinds/target", DUMPS / "arg_kinds/golden", api_mapping=True)


def test_a_data_mapping_pairs_what_it_lists_whatever_the_dtype(tmp_path):
    target = {"Torch.a.0.forward": op(dtype="torch.int32"), "Torch.b.0.forward": op()}
    golden = {"Torch.x.0.forward": op(dtype="torch.float32"), "Torch.b.0.forward": op()}
    table = {
        f"Torch.a.0.forward.{slot}": "Torch.x.0.forward.input.0" for slot in ("input.0", "output.0")
    }
    write_dump(tmp_path / "a", target)
    write_dump(tmp_path / "b", golden)
    table["Torch.b.0.forward.output.0"] = "N/A"
    table["Torch.gone.0.forward.input.0"] = "Torch.b.0.forward.input.0"
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", data_mapping=table, progress=False)
    assert result.data_mapping == {
        "Torch.a.0.forward.input.0": "Torch.x.0.forward.input.0",
        "Torch.a.0.forward.output.0": "Torch.x.0.forward.input.0",
        "Torch.b.0.forward.input.0": "Torch.b.0.forward.input.0",
        "Torch.b.0.forward.output.0": "N/A",
    }
    assert result.golden_only["golden"].tolist() == [
        "Torch.x.0.forward.output.0",
        "Torch.b.0.forward.output.0",
    ]
    (note,) = result.notes
    assert "1 names are not in the target (Torch.gone.0.forward.input.0)" in note


def test_a_data_mapping_serves_both_ways(tmp_path):
    ours, theirs = {"Cell.a.Dense.forward.0": op()}, {"Module.b.Linear.forward.0": op()}
    table = {
        f"Cell.a.Dense.forward.0.{slot}": f"Module.b.Linear.forward.0.{slot}"
        for slot in ("input.0", "output.0")
    }
    heads = {"target": MINDSPORE, "golden": PYTORCH}
    assert list(pairs(tmp_path, ours, theirs, data_mapping=table, **heads).values()) == list(theirs)
    heads = {"target": PYTORCH, "golden": MINDSPORE}
    assert list(pairs(tmp_path, theirs, ours, data_mapping=table, **heads).values()) == list(ours)


def test_mappings_combine(tmp_path):
    """Modules by one table, APIs by another, the rest by place."""
    target = {
        "Mint.add.0.forward": op(3.0),
        "Mint.add.1.forward": op(),
        "Cell.a.Dense.forward.0": op(),
    }
    golden = {"Torch.add.0.forward": op(), "Module.a.Linear.forward.0": op()}
    heads = {"target": MINDSPORE, "golden": PYTORCH}
    found = pairs(
        *(tmp_path, target, golden),
        **{"fuzzy": True, "api_mapping": True, "cell_mapping": {"Dense": "Linear"}, **heads},
    )
    assert list(found.values()) == ["", *golden]


def test_values_saved_by_hand_are_paired_like_the_others(tmp_path):
    """Without counting anything anew: their numbers are those of the saves."""
    sides = [DUMPS / "debug_tensor" / side for side in ("target", "golden")]
    plain = msprobe_nb.compare(*sides, progress=False)
    first, second = plain.table["target"][:2]
    mapped = msprobe_nb.compare(
        *sides,
        data_mapping={first: second},
        algorithms={"Mean": lambda target, golden: float(target.mean())},
        cell_mapping=True,
        progress=False,
    )
    assert mapped.data_mapping == {**plain.data_mapping, first: second}
    assert mapped.table["Mean"].notna().any()


# ---------------------------------------------------------------- layers


def test_layer_rules_of_the_longest_path_win():
    mapping = LayerMapping.of(
        {
            "Cell": {"net": "module"},
            "GPTModel": {"encoder": "wrong", "language_model.encoder": "decoder(TransformerBlock)"},
            "Attention": {"qkv": "query_key_value"},
        }
    )
    classes = {
        ("net",): "GPTModel",
        ("net", "language_model", "encoder"): "Encoder",
        ("net", "language_model", "encoder", "attn"): "Attention",
    }
    scope = ("net", "language_model", "encoder", "attn", "qkv")
    assert mapping.translate(scope, classes) == ("module", "decoder", "attn", "query_key_value")
    assert mapping.translate(("other", "qkv"), classes) == ("other", "qkv")


def write_tree(folder, data, parents, stacks=None, **head):
    import json

    write_dump(folder, data, **head)
    (folder / "construct.json").write_text(json.dumps(parents))
    found = {str(at): [[name], lines] for at, (name, lines) in enumerate((stacks or {}).items())}
    (folder / "stack.json").write_text(json.dumps(found))


def test_layers_of_a_pipeline_stage_are_counted_from_its_first(tmp_path):
    def model(first: int) -> tuple[dict[str, Any], dict[str, Any]]:
        root = "Module.net.ParallelTransformer.forward.0"
        layers = [f"Module.net.layers.{first + at}.Layer.forward.0" for at in range(2)]
        apis = [f"Torch.add.{at}.forward" for at in range(2)]
        data = {name: op(float(at)) for at, name in enumerate([*layers, *apis, root])}
        return data, dict.fromkeys(layers, root) | dict(zip(apis, layers, strict=True))

    for side, first in (("a", 0), ("b", 24)):
        write_tree(tmp_path / side, *model(first))
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", layer_mapping=True, progress=False)
    assert (result.table["status"] == "compared").all()
    assert result.data_mapping["Module.net.layers.1.Layer.forward.0.input.0"] == (
        "Module.net.layers.25.Layer.forward.0.input.0"
    )


def test_the_function_of_the_framework_that_calls_an_api_belongs_to_its_place(tmp_path):
    def frames(function: str) -> list[str]:
        return [
            f"File site-packages/torch/nn/functional.py, line 5, in {function}, \n x",
            "File model.py, line 3, in forward, \n y",
        ]

    calls = {"Torch.mm.0.forward": op(1.0), "Torch.mm.1.forward": op(2.0)}
    order = [("first", "second"), ("second", "first")]
    for side, functions in zip("ab", order, strict=True):
        stacks = {name: frames(f) for name, f in zip(calls, functions, strict=True)}
        write_tree(tmp_path / side, calls, dict.fromkeys(calls), stacks)
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", layer_mapping=True, progress=False)
    assert result.data_mapping["Torch.mm.0.forward.input.0"] == "Torch.mm.1.forward.input.0"
    assert result.data_mapping["Torch.mm.1.forward.input.0"] == "Torch.mm.0.forward.input.0"


def test_a_missing_module_tree_is_told(tmp_path):
    for side in "ab":
        write_dump(tmp_path / side, names("Torch.x"))
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", layer_mapping=True, progress=False)
    assert len([note for note in result.notes if "no construct.json" in note]) == 2
    assert result.counts["pass"] == 2


# ---------------------------------------------------------------- frameworks


@pytest.mark.parametrize(
    ("ours", "theirs", "status"),
    [
        ("Float32", "torch.bfloat16", "compared"),
        ("Int32", "torch.int64", "compared"),
        ("UInt8", "torch.int8", "compared"),
        ("Bool", "torch.bool", "compared"),
        ("Complex64", "torch.complex128", "compared"),
        ("Float32", "torch.int32", "dtype gate"),
        ("Bool", "torch.uint8", "dtype gate"),
        ("Float8", "torch.float8_e5m2", "dtype gate"),
    ],
)
def test_the_dtype_gate_between_frameworks(tmp_path, ours, theirs, status):
    write_dump(tmp_path / "a", {"Tensor.x.0.forward": op(dtype=ours)}, **MINDSPORE)
    write_dump(tmp_path / "b", {"Tensor.x.0.forward": op(dtype=theirs)})
    table = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False).table
    assert set(table["status"]) == {status}
    same = ours.lower() == theirs.removeprefix("torch.")
    assert set(table["verdict"]) == {"pass" if same or status == "dtype gate" else "error"}


@pytest.mark.parametrize("flag", [None, True])
def test_requires_grad_that_a_framework_does_not_record_is_no_fault(tmp_path, flag):
    value = tensor(dtype="Float32", requires_grad=flag)
    write_dump(tmp_path / "a", {"Tensor.x.0.forward": call([value], [])}, **MINDSPORE)
    write_dump(tmp_path / "b", {"Tensor.x.0.forward": call([tensor()], [])})
    result = msprobe_nb.compare(tmp_path / "a", tmp_path / "b", progress=False)
    assert result.counts["error"] == (0 if flag is None else 1)  # MSAdapter does record it


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"data_mapping": "nowhere.yaml"}, PathNotFoundError, "data mapping file does not exist"),
        ({"data_mapping": True}, UsageError, "not bool"),
        ({"data_mapping": {"a": ["b"]}}, FormatError, "no mapping of names"),
        ({"cell_mapping": ["a"]}, FormatError, "no mapping of names"),
        ({"api_mapping": [{"ms_api": "a.b"}]}, FormatError, "names no ms_api and pt_api"),
        ({"api_mapping": ["a"]}, FormatError, "names no ms_api and pt_api"),
        ({"layer_mapping": ["a"]}, FormatError, "no mapping of classes"),
        ({"layer_mapping": {"A": ["b"]}}, FormatError, "section A of the layer mapping"),
        ({"layer_mapping": True, "fuzzy": True}, UsageError, "layer mapping pairs calls by itself"),
    ],
)
def test_tables_that_are_none(options, error, text):
    sides = [DUMPS / "arg_kinds" / side for side in ("target", "golden")]
    with pytest.raises(error, match=text):
        msprobe_nb.compare(*sides, progress=False, **options)


@pytest.mark.parametrize("text", ["a: [", "!!python/object/apply:os.system ['true']", "a: \x00"])
def test_a_yaml_file_that_is_broken_or_wants_to_run_something(tmp_path, text):
    (tmp_path / "map.yaml").write_text(text)
    sides = [DUMPS / "arg_kinds" / side for side in ("target", "golden")]
    with pytest.raises(FormatError, match="no valid YAML") as caught:
        msprobe_nb.compare(*sides, data_mapping=tmp_path / "map.yaml", progress=False)
    assert str(tmp_path / "map.yaml") in str(caught.value)


# ---------------------------------------------------------------- keeping pairs


@pytest.mark.parametrize("options", [{"layer_mapping": True}, {"fuzzy": True}, {}])
def test_a_saved_comparison_keeps_its_pairs(tmp_path, options):
    sides = [DUMPS / "twin_statistics_mix" / side for side in ("ms", "pt")]
    result = msprobe_nb.compare(*sides, progress=False, **options)
    result.save(tmp_path / "saved")
    loaded = load_comparison(tmp_path / "saved")
    assert loaded.data_mapping == result.data_mapping
    assert loaded.table.equals(result.table)
    assert loaded.golden_only.equals(result.golden_only)
    assert loaded.summary() == result.summary()
    assert loaded.paired_by == result.paired_by
