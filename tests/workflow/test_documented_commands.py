"""Every command line in the documentation: what can run here is run, what trains as a dry-run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import documents
import pytest
import snakemake_server
from project import BIN, REPOSITORY, Project
from tfscaling.study.config_validation import REFERENCE_FILES

VIRTUAL = REPOSITORY / "provision/virtual"

#: How a command begins → why no test here runs it.
ELSEWHERE = {
    "source .venv/bin/activate": "a shell's own; the tests run in this environment",
    "snakemake --report": "test_sweep.py makes the report of a finished sweep",
    "provision/virtual/install": "`make test` and `make test-full` begin with it",
    "sinfo": "tests/scheduler asks Slurm more than that",
    "squeue ": "tests/unit/plan reads what it prints; it needs a cluster",
    "srun -p gpu": "tests/scheduler starts jobs with GPUs on the virtual cluster",
    "PYTHONPATH=workflow/observe/site": "tests/unit/test_observe.py starts programs in this way",
    "PYTHONPATH=workflow/scripts .venv/bin/python": "test_study_results.py runs the page's code",
    ".venv-notebook/bin/jupyter-execute": "tests/examples executes the notebook in this way",
    ".venv/bin/uv run --no-project --with gpuhunt": "asks a cloud; test_proposed_prices.py",
    "snakedeploy deploy-workflow": "test_deployed.py deploys this repository",
    "cd my-study": "the folder that snakedeploy makes",
    **dict.fromkeys(
        (
            "gcloud ",
            "gcluster ",
            "aws ",
            "image=$(aws ",
            ".tools/aws-parallelcluster/bin/pcluster ",
        ),
        "asks a cloud",
    ),
    "rsync ": "from another cluster; tests/slurm/test_two_clusters.py copies runs in this way",
    "scontrol show": "what a cluster says of itself, or of a job that a cloud refuses",
    "sbatch ": "tests/slurm/test_driver_on_slurm.py runs a sweep from a job",
    "sacctmgr ": "what a cluster's accounting says; it needs one",
    "git clone <URL": "the repository's address is the reader's",
    "cd scaling": "the folder that git makes",
    **dict.fromkeys(
        ("scp wheelhouse.tar", "tar -xf wheelhouse.tar", "git clone wheelhouse/", "cd project"),
        "on the machines of a reader; test_closed_network.py goes this way",
    ),
    "apptainer build": "tests/unit/test_container_recipe.py reads the recipe; it needs Apptainer",
    "provision/clouds/install-environment": "tests/slurm runs it on the virtual cluster",
    "ln -s /shared/": "a folder of the reader's group",
    "python3 -m venv .venv": "`make setup` does it",
    "pip install --require-hashes": "`make setup` does it",
    'pip install --no-deps "git+': "the same from a repository, which no test can reach",
}
#: Folders of the repository that commands name.
FOLDERS = ("workflow", "profiles", "examples", "benchmarks", "studies", "provision")
SHELLS = ("bash", "sh", "shell", "console")


def commands() -> dict[str, str]:
    """Every command of the pages, without comments → the page that has it first."""
    found: dict[str, str] = {}
    for page in documents.pages():
        for fence in documents.fences(page.read_text()):
            if fence.language in SHELLS:
                for line in fence.text.replace("\\\n", " ").splitlines():
                    words = re.sub(r"(^|\s)# .*", "", line)
                    inner = re.sub(r'eval "\$\((.*)\)"', r"\1", words)
                    for command in filter(None, map(str.strip, inner.split("&&"))):
                        found.setdefault(" ".join(command.split()), page.name)
    return found


def make(command: str) -> subprocess.CompletedProcess[str]:
    """A dry-run of `make`: its output is what it would do."""
    words = ["--file", str(REPOSITORY / "Makefile"), "--dry-run"]
    words += [f"--old-file=.venv/.installed{part}" for part in ("", "-trainer", "-dev")]
    return subprocess.run(
        ["make", *words, *shlex.split(command)[1:]],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip


COMMANDS = [each for each in commands() if not each.startswith(tuple(ELSEWHERE))]
OF_MAKE = [each for each in COMMANDS if each.startswith("make ")]
OF_CLUSTER = [each for each in COMMANDS if each.startswith("provision/virtual/cluster ")]


@cache
def of_snakemake() -> list[str]:
    """What the pages call directly, and what `make` calls.

    A line inside a loop of `make peers` is left out: test_examples_are_planned.py plans the studies
    that the loop writes.
    """
    called = (line for each in OF_MAKE for line in make(each).stdout.splitlines())
    lines = (line.strip() for line in [*COMMANDS, *called] if not line.endswith("\\"))
    return sorted({line for line in lines if re.match(r"(\.venv/bin/)?snakemake ", line)})


def test_every_command_is_checked_or_has_a_reason() -> None:
    others = [each for each in COMMANDS if each not in {*OF_MAKE, *OF_CLUSTER, *of_snakemake()}]
    assert others == []
    assert len(of_snakemake()) > 8 and len(OF_MAKE) > 8 and len(OF_CLUSTER) > 2
    for begin in ELSEWHERE:
        assert any(each.startswith(begin) for each in commands()), begin


@pytest.mark.parametrize("command", OF_MAKE)
def test_make_has_the_target(command: str) -> None:
    assert make(command).returncode == 0


@pytest.mark.parametrize("command", OF_CLUSTER)
def test_the_virtual_cluster_takes_the_command(command: str) -> None:
    parse = (
        "import sys, pathlib; from virtual import cli; "
        "cli.make_parser(pathlib.Path('.cluster'), 'cluster').parse_args(sys.argv[1:])"
    )
    words = [sys.executable, "-c", parse, *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=VIRTUAL.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as a reader has it, after `make own` and the files that the pages show."""
    folder = Project(tmp_path_factory.mktemp("reader")).folder
    for name in ("Snakefile", *FOLDERS):
        (folder / name).symlink_to(REPOSITORY / name)
    shutil.copytree(REPOSITORY / "resources/own", folder / "own")
    for config in REPOSITORY.glob("examples/*/config.yaml"):
        for name in re.findall(r"environment: (\.venv\S*)", config.read_text()):
            if not (folder / name).exists():  # `make examples` makes it
                (folder / name).symlink_to(sys.prefix)
    for name in REFERENCE_FILES:  # of the earlier sweep that `compare_with` names
        path = folder.parent / "before/results/my-sweep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("before", "after"):  # of two commits of a reader's training
        (folder.parent / name).mkdir(exist_ok=True)
        (folder.parent / name / "train.py").touch()
    for page in documents.pages():
        for name, rows in documents.timings(page.read_text()).items():
            (folder / name).write_text(rows)
        for fence in documents.fences(page.read_text()):
            if comment := re.match(r"# (\S+\.(py|yaml))\n", fence.text):
                (folder / comment[1]).write_text(fence.text)
    return folder


@pytest.mark.full
def test_snakemake_plans_what_the_commands_ask_for(folder: Path) -> None:
    environ = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder)}
    failed = {}
    for command in of_snakemake():
        words = shlex.split(command.partition(" | ")[0])[1:]
        code, output = snakemake_server.call(["--dry-run", "-p", *words], folder, environ)
        has_jobs = "job count" in re.sub(" +", " ", output) or "digraph" in output
        if code or not (has_jobs or "partial" in words):
            failed[command] = output[-2000:]
    assert failed == {}
