"""Faults that are injected, recorded with the official tool, and have to be found first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import msprobe_nb

pytest.importorskip("msprobe")
pytestmark = pytest.mark.official
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from faults import CONFIRMING, FIRST_CONFIRMING, TUNING  # noqa: E402
from models import MODELS  # noqa: E402

WANTED = 0.95  # of the faults have their culprit as the first origin


@pytest.fixture(scope="module", params=["statistics", "tensor"])
def recorded(request, tmp_path_factory):
    """All models, healthy and broken, recorded with one task."""
    root = tmp_path_factory.mktemp("faults")
    done = subprocess.run(
        [sys.executable, str(HERE / "record.py"), str(root), request.param],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return root


def compare(root, name, model):
    return msprobe_nb.compare(
        root / name / "dump", root / f"{model}.golden/dump", rules="evidence", progress=False
    )


SETS = {"tuning": TUNING, "first": FIRST_CONFIRMING, "confirming": CONFIRMING}


@pytest.mark.parametrize("faults", SETS.values(), ids=SETS)
def test_culprits_are_the_first_origin(recorded, faults):
    missed = {}
    for fault in faults:
        origins = compare(recorded, fault.folder, fault.model).marked_calls
        if not origins or not fault.found_by(origins[0].node, origins[0].kind):
            missed[fault.name] = origins[:2]
    assert 1 - len(missed) / len(faults) >= WANTED, missed


@pytest.mark.parametrize("model", MODELS)
def test_another_number_of_threads_is_no_fault(recorded, model):
    result = compare(recorded, f"{model}.threads", model)
    assert len(result.origins) == 0
    assert result.counts["error"] == result.counts["warning"] == 0


def test_there_are_enough_faults_of_every_model():
    faults = TUNING + FIRST_CONFIRMING + CONFIRMING
    assert len(TUNING) >= 30
    assert {fault.model for fault in TUNING} == {fault.model for fault in CONFIRMING} == set(MODELS)
    assert len({fault.folder for fault in faults}) == len(faults)
