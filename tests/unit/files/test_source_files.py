from __future__ import annotations

from pathlib import Path

import pytest
from builders import SCRIPTS
from test_packages import house_imports
from tfscaling.files.python_code import source_files


def names(paths: list[Path]) -> set[str]:
    return {str(path.relative_to(SCRIPTS)) for path in paths}


def test_what_is_imported_from_the_folder_is_found_whole(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    write(
        "script.py",
        "import os, sibling as s\nfrom library import (\n    one,  # a, b\n    two,\n)\n",
    )
    write("sibling.py", 'import_module(f"named.{each}")')
    write("unused.py", "import other")
    write("other.py", "")
    write("library/__init__.py", "")
    write("library/one.py", "def f():\n    from library.deep import three as t  # later\n")
    write("library/two.py", "from library import one")
    write("library/four.py", "")
    write("named/__init__.py", "")
    write("named/five.py", "")
    write("named/templates/six.j2", "")
    write("library/deep/__init__.py", "")
    write("library/deep/three.py", "import pandas")
    found = {
        str(path.relative_to(tmp_path)) for path in source_files(tmp_path / "script.py", tmp_path)
    }
    assert found == {
        "script.py",
        "sibling.py",
        "library/__init__.py",
        "library/one.py",
        "library/two.py",
        "library/deep/__init__.py",
        "library/deep/three.py",
        "named/__init__.py",
        "named/five.py",
        "named/templates/six.j2",
    }


STAGES = SCRIPTS / "tfscaling" / "stages"


@pytest.mark.parametrize("stage", sorted(STAGES.glob("*.py")), ids=lambda path: path.stem)
def test_no_import_of_a_stage_is_missed(stage: Path) -> None:
    found = names(source_files(stage, SCRIPTS))
    for name in (each for each in found if each.endswith(".py")):
        for package, module in house_imports(SCRIPTS / name):
            path = f"tfscaling/{package}/{module}.py"
            assert path in found or not (SCRIPTS / path).exists()


@pytest.mark.parametrize("stage", ["collect", "compare", "analyse"])
def test_tables_do_not_depend_on_training_or_the_page(stage: str) -> None:
    found = names(source_files(STAGES / f"{stage}.py", SCRIPTS))
    packages = {name.split("/")[1] for name in found}
    assert not {"train", "launch", "page"} & packages
