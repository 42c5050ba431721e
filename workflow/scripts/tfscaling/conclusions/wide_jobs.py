"""The warning that a training is a wide and short job, by the platform's key `wide_jobs`."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tfscaling.conclusions.campaign import is_timed, job_time_s
from tfscaling.conclusions.evidence import Study
from tfscaling.study.config_types import WideJobs
from tfscaling.study.run_spec import Point
from tfscaling.tables.display import count_text

#: What to do about wide and short jobs of a sweep.
PLAN_ADVICE = (
    "Slurm keeps nodes idle until enough are free for such a job. Run the sweep in one allocation "
    "(`--profile profiles/allocation`), or use fewer nodes."
)


@dataclass(frozen=True)
class ShortWideJob:
    """A training whose job is wide and too short, with the recommended configuration.

    Attributes:
        nodes: Nodes of the job.
        time_s: Its time in seconds.
        limit: The platform's key.
    """

    nodes: int
    time_s: float
    limit: WideJobs

    def __str__(self) -> str:
        """Return the warning as sentences."""
        return (
            f"Warning: wide and short. A training on {count_text(self.nodes, 'node')} takes "
            f"{time_rounded_down(self.time_s)}; {limit_text(self.limit)}. Run several trainings in "
            "one allocation, or use fewer nodes."
        )


def find_short_wide_job(study: Study, point: Point) -> ShortWideJob | None:
    """Return the warning about a configuration; None if its job is not wide, or long enough.

    The time is the median over its runs. It is projected from short runs if the runs are short.

    Args:
        study: The evidence.
        point: The configuration.
    """
    platform = study.manifest.platforms.get(point.platform)
    if platform is None or platform.wide_jobs is None:
        return None
    times_s = [job_time_s(run) for run in study.runs_by_point.get(point, ()) if is_timed(run)]
    if not times_s or not platform.is_wide_and_short(point.nodes, median(times_s)):
        return None
    return ShortWideJob(point.nodes, median(times_s), platform.wide_jobs)


def limit_text(limit: WideJobs) -> str:
    """Return the key `wide_jobs` as a clause."""
    size = count_text(limit.nodes, "node")
    return f"jobs on {size} or more should run for at least {limit.minutes} min on this platform"


def time_rounded_down(time_s: float) -> str:
    """Return a time such as `75 s` or `29.9 min`, which never looks longer than it is."""
    return f"{int(time_s)} s" if time_s < 90 else f"{int(time_s / 6) / 10:g} min"
