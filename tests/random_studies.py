"""Studies at random: platforms, recipes, grids, prices, questions, runs of known times.

`FEATURES` lists what a study may have besides a grid and a question by time or cost. A study with
several of them is drawn as often as their probabilities say; a test may force some.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generator
import msgspec
from builders import DIVERGENCE, REGISTRIES, raw_config, write_failure
from generator import executions, training_report
from measured import PRICE
from msgspec.structs import replace
from tfscaling.files.program_errors import InputError
from tfscaling.plan.retries import SlurmSweep
from tfscaling.record import run_record
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import (
    Epoch,
    GpuUse,
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    ProgramReport,
    RankReport,
    ResourceUse,
    Totals,
)
from tfscaling.record.run_record import EarlierAttempt, Resumption, RunRecord, SlurmJob, StepBlock
from tfscaling.study import acceptance, config_validation
from tfscaling.study.config_types import PROGRAM_STRATEGY, Config
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.run_spec import Point

#: What a study may have → its probability.
FEATURES = {
    "trainings": 0.5,
    "search": 0.2,
    "short search": 0.05,
    "quality": 0.1,
    "target": 0.15,
    "recipes compared": 0.15,
    "hours": 0.15,
    "efficiency": 0.15,
    "energy": 0.12,
    "queue": 0.1,
    "campaign": 0.2,
    "revisions": 0.1,
    "GPUs": 0.25,
    "strategies": 0.1,
    "doublings": 0.1,
    "program": 0.12,
    "short runs": 0.1,
    "whole training": 0.1,
    "clouds": 0.2,
    "local": 0.1,
    "excluded": 0.15,
    "baseline": 0.1,
}
TITLES = (None, "A100 nodes", "A100 nodes", "<b>|é")
ENDINGS = (
    *("ok", "ok", "ok", "ok", "diverged", "failed", "does_not_fit", "missing", "unfinished"),
    *("retried", "resumed", "failed often"),
)
#: When the first run starts, for runs on one machine, and seconds between two runs.
_BEGIN, _PAUSE_S = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), 5.0
#: Configurations drawn until one is allowed.
_DRAWS_MAX = 500
_WEAK, _STRONG = "weak", "strong"
#: Loss of a model that is never right, on training data and on held-out data.
_LOSS_OF_ZERO, _TEST_LOSS_OF_ZERO = 1.1, 1.2


def random_config(
    dice: random.Random, features: Collection[str] = (), words: Collection[str] = ()
) -> Config:
    """Return a configuration that is allowed, with some features for certain, others at random.

    Its parts are drawn independently, and again until the configuration is allowed.

    Args:
        dice: Source of all that is drawn.
        features: Names in FEATURES that it has.
        words: Words of `features_of` that it has.
    """
    for _ in range(_DRAWS_MAX):
        has = {name for name, share in FEATURES.items() if dice.random() < share} | {*features}
        try:
            raw = msgspec.to_builtins(_Draw(dice, has).config())
            config = acceptance.validate_and_plan(raw, REGISTRIES)[0]
        except InputError:  # such as a limit of GPU-hours without GPUs
            continue
        if {*words} <= {*features_of(config)}:
            return config
    raise AssertionError(f"no configuration with {', '.join((*features, *words))} is allowed")


def features_of(config: Config) -> Iterator[str]:
    """Yield what a study has, as words to count: goal, limits and further keys."""
    question, blocks = config.question, config.grid
    yield f"goal {question.goal}"
    yield from (f"limit of {name}" for name in question.limits_in_force)
    recipes = [
        config.recipes[name]
        for block in blocks
        for name in block.axis_values("recipe")
        if name in config.recipes
    ]
    gpus = [n for block in blocks for n in block.axis_values("gpus_per_node")]
    campaign = question.campaign
    present = {
        "trainings": question.trainings,
        "search": config.search,
        "short runs of a search": config.search and config.search.short_run_keys,
        "choice of recipes": "recipe" in question.choose,
        "campaign": campaign,
        "campaign with time limit": campaign and campaign.time_limit,
        "campaign with checkpoints": campaign and campaign.checkpoint_every,
        "campaign on spot nodes": campaign and campaign.spot,
        "campaign with dates": campaign and campaign.start,
        "revisions": config.compare_revisions,
        "GPUs": any(gpus),
        "numbers of GPUs": len({*gpus}) > 1,
        "several strategies": any(len(block.axis_values("strategy")) > 1 for block in blocks),
        "doublings": any(recipe.doublings for recipe in recipes),
        "program": any(recipe.program for recipe in recipes),
        "short runs": any(recipe.stop_after_steps for recipe in recipes),
        "whole training": question.whole_training,
        "clouds": any(each.cloud for each in config.platforms.values()),
        "processes as nodes": any(e.launcher == "local" for e in config.platforms.values()),
        "runs that explain others": any(block.explain for block in blocks),
        "excluded": any(block.exclude for block in blocks),
        "baseline": config.comparison.baseline.axes,
    }
    yield from (name for name, value in present.items() if value)


def unit_s(seed: int) -> float:
    """Return the time of a complete run on one node in a study with this seed, in seconds."""
    return float(10 ** random.Random(seed).uniform(-2, 3))


@dataclass
class _Draw:
    """One draw of a configuration, which may not be allowed.

    Attributes:
        dice: Source of all that is drawn.
        has: The features that it has.
        metric: The recipes' metric of quality.
        unit_s: Time of a complete run on one node, in seconds.
    """

    dice: random.Random
    has: Collection[str]
    metric: str = "test_accuracy"
    unit_s: float = 1.0

    def config(self) -> Config:
        """Return the configuration."""
        dice = self.dice
        names = dice.sample(["near", "far"], dice.choice([1, 2]))
        is_usual = dice.random() < 0.7
        self.metric = "test_accuracy" if is_usual else dice.choice(["test_loss", "accuracy"])
        platforms = self._platforms(names)
        block = self._block(names)
        question = self._question(block, platforms)
        raw = raw_config(
            (("grid",), [block]), (("platforms",), platforms), (("question",), question)
        )
        raw["recipes"] = self._recipes()
        raw["seed"] = dice.randrange(10_000)
        self.unit_s = unit_s(raw["seed"])
        question["limits"] |= self._limits(block)
        if "campaign" in self.has:
            self._add_campaign(question)
        if "whole training" in self.has:
            question["whole_training"] = {"epochs": dice.choice([5, 20])}
        if "revisions" in self.has:
            raw["compare_revisions"] = block["recipe"] = [_WEAK, _STRONG]
        if {"search", "short search"} & {*self.has}:
            raw["search"] = self._search()
        if "baseline" in self.has:
            axes = {"nodes": dice.choice(block["nodes"]), "platform": dice.choice(names)}
            axis = dice.choice([*axes])
            raw["comparison"] = {"baseline": {axis: axes[axis]}}
        return config_validation.convert_to_types(raw)

    def _platforms(self, names: Collection[str]) -> dict[str, Any]:
        """Return the platforms with these names."""
        dice, found = self.dice, {}
        for name, cloud in zip(names, ("gcp", "aws"), strict=False):
            is_local = "local" in self.has and dice.random() < 0.7
            platform: dict[str, Any] = {
                "launcher": "local" if is_local else "srun",
                "nodes_max": 8,
                "cpus_per_node": dice.choice([4, 8]),
                "gpus_per_node_max": 4,
                "devices": "logical" if is_local else "physical",
            }
            if (price := dice.choice([None, 0.0, 1.0, 1.0, 2.5, 2.5])) is not None:
                platform |= {**PRICE, "usd_per_node_hour": price}
                if dice.random() < 0.3:
                    platform["usd_per_gpu_hour"] = 0.5
            if title := dice.choice(TITLES):
                platform["title"] = title
            if "clouds" in self.has:
                platform["cloud"] = cloud
            found[name] = platform
        return found

    def _block(self, platforms: Collection[str]) -> dict[str, Any]:
        """Return the block of the grid on these platforms."""
        dice = self.dice
        block: dict[str, Any] = {
            "platform": [*platforms],
            "recipe": dice.sample([_WEAK, _STRONG], dice.choice([1, 1, 2])),
            "nodes": sorted(dice.sample([1, 2, 3, 4], dice.randint(1, 3))),
            "repeats": dice.choice([1, 3, 6, 6, 8, 12]),
        }
        if "recipes compared" in self.has:
            block["recipe"] = [_WEAK, _STRONG]
        if "program" in self.has:
            block["strategy"] = PROGRAM_STRATEGY
            block["explain"] = dice.random() < 0.3
        else:
            block["model"] = "mnist_cnn"
            if "strategies" in self.has:
                others = ["mpi_all_reduce", "parameter_server"]
                block["strategy"] = ["multi_worker_mirrored", dice.choice(others)]
        if "GPUs" in self.has:
            block["gpus_per_node"] = sorted(dice.sample([0, 1, 2, 4], dice.choice([1, 2])))
            block["tasks_per_node"] = dice.choice([1, "gpus"])
        if "excluded" in self.has:
            block["exclude"] = [{"nodes": max(block["nodes"]), "reason": "too expensive"}]
        return block

    def _recipes(self) -> dict[str, Any]:
        """Return the recipes `weak` and `strong`."""
        dice, common = self.dice, dict[str, Any]()
        epochs = 3 if "whole training" in self.has else dice.choice([1, 2, 3])
        common["epochs"] = epochs
        if "program" in self.has:
            common |= {"program": ["true"], "observe": dice.choice(["fit", "fit", "nothing"])}
        else:
            common["learning_rate"] = 0.1
            if {"target", "quality"} & {*self.has} or dice.random() < 0.3:
                common["evaluation_interval_epochs"] = 1
            if "short runs" in self.has:
                common["stop_after_steps"] = 100
        if dice.random() < 0.2:
            common["compare_resumed"] = True
        if self.metric != "test_accuracy":
            common["quality"] = {"metric": self.metric}
        size: Any = {"from": 64, "to": dice.choice([128, 256])} if "doublings" in self.has else 64
        return {
            _WEAK: {**common, "per_replica_batch_size": size},
            _STRONG: {**common, "global_batch_size": 192},
        }

    def _question(self, block: dict[str, Any], platforms: dict[str, Any]) -> dict[str, Any]:
        """Return the question without the limits that depend on times."""
        dice, has = self.dice, self.has
        goals = ["execution_time_s"] * 3
        if all(each.get("usd_per_node_hour") is not None for each in platforms.values()):
            goals += ["cost_usd"] * 2 + ["cost_to_target_usd"] * 3 * ("target" in has)
        goals += ["node_hours"] + ["core_hours", "gpu_hours"] * ("hours" in has)
        goals += ["quality"] * 4 * ("quality" in has) + ["time_to_target_s"] * 3 * ("target" in has)
        goals += ["energy_kwh"] * 3 * ("energy" in has) + ["finish_time_s"] * 4 * (
            "campaign" in has
        )
        goals += ["time_with_queue_s"] * 3 * ("queue" in has)
        question: dict[str, Any] = {"goal": dice.choice(goals), "limits": {}}
        if "recipes compared" in has:
            question["choose"] = ["platform", "strategy", "nodes", "gpus_per_node", "recipe"]
            question["limits"][self.metric] = dice.choice([None, self._quality_limit(0.65)])
        elif dice.random() < 0.3:
            question["choose"] = ["nodes"]
        if "target" in has:
            question["limits"][self.metric] = self._quality_limit(dice.choice([0.6, 0.8]))
        if dice.random() < 0.3:
            question["indifference"] = dice.choice([0.0, 0.01, 0.2])
        if "trainings" in has:
            question["trainings"] = dice.choice([1, dice.randint(2, 500)])
        return question

    def _limits(self, block: dict[str, Any]) -> dict[str, Any]:
        """Return limits near the values that runs have."""
        dice, has, nodes = self.dice, self.has, self.dice.choice(block["nodes"])
        time_s = self.unit_s / nodes**0.7
        hours = nodes * time_s / 3600
        typical = {"execution_time_s": time_s, "cost_usd": 1.5 * hours, "node_hours": hours}
        if "hours" in has:
            typical |= {"core_hours": 6 * hours, "gpu_hours": 2 * hours}
        if "queue" in has:
            typical["time_with_queue_s"] = time_s + 30
        if "energy" in has:
            typical |= {"energy_kwh": hours / 2, "rank_memory_gb": 1.5}
        names = dice.sample([*typical], dice.choice([0, 0, 1, 1, 2]))
        found: dict[str, Any] = {
            name: {"at_most": float(f"{typical[name] * dice.uniform(0.6, 2):.6g}")}
            for name in names
        }
        if "efficiency" in has:
            name = dice.choice(["scaling_efficiency", "weak_scaling_efficiency"])
            found[name] = {"at_least": dice.choice([0.3, 0.5, 0.7, 0.9])}
        if dice.random() < 0.2:
            found[self.metric] = self._quality_limit(0.65)
        return found

    def _quality_limit(self, accuracy: float) -> dict[str, float]:
        """Return the limit of the recipes' quality that this accuracy keeps, and no lower one."""
        if self.metric.endswith("accuracy"):
            return {"at_least": accuracy}
        return {"at_most": round(_TEST_LOSS_OF_ZERO - accuracy, 6)}

    def _add_campaign(self, question: dict[str, Any]) -> None:
        """Add a campaign to the question, and perhaps a limit of its time."""
        dice, unit = self.dice, max(0.1, self.unit_s)
        number = dice.choice([1, 5, 60])
        campaign: dict[str, Any] = {"at_once": dice.choice([1, 1, min(number, 4)])}
        if "trainings" in self.has:
            question["trainings"] = number
        if "trainings" not in self.has or dice.random() < 0.5:
            campaign["trainings"] = number
        if dice.random() < 0.5:
            campaign["time_limit"] = f"{unit * dice.choice([0.3, 0.8, 3]):.3f} s"
        if dice.random() < 0.5:
            campaign["checkpoint_every"] = f"{unit / 10:.3f} s"
        if dice.random() < 0.4:
            campaign["spot"] = {"interruptions_per_hour": dice.choice([0.01, 1, 20])}
        has_start = dice.random() < 0.5
        if has_start:
            campaign["start"] = dice.choice(["2026-12-01T09:00", "2026-12-01T09:00+01:00"])
        question["campaign"] = campaign
        if dice.random() < 0.5:
            limit: Any = f"{number * unit * dice.choice([0.3, 1, 3]):.3f} s"
            if has_start and dice.random() < 0.5:
                limit = f"2026-12-0{dice.randint(1, 4)}T{dice.randint(10, 23)}:00+01:00"
            question["limits"]["finish_time_s"] = {"at_most": limit}

    def _search(self) -> dict[str, Any]:
        """Return the keys of a search."""
        dice = self.dice
        keys: dict[str, Any] = {"basis": dice.choice(["every configuration once"] * 3)}
        if dice.random() < 0.3:
            keys["basis"] = "lines are smooth"
        if "short search" in self.has:
            keys["stop_after_steps"] = 100
        return keys


