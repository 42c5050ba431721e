"""The folders below results/: those that all studies share, and one of each study."""

from __future__ import annotations

from tfscaling.study.configuration import ConfigError, Sources, problem

#: Names that no study may have, since the rules write there for all studies.
SHARED = ("datasets", "logs", "runs", "all_reduce")


def check_study(study: str, sources: Sources = ()) -> None:
    """The study's folder must be its own; raises ConfigError."""
    if study.lower() in SHARED:  # also where the file system takes upper and lower case as the same
        allowed = f"allowed: any name but {', '.join(SHARED)}, the folders that all studies share"
        raise ConfigError(problem(["study"], study, allowed, sources))
