"""The packages of `make packages`: each wheel in an empty environment, with the tests of its sdist.

These tests run one job each: on Slurm, in a local Snakefile, of a program, on a cluster of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from project import BIN, REPOSITORY
from tools_of_tests import program
from virtual_cluster import Cluster

pytestmark = pytest.mark.full

PACKAGES = (
    "snakemake_executor_plugin_slurm_sweep",
    "snakemake_logger_plugin_sweep",
    "tfscaling_observe",
    "virtual_slurm_cluster",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheels and source distributions, which twine has checked."""
    folder = tmp_path_factory.mktemp("built") / "dist"
    words = [program("packages", "python"), REPOSITORY / "plugins/build_packages.py", folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(folder.iterdir())) == 2 * len(PACKAGES)
    return folder


def environment(built: Path, package: str, folder: Path) -> Path:
    """The folder of programs of a new environment with a wheel and pytest, and no more.

    A plugin is installed next to Snakemake, which it does not require, as is usual.
    """
    uv = str(BIN / "uv")
    (wheel,) = built.glob(f"{package}-*.whl")
    subprocess.run([uv, "venv", "--quiet", "--python", BIN / "python", folder], check=True)
    locks = [REPOSITORY / f"requirements{part}.txt" for part in ("", "-dev")]
    words = [*(f"--constraint={lock}" for lock in locks), str(wheel), "pytest"]
    words += ["snakemake"] if package.startswith("snakemake_") else []
    subprocess.run([uv, "pip", "install", "--quiet", f"--python={folder}", *words], check=True)
    return folder / "bin"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_has_licence_readme_and_no_file_of_the_workflow(built: Path, package: str) -> None:
    (wheel,) = built.glob(f"{package}-*.whl")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
        (licence,) = [name for name in names if name.endswith("licenses/LICENSE")]
        assert archive.read(licence) == (REPOSITORY / "LICENSE").read_bytes()
        sources = [archive.read(name).decode() for name in names if name.endswith(".py")]
    assert headers["License-Expression"] == "MIT"
    assert headers["Description-Content-Type"] == "text/markdown"
    assert len(headers.get_all("Classifier")) > 3
    assert headers.get_all("Project-URL") is None  # none exists yet
    assert not [text for text in sources if "from tfscaling" in text or "import tfscaling." in text]
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops <= {package, "snakemake_executor_plugin_slurm_allocation"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_alone_passes_the_tests_of_its_source(
    built: Path, package: str, cluster: Cluster, tmp_path: Path
) -> None:
    programs = environment(built, package, tmp_path / "environment")
    (source,) = built.glob(f"{package}-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (tests,) = tmp_path.glob(f"{package}-*/tests")
    assert (tests.parent / "CHANGELOG.md").exists()
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [programs / "python", "-m", "pytest", "--quiet", tests.name], cwd=tests.parent,
        env={**environ, **cluster.environ, "PATH": f"{programs}:{environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


FIT = """
import numpy as np, keras
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((12, 2)), np.ones(12), batch_size=4, epochs=3, verbose=0)
"""


def test_the_observers_wheel_observes_fit_of_keras(built: Path, tmp_path: Path) -> None:
    """Keras is in this environment, the observer in another one: it is found by its path."""
    programs = environment(built, "tfscaling_observe", tmp_path / "environment")
    (tmp_path / "train.py").write_text(FIT)
    words = [str(programs / "tfscaling-observe"), "--fit", str(BIN / "python"), "train.py"]
    subprocess.run(words, cwd=tmp_path, check=True)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    epochs = [event for event in events if event["event"] == "epoch"]
    assert [(event["steps"], event["examples"]) for event in epochs] == [(3, 12), (6, 24), (9, 36)]
    assert all("loss" in event["metrics"] for event in epochs)
