"""The date on which all trainings of `question.campaign` are done, and their cost.

Each configuration with enough runs has an interval of the duration, node-hours and cost of all
trainings, from simulated campaigns (`estimation.campaigns`).
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.campaigns import (
    JOBS_MAX,
    LEVEL,
    CampaignPlan,
    MeasuredRuns,
    SimulatedCampaigns,
    interval_ends,
    simulate_campaigns,
)
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL, Array
from tfscaling.record.metrics import NAN
from tfscaling.record.run_states import RunState
from tfscaling.study.config_types import Campaign, parse_duration
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import (
    MISSING,
    FormattedNumber,
    TextTable,
    axis_text,
    count_text,
    duration_text,
    format_simulated,
    format_three_digits,
)
from tfscaling.tables.row_types import ConfigurationRow, PointRow, RunRow, Text, columns
from tfscaling.tables.row_values import axes_and_devices, is_known, is_projected, point_of
from tfscaling.tables.table_files import to_frame, to_rows

SIMULATED, TOO_FEW_RUNS, NOT_COMPARED, NEVER_ENDS = (
    "simulated",
    "too few runs",
    "not compared",
    "never ends",
)
#: Source of the waits in the queue.
OWN_WAITS, PLATFORM_WAITS, SHORT_WAITS, NO_WAITS = (
    "measured",
    "measured on the platform",
    "of short jobs, a lower bound",
    "not included",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class CampaignRow(ConfigurationRow):
    """The end and the cost of a campaign whose trainings all use one configuration.

    Columns that end in `_low` and `_high` are the ends of the 90 % interval of the simulated
    campaigns: 5 % of them are below `_low`, and 95 % below `_high`. A value is null if the campaign
    at this place of the order never ends, or if none was simulated.

    Attributes:
        runs: Number of valid runs with times.
        status: `simulated`, or why no duration is known: `too few runs`, `not compared` or `never
            ends`.
        reason: Explanation of the status; "" for `simulated`.
        trainings: Number of trainings.
        at_once: Highest number of trainings that have a job in the queue or running.
        training_time_s: Median time of a job that makes a complete training, in seconds.
        startup_s: Time before a job trains, in seconds; null if it was not measured, and the
            simulation then uses 0.
        failed_attempts: Number of failed or cancelled attempts at the runs.
        waits: Source of the waits in the queue: `measured`, `measured on the platform`, `of short
            jobs, a lower bound` or `not included`.
        duration_s: Median time from the start of the campaign until all trainings are done, in
            seconds.
        done: Date and time at which all trainings are done, by the median; null if the campaign
            has no `start`, or without a duration.
        jobs: Mean number of jobs of a campaign.
        unfinished: Mean number of trainings of a campaign that never end.
    """

    runs: int
    status: str
    reason: Text
    trainings: int
    at_once: int
    training_time_s: float = NAN
    startup_s: float = NAN
    failed_attempts: int = 0
    waits: str = NO_WAITS
    duration_s: float = NAN
    duration_s_low: float = NAN
    duration_s_high: float = NAN
    done: str | None = None
    done_low: str | None = None
    done_high: str | None = None
    node_hours: float = NAN
    node_hours_low: float = NAN
    node_hours_high: float = NAN
    cost_usd: float = NAN
    cost_usd_low: float = NAN
    cost_usd_high: float = NAN
    jobs: float = NAN
    unfinished: float = NAN

    @property
    def is_simulated(self) -> bool:
        """Whether campaigns were simulated, even if none of them ends."""
        return self.status in (SIMULATED, NEVER_ENDS)

    @property
    def node_hours_text(self) -> str:
        """The node-hours of all trainings with the interval, `51.3 (49.8–60.2)`."""
        return format_simulated(self.node_hours, self.node_hours_low, self.node_hours_high)

    @property
    def cost_text(self) -> str:
        """The cost of all trainings in US dollars with the interval, `410 (385–440)`."""
        return format_simulated(self.cost_usd, self.cost_usd_low, self.cost_usd_high)

    @property
    def has_date(self) -> bool:
        """Whether `duration_s` is known: the median campaign ends."""
        return is_known(self.duration_s)

    def __str__(self) -> str:
        """Return the date and cost of all trainings as a sentence, or why there is no date."""
        what = f"{count_text(self.trainings, 'training')} on {axis_text('nodes', self)}"
        at_once = f", {self.at_once} at once" if self.at_once > 1 else ""
        if not self.has_date:
            return f"{what}{at_once}: no date ({self.reason or 'trainings may not end'})."
        known = is_known(self.cost_usd)
        cost = f"{self.cost_text} US dollars" if known else f"{self.node_hours_text} node-hours"
        waits = "" if self.waits == OWN_WAITS else f" (waits in the queue: {self.waits})"
        return f"{what}{at_once}: done {_end_text(self)}, {cost}{waits}."


COLUMNS = tuple(columns(CampaignRow))


@dataclass(frozen=True)
class CampaignValues:
    """What simulated campaigns with one configuration take and cost, arrays of shape (campaigns,).

    Attributes:
        durations_s: Time from the start until all trainings are done, in seconds; infinite if one
            never is.
        costs_usd: Cost of all jobs in US dollars, infinite if a training never ends; None without a
            price.
    """

    durations_s: Array
    costs_usd: Array | None


def table(study: Study) -> pd.DataFrame:
    """Return one `CampaignRow` for each configuration that the grid does not exclude.

    Without `question.campaign` it has no rows.
    """
    return to_frame(CampaignRow, [*campaign_rows(study).values()])


def campaign_rows(study: Study) -> dict[Point, CampaignRow]:
    """Return configuration → its `CampaignRow`; empty without `question.campaign`."""
    return {point: row for point, (row, _) in _simulate_study(study).items()}


def campaign_values(study: Study) -> dict[Point, CampaignValues]:
    """Return configuration → durations and costs of its simulated campaigns.

    Configurations without enough runs are left out.
    """
    found = _simulate_study(study).items()
    return {point: values for point, (_, values) in found if values is not None}


@functools.lru_cache(maxsize=1)  # answers, headline and table show the same campaigns
def _simulate_study(study: Study) -> dict[Point, tuple[CampaignRow, CampaignValues | None]]:
    """Return configuration → its `CampaignRow`, and the values of its simulated campaigns.

    The values are None for a configuration that was not simulated.
    """
    campaign = study.question.campaign
    if campaign is None:
        return {}
    rows = [row for row in study.points if row.status != "excluded"]
    return {point_of(row): _simulate_configuration(study, campaign, row) for row in rows}


def _simulate_configuration(
    study: Study, campaign: Campaign, row: PointRow
) -> tuple[CampaignRow, CampaignValues | None]:
    """Return the row of a configuration, and the durations and costs of its campaigns.

    The values are None if the configuration has too few runs or is not compared.

    Args:
        study: The evidence.
        campaign: How the trainings are run.
        row: The configuration.
    """
    point = point_of(row)
    timed = [run for run in study.runs_by_point.get(point, ()) if is_timed(run)]
    found = CampaignRow(
        **axes_and_devices(row),
        runs=len(timed),
        status=SIMULATED,
        reason="",
        trainings=study.question.campaign_trainings,
        at_once=campaign.at_once,
    )
    if point in study.excluded:
        found.status, found.reason = NOT_COMPARED, study.excluded[point].reason
    elif len(timed) < RUNS_FOR_INTERVAL:
        found.status = TOO_FEW_RUNS
        number = count_text(len(timed), "run")
        found.reason = f"{number} with times, {RUNS_FOR_INTERVAL} are needed"
    else:
        runs = _summarize_runs(study, row, timed, found)
        plan = _plan_of_configuration(campaign, found)
        simulated = simulate_campaigns(plan, runs)
        costs_usd = _campaign_costs(row.nodes, simulated, study.prices.get(point))
        _add_simulation(found, plan, simulated, costs_usd)
        _add_dates(found, campaign.start)
        return found, CampaignValues(simulated.durations_s, costs_usd)
    return found, None


def is_timed(run: RunRow) -> bool:
    """Return whether a run counts and has a time."""
    return run.status == RunState.OK and is_known(run.execution_time_s)


def _plan_of_configuration(campaign: Campaign, row: CampaignRow) -> CampaignPlan:
    """Return the plan of the campaign, with the interruptions of all nodes of a configuration."""

    def seconds(text: str | None) -> float:
        return math.inf if text is None else parse_duration(text)

    per_node = campaign.spot.interruptions_per_hour if campaign.spot else 0.0
    return CampaignPlan(
        row.trainings,
        row.at_once,
        seconds(campaign.time_limit),
        seconds(campaign.checkpoint_every),
        row.nodes * per_node,
    )


def _summarize_runs(
    study: Study, row: PointRow, timed: Sequence[RunRow], found: CampaignRow
) -> MeasuredRuns:
    """Return times, waits and failures of a configuration's runs, which a simulation needs.

    The columns of `found` about these runs are set.

    Args:
        study: The evidence.
        row: The configuration.
        timed: Its valid runs with times.
        found: Its row of the table of campaigns, which is changed.
    """
    times_s = [job_time_s(run) for run in timed]
    startups_s = [
        max(0.0, time_s - _trained_time_s(run))
        for time_s, run in zip(times_s, timed, strict=True)
        if is_known(run.train_time_s)
    ]
    errors = [_known_or_zero(run.projection_error_s) / run.execution_time_s for run in timed]
    runs = study.runs_by_point[point_of(row)]
    found.training_time_s = median(times_s)
    found.startup_s = median(startups_s) if startups_s else NAN
    found.failed_attempts = sum(run.failed_attempts for run in runs)
    found.waits, waits_s = _select_waits(study, row)
    hours = (
        sum(_known_or_zero(run.wall_time_s) + _known_or_zero(run.lost_time_s) for run in runs)
        / 3600
    )
    return MeasuredRuns(
        times_s,
        _known_or_zero(found.startup_s),
        math.sqrt(fmean(error**2 for error in errors)),
        waits_s,
        found.failed_attempts,
        hours,
    )


def job_time_s(run: RunRow) -> float:
    """Return the time of a job that makes a run's complete training, in seconds.

    For a short run, it is the projected time of the training and of its evaluations. For other
    runs it includes start and end of the job.
    """
    trained_s = run.execution_time_s + _known_or_zero(run.evaluation_time_s)
    return trained_s if is_projected(run) else max(trained_s, _known_or_zero(run.wall_time_s))


def _trained_time_s(run: RunRow) -> float:
    """Return the seconds of a run's steps and evaluations, whose results a checkpoint keeps.

    All other time is start-up, which each further job of a training repeats. `train_time_s` lacks
    the first step: it counts as long as an ordinary step here, and the rest of it is start-up.
    """
    first_s = _known_or_zero(run.step_time_s)
    return run.train_time_s + first_s + _known_or_zero(run.evaluation_time_s)


def _known_or_zero(value: float) -> float:
    """Return a value, or 0 if it is not known."""
    return value if is_known(value) else 0.0


def _select_waits(study: Study, row: PointRow) -> tuple[str, list[float]]:
    """Return the source of the waits before a configuration's jobs, and the waits in seconds.

    The waits are from runs of the configuration, or from all runs on its platform if too few runs
    of the configuration have one. They include the boot of nodes. The source is one of OWN_WAITS,
    PLATFORM_WAITS, SHORT_WAITS and NO_WAITS.
    """
    of_platform = [run for run in study.run_rows if run.platform == row.platform]
    for source, runs in (
        (OWN_WAITS, study.runs_by_point[point_of(row)]),
        (PLATFORM_WAITS, of_platform),
    ):
        waits_s = [
            r.queue_time_s + _known_or_zero(r.boot_time_s) for r in runs if is_known(r.queue_time_s)
        ]
        if len(waits_s) >= RUNS_FOR_INTERVAL:
            return (SHORT_WAITS if is_projected(row) else source), waits_s
    return NO_WAITS, []


def _campaign_costs(nodes: int, simulated: SimulatedCampaigns, price: float | None) -> Array | None:
    """Return the cost of each simulated campaign in US dollars; None without a price.

    Args:
        nodes: Number of nodes of a job.
        simulated: The simulated campaigns.
        price: US dollars per node and hour; None without a price.
    """
    if price is None:
        return None
    never_ends = np.isinf(simulated.job_hours)
    finite_hours = np.where(never_ends, 0.0, simulated.job_hours)  # infinity times zero is NaN
    return np.where(never_ends, np.inf, price * nodes * finite_hours)


def _add_simulation(
    row: CampaignRow, plan: CampaignPlan, simulated: SimulatedCampaigns, costs_usd: Array | None
) -> None:
    """Set the columns of a row that follow from simulated campaigns.

    Args:
        row: The row.
        plan: How the trainings are run.
        simulated: The simulated campaigns.
        costs_usd: Their costs in US dollars; None without a price.
    """
    row.jobs, row.unfinished = float(simulated.jobs.mean()), float(simulated.unfinished.mean())
    if not np.isfinite(simulated.durations_s).any():
        row.status, row.reason = NEVER_ENDS, _never_ends_reason(row, plan)
    durations = _finite_ends(simulated.durations_s)
    row.duration_s_low, row.duration_s, row.duration_s_high = durations
    hours = _finite_ends(row.nodes * simulated.job_hours)
    row.node_hours_low, row.node_hours, row.node_hours_high = hours
    if costs_usd is not None:
        row.cost_usd_low, row.cost_usd, row.cost_usd_high = _finite_ends(costs_usd)


def _finite_ends(values: np.ndarray) -> list[float]:
    """Return lower end, median and upper end of simulated values, NaN in place of infinity."""
    return [value if math.isfinite(value) else NAN for value in interval_ends(values)]


def _never_ends_reason(row: CampaignRow, plan: CampaignPlan) -> str:
    """Return why no simulated campaign ends."""
    if not row.jobs and math.isfinite(plan.checkpoint_every_s):
        limit = duration_text(plan.time_limit_s)
        return f"a job ends after {limit}, with its start-up before the first checkpoint"
    if row.training_time_s <= plan.time_limit_s or math.isfinite(plan.checkpoint_every_s):
        return f"trainings are not done after {JOBS_MAX:,} jobs"
    taken, limit = duration_text(row.training_time_s), duration_text(plan.time_limit_s)
    return f"a training takes {taken}, a job ends after {limit}, and there are no checkpoints"


def _add_dates(row: CampaignRow, start: str | None) -> None:
    """Set the dates at which all trainings are done, in the time zone of `start`, if it is set."""
    if start is not None:
        row.done_low, row.done, row.done_high = (
            moment_after(start, seconds)
            for seconds in (row.duration_s_low, row.duration_s, row.duration_s_high)
        )


def moment_after(start: str, seconds: float) -> str | None:
    """Return the moment that is `seconds` after a start, to the minute; None if they are unknown.

    Args:
        start: A `Moment` of the configuration; local time without an offset from UTC.
        seconds: The time since the start.
    """
    began = datetime.datetime.fromisoformat(start)
    if not is_known(seconds):
        return None
    try:  # by seconds since 1970, as clocks may change in between
        moment = datetime.datetime.fromtimestamp(began.timestamp() + seconds, began.tzinfo)
    except (ValueError, OverflowError):  # beyond the year 9999
        return None
    return (moment if began.tzinfo else moment.astimezone()).isoformat(timespec="minutes")


def _moment_text(moment: str | None) -> str:
    """Return a moment as weekday, date and time, `Friday 2026-12-04 14:00`."""
    if moment is None:
        return MISSING
    parsed = datetime.datetime.fromisoformat(moment)
    return f"{_DAYS[parsed.weekday()]} {parsed:%Y-%m-%d %H:%M}"


def campaign_of(study: Study, point: Point) -> CampaignRow | None:
    """Return the row of the campaign with a configuration; None without a campaign.

    If the configuration has too few complete runs, it is the row of its short runs in a search.
    """
    simulated = _simulate_study(study)
    if point not in simulated:
        return None
    row, _ = simulated[point]
    if row.status == TOO_FEW_RUNS:  # a search may have short runs of the configuration
        searched = (each for search in study.manifest.searches for each in search.points)
        shorts = [each.short for each in searched if each.point == point and each.short]
        row = next((simulated[short][0] for short in shorts if short in simulated), row)
    return row


def median_text(row: CampaignRow) -> str:
    """Return when a campaign ends, by its median: as a date, or as time since the start."""
    if row.done is None:
        return f"after {duration_text(row.duration_s)}"
    return f"on {_moment_text(row.done)}"


def _end_text(row: CampaignRow) -> str:
    """Return when a campaign ends, with the interval: as dates, or as time since the start."""
    if row.done is None:
        low, high = duration_text(row.duration_s_low), _duration_text(row.duration_s_high)
    else:
        low, high = _moment_text(row.done_low), _moment_text(row.done_high)
    return f"{median_text(row)} ({LEVEL:.0%}: {low} to {high})"


def _duration_text(seconds: float) -> str:
    """Return a duration as text; MISSING if it is not known."""
    return duration_text(seconds) if is_known(seconds) else MISSING


def as_text(table: pd.DataFrame) -> TextTable:
    """Return the table with texts as cells, for the page."""
    rows = to_rows(CampaignRow, table)
    has_costs = any(is_known(row.cost_usd) for row in rows)
    has_dates = any(row.done is not None for row in rows)
    has_reasons = any(row.reason for row in rows)
    has_unfinished = any(is_known(row.unfinished) and row.unfinished > 0 for row in rows)

    def cells(row: CampaignRow) -> dict[str, str]:
        hours = (row.duration_s / 3600, row.duration_s_low / 3600, row.duration_s_high / 3600)
        days = f"{_moment_text(row.done_low)} to {_moment_text(row.done_high)}"
        return {
            "runs": FormattedNumber(str(row.runs), row.runs),
            **({"done": _moment_text(row.done)} if has_dates else {}),
            **({f"done, {LEVEL:.0%}": days if row.done else MISSING} if has_dates else {}),
            "hours until done": format_simulated(*hours),
            "node-hours": row.node_hours_text,
            **({"cost (US dollars)": row.cost_text} if has_costs else {}),
            **({"do not end": _unfinished_text(row)} if has_unfinished else {}),
            "failed attempts": str(row.failed_attempts),
            "waits": row.waits if row.is_simulated else MISSING,
            **({"reason": row.reason} if has_reasons else {}),
        }

    notes = rendering.render_notes("campaign", level=f"{LEVEL:.0%}", runs_min=RUNS_FOR_INTERVAL)
    none = "No campaign: `question.campaign` is not set."
    return rendering.make_text_table("Campaign", table, CampaignRow, cells, notes, none)


def _unfinished_text(row: CampaignRow) -> str:
    """Return the mean number of trainings that never end, such as `0.120 of 30`."""
    if not is_known(row.unfinished):
        return MISSING
    number = format_three_digits(row.unfinished)
    return FormattedNumber(f"{number} of {row.trainings}", row.unfinished)
