"""Commands in a network that has no route, with nothing of this machine's settings for packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from project import REPOSITORY

WITHOUT_NETWORK = REPOSITORY / "provision/closed/without-network"
#: Where a new user's shell finds programs.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(folder: Path, *command: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, `path` before the system's; stdout has its whole output.

    The home of its user is the folder `home` beside it: no cache has been filled.
    """
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    # Slurm's commands, if there are any here, would look for a controller by its name
    environ = {"HOME": str(home), "LANG": "C.UTF-8", "SLURM_CONF": "/dev/null"}
    environ |= {"PATH": f"{path}:{SYSTEM_PATH}" if path else SYSTEM_PATH}
    environ |= {name: os.environ[name] for name in ("OPENBLAS_CORETYPE",) if name in os.environ}
    return subprocess.run(
        [WITHOUT_NETWORK, *command], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
