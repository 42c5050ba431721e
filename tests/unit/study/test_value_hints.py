"""How a message says what to write instead of a value of a wrong type."""

from __future__ import annotations

from typing import Any

import pytest
from tfscaling.study.value_hints import hint_for_value

GRID = ("grid", 0, "nodes")


@pytest.mark.parametrize(
    ("value", "kinds", "place", "parts"),
    [
        ({"a": 1}, {"array"}, GRID, {"hyphen"}),
        ({"a": 1}, {"array", "integer"}, GRID, {"one value", "hyphen"}),
        ([1], {"object", "null"}, ("recipes",), {"without hyphens"}),
        ([1, 2], {"integer"}, ("recipes", "weak", "epochs"), {"one value", "recipe"}),
        ([1, 2], {"integer"}, ("question", "trainings"), {"one value"}),
        ("97%", {"number"}, ("question",), {"0.97"}),
        ("97%", {"integer"}, ("question",), {"whole number"}),
        ("1,000", {"integer"}, ("recipes", "weak", "epochs"), {"1000"}),
        ("1, 2", {"integer", "array"}, GRID, {"[1, 2]"}),
        ("1, 2", {"integer"}, ("question", "trainings"), {"one number"}),
        ("yes", {"boolean"}, ("forecast",), {"true"}),
        ("5 s", {"number"}, ("recipes", "weak", "checkpoint_every_s"), {"in s"}),
        (True, {"object"}, ("search",), {"{}"}),
        (3, {"string"}, ("study",), {"quotes"}),
    ],
)
def test_a_hint_has_what_fits_to_the_value(
    value: Any, kinds: set[str], place: tuple[str | int, ...], parts: set[str]
) -> None:
    hint = hint_for_value(value, kinds, place, is_option=False)
    assert [part for part in parts if part not in hint] == [], hint


def test_alternatives_are_named_only_where_they_are_allowed() -> None:
    listed = hint_for_value({"a": 1}, {"array"}, GRID, is_option=False)
    assert "one value" not in listed
    assert "file" in hint_for_value("a", {"array"}, GRID, is_option=True)
