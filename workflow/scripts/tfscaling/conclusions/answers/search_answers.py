"""The answer of a question with a search: the search's verdict, as states of candidates."""

from __future__ import annotations

import math
from dataclasses import replace

from tfscaling.conclusions.answers import candidates
from tfscaling.conclusions.answers.answer_types import BY_LINE, Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.evidence import QuestionEvidence, Study
from tfscaling.conclusions.goal_comparison import rank_by_metric
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED, TOO_FEW
from tfscaling.search.search_types import Reason
from tfscaling.search.study_searches import StudySearch
from tfscaling.tables.comparison import ALL_RUNS_METRICS, DIFFERENT_WORK
from tfscaling.tables.row_values import point_of
from tfscaling.tables.runs_table import NOT_RUN


def add_search_verdict(study: Study, task: QuestionEvidence, answer: Answer) -> Answer:
    """Return the answer with the configuration that its search recommends so far.

    Args:
        study: The evidence.
        task: The evidence for the question, with its search.
        answer: The answer so far, with goal, limits and search.
    """
    search = task.search
    assert search is not None
    verdict = search.decision
    name_of = {point: name for name, point in search.points.items()}
    rows = {point_of(row): row for row in reversed(task.all_rows)}
    found = []
    for point, row in rows.items():
        each = candidates.create_candidate(study, task, answer.goal, row)
        each = _set_state_from_search(each, search, name_of.get(point))
        ended = row.runs + (row.runs_diverged or 0)
        if each.state == State.COMPARED and ended > verdict.runs.get(name_of.get(point, ""), ended):
            each = _judge_further_runs(study, task, answer, each)
        found.append(each)
    known = [each for each in found if each.has_value]
    order = [*map(point_of, rank_by_metric(answer.goal, [each.row for each in known]))]
    found.sort(key=lambda each: order.index(each.point) if each.point in order else len(order))
    answer = replace(answer, candidates=tuple(found))
    best = search.points.get(verdict.best or "")
    taken = next((each for each in known if each.point == best), None)
    if taken is None:
        return replace(answer, support=INCONCLUSIVE if verdict.has_ended else TOO_FEW)
    bound = answer.indifference if verdict.is_decided else verdict.bound
    survivors = {search.points[name] for name in verdict.survivors if name != verdict.best}
    alike = [
        replace(each, is_not_shown_worse=each.has_value and each.point in survivors)
        for each in found
    ]
    answer = replace(
        answer,
        candidates=tuple(alike),
        recommended=taken,
        leader=taken,
        is_near_best=verdict.is_decided,
        bound=bound if math.isfinite(bound) else None,
        comparisons=len(search.points) - 1,
    )
    is_sure = verdict.is_decided and not answer.is_open and answer.leader_keeps_limits
    return replace(answer, support=SUPPORTED if is_sure else INCONCLUSIVE)


def _set_state_from_search(
    candidate: Candidate, search: StudySearch, name: str | None
) -> Candidate:
    """Return the candidate with the state and reason that follow from the search's decision.

    Args:
        candidate: The configuration.
        search: The search.
        name: The configuration's name in the search; None if the search does not have it.
    """
    verdict, goal = search.decision, search.planned.goal
    if candidate.point in search.points_with_less_work:
        return replace(candidate, state=State.OPEN, reason=DIFFERENT_WORK)
    if name is None:
        return candidate
    took = f", its valid runs {candidate.value}" if candidate.value else ""
    if candidate.reason.startswith(f"{NOT_RUN}:"):  # a smaller batch did not fit
        return candidate
    if reason := verdict.failed.get(name):
        state = State.EXCLUDED
        if name in verdict.unresolved:
            state = State.UNDECIDED if reason is Reason.NOT_SHOWN else State.OPEN
        return replace(candidate, state=state, reason=f"{reason}{took}")
    standing = verdict.standings[name]
    out = standing.reason
    if out is Reason.NOT_ALLOWED:
        return replace(candidate, state=State.INFEASIBLE, reason=str(out))
    if not candidate.runs and (verdict.is_decided or out is Reason.BY_ITS_LINE):
        return replace(candidate, state=State.EXCLUDED, reason=BY_LINE)
    if not candidate.runs:
        otherwise = "not run" if verdict.not_worth_it else "not run yet"
        return replace(candidate, state=State.NOT_RUN, reason=candidate.reason or otherwise)
    # further runs, which the search has not needed, rule it out
    if candidate.state == State.EXCLUDED:
        return candidate
    may_miss = bool(search.planned.limits) or goal in ALL_RUNS_METRICS
    kept_runs = standing.runs if may_miss else None
    return replace(candidate, state=State.COMPARED, reason="", kept_runs=kept_runs)


def _judge_further_runs(
    study: Study, task: QuestionEvidence, answer: Answer, candidate: Candidate
) -> Candidate:
    """Return a candidate that has more runs than the search used: as infeasible if they show it.

    Args:
        study: The evidence.
        task: The evidence for the question.
        answer: The answer so far, with goal and limits.
        candidate: The candidate, which the search compares.
    """
    facts, limits, judged = task.facts[candidate.point], answer.limits or {}, candidate
    verdicts = len(task.rows) * len(study.question.limits_in_force)
    if limits:
        judged = candidates.judge_limits(candidate, facts, study.samples, limits, verdicts)
    if judged.state == State.COMPARED:
        judged = candidates.require_goal_value(judged, facts, answer.goal, None)
    return judged if judged.state == State.INFEASIBLE else candidate
