"""One clock for all ranks of a run: the launcher's.

Times of a process are read from its `now`: the wall clock's time when the process began, and from
there on the monotonic clock's. Nobody can set the monotonic clock, so that a step of a host's wall
clock (chrony on a node that has just booted) changes no duration.

Each rank requests the launcher's time when it starts and logs its offset from it, and how well the
offset is known. Source: F. Cristian, "Probabilistic clock synchronization" (1989): the answer
belongs to the middle of the exchange, so half the shortest round trip bounds the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

#: Number of requests for the launcher's time; the quickest one counts.
_EXCHANGES = 8
#: Largest plausible offset in seconds; larger ones are discarded.
_OFFSET_MAX_S = 86400.0
#: Number of pairs of readings of both clocks; the quickest pair counts.
_READINGS = 8


def _origin_s() -> float:
    """Return the present time of the wall clock minus the monotonic clock, in seconds.

    The quickest of several pairs of readings is used: during a slower pair the process may have
    lost its processor.
    """
    readings = []
    for _ in range(_READINGS):
        before_s, wall_s, after_s = time.monotonic(), time.time(), time.monotonic()
        readings.append((after_s - before_s, wall_s - (before_s + after_s) / 2))
    return min(readings)[1]


#: Difference of wall clock and monotonic clock when this process began.
_ORIGIN_S = _origin_s()


def now() -> float:
    """Return this process's time in seconds since the epoch.

    Steps of the wall clock after the start of the process do not change it.
    """
    return convert_monotonic(time.monotonic())


def convert_monotonic(monotonic_s: float) -> float:
    """Convert a value of `time.monotonic()` to this process's time in seconds since the epoch."""
    return _ORIGIN_S + monotonic_s


class Offset(NamedTuple):
    """Difference of the launcher's clock and this process's clock.

    Attributes:
        offset_s: Seconds to add to this process's time to get the launcher's time.
        uncertainty_s: Largest error of the offset in seconds.
    """

    offset_s: float
    uncertainty_s: float

    def extend_until(self, later: Offset | None) -> Offset:
        """Return this offset with an uncertainty that holds until a later measurement.

        The offset changes meanwhile, because the clocks of two hosts drift. So the uncertainty is
        at least the change of the offset plus the uncertainty of the later measurement.

        Args:
            later: The offset measured later; None if it could not be measured.
        """
        if later is None:
            return self
        moved_s = abs(later.offset_s - self.offset_s)
        return Offset(self.offset_s, max(self.uncertainty_s, moved_s + later.uncertainty_s))


def measure_offset(launcher_s: Callable[[], float]) -> Offset | None:
    """Measure this process's offset from the launcher's clock; None if it is above a day.

    Args:
        launcher_s: Function that requests the launcher's time, in seconds since the epoch.
    """
    found = []
    for _ in range(_EXCHANGES):
        before_s, asked_s, after_s = now(), launcher_s(), now()
        found.append(Offset(asked_s - (before_s + after_s) / 2, (after_s - before_s) / 2))
    best = min(found, key=lambda offset: offset.uncertainty_s)
    return best if abs(best.offset_s) <= _OFFSET_MAX_S else None
