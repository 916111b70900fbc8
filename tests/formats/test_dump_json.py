"""Reading dump.json: strict files fast, everything else tolerantly, broken ones with a reason."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import call, tensor, write_dump

from msprobe_nb.errors import FormatError, InvalidJSONError
from msprobe_nb.formats import open_run
from msprobe_nb.formats.importer import import_run
from msprobe_nb.formats.msprobe.dump_json import parse_dump
from msprobe_nb.store.jsonsafe import restore

HEAD = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}


def entries(raw: bytes, **options):
    """Entries decoded, numbers restored."""
    found = parse_dump(raw, "dump.json", **options)
    return [
        (name, restore(msgspec.json.decode(e) if isinstance(e, msgspec.Raw) else e))
        for name, e in found.entries()
    ]


def official(data, **head) -> bytes:
    """The bytes the official writer would produce."""
    return json.dumps({**HEAD, **head, "data": data}, indent=1).encode()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_every_layout_of_a_dump_gives_the_same_entries(data):
    data = json.loads(json.dumps(data))  # what JSON can say
    for raw in (
        official(data),
        json.dumps({"data": data, **HEAD}, indent=1).encode(),
        json.dumps({**HEAD, "data": data}).encode(),
        json.dumps({**HEAD, "data": data}, indent=4, ensure_ascii=False).encode(),
        "\ufeff".encode() + official(data),
    ):
        assert repr(entries(raw)) == repr(list(data.items()))
        assert parse_dump(raw, "f").header == HEAD


def test_further_head_keys_are_kept():
    assert parse_dump(official({}, is_merged=True), "f").header["is_merged"] is True
    raw = json.dumps({"data": {"a": 1}, **HEAD, "note": {"x": [1]}}, indent=1).encode()
    assert parse_dump(raw, "f").header["note"] == {"x": [1]}


@pytest.mark.parametrize("place", ['{"Max": %s}', "[1, %s]", "[%s]", '{"a": [{"b": %s}]}'])
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_bare_nan_and_infinity_are_numbers(place, literal):
    raw = official({"x": 0}).replace(b'"x": 0', f'"x": {place % literal}'.encode())
    (_, found), *_ = entries(raw)
    while isinstance(found, (dict, list)):
        found = next(iter(reversed(found.values() if isinstance(found, dict) else found)))
    assert (math.isnan(found)) if literal == "NaN" else found == float(literal.replace("inity", ""))


@pytest.mark.parametrize(
    "text",
    [
        "\x00nan",
        "\x00",
        "\x00\x00inf",
        "\x00absent",
        ": NaN",
        "a: Infinity, b",
        ': -Infinity"',
        "NaN",
        "\\ NaN",
    ],
)
def test_texts_that_look_like_literals_stay_texts(text):
    raw = official({"x": {"value": text, "Max": 1.0}, "y": {"Max": float("nan")}})
    assert entries(raw)[0] == ("x", {"value": text, "Max": 1.0})


def test_integers_of_any_size_stay_exact():
    assert entries(official({"x": 2**70}))[0] == ("x", 2**70)


def test_repeated_names_are_all_kept_and_reported():
    raw = official({"a": 1, "b": 2, "c": 3}).replace(b'"c"', b'"a"')
    found = parse_dump(raw, "f")
    assert found.repeated == ["a"]
    assert entries(raw) == [("a", 1), ("b", 2), ("a", 3)]


@given(st.data())
def test_a_truncated_file_is_reported_and_its_whole_entries_can_be_saved(data):
    content = {f"Torch.add.{at}.forward": {"Max": at, "t": "x" * at} for at in range(5)}
    raw = official(content)
    cut = data.draw(st.integers(1, len(raw) - 1))
    with pytest.raises((InvalidJSONError, FormatError)):
        parse_dump(raw[:cut], "dump.json")
    try:
        saved = entries(raw[:cut], salvage=True)
    except FormatError:
        assert raw[:cut].count(b"}") == 0  # not even one entry was whole
    else:
        assert saved == list(content.items())[: len(saved)]
        assert len(saved) >= raw[:cut].count(b"\n  }")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b'{"task": "x", "data": {"a": 1', "ends in the middle"),
        (b'{"task": "x", "data": {"a": nope}}', "invalid JSON at line 1 column 29"),
        (b'{"data": {"a": 1}} trailing', "extra text"),
        (b'{"data": {"\xff": 1}}', "not UTF-8"),
        (b"[1, 2]", "no JSON object"),
        (b'{"task": "statistics"}', "'data' is missing"),
        (b'{"data": [1]}', "'data' is a list"),
        (b'{"data": null}', "'data' is a NoneType"),
    ],
)
def test_broken_files_say_what_is_wrong_and_where(raw, message):
    with pytest.raises(FormatError, match=message) as caught:
        parse_dump(raw, "some/dump.json")
    assert caught.value.file == "some/dump.json"
    assert caught.value.remedy


def test_deep_nesting_in_the_whole_file_is_an_error_not_a_crash():
    raw = b'{"data": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with pytest.raises(InvalidJSONError, match="nest deeper"):
        parse_dump(raw, "f")


def test_lone_surrogates_do_not_stop_reading():
    assert entries(official({"x": "\ud800"}))[0] == ("x", "\ud800")


def test_a_large_file_needs_little_more_memory_than_its_size(tmp_path):
    """300 MB must not need 3 GB; measured on a tenth of that."""
    item = {
        **{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 128], "Max": 1.25},
        **{"Min": -1.5, "Mean": 0.0123456789, "Norm": 17.25, "requires_grad": False},
    }
    data = {
        f"Functional.linear.{at}.forward": {
            "input_args": [item] * 3,
            "input_kwargs": {},
            "output": [item],
        }
        for at in range(30_000)
    }
    path = tmp_path / "dump.json"
    path.write_bytes(official(data))
    size = path.stat().st_size
    script = f"""
