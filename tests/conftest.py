"""What workflow and Slurm tests share: the genuine dataset, fetched once, and a project folder."""

from __future__ import annotations

import compileall
import gc
import os
import random
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path

# before NumPy is loaded, and for all that tests start: matrices are small here, and threads that
# wait for work use CPU time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import progress
import pytest
from project import REPOSITORY, Project
from seeds import drawn_seed
from shared import first_alone, made_once

# ignored by what a shell starts in the background or by nohup, and so by all that tests start
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# tests start a separate `make`, no part of the `make` that runs the tests
for _name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
    os.environ.pop(_name, None)
# pytest keeps the modules that it compiles; otherwise each worker compiles all of them
sys.dont_write_bytecode = False

#: Files of tests that take minutes and are begun first; xdist gives whole files to its workers.
#: Files that compute and files that wait alternate.
LONGEST = [
    *("test_essentials_on_slurm.py", "test_targets.py", "test_runs_by_parameters.py"),
    *("test_oracle_features.py", "test_allocation_on_slurm.py", "test_hour_of_sweeps.py"),
    *("test_failed_runs.py", "test_reruns.py", "test_light_setup.py", "test_left_out.py"),
    *("test_search_on_slurm.py", "test_oracle_public.py", "test_image_on_slurm.py"),
    *("test_claims.py", "test_accounting_on_slurm.py", "test_agreement.py", "test_soak.py"),
    *("test_oracle_xla.py", "test_driver_on_slurm.py", "test_search_errors.py"),
    *("test_oracle_random.py", "test_closed_network.py", "test_known_truth.py", "test_module.py"),
]
#: Seconds that a test of `make test-full`, or on Slurm, may take on a busy machine.
LONGEST_S = 1500.0


def pytest_configure(config: pytest.Config) -> None:
    """Compile the library: where Python may not, each of hundreds of processes would do so.

    A session with several workers prints its progress.
    """
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(REPOSITORY / "workflow/scripts", quiet=1)
        if config.getoption("numprocesses", None):
            config.pluginmanager.register(progress.Progress(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one worker collect first: it compiles all files of tests, and pytest keeps the result.

    Modules and tests stay in memory until the end, so the garbage collector skips them.
    """
    gc.disable()
    try:
        if not hasattr(session.config, "workerinput"):
            return (yield)
        with first_alone(Path(session.config.getoption("basetemp")).with_name("collected")):
            return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker begins one when the others have finished.

    Tests of `make test-full` and on Slurm have the limit LONGEST_S, unless they name another.
    """
    place = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    for item in items:
        is_long = item.get_closest_marker("full") or item.path.parent.name == "slurm"
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_S))


@pytest.fixture(autouse=True)
def random_seed(request: pytest.FixtureRequest) -> int:
    """Seed all that the test draws from `random`; TEST_SEED repeats the printed seed.

    The seed that a module has drawn at its import is printed as well.
    """
    seed = drawn_seed()
    print(f"TEST_SEED={seed}")
    if hasattr(request.module, "SEED"):
        print(f"or, for draws of the module, TEST_SEED={request.module.SEED}")
    random.seed(seed)
    return seed


def datasets(factory: pytest.TempPathFactory, *names: str) -> Path:
    """The folder with the datasets, fetched once in a session."""
    targets = [f"results/datasets/{name}.npz" for name in names]

    def fetch(folder: Path) -> None:
        Project(folder).snakemake(*targets, config=["config/demo.yaml"])

    return made_once(factory, "-".join(names), fetch) / "results/datasets"


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Genuine MNIST, prepared by the workflow's own rule."""
    return datasets(tmp_path_factory, "mnist")


@pytest.fixture(scope="session")
def new_project(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Makes a folder with the repository's config and the dataset, but no results."""

    def make(name: str) -> Project:
        project = Project(tmp_path_factory.mktemp(name))
        project.link_datasets(mnist)
        return project

    return make


@pytest.fixture
def project(new_project: Callable[[str], Project], request: pytest.FixtureRequest) -> Project:
    """A project folder of this test's own."""
    return new_project(request.node.name[:40].replace("[", "-").replace("]", ""))


@pytest.fixture(scope="session")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10, as `snakemake results/datasets/<name>.npz` prepares it."""
    return datasets(tmp_path_factory, "cifar10")
