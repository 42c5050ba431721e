"""Answers by the moment when all trainings are done: the goal and the limit `finish_time_s`.

The value of a configuration is the median duration of its simulated campaigns
(`conclusions.campaign`). A limit is kept, or missed, if all campaigns but the share of the error
rate are done before it, or after it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfscaling.conclusions import campaign
from tfscaling.conclusions.answers.details import describe_metrics
from tfscaling.conclusions.answers.efficiency import Verdict
from tfscaling.conclusions.campaign import NEVER_ENDS, CampaignRow
from tfscaling.conclusions.evidence import (
    ComparisonExclusion,
    ConfigurationFacts,
    QuestionEvidence,
    Study,
)
from tfscaling.estimation.finish_times import CampaignSamples
from tfscaling.estimation.intervals import CONFIDENCE, Array
from tfscaling.estimation.samples import Samples
from tfscaling.record.metrics import FINISH_TIME, NAN
from tfscaling.study.config_types import Limit
from tfscaling.tables.display import limit_text
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, point_of


class FinishRow(PointRow):
    """A row of the comparison with the time until all trainings are done.

    Attributes:
        finish_time_s: Median duration of the simulated campaigns in seconds; NaN without any, or
            if the median one never ends.
        finish_time_s_low: Lower end of its interval, as in the table of campaigns.
        finish_time_s_high: Upper end of this interval.
    """

    finish_time_s: float = NAN
    finish_time_s_low: float = NAN
    finish_time_s_high: float = NAN


def add_finish_times(study: Study, task: QuestionEvidence, goal: str) -> QuestionEvidence:
    """Return the evidence for a question with the time until all trainings are done.

    The time is added to rows and facts. It is needed if it is the goal or has a limit.

    Args:
        study: The evidence.
        task: The evidence for the question.
        goal: The metric to optimise.
    """
    limit = study.question.limits_in_force.get(FINISH_TIME)
    found, durations = campaign.campaign_rows(study), campaign.campaign_durations(study)
    statements = len(durations) * max(1, len(study.question.limits_in_force))
    rows, facts = [], dict(task.facts)
    for row in task.rows:
        point = point_of(row)
        own = found.get(point)
        rows.append(_to_finish_row(row, own))
        if own is None or facts[point].excluded:
            continue
        if goal == FINISH_TIME:
            facts[point] = _add_goal_value(facts[point], own)
        described = describe_metrics(study.samples, rows[-1], [FINISH_TIME])
        facts[point] = replace(facts[point], details={**facts[point].details, **described})
        if limit is not None:
            verdict = judge_finish(durations.get(point), limit, own.reason, statements)
            text = limit_text(FINISH_TIME, rows[-1], limit)
            facts[point] = replace(
                facts[point],
                limited={**facts[point].limited, FINISH_TIME: text},
                verdicts={**facts[point].verdicts, FINISH_TIME: verdict},
            )
    return replace(task, rows=rows, facts=facts)


def _to_finish_row(row: PointRow, own: CampaignRow | None) -> FinishRow:
    """Return a row of the comparison with the time until all trainings are done, if known.

    Args:
        row: The row.
        own: The campaign with its configuration; None without one.
    """
    values = {name: getattr(row, name) for name in PointRow.__struct_fields__}
    if own is None:
        return FinishRow(**values)
    return FinishRow(
        **values,
        finish_time_s=own.duration_s,
        finish_time_s_low=own.duration_s_low,
        finish_time_s_high=own.duration_s_high,
    )


def _add_goal_value(facts: ConfigurationFacts, own: CampaignRow) -> ConfigurationFacts:
    """Return a configuration's facts with its value of the goal FINISH_TIME, as text.

    The value is the moment at which all trainings of the campaign are done, in the median of its
    simulations. A configuration without this median is excluded with the reason: no campaign was
    simulated with it, or the median campaign never ends.

    Args:
        facts: The facts about the configuration.
        own: The campaign with this configuration.
    """
    if is_known(own.duration_s):
        text = campaign.median_text(own)
        return replace(facts, values={**facts.values, FINISH_TIME: text})
    reason = own.reason or "trainings may not end"
    return replace(facts, excluded=ComparisonExclusion(reason, own.status != NEVER_ENDS))


def judge_finish(durations_s: Array | None, limit: Limit, reason: str, statements: int) -> Verdict:
    """Return whether a configuration keeps a limit of the time until all trainings are done.

    Args:
        durations_s: Durations of its simulated campaigns; None without any.
        limit: The limit, an `at_most`.
        reason: Why there are no campaigns.
        statements: Number of statements that are all true with CONFIDENCE.
    """
    if durations_s is None:
        return Verdict(unknown=reason)
    late = float(np.mean(durations_s > limit.value))
    error = (1 - CONFIDENCE) / 2 / statements
    return Verdict(is_kept=late <= error, is_missed=late >= 1 - error)


def campaign_samples(study: Study) -> CampaignSamples:
    """Return the study's samples with the durations of simulated campaigns, for FINISH_TIME."""
    plain = {name: getattr(study.samples, name) for name in Samples.__dataclass_fields__}
    return CampaignSamples(**plain, durations_s=campaign.campaign_durations(study))
