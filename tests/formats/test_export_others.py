"""Exports of runs that the official tool did not record, and of older stores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from export_support import packs_of, same_folder
from support import DUMPS

from msprobe_nb.formats import exporter, open_run
from msprobe_nb.formats.exporter import export_run
from msprobe_nb.formats.importer import import_run
from msprobe_nb.store import PackWriter, RunWriter, layout
from msprobe_nb.store.index import ARGUMENT, DEBUG, INPUT, NULL, PARAMETERS, PARAMETERS_GRAD


def test_a_run_of_another_recorder_is_nested_as_the_official_tool_does(tmp_path):
    """Rows of calls may be interleaved, as hooks see them."""
    facts = {"task": "tensor", "level": "mix", "framework": "pytorch"}
    numbers = {"statistics": [3.0, 1.0, 2.0, 4.0], "requires_grad": 1}
    one = np.ones((2, 3), np.float32)
    with RunWriter(tmp_path / "r.zarr", facts).pack(0, 1, facts) as pack:
        module = pack.add_node("Module.m.Linear.forward.0", tree_order=0, stack=["b", "a"])
        api = pack.add_node(
            "Functional.linear.0.forward", parent="Module.m.Linear.forward.0", tree_order=1
        )
        pack.add(module, "input.0", one, role=INPUT, **numbers)
        pack.add(module, "parameters.weight", None, role=PARAMETERS, shape=(3, 3), dtype="float32")
        pack.add(api, "input.0.1", one, role=INPUT, checksum="aa", **numbers)
        pack.add(api, "input.0.0", None, role=INPUT, kind=NULL, type="")
        pack.add(api, "input.2", None, role=INPUT, kind=ARGUMENT, type="int", value=3)
        pack.add(api, "input.alpha", None, role=INPUT, kind=ARGUMENT, type="float", value=1e-05)
        pack.add(api, "output.0", None, dtype="float32", shape=(2,), checksum="bb")
        pack.add(module, "output.0", one, **numbers)
        back = pack.add_node("Functional.linear.0.backward")
        pack.add(back, "input.0", None, role=INPUT, kind=NULL, type="")
        grad = pack.add_node("Module.m.Linear.parameters_grad.0")
        pack.add(grad, "weight", None, role=PARAMETERS_GRAD, shape=(3, 3), dtype="float32")
        saved = pack.add_node("x.0.debug")
        pack.add(saved, "", None, role=DEBUG, kind=ARGUMENT, type="str", value="s")
    out = export_run(tmp_path / "r.zarr", tmp_path / "out", progress=False) / "step0/rank1"
    content = json.loads((out / "dump.json").read_text())
    assert list(content) == ["task", "level", "framework", "dump_data_dir", "data"]
    data = content["data"]
    recorded = {
        **{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 3.0},
        **{"Min": 1.0, "Mean": 2.0, "Norm": 4.0, "requires_grad": True},
    }
    bare = dict.fromkeys(("Max", "Min", "Mean", "Norm", "requires_grad"))
    weight = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 3], **bare}
    name = "Module.m.Linear.forward.0"
    assert data[name] == {
        "input_args": [{**recorded, "data_name": f"{name}.input.0.pt"}],
        "input_kwargs": {},
        "output": [{**recorded, "data_name": f"{name}.output.0.pt"}],
        "parameters": {"weight": weight},
    }
    assert list(data[name]["input_args"][0]) == [*recorded, "data_name"]
    name = "Functional.linear.0.forward"
    inner = {**recorded, "data_name": f"{name}.input.0.1.pt", "md5": "aa"}
    assert data[name] == {
        "input_args": [[None, inner], None, {"type": "int", "value": 3}],
        "input_kwargs": {"alpha": {"type": "float", "value": 1e-05}},
        "output": [
            {
                "type": "torch.Tensor",
                "dtype": "torch.float32",
                "shape": [2],
                "md5": "bb",
                "requires_grad": None,
            }
        ],
    }
    assert data["Functional.linear.0.backward"] == {"input": [None], "output": []}
    assert data["Module.m.Linear.parameters_grad.0"] == {"weight": [weight]}
    assert data["x.0.debug"] == {"type": "str", "value": "s"}
    assert json.loads((out / "stack.json").read_text()) == {
        "0": [["Module.m.Linear.forward.0"], ["b", "a"]]
    }
    assert json.loads((out / "construct.json").read_text()) == {
        "Module.m.Linear.forward.0": None,
        "Functional.linear.0.forward": "Module.m.Linear.forward.0",
    }
    names = set(open_run(tmp_path / "r.zarr").pack().index.name)
    assert set(open_run(out).pack().index.name) == {*names, "Functional.linear.0.forward.input.1"}


@pytest.mark.parametrize(
    ("slots", "entry"),
    [
        (["x.0", "x.1.a"], {"x": [0, {"a": 1}]}),
        (["", "x"], {"": 0, "x": 1}),
        (["a", "a.b"], {"a": 0, "a.b": 1}),
        (["0", "999999999999"], {"0": 0, "999999999999": 1}),
    ],
)
def test_values_saved_by_hand_nest_as_their_names_say(tmp_path, slots, entry):
    with PackWriter(tmp_path / "r/step0/rank0", {"level": "debug"}) as pack:
        node = pack.add_node("v.0.debug")
        for at, slot in enumerate(slots):
            pack.add(node, slot, None, role=DEBUG, kind=ARGUMENT, type="int", value=at)
    out = export_run(tmp_path / "r/step0/rank0", tmp_path / "out", progress=False)
    content = json.loads((out / "step0/rank0/debug.json").read_text())

    def values(tree):
        if isinstance(tree, list):
            return [values(child) for child in tree]
        if isinstance(tree.get("type"), str):
            return tree["value"]
        return {key: values(child) for key, child in tree.items()}

    assert values(content["data"]["v.0.debug"]) == entry
    assert not (out / "step0/rank0/stack.json").exists()


def test_a_store_of_an_older_version_is_written_with_the_official_keys(tmp_path):
    """Without forms and frame, which are younger; descriptions were one line."""
    root = DUMPS / "edge_tensor_L1/target"
    store = import_run(root, tmp_path / "r.zarr", progress=False)
    file = Path(store.pack().source.url) / layout.GROUP
    group = json.loads(file.read_text())
    del group["attributes"]["original"]
    file.write_text(json.dumps(group))
    pack = open_run(tmp_path / "r.zarr").pack()
    pack.nodes.structure.values[:] = [s.partition("\n")[0] for s in pack.nodes.structure.values]
    export_with(pack, tmp_path / "out")
    assert same_folder(tmp_path / "out", packs_of(root)[0]) > 50


def export_with(pack, folder: Path) -> None:
    """Write the JSON files of a pack as it is in memory, and its data."""
    done = exporter._write_pack(pack, folder, lambda done, now: None)
    assert done == []
