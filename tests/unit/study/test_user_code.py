"""Functions of the user's own: found without importing anything, and loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import local_spec
from msgspec.structs import replace
from tfscaling.study import user_code
from tfscaling.study.user_code import UserCodeError

TRAP = "raise RuntimeError('imported')\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder in which we are; modules and search path are as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "is_one"), [("a:b", True), ("a.b:c", True), ("mnist_cnn", False), ("a.b", False)]
)
def test_a_colon_makes_a_reference(name: str, is_one: bool) -> None:
    assert user_code.is_reference(name) is is_one


DEFINITIONS = {
    "function": "def model():\n    return 1\n",
    "assignment": "model = lambda: 1\n",
    "annotated": "from typing import Any\nmodel: Any = lambda: 1\n",
    "import": "from other import build as model\n",
    "everything of another": "from other import *\n",
    "condition": "if True:\n    def model():\n        return 1\n",
    "attempt": "try:\n    from other import model\nexcept ImportError:\n    model = None\n",
    "class": "class model:\n    pass\n",
    "on demand": "def __getattr__(name):\n    return lambda: 1\n",
}


@pytest.mark.parametrize("text", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_definition_is_seen_in_every_form(text: str) -> None:
    write("mine.py", text + TRAP)
    user_code.check_function("mine:model")
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    "path", ["mine/nets.py", "mine/nets/__init__.py"], ids=["module", "package"]
)
@pytest.mark.parametrize("is_package", [False, True])
def test_modules_in_folders_are_found_and_no_parent_is_imported(
    path: str, is_package: bool
) -> None:
    if is_package:
        write("mine/__init__.py", TRAP)
    write(path, "def model(): ...\n" + TRAP)
    user_code.check_function("mine.nets:model")
    assert "mine" not in sys.modules


def test_installed_packages_are_found() -> None:
    user_code.check_function("keras.applications:ResNet50")
    user_code.check_function("json:loads")
    with pytest.raises(UserCodeError):
        user_code.check_function("json:no_such_function")


def test_a_compiled_module_is_taken_on_trust() -> None:
    user_code.check_function("math:sqrt")
    assert user_code.declared_arguments("math:sqrt") is None


def test_the_project_folder_comes_before_scripts_and_packages() -> None:
    write("prepare_dataset.py", "def data(): return 'mine'\n")
    user_code.check_function("prepare_dataset:data")
    assert user_code.load_function("prepare_dataset:data")() == "mine"


WRONG = {
    "no module": ("nets:model", {}, "there is no module nets in the project folder or among"),
    "no submodule": ("mine.nets:model", {"mine/other.py": ""}, "there is no module mine.nets in"),
    "submodule of a module": ("mine.nets:model", {"mine.py": ""}, "there is no module mine.nets"),
    "no function": ("mine:modle", {"mine.py": "def model(): ..."}, "mine.py defines no modle"),
    "a local name": ("mine:x", {"mine.py": "def f():\n    x = 1"}, "mine.py defines no x"),
    "a method": ("mine:x", {"mine.py": "class A:\n    def x(self): ..."}, "mine.py defines no x"),
    "syntax": ("mine:x", {"mine.py": "x = 1\ndef (:\n"}, "mine.py has a syntax error in line 2"),
    "folder": ("mine:x", {"mine/other.py": ""}, "mine is a folder without code"),
    "no name": ("mine:", {"mine.py": ""}, "allowed: package.module:function"),
    "path": ("../mine:x", {"mine.py": ""}, "allowed: package.module:function"),
    "two colons": ("a:b:c", {}, "allowed: package.module:function"),
}


@pytest.mark.parametrize(("name", "files", "message"), WRONG.values(), ids=WRONG)
def test_what_is_missing_is_said(name: str, files: dict[str, str], message: str) -> None:
    for path, text in files.items():
        write(path, text)
    with pytest.raises(UserCodeError) as caught:
        user_code.check_function(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_mistake_is_seen_as_mended_once_it_is() -> None:
    write("mine.py", "def modle(): ...\n")
    with pytest.raises(UserCodeError):
        user_code.check_function("mine:model")
    write("mine.py", "def model(): ...\n")
    user_code.check_function("mine:model")


def test_loading_imports_from_the_project_folder() -> None:
    write("own/nets.py", "from own import parts\ndef model(): return parts.SIZE\n")
    write("own/parts.py", "SIZE = 3\n")
    assert user_code.load_function("own.nets:model")() == 3


def test_what_the_users_import_raises_is_passed_on() -> None:
    write("mine.py", "def model(): ...\n" + TRAP)
    with pytest.raises(RuntimeError, match="imported"):
        user_code.load_function("mine:model")


ARGUMENTS = {
    "none": ("def model(): ...\n", ((), (), False)),
    "defaults": ("def model(depth, width=2): ...\n", (("depth", "width"), ("depth",), False)),
    "keywords": ("def model(*, a, b=1, **rest): ...\n", (("a", "b"), ("a",), True)),
    "by position only": ("def model(a, /, b): ...\n", (("b",), ("a", "b"), False)),
    "class": (
        "class model:\n    def __init__(self, depth=1): ...\n", (("depth",), (), False)
    ),
    "class by position only": (
        "class model:\n    def __init__(self, /, a=1): ...\n", (("a",), (), False)
    ),
    "the last counts": (
        "def model(a): ...\nif True:\n    def model(b): ...\n", (("b",), ("b",), False)
    ),
    "imported": ("from nets.small import build as model\n", (("size",), ("size",), False)),
    "imported twice": ("from nets import build as model\n", (("size",), ("size",), False)),
    "class without": ("class model(Base): ...\n", None),
    "assignment": ("model = print\n", None),
    "from elsewhere": ("from there import model\n", None),
    "everything": ("from nets import *\n", None),
    "in a circle": ("from mine import model\n", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_known_by_the_source(
    text: str, expected: tuple[tuple[str, ...], tuple[str, ...], bool] | None
) -> None:
    write("nets/__init__.py", "from .small import build\n" + TRAP)
    write("nets/small.py", "def build(size): ...\n" + TRAP)
    write("mine.py", text + TRAP)
    assert user_code.declared_arguments("mine:model") == expected


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        ("depth", {"depth": 2}),
        ("", {}),
        ("width=1", {"width": 1}),
        ("**rest", {"rest": {"depth": 2, "rate": 0.5}}),
    ],
)
def test_a_function_is_given_what_it_has_an_argument_for(
    signature: str, given: dict[str, object]
) -> None:
    write("mine.py", f"def model({signature}):\n    return {{**locals()}}\n")
    assert user_code.call_function("mine:model", {"depth": 2, "rate": 0.5}) == given


@pytest.mark.parametrize(
    ("program", "model", "dataset", "files"),
    [
        (("python", "own.py"), "own", None, {"own.py"}),
        ((), "net:model", "mnist", {"net.py"}),
        ((), "net:model", "data:data", {"net.py", "data.py"}),
        ((), "mnist_cnn", "mnist", set()),
    ],
)
def test_the_code_of_a_run_is_its_program_or_the_functions_of_model_and_dataset(
    program: tuple[str, ...], model: str, dataset: str | None, files: set[str]
) -> None:
    write("own.py", "print()\n")
    write("net.py", "def model(): ...\n")
    write("data.py", "def data(): ...\n")
    spec = local_spec()
    spec = replace(
        spec, dataset=dataset, point=replace(spec.point, model=model),
        recipe=replace(spec.recipe, program=program or None),
    )  # fmt: skip
    assert {*user_code.code_of_run(spec).checksums()} == files


@pytest.mark.parametrize(
    ("definition", "is_found"),
    [
        ("def prepare(folder): ...", True), ("def prepare(other, folder=None): ...", True),
        ("def prepare(): ...", False), ("def prepare(place): ...", False),
        ("def prepared(folder): ...", False), ("", False),
    ],
)  # fmt: skip
def test_a_module_prepares_files_if_its_function_takes_their_folder(
    definition: str, is_found: bool
) -> None:
    write("own/sets.py", f"def data(context): ...\n{definition}\n{TRAP}")
    assert user_code.is_pipeline("own.sets:data")
    found = user_code.find_prepare_function("own.sets:data")
    assert found == ("own.sets:prepare" if is_found else None)
