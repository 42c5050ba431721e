"""One attempt at a job of ranks: its folder, its ranks started and watched, its failure.

Layer 2 (job). Training runs and yardsticks are launched alike; what is done with the ranks' reports
is theirs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tfscaling import clock, parameters, records, supervisor
from tfscaling.geometry import Geometry
from tfscaling.gpu_allocation import gpus_here
from tfscaling.launchers import LAUNCHERS, LaunchError, Request, trainer_command
from tfscaling.ports import ReservedPorts
from tfscaling.task_layout import ClusterError


@dataclass(frozen=True)
class Attempt:
    """`folder` takes the job's results, `scratch` below it the logs and reports of this attempt."""

    folder: Path
    number: int

    @classmethod
    def begin(cls, folder: Path) -> Attempt:
        """The next attempt; an earlier one's failure no longer counts, its files stay."""
        folder.mkdir(parents=True, exist_ok=True)
        earlier = [int(path.name.partition("=")[2]) for path in folder.glob("attempt=*")]
        attempt = cls(folder, 1 + max(earlier, default=0))
        (folder / records.FAILURE).unlink(missing_ok=True)
        attempt.scratch.mkdir()
        return attempt

    @property
    def scratch(self) -> Path:
        return self.folder / f"attempt={self.number}"

    def start_ranks(
        self,
        script: Path,
        arguments: Sequence[str],
        axes: Mapping[str, Any],
        settings: Mapping[str, Any],
        jobs: Mapping[str, int],
        stall_timeout_s: float,
    ) -> dict[str, Any] | None:
        """Start `script` on all ranks and wait for them; the cause of a failure, or None.

        `arguments` are those of the script's own; axes, settings and the folder are added.
        """
        geometry, is_local = Geometry.of(axes), settings["launcher"] == "local"
        flags = ["--folder", str(self.scratch), *parameters.to_arguments(axes, settings)]
        on_gpus = geometry.gpus > 0 and settings["devices"] == "physical"
        with contextlib.ExitStack() as stack:
            own_host = "127.0.0.1" if is_local else socket.gethostname()
            time_source = stack.enter_context(clock.served(own_host))
            ports: list[int] = []
            if is_local:
                ports = stack.enter_context(ReservedPorts(geometry.tasks)).numbers
            try:
                here = (
                    gpus_here({**os.environ, **settings["env"]}) if is_local and on_gpus else None
                )
            except ClusterError as error:
                return _not_started(error)
            request = Request(
                trainer_command(script, [*arguments, *flags]),
                geometry,
                jobs,
                parameters.cpus_per_task(axes, settings),
                self.scratch,
                gpus=on_gpus,
                setup=settings["setup"],
                env={**settings["env"], clock.VARIABLE: time_source},
                ports=ports,
                gpus_here=here,
            )
            try:
                commands = LAUNCHERS[settings["launcher"]](request)
            except LaunchError as error:
                return _not_started(error)
            print("$", " ".join(commands[0].argv), flush=True)
            return supervisor.Supervisor(commands, self.scratch, stall_timeout_s).run()

    def reports(self) -> list[dict[str, Any]]:
        """What the ranks left, in their order."""
        found = (records.read_json(path) for path in self.scratch.glob("rank-*.json"))
        return sorted((r for r in found if r is not None), key=lambda report: report["rank"])

    def fail(
        self, axes: Mapping[str, Any], parameters_hash: str, cause: dict[str, Any]
    ) -> NoReturn:
        """Leave failure.json with the cause, say it, and end with exit status 1."""
        failure = {
            "axes": dict(axes),
            "attempt": self.number,
            "cause": cause,
            "parameters_hash": parameters_hash,
        }
        for folder in (self.folder, self.scratch):
            records.write_json(folder / records.FAILURE, failure)
        print(f"FAILED: {cause['kind']}: {cause['message']}", file=sys.stderr)
        print("\n".join(f"    {line}" for line in cause.get("last_lines", [])), file=sys.stderr)
        sys.exit(1)


def _not_started(error: Exception) -> dict[str, Any]:
    return {"kind": "launch_failed", "message": str(error), "rank": None, "last_lines": []}
