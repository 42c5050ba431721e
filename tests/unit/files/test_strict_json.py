"""NaN and infinity are neither written nor read."""

from __future__ import annotations

import json
import math

import pytest
from tfscaling.files import strict_json


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json.dumps({"epochs": [{"loss": value}]})


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_is_not_read(text: str) -> None:
    with pytest.raises(strict_json.NotFiniteError, match=f"^{text} is no number"):
        strict_json.loads(f'{{"epochs": [{{"loss": {text}}}]}}')


def test_everything_else_is_as_python_has_it() -> None:
    content = {"a": [1, 2.5, None, True, "NaN"], "b": {}}
    assert strict_json.dumps(content, indent=1) == json.dumps(content, indent=1)
    assert strict_json.loads(json.dumps(content)) == content


def test_broken_json_is_told_as_python_tells_it() -> None:
    with pytest.raises(json.JSONDecodeError):
        strict_json.loads('{"a": ')
