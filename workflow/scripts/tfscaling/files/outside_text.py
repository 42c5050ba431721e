"""Texts from outside, such as messages and names in a record, made safe to show.

A control character colours or clears a terminal and rings its bell. A character of direction shows
a text in another order than it has. A text can be longer than a reader of tables accepts.
"""

from __future__ import annotations

import re
from typing import Any

#: Highest number of characters of a cause or warning in tables, on the console and on the page.
LENGTH_MAX = 2_000
#: Control characters except tab and line feed, separators of lines, and characters of direction.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: Bytes of a JSON text in UTF-8 without which none of its texts has such a character.
_MAY_BE_HIDDEN = re.compile(rb"\\[bfru]|[\x7f\xc2\xd8]|\xe2[\x80\x81]")
#: Characters that a name of a host or node has.
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def make_visible(text: str) -> str:
    r"""Return a text in which control characters and characters of direction are written out.

    An escape character becomes `\x1b`. Tabs and line feeds stay as they are.
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def make_texts_visible(content: Any) -> Any:
    """Return the content of a JSON file with `make_visible` applied to all texts and keys."""
    if isinstance(content, str):
        return make_visible(content)
    if isinstance(content, list):
        return [make_texts_visible(part) for part in content]
    if isinstance(content, dict):
        return {make_visible(key): make_texts_visible(part) for key, part in content.items()}
    return content


def may_have_hidden_characters(encoded: bytes) -> bool:
    """Return whether `make_visible` may change a text in a JSON file.

    False is certain. True may be wrong: only the bytes are searched, which is fast.

    Args:
        encoded: The content of the file, in UTF-8.
    """
    # as in most records; the pattern takes a hundred times as long
    if encoded.isascii() and b"\\" not in encoded and b"\x7f" not in encoded:
        return False
    return _MAY_BE_HIDDEN.search(encoded) is not None


def shorten(text: str, complete_in: object, length_max: int = LENGTH_MAX) -> str:
    """Return a text, with its end replaced by a note if it is too long.

    Args:
        text: The text.
        complete_in: File or folder with the complete text, which the note names.
        length_max: Highest number of characters.
    """
    if len(text) <= length_max:
        return text
    note = f"… (cut: {len(text):,} characters in {complete_in})"
    return text[: max(0, length_max - len(note))] + note


def is_host_name(text: str) -> bool:
    """Return whether a text has only letters, digits, dots, `-` and `_`, as names of hosts have.

    A notation for several hosts, such as `n[1-4]`, gives False.
    """
    return _HOST_NAME.fullmatch(text) is not None
