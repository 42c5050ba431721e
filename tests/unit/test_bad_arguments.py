"""Programs that are given wrong files, or files that are not there: one line, no traceback."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import SCRIPTS, study_folder, valid_config
from tfscaling import cli
from tfscaling.files.program_errors import InputError
from tfscaling.stages.study_folder import StudyFolder

#: Started by other programs as ranks of a job, or without a file.
WITHOUT_FILES = ("run_rank.py", "check_python.py")
PROGRAMS = sorted(path.name for path in SCRIPTS.glob("*.py") if path.name not in WITHOUT_FILES)


class _ParsedError(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def parser_of(program: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """The parser of a program, which is not run."""

    def stop(self: argparse.ArgumentParser, *_: object) -> None:
        raise _ParsedError(self)

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(_ParsedError) as caught:
            runpy.run_path(str(SCRIPTS / program), run_name="__main__")
    return caught.value.parser


def words_of(action: argparse.Action, file: str) -> list[str]:
    """A flag with a value: `file`, or the first choice."""
    value = str(next(iter(action.choices))) if action.choices else file
    return [action.option_strings[0], *([] if action.nargs == 0 else [value])]


def missing(folder: Path) -> Path:
    return folder / "missing"


def foreign(folder: Path) -> Path:
    """JSON of another program."""
    path = folder / "foreign.json"
    path.write_text('{"schema_version": 1, "program": "another"}')
    return path


def cut(folder: Path) -> Path:
    path = folder / "cut.json"
    path.write_text('{"schema_version": 3, "runs": [{"spec": ')
    return path


def no_text(folder: Path) -> Path:
    path = folder / "bytes"
    path.write_bytes(b"\xff\xfe\x00[[[")
    return path


@pytest.mark.parametrize("kind", [missing, foreign, cut, no_text])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_line_says_what_is_wrong(
    program: str,
    kind: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.chdir(tmp_path)
    parser = parser_of(program, monkeypatch)
    file = str(kind(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    actions = [a for a in parser._actions if a.option_strings and a.dest != "help"]
    given = [a for a in actions if a.required] or actions
    words = [word for action in given for word in words_of(action, file)]
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SCRIPTS / program), run_name="__main__")
    said = str(caught.value.code) if isinstance(caught.value.code, str) else capsys.readouterr().err
    assert caught.value.code not in (0, None)
    line = said.strip().splitlines()[-1]
    assert isinstance(caught.value.code, str) is (said.strip() == line), said
    assert any(word in line for word in (Path(file).name, "allowed", "no page", ": error: ")), said
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [missing, foreign, cut, no_text])
@pytest.mark.parametrize("stage", [name for name in cli.STAGES if name != "regressions"])
def test_a_stage_names_the_file_of_the_study_that_is_wrong(
    stage: str, kind: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_folder(tmp_path / "study", valid_config())
    wrong, manifest = kind(tmp_path), study.details / "manifest.json"
    manifest.unlink()
    if wrong.exists():
        manifest.write_bytes(wrong.read_bytes())
    described: dict[str, object] = {
        "settings": {},
        "default_resources": {},
        "deploys_software": True,
    }
    described |= dict.fromkeys(("executor", "workdir", "rule"), "local")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(described).encode())))
    monkeypatch.setattr(sys, "argv", ["tfscaling", stage, "--study", str(study.folder)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert str(study.folder) in str(caught.value.code)
    assert "\n" not in str(caught.value.code)


@pytest.mark.parametrize("failing", ["compare", "collect", None])
def test_stages_are_run_in_their_order_up_to_the_first_error(
    failing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, began = ["compare", "collect", "analyse"], []

    def run(stage: str, study: StudyFolder) -> None:
        began.append(stage)
        if stage == failing:
            raise InputError(f"{study.folder}: wrong")

    monkeypatch.setattr(cli, "run_stage", run)
    monkeypatch.setattr(sys, "argv", ["tfscaling", *stages, "--study", "results/main"])
    with contextlib.nullcontext() if failing is None else pytest.raises(SystemExit, match="wrong"):
        cli.main()
    assert began == stages[: 3 if failing is None else stages.index(failing) + 1]
