"""Options of Snakemake that would make runs differ from their configuration.

A sweep with one of them is refused before its first run. docs/command-line.md lists all options.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from tfscaling.snakemake_adapter import resource_overrides

#: What Snakemake's nodes must share with the machine of the sweep: ranks read datasets, rules read
#: records.
_SHARED = frozenset(("input-output", "persistence", "sources"))


#: Option of several values, as the user may write it → its usual name. If it is given twice,
#: Snakemake silently keeps the values of the last one only.
_LAST_COUNTS = {
    **dict.fromkeys(("--configfile", "--configfiles"), "--configfile"),
    **dict.fromkeys(("--config", "-C"), "--config"),
    **dict.fromkeys(("--forcerun", "-R"), "--forcerun"),
    **dict.fromkeys(("--resources", "--res"), "--resources"),
    **dict.fromkeys(("--default-resources", "--default-res"), "--default-resources"),
    **dict.fromkeys(("--until", "-U"), "--until"),
    **dict.fromkeys(("--omit-from", "-O"), "--omit-from"),
    **dict.fromkeys(("--prioritize", "-P"), "--prioritize"),
    "--set-resources": "--set-resources",
    "--set-resource-scopes": "--set-resource-scopes",
    "--allowed-rules": "--allowed-rules",
    "--rerun-triggers": "--rerun-triggers",
    "--consider-ancient": "--consider-ancient",
    "--envvars": "--envvars",
}


def find_repeated_options(words: Iterable[str]) -> Iterator[str]:
    """Yield a line for each option of several values that the command line has more than once.

    Args:
        words: The words of the command line after the program.
    """
    options = itertools.takewhile(lambda word: word != "--", words)
    counts = Counter(_LAST_COUNTS.get(_option_name(word), "") for word in options)
    for name, number in counts.items():
        if name and number > 1:
            yield (
                f"{name} is given {number} times: not allowed, because Snakemake keeps only the "
                f"last one; write it once with all values: {name} A B"
            )


def _option_name(word: str) -> str:
    """Return a word of a command line without the value that is in it: `-Cseed=1`, `--config=…`."""
    is_short = word.startswith("-") and not word.startswith("--")
    return word[:2] if is_short else word.partition("=")[0]


def find_refusals(
    rule: str, resources: Any, storage: Any, groups: Any = None, remote: Any = None
) -> Iterator[str]:
    """Yield a line for each option that is refused, with what to do instead.

    Args:
        rule: The name of rule train, which a module may change.
        resources: Snakemake's settings of resources.
        storage: Its settings of storage.
        groups: Its settings of groups; None before they are known.
        remote: Its settings of remote jobs.
    """
    yield from resource_overrides.find_refusals(rule, resources.overwrite_resources.get(rule) or {})
    if rule in resources.overwrite_threads:
        yield (
            f"--set-threads {rule}=…: not allowed, because threads follow from the CPUs of a rank; "
            f"change {resource_overrides.REFUSED_RESOURCES['threads']}"
        )
    group = groups.overwrite_groups.get(rule) if groups else None
    if group:
        yield (
            f"--groups {rule}={group}: not allowed, because runs of one group share a job "
            "and its nodes; profiles/allocation makes all runs in one allocation, apart from each "
            "other"
        )
    if remote and remote.immediate_submit:
        yield "--immediate-submit: not allowed, because the executor follows and retries the runs"
    if storage.all_temp:
        yield "--all-temp: not allowed, because it deletes records when the tables have read them"
    if provider := storage.default_storage_provider:
        yield (
            f"--default-storage-provider {provider}: not allowed, because the ranks of a run write "
            "to one folder; start the sweep in a folder that the nodes share, without this option"
        )
    elif missing := _SHARED - {str(usage) for usage in storage.shared_fs_usage}:
        yield (
            f"--shared-fs-usage lacks {', '.join(sorted(missing))}: not allowed; start the sweep "
            "in a folder that the nodes share"
        )


def find_low_limits(
    limits: Mapping[str, Any], requests: Iterable[Mapping[str, object]]
) -> Iterator[str]:
    """Yield a line for each limit of `--resources` that is lower than a run's request.

    Snakemake reduces the request of a job to the limit. So Slurm would get a different request than
    the request in the plan and the records.

    Args:
        limits: Resource → its limit by `--resources`, an object with the attribute `value`.
        requests: The requests of all runs, each as resource → value.
    """
    highest: dict[str, int] = {}
    for request in requests:
        for name, value in request.items():
            if name in limits and isinstance(value, int):
                highest[name] = max(value, highest.get(name, value))
    for name, value in highest.items():
        limit = limits[name].value
        if isinstance(limit, int) and limit < value:
            yield (
                f"--resources {name}={limit}: not allowed, because it would reduce the request of "
                f"a run, {name}={value}; expected {value} or more, or no limit"
            )


def describe_replaced_resources(
    rule: Any, planned: Mapping[str, object], overrides: Container[str]
) -> str:
    """Return an error message if a statement `use rule … with:` has replaced planned resources.

    The message is empty if all resources are as planned.

    Args:
        rule: Snakemake's rule.
        planned: The resources that the workflow gives to it: values, and functions of wildcards.
        overrides: Resources that `--set-resources` changes; the configuration has their values.
    """
    changed = [
        name
        for name, value in planned.items()
        if name not in overrides
        and (name not in rule.resources or not (callable(value) or rule.resources[name] == value))
    ]
    if not changed:
        return ""
    return (
        f"rule {rule.name}: `with: resources:` replaces {', '.join(sorted(changed))}, and plan and "
        "records would not have it. Set keys of the platform in the module's `config`, as "
        f"runtime_min and partition, or use --set-resources {rule.name}:runtime=…"
    )
