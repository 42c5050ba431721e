"""The start of a sweep: what ends it before anything is submitted, and what watches it then."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfscaling.plan.reruns import Reruns
from tfscaling.plan.sweep_jobs import FOLLOWING, SLURM, SweepJobs
from tfscaling.record import prepared_data, run_states
from tfscaling.spec import grid, user_code, variants
from tfscaling.spec.config import BATCH_SIZE_KEYS, Config
from tfscaling.spec.configuration import Sources, problem
from tfscaling.spec.manifest import Manifest, PlannedRun

#: What a sweep on Slurm lacks without the project's executor plugin.
MISSING = (
    "--executor slurm submits jobs of a killed snakemake again, retries every failed run, excludes "
    "no broken nodes and gives no reason why jobs wait; --executor slurm-sweep, which make setup "
    "installs, does better"
)


@dataclass(frozen=True)
class SweepStart:
    """What a study's sweep is checked by; `rule` is what the rule train is called.

    Modules that load pandas, or that know Slurm, are loaded when they are asked: each dry-run and
    each job makes one of these.
    """

    config: Config
    manifest: Manifest
    sources: Sources
    jobs: SweepJobs
    reruns: Reruns
    rule: str

    @property
    def _runs_dir(self) -> Path:
        return Path(self.jobs.results, "runs")

    @property
    def _is_on_slurm(self) -> bool:
        return self.jobs.workflow.executor_plugin.name in SLURM

    @property
    def follows_jobs(self) -> bool:
        """Whether the executor asks the sweep about its jobs, as `slurm-sweep` does."""
        return bool(self.jobs.workflow.executor_plugin.name in FOLLOWING)

    def begin(self, logger: logging.Logger) -> None:
        """Watch the sweep by Snakemake's log, or raise SystemExit with why it may not begin."""
        refusals = [
            *(self.beyond_budget(), self._missing_data()),
            *(*self._local_problems(), *self._slurm_problems()),
        ]
        if any(refusals):
            raise SystemExit("\n".join([*filter(None, refusals), "Nothing is submitted."]))
        if self.follows_jobs:
            self._follow_jobs(logger)
        elif self._is_on_slurm:
            logger.warning(MISSING)

    def keep_earlier(self) -> None:
        """Keep the records that jobs to do replace, which Snakemake is about to remove."""
        self.reruns.keep_earlier(self.jobs.specs.keys() & set(self.jobs.outputs_to_do()))

    def beyond_budget(self) -> str:
        """Why runs to do exceed the budget or deadline, or a batch the prepared data, or ""."""
        from tfscaling.plan import costed_plan  # loads pandas

        refusal = costed_plan.refusal(self.config, self.manifest, self._runs_dir, self.sources)
        datasets = Path(self.jobs.results, "datasets")
        return refusal or (
            batch_problem(self.config, self.manifest.runs, datasets, self.sources) or ""
        )

    def _missing_data(self) -> str:
        """Which dataset that is missing would make finished runs again, or "".

        Snakemake makes again what reads a file that was missing, whatever its time is.
        """
        for job in self.jobs.to_do():
            output = str(next(iter(job.output), ""))
            spec = self.jobs.specs.get(output)
            if spec is None or not Path(output).exists():
                continue
            made_again = self.jobs.workflow.dag.reason(job).updated_input_run & set(job.input)
            if made_again and spec.path not in self.reruns.runs_of_changed_data:
                (file,) = made_again
                return (
                    f"{file} is missing, and finished runs would be rerun with it; make it "
                    f"first by the same command: snakemake {shlex.quote(str(file))} …"
                )
        return ""

    def _local_problems(self) -> Iterator[str]:
        """Why GPUs would not be used, ranks could not use MPI, or models cannot be built."""
        from tfscaling.plan import local_checks

        if self.jobs.workflow.deployment_settings.deployment_method:
            return
        runs = self.jobs.records_to_do().values()
        yield local_checks.cuda_problem(runs, self.config)
        yield local_checks.mpi_problem(runs, self.config)
        if self.config.check_models:
            outcome = local_checks.check(runs, Path(self.jobs.results))
            if outcome.warning:
                print(outcome.warning, file=sys.stderr)
            yield outcome.refusal

    def _slurm_problems(self) -> Iterator[str]:
        """Why Slurm can never start a job, or nobody would see its end; kept for the tables."""
        if not self._is_on_slurm:
            return
        from tfscaling.plan import preflight, sweep_jobs

        yield self._unseen_jobs()
        if rules := self.jobs.workflow.executor_settings.array_jobs:
            yield (
                f"array-jobs {rules}: not allowed, because all jobs of an array have the nodes "
                "of the first one; leave it out"
            )
        points = dict.fromkeys(spec.point for spec in self.jobs.records_to_do().values())
        how = sweep_jobs.describe(self.jobs.workflow, self.rule)
        verdict = preflight.verdict(points, self.config, how)
        said = {point.path: f"Slurm refuses it: {why}" for point, why in verdict.refused.items()}
        runs = [run.spec for run in self.jobs.runs.values()]
        run_states.write_queue_notes(self._runs_dir, runs, said)
        yield verdict.refusal

    def _unseen_jobs(self) -> str:
        """Why nobody would see that jobs end, or ""."""
        from tfscaling.plan import preflight

        used = {spec.point.platform for spec in self.jobs.records_to_do().values()}
        several = sorted(name for name in used if self.config.platforms[name].multi_cluster)
        settings = self.jobs.workflow.executor_settings
        option = f"--{self.jobs.workflow.executor_plugin.name}-status-command"
        if settings.status_command != "squeue" and not preflight.has_accounting():
            return (
                "this cluster has no accounting, so sacct reports no job's end; use "
                f"--profile profiles/slurm, or {option} squeue"
            )
        if not several or settings.status_command == "sacct":
            return ""
        return (
            f"{', '.join(several)}: multi_cluster needs {option} sacct, "
            "because squeue shows no jobs of other clusters"
        )

    def _follow_jobs(self, logger: logging.Logger) -> None:
        """Let the executor know the sweep, and adopt the jobs of a start that was killed."""
        from snakemake_interface_common.exceptions import WorkflowError

        from tfscaling.plan.retries import SlurmSweep

        sweep = SlurmSweep(self.jobs.specs, self._runs_dir)
        used = {spec.point.platform for spec in self.jobs.records_to_do().values()}
        platforms = [self.config.platforms[name] for name in used]
        # None: the cluster of this machine
        clusters = {None, *(each.cluster for each in platforms if each.multi_cluster)}
        try:
            executor = self.jobs.workflow.executor_plugin.executor
            executor.follow(sweep, str(self.jobs.workflow.workdir_init), clusters, logger.warning)
        except WorkflowError as error:
            raise SystemExit(str(error)) from error


def batch_problem(
    config: Config, runs: Iterable[PlannedRun], datasets_dir: Path, sources: Sources = ()
) -> str | None:
    """Why a run's global batch is larger than the data of a custom function, or None.

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
            allowed = (
                f"with {shape} {why}; allowed: a smaller batch, or leave out such configurations"
            )
            given = {key: getattr(recipe, key) for key in BATCH_SIZE_KEYS}
            shown = {key: value for key, value in given.items() if value is not None}
            where = ["recipes", variants.base(point.recipe)]
            return problem(where, shown, allowed, sources)
    return None