def write_runs(planned: Manifest, folder: Path, dice: random.Random) -> None:
    """Write what each run left: most are valid, some configurations end otherwise.

    Args:
        planned: The runs.
        folder: The folder of all runs.
        dice: Source of all that is drawn.
    """
    points = {run.spec.point: dice.choice([0.0, 0.0, 0.3, 1.0]) for run in planned.runs}
    endings = {point: dice.choice(ENDINGS) for point in points}
    truth = _Truth(planned, dice)
    extra_max = dice.choice([2, 4, 4, 12])
    for run in planned.all_runs:
        point = run.spec.point
        if run.spec.repeat > extra_max and run.extra_repeat:
            continue
        ending = endings[point] if dice.random() < points.get(point, 0.0) else "ok"
        _write_run(run, folder, ending, truth)


def _write_run(run: PlannedRun, folder: Path, ending: str, truth: _Truth) -> None:
    """Write the files of a run that ended in this way."""
    output = folder / run.spec.path / run_record.RECORD
    if ending in ("ok", "diverged", "retried", "resumed"):
        record = truth.record(run, DIVERGENCE * (ending == "diverged"))
        if ending in ("retried", "resumed"):
            _write_attempt(output.parent, run, 1, truth.unit_s / 3)
            record = replace(record, attempt=2)
        if ending == "resumed":
            record = _resumed(record)
        output.parent.mkdir(parents=True, exist_ok=True)
        run_record.write_record(output, record)
    elif ending == "failed":
        write_failure(folder, run)
    elif ending == "failed often":
        for number in (1, 2, 3):
            _write_attempt(output.parent, run, number, truth.unit_s / 3)
        write_failure(folder, run)
    elif ending == "does_not_fit":
        SlurmSweep({str(output): run.spec}).report_failure(output, "7", "OUT_OF_MEMORY")
    elif ending == "unfinished":
        (output.parent / "attempt=1").mkdir(parents=True)


