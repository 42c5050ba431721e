"""Strict JSON: NaN and infinity are neither written nor read.

Python's own functions write `NaN` and `Infinity`, which other readers reject, and read them back
without an error, so that they would enter a table.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec


class NotFiniteError(ValueError):
    """A number is NaN or infinite, which JSON does not allow."""


def dumps(content: Any, **options: Any) -> str:
    """Return the content as a JSON text; `options` are arguments of `json.dumps`.

    Raises:
        ValueError: If a number is NaN or infinite.
    """
    return json.dumps(content, allow_nan=False, **options)


def encode(content: object, decode: Callable[[bytes], object] | None = None) -> bytes:
    """Return the JSON, in UTF-8, of an object whose types msgspec supports.

    msgspec writes NaN and infinity as null. To find them, the JSON is decoded and compared with the
    object.

    Args:
        content: The object.
        decode: Decodes the JSON for this check, as an object of the content's type; None for
            msgspec's decoder.

    Raises:
        NotFiniteError: If a number is NaN or infinite.
    """
    written = msgspec.json.encode(content)
    check_finite(written, content, decode)
    return written


def check_finite(
    encoded: bytes, content: object, decode: Callable[[bytes], object] | None = None
) -> None:
    """Check that no number of `content` is NaN or infinite; msgspec writes such numbers as null.

    Args:
        encoded: The JSON of the content, by msgspec.
        content: The object that was encoded.
        decode: Decodes JSON as an object of the content's type; None for msgspec's decoder.

    Raises:
        NotFiniteError: If a number is NaN or infinite.
    """
    # to read it back is several times faster than to look at every number
    with contextlib.suppress(msgspec.ValidationError):
        read = decode(encoded) if decode else msgspec.json.decode(encoded, type=type(content))
        if read == content:
            return
    if not _is_finite(content):
        raise NotFiniteError(f"{type(content).__name__}: NaN or infinity is no number of JSON")


def loads(text: str) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: If it is not valid JSON.
        NotFiniteError: If a number is NaN, infinite or too large for a float.
    """
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=_parse_float)
    except RecursionError:
        raise ValueError("too many brackets in each other") from None


def _parse_float(digits: str) -> float:
    """Return a JSON number as a float.

    Raises:
        NotFiniteError: It is too large for a float.
    """
    number = float(digits)  # Python reads 1e999 as infinity
    return number if math.isfinite(number) else _reject_constant(digits)


def _is_finite(content: object) -> bool:
    """Return whether a value of JSON's types contains, at any depth, neither NaN nor infinity."""
    if type(content) is float:
        return math.isfinite(content)
    if type(content) is dict:
        return all(map(_is_finite, content.values()))
    if type(content) is list or type(content) is tuple:
        return all(map(_is_finite, content))
    if isinstance(content, msgspec.Struct):
        return all(_is_finite(getattr(content, name)) for name in content.__struct_fields__)
    return True


def _reject_constant(constant: str) -> NoReturn:
    """Raise NotFiniteError for a constant such as `NaN`."""
    raise NotFiniteError(f"{constant} is no number of JSON")
