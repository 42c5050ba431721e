"""`search` on the real workflow: runs in rounds, of the points that may still be the best."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import generator
import msgspec
import pytest
from project import QUICK, SMALL_MODEL, Project
from tfscaling.conclusions.search_results import TAKEN
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED
from tfscaling.plan.conditional_runs import Round
from tfscaling.record import run_record
from tfscaling.record.attempts import ATTEMPTS_MAX, Cause, FailureReport
from tfscaling.search import study_searches
from tfscaling.search.search_types import Decision, Reason
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.run_spec import RunSpec
from tfscaling.tables import runs_table

pytestmark = pytest.mark.full

NODES = (1, 2, 4)
#: Two of the points are near each other, so that they need more runs than the others.
CONTENT: dict[str, Any] = {
    "grid": [{"platform": ["laptop", "far"], "model": SMALL_MODEL, "recipe": "quick",
              "nodes": list(NODES), "repeats": 6}],
    "search": {"repeats_max": 11},
    "recipes": {"quick": QUICK},
    "platforms": {"far": {"launcher": "local", "nodes_max": 4, "cpus_per_node": 2}},
}  # fmt: skip
TIMES_S = {"laptop": {1: 90.0, 2: 50.0, 4: 54.0}, "far": {1: 190.0, 2: 130.0, 4: 120.0}}


def time_s(spec: RunSpec) -> float:
    point = spec.point
    scatter = (0.96, 1.04, 1.01, 0.99, 1.02, 0.98)[(3 * spec.repeat + point.nodes) % 6]
    return TIMES_S[point.platform][point.nodes] * scatter


class Made:
    """A project whose runs are made up as rounds ask for them."""

    def __init__(
        self,
        project: Project,
        content: dict[str, Any],
        seconds: Callable[[RunSpec], float] = time_s,
    ) -> None:
        self.project, self.seconds = project, seconds
        project.overlay(content)
        project.snakemake("results/main/details/manifest.json")
        self.planned = Manifest.read(project.folder / "results/main/details/manifest.json")

    def make(self, runs: list[PlannedRun]) -> None:
        generator.write_records(runs, self.project.folder / "results/runs", self.seconds, noise=0.0)

    def round(self, number: int) -> Round:
        """The round that a start of snakemake makes, and then its runs: as if each was cut off."""
        file = f"results/main/details/repeats/round={number}.json"
        self.project.snakemake(file)
        made = msgspec.json.decode((self.project.folder / file).read_bytes(), type=Round)
        asked = [run for run in self.planned.runs if run.spec.path in made.runs]
        self.make([run for run in asked if not self.record(run).exists()])
        return made

    def record(self, run: PlannedRun) -> Path:
        return self.project.folder / "results/runs" / run.spec.path / "run.json"

    def decision(self) -> Decision:
        runs, _ = runs_table.run_tables(self.planned.runs, self.project.folder / "results/runs")
        (search,) = study_searches.decide_searches(self.planned, runs)
        return search.decision

    def rounds(self) -> list[Round]:
        found = [self.round(1)]
        while found[-1].added:
            found.append(self.round(len(found) + 1))
        return found


def fail(made: Made, run: PlannedRun, attempts: int) -> None:
    for number in range(1, attempts + 1):
        folder = made.project.folder / "results/runs" / run.spec.path
        (scratch := folder / f"attempt={number}").mkdir(parents=True)
        cause = Cause(kind="rank_failed", message="no such library")
        report = FailureReport(
            axes=run.spec.axes,
            attempt=number,
            cause=cause,
        )
        for place in (folder, scratch):
            run_record.write_json(place / run_record.FAILURE, report)


def test_rounds_run_the_points_that_may_be_the_best_until_one_is_shown_to_be(
    project: Project,
) -> None:
    """No run trains; every round is made by a start of its own, as after interruptions.

    One configuration failed too often before it had a result, which keeps the answer open.
    """
    made = Made(project, CONTENT)
    first = [run for run in made.planned.runs if not run.extra_repeat]
    never = next(run for run in first if run.spec.point.platform == "far")
    fail(made, never, ATTEMPTS_MAX)
    made.make([run for run in first if run is not never])
    rounds = made.rounds()
    assert len(rounds) > 2
    decision = made.decision()
    assert (len(decision.standings), decision.is_decided, decision.runs_to_start) == (6, False, {})
    assert never.spec.point.path not in decision.survivors

    before = project.made()
    project.snakemake()
    assert project.made() == before
    shown = project.table("results/main/details/conclusions/search.csv")
    best = shown[0]
    assert (best["platform"], best["nodes"], best["place"]) == ("laptop", "2", TAKEN)
    assert {row["why"] for row in shown[1:]} == {
        Reason.NOT_THE_BEST.value,
        Reason.DOES_NOT_RUN.value,
    }
    runs = sum(int(row["runs"]) for row in shown)
    assert runs == len(project.records()) < 6 * len(shown)
    (choice,) = [r for r in project.table("results/main/details/conclusions/decision.csv")
                 if r["goal"] == "execution_time_s"]  # fmt: skip
    assert (choice["nodes"], choice["support"]) == ("2", INCONCLUSIVE)

    project.overlay({**CONTENT, "question": {"indifference": 0.5}})
    project.snakemake()
    assert project.made() == before


def test_short_runs_choose_and_a_complete_run_confirms(project: Project) -> None:
    """Complete runs of one configuration take twice as long as its short runs project.

    It is passed over for another, whose complete run is as projected.
    """
    slow = ("laptop", 2)

    def later_s(spec: RunSpec) -> float:
        is_longer = (spec.point.platform, spec.point.nodes) == slow
        is_complete = spec.recipe.stop_after_steps is None
        return time_s(spec) * (2 if is_longer and is_complete else 1)

    search = {"stop_after_steps": 100, "repeats_max": 3}
    made = Made(project, {**CONTENT, "search": search}, later_s)
    first = [run for run in made.planned.runs if not run.extra_repeat]
    assert {run.spec.recipe.stop_after_steps for run in first} == {100} and len(first) == 6
    made.make(first)
    made.rounds()
    assert made.decision().is_decided
    project.snakemake()
    best, *others = project.table("results/main/details/conclusions/search.csv")
    assert (best["platform"], best["nodes"], best["place"]) == ("laptop", "4", TAKEN)
    tried = {(row["platform"], int(row["nodes"])): row for row in others}[slow]
    assert float(best["projected_low"]) < float(best["measured"]) < float(best["projected_high"])
    assert float(tried["measured"]) > float(tried["projected_high"]) > float(tried["projected"])
    assert sum(int(row["short_runs"]) for row in (best, *others)) == len(
        [record for record in project.records() if "stop_after_steps" in record["axes"]["recipe"]]
    )
    (choice,) = [row for row in project.table("results/main/details/conclusions/decision.csv")
                 if row["goal"] == "execution_time_s"]  # fmt: skip
    assert (choice["nodes"], choice["support"]) == ("4", SUPPORTED)
