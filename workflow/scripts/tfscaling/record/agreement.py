"""What checks of several ranks say: which have something else than asked, or than the others."""

from __future__ import annotations

from typing import Any


def differing(name: str, requested: object, got: dict[int, Any]) -> str | None:
    """Which ranks have something else than what was requested of all of them."""
    wrong = {rank: value for rank, value in got.items() if value != requested}
    return f"requested {name} {requested}, got {wrong}" if wrong else None


def disagreement(name: str, values: dict[int, Any]) -> str | None:
    """Whether the ranks report different values, or none."""
    if len(set(map(str, values.values()))) <= 1 and None not in values.values():
        return None
    return f"ranks disagree on {name}: {values}"
