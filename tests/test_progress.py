"""Progress bars: only for long work, and never in the way."""

from __future__ import annotations

import subprocess
import sys

import pytest

from msprobe_nb import progress
from msprobe_nb.progress import advance, track


def test_short_work_shows_nothing_and_imports_nothing():
    code = (
        "import sys; from msprobe_nb.progress import track\n"
        "with track(3, 'work', 'row') as bar: bar.update(3)\n"
        "sys.exit('tqdm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_long_work_shows_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    with track(10, "tensors", "pair") as bar:
        bar.update(4)
        bar.update(6)
        bar._bar.refresh()
    assert "tensors: 100%" in capsys.readouterr().err


@pytest.mark.parametrize(("total", "show"), [(10, False), (0, True)])
def test_no_bar_without_work_or_wish(monkeypatch, capsys, total, show):
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    with track(total, "work", "row", show=show) as bar:
        bar.update(5)
    assert capsys.readouterr().err == ""


def test_a_bar_goes_away_after_an_error(monkeypatch):
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    seen = []

    def interrupted():
        with track(2, "work", "row") as bar:
            bar.update(1)
            seen.append(bar._bar)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen[0].disable


def test_advance_moves_by_shares():
    class Counter:
        count = 0

        def update(self, count):
            self.count += count

    bar = Counter()
    for at in range(7):
        advance(bar, 100, at / 7, (at + 1) / 7)
    assert bar.count == 100
