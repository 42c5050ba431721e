"""What can be of a planned run or benchmark: it counts, or why it does not."""

from __future__ import annotations

import enum


class RunState(enum.StrEnum):
    """The `status` of a run in records and tables."""

    #: It passed all checks: it counts.
    OK = "ok"
    #: Its loss became NaN or infinite: a result, which takes part in no median.
    DIVERGED = "diverged"
    #: It ended without a record, or its record cannot be read.
    FAILED = "failed"
    #: It began and left neither a record nor a failure: still running, or killed.
    UNFINISHED = "unfinished"
    #: Its record was made with other parameters, by other code or of other data.
    STALE = "stale"
    #: It was not run.
    MISSING = "missing"


#: What snakemake is given to make stale runs again.
RERUN_STALE = "--config rerun=stale"
#: States of a run that ended as it should: it has a record and is not run again.
FINISHED = (RunState.OK, RunState.DIVERGED)
