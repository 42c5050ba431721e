"""All views of the answers of random studies agree.

Views are headline, decision, findings, next steps, console, page, plots, badge, proposal, plan, and
the tables of campaigns, searches, clouds and revisions. `make agreement N=500 SEED=1` compares the
views of as many studies, `make test` six, which have each of FORCED once, and `make test-full` 100.
"""

from __future__ import annotations

import html
import math
import os
import random
import re
import shutil
import traceback
from collections import Counter
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from builders import manifest_of, study_folder
from msgspec.structs import replace
from random_studies import features_of, random_config, write_runs
from tfscaling.conclusions import campaign, clouds, findings, regressions
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.answers.goals import TIME
from tfscaling.conclusions.campaign import CampaignRow
from tfscaling.conclusions.decision import DecisionRow, answer_sentence
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.findings import Finding
from tfscaling.conclusions.headline import HeadlineRow
from tfscaling.conclusions.next_steps import NextStep
from tfscaling.conclusions.scaling_range import EFFICIENCY_MIN, find_scaling_ranges
from tfscaling.conclusions.search_results import SearchRow, verdict_text
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.estimation.samples import NOT_COMPARED, SUPPORTED
from tfscaling.page.plot_quality import pareto_set
from tfscaling.plan import costed_plan
from tfscaling.record.metrics import QUALITY
from tfscaling.record.run_states import RunState
from tfscaling.stages import write_page, write_proposal, write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.stages.write_proposal import ComputeTimeRequest, four_digits, make_requests
from tfscaling.study.config_types import Limit
from tfscaling.tables import data_warnings
from tfscaling.tables.row_types import PointRow, RunRow
from tfscaling.tables.row_values import axis_columns, is_known, metric_of, point_of
from tfscaling.tables.table_files import to_rows

#: Words that a value without a number would have in a sentence.
UNKNOWN = re.compile(r"(?<![\w.])(nan|inf|None)(?!\w)")
#: Statuses of runs that the next start makes.
TO_RUN = (RunState.FAILED, RunState.UNFINISHED, RunState.MISSING)


#: What the first studies have for certain: features of `random_studies`, and words of
#: `features_of`. A draw of 200 studies has each of them several times without this.
FORCED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("search", "trainings", "clouds"), ("search",)),
    (("target", "program", "local", "baseline"), ("goal time_to_target_s",)),
    (("campaign", "hours", "GPUs", "queue"), ("goal finish_time_s", "limit of gpu_hours")),
    (("revisions", "recipes compared", "quality", "energy"), ("goal quality",)),
    (("short search", "trainings"), ("short runs of a search",)),
    (("whole training", "efficiency", "campaign"), ("limit of scaling_efficiency",)),
)
#: How many studies `make agreement` draws, and the seed of the first one.
NUMBER, SEED = int(os.environ.get("STUDIES", "0")), int(os.environ.get("SEED", "1"))


def read(study: StudyFolder, name: str, kind: Any) -> list[Any]:
    """The rows of a conclusion's file."""
    table = study.read_table(name)
    return to_rows(kind, table) if len(table) else []


def check(study: StudyFolder) -> None:
    """Compare all views of the study's answers."""
    evidence = write_tables.load_evidence(study)
    found = answer_questions(evidence)
    headlines = {row.question: row for row in read(study, "headline", HeadlineRow)}
    decisions = {(row.question, row.goal): row for row in read(study, "decision", DecisionRow)}
    steps = read(study, "next_steps", NextStep)
    console = "".join("".join(line.split()) for line in SweepOutcome(study.folder).lines())
    page = html.unescape((study.folder / "report.html").read_text())
    assert len({each.question for each in found}) == len(found)
    texts = [row.text for row in (*headlines.values(), *decisions.values(), *steps)]
    check_texts([*texts, *(row.text for row in read(study, "findings", Finding))])
    for own in found:
        is_shown = own.question in headlines or len(found) == 1
        row = headlines.get(own.question) or headlines.get("")
        if row and len(own.candidates) > 1 and is_shown:
            check_headline(own, row, page, console)
        for each in filter(attrgetter("is_measured"), (own, *own.other_goals)):
            check_candidates(each, evidence)
            check_decision(
                each, decisions.pop((each.question, each.goal)), page if is_shown else ""
            )
    assert not decisions, "each row is of an answer"
    requests = check_proposal(study, evidence)
    for own in found:
        check_trainings(own, study, requests)
    check_steps(study, evidence, steps, page)
    found_lines = to_rows(Finding, findings.table(evidence))
    assert [row.text for row in read(study, "findings", Finding)] == [f.text for f in found_lines]
    check_findings(evidence, found_lines, page)
    check_plots(study, evidence)
    check_tables(study, evidence)


