#!/usr/bin/env python3
"""How often an answer is wrong because of what was left out: simulation with known truth.

left_out.py [--trials N] [--cell NAME]: sweeps of a few configurations of known times, in which runs
of the best one fail, diverge, run out of memory, are missing, or miss a limit or target, or where a
platform is free. An answer is false if it is supported and names a configuration that is not within
the indifference of the best, or that misses its limit in more runs than the answer states. Prints
the cells, and all cells of a kind together. Ends with 1 if a cell has surely (with 99 %) more than
5 % of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))

from special_cases import highest_rate, is_missed
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.run_counts import is_ruled_out, miss_rate_bound
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.record.run_states import RunState
from tfscaling.study.config_types import Limit, Platform, Question
from tfscaling.study.manifest import Manifest
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import is_known

Dice = np.random.Generator
INDIFFERENCE = Question().indifference
#: Nodes → seconds: four nodes are the best.
TIMES_S = {1: 200.0, 2: 100.0, 4: 60.0}
BEST = 4
SCATTER = 0.03
#: Sweeps that share a study, whose tables cost more time to make than one sweep's answer.
SWEEPS_OF_STUDY = 50
PLATFORM = {"launcher": "srun", "nodes_max": 8, "cpus_per_node": 2}


@dataclass(frozen=True)
class Cell:
    """What happens to the runs of the best configuration of a sweep.

    `endings` of its first runs; a share `missed` of its runs misses the limit of `question`, or of
    the runs of all configurations (`all_miss`). All configurations of a `free` platform are the
    best: they cost nothing. Cells of a `kind` are counted together, too.
    """

    name: str
    kind: str
    runs: int
    question: Question
    endings: tuple[RunState, ...] = ()
    missed: float = 0.0
    all_miss: bool = False
    titles: tuple[str, str] = ("", "")
    free: str = ""

    def rows(self, dice: Dice, model: str) -> Iterator[RunRow]:
        """Yield the runs of one sweep of a model."""
        count = 2 if any(self.titles) or self.free else 1
        for platform, slower in (("near", 1.0), ("far", 1.5))[:count]:
            for nodes, time_s in TIMES_S.items():
                is_best = platform == (self.free or "near") and (self.free or nodes == BEST)
                for repeat in range(1, self.runs + 1):
                    row = _row(platform, model, nodes, repeat)
                    row.usd_per_node_hour = 0.0 if platform == self.free else 1.0
                    is_missed = (is_best or self.all_miss) and dice.random() < self.missed
                    if is_best and repeat <= len(self.endings):
                        row.status, row.reason = self.endings[repeat - 1], "it ended otherwise"
                    else:
                        seconds = slower * time_s * np.exp(SCATTER * dice.standard_normal())
                        _measure(row, float(seconds), is_missed, self.question)
                    yield row

    def study(self, dice: Dice, sweeps: int) -> Study:
        """Return independent sweeps as a study: each of a separate model, a separate question."""
        rows = [row for n in range(sweeps) for row in self.rows(dice, f"m{n}")]
        cells = map(msgspec.structs.astuple, rows)
        columns = dict(zip(RunRow.__struct_fields__, zip(*cells, strict=True), strict=True))
        # a column without values takes time in every sweep
        known = {n: own for n, own in columns.items() if any(map(is_known, own))}
        runs = pd.DataFrame({**known, "quality_unit": columns["quality_unit"]})
        limit = self.question.limits.get("test_accuracy")
        targets = {"test_accuracy": limit.value} if limit and "target" in self.name else {}
        names = ("near", "far")
        platforms = {
            name: Platform(**PLATFORM, title=title or None)  # type: ignore[arg-type]
            for name, title in zip(names, self.titles, strict=True)
        }
        planned = Manifest(
            order_seed=1, targets=targets, platforms=platforms, synchronous_strategies=(),
            runs=(), excluded=(),
        )  # fmt: skip
        return Study(comparison_table(runs, planned), runs, planned, question=self.question)

    def is_false(self, found: Answer) -> bool:
        """Return whether an answer claims what is not true."""
        taken = found.recommended
        if found.support != SUPPORTED or taken is None:
            return False
        shown = sum(e in (RunState.DIVERGED, RunState.DOES_NOT_FIT) for e in self.endings)
        if self.free:
            return taken.point.platform != self.free and not is_ruled_out(shown, self.runs)
        if self.all_miss or (taken.point.nodes == BEST and taken.point.platform == "near"):
            return self.missed > miss_rate_bound(taken.kept_runs or 0, found.candidate_count) + 1e-9
        # what misses in more runs than eleven runs show is no rival, nor what is shown not to run
        is_rival = self.missed <= miss_rate_bound(11) and not is_ruled_out(shown, self.runs)
        return is_rival or taken.point.nodes != 2 or taken.point.platform != "near"


def _row(platform: str, model: str, nodes: int, repeat: int) -> RunRow:
    return RunRow(
        platform=platform, model=model, strategy="s", recipe="r", nodes=nodes, repeat=repeat,
        replicas=nodes, per_replica_batch_size=64, global_batch_size=64 * nodes,
        quality_metric="test_accuracy", quality_direction="higher", quality_best=1.0,
        parameters_hash="0",
    )  # fmt: skip


def _measure(row: RunRow, seconds: float, is_missed: bool, question: Question) -> None:
    """Set the values of a valid run; one that misses a deadline takes six times as long."""
    row.status = RunState.OK
    is_late = is_missed and "execution_time_s" in question.limits
    row.execution_time_s = seconds * (6 if is_late else 1)
    row.node_hours = row.nodes * row.execution_time_s / 3600
    row.cost_usd = row.node_hours * row.usd_per_node_hour
    row.quality = row.test_accuracy = 0.5 if is_missed and not is_late else 0.95
    row.examples_trained = 60_000
    row.wall_time_s = row.execution_time_s + 10
    row.target_reached = row.quality >= 0.9
    row.time_to_target_s = row.execution_time_s if row.target_reached else float("nan")
    row.cost_to_target_usd = row.cost_usd if row.target_reached else float("nan")


TIME, COST = Question(), Question(goal="cost_usd")
ACCURACY = Question(limits={"test_accuracy": Limit(at_least=0.9)})
DEADLINE = Question(limits={"execution_time_s": Limit(at_most=130)})
TARGET = Question(goal="time_to_target_s", limits={"test_accuracy": Limit(at_least=0.9)})
OK, FAILED, MISSING = RunState.OK, RunState.FAILED, RunState.MISSING
DIVERGED, UNFIT = RunState.DIVERGED, RunState.DOES_NOT_FIT


def _cells() -> Iterator[Cell]:
    for percent in (10, 15, 20, 25, 30):
        for runs in (6, 8, 11, 20):
            for what, question in (
                ("accuracy", ACCURACY),
                ("deadline", DEADLINE),
                ("target", TARGET),
            ):
                kind = f"{percent} % miss the {what}"
                yield Cell(f"{kind}, {runs} runs", kind, runs, question, missed=percent / 100)
    for percent in (25, 32):
        for runs in (11, 20):
            for what, question in (("accuracy", ACCURACY), ("target", TARGET)):
                kind = f"{percent} % of all miss the {what}"
                name, missed = f"{kind}, {runs} runs", percent / 100
                yield Cell(name, kind, runs, question, missed=missed, all_miss=True)
    for ending in (FAILED, DIVERGED, UNFIT, MISSING):
        endings = {f"{count} of 6 {ending}": (ending,) * count for count in range(1, 7)}
        endings[f"1 of 6 {ending}, others failed"] = (ending, *[FAILED] * 5)
        endings[f"1 of 6 {ending}, others missing"] = (ending, *[MISSING] * 5)
        for name, own in endings.items():
            yield Cell(name, f"one to all runs {ending}", 6, TIME, own)
    for free in ("near", "far"):
        for name, own in {
            "all valid": (),
            **{f"{n} of 6 {e}": (e,) * n for e in (FAILED, DIVERGED, MISSING) for n in (1, 3, 6)},
        }.items():
            yield Cell(f"{free} is free, {name}", "a free platform", 6, COST, own, free=free)
    for titles in (("A", "A"), ("A", "B")):
        yield Cell(f"titles {' and '.join(titles)}", "titles", 6, TIME, titles=titles)


CELLS = {cell.name: cell for cell in _cells()}


def simulate(name: str, trials: int) -> int:
    """Return how many of the trials of a cell have a false answer."""
    cell, count = CELLS[name], 0
    dice = np.random.default_rng([1, *name.encode()])
    for first in range(0, trials, SWEEPS_OF_STUDY):
        sweeps = min(SWEEPS_OF_STUDY, trials - first)
        answers = answer_questions(cell.study(dice, sweeps))
        assert len(answers) == sweeps
        count += sum(map(cell.is_false, answers))
    return count


def main() -> None:
    """Print the rates, and exit with what is too high."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--cell", action="append", choices=list(CELLS), help="only this one")
    args = parser.parse_args()
    print("| cell | sets | false | at most (95 %) |\n|---|--:|--:|--:|")
    problems, kinds = [], defaultdict[str, list[int]](list)
    for name in args.cell or CELLS:
        count = simulate(name, args.trials)
        kinds[CELLS[name].kind].append(count)
        print(_rate_row(name, args.trials, count), flush=True)
        if is_missed(count / args.trials, args.trials):
            problems.append(f"{name}: {count} of {args.trials} are false")
    print("\n| kind | sets | false | at most (95 %) |\n|---|--:|--:|--:|")
    for kind, counts in kinds.items():
        print(_rate_row(kind, args.trials * len(counts), sum(counts)))
    sys.exit("\n".join(problems) or 0)


def _rate_row(name: str, sets: int, count: int) -> str:
    """Return the row of a table: how many of the sets are false, and at most how many are."""
    return f"| {name} | {sets:,} | {count} | {highest_rate(count / sets, sets):.1%} |"


if __name__ == "__main__":
    main()
