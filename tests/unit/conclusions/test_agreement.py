"""Headline, decision, next steps, console, page, proposal and plan of random studies agree."""

from __future__ import annotations

import html
import math
import random
import re
import traceback
from collections import Counter
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from builders import manifest_of, study_folder
from random_studies import random_config, write_runs
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.conclusions.decision import DecisionRow, answer_sentence
from tfscaling.conclusions.headline import HeadlineRow
from tfscaling.conclusions.next_steps import NextStep
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.page import html_page
from tfscaling.plan import costed_plan
from tfscaling.record.run_states import RunState
from tfscaling.stages import write_proposal, write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.stages.write_proposal import make_requests
from tfscaling.tables import data_warnings
from tfscaling.tables.row_types import PointRow, RunRow
from tfscaling.tables.row_values import axis_columns, is_known, point_of
from tfscaling.tables.table_files import to_rows

#: Statuses of runs that the next start makes.
TO_RUN = (RunState.FAILED, RunState.UNFINISHED, RunState.MISSING)


def read(study: StudyFolder, name: str, kind: Any) -> list[Any]:
    """The rows of a conclusion's file."""
    table = study.read_table(name)
    return to_rows(kind, table) if len(table) else []


def check(study: StudyFolder) -> set[str]:
    """Compare all views of the study's answers; return the supports that it has."""
    evidence = write_tables.load_evidence(study)
    found, config = answer_questions(evidence), study.config
    runs = to_rows(RunRow, study.read_table("runs"))
    headlines = {row.question: row for row in read(study, "headline", HeadlineRow)}
    decisions = {(row.question, row.goal): row for row in read(study, "decision", DecisionRow)}
    steps = read(study, "next_steps", NextStep)
    asked = list(make_requests(evidence, config))
    console = "".join("".join(line.split()) for line in SweepOutcome(study.folder).lines())
    page = html.unescape((study.folder / "report.html").read_text())
    assert len({each.question for each in found}) == len(found)
    texts = [row.text for row in (*headlines.values(), *decisions.values(), *steps)]
    assert not [text for text in texts if re.search(r" [.,;:]( |$)|[.;,]{2}|\( | \)", text)]
    for own in found:
        row = headlines.get(own.question) or headlines.get("")
        if row and len(own.candidates) > 1 and (own.question in headlines or len(found) == 1):
            assert row.badge == own.support
            for text in (row.text, row.sure[1:].removesuffix(".")):
                assert text in page
                is_printed = "".join(text.split()) in console
                assert is_printed or "No valid run" in row.text or "Stopped" in console
            if own.leader:
                assert own.leader.name in row.text
            if own.all_trainings:
                all_of_them = str(own.all_trainings)
                assert all_of_them in page and "".join(all_of_them.split()) in console
        is_shown = own.question in headlines or len(found) == 1
        for each in filter(attrgetter("is_measured"), (own, *own.other_goals)):
            check_decision(
                each, decisions.pop((each.question, each.goal)), page if is_shown else ""
            )
    assert not decisions, "each row is of an answer"
    supports = {own.support for own in found}
    measured = [own for own in found if own.leader is not None]
    assert len(asked) == len(measured)
    check_proposal(study, asked)
    for own in measured:
        check_request(own, asked, runs)
        check_trainings(own, config.question.trainings or 1, asked)
    if any(own.support != SUPPORTED and len(own.candidates) > 1 for own in found):
        assert steps, "what is not supported has a next step"
    wanted = {own.repeats for own in found if own.repeats and own.search is None}
    said = {step.text for step in steps if step.kind == "repeats"}
    assert all(any(f"repeats: {n}`" in text for n in wanted) for text in said)
    check_steps(steps, page)
    if not evidence.searches:
        plan = costed_plan.make_plan(config, study.manifest, study.runs_dir)
        to_do = Counter(row.point for row in plan.runs for _ in range(int(row.runs or 0)))
        assert to_do == Counter(point_of(run) for run in runs if run.status in TO_RUN)
        assert to_do.total() == sum(step.runs for step in steps if step.kind == "unfinished")
    return supports


