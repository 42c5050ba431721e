"""What Snakemake's jobs to do say of a sweep."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from builders import manifest_of, valid_config
from tfscaling.snakemake_adapter.sweep_jobs import SweepJobs

RUN, OTHER = manifest_of(valid_config()).runs
EXTRA = msgspec.structs.replace(OTHER, extra_repeat=True)
RECORD = f"results/runs/{RUN.spec.path}/run.json"


def job(output: str, is_checkpoint: bool = False) -> SimpleNamespace:
    return SimpleNamespace(output=[output], is_checkpoint=is_checkpoint)


ROUND = job("results/main/details/repeats/round=1.json", is_checkpoint=True)
TABLE = job("results/main/runs.csv")


def sweep(*jobs: SimpleNamespace, is_main: bool = True) -> SweepJobs:
    """Of a run and of an extra repeat, which may have to be made."""
    dag = SimpleNamespace(needrun_jobs=lambda: iter(jobs))
    workflow = SimpleNamespace(dag=dag, is_main_process=is_main)
    return SweepJobs(workflow, {r.spec.path: r for r in (RUN, EXTRA)}, "results")


def test_rounds_to_do_may_ask_for_every_extra_repeat() -> None:
    assert sweep(TABLE).records_to_do() == {}
    assert [*sweep(job(RECORD), TABLE).records_to_do().values()] == [RUN.spec]
    assert [*sweep(ROUND, TABLE).records_to_do().values()] == [EXTRA.spec]


@pytest.mark.parametrize(
    ("jobs", "starts"), [((job(RECORD),), True), ((ROUND,), True), ((TABLE,), False)]
)
def test_runs_are_started_by_their_jobs_and_by_rounds(
    jobs: tuple[SimpleNamespace, ...], starts: bool
) -> None:
    assert sweep(*jobs).starts_runs() is starts
    assert not sweep(*jobs, is_main=False).starts_runs()
