"""The evidence rules: what is an origin, what only passes a difference on, what is drift."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from support import (
    DUMPS,
    RESNET,
    SHARED,
    call,
    different_cells,
    requires_shared,
    tensor,
    write_dump,
)

import msprobe_nb
from msprobe_nb import Thresholds, load_comparison
from msprobe_nb.cli import main
from msprobe_nb.errors import UsageError


def evidence(target, golden, **options):
    return msprobe_nb.compare(target, golden, rules="evidence", progress=False, **options)


def first(result):
    origin = result.origins.iloc[0]
    return origin["node"], origin["kind"]


# ---------------------------------------------------------------- recordings with known culprits

RECORDED = [
    ("compare/dumps/transformer_statistics_mix/target",
     "compare/dumps/transformer_statistics_mix/golden",
     "Module.layers.1.fc2.Linear.forward.0", "parameter", 0, 0),
    ("compare/dumps/transformer_tensor_mix/target", "compare/dumps/transformer_tensor_mix/golden",
     "Module.layers.1.fc2.Linear.forward.0", "parameter", 0, 0),
    ("compare/dumps/transformer_tensor_L0/target", "compare/dumps/transformer_tensor_L0/golden",
     "Module.layers.1.fc2.Linear.forward.0", "parameter", 0, 0),
    ("compare/dumps/conv_statistics_L0/target", "compare/dumps/conv_statistics_L0/golden",
     "Module.fc.Linear.forward.0", "parameter", 0, 0),
    ("compare/dumps/conv_statistics_L1/target", "compare/dumps/conv_statistics_L1/golden",
     "Functional.linear.0.forward", "parameter", 0, 0),
    ("compare/dumps/conv_tensor_mix/target", "compare/dumps/conv_tensor_mix/golden",
     "Module.fc.Linear.forward.0", "parameter", 0, 0),
    ("compare/dumps/dist_statistics_statistics/target",
     "compare/dumps/dist_statistics_statistics/golden", "Tensor.mul_.0.forward", "unmatched", 0, 1),
    ("compare/dumps/dist_tensor_statistics/target", "compare/dumps/dist_tensor_statistics/golden",
     "Tensor.mul_.0.forward", "unmatched", 0, 1),
    ("graph/dumps/stat_b", "graph/dumps/stat_a",
     "Module.layers.1.mlp.fc1.Linear.forward.0", "parameter", 0, 0),
    ("graph/dumps/tensor_b", "graph/dumps/tensor_a",
     "Module.layers.1.mlp.fc1.Linear.forward.0", "parameter", 0, 0),
    ("graph/dumps/md5_b", "graph/dumps/md5_a",
     "Module.layers.1.mlp.fc1.Linear.forward.0", "parameter", 0, 0),
    ("graph/dumps/nan1", "graph/dumps/stat_a", "Torch.log.0.forward", "overflow", 0, 0),
    ("graph/dumps/extra", "graph/dumps/stat_a", "Functional.relu.0.forward", "unmatched", 0, 0),
    ("graph/dumps/stat_a", "graph/dumps/extra", "Functional.relu.0.forward", "unmatched", 0, 0),
    ("graph/dumps/gelu2", "graph/dumps/stat_a", "Functional.gelu.1.forward", "unmatched", 0, 0),
    ("graph/dumps/dist_nan", "graph/dumps/dist_ok", "Torch.log.0.forward", "overflow", 1, 1),
    ("dump/gpt/stat/target_eps/dump", "dump/gpt/stat/golden/dump",
     "Functional.layer_norm.2.forward", "argument", 0, 0),
    ("dump/gpt/tensor/target_eps/dump", "dump/gpt/tensor/golden/dump",
     "Functional.layer_norm.2.forward", "argument", 0, 0),
    ("dump/gpt/md5/target_eps/dump", "dump/gpt/md5/golden/dump",
     "Functional.layer_norm.2.forward", "argument", 0, 0),
    ("dump/gpt/stat/target_scale/dump", "dump/gpt/stat/golden/dump",
     "Module.blocks.0.mlp.fc_in.Linear.forward.0", "parameter", 0, 0),
    ("dump/gpt/stat/target_bf16/dump", "dump/gpt/stat/golden/dump",
     "Module.wte.Embedding.forward.0", "dtype", 0, 0),
    ("dump/ddp/stat/target/dump", "dump/ddp/stat/golden/dump",
     "Functional.layer_norm.1.forward", "argument", 0, 1),
    ("dump/ddp/tensor_L0/target/dump", "dump/ddp/tensor_L0/golden/dump",
     "Module.module.blocks.0.ln_2.LayerNorm.forward.0", "output", 0, 1),
]  # fmt: skip


@requires_shared
@pytest.mark.parametrize(("target", "golden", "node", "kind", "step", "rank"), RECORDED)
def test_the_known_culprit_of_a_recording_is_the_first_origin(
    target, golden, node, kind, step, rank
):
    result = evidence(SHARED / target, SHARED / golden)
    origin = result.origins.iloc[0]
    assert (origin["node"], origin["kind"]) == (node, kind)
    assert (origin["step"], origin["rank"]) == (step, rank)
    assert result.summary().startswith(f"It began at {node}")


HEALTHY = ["graph/dumps/stat_a", "graph/dumps/dist_ok", "dump/gpt/tensor/golden/dump"]


@requires_shared
@pytest.mark.parametrize("run", HEALTHY)
def test_a_run_with_itself_has_no_origin(run):
    result = evidence(SHARED / run, SHARED / run)
    assert len(result.origins) == 0
    assert set(result.table["verdict"]) == {"pass"}
    assert result.summary().startswith("No differences found")


def test_a_healthy_pair_of_two_devices_has_no_origin_and_names_the_drift():
    result = evidence(RESNET / "cpu", RESNET / "gpu")
    assert len(result.origins) == 0
    assert result.counts["error"] == result.counts["warning"] == 0
    assert "TF32" in result.summary().splitlines()[0]
    unmatched = result.table[result.table["verdict"] == "unmatched"]
    assert len(unmatched) == 1293
    assert unmatched["golden"].isna().all()


# ---------------------------------------------------------------- small recordings


def chain(count=4, **changes):
    """A chain of calls, each working on the result of the one before; values halve at every call.

    ``changes`` maps ``call<number>`` to a function of its entry.
    """
    data = {}
    for at in range(count):
        entry = call(
            [tensor(value=2.0**-at, norm=3 * 2.0**-at)],
            [tensor(value=2.0 ** -(at + 1), norm=3 * 2.0 ** -(at + 1))],
        )
        change = changes.get(f"call{at}")
        data[f"Torch.op{at}.0.forward"] = change(entry) if change else entry
    return data


def scaled(entry, factor, *places):
    for place in places:
        for value in entry[place]:
            for name in ("Max", "Min", "Mean", "Norm"):
                value[name] *= factor
    return entry


def pair(folder, ours, theirs, **head):
    return write_dump(folder / "target", ours, **head), write_dump(
        folder / "golden", theirs, **head
    )


def broken_from(at, factor=1.01):
    """The result of call `at` and everything behind it is scaled."""
    changes = {f"call{at}": lambda entry: scaled(entry, factor, "output")}
    for later in range(at + 1, 4):
        changes[f"call{later}"] = lambda entry: scaled(entry, factor, "input_args", "output")
    return chain(**changes)


@pytest.mark.parametrize("at", range(4))
def test_the_call_that_makes_a_difference_is_the_origin_and_the_rest_follow(tmp_path, at):
    result = evidence(*pair(tmp_path, broken_from(at), chain()))
    assert first(result) == (f"Torch.op{at}.0.forward", "output")
    assert len(result.origins) == 1
    assert result.counts["error"] == 1
    assert result.counts["warning"] == 2 * (3 - at)
    behind = result.table[result.table["verdict"] == "warning"]["reason"]
    assert behind.str.contains(f"a consequence of Torch.op{at}.0.forward", regex=False).all()
    before = result.table[result.table["node"] < f"Torch.op{at}.0.forward"]
    assert (before["verdict"] == "pass").all()


def test_an_input_that_is_already_wrong_is_the_origin(tmp_path):
    ours = chain(call0=lambda e: scaled(e, 2, "input_args", "output"),
                 call1=lambda e: scaled(e, 2, "input_args", "output"))  # fmt: skip
    assert first(evidence(*pair(tmp_path, ours, chain()))) == ("Torch.op0.0.forward", "input")


def argument(value, kind="float"):
    def change(entry):
        entry["input_kwargs"] = {"eps": {"type": kind, "value": value, "Max": value, "Min": value,
                                         "Mean": value, "Norm": value}}  # fmt: skip
        return entry

    return change


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [(1e-3, 1e-5, "float"), (True, False, "bool"), ("tanh", "none", "str"), (2, 3, "int")],
)
def test_a_changed_argument_is_the_origin_even_without_visible_effect(tmp_path, ours, theirs, kind):
    result = evidence(
        *pair(tmp_path, chain(call2=argument(ours, kind)), chain(call2=argument(theirs, kind)))
    )
    assert first(result) == ("Torch.op2.0.forward", "argument")
    assert repr(ours) in result.origins["sentence"].iloc[0]


@pytest.mark.parametrize(("ours", "theirs"), [("cuda:0", "cpu"), ("<f at 0x7f01>", "<f at 0x55>")])
def test_devices_and_addresses_are_no_changed_arguments(tmp_path, ours, theirs):
    result = evidence(
        *pair(tmp_path, chain(call2=argument(ours, "str")), chain(call2=argument(theirs, "str")))
    )
    assert len(result.origins) == 0


def with_dtype(dtype, *places):
    def change(entry):
        for place in places:
            for value in entry[place]:
                value["dtype"] = dtype
        return entry

    return change


def test_a_changed_dtype_is_the_origin_not_its_rounding(tmp_path):
    half, places = "torch.bfloat16", ("input_args", "output")
    ours = chain(
        call1=lambda e: scaled(with_dtype(half, "output")(e), 1.003, "output"),
        call2=lambda e: scaled(with_dtype(half, *places)(e), 1.003, *places),
        call3=lambda e: scaled(with_dtype(half, *places)(e), 1.004, *places),
    )  # fmt: skip
    result = evidence(*pair(tmp_path, ours, chain()))
    assert first(result) == ("Torch.op1.0.forward", "dtype")
    assert len(result.origins) == 1


def test_a_gated_dtype_gets_its_own_verdict_and_is_an_origin(tmp_path):
    ours, theirs = (
        chain(call2=with_dtype(d, "output"), call3=with_dtype(d, "input_args"))
        for d in ("torch.int32", "torch.int64")
    )
    result = evidence(*pair(tmp_path, ours, theirs))
    assert first(result) == ("Torch.op2.0.forward", "dtype")
    verdict = result.table.set_index("target")["verdict"]
    assert verdict["Torch.op2.0.forward.output.0"] == "error"
    assert verdict["Torch.op3.0.forward.input.0"] == "gated"


def test_nan_is_traced_to_the_call_that_makes_it(tmp_path):
    def nan(*places):
        def change(entry):
            for place in places:
                for value in entry[place]:
                    value.update(
                        Max=float("nan"), Min=float("nan"), Mean=float("nan"), Norm=float("nan")
                    )
            return entry

        return change

    ours = chain(
        call1=nan("output"), call2=nan("input_args", "output"), call3=nan("input_args", "output")
    )
    result = evidence(*pair(tmp_path, ours, chain()))
    assert first(result) == ("Torch.op1.0.forward", "overflow")
    assert len(result.origins) == 1


def test_a_changed_shape_is_an_origin(tmp_path):
    def longer(*places):
        def change(entry):
            for place in places:
                for value in entry[place]:
                    value["shape"] = [4, 3]
            return entry

        return change

    ours = chain(call2=longer("output"), call3=longer("input_args", "output"))
    result = evidence(*pair(tmp_path, ours, chain()))
    assert first(result) == ("Torch.op2.0.forward", "shape")
    assert len(result.origins) == 1


def test_an_extra_call_is_found_and_does_not_shift_the_later_ones(tmp_path):
    theirs = {f"Torch.same.{at}.forward": entry for at, entry in enumerate(chain().values())}
    extra = call([tensor(value=0.5, norm=1.5)], [tensor(value=0.4, norm=1.2)])
    entries = list(chain(**{f"call{at}": (lambda e: scaled(e, 0.8, "input_args", "output"))
                            for at in (1, 2, 3)}).values())  # fmt: skip
    ours = {"Torch.same.0.forward": entries[0], "Torch.scale.0.forward": extra}
    ours |= {f"Torch.same.{at}.forward": entries[at] for at in (1, 2, 3)}
    result = evidence(*pair(tmp_path, ours, theirs))
    assert first(result) == ("Torch.scale.0.forward", "unmatched")
    assert "Torch.same.1.forward works on its result" in result.origins["sentence"].iloc[0]
    missing = evidence(tmp_path / "golden", tmp_path / "target")
    assert first(missing) == ("Torch.scale.0.forward", "unmatched")


def test_rounding_is_no_origin_but_ten_times_more_is(tmp_path):
    eps = float(np.finfo(np.float32).eps)
    for factor, expected in ((1 + 4 * eps, 0), (1 + 200 * eps, 1)):
        shutil.rmtree(tmp_path, ignore_errors=True)
        result = evidence(*pair(tmp_path, broken_from(1, factor), chain()))
        assert len(result.origins) == expected, factor


def test_values_that_only_one_side_has_never_pass(tmp_path):
    ours = chain() | {"Torch.more.0.forward": call([tensor()], [tensor()])}
    result = evidence(*pair(tmp_path, ours, chain()))
    assert (
        result.table.set_index("target")["verdict"]["Torch.more.0.forward.output.0"] == "unmatched"
    )
    assert result.counts["unmatched"] == 2


# ---------------------------------------------------------------- steps, noise, thresholds


def test_later_steps_inherit_the_difference(tmp_path):
    for step in (0, 1):
        write_dump(tmp_path / f"target/step{step}/rank0", broken_from(1 if step == 0 else 0))
        write_dump(tmp_path / f"golden/step{step}/rank0", chain())
    result = evidence(tmp_path / "target", tmp_path / "golden")
    assert result.origins["step"].tolist() == [0]
    assert first(result) == ("Torch.op1.0.forward", "output")


def test_noise_between_golden_runs_raises_the_floor(tmp_path):
    target, golden = pair(tmp_path, broken_from(1, 1.001), chain())
    noisy = write_dump(tmp_path / "noise", broken_from(1, 1.0009))
    assert len(evidence(target, golden).origins) == 1
    quiet = evidence(target, golden, noise=noisy)
    assert len(quiet.origins) == 0
    assert len(quiet.rejudge(Thresholds(noise=0.5)).origins) == 1
    with pytest.raises(UsageError, match="evidence rules only"):
        msprobe_nb.compare(target, golden, noise=noisy, progress=False)


def test_a_saved_comparison_keeps_rules_noise_and_origins(tmp_path):
    target, golden = pair(tmp_path, broken_from(1, 1.01), chain())
    noisy = write_dump(tmp_path / "noise", broken_from(1, 1.0001))
    result = evidence(target, golden, noise=noisy)
    again = load_comparison(result.save(tmp_path / "saved"))
    assert again.rules == "evidence"
    assert again.summary() == result.summary()
    assert again.origins.equals(result.origins)
    assert again.noise is not None
    assert len(again.rejudge(Thresholds(noise=1000)).origins) == 0


def test_both_rules_judge_the_same_measurements(tmp_path):
    result = evidence(*pair(tmp_path, broken_from(1, 3.0), chain()))
    other = result.rejudge(rules="msprobe")
    assert other.counts == {"pass": 7, "warning": 0, "error": 1}
    assert other.rejudge(rules="evidence").counts == result.counts
    with pytest.raises(UsageError, match="unknown rules"):
        result.rejudge(rules="strict")


def test_a_hostile_sentence_is_escaped(tmp_path):
    name = "<b onclick=alert(1)>"
    ours = {k.replace("op1", name): v for k, v in broken_from(1).items()}
    theirs = json.loads(json.dumps({k.replace("op1", name): v for k, v in chain().items()}))
    html = evidence(*pair(tmp_path, ours, theirs))._repr_html_()
    assert name not in html
    assert "&lt;b onclick" in html


def test_edge_operators_are_origins_in_both_tasks():
    """Independent faults in one recording: those that show at their own call."""
    for task in ("tensor", "statistics"):
        dump = DUMPS / f"edge_{task}_L1"
        found = {(o.node, o.kind) for o in evidence(dump / "target", dump / "golden").marked_calls}
        assert {
            ("Torch.sigmoid.0.forward", "shape"),
            ("Tensor.__mul__.0.forward", "argument"),
            ("Torch.tanh.0.forward", "dtype"),
        } <= found


def test_official_files_say_why(tmp_path):
    result = evidence(*pair(tmp_path, broken_from(1), chain()))
    (path,) = result.to_csv(tmp_path / "out.csv")
    rows = {row["NPU Name"]: row for row in csv.DictReader(path.open())}
    origin, behind = rows["Torch.op1.0.forward.output.0"], rows["Torch.op2.0.forward.input.0"]
    assert (origin["Result"], behind["Result"]) == ("error", "warning")
    assert json.loads(origin["Err_message"])[0].startswith("error: origin: output.0 differs")
    assert json.loads(behind["Err_message"])[0].endswith("consequence of Torch.op1.0.forward")
    assert rows["Torch.op0.0.forward.output.0"]["Err_message"] == "[]"
    (sheet,) = result.to_xlsx(tmp_path / "out.xlsx")
    assert different_cells(sheet, path) == {}


def test_the_command_takes_rules_and_noise(tmp_path, capsys):
    target, golden = pair(tmp_path, broken_from(1, 1.001), chain())
    noisy = write_dump(tmp_path / "noise", broken_from(1, 1.0009))
    words = ["compare", "-tp", str(target), "-gp", str(golden), "-o", str(tmp_path / "o")]
    assert main([*words, "--rules", "evidence"]) == 0
    assert "It began at Torch.op1.0.forward" in capsys.readouterr().out
    assert main([*words, "--rules", "evidence", "--noise", str(noisy)]) == 0
    assert "No origin found" in capsys.readouterr().out
    assert main([*words, "--noise", str(noisy)]) == 1
    assert "evidence rules only" in capsys.readouterr().err
