"""The state of each configuration before it is compared: excluded, infeasible, open or compared.

A configuration is out only if its own runs show it (`run_counts.is_ruled_out`). A configuration
that was not run, failed, or has no value keeps the answer open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.campaign_answers import campaign_samples
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.answers.goals import ENERGY, HOURS, WITH_QUEUE
from tfscaling.conclusions.evidence import ConfigurationFacts, QuestionEvidence, Study
from tfscaling.estimation.intervals import CONFIDENCE, count_beyond_limit, keeps_limit
from tfscaling.estimation.run_counts import is_ruled_out
from tfscaling.estimation.samples import Samples
from tfscaling.record.metrics import FINISH_TIME, METRICS, QUALITY
from tfscaling.record.run_states import RunState
from tfscaling.study.config_types import Limit
from tfscaling.tables.comparison import ALL_RUNS_METRICS, DIFFERENT_ENERGIES
from tfscaling.tables.row_types import SEPARATOR, PointRow
from tfscaling.tables.row_values import (
    is_known,
    is_projected,
    metric_of,
    point_of,
)


def create_candidate(
    study: Study, task: QuestionEvidence, goal: str, row: PointRow, state: State | None = None
) -> Candidate:
    """Return a configuration of a question with what its runs show before any comparison.

    Args:
        study: The evidence.
        task: The evidence for the question.
        goal: The metric to optimise.
        row: The configuration's row of the comparison.
        state: Its state; None derives it from its runs.
    """
    point = point_of(row)
    facts = task.facts[point]
    why = facts.excluded
    if state is None:
        state = State.COMPARED
        if row.status == "excluded" or (why and not why.is_open):
            state = State.EXCLUDED
        elif why:
            state = State.OPEN if facts.is_begun else State.NOT_RUN
    reason = why.reason if why else row.reason if row.status == "excluded" else ""
    samples = campaign_samples(study) if goal == FINISH_TIME else study.samples
    return Candidate(
        row,
        facts.name,
        state,
        reason,
        facts.values.get(goal, ""),
        facts.remark,
        len(samples.cost_values(point, goal)),
        details=facts.details,
    )


def judge_candidates(study: Study, task: QuestionEvidence, answer: Answer) -> Iterator[Candidate]:
    """Yield the configurations of a question, each with its state before any comparison.

    The state follows from the limits, from the value of the goal and from the number of runs.

    Args:
        study: The evidence.
        task: The question.
        answer: The answer so far, with goal and limits.
    """
    goal, limits = answer.goal, answer.limits or {}
    samples = campaign_samples(study) if goal == FINISH_TIME else study.samples
    found = [create_candidate(study, task, goal, row) for row in task.rows]
    measured = [each.row for each in found if each.state == State.COMPARED]
    verdicts = len(measured) * len(study.question.limits_in_force)
    parts = _most_common_energy_parts(measured) if goal == ENERGY else None
    for each in found:
        if each.state == State.COMPARED and limits:
            each = judge_limits(each, task.facts[each.point], samples, limits, verdicts)
        if each.state == State.COMPARED:
            each = require_goal_value(each, task.facts[each.point], goal, parts)
        if each.state == State.COMPARED and not samples.has_enough_runs(goal, each.point):
            each = replace(each, state=State.TOO_FEW)
        if each.has_value and goal in ALL_RUNS_METRICS:
            kept = [each.kept_runs, each.row.runs_at_target]
            each = replace(each, kept_runs=min((n for n in kept if n is not None), default=0))
        yield each


def judge_limits(
    candidate: Candidate,
    facts: ConfigurationFacts,
    samples: Samples,
    limits: Mapping[str, Limit],
    verdicts: int,
) -> Candidate:
    """Return the candidate with its state according to the limits.

    COMPARED: its runs show that it keeps all limits. INFEASIBLE: they show that it misses one.
    UNDECIDED: they show neither. OPEN: a value with a limit is unknown.

    Args:
        candidate: The configuration.
        facts: Facts about it from the tables.
        samples: The values of its runs.
        limits: Limits of the question by column.
        verdicts: Number of verdicts, by all limits on all configurations, that hold together.
    """
    error = (1 - CONFIDENCE) / 2 / max(1, verdicts)  # one-sided
    ratios = {name: each for name, each in facts.verdicts.items() if not each.unknown}
    values = {
        name: own
        for name in limits
        if name not in facts.verdicts and (own := samples.values_in_unit(candidate.point, name))
    }
    statuses = samples.status_counts(candidate.point)
    has_endless = statuses[RunState.DIVERGED] or statuses[RunState.DOES_NOT_FIT]
    judged = {
        name: (own, limits[name], error, samples.projection_error(candidate.point, name))
        for name, own in values.items()
    }
    planned = statuses.total()
    is_missed = {n: is_ruled_out(count_beyond_limit(*own), planned) for n, own in judged.items()}
    is_missed |= {name: verdict.is_missed for name, verdict in ratios.items()}
    missed = tuple(name for name in limits if is_missed.get(name))
    # whatever is unknown, a limit that is missed excludes the configuration
    if not missed and (unknown := _find_unknown_limit(candidate, facts, limits, values)):
        name, reason = unknown
        return replace(candidate, state=State.OPEN, reason=reason, unknown_metric=name)
    is_part = {ENERGY} if facts.lacking_energy else set()
    is_kept = {
        name: not has_endless and name not in is_part and keeps_limit(*own)
        for name, own in judged.items()
    }
    is_kept |= {name: verdict.is_kept and not has_endless for name, verdict in ratios.items()}
    undecided = tuple(n for n in limits if n in is_kept and not is_missed[n] and not is_kept[n])
    if not missed + undecided:
        runs = [*map(len, values.values()), *(verdict.runs for verdict in ratios.values())]
        return replace(candidate, kept_runs=min((n for n in runs if n is not None), default=None))
    words = "misses a limit" if missed else "is not shown to keep a limit"
    notes = {name: f" ({verdict.note})" for name, verdict in ratios.items() if verdict.note}
    against = [facts.limited[name] + notes.get(name, "") for name in missed or undecided]
    return replace(
        candidate,
        state=State.INFEASIBLE if missed else State.UNDECIDED,
        reason=f"{words}: {', '.join(against)}",
        missed=missed,
        undecided=undecided,
    )


def _find_unknown_limit(
    candidate: Candidate,
    facts: ConfigurationFacts,
    limits: Mapping[str, Limit],
    values: Mapping[str, Sequence[float]],
) -> tuple[str, str] | None:
    """Return (metric, reason) of a limit that cannot be checked as a value is missing; else None.

    Args:
        candidate: The configuration.
        facts: Facts about it from the tables.
        limits: Limits of the question by column.
        values: Column with a limit → the values of its runs; metrics with a verdict are not among
            them.
    """
    for name, verdict in facts.verdicts.items():
        if verdict.unknown:
            return name, f"no {metric_of(name, candidate.row).title}: {verdict.unknown}"
    row = candidate.row
    for name in limits:
        if name in facts.verdicts:
            continue
        title, known = metric_of(name, row).title, len(values.get(name, ()))
        if not known:
            short = ", which is not projected from short runs" * (
                is_projected(row) and name == QUALITY
            )
            return name, f"reports no {title}{short}"
        # only the quality of a run that resumed from a checkpoint counts
        if known < (runs := row.runs if name == QUALITY else row.runs_timed):
            return name, f"reports {title} in {known} of {runs} runs"
        if name == ENERGY and (reason := _explain_unequal_energies(row)):
            return name, reason
    return None


def _explain_unequal_energies(row: PointRow) -> str:
    """Return the reason for no comparison if energies of runs include different parts; else ""."""
    reasons = row.reason.split(SEPARATOR)
    return next((each for each in reasons if each.startswith(DIFFERENT_ENERGIES)), "")


def _most_common_energy_parts(rows: Sequence[PointRow]) -> str | None:
    """Return the most frequent `energy_of` of rows with an energy; None without such rows."""
    counted = Counter(row.energy_of for row in rows if is_known(row.energy_kwh))
    return next((name for name, _ in counted.most_common(1)), None)


def require_goal_value(
    candidate: Candidate, facts: ConfigurationFacts, goal: str, parts: str | None
) -> Candidate:
    """Return the candidate, excluded from comparison if its runs lack a comparable value.

    Args:
        candidate: The configuration.
        facts: Facts about it from the tables.
        goal: The metric.
        parts: What compared energies include, such as `GPUs and processors`; None for other
            goals, and if no energy is known.
    """
    row = candidate.row
    quality = metric_of(QUALITY, row).title
    if is_known(row[goal]):
        reason = ""
        # only the quality of a run that resumed from a checkpoint counts
        runs = row.runs if goal == QUALITY else row.runs_timed
        if goal == ENERGY and row.energy_of != parts:
            reason = f"its energy includes {row.energy_of}"
        elif goal in (QUALITY, ENERGY) and candidate.runs < runs:
            title = quality if goal == QUALITY else METRICS[goal].title
            reason = f"reports {title} in {candidate.runs} of {runs} runs"
        if not reason:
            return candidate
        return replace(candidate, state=State.OPEN, reason=reason, unknown_metric=goal)
    needed = row.runs if goal in ALL_RUNS_METRICS else 1
    reached, ended = row.runs_at_target, row.runs + (row.runs_diverged or 0)
    unknown = goal
    if goal in ALL_RUNS_METRICS and reached is None:
        reason, unknown = f"reports no {quality}", QUALITY
    elif goal in ALL_RUNS_METRICS and is_ruled_out(
        ended - (reached or 0), row.runs_planned or ended
    ):
        reason = f"reached the target in {reached} of {ended} runs"
        return replace(candidate, state=State.INFEASIBLE, reason=reason)
    elif goal != QUALITY and row.runs_timed < needed:
        reason = "no time that counts" + " of every run" * (goal in ALL_RUNS_METRICS)
    elif goal in ALL_RUNS_METRICS and not facts.is_at_target:
        reason = f"reached the target in {reached} of {ended} runs"
        return replace(candidate, state=State.UNDECIDED, reason=reason)
    elif goal == QUALITY:
        short = ", which is not projected from short runs" * is_projected(row)
        reason = f"no {quality}{short}"
    elif goal in ALL_RUNS_METRICS and not is_known(row.time_to_target_s):
        reason = "no known time to the target"
    else:
        lack = {WITH_QUEUE: "measured wait in a queue", ENERGY: "energy"}.get(goal, "price")
        lack = METRICS[goal].title if goal in HOURS else lack
        reason = (goal == ENERGY and _explain_unequal_energies(row)) or f"no {lack}"
    return replace(candidate, state=State.OPEN, reason=reason, unknown_metric=unknown)
