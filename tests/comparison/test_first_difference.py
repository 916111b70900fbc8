"""Where target and golden part: on one rank, over several, and in the official files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import DUMPS, RESULTS, SHARED, call, requires_shared, same_cell, tensor, write_dump

import msprobe_nb
from msprobe_nb.cli import main
from msprobe_nb.errors import UsageError

REDUCE = "Distributed.all_reduce.{}.forward"


def op(name: str, number: int = 0) -> str:
    return f"Torch.{name}.{number}.forward"


def plain(into: float = 1.0, out: float = 1.0, **more):
    return call([tensor(value=into)], [tensor(value=out)], **more)


def search(tmp_path: Path, target: dict, golden: dict, **options):
    """Both sides as rank -> entries."""
    for side, ranks in (("target", target), ("golden", golden)):
        for rank, entries in ranks.items():
            write_dump(tmp_path / side / f"step0/rank{rank}", entries)
    result = msprobe_nb.compare(tmp_path / "target", tmp_path / "golden", progress=False)
    return result.first_differences(**options)


def found(result) -> list[tuple[int, str]]:
    return [(call.rank, call.node) for call in result.calls]


# ---------------------------------------------------------------- one rank


def test_the_first_of_several_differing_calls_is_found(tmp_path):
    target = {op("a"): plain(), op("b"): plain(out=2.0), op("c"): plain(2.0, 4.0)}
    golden = {op("a"): plain(), op("b"): plain(), op("c"): plain()}
    result = search(tmp_path, {0: target}, {0: golden})
    assert found(result) == [(0, op("b"))]
    (row,) = result.findings.to_dict("records")
    assert (row["kind"], row["error"], row["input_error"]) == ("call", 1.0, 0.0)
    assert "off by 100% (max), its inputs are the same" in result.sentence


def test_equal_runs_differ_nowhere(tmp_path):
    entries = {0: {op("a"): plain()}}
    result = search(tmp_path, entries, entries)
    assert result.calls == []
    assert result.findings.empty
    assert "No output" in result.sentence
    assert [p.name[:20] for p in result.to_json(tmp_path / "out")] == ["compare_result_rank0"]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_count(tmp_path, odd):
    target = {op("a"): plain(out=odd), op("b"): plain(out=2.0)}
    golden = {op("a"): plain(), op("b"): plain()}
    assert found(search(tmp_path, {0: target}, {0: golden})) == [(0, op("a"))]


def test_nan_on_both_sides_does_not(tmp_path):
    entries = {op("a"): plain(out=float("nan"))}
    assert search(tmp_path, {0: entries}, {0: entries}).calls == []


def test_a_mean_near_zero_does_not_count(tmp_path):
    def normed(mean):
        out = tensor((100,), Max=2.0, Min=-2.0, Mean=mean, Norm=10.0)
        return {op("layer_norm"): call([tensor()], [out])}

    assert search(tmp_path / "a", {0: normed(3e-7)}, {0: normed(1e-7)}).calls == []
    assert search(tmp_path / "b", {0: normed(0.7)}, {0: normed(0.1)}).calls


def test_what_is_left_of_numbers_that_cancel_does_not_count(tmp_path):
    def cancelled(rest):
        return {op("sub"): call([tensor(value=1000.0)], [tensor(value=rest)])}

    assert search(tmp_path / "a", {0: cancelled(1e-4)}, {0: cancelled(0.0)}).calls == []
    assert search(tmp_path / "b", {0: cancelled(1.0)}, {0: cancelled(0.0)}).calls


def test_another_shape_counts(tmp_path):
    target = {op("a"): call([tensor()], [tensor((3, 2))])}
    result = search(tmp_path, {0: target}, {0: {op("a"): plain()}})
    assert "of another shape" in result.sentence


def test_values_of_chance_do_not_count(tmp_path):
    names = [op("empty"), op("fill_"), "Tensor.__setitem__.0.forward"]
    target = {name: plain(out=9.0) for name in names}
    golden = {name: plain() for name in names}
    assert search(tmp_path, {0: target}, {0: golden}).calls == []


def test_the_random_state_of_a_fused_attention_does_not_count(tmp_path):
    def attention(state, value=1.0):
        outputs = [tensor(value=value)] * 4 + [tensor(value=state)] * 2
        return {"NPU.npu_fusion_attention.0.forward": call([tensor()], outputs)}

    assert search(tmp_path / "a", {0: attention(7.0)}, {0: attention(1.0)}).calls == []
    assert search(tmp_path / "b", {0: attention(7.0, 9.0)}, {0: attention(1.0)}).calls


def test_a_call_of_the_target_alone_that_made_the_difference_is_named(tmp_path):
    target = {
        op("a"): plain(),
        "Tensor.mul_.0.forward": plain(1.0, 3.0),
        "Tensor.to.0.forward": plain(7.0, 7.0),
        op("b"): plain(3.0, 9.0),
    }
    result = search(tmp_path, {0: target}, {0: {op("a"): plain(), op("b"): plain()}})
    assert found(result) == [(0, "Tensor.mul_.0.forward"), (0, op("b"))]
    assert [c.kind for c in result.calls] == ["target only", "call"]
    assert "only in the target" in result.sentence


def test_of_calls_inside_each_other_the_inner_one_is_found(tmp_path):
    inner, outer = op("linear"), "Module.fc.Linear.forward.0"
    for side, value in (("target", 5.0), ("golden", 1.0)):
        folder = write_dump(tmp_path / side, {outer: plain(out=value), inner: plain(out=value)})
        (folder / "construct.json").write_text(json.dumps({outer: None, inner: outer}))
    result = msprobe_nb.compare(tmp_path / "target", tmp_path / "golden", progress=False)
    assert found(result.first_differences()) == [(0, inner)]


def test_the_limit_is_a_parameter(tmp_path):
    result = search(tmp_path, {0: {op("a"): plain(out=1.2)}}, {0: {op("a"): plain()}})
    assert result.calls == []
    assert found(result.comparison.first_differences(limit=0.1)) == [(0, op("a"))]
    with pytest.raises(UsageError):
        result.comparison.first_differences(limit=0)


def test_the_first_step_with_a_difference_counts(tmp_path):
    for side, value in (("target", 2.0), ("golden", 1.0)):
        for step in range(3):
            out = value if step else 1.0
            write_dump(tmp_path / side / f"step{step}/rank0", {op("a"): plain(out=out)})
    result = msprobe_nb.compare(tmp_path / "target", tmp_path / "golden", progress=False)
    first = result.first_differences()
    assert [(c.step, c.node) for c in first.calls] == [(1, op("a"))]
    written = [p.relative_to(tmp_path / "out") for p in first.to_json(tmp_path / "out")]
    assert [str(p.parent) for p in written] == ["step0", "step1", "step2", "."]


def test_values_saved_by_hand_are_searched_too():
    sides = [DUMPS / "debug_tensor" / side for side in ("target", "golden")]
    result = msprobe_nb.compare(*sides, progress=False)
    assert result.first_differences(limit=1e-9).calls


# ---------------------------------------------------------------- several ranks


def reduced(before: float, after: float, number: int = 0, **group):
    inputs = [tensor(value=before)]
    if group:
        inputs.append({"type": "torch.ProcessGroup", **group})
    return {REDUCE.format(number): call(inputs, [tensor(value=after)])}


def test_a_difference_from_a_peer_is_not_an_origin(tmp_path):
    golden = {op("a"): plain(), **reduced(1.0, 2.0), op("b"): plain(2.0, 2.0)}
    ranks = {
        0: {op("a"): plain(), **reduced(1.0, 6.0), op("b"): plain(6.0, 6.0)},
        1: {op("a"): plain(out=5.0), **reduced(5.0, 6.0), op("b"): plain(6.0, 6.0)},
    }
    assert found(search(tmp_path, ranks, {0: golden, 1: golden})) == [(1, op("a"))]


def test_a_communication_that_goes_wrong_itself_is_found_on_all_its_ranks(tmp_path):
    golden, target = reduced(1.0, 2.0), reduced(1.0, 7.0)
    result = search(tmp_path, {0: target, 1: target}, {0: golden, 1: golden})
    assert found(result) == [(0, REDUCE.format(0)), (1, REDUCE.format(0))]
    assert {c.kind for c in result.calls} == {"communication"}


def test_a_communication_with_a_wrong_input_is_found_on_the_rank_that_gave_it(tmp_path):
    golden = reduced(1.0, 2.0)
    result = search(tmp_path, {0: reduced(1.0, 6.0), 1: reduced(5.0, 6.0)}, {0: golden, 1: golden})
    assert found(result) == [(1, REDUCE.format(0))]


def test_independent_origins_are_all_found(tmp_path):
    golden = {op("a"): plain(), **reduced(1.0, 2.0)}
    target = {op("a"): plain(out=3.0), **reduced(3.0, 6.0)}
    result = search(tmp_path, {0: target, 1: target}, {0: golden, 1: golden})
    assert found(result) == [(0, op("a")), (1, op("a"))]


def test_ranks_of_other_groups_do_not_explain(tmp_path):
    def side(value, group):
        entries = {op("a"): plain(out=value), **reduced(value, value, group_ranks=group)}
        return entries | {op("b"): plain(out=value)}

    groups = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}
    golden = {rank: side(1.0, group) for rank, group in groups.items()}
    target = dict(golden)
    target[1] = side(5.0, [0, 1])
    target[2] = golden[2] | {op("b"): plain(out=9.0)}
    assert found(search(tmp_path, target, golden)) == [(1, op("a")), (2, op("b"))]


@pytest.mark.parametrize("by_name", [False, True])
def test_values_travel_from_sender_to_receiver_only(tmp_path, by_name):
    def transfer(api, key, peer, value):
        peer_value = {"type": "int", "value": peer}
        entry = call([tensor(value=value)], [tensor(value=value)])
        if by_name:
            entry["input_kwargs"] = {key: peer_value}
        else:
            entry["input_args"].append(peer_value)
        return {f"Distributed.{api}.0.forward": entry}

    def ranks(value):
        return {
            0: {op("a"): plain(out=value), **transfer("send", "dst", 1, value)},
            1: {**transfer("recv", "src", 0, value), op("b"): plain(value, value)},
        }

    assert found(search(tmp_path / "a", ranks(5.0), ranks(1.0))) == [(0, op("a"))]
    target = ranks(1.0)
    target[0] |= {op("c"): plain(out=5.0)}  # after it sent
    target[1] |= {op("b"): plain(out=5.0)}
    golden = ranks(1.0)
    golden[0] |= {op("c"): plain()}
    result = search(tmp_path / "b", target, golden)
    assert found(result) == [(0, op("c")), (1, op("b"))]


def test_a_broadcast_carries_only_what_its_source_has(tmp_path):
    def ranks(at_source, at_other):
        def cast(value):
            entry = call([tensor(value=value), {"type": "int", "value": 0}], [tensor(value=1.0)])
            return {"Distributed.broadcast.0.forward": entry}

        return {
            0: {op("a"): plain(out=at_source), **cast(at_source), op("b"): plain(out=at_source)},
            1: {op("a"): plain(out=at_other), **cast(at_other), op("b"): plain(out=at_source)},
        }

    assert found(search(tmp_path / "a", ranks(5.0, 1.0), ranks(1.0, 1.0))) == [(0, op("a"))]
    target = ranks(1.0, 5.0)
    target[0][op("b")] = plain(out=5.0)
    result = search(tmp_path / "b", target, ranks(1.0, 1.0))
    assert found(result) == [(0, op("b")), (1, op("a"))]


def test_transfers_of_a_batch_are_followed(tmp_path):
    def batch(op_name, peer, value):
        transfer = {
            "class_type": "torch.distributed.P2POp",
            "tensor": tensor(value=value),
            "op": op_name,
            "peer": peer,
            "tag": 0,
            "group_id": "0",
        }
        return {"Distributed.batch_isend_irecv.0.forward": call([[transfer]], [])}

    def ranks(value):
        return {
            0: {op("a"): plain(out=value), **batch("isend", 1, value)},
            1: {**batch("irecv", 0, 1.0), op("b"): plain(value, value)},
        }

    result = search(tmp_path, ranks(5.0), ranks(1.0))
    assert found(result) == [(0, op("a"))]
    (path,) = (p for p in result.to_json(tmp_path / "out") if "rank1_" in p.name)
    entry = json.loads(path.read_text())["Distributed.batch_isend_irecv.0.forward"]
    assert entry["op_items"][0]["NPU P2POp op"] == "irecv"
    assert entry["op_items"][0]["NPU P2POp peer"] == "0"


# ---------------------------------------------------------------- official recordings and files


def strict(path: Path):
    def refuse(constant):
        raise AssertionError(f"{constant} in {path}")

    return json.loads(path.read_text(), parse_constant=refuse)


def recording(name: str):
    root = DUMPS if (DUMPS / name).is_dir() else SHARED / "compare/dumps"
    sides = [root / name / side for side in ("target", "golden")]
    return msprobe_nb.compare(*sides, progress=False).first_differences()


# The fault of the two-rank recordings is `mul_` on rank 1. The official tool cannot report it and
# adds rank 0's all_reduce, which only received the difference.
@pytest.mark.parametrize(
    "name",
    [
        "dist_statistics_statistics",
        pytest.param("dist_tensor_statistics", marks=requires_shared),
        pytest.param("dist_statistics_md5", marks=requires_shared),
    ],
)
def test_the_hidden_fault_of_one_rank(name):
    expected = [(1, "Tensor.mul_.0.forward"), (1, "Torch.square.0.forward")]
    assert found(recording(name)) == expected


# The official tool reports a layer_norm whose mean is about 1e-7; the fault is the weight of
# layer 1's second linear call.
@requires_shared
@pytest.mark.parametrize("name", ["transformer_statistics_mix", "transformer_tensor_mix"])
def test_the_fault_of_a_transformer(name):
    result = recording(name)
    assert found(result) == [(0, "Functional.linear.7.forward")]
    assert "input.1 already off" in result.sentence


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("dist_da", "dist_statistics_statistics"),
        pytest.param("da_stat", "transformer_statistics_mix", marks=requires_shared),
        pytest.param("da_md5", "transformer_md5_mix", marks=requires_shared),
    ],
)
def test_files_have_the_official_structure(tmp_path, case, name):
    result = recording(name)
    written = result.to_json(tmp_path)
    folder = RESULTS / case if (RESULTS / case).is_dir() else SHARED / "compare/results" / case
    assert len(written) == len(list(folder.glob("*.json")))
    for path in written[:-1]:
        pattern = path.name.rpartition("_")[0] + "_*.json"
        (other,) = folder.glob(pattern)
        ours, theirs = strict(path), json.loads(other.read_text())
        assert list(ours) == list(theirs)
        for call_name, entry in ours.items():
            assert list(entry) == ["is_same", "op_items"]
            for item, reference in zip(
                entry["op_items"], theirs[call_name]["op_items"], strict=True
            ):
                assert list(item) == list(reference)
                for key, value in item.items():
                    expected = str(reference[key])
                    if key.startswith("Bench P2P") and expected == "nan":  # no golden row
                        expected = "None"
                    if key not in ("Result", "Err_message"):  # theirs are not filled in
                        assert same_cell(str(value), expected), (call_name, key)
    findings = strict(written[-1])
    (other,) = folder.glob("diff_analyze*.json")
    theirs = json.loads(other.read_text())
    assert set(findings) <= set(theirs)
    keys = {tuple(entry) for entries in findings.values() for entry in entries}
    assert keys == {("op_name", "data_info", "stack_info")}
    for rank, entries in findings.items():
        for entry in entries:
            same = [other for other in theirs[rank] if other["op_name"] == entry["op_name"]]
            assert same in ([], [entry])


def test_equal_ranks_give_no_analysis_file(tmp_path):
    side = DUMPS / "dist_statistics_statistics/golden"
    result = msprobe_nb.compare(side, side, progress=False).first_differences()
    assert not [p for p in result.to_json(tmp_path) if p.name.startswith("diff_analyze")]


def test_files_are_valid_json_whatever_was_recorded(tmp_path):
    nan, inf = float("nan"), float("inf")
    target = {
        op("a"): call([tensor(value=inf), {"type": "str", "value": "\ud800"}], [tensor(value=nan)])
    }
    result = search(tmp_path, {0: target}, {0: {op("a"): plain()}})
    entries, analysis = map(strict, result.to_json(tmp_path / "out"))
    assert entries[op("a")]["is_same"] is False
    (finding,) = analysis["rank_0"]
    assert finding["data_info"]["output"][f"{op('a')}.output.0"]["NPU max"] == "Nan"


def test_the_command_writes_the_files_for_single_recordings_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_dump(tmp_path / "a", {op("a"): plain(out=9.0)})
    write_dump(tmp_path / "b", {op("a"): plain()})
    (tmp_path / "out").mkdir()
    (tmp_path / "out/compare_result_rank7_20200101000000.json").write_text("stale")
    words = ["compare", "-tp", "a/dump.json", "-gp", "b/dump.json", "-o", "out", "-da"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "The first difference: Torch.a.0.forward.output.0 is off by 800% (max)" in out
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert [name[:20] for name in names] == [
        "compare_result_rank0",
        "compare_result_rank7",
        names[-1][:20],
    ]
    assert names[-1].startswith("diff_analyze_")
