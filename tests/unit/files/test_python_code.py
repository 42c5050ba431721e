"""A checksum of code, not of what is said about it."""

from __future__ import annotations

import pytest
from tfscaling.files import python_code

CODE = """
def model(width=32):
    text = f"{width} wide"
    return [width, text]
"""
SAME = {
    "comment": CODE.replace('wide"', 'wide"  # of the layer'),
    "docstring": CODE.replace("32):", '32):\n    """A model."""'),
    "docstring of the file": '"""Mine."""' + CODE,
    "layout": CODE.replace("[width, text]", "[\n        width,\n\n        text,\n    ]"),
    "quotes": CODE.replace('f"{width} wide"', "f'{width} wide'"),
    "end of line": CODE.replace("\n", "\r\n"),
}
OTHER = {
    "number": CODE.replace("32", "33"),
    "type of a number": CODE.replace("32", "32.0"),
    "text": CODE.replace('wide"', 'wider"'),
    "comment in a text": CODE.replace('wide"', 'wide # of the layer"'),
    "order": CODE.replace("width, text", "text, width"),
    "nesting": CODE.replace("    return", "return"),
    "star": CODE.replace("width, text", "width, *text"),
    "text that counts": CODE.replace("text = ", "return "),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_what_is_no_code_changes_nothing(text: str) -> None:
    assert python_code.code_sha256(text.encode()) == python_code.code_sha256(CODE.encode())


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER)
def test_a_change_of_code_is_another_checksum(text: str) -> None:
    assert text != CODE
    assert python_code.code_sha256(text.encode()) != python_code.code_sha256(CODE.encode())


def test_the_checksum_is_the_same_for_ever() -> None:
    """Records have it: another one would make them stale."""
    assert python_code.code_sha256(CODE.encode()) == (
        "cf7a23b5d6750c8eea75b63493a4ff92257d402fc9cebec93ef5408aae6e85e3"
    )


@pytest.mark.parametrize("text", ["def (", "x = '\0'", "(" * 500])
def test_what_is_not_valid_python_counts_as_it_is(text: str) -> None:
    first, second = (python_code.code_sha256(each.encode()) for each in (text, f"{text} # remark"))
    assert first != second
