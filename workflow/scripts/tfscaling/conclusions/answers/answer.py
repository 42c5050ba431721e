"""The answer to each question of a study, by the goal that is asked and by the other goals.

Only configurations of the same model and recipe are compared, unless `question.choose` has these
axes: then by time and cost to a target and by quality.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tfscaling.conclusions import campaign, wide_jobs
from tfscaling.conclusions.answers import campaign_answers, candidates, choosing, search_answers
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.answers.goals import GOALS, TIME
from tfscaling.conclusions.evidence import QuestionEvidence, Study
from tfscaling.conclusions.projection import projection_intervals
from tfscaling.record.run_states import RunState, status_words
from tfscaling.study.config_types import CAMPAIGN_METRICS
from tfscaling.tables.row_values import point_of


@functools.lru_cache(maxsize=1)  # all views show the same answers
def answer_questions(study: Study) -> tuple[Answer, ...]:
    """Return the answer to each question of a study, by the goal in the configuration.

    The attribute `other_goals` of an answer has the answers to the same question by other goals.
    The result for the most recent study is cached.
    """
    answers = []
    for task in study.tasks:
        goals = {goal: _answer_by_goal(study, task, goal) for goal in task.goals}
        asked = goals.pop(study.question.goal, None) or _answer_without_runs(study, task)
        answers.append(replace(asked, other_goals=tuple(goals.values())))
    return tuple(answers)


def answers_by_goal(study: Study) -> Iterator[Answer]:
    """Yield the answers to all questions with a valid run, by each goal in the order of GOALS."""
    for asked in answer_questions(study):
        each = [own for own in (asked, *asked.other_goals) if own.is_measured]
        yield from sorted(each, key=lambda own: [*GOALS].index(own.goal))


def _answer_without_runs(study: Study, task: QuestionEvidence) -> Answer:
    """Return an answer without a recommendation, with the number of runs by status.

    It is for a question that has no valid run, or whose goal can have no answer (see
    `goals.goal_title`).
    """
    own = {point_of(row) for row in task.all_rows}
    counts = Counter(status_words(run.status) for run in study.run_rows if point_of(run) in own)
    statuses = Counter[str]() if counts.keys() <= {RunState.MISSING} else counts
    state = State.NOT_RUN if not counts else None
    without_runs = tuple(
        candidates.create_candidate(study, task, study.question.goal, row, state)
        for row in task.rows
    )
    goal, indifference = study.question.goal, study.question.indifference
    found = Answer(task.name, goal, "", indifference, without_runs, search=task.search)
    return replace(found, runs_by_status=statuses)


def _answer_by_goal(study: Study, task: QuestionEvidence, goal: str) -> Answer:
    """Return the answer to a question by one goal.

    Args:
        study: The evidence.
        task: The evidence for the question.
        goal: The metric to optimise.
    """
    asked = study.question
    if not {goal, *asked.limits_in_force}.isdisjoint(CAMPAIGN_METRICS):
        task = campaign_answers.add_campaigns(study, task, goal)
    metric = next((row.quality_metric for row in task.all_rows if row.quality_metric), None)
    limits = asked.limits_for(goal, metric)
    found = Answer(task.name, goal, task.goals[goal], asked.indifference, limits=limits)
    ignores_quality = bool(asked.ignored_qualities)
    found = replace(found, trainings=asked.campaign_trainings, ignores_quality=ignores_quality)
    if task.search and goal == task.search.planned.goal:
        found = search_answers.add_search_verdict(study, task, replace(found, search=task.search))
    else:
        found = choosing.choose_configuration(
            study, found, [*candidates.judge_candidates(study, task, found)]
        )
    if found.leader is None:
        return found
    point = found.leader.point
    whole_run = projection_intervals(study).get(point) if goal == TIME else None
    dates = campaign.campaign_of(study, point) if asked.campaign else None
    platform = study.manifest.platforms.get(point.platform)
    has_limit = platform is not None and platform.wide_jobs is not None
    wide_job = wide_jobs.find_short_wide_job(study, point) if has_limit else None
    return replace(found, campaign=dates, whole_run=whole_run, wide_job=wide_job)
