from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_nb import names


@pytest.mark.parametrize(
    ("name", "stem", "phase", "call", "kind"),
    [
        ("Functional.linear.0.forward", "Functional.linear", "forward", "0", "api"),
        ("Tensor.__add__.12.backward", "Tensor.__add__", "backward", "12", "api"),
        ("Module.a.b.Linear.forward.3", "Module.a.b.Linear", "forward", "3", "module"),
        ("Cell.fc.Dense.backward.0", "Cell.fc.Dense", "backward", "0", "module"),
        ("Distributed.all_reduce.1.forward", "Distributed.all_reduce", "forward", "1", None),
        # A module whose path contains a direction keeps its path.
        ("Module.forward.x.Relu.forward.0", "Module.forward.x.Relu", "forward", "0", "module"),
    ],
)
def test_parse_takes_official_names_apart(name, stem, phase, call, kind):
    node = names.parse(name)
    assert (node.stem, node.phase, node.call) == (stem, phase, call)
    assert node.kind == (kind or "communication")
    assert node.valid


def test_parse_knows_parameter_gradients_of_both_generations():
    new = names.parse("Module.a.Linear.parameters_grad.2")
    old = names.parse("Module.a.Linear.parameters_grad")
    assert new.phase == old.phase == names.PARAMETERS_GRAD
    assert new.call == "2"
    assert old.call == ""
    assert new.valid
    assert old.valid


def test_parse_marks_saved_values():
    node = names.parse("loss.0.debug")
    assert (node.stem, node.phase, node.kind) == ("loss", names.DEBUG, "debug")


@pytest.mark.parametrize("name", ["foo", "", ".", "forward", "x.y", "forward.0", "a.b.c.d"])
def test_parse_does_not_take_other_names_for_calls(name):
    assert not names.parse(name).valid


@given(st.text(max_size=40), st.integers(0, 10**6))
def test_renumbering_changes_only_the_call_number(path, call):
    for name in (f"Module.{path}.Linear.backward.7", f"Torch.{path or 'x'}.7.backward"):
        node = names.parse(name)
        renamed = names.parse(node.renumbered(call))
        assert (renamed.stem, renamed.phase, renamed.call) == (node.stem, node.phase, str(call))


def test_slots_and_apis():
    assert names.tensor_name("Torch.add.0.forward", "input.alpha") == (
        "Torch.add.0.forward.input.alpha"
    )
    assert names.slot_of("Torch.add.0.forward.input.alpha", "Torch.add.0.forward") == "input.alpha"
    assert names.api_of("Torch.add.0.forward.input.0") == "add"
    assert names.without_extension("a.b.input.0.pt") == "a.b.input.0"


@pytest.mark.parametrize(
    ("name", "components", "forward"),
    [
        ("Torch.add.3.backward", ("Torch", "add"), "Torch.add.3.forward"),
        ("Module.a.b.Linear.backward.1", ("Module", "a", "b", "Linear"), None),
        ("Module.a.Linear.parameters_grad.0", ("Module", "a", "Linear"), None),
        ("Module.a.Linear.parameters_grad", ("Module", "a", "Linear"), None),
        ("loss.0.debug", ("loss",), None),
    ],
)
def test_components_can_be_replaced(name, components, forward):
    node = names.parse(name)
    assert node.components == components
    assert node.with_components(components) == name
    renamed = names.parse(node.with_components(["X", "y"]))
    assert (renamed.phase, renamed.call, renamed.components) == (node.phase, node.call, ("X", "y"))
    assert forward is None or node.in_phase(names.FORWARD) == forward
    assert names.parse(node.in_phase(names.BACKWARD)).phase in (names.BACKWARD, node.phase)


def test_a_slot_has_a_role_and_a_place():
    assert names.slot_parts("input.0.1") == ("input", "0.1")
    assert names.slot_parts("weight") == ("weight", "")
