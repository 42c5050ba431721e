"""Nodes that are unfit for a run, by an attempt at it: the next one is submitted without them."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from tfscaling.records import attempts, failure_report, run_record
from tfscaling.records.failure_report import Kind

#: Causes that are those of a node.
_UNFIT: frozenset[Kind] = frozenset({"slow_node", "missing_gpus"})


def install(plugin: Any) -> None:
    """Let the plugin's submissions exclude such nodes, beside those that its user excludes.

    The plugin (2.8.0) excludes all nodes of a job of which one has failed, for the whole sweep:
    Slurm starts nothing on a node that is down anyway, and the others are needed.
    """
    submit_command = plugin.get_submit_command

    def without_slow_nodes(job: Any, *args: Any, **settings: Any) -> str:
        given = getattr(settings.get("settings"), "exclude_failed_nodes", None) or ""
        settings["failed_nodes"] = {node.strip() for node in given.split(",") if node.strip()}
        command = str(submit_command(job, *args, **settings))
        hosts = barred(Path(str(next(iter(job.output), ""))))
        if not hosts:
            return command
        # of several such options sbatch takes the last
        return f"{command} --exclude={shlex.quote(','.join([*_excluded(command), *hosts]))}"

    plugin.get_submit_command = without_slow_nodes


def _excluded(command: str) -> list[str]:
    """What a command of sbatch excludes: node lists, or what the file that it names lists."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--exclude", "-x", action="append", default=[])
    found: list[str] = parser.parse_known_args(shlex.split(command))[0].exclude
    texts = (Path(text).read_text() if "/" in text else text for text in found[-1:])
    return [nodes for text in texts for nodes in text.split()]


def barred(record: Path) -> list[str]:
    """The hosts that were too slow or lacked GPUs in an attempt at this record's run, each once."""
    hosts: set[str] = set()
    folder = record.parent
    for number in attempts.numbers(folder) if record.name == run_record.RECORD else ():
        try:
            failure = failure_report.read(attempts.path(folder, number))
        except run_record.RecordError:
            continue
        if failure is not None and failure.cause.kind in _UNFIT and failure.cause.host:
            hosts.add(failure.cause.host)
    return sorted(hosts)
