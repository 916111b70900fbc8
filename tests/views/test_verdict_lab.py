"""The verdict lab: sliders, counts and origins belong together."""

from __future__ import annotations

import pytest
from support import DUMPS, RESNET

import msprobe_nb
from msprobe_nb import Thresholds
from msprobe_nb.views.verdict_lab import noise_figure


@pytest.fixture(scope="module")
def resnet():
    return msprobe_nb.compare(RESNET / "cpu", RESNET / "gpu", progress=False)


def test_sliders_show_the_thresholds_of_the_mode_and_judge_at_once(resnet):
    lab = resnet.lab()
    assert set(lab.sliders) == {"norm_input", "norm_output", "norm_ratio", "norm_output_alone"}
    assert lab.comparison.counts == resnet.counts
    lab.set(norm_ratio=1000.0)
    assert lab.thresholds.norm_ratio == pytest.approx(1000)
    expected = resnet.rejudge(lab.thresholds)
    assert lab.comparison.counts == expected.counts
    assert expected.counts["warning"] < resnet.counts["warning"]
    assert f"<b>{expected.counts['warning']:,}</b>" in lab._verdict.value


def test_rules_are_switched_without_another_comparison(resnet):
    lab = resnet.lab()
    lab._rules.value = "evidence"
    assert set(lab.sliders) == {"rounding", "gain", "drift"}
    assert lab.comparison.rules == "evidence"
    assert lab.comparison.parts is resnet.parts
    assert "No origin found" in lab._verdict.value
    lab.set(gain=1.0)
    assert len(lab.comparison.origins) > 0
    lab._reset.click()
    assert lab.thresholds == Thresholds()


def test_noise_has_a_slider_and_a_distribution():
    dump = DUMPS / "edge_tensor_L1"
    found = msprobe_nb.compare(
        dump / "target", dump / "golden", rules="evidence", noise=dump / "golden", progress=False
    )
    lab = found.lab()
    assert "noise" in lab.sliders
    labels = [item.label["value"] for item in noise_figure(found).legend[0].items]
    differing = sum(int((d.size > 0).sum()) for d in found.deviations)
    assert labels == ["noise: 0 values differ", f"target: {differing:,} values differ"]
