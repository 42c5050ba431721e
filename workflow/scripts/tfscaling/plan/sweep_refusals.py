"""Why a sweep may not begin: its budget, or a batch larger than the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfscaling.plan import costed_plan
from tfscaling.plan.plan_rows import BenchmarkRow, PlanRow, total
from tfscaling.record import prepared_data
from tfscaling.spec import grid, user_code, variants
from tfscaling.spec.config import BATCH_SIZE_KEYS, Budget, Config
from tfscaling.spec.configuration import Sources, problem
from tfscaling.spec.manifest import Manifest, PlannedRun


def budget_refusal(
    config: Config, planned: Manifest, runs_dir: Path, sources: Sources = ()
) -> str | None:
    """Why the runs still to do may not be started: the budget's first problem, or None.

    `planned` is the manifest of the configuration. Without a budget no record is read.
    """
    if config.budget == Budget():
        return None
    made = costed_plan.make(config, planned, runs_dir)
    return next(iter(budget_problems(config, made.runs, made.benchmarks, sources)), None)


def budget_problems(
    config: Config,
    runs: Sequence[PlanRow],
    benchmarks: Sequence[BenchmarkRow] = (),
    sources: Sources = (),
) -> list[str]:
    """One line for each key of the budget that the estimate of all these exceeds or cannot meet."""
    sums, budget = total([*runs, *benchmarks]), config.budget
    more = f" and the benchmarks ({len(benchmarks)})" if benchmarks else ""
    found = []
    if budget.usd is not None and sums.unpriced:
        name = sums.unpriced[0]
        path = ["platforms", name, "usd_per_node_hour"]
        reason = (
            f"budget.usd {budget.usd:g} needs the price of platform {name}, which has runs to do"
        )
        found.append(problem(path, None, reason, sources))
    for key, limit, unit, value in (
        ("usd", budget.usd, "US dollars", 0.0 if sums.unpriced else sums.cost_usd),
        ("node_hours", budget.node_hours, "node-hours", sums.node_hours),
    ):
        estimated = math.ceil(round(100 * value, 6)) / 100
        if limit is not None and round(value, 6) > limit:
            reason = (
                f"the {len(runs)} runs{more} still to do are estimated at {estimated:.2f} {unit} "
                f"(`snakemake plan` lists them); allowed: {estimated:.2f} or more, null for no "
                "budget, or fewer runs in the grid"
            )
            found.append(
                problem(
                    ["budget", key], int(limit) if limit.is_integer() else limit, reason, sources
                )
            )
    return found


def batch_problem(
    config: Config, runs: Iterable[PlannedRun], datasets_dir: Path, sources: Sources = ()
) -> str | None:
    """Why a run's global batch is larger than the data of a function of the user's, or None.

    Only of data that is prepared already: nothing else says how much there is. What is known of
    datasets with a name has excluded such points before.
    """
    known: dict[str, int | None] = {}
    for run in runs:
        spec, recipe = run.spec, run.spec.recipe
        point = spec.point
        if spec.dataset is None or recipe.program or not user_code.is_reference(spec.dataset):
            continue
        if not config.is_selected(point.platform):
            continue
        name = variants.data_name(spec.dataset, recipe)
        if name not in known:
            facts = prepared_data.facts(datasets_dir / f"{name}.npz")
            known[name] = facts.examples.x_train if facts and facts.examples else None
        why = grid.beyond_dataset(spec.global_batch_size, name, recipe, known[name])
        if why is not None:
            shape = f"nodes {point.nodes}, gpus_per_node {point.gpus_per_node}"
            allowed = f"with {shape} {why}; allowed: a smaller batch, or leave out such points"
            given = {key: getattr(recipe, key) for key in BATCH_SIZE_KEYS}
            shown = {key: value for key, value in given.items() if value is not None}
            where = ["recipes", variants.base(point.recipe)]
            return problem(where, shown, allowed, sources)
    return None
