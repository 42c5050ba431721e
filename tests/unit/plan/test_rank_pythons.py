"""A user's Python is checked before any run: what it lacks, and how to install it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_python
import pytest
from builders import SCRIPTS, manifest_of, refused, valid_config
from tfscaling.plan import rank_pythons
from tfscaling.plan.rank_pythons import RankPython
from tfscaling.study import platforms
from tfscaling.study.run_spec import RunSpec

#: Versions that ranks can use.
VERSIONS = {"msgspec": "0.21.1", "tensorflow": "2.18.1", "keras": "3.6.0", "mpi4py": "4.1.2"}


def environment(folder: Path, versions: dict[str, str]) -> str:
    """An environment whose Python has packages of these names and versions, which are empty."""
    packages = folder / "packages"
    for name, version in versions.items():
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
        if random.random() < 0.7:  # else the module itself has to tell its version
            found = packages / f"{name}-{version}.dist-info"
            found.mkdir()
            (found / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    # no packages of this Python's own
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(folder)


def specs(
    recipe: dict[str, Any], strategy: str = "mpi_all_reduce", **platform: Any
) -> list[RunSpec]:
    block = {"platform": "laptop", "recipe": "weak", "nodes": [1, 2], "model": "mnist_cnn"}
    config = valid_config(
        (("grid",), [{**block, "strategy": strategy}]),
        *[(("recipes", "weak", key), value) for key, value in recipe.items()],
        *[(("platforms", "laptop", key), value) for key, value in platform.items()],
    )
    return [run.spec for run in manifest_of(config).runs]


def test_an_environment_with_all_packages_is_used(tmp_path: Path) -> None:
    own = environment(tmp_path / "env", VERSIONS)
    runs = specs({"environment": own})
    assert rank_pythons.python_problem(runs) == ""
    assert {run.rank_python for run in runs} == {f"{own}/bin/python"}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_missing_package_is_one_error_with_the_command(name: str, tmp_path: Path) -> None:
    others = {key: value for key, value in VERSIONS.items() if key != name}
    own = environment(tmp_path / "env", others)
    found = rank_pythons.python_problem(specs({"environment": own}))
    assert f"environment {own} of recipe weak" in found
    (line,) = [line for line in found.splitlines() if "Install it" in line]
    assert f"'{name}>=" in line
    assert not [other for other in others if f"'{other}>=" in line]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("tensorflow", "2.15.1"),
        ("tensorflow", "2.22.0rc1"),
        ("keras", "2.15.0"),
        ("keras", "4.0rc1"),
        ("msgspec", "0.18.6"),
    ],
)
def test_a_version_that_ranks_cannot_use_is_named(name: str, version: str, tmp_path: Path) -> None:
    own = environment(tmp_path / "env", {**VERSIONS, name: version})
    found = rank_pythons.python_problem(specs({"environment": own}))
    assert f"({version} is installed)" in found


def test_only_sums_by_mpi_need_mpi4py(tmp_path: Path) -> None:
    versions = {key: value for key, value in VERSIONS.items() if key != "mpi4py"}
    own = environment(tmp_path / "env", versions)
    assert rank_pythons.python_problem(specs({"environment": own}, "multi_worker_mirrored")) == ""


@pytest.mark.parametrize(
    ("name", "version"),
    [("tensorflow", "2.17.0+nv24.10"), ("tensorflow", "2.18rc1"), ("mpi4py", "4.1.0b2")],
)
def test_versions_of_vendors_and_of_previews_are_read(
    name: str, version: str, tmp_path: Path
) -> None:
    own = environment(tmp_path / "env", {**VERSIONS, name: version})
    assert rank_pythons.python_problem(specs({"environment": own})) == ""


def test_a_python_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    missing, _ = check_python.find_missing([*VERSIONS])
    assert missing == ["Python 3.10 or later (it is 3.9.18)"]


def test_the_python_of_a_module_is_checked_after_setup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = environment(tmp_path / "env", {**VERSIONS, "keras": "2.15.0"})
    setup = [f"export PATH={own}/bin:$PATH"]
    problem = rank_pythons.python_problem(specs({}, setup=setup, python="python"))
    assert "python python of platform laptop" in problem
    assert "Keras 3 (2.15.0 is installed)" in problem
    # a login node may lack the module
    assert rank_pythons.python_problem(specs({}, setup=["false"], python="python")) == ""
    assert "not checked" in capsys.readouterr().err


def test_an_image_that_cannot_be_started_here_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {
        "image": str(tmp_path / "none.sif"),
        "engine": random.choice(["apptainer", "charliecloud"]),
    }
    runs = specs({}, python="/usr/bin/python3", container=container)
    assert rank_pythons.python_problem(runs) == ""
    assert "not checked" in capsys.readouterr().err


def test_an_environment_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    own = environment(tmp_path / "env", VERSIONS)
    Path(own, "bin/python").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    found = rank_pythons.python_problem(specs({"environment": own}))
    assert "exit code 3: broken" in found


def test_what_a_python_prints_is_shown_without_secrets_and_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = environment(tmp_path / "env", VERSIONS)
    text = "#!/bin/sh\nprintf '\\033[2J%s\\n' \"refused: $SERVICE_KEY, $OTHER_TOKEN\" >&2; exit 3\n"
    Path(own, "bin/python").write_text(text)
    secrets = [random.randbytes(6).hex() for _ in range(2)]
    env, setup = {"SERVICE_KEY": secrets[0]}, [f"export OTHER_TOKEN={secrets[1]}"]
    shown = rank_pythons.python_problem(specs({"environment": own}, env=env, setup=setup))
    shown += capsys.readouterr().err
    assert "\\x1b[2Jrefused: ***, ***" in shown
    assert not any(secret in shown for secret in (*secrets, "\x1b"))


def test_runs_of_the_workflows_own_environment_start_no_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RankPython, "run", None)
    assert rank_pythons.python_problem(specs({})) == ""


def test_a_rank_without_msgspec_ends_with_one_line(tmp_path: Path) -> None:
    own = environment(tmp_path / "env", {})
    command = [f"{own}/bin/python", str(SCRIPTS / "run_rank.py"), "--spec", "none.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "msgspec" in line
    assert "install" in line


def test_the_key_of_a_run_has_its_python(tmp_path: Path) -> None:
    folders = [environment(tmp_path / name, VERSIONS) for name in ("one", "two")]
    changed: list[dict[str, Any]] = [{}, *({"environment": folder} for folder in folders)]
    hashes = {specs(recipe)[0].parameters_hash for recipe in changed}
    hashes |= {specs({}, python=f"{folders[0]}/bin/python")[0].parameters_hash}
    assert len(hashes) == 4


def test_what_cannot_be_a_python_is_refused(tmp_path: Path) -> None:
    assert "bin/python" in refused(specs, {"environment": str(tmp_path)})
    laptop = valid_config((("platforms", "laptop", "python"), "python3")).platforms
    assert "no `setup` puts it on PATH" in refused(platforms.check_keys, laptop)


def test_the_check_prints_one_line_of_json() -> None:
    program = [sys.executable, str(SCRIPTS / "check_python.py"), "--trainer", "--mpi"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["missing"] == []
