"""How far these data follow the rules of sound benchmarking, rule by rule.

Sources: T. Hoefler and R. Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC15);
MLCommons, "MLPerf Training Rules" (github.com/mlcommons/training_policies), as far as they apply.
Every verdict follows from the tables; a rule that these data cannot decide is not applicable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from statistics import median

import pandas as pd

from tfscaling.analysis.evidence import Study
from tfscaling.analysis.method_data import Data, Part, Row, is_close, is_known, key_of
from tfscaling.records.rank_report import PACKAGES
from tfscaling.study.all_reduce_benchmark import NO_ALL_REDUCE
from tfscaling.study.grid import LINE_AXES
from tfscaling.tables import environments
from tfscaling.tables.comparison import all_at_target
from tfscaling.tables.display import TextTable
from tfscaling.tables.intervals import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.significance import INCONCLUSIVE, SUPPORTED, point_of

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"
COLUMNS = ("source", "rule", "verdict", "evidence")
HOEFLER, MLPERF = "Hoefler and Belli, rule", "MLPerf Training"
MLPERF_RUNS = 5  # of a result in image classification
RATE_TOLERANCE, CLOCK_ERROR_MAX, SLACK_S = 1e-3, 1e-2, 0.05  # two of the value itself, one in s
TIME, RATE, COMPUTE = "execution_time_s", "throughput_examples_per_s", "compute_time_s"
LOW, HIGH = f"{TIME}_low", f"{TIME}_high"
LAUNCH, QUEUE, TRAIN, TEST = "launch_time_s", "queue_time_s", "train_time_s", "test_accuracy"
WORK = ("data_time_s", "build_time_s", "first_step_time_s", TRAIN)
APART = (LAUNCH, "import_time_s", "rendezvous_time_s", "build_time_s", "evaluation_time_s")
SETUP = ("hosts", "machines", "kernel", "network_mbit_per_s", "git_commit", "started")
SYSTEM = ("cpu_model", "memory_gb", "python", *PACKAGES)
STATED = ("dataset", "optimizer", "learning_rate", "epochs", "precision", "trainer_version")


def _base_case(data: Data) -> Iterator[Part]:
    def has_base(row: Row) -> bool:
        base = data.base(row)
        return base is not None and is_close(
            row[f"baseline_{TIME}"], median(data.values(base, TIME))
        )

    bases = {key_of(base): base for row in data.points if (base := data.base(row))}.values()
    times = ", ".join(f"{base['platform_title']} {base[TIME]:.1f} s" for base in bases)
    kind = f"base cases are a single replica ({times})"
    yield data.share(data.points, has_base, "points have a measured baseline", "have none")
    yield data.share([*bases], lambda base: base["replicas"] == 1, kind, "have more replicas")


def _is_total(data: Data, row: Row) -> bool:
    total = median(data.values(row, RATE, TRAIN)) / median(data.values(row, TRAIN))
    return is_close(row[RATE], total, RATE_TOLERANCE)


def _ratios(data: Data) -> Iterator[Part]:
    def is_speedup(row: Row) -> bool:
        return is_close(row["speedup"], row[f"baseline_{TIME}"] / median(data.values(row, TIME)))

    def is_straggling(row: Row) -> bool:
        slowest = data.values(row, "straggler_ratio", COMPUTE)
        ratio = median(slowest) / median(data.values(row, COMPUTE))
        return abs(row["straggler_ratio"] - ratio) <= 0.005  # to the digits that are shown

    for name, good in {"speedup": is_speedup, "straggler_ratio": is_straggling}.items():
        points = [row for row in data.points if is_known(row, name)]
        yield data.share(points, good, f"values of {name} are ratios of medians", "are not")


def _normality(data: Data) -> Iterator[Part]:
    from scipy.stats import shapiro

    def is_of_runs(row: Row) -> bool:
        times = data.values(row, TIME)
        return all(any(is_close(row[end], time) for time in times) for end in (LOW, HIGH))

    points = [row for row in data.points if is_known(row, LOW, HIGH)]
    tested = [times for row in points if len(set(times := data.values(row, TIME))) > 2]
    rejected = sum(shapiro(times).pvalue < 1 - CONFIDENCE for times in tested)
    yield None, f"Shapiro-Wilk rejects normality of the time at {rejected} of {len(tested)} points"
    text = "intervals end at values of the runs and assume no distribution"
    yield data.share(points, is_of_runs, text, "do not")


def _order(data: Data) -> Iterator[Part]:
    from scipy.stats import norm, spearmanr

    found = {}
    for name, runs in pd.DataFrame(data.valid).dropna(subset="started").groupby("platform"):
        start = pd.to_datetime(runs["started"], utc=True, format="ISO8601").astype("int64")
        if start.nunique() > 1 and runs["nodes"].nunique() > 1:
            rho = spearmanr(start, runs["nodes"]).statistic
            found[data.platforms[name]["title"]] = (rho, math.sqrt(len(runs) - 1))
    limit = norm.ppf(1 - (1 - CONFIDENCE) / 2 / max(1, len(found)))  # platforms share the level
    for title, (rho, most) in found.items():
        holds = abs(rho) * most <= limit if most > limit else None
        said = {True: "not in the order", False: "in the order", None: "too few to tell the order"}
        yield holds, f"runs of {title} started {said[holds]} of nodes: correlation {rho:.2f}"


def _setup(data: Data) -> Iterator[Part]:
    def is_alone(run: Row) -> bool:
        machines = run["machines"].split() if is_known(run, "machines") else []
        return len(machines) >= run["nodes"] and not run["shared_with"] > 0

    yield data.facts(SETUP, data.valid)
    for fact, rows in environments.differences(data.runs).groupby("fact", sort=False):
        titles = ", ".join(data.platforms[name]["title"] for name in rows["platform"])
        yield False, f"{fact} differs between the runs of {titles}"
    yield data.share(data.valid, is_alone, "runs had a machine for each node, alone", "had not")


def _is_sum(run: Row) -> bool:
    phases = sum(run[name] for name in (*WORK, "import_time_s", "rendezvous_time_s"))
    return bool(phases - SLACK_S <= run[TIME] <= phases + run[LAUNCH] + SLACK_S)


def _time(data: Data) -> Iterator[Part]:
    def is_synchronised(run: Row) -> bool:
        return run["clock_uncertainty_max_s"] <= CLOCK_ERROR_MAX * run[TIME]

    names = ["clock_offset_max_s", "clock_uncertainty_max_s"]
    off = "{:.1f} ms ± {:.1f} ms".format(*(1000 * data.runs[names].astype(float).max()))
    text = f"runs have clock offsets, largest {off.replace('nan ms', 'unknown')}"
    yield data.share(data.valid, is_synchronised, text, "have none that is sure enough")
    waited = [run for run in data.valid if data.platforms[run["platform"]]["launcher"] == "srun"]
    yield data.share(waited, lambda run: is_known(run, QUEUE), "queue times are known", "are not")
    yield data.share(data.valid, _is_sum, "times are the sum of their phases", "are not")


def _lines(data: Data) -> Iterator[Part]:
    lines = []
    for _, line in data.comparison.groupby(list(LINE_AXES), sort=False, dropna=False):
        nodes = line.loc[line["runs"] > 0, "nodes"]
        gaps = line[(line["runs"] == 0) & line["nodes"].between(nodes.min(), nodes.max())]
        lines += [{**line.iloc[0], "gaps": len(gaps)}] if len(nodes) > 1 else []
    text = "lines over the nodes join neighbours of the grid"
    yield data.share(lines, lambda line: not line["gaps"], text, "pass over points without a run")


def _target(data: Data) -> Iterator[Part]:
    pairs = [(point_of(data.base(row) or row), point_of(row)) for row in data.compared]
    made = max(1, len(pairs))
    found = dict(zip([point_of(row) for row in data.compared],
                     data.samples.differences(TEST, pairs, made), strict=True))  # fmt: skip

    def is_no_worse(row: Row) -> bool:
        loss = found[point_of(row)]
        if loss is None or loss.support not in (SUPPORTED, INCONCLUSIVE):
            return False
        return loss.support == INCONCLUSIVE or not loss.is_worse

    if (target := data.points[0].get("target_accuracy")) and not math.isnan(target):
        text = f"points reached the held-out accuracy {target:g} in all runs"
        yield data.share(data.points, all_at_target, text, "did not")
    text = (
        "points are not shown to err more on held-out data than their baseline "
        f"({CONFIDENCE:.0%}, {made} comparisons together)"
    )
    yield data.share(data.compared, is_no_worse, text, "err more or have too few runs to tell")


def _seeds(data: Data) -> Iterator[Part]:
    seeds = {key: {data.asked_of(run, "seed") for run in runs} for key, runs in data.at.items()}
    usual = max(seeds.values(), key=len)
    text = f"points ran with the seeds {', '.join(map(str, sorted(usual)))}"
    yield data.share(data.points, lambda row: seeds[key_of(row)] == usual, text, "did not")
    text = f"points have {MLPERF_RUNS} or more runs"
    yield data.share(data.points, lambda row: row["runs"] >= MLPERF_RUNS, text, "have fewer")
    text, asked = "points count all runs asked for", data.comparison.dropna(subset="runs_asked")
    rows = asked.to_dict("records")
    yield data.share(rows, lambda row: row["runs"] == row["runs_asked"], text, "do not")


#: Name → source, rule, and the function that says what these data show of it.
RULES: dict[str, tuple[str, str, Callable[[Data], Iterable[Part]]]] = {
    "base_case": (f"{HOEFLER} 1", "Speed-up comes with its base case: kind and time.", _base_case),
    "subsets": (f"{HOEFLER} 2", "What is left out is left out for a reason.", lambda data: [
        data.share(data.left_out, lambda row: row["reason"] not in ("", "excluded by the grid"),
                   "runs and points left out say why", "do not"),
        data.share(data.valid, lambda run: data.asked_of(run, "train_examples_max") is None,
                   "runs train on all examples", "do not and do not say why")]),
    "rates": (f"{HOEFLER} 3", "Rates are total work over total time, not means.", lambda data: [
        data.share([row for row in data.points if is_known(row, RATE)],
                   lambda row: _is_total(data, row),
                   "throughputs are total examples over median time", "are not")]),
    "ratios": (f"{HOEFLER} 4", "Ratios are made of summaries, not summarised.", _ratios),
    "intervals": (f"{HOEFLER} 5", "What is not deterministic has an interval.", lambda data: [
        data.share(data.points, lambda row: is_known(row, LOW, HIGH),
                   f"points have {RUNS_FOR_INTERVAL} or more runs and an interval of the time",
                   "have too few for one")]),
    "normality": (f"{HOEFLER} 6", "Normality is not taken for granted.", _normality),
    "comparison": (f"{HOEFLER} 7", "Comparisons are statistically sound.", lambda data: [
        data.share(data.compared, lambda row: is_known(row, "speedup_low", "speedup_high"),
                   "compared points have an interval of the speed-up", "have too few runs")]),
    "order": (f"{HOEFLER} 7", "Runs do not start in the order of what is studied.", _order),
    "summary": (f"{HOEFLER} 8", "Medians come with what they do not show.", lambda data: [
        data.share([row for row in data.points if row["runs"] > 1], lambda row: all(
                   map(is_close, (row[TIME + end] for end in ("", "_min", "_max")),
                       (median(times := data.values(row, TIME)), min(times), max(times)))),
                   "points show median, least and largest time of their runs", "do not")]),
    "setup": (f"{HOEFLER} 9", "Factors and set-up are documented, and alike.", _setup),
    "time": (f"{HOEFLER} 10", "Parallel time is synchronised and defined.", _time),
    "bounds": (f"{HOEFLER} 11", "Results stand beside a bound.", lambda data: [
        data.share(data.points, lambda row: is_known(row, "speedup", "scaling_efficiency"),
                   "points stand beside their ideal speed-up", "have none"),
        data.share([row for row in data.timed if row["status"] != NO_ALL_REDUCE],
                   lambda row: is_known(row, "step_bound_s", "step_time_over_bound"),
                   "steps stand beside computation plus all-reduce, measured alone", "do not")]),
    "lines": (f"{HOEFLER} 12", "Lines join only what may be joined.", _lines),
    "clock": (MLPERF, "The clock starts before the data; initialisation apart.", lambda data: [
        data.share(data.valid, _is_sum, "runs have reading the data in their time", "have not"),
        data.facts(APART, data.valid)]),
    "target": (MLPERF, "The clock stops when the same quality is reached.", _target),
    "seeds": (MLPERF, "Results are of several runs with fixed seeds, none dropped.", _seeds),
    "stated": (MLPERF, "Hyperparameters and data set are stated.", lambda data: [
        data.share(data.valid, lambda run: all(
                   data.asked_of(run, name) is not None for name in STATED) and
                   run["parameters_hash"] == data.asked_of(run, "parameters_hash"),
                   f"runs were made with the stated {', '.join(STATED)}", "were not")]),
    "held_out": (MLPERF, "Quality is measured on held-out data.", lambda data: [
        data.share(data.valid, lambda run: is_known(run, TEST),
                   "runs have its accuracy", "do not")]),
    "system": (MLPERF, "Hardware and software are named.", lambda data: [
        data.facts(SYSTEM, data.valid),
        data.facts(("gpus", "gpu_driver"), [r for r in data.valid if r["gpus_per_node"] > 0])]),
}  # fmt: skip


def rules(study: Study, communication: pd.DataFrame | None = None) -> pd.DataFrame:
    """COLUMNS: one row per rule, with the verdict on these data and what decides it."""
    data, rows = Data(study, communication), []
    for source, text, check in RULES.values():
        parts = [*check(data)] if data.points else [(None, "nothing is measured yet")]
        holds = [good for good, _ in parts if good is not None]
        verdict = (PASS if all(holds) else FAIL) if holds else NOT_APPLICABLE
        evidence = "; ".join(said for _, said in parts if said) or "nothing here can show it"
        rows.append([source, text, verdict, f"{evidence[0].upper()}{evidence[1:]}."])
    return pd.DataFrame(rows, columns=list(COLUMNS))


def as_text(table: pd.DataFrame) -> TextTable:
    """The rules as people read them."""
    counts = ", ".join(f"{n} {name}" for name, n in table["verdict"].value_counts().items())
    return TextTable("Method", table.astype(object), (f"Rules: {counts}.",))
