"""The folder of the scripts, and the configuration files before Snakemake reads them.

INPUTS   config/platforms.yaml and, without --configfile, config/config.yaml, if they exist
OUTPUTS  SCRIPTS; INVOCATION, how Snakemake was started; READ, the content of each file; an error with
         file and line if one is wrong: Snakemake's own has neither
"""

import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import zipfile
from pathlib import Path


def workflow_folder():
    """Return the folder `workflow` on this machine.

    A module from a git repository is files that Snakemake reads one at a time: scripts need all of
    them, so that the files of its commit are copied below `.snakemake`, once for each commit.
    """
    rules = workflow.current_basedir  # of this file
    if isinstance(rules, os.PathLike):
        return Path(rules).resolve().parent
    repository = rules.hosted_repo.repo
    commit = repository.commit(rules.ref).hexsha
    copy = Path(".snakemake/workflow", commit).absolute()
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
            archive = io.BytesIO()
            parts = [os.path.dirname(rules.path), "Snakefile", "LICENSE", "CITATION.cff"]
            repository.archive(archive, commit, path=parts, format="zip")
            zipfile.ZipFile(archive).extractall(folder)
            Path(folder, "git_commit").write_text(f"{commit}\n")
            with contextlib.suppress(OSError):  # another process was quicker
                os.rename(folder, copy)
            Path(folder).mkdir(exist_ok=True)  # as its clean-up expects
    return copy / os.path.dirname(rules.path)


SCRIPTS = workflow_folder() / "scripts"
sys.path.insert(0, str(SCRIPTS))
# Shells name the folder of the scripts by this variable: their text, which Snakemake compares, is
# the same in any project folder. PATH is from the activated environment, on nodes too.
os.environ.update(
    SCRIPTS=str(SCRIPTS),
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
)

from snakemake.exceptions import WorkflowError

#: Packages that planning needs; jobs may have a separate environment.
PLANNING = ("msgspec", "numpy", "pandas", "scipy")
if missing := [name for name in PLANNING if importlib.util.find_spec(name) is None]:
    raise WorkflowError(
        f"Not installed where snakemake runs: {', '.join(missing)}. `make setup` installs all that "
        "the workflow needs into .venv; workflow/envs/environment.yaml lists the packages."
    )

from tfscaling.snakemake_adapter import invocation
from tfscaling.study import config_files, config_validation

INVOCATION = invocation.current_invocation(workflow)
# How often Slurm has started a job again: the executor in the job hides Slurm's own variable from
# the program. A sweep may be in a job itself, which says nothing of the jobs that it submits.
if INVOCATION.is_main_process:
    os.environ.pop("TFSCALING_RESTARTS", None)
elif restarts := os.environ.get("SLURM_RESTART_COUNT"):
    os.environ.update(TFSCALING_RESTARTS=restarts)

READ = {}
if not INVOCATION.is_configured:  # a module has its configuration from another workflow
    try:
        # a study given by --configfile takes nothing from config/config.yaml
        read = config_validation.CONFIG_FILES[bool(INVOCATION.study_files) :]
        for name in filter(os.path.isfile, read):
            READ[name] = config_files.read_config_file(name)
    except config_validation.ConfigError as error:
        raise WorkflowError(str(error)) from None
