"""Texts from outside as tables, console and page show them."""

from __future__ import annotations

import json
import random
import unicodedata

import pytest
from tfscaling.files import outside_text
from tfscaling.files.outside_text import LENGTH_MAX


def test_every_control_or_direction_character_is_written_out(dice: random.Random) -> None:
    """Except tab and line feed; all other characters stay as they are."""
    kept = "".join(map(chr, dice.sample(range(0x20, 0x7F), 20))) + "\t\n äß–“” 语 עברית 😀 \\x1b"
    assert outside_text.make_visible(kept) == kept
    for number in range(0x11000):
        char = chr(number)
        is_direction = unicodedata.bidirectional(char) in (
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        ) or number in (0x61C, 0x200E, 0x200F)
        is_control = unicodedata.category(char) in ("Cc", "Zl", "Zp") and char not in "\t\n"
        shown = outside_text.make_visible(f"a{char}b")
        assert (shown != f"a{char}b") == (is_control or is_direction), hex(number)
        if is_control or is_direction:
            assert shown.isascii() and shown.isprintable()
            assert shown.encode().decode("unicode_escape") == f"a{char}b"
            assert outside_text.make_visible(shown) == shown


@pytest.mark.parametrize(
    "char", ["\x1b", "\x07", "\r", "\x7f", "\x9b", "\u202e", "\u2066", "\u061c"]
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_such_a_character_is_noticed_in_a_json_file_however_it_is_written(
    char: str, is_ascii: bool
) -> None:
    for content in (char, [{"a": f"b{char}c"}], {f"k{char}": 1}):
        written = json.dumps(content, ensure_ascii=is_ascii).encode()
        assert outside_text.may_have_hidden_characters(written)
        shown = json.dumps(outside_text.make_texts_visible(content), ensure_ascii=False)
        assert char not in shown and json.dumps(char)[1:-1] not in shown.replace("\\\\", "")
    assert not outside_text.may_have_hidden_characters(b'{"a": ["text\\n", 1.5, null, true]}')


def test_a_long_text_says_that_it_was_cut_and_where_all_of_it_is(dice: random.Random) -> None:
    exact = "x" * LENGTH_MAX
    assert outside_text.shorten(exact, "run.json") == exact
    long = "y" * (LENGTH_MAX + dice.randint(1, 200_000))
    cut = outside_text.shorten(long, "a/run.json")
    assert len(cut) == LENGTH_MAX and cut.startswith("yyy")
    assert f"{len(long):,} characters in a/run.json" in cut
