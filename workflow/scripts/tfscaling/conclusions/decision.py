"""The decision: the answers to all questions by every goal, as a table and a page."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pandas as pd

from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.goal_comparison import COST_OF_GOAL
from tfscaling.conclusions.rendering import render, render_line
from tfscaling.conclusions.search_results import verdict_text
from tfscaling.record.metrics import NAN, QUALITY
from tfscaling.tables.display import best_value_noun, format_metric
from tfscaling.tables.row_types import Column, columns
from tfscaling.tables.row_values import axis_columns, group_by, is_known, metric_of
from tfscaling.tables.table_files import to_frame, to_rows


class DecisionRow(msgspec.Struct):
    """An answer as a row of decision.csv; the axes are of the recommended configuration, if any.

    Attributes:
        question: Name of the question.
        goal: The metric to optimise.
        title: Title of the goal, such as `Shortest time`.
        text: The recommendation, or why there is none, in words.
        support: Level of support, one of `samples.WEAKEST_FIRST`.
        alike: Number of configurations that are not shown to be worse than the recommended one.
        bound: Fraction by which the recommended one may be worse than the best; NaN if unknown.
        is_decided: Whether the recommended configuration is shown to be within the indifference of
            the best, and enough of its runs keep the limits.
        is_best: Whether all other compared configurations are shown to be worse.
        indifference: Relative difference below which two configurations count as equal.
        comparisons: Number of comparisons whose error rate is controlled together.
        not_covered: Sentence that names the configurations that were not compared.
        totals: Sentences on time and cost of one complete training and of all trainings; they are
            part of `text`, too.
        wide_job: The warning that the configuration's job is wide and short, which is part of
            `text`, too; "" otherwise.
        whole_run_low_s: Lower end of the interval of one complete run's time, in seconds; NaN
            unless the time is projected from short runs.
        whole_run_high_s: Upper end of this interval.
    """

    question: str
    goal: str
    title: str
    text: str
    support: str
    platform: str | None = None
    model: str | None = None
    strategy: str | None = None
    recipe: str | None = None
    nodes: Annotated[int | None, Column("nodes")] = None
    gpus_per_node: Annotated[int | None, Column("GPUs")] = None
    tasks_per_node: str | None = None
    alike: int = 0
    bound: float = NAN
    is_decided: bool = False
    is_best: bool = False
    indifference: float = 0.0
    comparisons: int = 0
    not_covered: str = ""
    totals: str = ""
    wide_job: str = ""
    whole_run_low_s: float = NAN
    whole_run_high_s: float = NAN

    @classmethod
    def from_answer(cls, answer: Answer) -> DecisionRow:
        """Return the row of decision.csv for an answer."""
        low, high = answer.whole_run or (NAN, NAN)
        same = ("question", "goal", "title", "support", "indifference", "comparisons")
        values = {name: getattr(answer, name) for name in (*same, "is_decided", "is_best")}
        return cls(
            **(axis_columns(answer.point) if answer.point else {}),  # type: ignore[arg-type]
            **values,
            text=answer_sentence(answer),
            alike=len(answer.not_shown_worse),
            bound=NAN if answer.bound is None else answer.bound,
            not_covered=answer.not_covered_text(),
            totals=" ".join(map(str, answer.totals)),
            wide_job=str(answer.wide_job or ""),
            whole_run_low_s=low,
            whole_run_high_s=high,
        )


COLUMNS = tuple(columns(DecisionRow))


def table(study: Study) -> pd.DataFrame:
    """Return the table of the decision: one `DecisionRow` for each answer."""
    return to_frame(
        DecisionRow, [DecisionRow.from_answer(found) for found in answers_by_goal(study)]
    )


def answer_sentence(answer: Answer) -> str:
    """Return the recommendation of an answer, or why there is none, as text."""
    leader, cost = answer.leader, COST_OF_GOAL.get(answer.goal, answer.goal)
    has_cost = leader is not None and cost != answer.goal and is_known(leader.row[cost])
    best = "the best"
    if leader is not None and answer.goal == QUALITY:
        best = best_value_noun(metric_of(QUALITY, leader.row))
    return render_line(
        "decision",
        answer=answer,
        cost=format_metric(cost, leader.row) if leader and has_cost else "",
        verdict=verdict_text(answer.search) if answer.search else "",
        best=best,
    )


def page(table: pd.DataFrame, study: Study) -> str:
    """Return the page decision.md: the answers to each question."""
    rows = to_rows(DecisionRow, table)
    questions = group_by(rows, lambda row: row.question)
    return (
        render("decision_page", questions=questions, indifference=study.question.indifference)
        + "\n"
    )
