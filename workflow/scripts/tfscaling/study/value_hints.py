"""Hints in error messages: what the writer of a value with a wrong type probably meant."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Sequence
from typing import Any

FINITE = "a finite number"
#: Words that YAML 1.1 takes for truth values → what to write.
_TRUTH = {
    **dict.fromkeys(("yes", "y", "on", "true"), "true"),
    **dict.fromkeys(("no", "n", "off", "false"), "false"),
}
#: Ending of a key's name → the unit of its values.
_UNITS = {"_min": "minutes", "_s": "seconds", "_h": "hours", "_gib": "GiB", "_mib": "MiB"}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
#: A function as people name it by its file: `own/training.py:model`.
_FILE_AND_FUNCTION = re.compile(r"(?:\./)?([\w/]+)\.py:(\w+)")
#: Key at the top whose entries have single values → one of its entries.
_ENTRIES: dict[str | int, str] = {"recipes": "recipe", "platforms": "platform"}
#: Highest number of keys that a hint lists.
_LISTED_KEYS_MAX = 12
#: What to write where a mapping is allowed.
_KEYS = "write keys with values below it"
#: Words for units of time → the units of durations.
_DURATIONS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?")


def hint_for_value(
    value: Any,
    kinds: Collection[str],
    place: Sequence[str | int],
    is_option: bool,
    keys: Collection[str] = (),
) -> str:
    """Return how to write a value that has a wrong type, as the end of an error message.

    Args:
        value: The value in the configuration.
        kinds: The JSON types that are allowed.
        place: Keys and indices from the top of the configuration to the value.
        is_option: Whether the value is from --config.
        keys: The keys of the mapping, if a mapping is allowed.

    Returns:
        The hint, without a full stop; "" if none fits.
    """
    hint = _hint_by_type(value, kinds, place, is_option)
    is_short = 0 < len(keys) <= _LISTED_KEYS_MAX
    return f"{hint}: {', '.join(keys)}" if hint.startswith(_KEYS) and is_short else hint


def _hint_by_type(
    value: Any, kinds: Collection[str], place: Sequence[str | int], is_option: bool
) -> str:
    """Return the hint of `hint_for_value`, but without the keys of an allowed mapping.

    Args:
        value: The value in the configuration.
        kinds: The JSON types that are allowed.
        place: Keys and indices from the top of the configuration to the value.
        is_option: Whether the value is from --config.
    """
    if isinstance(value, str) and is_option and set(kinds) & {"array", "object"}:
        return "write it in a file and not with --config"
    if isinstance(value, str):
        return _hint_for_string(
            value, kinds, next((k for k in reversed(place) if isinstance(k, str)), "")
        )
    if "object" in kinds and isinstance(value, bool) and value:
        return "write {} for the defaults"
    if isinstance(value, dict | list):
        return _hint_for_nesting(value, kinds, place)
    if set(kinds) <= {"object", "null"}:
        return _KEYS
    is_plain = isinstance(value, bool | int | float | datetime.date)
    return "write a text in quotes" if is_plain and "string" in kinds else ""


def _hint_for_nesting(
    value: dict[str, Any] | list[Any], kinds: Collection[str], place: Sequence[str | int]
) -> str:
    """Return how to correct a mapping or a list at a key that allows other types only."""
    if set(kinds) <= {"object", "null"}:
        return f"{_KEYS}, without hyphens"
    if "array" not in kinds:
        entry = _ENTRIES.get(place[0]) if len(place) == 3 and isinstance(value, list) else None
        return "write one value" + (
            f"; for several values, write a {entry} for each" if entry else ""
        )
    items = "begin each item with a hyphen, or write it as [a, b]"
    return items if set(kinds) <= {"array", "object", "null"} else f"write one value; or {items}"


def _hint_for_string(text: str, kinds: Collection[str], key: str) -> str:
    """Return how to correct a string at a key of other types, or a string in a wrong format.

    Args:
        text: The string in the configuration.
        kinds: The JSON types that the key allows.
        key: Name of the key; its ending, such as `_s`, shows the unit of its values.
    """
    text, listed = text.strip(), ", several values as [1, 2, 4]" if "array" in kinds else ""
    is_number = bool(set(kinds) & {"integer", "number"})
    unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    if "boolean" in kinds and (meant := _TRUTH.get(text.lower())):
        return "write it without quotes" if text == meant else f"write {meant}"
    if not is_number:
        if set(kinds) <= {"object", "null"}:
            return _KEYS
        if set(kinds) <= {"array", "object", "null"}:
            return "write it as a list" + " or a mapping" * ("object" in kinds)
        if match := _FILE_AND_FUNCTION.fullmatch(text):
            return f"write {match[1].replace('/', '.')}:{match[2]}"
        return "write it without quotes" if "boolean" in kinds else ""
    if match := re.fullmatch(r"([-+]?\d+)(e[-+]?\d+)", text, re.IGNORECASE):
        # YAML 1.1, which reads the configuration of a module, takes 1e-3 for a text
        return f"write {match[1]}.0{match[2]} without quotes{listed}"
    if _NUMBER.fullmatch(text):
        return f"write it without quotes{listed}"
    if re.fullmatch(r"[-+]?\.?(nan|inf|infinity)", text.lower()):
        return f"write {FINITE}" + (", or null for none" if "null" in kinds else "")
    if match := _CLOCK.fullmatch(text):
        return _hint_for_clock(match, unit, kinds)
    if match := re.fullmatch(rf"({_NUMBER.pattern}) *%", text):
        return f"write {float(match[1]) / 100:g}" if "number" in kinds else "write a whole number"
    if match := re.fullmatch(rf"({_NUMBER.pattern}) *([^\W\d]+)\.?", text):
        if "string" in kinds and (duration := _DURATIONS.get(match[4].lower())):
            return f"write {match[1]} {duration}"
        return f"write the number alone{f', in {unit}' if unit else ', in the unit of the key'}"
    if match := re.fullmatch(r"\d{1,3}([,_ ]\d{3})+", text):
        return f"write {re.sub('[,_ ]', '', text)}"
    if re.fullmatch(r"\d+( *[,;] *\d+)+", text):
        numbers = ", ".join(re.findall(r"\d+", text))
        return f"write a list: [{numbers}]" if listed else "write one number"
    return f"write a number{listed}"


def _hint_for_clock(match: re.Match[str], unit: str, kinds: Collection[str]) -> str:
    """Return how to correct a time with colons, `[days-]hours:minutes[:seconds]`.

    Slurm reads `1:30` as minutes and seconds, but people may mean hours and minutes: the hint has
    the number for both.

    Args:
        match: The parts of the time.
        unit: The unit of the key's values; "" if it has none.
        kinds: The allowed types of JSON: with a string, durations such as `90 s` are allowed.
    """
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total_s = ((24 * days + hours) * 60 + minutes) * 60 + seconds
    lengths_s = {"minutes": 60, "seconds": 1, "hours": 3600}
    if "string" in kinds:
        return f"write {total_s} s, or a duration in another unit"
    if unit not in lengths_s:
        return "write a plain number"
    read_as = f"{24 * days + hours} h {minutes} min" + (f" {seconds} s" if seconds else "")
    found = f"write a plain number of {unit}: {total_s / lengths_s[unit]:g} for {read_as}"
    shorter_s = 60 * hours + minutes
    is_allowed = "number" in kinds or shorter_s % lengths_s[unit] == 0
    if match[1] is None and match[4] is None and is_allowed:
        found += f", {shorter_s / lengths_s[unit]:g} for {hours} min {minutes} s"
    return found
