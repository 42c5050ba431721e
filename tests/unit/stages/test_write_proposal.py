"""The scaling evidence for an application for compute time, by records with known times."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import (
    REGISTRIES,
    changed,
    manifest_of,
    study_folder,
    valid_config,
    write_failure,
    write_record,
)
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.conclusions.campaign import CampaignRow
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.stages import write_proposal, write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study import acceptance
from tfscaling.study.config_types import Question
from tfscaling.tables import timings
from tfscaling.tables.data_warnings import LIMITED, SERIOUS, DataWarning, write_warnings
from tfscaling.tables.table_files import to_rows

#: Nodes → seconds of each of its runs.
TIMES_S = {1: 3600.0, 2: 2000.0}
#: Part of them before the first step has ended.
STARTUP_S = 7.75


def study_of(
    folder: Path, runs: dict[int, int], platform: dict[str, Any] | None = None, **changes: Any
) -> StudyFolder:
    """A study on one and on two nodes, with this many valid runs of each; others failed.

    `platform` has keys of the platform.
    """
    others: list[tuple[Sequence[str | int], Any]] = [
        (("platforms", "cluster", key), value) for key, value in (platform or {}).items()
    ]
    others += [((name,), value) for name, value in changes.items()]
    config = valid_config((("grid", 0, "repeats"), 6), *others)
    planned = manifest_of(config)
    for run in planned.runs:
        nodes = run.spec.point.nodes
        if run.spec.repeat <= runs[nodes]:
            with changed(write_record(folder / "runs", run, TIMES_S[nodes])) as record:
                record["phases"]["train_time_s"] = TIMES_S[nodes] - STARTUP_S
        elif not run.extra_repeat:
            write_failure(folder / "runs", run)
    study = study_folder(folder / "study", config, planned)
    for stage in (write_tables.collect, write_tables.compare, write_tables.analyse):
        stage(study)
    return study


@pytest.fixture(autouse=True)
def hide_pandoc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def proposal_of(study: StudyFolder) -> str:
    write_proposal.run(study)
    return (study.folder / "proposal/proposal.md").read_text()


@pytest.mark.parametrize(
    ("runs", "times"),
    [({1: 1, 2: 1}, "once"), ({1: 6, 2: 6}, "6 times"), ({1: 6, 2: 3}, "3 to 6 times")],
)
def test_the_text_counts_the_valid_runs_of_each_configuration(
    runs: dict[int, int], times: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    text = proposal_of(study_of(tmp_path, runs))
    assert f"was trained {times}, " in text and "from the trainer's first line" in text


def test_a_proposal_has_the_serious_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    study = study_of(tmp_path, {1: 6, 2: 6})
    serious, limited = (
        DataWarning(kind, severity, f"The sentence on {kind}.", "", (), 1)
        for kind, severity in (("one_machine", SERIOUS), ("few_runs", LIMITED))
    )
    write_warnings(study.details / "warnings.json", [serious, limited])
    text = proposal_of(study)
    assert f"- Warning: {serious.text}\n" in text
    assert limited.text not in text


def test_a_proposal_requests_the_node_hours_of_the_recommended_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_of(tmp_path, {1: 6, 2: 6}, question={"trainings": 3}, proposal={"margin": 0.5})
    text = proposal_of(study)
    assert text.startswith("# Scaling of main\n")
    rows = [line.split("|") for line in text.splitlines() if "[records](" in line and "|" in line]
    tables = (line.split("|") for line in text.splitlines() if line.startswith("|"))
    column = {name.strip(): n for n, name in enumerate(next(tables))}
    hours = [float(row[column["node-hours"]]) for row in rows]
    assert hours == pytest.approx([1.0, 2 * 2000 / 3600], rel=0.01)
    each, total = re.findall(r"([\d.]+) node-hours", text)
    # with launch and evaluations, but without the end of the ranks
    runs = study.read_table("runs").query("nodes == 2")
    time_s = (runs["wall_time_s"] - runs["teardown_time_s"]).median()
    assert float(each) == pytest.approx(2 * time_s / 3600, rel=1e-3)
    assert float(total) == pytest.approx(float(each) * 3 * 1.5, rel=1e-3)
    # 8 CPUs of each node
    cores = [float(row[column["core-hours"]]) for row in rows]
    assert cores == pytest.approx([8 * number for number in hours], rel=0.01)
    (of_cores,) = re.findall(r"([\d.]+) core-hours", text)
    assert float(of_cores) == pytest.approx(8 * float(total), rel=1e-3)
    assert "GPU-hours" not in text
    assert "do not decide" not in text and "projected" not in text
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == 3  # the recipe's batch grows with the replicas
    assert all((study.folder / "proposal" / name).stat().st_size > 1000 for name in pictures)
    printed = capsys.readouterr().out
    assert str(study.folder / "proposal/proposal.md") in printed and "pypandoc_binary" in printed


def test_each_request_is_a_list_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recipes are two questions: each is a line, and an empty line is between them."""
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    recipes = {
        name: {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 2}
        for name in ("weak", "other")
    }
    grid = [
        {
            "platform": "cluster",
            "model": "mnist_cnn",
            "recipe": [*recipes],
            "nodes": [1, 2],
            "repeats": 6,
        }
    ]
    text = proposal_of(
        study_of(tmp_path, {1: 6, 2: 6}, recipes=recipes, grid=grid, question={"limits": {}})
    )
    items = text.partition("## Requested node-hours")[2].strip().splitlines()
    assert len([line for line in items if line]) == len(recipes), items
    assert all(line.startswith("- **") and line.count("- **") == 1 for line in items if line)


