"""Errors of files end a program by one line and exit status 1; other errors are raised."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tfscaling.files import program_errors
from tfscaling.files.program_errors import REMEDIES, InputError


def error_of(number: int, file: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), file)


def raising(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("number", REMEDIES, ids=errno.errorcode.get)
@pytest.mark.parametrize("file", ["some/file.json", None])
def test_an_error_of_a_file_ends_the_program_by_one_line(number: int, file: str | None) -> None:
    with pytest.raises(SystemExit) as ended:
        program_errors.exit_on_input_error(lambda: raising(error_of(number, file)))
    (line,) = str(ended.value.code).splitlines()  # a text as the code: exit status 1
    assert os.strerror(number) in line and REMEDIES[number] in line
    assert line.startswith("some/file.json: ") == (file is not None)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ECONNRESET, errno.ENOMEM])
def test_an_error_that_no_file_causes_is_raised(number: int) -> None:
    assert program_errors.describe_file_error(error_of(number)) is None
    with pytest.raises(OSError, match=os.strerror(number)):
        program_errors.exit_on_input_error(lambda: raising(error_of(number)))


@pytest.mark.parametrize("text", ['{"a": "one"}', "{", "[" * 100_000, ""])
def test_a_file_of_another_content_is_named(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "input.json").write_text(text)
    with pytest.raises(InputError, match=str(path)):
        program_errors.read_json(path, dict[str, int])
    path.write_text('{"a": 1}')
    assert program_errors.read_json(path, dict[str, int]) == {"a": 1}
    path.unlink()
    with pytest.raises(FileNotFoundError):
        program_errors.read_json(path, dict[str, int])
