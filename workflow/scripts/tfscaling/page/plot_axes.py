"""Scales and ticks: plain numbers on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

#: Of every figure, in inches: shown on a phone, text of FONT_SIZE points is 9 pixels high or more.
WIDTH = 5.3
FONT_SIZE = 10.0


def plain(value: float) -> str:
    """A number without an exponent: 0.004, 60, 2000."""
    return str(np.format_float_positional(float(f"{value:.6g}"), trim="-"))


def log_ticks(low: float, high: float) -> list[float]:
    """At most nine round values between the ends of a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sets = ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 4, 6), (1, 2, 5), (1, 3), (1,))
    for number, steps in enumerate(sets):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if number == 0 and len(ticks) < 3:
            from matplotlib.ticker import MaxNLocator

            ticks = [float(tick) for tick in MaxNLocator(5).tick_values(low, high)]
            return [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 9:
            return ticks
    return ticks[:: math.ceil(len(ticks) / 9)]


def plain_log(axes: Any, which: str, room: float = 0.0) -> None:
    """Make an axis logarithmic with plain labels; `room` is the share left empty below."""
    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    if high < 1.2 * low:
        low, high = low / 1.5, high * 1.5
    low *= (low / high) ** room
    ticks = log_ticks(low, high)
    getattr(axes, f"set_{which}lim")(low, high)
    getattr(axes, f"set_{which}ticks")(ticks, [plain(tick) for tick in ticks])
    getattr(axes, f"{which}axis").minorticks_off()


def value_ticks(found: Sequence[float], width: float = WIDTH * 0.8) -> list[float]:
    """Those of the sorted values whose labels do not overlap on a logarithmic axis."""
    if len(found) < 2:
        return [*found]

    def gap(left: float, right: float) -> bool:
        inches = width * math.log(right / left) / math.log(found[-1] / found[0])
        return inches > 0.05 * (len(plain(left)) + len(plain(right))) + 0.05

    kept = [found[0]]
    for value in found[1:-1]:
        if gap(kept[-1], value) and gap(value, found[-1]):
            kept.append(value)
    return [*kept, found[-1]]


def value_axis(axes: Any, found: Iterable[float]) -> None:
    """A logarithmic x axis whose ticks are the values themselves, as node counts."""
    known = sorted({float(value) for value in found if value > 0})
    axes.set_xscale("log")
    if not known:
        axes.set_xticks([])
        return
    factor = (known[-1] / known[0]) ** 0.06 if len(known) > 1 else 2.0
    ticks = value_ticks(known)
    axes.set_xticks(ticks, [plain(value) for value in ticks])
    axes.xaxis.minorticks_off()
    axes.set_xlim(known[0] / factor, known[-1] * factor)
