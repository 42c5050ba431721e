"""An experienced user's session of sweeps: edits, forced and failed runs, kills, other profiles.

After each command every record that ever counted is where it was, byte for byte, unless the command
repeats it by name, and no run was finished twice without such a request.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import wait_until
from project import BIN, REPOSITORY, Project

#: Sleeps instead of training; fails, or waits, while a file of this name exists.
PROGRAM = """
import pathlib
import sys
import time

if pathlib.Path("fail").exists():
    sys.exit("not today")
while pathlib.Path("wait").exists():
    time.sleep(0.1)
time.sleep(1)
print("loss", 0.5)
"""
#: As labs publish them: nothing in it is for this workflow.
LAB_PROFILE: dict[str, Any] = {
    "cores": 2,
    "keep-going": True,
    "rerun-incomplete": True,
    "rerun-triggers": ["mtime"],
    "printshellcmds": True,
    "latency-wait": 30,
    "default-resources": ["mem_mb=1000", "runtime=30", "disk_mb=500"],
    "set-threads": ["align=8"],
}
REPEATS = 2
#: Options with which Snakemake refuses incomplete files, whatever the profile says, and the
#: option that docs/command-line.md names for them.
IGNORING_THE_PROFILE, REMEDY = {"--delete-all-output", "--list-changes"}, "--rerun-incomplete"


class Session:
    """A project folder, the records that count in it, and how often each run may be finished."""

    def __init__(self, folder: Path, epochs: int) -> None:
        self.project = Project(folder)
        self.epochs = epochs
        (folder / "program.py").write_text(PROGRAM)
        (folder / "lab").mkdir(exist_ok=True)
        (folder / "lab/config.yaml").write_text(yaml.safe_dump(LAB_PROFILE))
        self.expected: dict[Path, str] = {}
        self.requested: Counter[Path] = Counter()
        self.commands = 0
        self.configure()

    def configure(self, epochs: int = 0, study: str = "main", **changes: Any) -> None:
        """Write the configuration; without arguments the one with which the session began."""
        block = {"platform": "laptop", "strategy": "own", "recipe": "script", "nodes": 1}
        recipe = {"program": [sys.executable, "program.py"], "per_replica_batch_size": 1}
        content = {
            "study": study,
            "grid": [{**block, "repeats": REPEATS}],
            "recipes": {"script": {**recipe, "epochs": epochs or self.epochs}},
        }
        self.project.overlay({**content, **changes})

    def names(self) -> list[str]:
        """The records that count, as Snakemake's targets."""
        return sorted(str(path.relative_to(self.project.folder)) for path in self.expected)

    def configure_a_run(self, draw: random.Random) -> str:
        """Draw a run that counts, write a configuration with it; return its record as a target."""
        name = draw.choice(self.names())
        self.configure(self.epochs_of(name))
        return name

    def epochs_of(self, name: str) -> int:
        """Return the parameter of the run whose record this is."""
        content = json.loads((self.project.folder / name).read_text())
        return int(content["parameters"]["epochs"])

    def records(self) -> dict[Path, str]:
        """Record in its place → its checksum."""
        return {path: _checksum(path) for path in self.project.files_of_runs("run.json")}

    def call(
        self,
        *words: str,
        profile: str | None = "local",
        fails: bool | None = False,
        forced: Collection[str] = (),
    ) -> str:
        """Run snakemake, check all records, and return the output.

        Args:
            words: Options and targets.
            profile: A profile of the repository, a folder, or None.
            fails: Whether it has to end with an error; None: it may.
            forced: Records that the command may replace.
        """
        if {*words} & IGNORING_THE_PROFILE:
            words = (*words, REMEDY)
        done = self.project.snakemake(*words, profile=profile, check=False)
        has_failed = done.returncode != 0
        assert fails is None or has_failed is fails, done.stdout[-4000:]
        self.check(forced, " ".join(words))
        return done.stdout

    def check(self, forced: Collection[str] = (), command: str = "") -> None:
        """Check that records changed only where that was requested, and note new ones."""
        self.commands += 1
        now = self.records()
        repeated = {self.project.folder / name for name in forced}
        for path, checksum in self.expected.items():
            if path not in repeated:
                assert now.get(path) == checksum, (command, path)
                continue
            # the run may have failed: then its record is not in place before the next start
            kept = {_checksum(each) for each in path.parent.glob("attempt=*/record.json")}
            assert checksum in kept, (command, path)
            self.requested[path] += now.get(path, checksum) != checksum
        self.expected |= now
        for path in self.expected:
            finished = len([*path.parent.glob("attempt=*/record.json")])
            assert finished <= 1 + self.requested[path], (command, path)

    @contextlib.contextmanager
    def having(self, name: str) -> Iterator[None]:
        """Let the file exist that makes programs fail or wait."""
        (self.project.folder / name).touch()
        yield
        (self.project.folder / name).unlink(missing_ok=True)

    def kill_driver(self, *words: str, forced: Collection[str] = ()) -> Path:
        """Kill a sweep while its first run waits; return the folder of the run's attempt."""
        before = {*self.attempts()}
        command = [str(BIN / "snakemake"), "--snakefile", str(REPOSITORY / "Snakefile")]
        command += ["--configfile", "overlay.yaml", "--profile", str(REPOSITORY / "profiles/local")]
        given: Any = {"cwd": self.project.folder, "stderr": subprocess.STDOUT}
        sweep = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL, **given)
        wait_until(lambda: bool({*self.attempts()} - before))
        (attempt,) = {*self.attempts()} - before
        wait_until(lambda: (attempt / "spec.json").exists())
        # other commands of a user who waits; a plan starts again without its lock
        planned = subprocess.run([*command, "plan"], stdout=subprocess.PIPE, text=True, **given)
        assert planned.returncode == 0, planned.stdout
        self.check(forced, "plan")
        self.call("partial", "--nolock", forced=forced)
        assert "--unlock" in self.call(fails=True, forced=forced)
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.wait()
        return attempt

    def attempts(self) -> list[Path]:
        return [path.parent for path in self.project.files_of_runs("attempt=*/spec.json")]


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def undo_an_edit_whose_runs_failed(session: Session, draw: random.Random) -> None:
    session.configure(session.epochs + 1)
    # the nearest of the kept runs is named, whichever that is
    assert re.search(rf"epochs: \d+, now {session.epochs + 1}\b", session.call("--dry-run"))
    with session.having("fail"):
        session.call(fails=True)
    session.call("partial")
    session.configure()
    options = [(), ("--rerun-triggers", "mtime"), ("--rerun-triggers", "params", "code")]
    session.call(*draw.choice(options))