def _write_attempt(folder: Path, run: PlannedRun, number: int, wall_time_s: float) -> None:
    """Write the report of a failed attempt at a run."""
    cause = {"kind": "rank_died", "message": "exit code 3", "rank": 1, "host": "node1"}
    content = {"axes": run.spec.axes, "attempt": number, "cause": cause}
    path = folder / f"attempt={number}" / run_record.FAILURE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode({**content, "wall_time_s": wall_time_s}))


def _resumed(record: RunRecord) -> RunRecord:
    """Return the record of a run that resumed after half of its training."""
    known = not record.is_of_program
    earlier = EarlierAttempt(attempt=1, duration_s=None, steps=None, cause="rank_died")
    before_s = (record.phases.train_time_s or 0.0) if known else None
    resumed = Resumption(
        epoch=1 if known else None,
        step=1 if known else None,
        steps_repeated=0 if known else None,
        trained_before_s=before_s,
        attempts=(earlier,),
    )
    return replace(record, resumed=resumed)


class _Truth:
    """What configurations truly take and reach, and records of runs that scatter around it.

    Args:
        planned: The runs.
        dice: Source of all that is drawn.
    """

    def __init__(self, planned: Manifest, dice: random.Random) -> None:
        self.unit_s, self._dice = unit_s(planned.order_seed), dice
        self._scatter = dice.choice([0.003, 0.02, 0.05])
        self._startup = dice.choice([0.05, 0.05, 0.7])
        self._exponent = dice.choice([0.0, 0.3, 0.7, 0.7, 0.95])
        self._weight: dict[str | Point, float] = {}
        self._accuracy: dict[Point, float] = {}
        names = planned.platforms
        self._has_queue = {name: dice.random() < 0.7 for name in names}
        self._energies = {name: dice.choice(["none", "all", "all", "processors"]) for name in names}
        self._platforms = names
        self._begin = _BEGIN

    def record(self, run: PlannedRun, divergence: str = "") -> RunRecord:
        """Return the record of a run; a complete training is cut to the part that it trains.

        Args:
            run: The planned run.
            divergence: How it diverged; "" if it did not.
        """
        spec, dice = run.spec, self._dice
        time_s = self._time_s(spec.point, spec.replicas) * dice.gauss(1, self._scatter)
        accuracy = self._accuracy.setdefault(spec.point, dice.choice([0.9, 0.9, 0.88, 0.7, 0.5]))
        accuracy = min(0.99, accuracy + dice.gauss(0, 0.01))
        epochs = self._epochs(run, time_s, accuracy, divergence)
        is_program = bool(spec.recipe.program)
        evaluated_s = sum(epoch.evaluation_time_s or 0.0 for epoch in epochs) or 0.02 * time_s
        startup_s, nothing = self._startup * time_s, dict.fromkeys(_PHASES_OF_TRAINER)
        parts = {name: share * startup_s for name, share in _PHASES_OF_TRAINER.items()}
        is_local = spec.measured.launcher == "local"
        waits = self._has_queue[spec.point.platform] and not is_local
        # what is not observed is not part of any phase
        is_seen = not is_program or spec.recipe.observe != "nothing"
        durations = Phases(
            **(nothing if is_program else parts),
            queue_time_s=dice.uniform(5, 60) if waits else None,
            boot_time_s=0.0 if waits else None,
            launch_time_s=0.01 * time_s,
            train_time_s=time_s - startup_s if is_seen else None,
            program_time_s=startup_s if is_program and is_seen else time_s if is_program else None,
            evaluation_time_s=evaluated_s if is_seen else None,
            probe_time_s=None if is_program else 0.01 * time_s,
            teardown_time_s=0.01 * time_s,
            execution_time_s=time_s,
        )
        started = self._begin if is_local or dice.random() < 0.3 else None
        self._begin += datetime.timedelta(seconds=3 * time_s + _PAUSE_S)
        if is_local and dice.random() < 0.02:  # the next run begins before it ends
            self._begin -= datetime.timedelta(seconds=3 * time_s + _PAUSE_S)
        made = generator.record(
            spec,
            [self._report(run, rank, epochs, time_s) for rank in range(spec.geometry.tasks)],
            durations,
            divergence=divergence,
            started=started and started.isoformat(),
            slurm_job=None if is_local else SlurmJob(id="1"),
        )
        if isinstance(steps := spec.recipe.stop_after_steps, int) and not divergence:
            made = self._shortened(generator.shortened(made, steps))
        return made

    def _shortened(self, made: RunRecord) -> RunRecord:
        """Return the record of a short run whose blocks of steps scatter, or still change."""
        short, dice = made.short_run, self._dice
        assert short is not None
        step_s = sum(block.duration_s for block in short.steady) / short.steps
        slope = 1.3 if dice.random() < 0.05 else 1.0
        blocks = tuple(
            StepBlock(steps=8, duration_s=8 * step_s * slope**number * dice.gauss(1, 0.02))
            for number in range(12)
        )
        return replace(made, short_run=replace(short, steady=blocks))

    def _time_s(self, point: Point, replicas: int) -> float:
        """Return the time that a configuration truly takes, in seconds."""
        factor = 1.0
        for key, spread in ((point.platform, 0.3), (point.recipe, 0.3), (point, 0.03)):
            drawn = self._dice.choice([0.0, self._dice.uniform(-spread, spread)])
            factor *= 1 + self._weight.setdefault(key, drawn)
        return self.unit_s * factor / replicas**self._exponent

    def _epochs(
        self, run: PlannedRun, time_s: float, accuracy: float, divergence: str
    ) -> tuple[Epoch, ...]:
        """Return the epochs of a run whose accuracy rises to its last value.

        Args:
            run: The planned run.
            time_s: Execution time of the run in seconds.
            accuracy: Accuracy on held-out examples after the last epoch.
            divergence: How it diverged; "" if it did not.
        """
        recipe, found = run.spec.recipe, []
        number, startup_s = recipe.epochs, self._startup * time_s
        interval = recipe.evaluation_interval_epochs or number
        each_s, ended_s = (time_s - startup_s) / number, startup_s
        for epoch in range(1, number + 1):
            reached = accuracy * (1 - 0.3 * (1 - epoch / number))
            is_last_of_diverged = bool(divergence) and epoch == number
            spent_s = 0.02 * time_s if epoch % interval == 0 or epoch == number else None
            ended_s += each_s + (spent_s or 0.0)
            found.append(
                Epoch(
                    epoch=epoch,
                    loss=None if is_last_of_diverged else _LOSS_OF_ZERO - reached,
                    accuracy=reached,
                    duration_s=each_s,
                    ended_s=ended_s,
                    test_loss=msgspec.UNSET if spent_s is None else _TEST_LOSS_OF_ZERO - reached,
                    test_accuracy=None if spent_s is None else reached,
                    evaluation_time_s=spent_s,
                )
            )
        return tuple(found)

    def _report(
        self, run: PlannedRun, rank: int, epochs: tuple[Epoch, ...], time_s: float
    ) -> RankReport:
        """Return what a rank reports.

        Args:
            run: The planned run.
            rank: Its number.
            epochs: The epochs of the run.
            time_s: Execution time of the run in seconds.
        """
        spec = run.spec
        machine = "one" if spec.measured.launcher == "local" else f"{spec.path}-{rank}"
        last, diverged = epochs[-1], epochs[-1].loss is None
        usual = training_report(
            rank,
            host_facts=msgspec.to_builtins(replace(generator.FACTS, machine=machine)),
            use=msgspec.to_builtins(self._use(run, rank, time_s)),
            epochs=msgspec.to_builtins(epochs),
            steps=msgspec.to_builtins(
                executions(*((each.epoch, 0, 20, each.duration_s or 0.0) for each in epochs))
            ),
            compute_steps=(0.8 * (last.duration_s or 0.0) / 20,) * 3,
            replicas=spec.replicas,
            examples_per_step=spec.global_batch_size,
            examples_trained=60_000 * len(epochs),
            test_loss=None if diverged else last.test_loss,
            test_accuracy=None if diverged else last.test_accuracy,
        )
        if not spec.recipe.program:
            return usual
        place = {
            key: value
            for key, value in msgspec.structs.asdict(usual).items()
            if key in ProgramReport.__struct_fields__
        }
        place |= {"tensorflow_version": None, "program": ("true",), "program_time_s": time_s}
        return ProgramReport(**{**place, "observed": self._observed(run, epochs, time_s)})

    def _observed(self, run: PlannedRun, epochs: tuple[Epoch, ...], time_s: float) -> Observed:
        """Return what a rank's program reports of its training."""
        if run.spec.recipe.observe == "nothing":
            return Observed()
        ranks = run.spec.geometry.tasks
        begin_s = 1000.0 + self._startup * time_s
        seen, evaluations, windows = [], [], [Totals(time_s=begin_s, steps=1, examples=64)]
        for each in epochs:
            assert each.ended_s is not None
            ended_s, evaluated_s = 1000.0 + each.ended_s, each.evaluation_time_s or 0.0
            examples = 60_000 * each.epoch // ranks
            values = {"loss": each.loss, "accuracy": each.accuracy}
            at = ended_s - evaluated_s
            seen.append(ObservedEpoch(epoch=each.epoch, time_s=at, metrics=values, steps=20,
                                      examples=examples))  # fmt: skip
            windows.append(Totals(time_s=at, steps=20 * each.epoch, examples=examples))
            if each.evaluation_time_s is not None:
                held_out = {"loss": None if each.loss is None else each.loss + 0.1,
                            "accuracy": each.test_accuracy}  # fmt: skip
                evaluations.append(ObservedEvaluation(epoch=each.epoch, begin_s=at, time_s=ended_s,
                                                      metrics=held_out))  # fmt: skip
        return Observed(
            imported_s=1000.0 + self._startup * time_s / 2,
            first_step_s=begin_s,
            last_step_s=windows[-1].time_s,
            steps=windows[-1].steps,
            examples=windows[-1].examples,
            epochs=tuple(seen),
            evaluations=tuple(evaluations),
            windows=tuple(windows),
        )

    def _use(self, run: PlannedRun, rank: int, time_s: float) -> ResourceUse:
        """Return the energy and memory that a rank reports."""
        kind, number = self._energies[run.spec.point.platform], run.spec.geometry.gpus_per_task
        power_w = 500 * self._dice.gauss(1, self._scatter)
        gpus = tuple(
            GpuUse(uuid=f"{rank}-{place}", energy_j=power_w * time_s if kind == "all" else None,
                   busy_share=0.9, memory_gb=12.0)
            for place in range(number)
        )  # fmt: skip
        processors_j = None if kind == "none" else power_w * time_s
        return ResourceUse(duration_s=time_s, gpus=gpus, processors_energy_j=processors_j,
                           cpu_s=time_s, memory_gb=self._dice.uniform(1.3, 1.6))  # fmt: skip


#: Phase before the training → its share of the start-up.
_PHASES_OF_TRAINER = {
    "import_time_s": 0.4,
    "rendezvous_time_s": 0.1,
    "data_time_s": 0.1,
    "build_time_s": 0.2,
    "first_step_time_s": 0.2,
}