@pytest.mark.parametrize("minutes", [None, 30, 60])
def test_proposal_and_console_warn_of_a_wide_and_short_job(
    minutes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recommended training takes 2000 s on two nodes, and some seconds of launch."""
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    wide = {"wide_jobs": {"nodes": 2, "minutes": minutes}} if minutes else {}
    study = study_of(tmp_path, {1: 6, 2: 6}, wide)
    (study.folder / "report.html").touch()
    console = " ".join(" ".join(SweepOutcome(study.folder).lines()).split())
    for text in (proposal_of(study), console):
        assert ("Warning: wide and short. A training on 2 nodes takes 3" in text) == (minutes == 60)
        assert ("at least 60 min" in text) == (minutes == 60)


def test_facts_are_those_of_the_valid_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    study = study_of(tmp_path, {1: 1, 2: 0}, comparison={"title": "A title"})
    text = proposal_of(study)
    runs = study.read_table("runs")
    valid = runs[runs["status"] == "ok"]
    assert text.startswith("# Scaling of A title\n")
    left_out = set(study.read_table("comparison")["status"]) - {"ok"}
    assert left_out and f"exist ({', '.join(sorted(left_out))})" in text
    for column in ("cpu_model", "python", "tensorflow"):
        (value,) = set(valid[column])
        assert f": {value}\n" in text
    assert "- torch: " not in text
    # a single run decides nothing
    assert "(not compared with any other; the runs do not decide it)" in text


def test_the_most_accurate_configuration_may_have_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs resumed from a checkpoint: their quality counts, their times do not."""
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    study = study_of(tmp_path, {1: 6, 2: 6}, question={"goal": "quality"})
    earlier = {"attempt": 1, "duration_s": 5.0, "steps": 3, "cause": "preempted"}
    for path in (tmp_path / "runs").rglob("nodes=2/**/run.json"):
        with changed(path) as record:
            record["metrics"]["test_accuracy"] += 0.05
            record["resumed"] = {"epoch": 2, "step": 0, "steps_repeated": 0,
                                 "trained_before_s": 9.0, "attempts": [earlier]}  # fmt: skip
    for stage in (write_tables.collect, write_tables.compare, write_tables.analyse):
        stage(study)
    (line,) = (line for line in proposal_of(study).splitlines() if line.startswith("- **"))
    assert "2 nodes" in line and "no run has a time that counts" in line
    assert "nan" not in line


def test_without_a_measured_time_there_is_no_proposal(tmp_path: Path) -> None:
    study = study_of(tmp_path, {1: 0, 2: 0})
    with pytest.raises(SystemExit, match="no run has a time yet"):
        write_proposal.run(study)
    assert not (study.folder / "proposal").exists()


def test_what_a_request_is_best_for_keeps_its_capitals(tmp_path: Path) -> None:
    study = study_of(tmp_path, {1: 1, 2: 1})
    evidence = replace(write_tables.load_evidence(study), question=Question(goal="gpu_hours"))
    (request,) = write_proposal.make_requests(evidence, study.config)
    assert request.so_far == "fewest GPU-hours so far"


@pytest.mark.parametrize(
    ("cores", "gpus", "shares"),
    [
        (8.0, 0.0, "120 core-hours"), (0.5, 0.25, "7.5 core-hours, 3.75 GPU-hours"),
        (math.nan, 4.0, "60 GPU-hours"), (math.nan, 0.0, ""), (0.0, 0.0, ""),
    ],
)  # fmt: skip
def test_shares_of_cores_and_gpus_are_of_all_trainings(
    cores: float, gpus: float, shares: str
) -> None:
    request = write_proposal.ComputeTimeRequest("a", "", 9000.0, False, 2, 2, 0.5, "", cores, gpus)
    assert (request.node_hours_each, request.node_hours) == (5.0, 15.0)
    assert request.shares == shares


#: Name → keys of a campaign of 20 trainings. On two nodes a training takes 2,000 s.
CAMPAIGNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpoints": {"time_limit": "30 min", "checkpoint_every": "7 min"},
    "spot": {"spot": {"interruptions_per_hour": 1.0}},
    "spot_with_checkpoints": {
        "spot": {"interruptions_per_hour": 1.0},
        "checkpoint_every": "5 min",
    },
}