def plain(text: str) -> str:
    """Text without marks of Markdown, tags and spaces."""
    return re.sub(r"<[^>]*>|[`*\\\s]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))


def check_texts(texts: list[str]) -> None:
    """Sentences have no gaps, and no value that is unknown."""
    assert not [text for text in texts if re.search(r" [.,;:]( |$)|[.;,]{2}|\( | \)", text)]
    assert not [text for text in texts if UNKNOWN.search(text)]


def check_headline(own: Answer, row: HeadlineRow, page: str, console: str) -> None:
    """Page and console have the headline, which names the answer's configuration."""
    assert row.badge == own.support
    for text in (row.text, row.sure[1:].removesuffix(".")):
        assert text in page
        is_printed = "".join(text.split()) in console
        assert is_printed or "No valid run" in row.text or "Stopped" in console
    if own.leader:
        assert own.leader.name in row.text
    for total in own.totals:
        assert str(total) in page and "".join(str(total).split()) in console


def check_candidates(own: Answer, evidence: Study) -> None:
    """The runs of the configuration keep the limits, and no better one is left out."""
    limits = own.limits or {}
    with_value = own.candidates_with_value
    for each in own.candidates:
        planned = evidence.runs_by_point.get(each.point, ())
        missed = {name: sum(misses(run, name, limits[name]) for run in planned) for name in limits}
        for name in each.missed:
            assert name not in RunRow.__struct_fields__ or 2 * missed[name] >= len(planned)
        if each is own.recommended and own.support == SUPPORTED and own.search is None:
            assert not any(missed.values()), missed
            assert each.state == State.COMPARED and each in with_value
            if "_to_target_" in own.goal:
                assert all(run.target_reached for run in planned if run.status == RunState.OK)
    if own.leader and own.search is None and (own.recommended is None or own.is_best):
        values = [each.row[own.goal] for each in with_value]
        is_higher = metric_of(own.goal, own.leader.row).is_higher_better
        assert own.leader.row[own.goal] == (max if is_higher else min)(values)
    trade = own.trade_off
    assert trade is None or (trade.time >= 1 > trade.cost and trade.cheaper in with_value)


def misses(run: RunRow, name: str, limit: Limit) -> bool:
    """Whether a valid run misses the limit; False for a metric that is not of single runs."""
    value = getattr(run, name, math.nan)
    if run.status != RunState.OK or not is_known(value):
        return False
    return bool(value > limit.value if limit.at_least is None else value < limit.value)


def check_steps(study: StudyFolder, evidence: Study, steps: list[NextStep], page: str) -> None:
    """The page has each next step, and a plan of them has their runs."""
    found = answer_questions(evidence)
    shown = plain(page)
    for step in steps:
        assert plain(step.text) in shown
    if any(own.support != SUPPORTED and own.has_choice for own in found):
        assert steps, "what is not supported has a next step"
    wanted = {own.repeats for own in found if own.repeats and own.search is None}
    said = {step.text for step in steps if step.kind == "repeats"}
    assert all(any(f"repeats: {n}`" in text for n in wanted) for text in said)
    runs = [*evidence.run_rows, *evidence.explaining_rows]
    plan = costed_plan.make_plan(study.config, study.manifest, study.runs_dir)
    at_once = [row for row in plan.runs if row.feasibility != costed_plan.IF_NEEDED]
    to_do = Counter(row.point for row in at_once for _ in range(int(row.runs or 0)))
    unfinished = sum(step.runs for step in steps if step.kind == "unfinished")
    if not any(run.smaller for run in study.manifest.runs):
        assert to_do.total() == unfinished
        if not evidence.searches:
            assert to_do == Counter(point_of(run) for run in runs if run.status in TO_RUN)
    check_repeats(study, [step for step in steps if step.kind == "repeats"], plan)
    assert plan.stale == sum(step.runs for step in steps if step.kind == "stale")
    extra = {(run.spec.point, run.spec.repeat) for run in study.manifest.runs if run.extra_repeat}
    wanted_of = [[*search.needed_runs()] for _, search in evidence.searches]
    said_of = [step.runs for step in steps if step.kind == "search"]
    assert said_of == [len(each) for each in wanted_of if not extra.isdisjoint(each)]


def check_repeats(study: StudyFolder, steps: list[NextStep], plan: costed_plan.Plan) -> None:
    """With the repeats of a step, a plan has its runs, besides the ones that are to do anyway."""
    planned = Counter(run.spec.point for run in study.manifest.runs)
    for step in steps if not study.manifest.searches else ():
        (number,) = map(int, re.findall(r"`repeats: (\d+)`", step.text))
        blocks = tuple(replace(block, repeats=number) for block in study.config.grid)
        config = replace(study.config, grid=blocks)
        later = costed_plan.make_plan(config, manifest_of(config), study.runs_dir)
        before, after = (
            sum(
                int(row.runs or 0)
                for row in each.runs
                if planned[row.point] < number and row.feasibility != costed_plan.EXPLAINS
            )
            for each in (plan, later)
        )
        assert step.runs == after - before


def check_findings(evidence: Study, found: list[Finding], page: str) -> None:
    """The page has each finding, and none contradicts an answer by the same metric."""
    shown = plain(page)
    for finding in found:
        assert plain(finding.text) in shown
    lines = {line.subject: line for line in findings._node_lines(evidence)}
    assert len(lines) == len([*findings._node_lines(evidence)])
    asked = [own for all_of in answer_questions(evidence) for own in (all_of, *all_of.other_goals)]
    for line in lines.values():
        for row, why in line.ineligible:
            assert any(f"{why.reason}" in each.text for each in found if each.kind == NOT_COMPARED)
            for own in asked:
                if each := candidate_of(own, row):
                    assert not each.has_value and each.reason
    for own in asked:
        if own.search is None and own.leader is not None:
            for finding in found:
                if finding.subject in lines:
                    check_finding(own, own.leader, finding, lines[finding.subject])


def check_finding(own: Answer, leader: Candidate, finding: Finding, line: Any) -> None:
    """What a finding shows of a line of numbers of nodes does not contradict the answer."""
    nodes = {int(number) for number in filter(None, finding.nodes.split("; "))}
    rows = [row for row in line.points if is_known(row[TIME])]
    compared = [each for row in rows if (each := candidate_of(own, row)) and each.has_value]
    is_all = len(compared) == len(own.candidates_with_value) == len(rows)
    if own.goal == TIME and leader in compared:
        if finding.kind == "slower" and finding.support == SUPPORTED:
            first = candidate_of(own, rows[0])
            is_alike = first is not None and first.has_value and not leader.is_near_best
            assert not (is_alike and leader.row.nodes in nodes), finding.text
        if finding.kind == "pays" and is_all and finding.support == own.support == SUPPORTED:
            assert leader.row.nodes in nodes, finding.text
        if finding.kind == "stops paying" and is_all and own.support == SUPPORTED:
            assert leader.row.nodes <= max(nodes), finding.text
        if finding.kind in ("may pay", "not shown to pay") and is_all and own.is_best:
            raise AssertionError(finding.text)
        if finding.kind == "medians" and is_all:
            assert own.recommended is not None or leader.row.nodes in nodes, finding.text
    if finding.kind == "quality lost" and own.goal == QUALITY and finding.support == SUPPORTED:
        first = candidate_of(own, line.rows_with(QUALITY)[0])
        is_alike = leader in compared and first is not None and first.has_value
        assert not (is_alike and leader.row.nodes in nodes), finding.text


def candidate_of(own: Answer, row: PointRow) -> Candidate | None:
    """The answer's candidate with the configuration of a row; None without one."""
    return next((each for each in own.candidates if each.point == point_of(row)), None)


def check_plots(study: StudyFolder, evidence: Study) -> None:
    """Plots show the recommended configurations first, and Pareto sets have them."""
    first = write_page.configurations_shown_first(study)
    asked = answer_questions(evidence)
    if first:
        taken = [own.point for own in asked if own.point]
        assert first[: len(taken)] == taken
        assert {own.leader.point for own in asked if own.leader} <= {*first}
    for all_of in asked:
        for own in (all_of, *all_of.other_goals):
            if own.leader is not None:
                assert own.leader.point not in evidence.excluded
                both = [TIME, "cost_usd"]
                rows = [
                    row for row in evidence.compared_rows if all(is_known(row[n]) for n in both)
                ]
                alike = [row for row in rows if candidate_of(own, row)]
                if own.goal in both and own.is_best and not own.not_covered and len(alike) > 1:
                    kept = [point_of(alike[place]) for place in pareto_set(alike, both)]
                    assert own.leader.point in kept or own.leader.row not in alike


def check_tables(study: StudyFolder, evidence: Study) -> None:
    """Campaigns, searches, clouds, revisions and the badge do not contradict the answers."""
    config, asked = study.config, answer_questions(evidence)
    campaigns = {point_of(row): row for row in read(study, "campaign", CampaignRow)}
    assert campaigns.keys() == campaign.campaign_rows(evidence).keys()
    everywhere = [own for all_of in asked for own in (all_of, *all_of.other_goals)]
    # with too few complete runs, a campaign follows from the short runs of a search
    short_of = {
        each.point: each.short for search in study.manifest.searches for each in search.points
    }
    for own in everywhere:
        if own.leader is not None and config.question.campaign is not None:
            assert own.campaign is not None
            row = campaigns[point_of(own.campaign)]
            assert str(row) == str(own.campaign)
            assert point_of(row) in (own.leader.point, short_of.get(own.leader.point))
        if own.goal == "finish_time_s" and own.leader is not None:
            ends = [campaigns[each.point].duration_s for each in own.candidates_with_value]
            assert not own.is_best or campaigns[own.leader.point].duration_s == min(ends)
    for row in read(study, "search", SearchRow):
        (own,) = (each for each in asked if each.search and each.question == row.question)
        assert own.search and row.verdict.startswith(verdict_text(own.search))
        is_leader = own.leader is not None and point_of(row) == own.leader.point
        assert (row.place == "the answer") == is_leader
    for pair in clouds.compare_clouds(evidence):
        check_clouds(pair, everywhere)
    summaries = regressions.summarize_revisions(evidence)
    heads = read(study, "headline", HeadlineRow)[: len(summaries)]
    for summary, head in zip(summaries, heads, strict=True):
        assert head.badge == summary.badge and head.text.startswith(summary.revision)
        assert all(f"{count} {verdict}" in head.text for verdict, count in summary.counts.items())
        verdicts = Counter(
            row.verdict
            for row in read(study, "regressions", regressions.RegressionRow)
            if row.recipe.partition("+")[0] == summary.revision
        )
        assert verdicts == summary.counts
    warnings = data_warnings.read_warnings(study.details / "warnings.json")
    efficient = {
        point_of(each.row)
        for line in find_scaling_ranges(evidence, warnings)
        for each in line.configurations
        if each.is_efficient
    }
    for own in everywhere:
        limit = (own.limits or {}).get("scaling_efficiency")
        for each in own.candidates if limit and limit.value <= EFFICIENCY_MIN else ():
            assert "scaling_efficiency" not in each.missed or each.point not in efficient


def check_clouds(pair: clouds.CloudRow, asked: list[Answer]) -> None:
    """An answer does not name the configuration of the cloud that is shown to be worse."""
    for own in asked:
        if own.goal != pair.metric or own.leader is None or own.search is not None:
            continue
        axes = {axis: getattr(pair, axis) for axis in clouds.AXES}
        names = {"a": pair.platform_a, "b": pair.platform_b}
        both = {
            key: next((each for each in own.candidates_with_value
                       if axis_columns(each.point) == {"platform": name, **axes}), None)
            for key, name in names.items()
        }  # fmt: skip
        a, b = both["a"], both["b"]
        if a is None or b is None or pair.verdict != SUPPORTED:
            continue
        better = a if pair.winner == pair.cloud_a else b
        worse = b if better is a else a
        assert own.leader.point != worse.point or better.is_near_best or not own.is_decided


def check_proposal(study: StudyFolder, evidence: Study) -> list[ComputeTimeRequest]:
    """The proposal has a request for each answer with a configuration; return the requests."""
    requests = list(make_requests(evidence, study.config))
    measured = [own for own in answer_questions(evidence) if own.leader is not None]
    assert len(requests) == len(measured)
    for own, request in zip(measured, requests, strict=True):
        check_request(own, request, evidence)
        assert request.trainings == study.config.question.campaign_trainings
    if not any(is_known(row.execution_time_s) for row in evidence.points):
        return requests
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(write_proposal, "PLOTTED", ())
        write_proposal.run(study)
    text = (study.folder / "proposal/proposal.md").read_text()
    assert not UNKNOWN.search(text)
    for request in requests:
        assert plain(request.name) in plain(text)
        amount = request.refusal or f"{four_digits(request.node_hours)} node-hours"
        assert plain(amount if is_known(request.time_s) else "no run has a time") in plain(text)
    return requests


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
            words = ("diverged", "memory", "is worse", "did not fit", "checkpoint", "are not done")
            assert any(word in each.reason for word in words), each.reason


def check_request(own: Answer, request: ComputeTimeRequest, evidence: Study) -> None:
    """A request is for what the answer names, by its goal, and for the time that it takes."""
    assert own.leader is not None
    row = own.leader.row
    assert request.record == f"[records](../../runs/{own.leader.point.path})"
    assert request.nodes == row.nodes and bool(request.so_far) == (own.support != SUPPORTED)
    valid = [run for run in evidence.runs_by_point[own.leader.point] if run.status == RunState.OK]
    timed = [run for run in valid if is_known(run.execution_time_s)]
    is_short = any(run.projected_from_steps is not None for run in timed)
    if timed and not is_short:
        times = [run.wall_time_s - run.teardown_time_s for run in timed]
        assert request.time_s == pytest.approx(median(times))
    assert request.is_projected == is_short


def check_trainings(own: Answer, study: StudyFolder, requests: list[ComputeTimeRequest]) -> None:
    """All trainings take their number times what the leader's median run takes."""
    number, found = study.config.question.campaign_trainings, own.all_trainings
    if own.leader is None:
        assert found is None
        return
    row = own.leader.row
    has_totals = own.campaign is not None and own.campaign.is_simulated
    is_needed = number > 1 and is_known(row.execution_time_s) and not has_totals
    assert (found is not None) == is_needed
    if own.campaign is not None:
        assert own.campaign.trainings == number
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
        range(SEED, SEED + NUMBER) if NUMBER else range(len(FORCED)),
        *(pytest.param(range(n, n + 25), marks=pytest.mark.full) for n in range(1000, 1100, 25)),
    ],
)
def test_all_views_of_random_studies_agree(seeds: range, tmp_path: Path) -> None:
    assert disagreements(seeds, tmp_path) == []


def disagreements(seeds: range, folder: Path) -> list[str]:
    """Make studies with these seeds, compare their views, and return the seeds that disagree."""
    found, drawn = [], Counter[str]()
    for seed in seeds:
        dice = random.Random(seed)
        forced = FORCED[seed] if seed < len(FORCED) else ((), ())
        config = random_config(dice, *forced)
        drawn.update(features_of(config))
        planned = manifest_of(config)
        home = folder / str(seed)
        write_runs(planned, home / "runs", dice)
        study = study_folder(home / "study", config, planned)
        try:
            write_tables.collect(study)
            write_tables.compare(study)
            write_tables.analyse(study)
            with pytest.MonkeyPatch.context() as changed:
                changed.setattr(write_page, "draw_plots", lambda *_: [])
                write_page.write_page(study)
            check(study)
        except Exception as error:  # all seeds are tried, and a crash is one that disagrees
            traceback.print_exception(error)
            found.append(f"seed {seed}: {type(error).__name__}: {error}")
        shutil.rmtree(home)
    print(f"{len(seeds)} studies from seed {seeds.start}: {len(found)} disagree")
    print(", ".join(f"{number} {name}" for name, number in drawn.most_common()))
    return found
