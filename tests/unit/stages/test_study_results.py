"""A study as other programs read it: rows, data frames and answers, by records of known times."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import documents
import msgspec
import pandas as pd
import pytest
from builders import REPOSITORY, manifest_of, run_python, study_folder, valid_config, write_record
from random_studies import random_config, write_runs
from seeds import drawn_seed
from tfscaling import read_study
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.files.program_errors import InputError
from tfscaling.stages import write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.stages.study_results import TABLES
from tfscaling.study.config_types import Config

SEED = drawn_seed()
STAGES = (write_tables.collect, write_tables.compare, write_tables.analyse)


def measured(folder: Path, times_s: dict[int, float], **changes: Any) -> StudyFolder:
    """A study with six runs of each number of nodes, whose times differ by 1 %."""
    others = [((name,), value) for name, value in changes.items()]
    config = valid_config((("grid", 0, "repeats"), 6), (("grid", 0, "nodes"), [*times_s]), *others)
    planned = manifest_of(config)
    for run in planned.runs:
        time_s = times_s[run.spec.point.nodes] * (1 + run.spec.repeat / 600)
        write_record(folder / "runs", run, time_s)
    return write_study_tables(study_folder(folder / "main", config, planned))


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study of one node and two; not to be changed."""
    return measured(tmp_path_factory.mktemp("two_nodes"), {1: 30.0, 2: 20.0})


@pytest.fixture
def copied(two_nodes: StudyFolder, tmp_path: Path) -> StudyFolder:
    """A copy of a study, to be changed."""
    return StudyFolder(shutil.copytree(two_nodes.folder, tmp_path / "main"))


def write_study_tables(study: StudyFolder) -> StudyFolder:
    for stage in STAGES:
        stage(study)
    return study


def draw_times(dice: random.Random) -> dict[int, float]:
    """Nodes → seconds of a run, clearly different."""
    nodes = sorted(dice.sample(range(1, 9), dice.randint(2, 4)))
    return dict(zip(nodes, dice.sample([20.0, 31.0, 45.0, 70.0], len(nodes)), strict=True))


