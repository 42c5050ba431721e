"""Whether one host of a run alone lacks GPUs: then the run may pass on other nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from tfscaling.cluster.nodelist import NodeListError, expand
from tfscaling.launch import failures, slurm_job
from tfscaling.record.attempts import Cause
from tfscaling.record.events import PROGRAM_STARTED, Event
from tfscaling.spec.run_spec import JobSpec

#: The error of a rank that has other GPUs than the run requests.
ERROR = "DeviceError"
#: What is worth a try where TensorFlow sees no GPU, in this order.
WAYS_OUT = (
    " (1) TensorFlow's CUDA libraries: `make setup CUDA=1`; (2) the node's driver, or a module to "
    "load in the platform's `setup`; (3) only to try it without GPUs: `devices: logical` in the "
    "platform splits the CPU."
)
#: A rank of the trainer and of a program passes these only with the GPUs that the run requests.
_WITH_GPUS = {"imported", PROGRAM_STARTED}
#: Ranks of other hosts may still import TensorFlow.
_OTHERS_S = 10.0


def let_others_tell(spec: JobSpec) -> None:
    """Wait before this rank fails: srun ends the others with it, which may have their GPUs."""
    if spec.geometry.nodes > 1 and spec.measured.launcher != "local":
        time.sleep(_OTHERS_S)


def of_one_host(cause: Cause, folder: Path) -> Cause:
    """The cause, or that its host lacks what another host of the run is known to have.

    Ranks that were ended before they told anything are no evidence.
    """
    if cause.error != ERROR:
        return cause
    seen = failures.rank_events(folder).values()
    lacking = {_host(events) for events in seen if _lacks_gpus(events)}
    having = {_host(events) for events in seen if _has_gpus(events)} - lacking
    if not having or cause.host is None:
        return cause
    found = (
        f"{cause.message.removesuffix(WAYS_OUT)} Another host of the run, {min(having)}, has its "
        f"GPUs: look for the fault on {', '.join(sorted(lacking))}, in GPUs, driver or Slurm's "
        "gres.conf, and tell those who run the cluster"
    )
    return replace(cause, kind="missing_gpus", message=found, host=_slurms_name(cause.host))


def _host(events: Sequence[Event]) -> str:
    return str(events[0].get("host"))


def _lacks_gpus(events: Sequence[Event]) -> bool:
    return any(event["event"] == "failed" and event["error"] == ERROR for event in events)


def _has_gpus(events: Sequence[Event]) -> bool:
    # coordinators and parameter servers take none
    return events[0].get("job") == "worker" and any(e["event"] in _WITH_GPUS for e in events)


def _slurms_name(host: str) -> str | None:
    """How Slurm calls a host of this job, which may have a longer name itself; None: not known.

    Slurm takes no job that is to exclude a node of another name.
    """
    job = slurm_job.describe(os.environ)
    try:
        nodes = expand(job.nodes) if job is not None and job.nodes else []
    except NodeListError:
        return None
    return next((node for node in (host, host.partition(".")[0]) if node in nodes), None)
