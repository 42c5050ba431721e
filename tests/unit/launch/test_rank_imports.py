"""Ranks import Python, msgspec and NumPy, and TensorFlow with Keras when they train.

So they run in a user's Python that has none of the workflow's other packages.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from builders import SCRIPTS

#: What ranks may import at once; TensorFlow depends on NumPy.
ALLOWED = ("msgspec", "numpy")
#: All that the programs of ranks and the check of models import before TensorFlow.
LOAD = """
import importlib, json, sys
sys.path[:0] = sys.argv[1:]
for name in ("run_rank", "check_models", "prepare_dataset", "tfscaling.train.rank"):
    importlib.import_module(name)
own = [getattr(m, "__file__", None) for n, m in sys.modules.items() if n.startswith("tfscaling")]
tops = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps([sorted(filter(None, own)), sorted(tops)]))
"""


def loaded(folder: Path) -> tuple[list[str], list[str]]:
    """Files of the library, and modules outside of Python, that ranks load.

    The Python has no packages but links to the allowed ones.
    """
    for name in ALLOWED:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        (folder / name).symlink_to(package)
        if (libraries := package.with_name(f"{name}.libs")).exists():
            (folder / libraries.name).symlink_to(libraries)
    words = [sys.executable, "-I", "-S", "-c", LOAD, str(SCRIPTS), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files, modules = json.loads(done.stdout)
    return files, modules


def test_ranks_load_no_package_but_msgspec_and_numpy(tmp_path: Path) -> None:
    files, modules = loaded(tmp_path)
    assert {"msgspec", "numpy", "tfscaling"} <= set(modules)
    assert not {"snakemake", "pandas", "yaml", "tensorflow", "scipy"} & set(modules)
    packages = {Path(file).relative_to(SCRIPTS / "tfscaling").parts[0] for file in files}
    ranks = {"cluster", "datasets", "files", "launch", "record", "study", "train"}
    assert packages - {"__init__.py"} == ranks


def test_what_ranks_load_is_python_3_10(tmp_path: Path) -> None:
    files, _ = loaded(tmp_path)
    programs = [str(SCRIPTS / f"{name}.py") for name in ("run_rank", "check_models")]
    for file in (*files, *programs):
        ast.parse(Path(file).read_text(), file, feature_version=(3, 10))
    ast.parse((SCRIPTS / "check_python.py").read_text(), feature_version=(3, 8))
