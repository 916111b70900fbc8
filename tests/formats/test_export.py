"""Official folders out of runs: what was imported comes back, to the byte where it was official."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import (
    DUMPS,
    RESNET,
    SHARED,
    arrays,
    call,
    requires_shared,
    same_bits,
    tensor,
    write_dump,
)

from msprobe_nb.errors import DamagedStoreError, FormatError, UsageError
from msprobe_nb.formats import exporter, open_run
from msprobe_nb.formats.exporter import MARK, export, export_run
from msprobe_nb.formats.importer import import_run
from msprobe_nb.formats.msprobe import dump_writer
from msprobe_nb.formats.tensor_file import write_tensor_file
from msprobe_nb.store import PackWriter, RunWriter, layout
from msprobe_nb.store.index import (
    ARGUMENT,
    DEBUG,
    INPUT,
    NULL,
    PARAMETERS,
    PARAMETERS_GRAD,
)

JSON_FILES = ("dump.json", "debug.json", "stack.json", "construct.json")


def there_and_back(source, folder: Path) -> Path:
    """Import a recording and export the store."""
    store = import_run(source, folder / "run.zarr", progress=False)
    return export_run(open_run(store.url), folder / "official", progress=False)


def parsed(path: Path) -> str:
    """A JSON file with the order and the repetitions of its keys, comparable also with NaN."""
    return json.dumps(json.loads(path.read_bytes(), object_pairs_hook=list))


def load(path: Path) -> torch.Tensor | np.ndarray:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    return torch.load(path, weights_only=True)


def same_values(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return same_bits(a, b)
    codes = [t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else t for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*codes)


def same_folder(ours: Path, theirs: Path, *, to_the_byte: bool = True) -> int:
    """Assert that two packs have equal files; the number of tensors."""
    for name in JSON_FILES:
        assert (ours / name).exists() == (theirs / name).exists(), name
        if (ours / name).exists():
            assert parsed(ours / name) == parsed(theirs / name)
            if to_the_byte:
                assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    files = sorted((ours / "dump_tensor_data").glob("*"))
    for file in files:
        assert same_values(load(file), load(theirs / "dump_tensor_data" / file.name)), file.name
    return len(files)


def packs_of(root: Path) -> list[Path]:
    return sorted(p.parent for p in root.rglob("*.json") if p.name in ("dump.json", "debug.json"))


# ---------------------------------------------------------------- real recordings

UNREADABLE = ("bad/data_list", "bad/no_data")
LOCAL = sorted(
    name
    for path in DUMPS.glob("*/*")
    if path.is_dir() and (name := path.relative_to(DUMPS).as_posix()) not in UNREADABLE
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


# ---------------------------------------------------------------- tensor files


@settings(deadline=None)
@given(arrays())
def test_pt_files_hold_every_type_bit_for_bit(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("pt") / "a.pt"
    write_tensor_file(path, array)
    found = torch.load(path, weights_only=True)
    assert found.shape == array.shape
    assert str(found.dtype) == f"torch.{array.dtype.name}"
    codes = found.reshape(-1).view(torch.uint8).numpy() if found.numel() else np.empty(0, np.uint8)
    assert codes.tobytes() == array.tobytes()


def test_files_hold_no_more_than_their_tensor(tmp_path):
    base = np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000)
    write_tensor_file(tmp_path / "a.pt", base[::500, 3:5].T)
    found = torch.load(tmp_path / "a.pt", weights_only=True)
    assert found.tolist() == [[3, 500_003], [4, 500_004]]
    assert (tmp_path / "a.pt").stat().st_size < 4096
    base.flags.writeable = False
    write_tensor_file(tmp_path / "b.npy", base[:2, :2])
    assert np.load(tmp_path / "b.npy").tolist() == [[0, 1], [1000, 1001]]


def test_npy_files_hold_text_and_widened_types(tmp_path):
    write_tensor_file(tmp_path / "t.npy", np.array(["ab", "c"]))
    assert np.load(tmp_path / "t.npy", allow_pickle=False).tolist() == ["ab", "c"]
    low = np.array([1.5, -2], ml_dtypes.bfloat16)
    write_tensor_file(tmp_path / "b.npy", low)
    assert np.load(tmp_path / "b.npy").dtype == np.float32
    for name, array in (("t.pt", np.array(["ab"])), ("x.bin", np.ones(2))):
        with pytest.raises(FormatError):
            write_tensor_file(tmp_path / name, array)


TENSORS = {
    "view": torch.arange(24.0).reshape(4, 6)[1:3, ::2],
    "transposed": torch.arange(6).reshape(2, 3).T,
    "expanded": torch.tensor([1.0]).expand(3, 2),
    "conjugate": torch.tensor([1 + 2j, 3j]).conj(),
    "bfloat16": torch.tensor([1.0, float("nan"), -0.0]).bfloat16(),
    "float8": torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn),
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.empty(0, 3, dtype=torch.float16),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "flags": torch.tensor([True, False]),
}


def test_recorded_tensors_of_every_kind_come_back(tmp_path):
    names = {kind: f"Torch.a.{at}.forward.input.0.pt" for at, kind in enumerate(TENSORS)}
    data = {
        name.removesuffix(".input.0.pt"): call(
            [tensor(tuple(TENSORS[k].shape), str(TENSORS[k].dtype), data_name=name)], []
        )
        for k, name in names.items()
    }
    pack = write_dump(tmp_path / "in/step0/rank0", data, task="tensor")
    (pack / "dump_tensor_data").mkdir()
    for kind, value in TENSORS.items():
        torch.save(value, pack / "dump_tensor_data" / names[kind])
    out = there_and_back(tmp_path / "in", tmp_path) / "step0/rank0"
    for kind, value in TENSORS.items():
        found = torch.load(out / "dump_tensor_data" / names[kind], weights_only=True)
        assert type(found) is torch.Tensor, kind
        assert same_values(found, value.detach().resolve_conj()), kind
        assert found.is_contiguous(), kind


# ---------------------------------------------------------------- safety


def hostile_store(folder: Path, data_names: list[str | None], slots: list[str] | None = None):
    run = RunWriter(folder / "run.zarr", {"framework": "pytorch", "task": "tensor"})
    with run.pack(0, 0, {"label": "../../rank0", "framework": "pytorch", "task": "tensor"}) as pack:
        node = pack.add_node("Torch.a.0.forward")
        for at, name in enumerate(data_names):
            slot = slots[at] if slots else f"input.{at}"
            pack.add(node, slot, np.full(2, at, np.float32), role=INPUT, data_name=name)
    return open_run(folder / "run.zarr")


@pytest.mark.parametrize(
    "name",
    [
        "../../x.pt",
        "/tmp/x.pt",
        "..",
        ".",
        "a/b.pt",
        "a\\b.pt",
        "x\0.pt",
        "x" * 253 + ".pt",
        "x.sh",
    ],
)
def test_files_stay_inside_whatever_names_say(tmp_path, name):
    run = hostile_store(tmp_path / "in", [name, "fine.pt"])
    before = sorted(tmp_path.rglob("*"))
    with pytest.warns(UserWarning, match="no safe file name"):
        out = export_run(run, tmp_path / "out/here", progress=False)
    data = out / "step0/rank0/dump_tensor_data"
    assert sorted(p.name for p in data.iterdir()) == ["Torch.a.0.forward.input.0.pt", "fine.pt"]
    added = set(tmp_path.rglob("*")) - set(before)
    assert all(p.is_relative_to(tmp_path / "out") for p in added)
    args = json.loads((out / "step0/rank0/dump.json").read_text())["data"]["Torch.a.0.forward"]
    assert [a["data_name"] for a in args["input_args"]] == [
        "Torch.a.0.forward.input.0.pt",
        "fine.pt",
    ]


def test_rows_without_a_recorded_name_get_official_ones(tmp_path):
    slots = ["input.0", "input.a/../b", "input." + "k" * 300, "input.a_.._b"]
    run = hostile_store(tmp_path, [None] * 4, slots)
    data = export_run(run, tmp_path / "out", progress=False) / "step0/rank0/dump_tensor_data"
    found = {torch.load(p, weights_only=True)[0].item(): p.name for p in data.iterdir()}
    assert found[0] == "Torch.a.0.forward.input.0.pt"
    assert found[1] == "Torch.a.0.forward.input.a_.._b.pt"
    assert found[3] == "Torch.a.0.forward.input.a_.._b.1.pt"
    assert len(found[2]) < 200


def test_a_shared_file_is_written_once_and_other_data_apart(tmp_path):
    folder = tmp_path / "in"
    with RunWriter(folder).pack(0, 0, {"task": "tensor"}) as pack:
        node = pack.add_node("Torch.a.0.forward")
        for at, value in enumerate((1, 1, 2)):
            pack.add(node, f"input.{at}", np.full(2, value), role=INPUT, data_name="same.pt")
    done = export(folder, tmp_path / "out", progress=False)
    pack = open_run(done.path).pack()
    assert pack.index.data_name == ["same.pt", "same.pt", "Torch.a.0.forward.input.2.pt"]
    assert [int(pack.read(row)[0]) for row in range(3)] == [1, 1, 2]


def test_a_tensor_that_cannot_be_read_is_left_without_a_file(tmp_path):
    entry = call([tensor((2,), data_name=f"{n}.pt") for n in ("good", "gone", "broken")], [])
    pack = write_dump(tmp_path / "in/step0/rank0", {"Torch.a.0.forward": entry}, task="tensor")
    data = pack / "dump_tensor_data"
    data.mkdir()
    torch.save(torch.ones(2), data / "good.pt")
    (data / "broken.pt").write_bytes(b"PK")
    with pytest.warns(UserWarning, match=r"input\.1 has no file.*missing.*; .*input\.2"):
        out = export_run(tmp_path / "in", tmp_path / "out", progress=False) / "step0/rank0"
    assert [p.name for p in (out / "dump_tensor_data").iterdir()] == ["good.pt"]
    assert (out / "dump.json").read_bytes() == (pack / "dump.json").read_bytes()


def test_a_broken_description_is_told(tmp_path):
    for at, structure in enumerate(
        [
            '{"output":[3]}\n[[0],[["type"]]]',
            "[0]\n[[5],[]]",
            "{\n{",
            '[0]\n[[0],[["foo"]]]',
            "[0]\n[]",
        ]
    ):
        folder = tmp_path / str(at)
        with PackWriter(folder / "step0/rank0") as pack:
            node = pack.add_node("Torch.a.0.forward", structure=structure)
            pack.add(node, "input.0", np.ones(2), role=INPUT)
        with pytest.raises(DamagedStoreError, match="description of a call"):
            export_run(folder / "step0/rank0", tmp_path / f"out{at}", progress=False)


# ---------------------------------------------------------------- the folder


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    (tmp_path / "file").write_text("x")
    for place, what in (("mine", "not empty"), ("file", "no folder")):
        with pytest.raises(UsageError, match=what):
            export_run(DUMPS / "stat_rules/target", tmp_path / place, progress=False)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["file"]


def test_an_interrupted_export_goes_on_where_it_stopped(tmp_path, monkeypatch):
    source = tmp_path / "in"
    for rank in range(3):
        write_dump(source / f"step0/rank{rank}", {"Torch.a.0.forward": call([tensor()], [])})
    plain, calls = dump_writer.write_dump, []

    def stop_at_second(path, *rest):
        calls.append(path)
        plain(path, *rest)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(exporter, "write_dump", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        export_run(source, tmp_path / "out", progress=False)
    assert [p.parent.name for p in sorted((tmp_path / "out/step0").glob("rank*/dump.json"))] == [
        "rank0"
    ]
    with pytest.raises(UsageError, match="another run"):
        export_run(DUMPS / "stat_rules/target", tmp_path / "out", progress=False)
    stamp = (tmp_path / "out/step0/rank0/dump.json").stat().st_mtime_ns
    out = export_run(source, tmp_path / "out", progress=False)
    assert len(calls) == 4  # rank 0, rank 1 twice, rank 2
    assert (out / "step0/rank0/dump.json").stat().st_mtime_ns == stamp
    assert sorted(p.name for p in (out / "step0").iterdir()) == ["rank0", "rank1", "rank2"]
    assert not (out / MARK).exists()


def test_an_open_run_is_left_as_it_was(tmp_path):
    run = open_run(DUMPS / "stat_rules/target")
    index = run.pack().index
    export_run(run, tmp_path / "out")
    assert run.pack().index is index


# ---------------------------------------------------------------- other recorders


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
