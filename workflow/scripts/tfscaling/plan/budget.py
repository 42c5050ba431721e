"""Whether the runs still to do keep the budget and the limits of time, by their costed plan."""

from __future__ import annotations

import math
from pathlib import Path

from tfscaling.plan import costed_plan
from tfscaling.plan.costed_plan import Plan, sum_rows
from tfscaling.study.config_types import Budget, Config
from tfscaling.study.config_validation import Sources, format_problem
from tfscaling.study.manifest import Manifest

#: Metrics whose limit a run may miss by its start-up alone.
TIME_LIMITS = {"execution_time_s", "time_with_queue_s"}


def find_excess(
    config: Config,
    planned: Manifest,
    runs_dir: Path,
    sources: Sources = (),
    forced: frozenset[str] = frozenset(),
) -> str | None:
    """Return the first reason why the runs to do exceed the budget or a time limit; None without.

    Records are only read if the configuration has a budget or a time limit.

    Args:
        config: The configuration.
        planned: Its manifest.
        runs_dir: The folder of all runs.
        sources: The files of the configuration, for messages.
        forced: Folders of runs that are repeated although they have a record.
    """
    if config.budget == Budget() and not TIME_LIMITS & config.question.limits_in_force.keys():
        return None
    plan = costed_plan.make_plan(config, planned, runs_dir, forced)
    problems = budget_problems(config, plan, sources)
    problems += deadline_problems(config, plan, sources)
    return next(iter(problems), None)


def deadline_problems(config: Config, plan: Plan, sources: Sources = ()) -> list[str]:
    """Return a message for each time limit that is shorter than the measured start-up of runs.

    Args:
        config: The configuration.
        plan: Its costed plan.
        sources: The files of the configuration, for messages.
    """
    rule = f"runs took at least {plan.startup_s:.3g} s before they began to train; allowed: more"
    return [
        format_problem(["question", "limits", name, "at_most"], limit.at_most, rule, sources)
        for name, limit in config.question.limits_in_force.items()
        if name in TIME_LIMITS and limit.value < plan.startup_s
    ]


def budget_problems(config: Config, plan: Plan, sources: Sources = ()) -> list[str]:
    """Return a message for each key of the budget that the plan exceeds or that has no estimate.

    A search is included with its expected number of runs; it may need more.

    Args:
        config: The configuration.
        plan: Its costed plan.
        sources: The files of the configuration, for messages.
    """
    sums, budget = sum_rows(plan.runs), config.budget
    searched = {point for each in plan.searches for point in each.points}
    others = sum_rows([row for row in plan.runs if row.point not in searched])
    parts = [others, *(each.to_do for each in plan.searches)]
    cost_usd = 0.0 if sums.unpriced else sum(part.cost_usd for part in parts)
    node_hours = sum(part.node_hours for part in parts)
    which = f"the {sums.runs} runs still to do are estimated at"
    if plan.searches:
        which = "the runs still to do, with the expected runs of searches, are estimated at"
    found = []
    if budget.usd is not None and sums.unpriced:
        name = sums.unpriced[0]
        needed = f"needs the price of platform {name}, which has runs to do"
        reason = f"budget.usd {budget.usd:g} {needed}"
        found.append(
            format_problem(["platforms", name, "usd_per_node_hour"], None, reason, sources)
        )
    for key, limit, unit, value in (
        ("usd", budget.usd, "US dollars", cost_usd),
        ("node_hours", budget.node_hours, "node-hours", node_hours),
    ):
        if limit is None or round(value, 6) <= limit:
            continue
        estimated = math.ceil(round(100 * value, 6)) / 100
        reason = (
            f"{which} {estimated:.2f} {unit} "
            f"(`snakemake plan` lists them); allowed: {estimated:.2f} or more, null for no "
            "budget, or fewer runs in the grid"
        )
        shown = int(limit) if limit.is_integer() else limit
        found.append(format_problem(["budget", key], shown, reason, sources))
    return found
