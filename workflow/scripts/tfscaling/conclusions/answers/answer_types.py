"""Types of answers: the recommended configuration, its rivals, trade-offs and support.

`answer.answer_questions` returns an `Answer`. Headline, decision, next steps, console, page, plots,
plan and proposal are views of it: none decides again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.answers.details import DETAIL_COLUMNS, margin_text
from tfscaling.conclusions.answers.goals import TIME, goal_words
from tfscaling.conclusions.answers.limits import MissedLimit, find_missed_limits
from tfscaling.conclusions.campaign import CampaignRow
from tfscaling.conclusions.projection import Interval
from tfscaling.conclusions.wide_jobs import ShortWideJob
from tfscaling.estimation.intervals import CONFIDENCE
from tfscaling.estimation.run_counts import KEPT_RUNS, miss_rate_text
from tfscaling.estimation.samples import NOT_MEASURED
from tfscaling.record.metrics import METRICS, QUALITY
from tfscaling.search.search_types import Reason
from tfscaling.search.study_searches import StudySearch
from tfscaling.study.config_types import Limit
from tfscaling.study.run_spec import Point
from tfscaling.tables.comparison import ALL_RUNS_METRICS
from tfscaling.tables.display import (
    GPUS,
    BracketKind,
    axis_text,
    bracket_kind,
    count_text,
    duration_text,
    format_value,
    join_names,
    point_name,
    varying_axes,
)
from tfscaling.tables.row_values import is_known, metric_of

BY_LINE = str(Reason.BY_ITS_LINE)

#: Phases before the steady state, which more nodes do not divide.
STARTUP = (
    *("import_time_s", "rendezvous_time_s", "data_time_s", "build_time_s"),
    *("preparation_time_s", "first_step_time_s"),
)
#: A trade-off is reported from this saving on, and up to this ratio of times.
_SAVING_MIN, _TIMES_MAX = 0.1, 3.0


@dataclass(frozen=True)
class StartUp:
    """The start-up of an answer's leader, if it takes more than half of the execution time.

    Attributes:
        share: Start-up as a fraction of the leader's execution time.
        fastest: The configuration with the shortest training, start-up left out.
        ratio: Training time of the leader divided by the training time of `fastest`.
    """

    share: float
    fastest: Candidate
    ratio: float


@dataclass(frozen=True)
class TradeOff:
    """A configuration that costs less than an answer's leader and is not faster, by their medians.

    Attributes:
        cheaper: The configuration.
        time: Its time divided by the leader's time.
        cost: Its cost divided by the leader's cost.
        is_priced: Whether the cost is in money; otherwise it is in node-hours.
    """

    cheaper: Candidate
    time: float
    cost: float
    is_priced: bool


@dataclass(frozen=True)
class AllTrainings:
    """Time and cost of all planned trainings with an answer's leader.

    Each value is the leader's median for one training, times `number`.

    Attributes:
        number: How many trainings, one after the other.
        time_s: Their execution time in seconds, without waits in the queue.
        node_hours: Their node-hours, failed attempts included.
        cost_usd: Their cost in US dollars; None without a price.
        intervals: Column of the comparison, such as `cost_usd` → interval of the total: the
            interval of the median, times `number`. Projected values have none.
        lacks_repeats: Whether a campaign would add repeated work, and has too few runs.
    """

    number: int
    time_s: float
    node_hours: float
    cost_usd: float | None
    intervals: Mapping[str, tuple[float, float]]
    lacks_repeats: bool = False

    def __str__(self) -> str:
        """Return the values as a sentence."""
        hours = format_value(self.node_hours, None, *self.intervals.get("node_hours", ()))
        usd = format_value(self.cost_usd, None, *self.intervals.get("cost_usd", ()))
        cost = f", {usd} US dollars" if self.cost_usd is not None else ""
        time = duration_text(self.time_s)
        how = "one after the other"
        if self.lacks_repeats:
            how += ", none repeated after its job ends early"
        return f"All {self.number} trainings, {how}: {time}, {hours} node-hours{cost}."


@dataclass(frozen=True)
class Answer:
    """The answer to one question by one goal.

    Attributes:
        question: Name of the question.
        goal: The metric to optimise.
        title: Title of the goal, such as `Shortest time`; "" if `is_measured` is False.
        indifference: Relative difference below which two configurations count as equal.
        candidates: All configurations of the question, the best median first.
        recommended: The recommended configuration; None if the runs do not justify one.
        leader: The recommended configuration, or else the one with the best median.
        rival: The configuration with which a headline compares the leader; None without one.
        support: Level of support by the runs, one of `samples.WEAKEST_FIRST`.
        bound: Fraction by which the recommended configuration may be worse than the best; None if
            unknown.
        is_best: Whether all other compared configurations are shown to be worse.
        is_near_best: Whether the recommended one is shown to be within the indifference of the
            best, with enough runs of all configurations.
        is_only_feasible: Whether the recommended configuration is the only one that may be chosen:
            all others are shown to miss a limit or the target, or to be worse.
        choice_reason: Advantage of the recommended configuration over `near_best_others`, such as
            `the lowest cost`; without them it has no meaning.
        next_best: The configuration with the best estimate among all but the recommended one; None
            if no other was compared.
        comparisons: Number of comparisons whose error rate is controlled together.
        limits: Column of the tables → limit of the question; None if `is_measured` is False.
        whole_run: Interval of the leader's time for one complete training, if it is projected.
        search: The search for the best configuration by this goal; None without one.
        trainings: Number of trainings that are planned with the chosen configuration.
        campaign: Date and cost of all trainings with the leader; None without a campaign.
        wide_job: Warning if the leader's job is wide and short; None otherwise.
        repeats: Total number of runs of each configuration that may decide an open answer; None if
            nothing is open, or if more runs do not help.
        runs_by_status: Status → number of runs, if the question has no valid run, or the goal can
            have no answer; None if `is_measured` is True.
        ignores_quality: Whether all recipes count as equally good, as configured.
        other_goals: Answers to the same question by the other goals.
    """

    question: str
    goal: str
    title: str
    indifference: float
    candidates: tuple[Candidate, ...] = ()
    recommended: Candidate | None = None
    leader: Candidate | None = None
    rival: Candidate | None = None
    support: str = NOT_MEASURED
    bound: float | None = None
    is_best: bool = False
    is_near_best: bool = False
    is_only_feasible: bool = False
    choice_reason: str = ""
    next_best: Candidate | None = None
    comparisons: int = 0
    limits: Mapping[str, Limit] | None = None
    whole_run: Interval | None = None
    search: StudySearch | None = None
    trainings: int = 1
    campaign: CampaignRow | None = None
    wide_job: ShortWideJob | None = None
    repeats: int | None = None
    runs_by_status: Mapping[str, int] | None = None
    ignores_quality: bool = False
    other_goals: tuple[Answer, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether the question has a valid run, and its runs can have a value of the goal."""
        return self.runs_by_status is None

    @property
    def has_choice(self) -> bool:
        """Whether the question has several configurations that the grid does not exclude."""
        return sum(each.row.status != "excluded" for each in self.candidates) > 1

    @property
    def point(self) -> Point | None:
        """The axes of the recommended configuration; None without one."""
        return self.recommended.point if self.recommended else None

    @property
    def candidates_with_value(self) -> tuple[Candidate, ...]:
        """The configurations with a value of the goal, the best median first."""
        return tuple(each for each in self.candidates if each.has_value)

    @property
    def with_few_runs(self) -> tuple[Candidate, ...]:
        """The configurations with too few runs to be compared."""
        return tuple(each for each in self.candidates if each.state == State.TOO_FEW)

    @property
    def near_best_others(self) -> tuple[Candidate, ...]:
        """The other configurations that are shown to be within the indifference of the best."""
        return tuple(each for each in self.candidates if each.is_near_best)

    @property
    def not_shown_worse(self) -> tuple[Candidate, ...]:
        """The other configurations that are not shown to be worse than the recommended one."""
        return tuple(each for each in self.candidates if each.is_not_shown_worse)

    @property
    def not_covered(self) -> tuple[Candidate, ...]:
        """The planned configurations without a value of the goal.

        With a search, configurations that it has not run are left out: its verdict covers them.
        """
        others = (each for each in self.candidates if not each.has_value)
        planned = (each for each in others if each.row.status != "excluded")
        if self.search is None:
            return tuple(planned)
        # the verdict of a search covers what it has not run
        return tuple(e for e in planned if e.state != State.NOT_RUN and e.reason != BY_LINE)

    @property
    def has_undecided(self) -> bool:
        """Whether runs leave open if a configuration keeps the limits or reaches the target."""
        return any(each.state == State.UNDECIDED for each in self.candidates)

    @property
    def is_open(self) -> bool:
        """Whether a configuration that was not compared may change the answer."""
        return any(each.is_open for each in self.candidates)

    @property
    def has_unknown_goal(self) -> bool:
        """Whether a configuration is not compared because its value of the goal is unknown."""
        return any(each.unknown_metric == self.goal for each in self.candidates)

    @property
    def has_failed_limits(self) -> bool:
        """Whether a limit, or the target, keeps a configuration out of the comparison."""
        return any(
            each.has_failed_limits
            or each.state in (State.INFEASIBLE, State.UNDECIDED)
            or each.unknown_metric not in ("", self.goal)
            for each in self.candidates
        )

    @property
    def candidate_count(self) -> int:
        """Number of configurations among which the question chooses.

        Without a search, excluded, failed and unrun configurations do not count.
        """
        if self.search is not None:
            return len(self.search.points)
        states = (State.COMPARED, State.TOO_FEW, State.UNDECIDED, State.INFEASIBLE)
        return sum(each.state in states for each in self.candidates)

    @property
    def leader_keeps_limits(self) -> bool:
        """Whether enough runs of the recommended configuration kept the limits or the target.

        True without limits and target, or without a recommended configuration.
        """
        kept = self.recommended.kept_runs if self.recommended else None
        return kept is None or kept >= KEPT_RUNS

    @property
    def is_decided(self) -> bool:
        """Whether the runs show that the recommended configuration is a right choice.

        It is within the indifference of the best, and enough of its runs keep limits and target.
        """
        return self.is_near_best and self.leader_keeps_limits

    @cached_property
    def startup(self) -> StartUp | None:
        """The start-up of the leading configuration, if it is more than half of its execution time.

        None otherwise, and for goals other than the execution time.
        """
        taken = self.leader
        if taken is None or self.goal != TIME or not is_known(taken.row.train_time_s):
            return None
        spent_s = sum(number for name in STARTUP if is_known(number := taken.row[name]))
        share = spent_s / taken.row.execution_time_s if is_known(taken.row.execution_time_s) else 0
        training = [each for each in self.candidates_with_value if each.row.train_time_s > 0]
        if share <= 0.5 or not training:
            return None
        fastest = min(training, key=lambda each: each.row.train_time_s)
        return StartUp(share, fastest, taken.row.train_time_s / fastest.row.train_time_s)

    @cached_property
    def trade_off(self) -> TradeOff | None:
        """The fastest configuration that costs clearly less than the leader, by their medians.

        The cost is money if all configurations have a price (0 is allowed), else node-hours. It
        includes failed attempts that were not cancelled, except for node-hours until a target is
        reached. None if the goal is not a time, or if every other configuration is faster, takes
        more than three times as long, or is nearly as expensive.
        """
        taken = self.leader
        if taken is None or self.goal not in (TIME, "time_to_target_s"):
            return None
        others = [each for each in self.candidates_with_value if each is not taken]
        rows = [each.row for each in (taken, *others)]
        goal, money = self.goal, "cost_usd" if self.goal == TIME else "cost_to_target_usd"
        is_priced = all(is_known(row[money]) for row in rows)
        if is_priced and taken.row[money] == 0:
            return None
        for each in others:
            time = each.row[goal] / taken.row[goal]
            if is_priced:
                cost = each.row[money] / taken.row[money]
            elif goal == TIME and is_known(each.row.node_hours) and taken.row.node_hours > 0:
                cost = each.row.node_hours / taken.row.node_hours
            else:
                cost = each.row.nodes / taken.row.nodes * time
            if 1 <= time <= _TIMES_MAX and cost <= 1 - _SAVING_MIN:
                return TradeOff(each, time, cost, is_priced)
        return None

    @property
    def all_trainings(self) -> AllTrainings | None:
        """Time and cost of all planned trainings with the configuration `leader`.

        None if only one training is planned, if the leader's time is not known, or if `campaign`
        has the totals, or shows that trainings never end.
        """
        if self.campaign is not None and self.campaign.is_simulated:
            return None
        row = self.leader.row if self.leader else None
        if self.trainings == 1 or row is None or not is_known(row.execution_time_s):
            return None
        number, names = self.trainings, ("execution_time_s", "node_hours", "cost_usd")
        ends = {name: (row[f"{name}_low"], row[f"{name}_high"]) for name in names}
        return AllTrainings(
            number,
            number * row.execution_time_s,
            number * row.node_hours,
            number * row.cost_usd if is_known(row.cost_usd) else None,
            {
                name: (number * low, number * high)
                for name, (low, high) in ends.items()
                if bracket_kind(name, row) is BracketKind.MEDIAN_INTERVAL
            },
            lacks_repeats=self.campaign is not None,
        )

    @cached_property
    def words(self) -> Mapping[str, str]:
        """Name → words for sentences about the goal: `best` is `Fastest`, for example."""
        leader = self.leader
        metric = metric_of(self.goal, leader.row) if leader else METRICS[self.goal]
        words = goal_words(self.goal, self.title, metric)
        to_what = self.title.partition(" to ")[2] if self.goal in ALL_RUNS_METRICS else ""
        more = f" to {to_what}" * bool(to_what) + " within the limits" * bool(self.limits)
        return {**words, **{name: words[name] + more for name in ("best", "of_best")}}

    @property
    def only_so_far(self) -> str:
        """Words for a leader without a rival: `Only configuration so far shown to keep the limits`.

        The leader is the only configuration that is shown to keep the limits, or whose runs all
        reached the target; after more runs, others may be. "" for any other leader, and if a
        configuration's value of the goal is unknown.
        """
        is_alone = not (self.candidates_with_value[1:] or self.has_unknown_goal)
        if self.leader is None or not is_alone or not self.has_undecided:
            return ""
        at_target = "whose runs all reached the target"
        what = at_target if self.has_only_target else "shown to keep the limits"
        return f"Only configuration so far {what}"

    @property
    def best_so_far(self) -> str:
        """Words for the leader of an answer that is not decided, such as `Fastest so far`."""
        return self.only_so_far or f"{self.words['best']} so far"

    @cached_property
    def missed_limits(self) -> list[MissedLimit]:
        """The limits that exclude planned configurations, or may exclude them after more runs."""
        return find_missed_limits(self.not_covered, self.limits or {})

    @property
    def leader_details(self) -> str:
        """Metrics of the leader in words, with margins to limits.

        Empty for a question without limits, or without a leader.
        """
        if self.leader is None or not self.limits:
            return ""
        details = self.leader.details
        names = dict.fromkeys([TIME, self.goal, *self.limits, *DETAIL_COLUMNS])
        return "; ".join(
            details[name] + margin_text(name, self.leader.row[name], self.limits.get(name))
            for name in names
            if name in details
        )

    @cached_property
    def varying_axes(self) -> list[str]:
        """The axes that distinguish its configurations, which their names therefore include."""
        return varying_axes([each.row for each in self.candidates])

    @property
    def has_unequal_qualities(self) -> bool:
        """Whether the answer compares models or recipes although their qualities may differ.

        The user allows this by the limit `null` of the quality.
        """
        varies = not {"model", "recipe"}.isdisjoint(self.varying_axes)
        return self.ignores_quality and varies and self.goal != QUALITY

    def name_next_to_leader(self, other: Candidate) -> str:
        """Return the name of a configuration, without the axes that it shares with the leader.

        The number of nodes is always named, and GPUs are if they vary among all configurations. On
        a different platform the name is complete.
        """
        leader, vary = self.leader, self.varying_axes
        assert leader is not None, "a sentence names the leader first"
        differs = [axis for axis in vary if str(leader.row[axis]) != str(other.row[axis])]
        if "platform" in differs:
            return other.name
        if not differs and GPUS not in vary:
            return axis_text("nodes", other.row)
        return point_name(other.row, [axis for axis in vary if axis == GPUS or axis in differs])

    @property
    def totals(self) -> list[Interval | AllTrainings | CampaignRow]:
        """Time and cost of one complete training and of all trainings, as far as they are known.

        `str` converts each element to a sentence.
        """
        each = (self.whole_run, self.all_trainings, self.campaign)
        return [known for known in each if known is not None]

    @property
    def has_only_target(self) -> bool:
        """Whether a target, and no limit, decides which configurations may be recommended."""
        return self.goal in ALL_RUNS_METRICS and not self.limits

    @property
    def kept_text(self) -> str:
        """A sentence on how many runs of the recommended configuration kept limits or target.

        "" without limits and target.
        """
        kept = self.recommended.kept_runs if self.recommended else None
        if not kept:
            return ""
        what = "target" if self.has_only_target else "limits"
        bound = miss_rate_text(kept, self.candidate_count)
        misses = f"with {CONFIDENCE:.0%} fewer than {bound} of its runs miss"
        runs = count_text(kept, "run")
        return f"Its {runs} kept the {what}; {misses} {'it' if what == 'target' else 'one'}."

    def not_covered_text(self, among: Iterable[Candidate] | None = None) -> str:
        """Return a sentence that names configurations that were not compared; empty without any.

        Args:
            among: The configurations to name; by default all in `not_covered`.
        """
        found = [*(self.not_covered if among is None else among)]
        names = [f"{each.name}, {each.reason}" for each in found]
        return f"Not compared: {join_names(names)}." if names else ""