def plain(text: str) -> str:
    """Text without marks of Markdown, tags and spaces."""
    return re.sub(r"<[^>]*>|[`*\\\s]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))


def check_steps(steps: list[Any], page: str) -> None:
    """The page has each next step."""
    shown = plain(page)
    for step in steps:
        assert plain(step.text) in shown


def check_proposal(study: StudyFolder, asked: list[Any]) -> None:
    """The proposal has each request, with its node-hours."""
    if not any(is_known(row.execution_time_s) for row in read(study, "comparison", PointRow)):
        return
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(write_proposal, "PLOTTED", ())
        write_proposal.run(study)
    text = plain((study.folder / "proposal/proposal.md").read_text())
    for request in asked:
        assert plain(request.name) in text
        assert plain(f"{request.node_hours:.4g} node-hours") in text


def check_decision(own: Answer, row: DecisionRow, page: str) -> None:
    """The row of the table has what the answer has."""
    assert (row.support, row.title, row.is_best) == (own.support, own.title, own.is_best)
    assert (row.text, row.indifference) == (answer_sentence(own), own.indifference)
    assert row.is_decided == own.is_decided and row.alike == len(own.not_shown_worse)
    assert (row.comparisons, row.not_covered) == (own.comparisons, own.not_covered_text())
    bound = math.nan if own.bound is None else own.bound
    assert row.bound == pytest.approx(bound, nan_ok=True)
    assert (row.whole_run_low_s, row.whole_run_high_s) == pytest.approx(
        own.whole_run or (math.nan, math.nan), nan_ok=True
    )
    taken = own.point
    assert (row.platform is None) == (taken is None)
    if taken:
        axes = axis_columns(taken)
        assert {axis: getattr(row, axis) for axis in axes} == axes
    assert row.text.startswith("Use ") == (own.support == SUPPORTED)
    if own.support != "not measured" and page:
        # the page has each of these sentences once, in the headline or in one answer
        shared = [each for each in (row.totals, row.wide_job, row.not_covered) if each]
        pieces = [row.text]
        for sentence in shared:
            pieces = [part for piece in pieces for part in piece.split(sentence)]
        assert [part for part in (*pieces, *shared) if part.strip() not in page] == []
    assert own.support != SUPPORTED or not own.is_open
    for each in own.candidates:
        assert each.has_value or each.reason
        if each.state == State.EXCLUDED and own.search is None and each.row.status != "excluded":
            words = ("diverged", "memory", "is worse", "did not fit")
            assert any(word in each.reason for word in words), each.reason


def check_request(own: Answer, asked: list[Any], runs: list[RunRow]) -> None:
    """A request is for what the answer names, by its goal."""
    assert own.leader is not None
    alike = [
        each for each in asked if f"[records](../../runs/{own.leader.point.path})" == each.record
    ]
    assert len(alike) == 1
    (request,) = alike
    assert request.nodes == own.leader.row.nodes
    assert bool(request.so_far) == (own.support != SUPPORTED)
    valid = [run for run in runs if point_of(run) == own.leader.point and run.status == "ok"]
    assert request.time_s == pytest.approx(
        median(run.wall_time_s - run.teardown_time_s for run in valid)
    )


def check_trainings(own: Answer, number: int, asked: list[Any]) -> None:
    """All trainings take their number times what the leader's median run takes."""
    assert own.leader is not None
    assert {request.trainings for request in asked} == {number}
    row, found = own.leader.row, own.all_trainings
    assert (found is not None) == (number > 1 and is_known(row.execution_time_s))
    if found is not None:
        assert found.number == number
        values = found.time_s, found.node_hours, found.cost_usd
        of_row = row.execution_time_s, row.node_hours, row.cost_usd
        assert [v for v in values if v is not None] == pytest.approx(
            [number * v for v in of_row if is_known(v)]
        )


@pytest.mark.parametrize(
    "seeds",
    [
        range(5),
        *(pytest.param(range(n, n + 50), marks=pytest.mark.full) for n in range(1000, 1200, 50)),
    ],
)
def test_all_views_of_random_studies_agree(seeds: range, tmp_path: Path) -> None:
    assert disagreements(seeds, tmp_path) == []


def disagreements(seeds: range, folder: Path) -> list[str]:
    """Make studies with these seeds, compare their views, and return the seeds that disagree."""
    found = []
    for seed in seeds:
        dice = random.Random(seed)
        config = random_config(dice)
        planned = manifest_of(config)
        home = folder / str(seed)
        write_runs(planned, home / "runs", dice)
        study = study_folder(home / "study", config, planned)
        write_tables.collect(study)
        write_tables.compare(study)
        write_tables.analyse(study)
        results = html_page.Results(
            planned,
            study.read_table("runs"),
            study.read_table("comparison"),
            data_warnings.read_warnings(study.details / "warnings.json"),
            {name: study.read_table(name) for name in CONCLUSIONS},
            (),
            config.question.goal,
        )
        page = html_page.render(results, "T", config.comparison.columns, study.folder)
        (study.folder / "report.html").write_text(page)
        try:
            check(study)
        except AssertionError as error:
            traceback.print_exception(error)
            found.append(f"seed {seed}: {error}")
    return found