def edit_and_come_back_with_a_labs_profile(session: Session, draw: random.Random) -> None:
    lab = str(session.project.folder / "lab")
    session.configure(session.epochs + 2)
    session.call(profile=lab)
    session.configure()
    session.call(profile=lab)
    session.call("--cores", "2", profile=None)


def share_runs_with_a_study_of_an_equal_recipe_name(session: Session, draw: random.Random) -> None:
    session.configure(study="other")
    assert f"{REPEATS} of {REPEATS} runs are finished" in session.call("plan")
    session.configure(session.epochs + 3, study="other")
    session.call()
    session.configure()
    session.call()


def force_a_run_that_fails(session: Session, draw: random.Random) -> None:
    name = session.configure_a_run(draw)
    with session.having("fail"):
        session.call(draw.choice(["--forcerun", "--force"]), name, fails=True, forced=[name])
    session.call(*draw.choice([(), ("--no-hooks",), ("--rerun-incomplete",)]))


def force_a_run(session: Session, draw: random.Random) -> None:
    name = session.configure_a_run(draw)
    before = session.expected[session.project.folder / name]
    session.call(draw.choice(["--forcerun", "--force"]), name, forced=[name])
    assert session.expected[session.project.folder / name] != before
    session.configure()
    session.call()


def kill_a_sweep_of_new_runs(session: Session, draw: random.Random) -> None:
    session.configure(session.epochs + 4)
    with session.having("wait"):
        attempt = session.kill_driver()
        is_followed = draw.choice([True, False])
        if is_followed:  # the next start comes before the orphan's end
            session.call("--unlock")
    if not is_followed:
        wait_until(lambda: (attempt / "record.json").exists())
        session.check()
        session.call("--unlock")
    session.call()
    session.configure()
    session.call()


