"""Pairing rows whose names differ: the four kinds of mapping."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from support import DUMPS, back, call, calls_in_order, op, paired_calls, tensor, write_dump

import msprobe_nb
from msprobe_nb import load_comparison
from msprobe_nb.comparison.pairing.api_table import APIS
from msprobe_nb.comparison.pairing.layers import LayerMapping
from msprobe_nb.errors import FormatError, PathNotFoundError, UsageError

# ---------------------------------------------------------------- mappings


def test_a_cell_mapping_renames_whole_stems_before_parts(tmp_path):
    target = {f"Cell.{name}.forward.0": op() for name in ("a.b.Dense", "x.Dense", "b.Dense")}
    golden = {f"Module.{name}.forward.0": op() for name in ("whole.Linear", "y.Linear", "c.Linear")}
    table = {"a.b.Dense": "whole.Linear", "Dense": "Linear", "x": "y", "b": "c"}
    found = paired_calls(tmp_path, target, golden, cell_mapping=table)
    assert list(found.values()) == list(golden)


def test_backward_calls_are_counted_on_both_sides(tmp_path):
    """A recomputed layer has its backward numbered like its second forward pass."""
    target = {"Cell.a.Dense.backward.1": back()}
    golden = {"Module.a.Dense.backward.0": back()}
    found = paired_calls(tmp_path, target, golden, cell_mapping=True)
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
    assert list(paired_calls(tmp_path, one, other, api_mapping=True, **heads).values()) == list(
        other
    )
    heads = {"target": PYTORCH, "golden": MINDSPORE}
    assert list(paired_calls(tmp_path, other, one, api_mapping=True, **heads).values()) == list(one)


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
    assert list(paired_calls(tmp_path, ours, theirs, data_mapping=table, **heads).values()) == list(
        theirs
    )
    heads = {"target": PYTORCH, "golden": MINDSPORE}
    assert list(paired_calls(tmp_path, theirs, ours, data_mapping=table, **heads).values()) == list(
        ours
    )


def test_mappings_combine(tmp_path):
    """Modules by one table, APIs by another, the rest by place."""
    target = {
        "Mint.add.0.forward": op(3.0),
        "Mint.add.1.forward": op(),
        "Cell.a.Dense.forward.0": op(),
    }
    golden = {"Torch.add.0.forward": op(), "Module.a.Linear.forward.0": op()}
    heads = {"target": MINDSPORE, "golden": PYTORCH}
    found = paired_calls(
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
        write_dump(tmp_path / side, calls_in_order("Torch.x"))
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


@pytest.mark.parametrize(
    "options",
    [{}, {"fuzzy": True}, {"layer_mapping": True}, {"cell_mapping": True}, {"data_mapping": {}}],
)
def test_empty_recordings_pair_nothing(tmp_path, options):
    write_dump(tmp_path / "a", {})
    write_dump(tmp_path / "b", {"Torch.x.0.forward": op()})
    for sides in ("ab", "ba", "aa"):
        result = msprobe_nb.compare(*(tmp_path / s for s in sides), progress=False, **options)
        assert set(result.data_mapping.values()) <= {"N/A"}
        assert result.counts["pass"] == len(result.table) == (2 if sides == "ba" else 0)
        assert len(result.to_csv(tmp_path / "out" / sides)) == (sides == "ba")


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


@pytest.mark.parametrize(
    "options", [{"layer_mapping": True}, {"fuzzy": True, "cell_mapping": True}]
)
def test_run_stores_are_paired_like_folders(tmp_path, options):
    sides = [DUMPS / "twin_statistics_mix" / side for side in ("ms", "pt")]
    stores = [
        msprobe_nb.import_run(side, tmp_path / f"{side.name}.zarr", progress=False)
        for side in sides
    ]
    ours = msprobe_nb.compare(*stores, progress=False, **options)
    assert ours.data_mapping == msprobe_nb.compare(*sides, progress=False, **options).data_mapping
    assert set(ours.data_mapping.values()) != {"N/A"}