def with_campaign(folder: Path, runs: int = 6, **keys: Any) -> tuple[StudyFolder, Any, str]:
    """A study with a campaign of 20 trainings, its request and the text of its proposal."""
    asked = {"campaign": {"trainings": 20, **keys}}
    study = study_of(folder, {1: runs, 2: runs}, question=asked, proposal={"margin": 0.25})
    evidence = write_tables.load_evidence(study)
    (request,) = write_proposal.make_requests(evidence, study.config)
    return study, request, proposal_of(study)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_request_covers_the_campaign_that_page_and_headline_have(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    study, request, text = with_campaign(tmp_path, **CAMPAIGNS[name])
    rows = to_rows(CampaignRow, study.read_table("campaign"))
    (row,) = (each for each in rows if each.nodes == request.nodes)
    assert request.is_simulated and not request.refusal and request.trainings == 20
    assert request.node_hours == pytest.approx(1.25 * row.node_hours_high)
    assert request.node_hours > row.node_hours_high >= row.node_hours
    once = 20 * request.node_hours_each
    assert row.node_hours_high > once
    assert (row.node_hours > 1.5 * once) == (name == "spot")
    # the same node-hours everywhere, with what is requested
    sentence = str(row)
    assert f"{row.node_hours_text} node-hours" in sentence and sentence in text
    (headline,) = study.read_table("headline").to_dict("records")
    assert sentence in headline["sure"]
    evidence = write_tables.load_evidence(study)
    assert row.node_hours_text in CONCLUSIONS["campaign"].page(
        study.read_table("campaign"), evidence
    )
    assert f"need {row.node_hours_text} node-hours" in text
    assert f"× 1.25 for tests = **{request.node_hours:.4g} node-hours** ({request.shares})" in text
    assert f"{8 * request.node_hours:.4g} core-hours" in request.shares


def test_nothing_is_requested_for_trainings_that_never_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    _, request, text = with_campaign(tmp_path, time_limit="30 min")
    assert "no checkpoints" in request.refusal and f"requested: {request.refusal}" in text
    assert "nan" not in text and "core-hours" not in text.partition("Requested")[2]


def test_without_enough_runs_for_a_campaign_the_request_lacks_repeated_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    _, request, text = with_campaign(tmp_path, runs=3, **CAMPAIGNS["spot"])
    assert not request.is_simulated and not request.refusal
    assert request.node_hours == pytest.approx(25 * request.node_hours_each)
    assert "Repeated work is not included." in text and "3 runs with times" in text


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0.0019384, "0.001938"), (5.0, "5"), (9999.4, "9999"), (9999.6, "10000"), (92160.3, "92160")],
)
def test_hours_have_no_exponent(hours: float, text: str) -> None:
    assert write_proposal.four_digits(hours) == text


def test_times_of_a_file_are_not_said_to_be_measured_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_proposal, "PLOTTED", ())
    path = tmp_path / "mine.csv"
    path.write_text("nodes,global_batch_size,execution_time_s\n1,64,60\n2,128,31\n")
    (tmp_path / "true").symlink_to(sys.executable)
    config, planned = acceptance.validate_and_plan(
        timings.add_grid_of_timings({"timings": str(path)}), REGISTRIES
    )
    study = study_folder(tmp_path / "study", config, planned)
    for stage in (write_tables.collect, write_tables.compare, write_tables.analyse):
        stage(study)
    text = proposal_of(study)
    assert f"trained once. Times are medians of the execution time: as in {path}, not" in text
    assert "random order" not in text and "records" not in text and "with launch" not in text
    assert f" s; {path}) × 1 training" in text
