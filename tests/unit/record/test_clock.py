"""A rank knows how far its clock is off the launcher's; a step of a wall clock changes no time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import run_python
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.record import clock
from tfscaling.record.clock import Offset

#: A process whose wall clock is `sys.argv[1]` seconds ahead when this says so.
AHEAD = "import sys, time; real = time.time; time.time = lambda: real() + float(sys.argv[1])\n"
IMPORT = "from tfscaling.launch import link\nfrom tfscaling.record import clock\n"
#: Prints the offset and its uncertainty.
MEASURE = (
    "found = link.LauncherConnection(sys.argv[2], 0).measure_offset()\n"
    "print(found.offset_s, found.uncertainty_s)"
)
#: Two processes of one host read its clock less precisely than the clock measures the offset.
READING_S = 0.05


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A launcher's."""
    with RankMessageServer(tmp_path).serve("127.0.0.1", 1) as found:
        yield found


def is_off(found: Offset | None, offset_s: float) -> bool:
    """Whether the offset is this one, as precisely as it says itself."""
    return found is not None and abs(found.offset_s - offset_s) <= found.uncertainty_s + READING_S


def test_a_clock_that_is_off_is_measured(address: str, dice: random.Random) -> None:
    ahead_s = dice.choice([-1, 1]) * 10 ** dice.uniform(-0.6, 4.9)  # less than a day
    done = run_python(AHEAD + IMPORT + MEASURE, str(ahead_s), address)
    assert is_off(Offset(*map(float, done.stdout.split())), -ahead_s), done.stderr


def test_a_wall_clock_that_is_set_after_the_start_changes_neither_time_nor_offset(
    address: str,
) -> None:
    code = IMPORT + "import time\nbegun = time.monotonic()\nfirst = clock.now()\n" + AHEAD
    code += "print(clock.now() - first, time.monotonic() - begun)\n" + MEASURE
    done = run_python(code, "120", address)
    times, offset = done.stdout.splitlines()
    passed_s, passed_at_most_s = map(float, times.split())
    assert 0 <= passed_s <= passed_at_most_s, done.stderr
    assert is_off(Offset(*map(float, offset.split())), 0.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_may_be_off_by_a_day_at_most(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1e9
    monkeypatch.setattr(clock, "now", lambda: now_s)
    day_s = sign * 86_400.0
    assert clock.measure_offset(lambda: now_s + day_s) == Offset(day_s, 0.0)
    assert clock.measure_offset(lambda: now_s + day_s * 1.0001) is None


@pytest.mark.parametrize("shift_s", [1e7, -1e7, float("nan"), float("inf")])
def test_a_time_that_no_clock_has_is_not_believed(shift_s: float) -> None:
    assert clock.measure_offset(lambda: clock.now() + shift_s) is None
    assert is_off(clock.measure_offset(lambda: clock.now() + 5.0), 5.0)


@pytest.mark.parametrize(
    ("later", "uncertainty_s"),
    [(None, 0.001), (Offset(5.0, 0.0005), 0.001), (Offset(4.7, 0.002), 0.302)],
)
def test_the_uncertainty_of_a_run_has_the_drift_of_the_clocks_in_it(
    later: Offset | None, uncertainty_s: float
) -> None:
    found = Offset(5.0, 0.001).extend_until(later)
    assert found.offset_s == 5.0
    assert found.uncertainty_s == pytest.approx(uncertainty_s)
