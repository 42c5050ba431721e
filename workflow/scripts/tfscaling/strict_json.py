"""JSON as the standard has it: NaN and infinity are neither written nor read. Layer 1 (plan).

Python's own functions write `NaN` and `Infinity`, which no other reader takes, and read them back
without a word: a number that is none would take part in a table.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

#: Only a number with such digits can be too large for a float.
_MAY_OVERFLOW = re.compile(r"[eE]\+?\d{3}|\d{300}")


class NotFiniteError(ValueError):
    """NaN or infinity where JSON has no such number."""


def dumps(content: Any, **options: Any) -> str:
    """The content as JSON. Raises ValueError if a number in it is NaN or infinite."""
    return json.dumps(content, allow_nan=False, **options)


def loads(text: str) -> Any:
    """The content of JSON. Raises ValueError for anything else: NotFiniteError for NaN."""
    # a function of ours for each number would take as long as the rest of the reading
    parse_float = _finite if _MAY_OVERFLOW.search(text) else None
    return json.loads(text, parse_constant=_refuse, parse_float=parse_float)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)  # 1e999 is too large for a float


def _refuse(constant: str) -> NoReturn:
    raise NotFiniteError(f"{constant} is no number of JSON")