import resource
from msprobe_nb.formats import open_run
import numpy, msgspec
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
assert len(open_run({str(tmp_path)!r}).pack().index) == 120_000
print(peak() - before)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert size > 25_000_000
    assert int(done.stdout) < 4 * size


ODD_NUMBERS = {"1e400": math.inf, "-1e400": -math.inf, "1" * 5000: math.inf, "NaN": math.nan}


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda text: text[:8])
@pytest.mark.parametrize("more", ["", ', "extra": 1', ', "list": [Infinity, 1e999]'])
def test_numbers_beyond_float64_are_infinite(tmp_path, number, more):
    """The official tool reads 1e400 as infinity; one entry must not cost the other rows."""
    data = {f"Torch.a.{at}.forward": call([], [tensor(value=9.0)]) for at in range(3)}
    folder = write_dump(tmp_path / "a", data)
    file = folder / "dump.json"
    file.write_text(file.read_text().replace('"Max": 9.0', f'"Max": {number}{more}', 1))
    index = open_run(folder).pack().index
    assert len(index) == 3
    assert repr(float(index.statistics.number[0, 0])) == repr(ODD_NUMBERS[number])
    store = import_run(folder, tmp_path / "r.zarr", progress=False)
    found = store.pack().index
    assert repr(found.statistics.python().tolist()) == repr(index.statistics.python().tolist())


@pytest.mark.parametrize("place", ['"Max": "\xe9"', '"other": "\xe9"'])
def test_bytes_that_are_no_text_are_placed(tmp_path, place):
    folder = write_dump(tmp_path / "a", {"Torch.a.0.forward": call([], [tensor(value=9.0)])})
    file = folder / "dump.json"
    file.write_bytes(file.read_text().replace('"Max": 9.0', place).encode("latin-1"))
    with pytest.raises(InvalidJSONError) as caught:
        open_run(folder).pack().index  # noqa: B018
    assert caught.value.file == str(file)
    assert caught.value.key == "Torch.a.0.forward"


SPACE = st.sampled_from(["", " ", "\n", "\n  ", "\t \r\n"])
NAMES = st.sampled_from(["a", "b", 'q"\\', "data", "{", "é"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), SPACE, SPACE, SPACE)
def test_entries_of_any_layout_come_in_order_with_all_repeats(pairs, before, between, after):
    """Against the scanner of the standard library, which sees every key."""
    members = (
        f"{before}{json.dumps(name)}{between}:{after}{json.dumps(value)}{between}"
        for name, value in pairs
    )
    raw = f'{{{after}"task":1,"data"{between}:{{{",".join(members) or after}}}{before}}}'.encode()
    assert repr(entries(raw)) == repr([(name, value) for name, value in pairs])
    seen = [name for name, _ in pairs]
    repeated = list(dict.fromkeys(name for at, name in enumerate(seen) if name in seen[:at]))
    assert parse_dump(raw, "dump.json").repeated == repeated


@pytest.mark.parametrize("layout", ["compact", "repeated"])
def test_unusual_layouts_are_decoded_when_their_turn_comes(layout):
    data = {f"Torch.a.{at}.forward": call([], [tensor(value=1.5)]) for at in range(50)}
    raw = official(data)
    if layout == "compact":
        raw = json.dumps({**HEAD, "data": data}).encode()
    else:
        raw = raw.replace(b"Torch.a.7.forward", b"Torch.a.5.forward")
    kinds = [type(entry) for _, entry in parse_dump(raw, "dump.json").entries()]
    assert kinds.count(msgspec.Raw) >= 49