def kill_a_forced_run(session: Session, draw: random.Random) -> None:
    name = session.configure_a_run(draw)
    with session.having("wait"):
        attempt = session.kill_driver("--forcerun", name, forced=[name])
        session.call("--unlock", forced=[name])
        session.call(forced=[name])
        session.check()
    wait_until(lambda: any((attempt / each).exists() for each in ("failure.json", "record.json")))
    session.configure()
    session.call()


def edit_the_program_and_undo_it(session: Session, draw: random.Random) -> None:
    program = session.project.folder / "program.py"
    program.write_text(f"{PROGRAM}print('edited')\n")
    assert "rerun=stale" in session.call(fails=True)
    program.write_text(PROGRAM)
    session.call()


def copy_the_folder(session: Session, draw: random.Random) -> None:
    folder = session.project.folder
    copy = folder.with_name(f"copy{session.commands}")
    if draw.choice([True, False]):
        shutil.copytree(folder, copy, symlinks=True)
    else:  # as `cp -r`: all files are new, and Snakemake remembers nothing
        ignored = shutil.ignore_patterns(".snakemake")
        shutil.copytree(folder, copy, ignore=ignored, copy_function=shutil.copyfile)
    copied = Project(copy)
    copied.snakemake()
    checksums = {_checksum(path) for path in copied.files_of_runs("run.json")}
    assert checksums == {*session.expected.values()}
    assert len([*copied.files_of_runs("attempt=*/rank-0.log")]) == len(
        [*session.project.files_of_runs("attempt=*/rank-0.log")]
    )


def use_options_that_repair(session: Session, draw: random.Random) -> None:
    name = session.configure_a_run(draw)
    words = [
        ("--touch",), ("--cleanup-metadata", name), ("--until", "train"),
        ("--omit-from", "collect"), ("--list-changes", "params"), ("--summary",),
        ("--forcerun", "collect"), ("--rerun-incomplete", name), ("--unlock",), ("--keep-going",),
    ]  # fmt: skip
    for each in draw.sample(words, 4):
        # Snakemake fails to forget what it does not remember
        session.call(*each, fails=None if each[0] == "--cleanup-metadata" else False)
    session.call()


def lose_what_can_be_lost(session: Session, draw: random.Random) -> None:
    folder = session.project.folder
    name = session.configure_a_run(draw)

    def delete_a_record() -> None:
        session.call("--delete-all-output", name, forced=[name])
        session.call()  # only a sweep puts it back from its attempt

    lost: Mapping[str, Callable[[], object]] = {
        "memory": lambda: shutil.rmtree(folder / ".snakemake"),
        "tables": lambda: session.call("--delete-all-output"),
        "record": delete_a_record,
        "study": lambda: shutil.rmtree(folder / "results/main"),
    }
    for each in draw.sample([*lost], 2):
        lost[each]()
    session.call()


STEPS = [
    undo_an_edit_whose_runs_failed,
    edit_and_come_back_with_a_labs_profile,
    share_runs_with_a_study_of_an_equal_recipe_name,
    force_a_run_that_fails,
    force_a_run,
    kill_a_sweep_of_new_runs,
    kill_a_forced_run,
    edit_the_program_and_undo_it,
    copy_the_folder,
    use_options_that_repair,
    lose_what_can_be_lost,
]


@pytest.mark.full
def test_no_measurement_changes_or_is_made_twice_in_a_session_of_sweeps(
    random_seed: int, tmp_path: Path
) -> None:
    draw = random.Random(random_seed)
    session = Session(tmp_path / "project", draw.randint(1, 50))
    session.call("--cores", "2", profile=None)
    assert len(session.expected) == REPEATS
    for step in draw.sample(STEPS, len(STEPS)):
        print(f"{session.commands} commands: {step.__name__}", flush=True)
        session.configure()
        step(session, draw)
        assert session.project.planned() == set(), step.__name__
    # as somebody who wants to be sure
    session.configure()
    names = [name for name in session.names() if session.epochs_of(name) == session.epochs]
    before = dict(session.expected)
    session.call("--forceall", forced=names)
    changed = {path for path in before if session.expected[path] != before[path]}
    assert changed == {session.project.folder / name for name in names}
    print(f"{session.commands} commands, {len(session.expected)} runs, "
          f"{sum(session.requested.values())} repeated on request")  # fmt: skip
