"""The tests that `make check` runs."""

from __future__ import annotations

import pytest
from changed import LIBRARY, REPOSITORY, concerned, module_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("workflow/scripts/tfscaling/tables/display.py", "tfscaling.tables.display"),
        ("tests/builders.py", "builders"),
        ("tests/project.py", "project"),
        ("provision/closed/wheelhouse.py", "wheelhouse"),
        ("docs/index.md", None),
    ],
)
def test_a_module_has_the_name_that_python_imports(path: str, name: str | None) -> None:
    assert module_name(path) == name


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("tests/unit/tables/test_display.py", {"tests/unit/tables/test_display.py"}),
        ("tests/summary.py", {"tests/unit/test_summary.py"}),
        ("docs/method.md", {"tests/unit/test_documentation.py"}),
        ("LICENSE", set()),
    ],
)
def test_a_changed_file_has_its_tests(path: str, tests: set[str]) -> None:
    assert concerned([path]) == tests


def test_a_file_of_tests_with_the_name_of_a_module_is_in_the_folder_of_its_package() -> None:
    packages: dict[str, set[str]] = {}
    for module in (REPOSITORY / LIBRARY).glob("tfscaling/*/**/*.py"):
        package = module.relative_to(REPOSITORY / LIBRARY / "tfscaling").parts[0]
        packages.setdefault(f"test_{module.name}", set()).add(package)
    files = [*(REPOSITORY / "tests/unit").glob("*/test_*.py")]
    named = [file for file in files if file.name in packages]
    assert len(named) > len(files) / 2
    assert [file for file in named if file.parent.name not in packages[file.name]] == []


def test_a_module_of_the_library_has_the_tests_of_its_package() -> None:
    found = concerned(["workflow/scripts/tfscaling/record/run_record.py"])
    assert "tests/unit/record/test_run_record.py" in found
    assert all(test.startswith("tests/unit/record/") for test in found)


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("conclusions/answers/choosing.py", "tests/unit/conclusions/test_decision.py"),
        ("study/recipes.py", "tests/unit/study/test_recipes.py"),
        ("train/mpi/library.py", "tests/unit/train/test_mpi_all_reduce.py"),
        ("train/rank.py", "tests/unit/train/test_rank.py"),
    ],
)
def test_a_module_that_no_test_imports_has_tests_all_the_same(module: str, test: str) -> None:
    assert test in concerned([f"workflow/scripts/tfscaling/{module}"])