def test_rows_frames_and_answers_are_those_of_the_records(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    times_s = draw_times(dice)
    study = read_study(str(measured(tmp_path, times_s).folder))
    assert len(study.runs) == 6 * len(times_s), SEED
    for run in study.runs:
        assert run.execution_time_s == pytest.approx(times_s[run.nodes], rel=0.02)
    assert {row.nodes: row.runs for row in study.configurations} == dict.fromkeys(times_s, 6)
    medians = study.table("comparison").set_index("nodes")["execution_time_s"]
    for row in study.configurations:
        assert row.execution_time_s == medians[row.nodes]
        assert row["execution_time_s_low"] < row.execution_time_s < row["execution_time_s_high"]
    (answer,) = study.answers
    fastest = min(times_s, key=lambda nodes: times_s[nodes])
    assert answer.recommended is not None and answer.recommended.row.nodes == fastest, SEED
    assert answer.support == SUPPORTED
    by_time = sorted(times_s, key=lambda nodes: times_s[nodes])
    assert [each.row.nodes for each in answer.candidates] == by_time
    assert {each.state for each in answer.candidates} == {"compared"}


def test_answers_of_random_studies_are_those_of_the_page(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    for number in range(3):
        config = random_config(dice)
        planned = manifest_of(config)
        folder = tmp_path / str(number)
        write_runs(planned, folder / "runs", dice)
        made = write_study_tables(study_folder(folder / "study", config, planned))
        study = read_study(made.folder)
        shown = answer_questions(write_tables.load_evidence(made))
        assert len(study.answers) == len(shown), (SEED, number)
        for own, answer in zip(study.answers, shown, strict=True):
            assert (own.question, own.goal, own.support) == (
                answer.question,
                answer.goal,
                answer.support,
            )
            assert own.point == answer.point, (SEED, number)
            states = [(each.name, each.state, each.reason) for each in answer.candidates]
            assert [(each.name, each.state, each.reason) for each in own.candidates] == states
            assert [each.goal for each in own.other_goals] == [
                each.goal for each in answer.other_goals
            ]


def test_only_the_folder_of_the_study_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the records nor published results nor the study that it is compared with."""
    published = tmp_path / "published.csv"
    shutil.copy(REPOSITORY / "resources/published_results.csv", published)
    other = measured(tmp_path / "other", {1: 30.0, 2: 20.0})
    made = measured(
        tmp_path / "project",
        {1: 30.0, 2: 20.0},
        published={"path": str(published)},
        compare_with=str(other.folder),
    )
    expected = read_study(made.folder).answers
    shutil.move(made.folder, tmp_path / "copy")
    for folder in ("project", "other"):
        shutil.rmtree(tmp_path / folder)
    published.unlink()
    monkeypatch.chdir(tmp_path)
    study = read_study("copy")
    assert [each.point for each in study.answers] == [each.point for each in expected]
    assert len(study.table("regressions")) == 2


def test_every_table_is_a_data_frame_with_its_columns(two_nodes: StudyFolder) -> None:
    study = read_study(two_nodes.folder)
    for name in TABLES:
        table = study.table(name)
        assert isinstance(table, pd.DataFrame) and len(table.columns) > 3, name
    assert len(study.table("epochs")) == 2 * len(study.table("runs"))
    with pytest.raises(InputError) as caught:
        study.table("run")
    assert "'run'" in str(caught.value) and "runs" in str(caught.value)


def new_config(**axes: Any) -> Config:
    return valid_config(*((("grid", 0, name), value) for name, value in axes.items()))


def is_no_study(study: StudyFolder) -> str:
    shutil.rmtree(study.folder)
    return "details/config.json"


def has_no_tables(study: StudyFolder) -> str:
    study.table_path("runs").unlink()
    return "runs.csv"


def has_one_table(study: StudyFolder) -> str:
    study.table_path("comparison").unlink()
    return "comparison.csv"


def has_a_larger_plan(study: StudyFolder) -> str:
    return has_another_plan(study, nodes=(1, 2, 4))


def has_another_plan(study: StudyFolder, nodes: tuple[int, ...] = (1, 4)) -> str:
    config = new_config(nodes=[*nodes])
    (study.details / "config.json").write_bytes(msgspec.json.encode(config))
    manifest_of(config).write(study.details / "manifest.json")
    return "older than the plan"


def has_half_a_manifest(study: StudyFolder) -> str:
    path = study.details / "manifest.json"
    path.write_bytes(path.read_bytes()[:200])
    return "manifest.json"


def has_a_damaged_table(study: StudyFolder) -> str:
    study.table_path("comparison").write_text("a,b\n1,2\n")
    return "comparison.csv"


@pytest.mark.parametrize(
    "damage",
    [
        *(is_no_study, has_no_tables, has_one_table),
        *(has_another_plan, has_a_larger_plan, has_half_a_manifest, has_a_damaged_table),
    ],
)
def test_an_error_is_one_line_that_names_the_folder(copied: StudyFolder, damage: Any) -> None:
    named = damage(copied)
    with pytest.raises(ValueError, match=".") as caught:
        read_study(copied.folder)
    (line,) = str(caught.value).splitlines()
    assert str(copied.folder) in line and named in line


def test_the_import_is_light() -> None:
    code = "import sys, tfscaling; print(tfscaling.read_study.__name__, *sys.modules)"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    name, *loaded = done.stdout.split()
    heavy = {"pandas", "numpy", "scipy", "msgspec", "jinja2", "matplotlib", "tensorflow"}
    assert name == "read_study" and not heavy & set(loaded)


def test_the_documented_code_reads_a_study(
    copied: StudyFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (REPOSITORY / "docs/python.md").read_text()
    (code,) = (each.text for each in documents.fences(page) if each.language == "python")
    (tmp_path / "results").mkdir()
    copied.folder.rename(tmp_path / "results/demo")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec(code, {})
    assert SUPPORTED in capsys.readouterr().out


def test_the_documented_names_exist(two_nodes: StudyFolder) -> None:
    page = (REPOSITORY / "docs/python.md").read_text()
    study = read_study(two_nodes.folder)
    answer = study.answers[0]
    values = {"study": study, "answer": answer, "candidate": answer.candidates[0]}
    tables = page.partition("## Stable names")[2].split("| of a")[1:]
    assert len(tables) == len(values)
    for value, table in zip(values.values(), tables, strict=True):
        first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        names = [part for cell in first_cells for part in cell.split("`")[1::2]]
        assert names
        for name in (each.partition("(")[0] for each in names):
            assert name == "read_study" or hasattr(value, name), name


def test_an_unfinished_study_has_open_candidates(tmp_path: Path) -> None:
    """One configuration has no run: it keeps the answer open, with a reason."""
    config = new_config(repeats=6)
    planned = manifest_of(config)
    for run in planned.runs:
        if run.spec.point.nodes == 1:
            write_record(tmp_path / "runs", run, 30.0)
    study = read_study(write_study_tables(study_folder(tmp_path / "main", config, planned)).folder)
    (answer,) = study.answers
    assert answer.support != SUPPORTED and answer.is_open
    (missing,) = [each for each in answer.candidates if each.row.nodes == 2]
    assert missing.state == "not run" and missing.reason
    assert {row.nodes: row.status for row in study.configurations} == {1: "ok", 2: "missing"}
    assert json.loads((study.folder / "details/warnings.json").read_text()) and study.warnings
