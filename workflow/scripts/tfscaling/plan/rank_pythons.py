"""Pythons of users in which ranks run: of an environment, a module or an image.

They are checked on this machine before runs start. Where one cannot be started here, as in an image
that only nodes have, a warning says so, and the ranks report what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfscaling.files.outside_text import make_visible
from tfscaling.launch import containers, launchers
from tfscaling.record import crashes
from tfscaling.study.config_types import Container
from tfscaling.study.run_spec import RunSpec

_CHECK = Path(__file__).resolve().parents[2] / "check_python.py"
#: Longest time for the check of a Python, in seconds; an environment on a slow file system takes
#: some.
_LIMIT_S = 120.0


@dataclass(frozen=True)
class RankPython:
    """A Python other than the workflow's that ranks use, with their container and environment.

    Attributes:
        python: Path, or command on the PATH after `setup`.
        setup: Shell lines of the platform that run first.
        container: The container in which it runs; None without one.
        env: Environment variables of the platform, as sorted (name, value) pairs.
        title: Where the configuration names it, for messages, such as "python venv/bin/python of
            platform a100".
    """

    python: str
    setup: tuple[str, ...] = ()
    container: Container | None = None
    env: tuple[tuple[str, str], ...] = ()
    title: str = field(default="", compare=False)

    @classmethod
    def from_spec(cls, spec: RunSpec) -> RankPython | None:
        """Return the Python of a run's ranks; None for the workflow's own environment."""
        if spec.rank_python is None:
            return None
        recipe, point = spec.recipe, spec.point
        if recipe.environment is not None and not recipe.program:
            title = f"environment {recipe.environment} of recipe {point.recipe}"
        else:
            title = f"python {spec.measured.python} of platform {point.platform}"
        settings = spec.measured
        env = tuple(sorted(settings.env.items()))
        return cls(spec.rank_python, settings.setup, settings.container, env, title)

    @property
    def obstacle(self) -> str:
        """Why this machine cannot start the Python; "" if no reason is known."""
        if self.container is None:
            return ""
        engine = {"charliecloud": "ch-run"}.get(self.container.engine, self.container.engine)
        if engine == "pyxis":
            return "only srun starts containers of pyxis"
        if shutil.which(engine) is None:
            return f"this machine has no {engine}"
        if not Path(self.container.image).exists():
            return f"this machine has no image {self.container.image}"
        return ""

    def run(
        self, words: Sequence[str], limit_s: float, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in this Python on this machine, with `setup`, container and `env`.

        Args:
            words: The program and its arguments.
            limit_s: Longest time in seconds.
            **options: Further arguments of `subprocess.run`.

        Raises:
            OSError: The Python, or the container's engine, cannot be started.
            subprocess.TimeoutExpired: It took longer.
        """
        command = containers.wrap_command(self.container, [self.python, *words], on_gpus=False)
        env: Mapping[str, str] = containers.container_environment(self.container, dict(self.env))
        with tempfile.TemporaryDirectory() as folder:
            if self.setup:
                script = Path(folder, "setup.sh")
                launchers.write_setup(script, self.setup)
                command = ["bash", "-e", str(script), *command]
            return subprocess.run(
                command,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                timeout=limit_s,
                check=False,
                **options,
            )


def python_problem(specs: Iterable[RunSpec]) -> str:
    """Return what the Pythons of these runs lack, and how to install it; "" if nothing is missing.

    A Python that cannot be started here is a warning, unless it is a file of this machine.

    Args:
        specs: The runs.
    """
    needs: dict[RankPython, dict[str, None]] = {}
    for spec in specs:
        if (python := RankPython.from_spec(spec)) is None:
            continue
        options = needs.setdefault(python, {})
        options |= {} if spec.recipe.program else {"--trainer": None}
        options |= {"--mpi": None} if spec.uses_mpi else {}
    problems = []
    for python, options in needs.items():
        missing, command, unchecked = _find_missing(python, [*options])
        if missing:
            problems.append(f"{python.title} lacks {', '.join(missing)}.\n  Install it: {command}")
        elif unchecked and (python.setup or python.container):
            print(f"warning: {python.title}: not checked, {unchecked}", file=sys.stderr)
        elif unchecked:
            problems.append(f"{python.title} cannot be used: {unchecked}")
    return "\n".join(problems)


def _find_missing(python: RankPython, options: Sequence[str]) -> tuple[list[str], str, str]:
    """Return what a Python lacks, the command that installs it, and why it was not checked.

    Args:
        python: The Python.
        options: Options of `check_python.py`.
    """
    if python.obstacle:
        return [], "", python.obstacle
    try:
        done = python.run(
            [str(_CHECK), *options], _LIMIT_S, capture_output=True, text=True, errors="replace"
        )
        found = json.loads([*done.stdout.splitlines(), ""][-2])
        return found["missing"], found["command"], ""
    except (ValueError, IndexError):
        last = [*done.stderr.strip().splitlines(), ""][-2:][0]
        environ = {**os.environ, **dict(python.env)}
        last = crashes.mask_secrets(last, crashes.find_secrets(environ, setup=python.setup))
        return [], "", f"exit code {done.returncode}: {make_visible(last)}"
    except (OSError, subprocess.SubprocessError) as error:
        return [], "", str(error)
