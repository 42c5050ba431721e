"""Answers by campaigns: the goal `finish_time_s`, and limits of it and of `campaign_cost_usd`.

The value of a configuration is the median duration, or cost, of its simulated campaigns
(`conclusions.campaign`). A limit is kept, or missed, if all campaigns but the share of the error
rate are below it, or above it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfscaling.conclusions import campaign
from tfscaling.conclusions.answers.details import describe_metrics
from tfscaling.conclusions.answers.efficiency import Verdict
from tfscaling.conclusions.campaign import NEVER_ENDS, CampaignRow, CampaignValues
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
from tfscaling.study.config_types import CAMPAIGN_METRICS, Limit
from tfscaling.tables.display import limit_text
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, point_of


class RowWithCampaign(PointRow):
    """A row of the comparison with time and cost of all trainings.

    Ends of intervals are as in the table of campaigns. Values are NaN without simulated campaigns,
    or if more of them never end than the interval leaves out.

    Attributes:
        finish_time_s: Median duration of the simulated campaigns in seconds.
        finish_time_s_low: Lower end of its interval.
        finish_time_s_high: Upper end of this interval.
        campaign_cost_usd: Median cost of the simulated campaigns in US dollars; NaN without a
            price, too.
        campaign_cost_usd_low: Lower end of its interval.
        campaign_cost_usd_high: Upper end of this interval.
    """

    finish_time_s: float = NAN
    finish_time_s_low: float = NAN
    finish_time_s_high: float = NAN
    campaign_cost_usd: float = NAN
    campaign_cost_usd_low: float = NAN
    campaign_cost_usd_high: float = NAN


def add_campaigns(study: Study, task: QuestionEvidence, goal: str) -> QuestionEvidence:
    """Return the evidence for a question with time and cost of all trainings.

    They are added to rows and facts. They are needed if one of them is the goal or has a limit.

    Args:
        study: The evidence.
        task: The evidence for the question.
        goal: The metric to optimise.
    """
    limits = study.question.limits_in_force
    limited = [name for name in CAMPAIGN_METRICS if name in limits]
    found, simulated = campaign.campaign_rows(study), campaign.campaign_values(study)
    statements = len(simulated) * max(1, len(limits))
    rows, facts = [], dict(task.facts)
    for row in task.rows:
        point = point_of(row)
        own = found.get(point)
        rows.append(_add_campaign_to_row(row, own))
        if own is None or facts[point].excluded:
            continue
        if goal == FINISH_TIME:
            facts[point] = _add_goal_value(facts[point], own)
        reported = dict.fromkeys([FINISH_TIME, *limited])
        described = describe_metrics(study.samples, rows[-1], reported)
        texts = {name: limit_text(name, rows[-1], limits[name]) for name in limited}
        verdicts = {
            name: _judge_campaign(simulated.get(point), name, limits[name], own.reason, statements)
            for name in limited
        }
        facts[point] = replace(
            facts[point],
            details={**facts[point].details, **described},
            limited={**facts[point].limited, **texts},
            verdicts={**facts[point].verdicts, **verdicts},
        )
    return replace(task, rows=rows, facts=facts)


def _add_campaign_to_row(row: PointRow, own: CampaignRow | None) -> RowWithCampaign:
    """Return a row of the comparison with time and cost of all trainings, if they are known.

    Args:
        row: The row.
        own: The campaign with its configuration; None without one.
    """
    values = {name: getattr(row, name) for name in PointRow.__struct_fields__}
    if own is None:
        return RowWithCampaign(**values)
    return RowWithCampaign(
        **values,
        finish_time_s=own.duration_s,
        finish_time_s_low=own.duration_s_low,
        finish_time_s_high=own.duration_s_high,
        campaign_cost_usd=own.cost_usd,
        campaign_cost_usd_low=own.cost_usd_low,
        campaign_cost_usd_high=own.cost_usd_high,
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


def _judge_campaign(
    simulated: CampaignValues | None, name: str, limit: Limit, reason: str, statements: int
) -> Verdict:
    """Return whether a configuration keeps the limit of a metric of its campaign.

    Args:
        simulated: Its simulated campaigns; None without any.
        name: The metric, one of CAMPAIGN_METRICS.
        limit: The limit, an `at_most`.
        reason: Why there are no campaigns.
        statements: Number of statements that are all true with CONFIDENCE.
    """
    if simulated is None:
        return Verdict(unknown=reason)
    values = simulated.durations_s if name == FINISH_TIME else simulated.costs_usd
    if values is None:
        return Verdict(unknown="no price")
    return judge_simulated(values, limit, statements)


def judge_simulated(values: Array, limit: Limit, statements: int) -> Verdict:
    """Return whether a campaign keeps a limit, according to simulated campaigns.

    Args:
        values: The limited metric of the simulated campaigns.
        limit: The limit, an `at_most`.
        statements: Number of statements that are all true with CONFIDENCE.
    """
    above = float(np.mean(values > limit.value))
    error = (1 - CONFIDENCE) / 2 / statements
    return Verdict(is_kept=above <= error, is_missed=above >= 1 - error)


def campaign_samples(study: Study) -> CampaignSamples:
    """Return the study's samples with the durations of simulated campaigns, for FINISH_TIME."""
    plain = {name: getattr(study.samples, name) for name in Samples.__dataclass_fields__}
    found = campaign.campaign_values(study).items()
    durations_s = {point: values.durations_s for point, values in found}
    return CampaignSamples(**plain, durations_s=durations_s)
