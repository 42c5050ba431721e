"""The console of a study's sweep, put in the place of the lines that Snakemake prints."""

from __future__ import annotations

import logging
from pathlib import Path

from tfscaling.console import log_handler
from tfscaling.console.sweep_progress import Asked, Estimate, SweepProgress
from tfscaling.study.config import Config
from tfscaling.study.run_spec import RunSpec
from tfscaling.sweep.sweep_jobs import SweepJobs


def install(
    logger: logging.Logger, config: Config, study: str, jobs: SweepJobs
) -> log_handler.Console | None:
    """Let Snakemake's `logger` print a sweep in few lines; `study` is the folder of its results.

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
        return _estimate(spec, config, Path(jobs.results, "runs"))

    def to_read(is_partial: bool) -> list[str]:
        if not jobs.makes(f"{study}/report.html"):
            return []  # something else was asked for
        return _to_read(Path(study, "partial") if is_partial else Path(study))

    console = log_handler.Console(
        SweepProgress(Asked(config.study, jobs.specs, estimate)),
        jobs.outputs_to_do,
        lambda: not workflow.local_exec,
        to_read,
    )
    console.install(logger)
    return console


def _estimate(spec: RunSpec, config: Config, runs_dir: Path) -> Estimate:
    """How long a run takes, as the plan has it."""
    from tfscaling.sweep import costed_plan  # loads pandas

    limit_s = 60.0 * config.platforms[spec.point.platform].runtime_min
    found = costed_plan.estimate(spec, runs_dir, limit_s)
    return Estimate(found.duration_s, found.source == costed_plan.TIME_LIMIT)


def _to_read(folder: Path) -> list[str]:
    """The headline and the path of the page in this folder of tables, if it has been made."""
    page, headline = folder / "report.html", folder / "tables/headline.md"
    if not page.exists():
        return []
    return [*(headline.read_text().splitlines() if headline.exists() else []), f"page: {page}"]
