"""How far these data follow published rules of benchmarking, rule by rule.

Sources: T. Hoefler and R. Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC15);
MLCommons, "MLPerf Training Rules" (github.com/mlcommons/training_policies), as far as they apply.
A rule is checked where a data set can break it; what holds for every data set of this workflow is
tested instead. A rule that needs more runs is not
followed yet; one that these data cannot decide is not applicable.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pandas as pd

from tfscaling.conclusions.evidence import Study
from tfscaling.record.metrics import QUALITY
from tfscaling.record.phases import PHASES, TRAINER_PHASES
from tfscaling.record.rank_report import PACKAGES
from tfscaling.spec.run_spec import RunSpec
from tfscaling.tables import data_warnings, runs_table
from tfscaling.tables.comparison import all_at_target
from tfscaling.tables.display import TextTable, quality_name, rounded, target_text
from tfscaling.tables.estimates import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.rows import columns
from tfscaling.tables.table_rows import frame, points_of, rows_of

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"
#: More runs decide the rule.
NOT_YET = "not yet"
HOEFLER, MLPERF = "Hoefler and Belli, rule", "MLPerf Training"
#: Runs of a result in image classification.
MLPERF_RUNS = 5
#: Largest uncertainty of a clock, a fraction of the time that is measured.
CLOCK_ERROR_MAX = 1e-2
#: By how much the phases of a run may miss its time: the rounding of events.
SLACK_S = 0.05
TIME = "execution_time_s"
LOW, HIGH = f"{TIME}_low", f"{TIME}_high"
LAUNCH, PROGRAM = "launch_time_s", "program_time_s"
#: The phases that sum to the time; programs and checkpoints have further phases.
PARTS = tuple(name for name, phase in PHASES.items() if phase.of_execution_time)
#: Keys of a recipe by which a run trains on a part of the examples.
PARTIAL = ("train_examples_max", "validation_examples", "stop_after_steps")
SETUP = (
    *("hosts", "machines", "kernel", "network_mbit_per_s", "git_commit", "started"),
    *("cpu_model", "memory_gb", "python", *PACKAGES),
)

#: (PASS, NOT_YET or FAIL, None if it decides nothing; what it says, "" if nothing).
Part = tuple[str | None, str]
#: Whether each row of a table is as a rule asks for.
Mask = Sequence[bool] | np.ndarray | pd.Series


class Data:
    """The tables and the manifest as the rules look at them.

    `valid` are the runs that count, `timed` the ones with times that count, `points` the points
    with valid runs, `compared` the points with a different point as baseline.
    """

    def __init__(self, study: Study) -> None:
        runs, comparison = study.runs, study.comparison
        self.runs, self.comparison = runs, comparison
        self.platforms = study.manifest.platforms
        self.valid = runs[runs["status"] == "ok"]
        self.timed = self.valid[self.valid[TIME].notna()]
        self.points = comparison[comparison["runs"] > 0]
        at = {point.path: number for number, point in enumerate(points_of(self.points))}
        #: For each of `points` the number of its baseline among them, or None.
        self.baselines = [at.get(path) for path in self.points["baseline_point"]]
        planned = {(r.spec.point, r.spec.repeat): r.spec for r in study.manifest.runs}
        #: What was planned for each of `valid`.
        keys = zip(points_of(self.valid), self.valid["repeat"].tolist(), strict=True)
        self.planned: list[RunSpec] = [planned[key] for key in keys]

    @property
    def compared(self) -> pd.DataFrame:
        pairs = enumerate(self.baselines)
        return self.points[[base is not None and base != n for n, base in pairs]]

    def share(
        self, table: pd.DataFrame, good: Mask, text: str, lack: str, otherwise: str = FAIL
    ) -> Part:
        """PASS if all rows are good, else `otherwise`: `12 of 14 <text>; 2 <lack>: <platforms>`."""
        bad = table["platform"][~np.asarray(good, bool)]
        said = f"{len(table) - len(bad)} of {len(table)} {text}"
        said += f"; {len(bad)} {lack}: {self._counted(bad)}" if len(bad) else ""
        return (PASS if bad.empty else otherwise, said) if len(table) else (None, "")

    def facts(self, names: Iterable[str], table: pd.DataFrame) -> Part:
        """Whether all rows have a value in these columns."""
        lacking = [name for name in names if not known(table, name).all()]
        text, lack = f"runs tell {', '.join(names)}", f"do not tell {' and '.join(lacking)}"
        return self.share(table, known(table, *names), text, lack)

    def _counted(self, platforms: Iterable[str]) -> str:
        counts = Counter(self.platforms[name].title for name in platforms)
        return ", ".join(f"{title} ({count})" for title, count in counts.items())


def known(table: pd.DataFrame, *names: str) -> pd.Series:
    """Which rows have a value in all of these columns."""
    found = pd.Series(True, index=table.index)
    for name in names:
        found &= table[name].notna() & (table[name].astype(object) != "")
    return found


Check = Callable[[Data], Iterable[Part]]
#: Name → source, rule, and the function that returns what these data show of it, in their order.
RULES: dict[str, tuple[str, str, Check]] = {}


def _rule(source: str, text: str) -> Callable[[Check], Check]:
    """Add a function to RULES."""

    def added(check: Check) -> Check:
        RULES[check.__name__.removeprefix("_")] = source, text, check
        return check

    return added


@_rule(f"{HOEFLER} 1", "Speed-up comes with its base case: kind and time.")
def _base_case(data: Data) -> Iterator[Part]:
    points = data.points
    measured = known(points, f"baseline_{TIME}") & np.array([b is not None for b in data.baselines])
    bases = points.iloc[list(dict.fromkeys(b for b in data.baselines if b is not None))]
    pairs = zip(bases["platform_title"].tolist(), bases[TIME].tolist(), strict=True)
    times = ", ".join(f"{title} {rounded(s, 1)} s" for title, s in pairs)
    kind = f"base cases are a single replica ({times})"
    yield data.share(points, measured, "configurations have a measured baseline", "have none")
    yield data.share(bases, bases["replicas"] == 1, kind, "have more replicas")


@_rule(f"{HOEFLER} 2", "What is left out is left out for a reason.")
def _subsets(data: Data) -> Iterator[Part]:
    columns = ["platform", "reason"]
    failed = data.runs.loc[data.runs["status"] != "ok", columns]
    excluded = data.comparison.loc[data.comparison["status"] == "excluded", columns]
    left_out = pd.concat([failed, excluded])
    said = ~left_out["reason"].isin(["", "excluded by the grid"])
    recipes = [spec.recipe for spec in data.planned]
    whole = [all(getattr(recipe, key) is None for key in PARTIAL) for recipe in recipes]
    yield data.share(left_out, said, "runs and configurations left out say why", "do not")
    yield data.share(data.valid, whole, "runs train on all examples", "do not and do not say why")


@_rule(f"{HOEFLER} 5", "What is not deterministic has an interval.")
def _intervals(data: Data) -> Iterator[Part]:
    text = f"configurations have {RUNS_FOR_INTERVAL} or more runs and an interval of the time"
    yield data.share(
        data.points, known(data.points, LOW, HIGH), text, "have too few for one", NOT_YET
    )


@_rule(f"{HOEFLER} 7", "Comparisons are statistically sound.")
def _comparison(data: Data) -> Iterator[Part]:
    compared = known(data.compared, "speedup_low", "speedup_high")
    text = "compared configurations have an interval of the speed-up"
    yield data.share(data.compared, compared, text, "have too few runs", NOT_YET)


@_rule(f"{HOEFLER} 7", "Runs do not start in the order of what is studied.")
def _order(data: Data) -> Iterator[Part]:
    """Fails where every repeat started by rising nodes, or by falling nodes: seldom by chance."""
    platforms = data.valid.dropna(subset="started").groupby("platform", sort=True)
    for name, runs in platforms:
        start = pd.to_datetime(runs["started"], utc=True, format="ISO8601")
        rising, falling, chance = [], [], 2.0
        for _, nodes in runs.loc[start.sort_values().index].groupby("repeat")["nodes"]:
            if nodes.nunique() > 1:
                rising.append(nodes.is_monotonic_increasing)
                falling.append(nodes.is_monotonic_decreasing)
                ties = math.prod(map(math.factorial, nodes.value_counts()))
                chance *= ties / math.factorial(len(nodes))
        title = data.platforms[str(name)].title
        if chance > (1 - CONFIDENCE) / len(platforms):
            yield None, f"runs of {title} are too few to show the order of nodes"
        else:
            most = max(sum(rising), sum(falling))
            text = f"{most} of {len(rising)} repeats of {title} in one order of nodes"
            yield PASS if most < len(rising) else FAIL, text


@_rule(f"{HOEFLER} 9", "Factors and set-up are documented, and alike.")
def _setup(data: Data) -> Iterator[Part]:
    valid = data.valid
    machines = [len(data_warnings.machines_of(names)) for names in valid["machines"]]
    is_alone = (np.array(machines) >= valid["nodes"]) & ~(valid["shared_with"].astype(float) > 0)
    yield data.facts(SETUP, valid)
    yield data.facts(("gpus", "gpu_driver"), valid[valid["gpus_per_node"] > 0])
    for fact, rows in runs_table.differences(data.runs).groupby("fact", sort=False):
        titles = ", ".join(str(data.platforms[name].title) for name in rows["platform"])
        yield FAIL, f"{fact} differs between the runs of {titles}"
    yield data.share(valid, is_alone, "runs had a machine for each node, alone", "had not")


def _is_sum(runs: pd.DataFrame) -> pd.Series:
    """Whether the time of each run is the sum of its phases; the launch may overlap the rest."""
    seconds = runs[[*PARTS, LAUNCH, TIME]].astype(float)
    of_trainer = [name for name in PARTS if name in TRAINER_PHASES]
    # of a program nobody may have observed them
    is_told = seconds[of_trainer].notna().all(axis=1) | seconds[PROGRAM].notna()
    phases = seconds[[*PARTS]].sum(axis=1)
    longest = phases + seconds[LAUNCH] + SLACK_S
    return is_told & (phases - SLACK_S <= seconds[TIME]) & (seconds[TIME] <= longest)


@_rule(f"{HOEFLER} 10", "Parallel time is synchronised and defined.")
def _time(data: Data) -> Iterator[Part]:
    clocks = data.runs[["clock_offset_max_s", "clock_uncertainty_max_s"]].astype(float)
    off = "{:.1f} ms ± {:.1f} ms".format(*(1000 * clocks.max()))
    timed = data.timed
    uncertainty_s = clocks["clock_uncertainty_max_s"][timed.index]
    synchronised = uncertainty_s <= CLOCK_ERROR_MAX * timed[TIME].astype(float)
    text = f"runs have clock offsets, largest {off.replace('nan ms', 'unknown')}"
    yield data.share(timed, synchronised, text, "have none that is sure enough")
    by_slurm = [n for n, platform in data.platforms.items() if platform.launcher != "local"]
    queued = timed[timed["platform"].isin(by_slurm)]
    yield data.share(queued, known(queued, "queue_time_s"), "queue times are known", "are not")
    yield data.share(timed, _is_sum(timed), "times are the sum of their phases", "are not")
    untimed = len(data.valid) - len(timed)
    yield None, f"{untimed} of {len(data.valid)} runs have no times that count" * bool(untimed)


@_rule(f"{HOEFLER} 11", "Results are compared with a bound.")
def _bounds(data: Data) -> Iterator[Part]:
    points = data.points
    ideal = known(points, "speedup", "scaling_efficiency")
    yield data.share(points, ideal, "configurations have their ideal speed-up", "have none")


@_rule(MLPERF, "The clock stops when the same quality is reached.")
def _target(data: Data) -> Iterator[Part]:
    for _, points in data.points[data.points["target"].notna()].groupby("quality_metric"):
        rows = rows_of(points)
        text = f"configurations reached the {target_text(rows[0])} in all runs"
        yield data.share(points, [all_at_target(row) for row in rows], text, "did not")


@_rule(MLPERF, "Results are of several runs, none dropped.")
def _repeats(data: Data) -> Iterator[Part]:
    text = f"configurations have {MLPERF_RUNS} or more runs with times"
    yield data.share(
        data.points, data.points["runs_timed"] >= MLPERF_RUNS, text, "have fewer", NOT_YET
    )
    planned = data.comparison.dropna(subset="runs_asked")
    every = planned["runs"] == planned["runs_asked"]
    yield data.share(planned, every, "configurations count all planned runs", "do not")


@_rule(MLPERF, "Quality is measured on held-out data.")
def _held_out(data: Data) -> Iterator[Part]:
    is_known = known(data.valid, QUALITY)
    is_held_out = [spec.recipe.quality.is_held_out for spec in data.planned]
    text = f"runs have a {quality_name(data.valid)} on held-out examples"
    yield data.share(data.valid, is_known & np.array(is_held_out), text, "do not")


class RuleRow(msgspec.Struct):
    """A rule, and what decides on these data whether they follow it."""

    source: str
    rule: str
    verdict: str
    evidence: str


COLUMNS = tuple(columns(RuleRow))


def table(study: Study) -> pd.DataFrame:
    """One `RuleRow` per rule."""
    data, rows = Data(study), []
    for source, text, check in RULES.values():
        parts = [*check(data)] if len(data.points) else [(None, "nothing is measured yet")]
        found = {verdict for verdict, _ in parts}
        verdict = next((v for v in (FAIL, NOT_YET, PASS) if v in found), NOT_APPLICABLE)
        evidence = "; ".join(said for _, said in parts if said) or "nothing here can show it"
        rows.append(RuleRow(source, text, verdict, f"{evidence[0].upper()}{evidence[1:]}."))
    return frame(RuleRow, rows)


def as_text(table: pd.DataFrame) -> TextTable:
    """The rules as people read them."""
    counts = ", ".join(f"{n} {name}" for name, n in table["verdict"].value_counts().items())
    return TextTable("Method", table.astype(object), (f"Rules: {counts}.",))
