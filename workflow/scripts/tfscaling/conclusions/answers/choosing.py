"""The choice of the recommended configuration, by comparison of the ones that keep the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfscaling.conclusions.answers import settling
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.campaign_answers import campaign_samples
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.goal_comparison import GoalComparison, compare_by_goal, rank_by_metric
from tfscaling.estimation.samples import (
    INCONCLUSIVE,
    NOT_COMPARED,
    NOT_MEASURED,
    SUPPORTED,
    TOO_FEW,
    Samples,
    weakest_support,
)
from tfscaling.record.metrics import FINISH_TIME
from tfscaling.tables.row_values import axes_without_nodes, group_by, is_known, point_of


def choose_configuration(study: Study, answer: Answer, candidates: Sequence[Candidate]) -> Answer:
    """Compare the configurations that keep the limits; return the answer with the best one.

    Args:
        study: The evidence.
        answer: The answer so far, with goal and limits.
        candidates: The configurations with their states.
    """
    goal = answer.goal
    samples = campaign_samples(study) if goal == FINISH_TIME else study.samples
    by_point = {each.point: each for each in candidates}
    known = rank_by_metric(goal, [each.row for each in candidates if each.has_value])
    order = [*map(point_of, known), *(p for p, each in by_point.items() if not each.has_value)]
    answer = replace(answer, candidates=tuple(by_point[point] for point in order))
    if not known:
        has_any = any(
            is_known(each.row[goal]) or each.state in (State.INFEASIBLE, State.UNDECIDED)
            for each in candidates
        )
        support = INCONCLUSIVE if answer.is_open else NOT_COMPARED
        answer = replace(answer, support=support if has_any else NOT_MEASURED)
        return replace(answer, repeats=settling.repeats_to_settle(study, answer))
    compared = [row for row in known if by_point[point_of(row)].state == State.COMPARED]
    if by_point[point_of(known[0])].state == State.TOO_FEW:
        is_alone = not (known[1:] or answer.has_undecided)
        support = NOT_COMPARED if is_alone else TOO_FEW
        answer = replace(answer, leader=by_point[point_of(known[0])], support=support)
    else:
        undecided = [each.point for each in candidates if each.state == State.UNDECIDED]
        found = compare_by_goal(goal, compared, samples, answer.indifference, undecided)
        answer = _add_comparison(answer, found)
    answer = _add_rival(answer, samples)
    return replace(answer, repeats=settling.repeats_to_settle(study, answer))


def _add_comparison(answer: Answer, comparison: GoalComparison) -> Answer:
    """Return the answer with the recommended configuration and the others' differences from it.

    Args:
        answer: The answer so far, with its candidates.
        comparison: The chosen configuration, and its differences from others.
    """
    taken, against = point_of(comparison.chosen), comparison.differences or {}
    equals = {*map(point_of, comparison.near_best_others)}

    by_point = {}
    for each in answer.candidates:
        point, difference = each.point, against.get(each.point)
        if point in comparison.shown_worse_rivals:
            reason = f"is worse, and {each.reason}"
            by_point[point] = replace(each, state=State.EXCLUDED, reason=reason)
            continue
        is_alike = difference is not None and not difference.shows_worse
        by_point[point] = replace(
            each, difference=difference, is_near_best=point in equals, is_not_shown_worse=is_alike
        )
    candidates = tuple(by_point.values())
    is_only = (
        not comparison.comparisons
        and not answer.with_few_runs
        and any(each.state == State.INFEASIBLE for each in candidates)
    )
    is_only |= bool(comparison.shown_worse_rivals) and not against
    has_compared = bool(against)
    is_near = comparison.bound is not None and comparison.bound <= answer.indifference
    answer = replace(
        answer,
        candidates=candidates,
        recommended=by_point[taken],
        leader=by_point[taken],
        bound=comparison.bound,
        is_best=comparison.is_best if has_compared else False,
        is_only_feasible=is_only,
        choice_reason=comparison.choice_reason,
        next_best=by_point[point_of(comparison.others_by_estimate[0])]
        if comparison.others_by_estimate
        else None,
        comparisons=comparison.comparisons,
    )
    is_near_best = is_near and (has_compared or is_only) and not answer.with_few_runs
    answer = replace(answer, is_near_best=is_near_best)
    support = weakest_support(
        [SUPPORTED]
        + [NOT_COMPARED] * (not has_compared and not is_only and not answer.has_undecided)
        + [TOO_FEW] * bool(answer.with_few_runs)
        + [INCONCLUSIVE] * (answer.is_open or not is_near or not answer.leader_keeps_limits)
    )
    return replace(answer, support=support)


def _add_rival(answer: Answer, samples: Samples) -> Answer:
    """Return the answer with its `rival`, with which a headline compares the leader.

    It is on the leader's line, with the fewest nodes, or with the most if the leader has the
    fewest. If the leader is alone on its line, the rival is the best of the other configurations.
    """
    taken, compared = answer.leader, answer.candidates_with_value
    if taken is None or answer.support == NOT_COMPARED:
        return answer
    lines = group_by((each.row for each in compared), axes_without_nodes)
    line = sorted(lines[axes_without_nodes(taken.row)], key=lambda row: row.nodes)
    ends = [line[-1] if taken.row is line[0] else line[0], *(each.row for each in compared)]
    other = next((row for row in ends if row is not taken.row), None)
    rival = next((each for each in compared if each.row is other), None)
    if rival and rival.difference is None:  # the two were not compared yet
        pair = taken.point, rival.point
        (difference,) = samples.compare_pairs(answer.goal, [pair], max(1, len(compared) - 1))
        rival = replace(rival, difference=difference)
    return replace(answer, rival=rival)
