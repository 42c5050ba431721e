"""`compare_revisions`: what is refused before a sweep, by which key."""

from __future__ import annotations

from typing import Any

import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.study import acceptance

USUAL = raw_config()["recipes"]["weak"]
GOOD: dict[str, Any] = {
    "recipes": {"old": USUAL, "new": USUAL, "third": USUAL},
    "compare_revisions": ["old", "new"],
}


def content(**changes: Any) -> dict[str, Any]:
    """Return a study that compares two revisions, with these keys of its only block changed."""
    raw = raw_config() | GOOD
    raw["grid"][0] |= {"recipe": ["old", "new"], "repeats": 6} | changes
    return raw


def test_recipes_of_a_block_may_be_revisions() -> None:
    _, planned = acceptance.validate_and_plan(content(), REGISTRIES)
    assert planned.revisions == ("old", "new")
    _, planned = acceptance.validate_and_plan(content(recipe=["third", "new", "old"]), REGISTRIES)
    assert planned.revisions == ("old", "new")


@pytest.mark.parametrize(
    ("raw", "key"),
    {
        "one": (content() | {"compare_revisions": ["old"]}, "compare_revisions"),
        "twice": (content() | {"compare_revisions": ["old", "old"]}, "compare_revisions"),
        "unknown": (content() | {"compare_revisions": ["old", "knew"]}, "compare_revisions[1]"),
        "unused": (content(recipe="third"), "compare_revisions"),
        "one_in_the_block": (content(recipe="old"), "grid[0].recipe"),
        "three_repeats": (content(repeats=3), "grid[0].repeats"),
        "searched": (content(search={}), "grid[0].search"),
        "searched_grid": (content() | {"search": {}}, "search"),
    }.values(),
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(raw: dict[str, Any], key: str) -> None:
    assert f" {key}" in refused(acceptance.validate_and_plan, raw, REGISTRIES)


def test_another_reference_is_refused(tmp_path: Any) -> None:
    (tmp_path / "details").mkdir()
    for name in ("details/manifest.json", "comparison.csv", "runs.csv"):
        (tmp_path / name).touch()
    raw = content() | {"compare_with": str(tmp_path)}
    assert " compare_with" in refused(acceptance.validate_and_plan, raw, REGISTRIES)
