"""Real recordings of the official tool, with the right answers of their READMEs."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from support import SHARED, requires_shared

from msprobe_nb.formats import open_run

pytestmark = requires_shared
DUMP = SHARED / "dump"


@pytest.mark.parametrize(("level", "count"), [("L0", 11), ("L1", 17), ("mix", 28)])
def test_a26_entries_of_the_conv_net(level, count):
    run = open_run(DUMP / f"cnn/{level}/dump")
    assert run.steps == [0, 1]
    assert int(run.pack(0).nodes.recorded.sum()) == count


def test_a27_to_a29_values_of_the_conv_net():
    pack = open_run(DUMP / "cnn/mix/dump").pack(0)
    row = pack.index.row_of["Functional.conv2d.0.backward.output.1"]
    assert pack.index.shape[row] == (4, 3, 3, 3)
    assert pack.index.statistics.item(row, 3) == 2.6755728721618652
    assert "Module.conv.Conv2d.backward.0.output.0" not in pack.index.row_of
    add = pack.nodes.name.index("Tensor.add_.1.forward")
    assert pack.nodes.parent[add] == "optimizer"
    assert pack.index.value[pack.index.row_of["Tensor.add_.1.forward.input.alpha"]] == -0.1


def test_a33_xor_of_a_scalar_is_a_number():
    pack = open_run(DUMP / "gpt/xor/golden/dump").pack(0)
    index = pack.index
    assert pack.mode == "md5"
    layer = index.row_of["Functional.layer_norm.2.forward.output.0"]
    assert index.checksum[layer] == "0xf83f369cfcc30f92"
    loss = index.row_of["Functional.cross_entropy.0.forward.output.0"]
    assert index.checksum[loss] == 8.745235443115234


def test_a34_checksums_can_be_recomputed_from_the_data():
    pack = open_run(DUMP / "gpt/tensor/golden/dump").pack(0)
    row = pack.index.row_of["Functional.layer_norm.2.forward.output.0"]
    assert f"{zlib.crc32(pack.read(row).tobytes()):08x}" == "9c24a831"
    assert int(pack.index.has_data.sum()) == 372
    assert not any(
        isinstance(found, Exception)
        for found in pack.read_many(np.flatnonzero(pack.index.has_data).tolist())
    )


def test_a36_nan_is_where_it_was_recorded():
    pack = open_run(DUMP / "nan/stat/dump").pack(1, 1)
    values = pack.index.statistics.number
    first = int(np.flatnonzero(np.isnan(values[:, 0]) & (pack.index.kind == 0))[0])
    assert pack.index.name[first] == "Torch.div.0.forward.output.0"


def test_a37_saved_values():
    pack = open_run(DUMP / "debug/tensor/dump").pack(0)
    assert pack.is_debug
    assert len(pack.nodes) == 9
    assert int(pack.index.has_data.sum()) == 10
    assert (pack.read(pack.index.row_of["nest_grad.0.debug.x"]) == 6.0).all()


def test_keyword_tensors_are_found_under_both_names():
    run = open_run(DUMP / "gpt/tensor/golden/dump")
    rows = run.pack(0).index
    kwargs = [name for name in rows.data_name if name and ".kwargs." in name]
    assert kwargs
    official = kwargs[0].removesuffix(".pt")
    ours = official.replace(".kwargs.", ".input.")
    assert (run[official, 0, 0].values == run[ours, 0, 0].values).all()


def test_mindspore_dtypes_are_read():
    pack = open_run(SHARED / "mindspore/data/dtypes_tensor").pack()
    assert pack.info.framework == "mindspore"
    for row in np.flatnonzero(pack.index.has_data).tolist():
        recorded, found = pack.index.dtype[row].lower(), pack.read(row).dtype.name
        assert found == recorded or recorded == "bfloat16"  # MindSpore saves those as float32


def test_megatron_micro_steps_and_old_stacks(tmp_path):
    from msprobe_nb.formats.msprobe.sidecars import read_construct, read_stacks
    from msprobe_nb.store.sources import LocalSource

    (tmp_path / "construct.json").write_text(
        '{"a": ["b", 3], "b": null, "megatron_micro_step_number": 3, "c": "b"}'
    )
    (tmp_path / "stack.json").write_text('{"a": ["f1", "f2"], "0": [["b", "c"], ["f1", "f2"]]}')
    source = LocalSource(tmp_path)
    assert read_construct(source) == {"a": ("b", 3), "b": (None, 0), "c": ("b", 0)}
    of_node, stacks = read_stacks(source)
    assert stacks == [["f1", "f2"]]
    assert of_node == {"a": 0, "b": 0, "c": 0}


def test_a_recompute_flag_is_read():
    pack = open_run(SHARED / "resnet50/gpu_published/step0").pack()
    assert set(pack.nodes.recompute.tolist()) <= {-1, 0, 1}
    assert (pack.nodes.recompute == 0).any()


@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in SHARED.rglob("dump.json") if "bad" not in p.parts)[::6]
)
def test_every_recording_opens_and_makes_tables(folder):
    run = open_run(folder)
    assert len(run.tensors) == len(run.pack().index)
    assert run.summary()
