"""plugins/upstream: patches of released sources, each tried on a copy with the patch and without.

Each behaviour is one for which this project has an override; the copies run without it.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from project import REPOSITORY

pytestmark = pytest.mark.full

FOLDER = REPOSITORY / "plugins/upstream"
INSTALLED = next(Path(sys.prefix).glob("lib/python3*/site-packages"))
HEAD_LINES_MAX = 10
#: Until a process that hangs is ended, in seconds: a SIGTERM that is lost ends nothing.
HANGS_S = 60
PATCHES = sorted(path.stem for path in FOLDER.glob("*.patch"))

GRES = """
import sys, types
from snakemake_executor_plugin_slurm.utils import set_gres_string
class Resources(dict):
    gres = property(lambda self: self["gres"])
print(set_gres_string(types.SimpleNamespace(resources=Resources(gres=sys.argv[1]))).strip())
"""
ENVIRONMENT = """
import os
from snakemake_executor_plugin_slurm.utils import delete_slurm_environment
delete_slurm_environment()
print(sorted(name for name in os.environ if name.startswith("SLURM_")))
"""
STATES = """
import asyncio, logging, sys
from snakemake_executor_plugin_slurm.job_status_query import query_job_status
print(asyncio.run(query_job_status(sys.argv[1], logging.getLogger()))[0])
"""
#: In place of Slurm's programs: sbatch keeps the command that it gets, and refuses the job.
SLURM = {
    "sacctmgr": "#!/bin/sh\necho a\n",
    "sbatch": """#!/bin/sh
for word; do case $word in --wrap=*) printf '%s' "$word" >wrapped;; esac; done
exit 1
""",
}
RULE = """
rule one:
    output: "one.txt"
    resources: runtime=1
    shell: "touch {output}"
"""
#: Sends SIGTERM at the first call in the function that selects jobs, and holds the lock meanwhile.
SELECTION = """
import os, signal, sys

def send(frame, event, argument):
    if event == "call" and frame.f_back and frame.f_back.f_code.co_name == "run_selector":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGTERM)

sys.setprofile(send)

rule one:
    output: "one.txt"
    shell: "sleep 1; touch {output}"
"""


@pytest.fixture(params=[True, False], ids=["patched", "released"])
def is_patched(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages that precede the installed ones; empty at first."""
    return tmp_path / "packages"


def python(packages: Path, patch: str, is_patched: bool, *words: str) -> subprocess.Popen[str]:
    """Start Python in the test's folder with a copy of the package that a patch changes."""
    text = (FOLDER / f"{patch}.patch").read_text()
    (package,) = {path.split("/")[0] for path in re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)}
    caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(INSTALLED / package, packages / package, ignore=caches)
    if is_patched:
        command = ["git", "apply", "--verbose", str(FOLDER / f"{patch}.patch")]
        subprocess.run(command, cwd=packages, check=True, capture_output=True)
    path = f"{packages.parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PYTHONPATH": str(packages), "PATH": path}
    return subprocess.Popen(
        [sys.executable, *words], cwd=packages.parent, env=environ,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def last_line(process: subprocess.Popen[str]) -> str:
    output = process.communicate()[0]
    return output.strip().splitlines()[-1]


def test_each_patch_has_a_short_head_a_version_and_what_becomes_unnecessary() -> None:
    locked = dict(re.findall(r"^(\S+)==(\S+)", (REPOSITORY / "requirements.txt").read_text(), re.M))
    paths = [
        *REPOSITORY.glob("plugins/*/snakemake_*/*.py"),
        *REPOSITORY.glob("workflow/**/plan/*.py"),
    ]
    sources = [path.read_text() for path in paths]
    assert len(PATCHES) == 5
    for name in PATCHES:
        head = (FOLDER / f"{name}.patch").read_text().split("\n--- a/")[0].strip()
        assert len(head.splitlines()) <= HEAD_LINES_MAX
        assert head.startswith("Subject: ") and "unnecessary" in head
        ((package, version),) = re.findall(r"^For (\S+) (\d+\.\d+\.\d+)\.", head, re.MULTILINE)
        assert locked[package] == version
        (last,) = [text for text in head.split("\n\n") if "unnecessary" in text]
        overrides = re.findall(r"`([^`]+)`", last)
        assert overrides, name
        for code in overrides:
            # `Executor._query` is a function or attribute of a class
            wanted = code.rpartition(".")[2] if re.fullmatch(r"[\w.]+", code) else code
            assert any(wanted in text for text in sources), f"{name}: {code}"


@pytest.mark.parametrize("gres", ["gpu:nvidia_a100-sxm4-80gb:{n}", "gpu:{n},shard:1"])
def test_generic_resources(packages: Path, is_patched: bool, gres: str) -> None:
    wanted = gres.format(n=random.randint(1, 8))
    patch = "gres-types-with-hyphens"
    line = last_line(python(packages, patch, is_patched, "-c", GRES, wanted))
    assert (line == f"--gres={wanted}") == is_patched
    assert is_patched or "Invalid GRES format" in line


def test_the_location_of_the_configuration(
    packages: Path, is_patched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/cluster/slurm.conf")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    line = last_line(python(packages, "slurm-conf-inside-a-job", is_patched, "-c", ENVIRONMENT))
    assert line == str(["SLURM_CONF"] if is_patched else [])


def test_a_cancelled_job(packages: Path, is_patched: bool) -> None:
    words = f"CANCELLED by {random.randrange(2000)}"
    answer = f"printf '%s\\n' '1|{words}' '2|COMPLETED'"
    line = last_line(python(packages, "cancelled-by", is_patched, "-c", STATES, answer))
    assert line == str({"1": "CANCELLED" if is_patched else words, "2": "COMPLETED"})


def test_the_command_of_a_job(packages: Path, is_patched: bool) -> None:
    folder = packages.parent
    (folder / "Snakefile").write_text(RULE)
    for name, text in SLURM.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    words = ["--executor", "slurm", "--jobs", "1", "--slurm-no-account", "--config"]
    words += [
        "place=$(echo expanded)",
        "--default-resources",
        "slurm_partition=p",
        "slurm_account=a",
    ]
    started = python(packages, "command-without-expansion", is_patched, "-m", "snakemake", *words)
    output = started.communicate()[0]
    assert (folder / "wrapped").exists(), output
    wrapped = (folder / "wrapped").read_text()
    assert ("$(echo expanded)" in wrapped) == is_patched
    assert ("place=expanded" in wrapped) != is_patched


def test_a_signal_while_jobs_are_selected(packages: Path, is_patched: bool) -> None:
    (packages.parent / "Snakefile").write_text(SELECTION)
    words = ["-m", "snakemake", "--cores", "1", "--scheduler", "greedy"]
    started = python(packages, "sigterm-without-deadlock", is_patched, *words)
    try:
        output = started.communicate(timeout=None if is_patched else HANGS_S)[0]
    except subprocess.TimeoutExpired:
        started.kill()
        output = started.communicate()[0]
        assert not is_patched, output
    assert (started.returncode == -signal.SIGKILL) != is_patched, output
    assert ("Will exit after" in output) == is_patched
