"""The files that a user's functions and programs are made of, found without importing them."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

import pytest
from tfscaling.files import python_code
from tfscaling.study import user_code
from tfscaling.study.user_code import CustomCode

TRAP = "raise RuntimeError('imported')\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, in which we are, beside one that is none of it."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(**files: str) -> None:
    """Files by their names, with `__` for `/`."""
    for name, text in files.items():
        path = Path(name.replace("__", "/")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + TRAP)


def found(*functions: str, program: tuple[str, ...] = ()) -> set[str]:
    return set(CustomCode(functions, program).checksums())


def test_the_module_and_its_packages_count() -> None:
    write(a__b__net="import numpy\n", other="")
    Path("a/__init__.py").write_text("")
    assert found("a.b.net:model") == {"a/__init__.py", "a/b/net.py"}
    digest = python_code.code_sha256(Path("a/b/net.py").read_bytes())
    assert CustomCode(("a.b.net:model",)).checksums()["a/b/net.py"] == digest


def test_files_of_other_languages_count_as_they_are() -> None:
    Path("run.sh").write_text("echo 1 # one\n")
    digest = hashlib.sha256(Path("run.sh").read_bytes()).hexdigest()
    assert CustomCode(program=("bash", "run.sh")).checksums() == {"run.sh": digest}


def test_functions_of_this_library_are_not_the_users() -> None:
    names = ("tfscaling.datasets.image_files:data", "net:model")
    assert user_code.code_of_functions(*names) == CustomCode(("net:model",))


def test_a_folder_of_the_same_name_elsewhere_is_not_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "a").mkdir(parents=True)
    (other / "a/net.py").write_text(TRAP)
    monkeypatch.syspath_prepend(other)
    write(a__net="import numpy\n")
    assert found("a.net:model") == {"a/net.py"}


IMPORTS = {
    "module": "import a.part\n",
    "renamed": "import a.part as p\n",
    "name": "from a.part import size\n",
    "module by name": "from a import part\n",
    "in its package": "from .part import size\n",
    "module of its package": "from . import part\n",
    "everything": "from a.part import *\n",
    "in a function": "def model():\n    from a import part\n",
    "in a condition": "if True:\n    import a.part\n",
    "by way of another": "import between\n",
    "in a circle": "import a.net, a.part\n",
}


@pytest.mark.parametrize("text", IMPORTS.values(), ids=IMPORTS)
def test_imported_modules_of_the_project_count(text: str) -> None:
    write(a__net=text, a__part="import a.net\n", between="import a.part\n", unused="")
    assert found("a.net:model") - {"between.py"} == {"a/net.py", "a/part.py"}


def test_a_package_is_what_its_file_imports() -> None:
    write(a__net="from a.deep import layers\n", a__deep__layers="from ..top import x\n", a__top="")
    Path("a/deep/__init__.py").write_text("from . import blocks\n")
    write(a__deep__blocks="")
    names = {"a/net.py", "a/deep/__init__.py", "a/deep/layers.py", "a/deep/blocks.py", "a/top.py"}
    assert found("a.net:model") == names


def test_of_an_installed_package_the_version_counts() -> None:
    assert CustomCode(("msgspec.json:decode",)).checksums() == {
        "msgspec": metadata.version("msgspec")
    }
    assert found("json:loads") == set()  # Python's own


def test_what_is_not_there_has_no_files() -> None:
    assert found("missing:model") == set()


def test_a_module_with_a_syntax_error_counts_itself() -> None:
    write(net="import broken\n", broken="def (\n", unused="")
    assert found("net:model") == {"net.py", "broken.py"}


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (("python", "scripts/train.py", "--lr", "0.1"), {"scripts/train.py", "scripts/near.py"}),
        (("python", "-m", "tool.main"), {"tool/main.py", "tool/part.py"}),
        (("python", "-m", "tool"), {"tool/__main__.py"}),
        (("bash", "run.sh", "{epochs}"), {"run.sh"}),
        (("python", "../outside.py"), set()),
        (("python", "-c", "import tool.main"), set()),
    ],
    ids=["script", "module", "package", "shell", "outside", "text"],
)
def test_files_of_the_project_among_the_words_of_a_program_count(
    program: tuple[str, ...], names: set[str]
) -> None:
    write(scripts__train="import near\n", scripts__near="", tool__main="from . import part\n")
    write(tool__part="")
    Path("tool/__main__.py").write_text("")
    Path("run.sh").write_text("")
    Path("../outside.py").write_text("")
    assert found(program=program) == names


def test_differences_name_each_file() -> None:
    before = {"same.py": "1" * 64, "changed.py": "2" * 64, "gone.py": "3" * 64}
    now = {"same.py": "1" * 64, "changed.py": "4" * 64, "new.py": "5" * 64}
    found = user_code.describe_differences(before, now)
    assert found.keys() == {"changed.py", "gone.py", "new.py"}
    assert all(text.startswith(name) for name, text in found.items())
    assert "2" * 12 in found["changed.py"] and "4" * 12 in found["changed.py"]
