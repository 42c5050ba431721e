"""The workflow as `snakedeploy deploy-workflow` sets it up: a module from a git repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loaded_python
import pytest
import snakemake_server
import yaml
from project import QUICK, REPOSITORY, SMALL_MODEL, Project
from tools_of_tests import program

pytestmark = pytest.mark.full

TAG = "v1.2.3"
CONFIG: dict[str, Any] = {
    "grid": [
        {"platform": "laptop", "model": SMALL_MODEL, "recipe": "quick", "nodes": 1, "repeats": 1}
    ],
    "recipes": {"quick": QUICK},
    "plots": {"execution_time": {}},
    "export": ["svg"],
}


def git(folder: Path, *arguments: str) -> str:
    """The output of git."""
    name = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *name, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Deployed(Project):
    """A project that has configuration, profiles and a Snakefile, but no workflow."""

    hosts: Path  # in place of https://

    def make(self, *arguments: str, snakefile: str = "workflow/Snakefile") -> str:
        """The output of snakemake, as a user calls it there."""
        environ = loaded_python.environ({
            **os.environ,
            "XDG_CACHE_HOME": str(self.hosts / "cache"),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{self.hosts.as_uri()}/.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://",
        })  # fmt: skip
        words = [*arguments, "--snakefile", snakefile, "--profile", "profiles/local"]
        code, output = snakemake_server.call(words, self.folder, environ)
        assert code == 0, output[-6000:] + self.logs()
        return output


@pytest.fixture(scope="module")
def deployed(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """After its sweep; the repository has what the working tree has."""
    hosts = tmp_path_factory.mktemp("hosts")
    repository = hosts / "github.com/owner/scaling"
    listed = git(REPOSITORY, "ls-files", "--cached", "--others", "--exclude-standard")
    for name in listed.splitlines():
        if (REPOSITORY / name).is_file():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, repository / name)
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "A version")
    git(repository, "tag", TAG)
    folder = tmp_path_factory.mktemp("deployed")
    snakedeploy = program("snakedeploy", "snakedeploy")
    subprocess.run(
        [snakedeploy, "deploy-workflow", repository.as_uri(), folder, "--tag", TAG],
        check=True,
        capture_output=True,
    )
    made = Deployed(folder, hosts)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(CONFIG))
    made.link_datasets(mnist)
    made.make()
    return made


def test_scripts_and_page_come_from_the_tag(deployed: Deployed) -> None:
    (row,) = deployed.table()
    assert (row["platform"], row["status"]) == ("laptop", "ok")
    (record,) = deployed.records()
    tagged = git(deployed.hosts / "github.com/owner/scaling", "rev-parse", TAG)
    assert record["environment"]["git_commit"] == tagged
    assert (deployed.folder / "results/main/report.html").exists()
    assert (deployed.folder / "results/main/details/plots/execution_time.svg").exists()


def test_a_second_start_does_nothing(deployed: Deployed) -> None:
    assert "Nothing to be done" in deployed.make("--dry-run")


def test_with_a_prefix_all_results_are_below_it(deployed: Deployed) -> None:
    text = (deployed.folder / "workflow/Snakefile").read_text()
    prefixed = text.replace("    config:\n", '    prefix:\n        "below"\n    config:\n')
    assert prefixed != text
    (deployed.folder / "workflow/Prefixed").write_text(prefixed)
    planned = deployed.make("--summary", snakefile="workflow/Prefixed")
    made = [line.split("\t")[0] for line in planned.splitlines() if "\t" in line][1:]
    assert made
    assert all(path.startswith("below/results/") for path in made)
