"""The console of a study's sweep, put in the place of the lines that Snakemake prints."""

from __future__ import annotations

import logging
from pathlib import Path

from tfscaling.console import log_handler
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.console.sweep_progress import Asked, Estimate, SweepProgress
from tfscaling.study.config import Config
from tfscaling.study.run_spec import RunSpec
from tfscaling.sweep.sweep_jobs import SweepJobs


def install(
    logger: logging.Logger, config: Config, jobs: SweepJobs, outcome: SweepOutcome
) -> log_handler.Console | None:
    """Let Snakemake's `logger` print a sweep in few lines, and its `outcome`.

    None in the snakemake of a job, in a dry-run, where Snakemake's own lines are asked for
    (`--verbose`), and in a module: the console is that of the workflow which uses it.
    """
    workflow = jobs.workflow
    output = workflow.output_settings
    own_lines = output.verbose or output.debug_dag or output.printshellcmds or output.quiet
    if own_lines or not workflow.is_main_process or workflow.modifier.namespace:
        return None
    if output.dryrun:
        log_handler.shorten(logger)
        return None

    def estimate(spec: RunSpec) -> Estimate:
        return _estimate(spec, config, jobs)

    progress = SweepProgress(Asked(config.study, jobs.specs, estimate))
    console = log_handler.Console(progress, jobs, outcome)
    console.install(logger)
    return console


def _estimate(spec: RunSpec, config: Config, jobs: SweepJobs) -> Estimate:
    """How long a run takes as the plan has it; a limit only where Slurm enforces it."""
    from tfscaling.sweep import run_estimates  # loads pandas

    limit_s = 60.0 * config.platforms[spec.point.platform].runtime_min
    found = run_estimates.estimate(spec, Path(jobs.results, "runs"), limit_s)
    is_limit = found.source == run_estimates.TIME_LIMIT
    is_known = jobs.leave_this_machine or not is_limit
    return Estimate(found.duration_s if is_known else None, is_limit)
