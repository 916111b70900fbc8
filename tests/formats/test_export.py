"""Official folders out of runs: what was imported comes back, to the byte where it was official."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from export_support import packs_of, parsed, same_folder, there_and_back
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import DUMPS, RESNET, SHARED, call, requires_shared, tensor, write_dump

from msprobe_nb.errors import FormatError, UsageError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.exporter import export_run
from msprobe_nb.formats.importer import import_run

# ---------------------------------------------------------------- real recordings

UNREADABLE = ("bad/data_list", "bad/no_data")
LOCAL = sorted(
    name
    for path in DUMPS.glob("*/*")
    if (name := path.relative_to(DUMPS).as_posix()) not in UNREADABLE and packs_of(path)
)


@pytest.mark.filterwarnings("ignore:.*has no file")
@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("stored", [True, False], ids=["store", "folder"])
def test_a_recording_comes_back_to_the_byte(tmp_path, name, stored):
    root = DUMPS / name
    out = there_and_back(root, tmp_path) if stored else export_run(root, tmp_path / "o")
    made, given = packs_of(out), packs_of(root)
    assert len(made) == len(given)
    tensors = sum(same_folder(ours, theirs) for ours, theirs in zip(made, given, strict=True))
    recorded = {
        path
        for pack in open_run(root)
        for name in pack.index.data_name
        if name and (path := Path(pack.source.url) / "dump_tensor_data" / name).exists()
    }
    assert tensors == len(recorded)
    assert not list(out.rglob(".*"))


def test_arrays_saved_under_tags_become_a_dump_with_the_same_values(tmp_path):
    root = DUMPS / "single/a"
    before, after = open_run(root), open_run(export_run(root, tmp_path / "o"))
    assert (after.steps, after.ranks) == (before.steps, before.ranks)
    for ours, theirs in zip(after, before, strict=True):
        assert ours.index.name == theirs.index.name
        for row in np.flatnonzero(theirs.index.has_data).tolist():
            np.testing.assert_array_equal(ours.read(row), theirs.read(row))


def test_kernel_dumps_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"a dump\.json cannot hold them"):
        export_run(DUMPS / "ms_kernel_npy/golden", tmp_path / "o")
    assert not (tmp_path / "o").exists()


SHARED_PARTS = ("dump", "compare/dumps", "graph", "resnet50", "mindspore")
INDENTED_OTHERWISE = {"graph/p2p_case", "graph/results/merge_tp2_json"}


def shared_roots(part: str) -> list[Path]:
    packs = packs_of(SHARED / part)
    return sorted({p.parent.parent if p.parent.name.startswith("step") else p for p in packs})


@requires_shared
@pytest.mark.parametrize("part", SHARED_PARTS)
def test_every_shared_recording_comes_back(tmp_path, part):
    count = 0
    for at, root in enumerate(shared_roots(part)):
        place = root.relative_to(SHARED).as_posix()
        if place.endswith(UNREADABLE):
            with pytest.raises(FormatError):
                there_and_back(root, tmp_path / str(at))
            continue
        out = there_and_back(root, tmp_path / str(at))
        given = packs_of(root)
        made = packs_of(out)
        assert len(made) == len(given) > 0
        for ours, theirs in zip(made, given, strict=True):
            same_folder(ours, theirs, to_the_byte=place not in INDENTED_OTHERWISE)
            count += 1
        shutil.rmtree(tmp_path / str(at))
    assert count >= 3


def test_folders_keep_their_names(tmp_path):
    out = there_and_back(RESNET / "cpu", tmp_path)
    assert [p.relative_to(out).as_posix() for p in packs_of(out)] == ["step0/proc871"]
    one = export_run(DUMPS / "stat_rules/target", tmp_path / "one")
    assert [p.relative_to(one).as_posix() for p in packs_of(one)] == ["step0/rank0"]


def test_zipped_and_compacted_stores_are_written_too(tmp_path):
    root = DUMPS / "edge_tensor_L1/target"
    store = import_run(root, tmp_path / "r.zarr", progress=False)
    shutil.make_archive(str(tmp_path / "r"), "zip", tmp_path, "r.zarr")
    store.compact(tmp_path / "small.zarr")
    for at, source in enumerate(("r.zip", "small.zarr")):
        out = export_run(tmp_path / source, tmp_path / f"o{at}", progress=False)
        assert same_folder(packs_of(out)[0], packs_of(root)[0]) > 50


# ---------------------------------------------------------------- any JSON

NUMBERS = (
    st.integers(-(10**30), 10**30)
    | st.floats(width=64)
    | st.sampled_from([1e-05, 1e16, 1e22, -0.0, 5e-324, 0.1, 2**53 + 1, -(2**63), 2**64])
)
TEXTS = st.text(max_size=8) | st.sampled_from(["\x00nan", "\x00", "%s", "NaN", "", "=", "\u2028"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
SHAPES = st.lists(st.integers(0, 9), max_size=5)
USUAL_KEYS = [
    *("type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad", "placements"),
    *("data_name", "md5"),
]
USUAL = st.builds(
    lambda head, more, keys: {
        key: {**head, **more}[key] for key in keys if key in head or key in more
    },
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["torch.Tensor", "mindspore.Tensor"]),
            "dtype": st.sampled_from(["torch.float32", "Int32"]),
            "shape": SHAPES,
            **dict.fromkeys(("Max", "Min", "Mean", "Norm"), NUMBERS | st.booleans() | st.none()),
        }
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "requires_grad": st.booleans() | st.none(),
            "data_name": st.sampled_from(["a.pt", "b.npy", None]),
            "md5": TEXTS | NUMBERS | st.none(),
            "placements": VALUES,
        },
    ),
    st.permutations(USUAL_KEYS),
)
ODD = st.dictionaries(
    st.sampled_from(
        [
            *("type", "class_type", "dtype", "shape", "Max", "Norm", "requires_grad", "data_name"),
            *("md5", "value", "tensor", "other", "="),
        ]
    ),
    VALUES | st.just("torch.distributed.P2POp") | USUAL | SHAPES,
    max_size=5,
).map(
    lambda leaf: {  # names that would be replaced are tested elsewhere
        key: "x.pt" if key == "data_name" and isinstance(value, str) else value
        for key, value in leaf.items()
    }
)
LEAVES = (
    USUAL
    | ODD
    | st.none()
    | st.fixed_dictionaries({"type": st.just("slice"), "value": VALUES})
    | st.fixed_dictionaries(
        {"class_type": st.just("torch.distributed.P2POp"), "tensor": USUAL, "peer": SCALARS}
    )
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SECTIONS = ("input_args", "input_kwargs", "input", "output", "parameters", "is_recompute", "is_nan")
ENTRIES = st.dictionaries(st.sampled_from(SECTIONS) | TEXTS, NESTED, max_size=4) | NESTED | SCALARS
ENTRY_NAMES = st.sampled_from(
    [
        *("Torch.a.0.forward", "Torch.a.0.backward", "Module.m.L.forward.0", "x.0.debug"),
        *("Module.m.L.parameters_grad.0", "foo", "", "Module.m.L.backward.1", "Tensor.b.1.forward"),
    ]
)
HEADERS = st.dictionaries(
    st.sampled_from(["task", "level", "framework", "dump_data_dir", "%", "more"]), VALUES
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)
@given(HEADERS, st.dictionaries(ENTRY_NAMES, ENTRIES, max_size=6), st.integers(0, 6), st.booleans())
@example({}, {}, 0, True)
@example({"task": "x"}, {"x.0.debug": {"=": {"=": 1}}}, 0, True)
@example({}, {"x.0.debug": {"==": None}, "foo": [float("nan")]}, 0, False)
def test_whatever_an_entry_holds_comes_back(tmp_path_factory, header, data, at, stored):
    """Any tree of any values under names of every kind, in files of the official layout."""
    folder = tmp_path_factory.mktemp("any")
    keys = [*header.items()]
    keys.insert(at, ("data", data))
    pack = folder / "step0/rank0"
    pack.mkdir(parents=True)
    (pack / "dump.json").write_text(json.dumps(dict(keys), indent=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files that data_name speaks of are not there
        if stored:
            out = there_and_back(folder, folder)
        else:
            out = export_run(folder, folder / "official", progress=False)
    written = out / "step0/rank0/dump.json"
    assert written.read_text() == (pack / "dump.json").read_text()
    shutil.rmtree(folder)


def round_trip(tmp_path: Path, text: str, **files: str) -> Path:
    """The folder that comes of a dump.json with this text."""
    pack = tmp_path / "in/step0/rank0"
    pack.mkdir(parents=True)
    (pack / "dump.json").write_text(text)
    for name, content in files.items():
        (pack / f"{name}.json").write_text(content)
    return there_and_back(tmp_path / "in", tmp_path) / "step0/rank0"


def test_repeated_names_and_entries_that_are_no_calls_keep_their_places(tmp_path):
    one = json.dumps(call([tensor()], [tensor(value=2.0)]))
    two = json.dumps(call([tensor(value=3.0)], []))
    entries = [("note", "1"), ("Torch.a.0.forward", one), ("Torch.b.0.forward", two)]
    entries += [("foo", '{"x": NaN}'), ("Torch.a.0.forward", two), ("end", "[]")]
    data = ", ".join(f'"{name}": {entry}' for name, entry in entries)
    text = f'{{"data": {{{data}}}, "task": "statistics"}}'
    out = round_trip(tmp_path, text)
    assert parsed(out / "dump.json") == parsed(tmp_path / "in/step0/rank0/dump.json")


def test_lone_surrogates_come_back(tmp_path):
    entry = call([{"type": "str", "value": "\ud800"}], [tensor(other="\udfff")])
    text = json.dumps({"task": "statistics", "data": {"Torch.a.0.forward": entry}}, indent=1)
    out = round_trip(tmp_path, text)
    assert (out / "dump.json").read_text() == text


@pytest.mark.parametrize(
    ("stack", "construct"),
    [
        ({"0": [["Torch.a.0.forward"], ["x", "y"]]}, {"Torch.a.0.forward": None}),
        ({"Torch.a.0.forward": ["x", "y"]}, {"Torch.a.0.forward": "Module.m.L.forward.0"}),
        ({"5": [["nobody"], []], "1": "odd"}, {"Torch.a.0.forward": 7, "b": ["x"]}),
        ({}, {"Torch.a.0.forward": ["Module.m.L.forward.0", 3], "Module.m.L.forward.0": [None, 0]}),
        ({"0": [[], ["x"]], "1": [["Torch.a.0.forward"], ["x"]]}, {}),
        ({"0": [["Torch.a.0.forward", "Torch.a.0.forward"], ["x"]]}, {"b": None, "a": "b"}),
        (None, {"a": None}),
        ({"0": [["Torch.a.0.forward"], ["\ud800"]]}, None),
    ],
)
def test_stacks_and_trees_of_every_form_come_back(tmp_path, stack, construct):
    text = json.dumps({"task": "statistics", "data": {"Torch.a.0.forward": call([], [])}})
    given = {"stack": stack, "construct": construct}
    files = {k: json.dumps(v, indent=1) for k, v in given.items() if v is not None}
    out = round_trip(tmp_path, text, **files)
    for name in given:
        assert (out / f"{name}.json").exists() == (name in files)
        if name in files:
            assert (out / f"{name}.json").read_text() == files[name]


def test_a_recorded_shape_stays_though_the_data_have_another(tmp_path):
    entry = call([tensor((2, 3), data_name="a.pt")], [])
    pack = write_dump(tmp_path / "in/step0/rank0", {"Torch.a.0.forward": entry}, task="tensor")
    (pack / "dump_tensor_data").mkdir()
    torch.save(torch.ones(7), pack / "dump_tensor_data/a.pt")
    assert same_folder(there_and_back(tmp_path / "in", tmp_path) / "step0/rank0", pack) == 1
