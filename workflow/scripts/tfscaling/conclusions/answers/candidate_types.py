"""Types of the configurations of a question: the state of each, and what its runs show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tfscaling.estimation.samples import Difference
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import point_of


class State(StrEnum):
    """What the runs show about a configuration of a question, for one goal."""

    #: It is compared with the others.
    COMPARED = "compared"
    #: It has the metric, and too few runs to be compared.
    TOO_FEW = "too few runs"
    #: Its runs show neither that it keeps a limit or target nor that it misses it.
    UNDECIDED = "undecided"
    #: Its runs show that it misses a limit or the target.
    INFEASIBLE = "infeasible"
    #: Its runs show that it is worse, or cannot be recommended, or the grid excludes it.
    EXCLUDED = "excluded"
    #: It failed, or lacks the metric: further runs may change the answer.
    OPEN = "open"
    #: None of its runs was begun.
    NOT_RUN = "not run"


#: States that leave an answer open.
_OPEN_STATES = (State.UNDECIDED, State.OPEN, State.NOT_RUN)


@dataclass(frozen=True)
class Candidate:
    """A configuration of a question, with what its runs show for one goal.

    Attributes:
        row: Its row of the comparison.
        name: The axes that distinguish it from the other configurations, in words.
        state: What its runs show for the goal.
        reason: Why it is not compared; "" if it is compared.
        value: Value of the goal with interval and unit, as text.
        remark: Runs that failed, diverged or missed the target, in words; "" without any.
        runs: Number of its runs with a value of the goal.
        missed: Columns whose limit it is shown to miss.
        undecided: Columns whose limit it is shown neither to keep nor to miss.
        unknown_metric: The goal, or the metric with a limit, whose unknown value keeps it out of
            the comparison; "" if all are known.
        kept_runs: Number of its runs that kept the limits or the target; None without either, or if
            it is not shown to keep them.
        difference: How much worse it is than the recommended configuration; None if not compared.
        is_near_best: Whether its difference from the best is shown to be within the indifference;
            False for the recommended configuration itself.
        is_not_shown_worse: Whether it was compared with the recommended configuration, and is not
            shown to be worse; False for the recommended configuration itself.
        details: Metric → its title, value and unit, for the metrics that an answer with limits
            reports.
    """

    row: PointRow
    name: str
    state: State
    reason: str = ""
    value: str = ""
    remark: str = ""
    runs: int = 0
    missed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    unknown_metric: str = ""
    kept_runs: int | None = None
    difference: Difference | None = None
    is_near_best: bool = False
    is_not_shown_worse: bool = False
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def point(self) -> Point:
        """The configuration's axes."""
        return point_of(self.row)

    @property
    def name_with_remark(self) -> str:
        """Its name, with the remark in parentheses."""
        return f"{self.name} ({self.remark})" if self.remark else self.name

    @property
    def is_open(self) -> bool:
        """Whether it was not compared and may still change the answer."""
        return self.state in _OPEN_STATES

    @property
    def has_failed_limits(self) -> bool:
        """Whether it misses a limit, or is not shown to keep one."""
        return bool(self.missed or self.undecided)

    @property
    def lacks_times(self) -> bool:
        """Whether some of its valid runs have no time that counts, such as resumed runs."""
        return self.row.runs_timed < self.row.runs

    @property
    def has_value(self) -> bool:
        """Whether it has a value of the goal, even with too few runs to compare it."""
        return self.state in (State.COMPARED, State.TOO_FEW)
