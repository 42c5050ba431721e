"""JSON as the standard has it: NaN and infinity are neither written nor read. Layer 1 (plan).

Python's own functions write `NaN` and `Infinity`, which no other reader takes, and read them back
without a word: a number that is none would take part in a table.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn


class NotFiniteError(ValueError):
    """NaN or infinity where JSON has no such number."""


def dumps(content: Any, **options: Any) -> str:
    """The content as JSON. Raises ValueError if a number in it is NaN or infinite."""
    return json.dumps(content, allow_nan=False, **options)


def loads(text: str) -> Any:
    """The content of JSON. Raises ValueError for anything else: NotFiniteError for NaN."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise NotFiniteError(f"{constant} is no number of JSON")
