"""Who holds the lock of a folder; killed drivers are in tests/slurm."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
from builders import SCRIPTS
from tfscaling.plan import drivers

#: Enters the folder of its argument, and waits to be killed.
_DRIVER = """
import sys, time
from pathlib import Path
from tfscaling.plan import drivers

drivers.enter(Path(sys.argv[1]))
print("in", flush=True)
time.sleep(60)
"""


def started(folder: Path) -> subprocess.Popen[str]:
    """A process that works in the folder, with Snakemake's lock."""
    (folder / "locks").mkdir(exist_ok=True)
    (folder / "locks/0.input.lock").touch()
    words = [sys.executable, "-c", _DRIVER, str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=SCRIPTS)
    assert process.stdout and process.stdout.readline() == "in\n"
    return process


def test_a_lock_is_stale_once_its_driver_is_killed(tmp_path: Path) -> None:
    assert drivers.about_the_lock([], tmp_path) == ""
    process = started(tmp_path)
    try:
        said = drivers.about_the_lock([], tmp_path)
        assert f"PID {process.pid} on" in said
        process.send_signal(signal.SIGSTOP)
        assert drivers.about_the_lock([], tmp_path) == said
        assert [driver.pid for driver in drivers.living(tmp_path)] == [process.pid]
    finally:
        process.kill()
        process.communicate()
    assert drivers.living(tmp_path) == []
    said = drivers.about_the_lock(["--config", "study=a b"], tmp_path)
    assert "is stale" in said and said.endswith(" snakemake --config 'study=a b' --unlock")
    process = started(tmp_path)
    process.kill()
    process.communicate()
    # what the first has left is gone
    assert f"PID {process.pid} on" in drivers.about_the_lock([], tmp_path)
    assert len(list(tmp_path.glob("drivers/*.json"))) == 1


def test_of_a_driver_on_another_host_nothing_is_known(tmp_path: Path) -> None:
    started(tmp_path).kill()
    (path,) = tmp_path.glob("drivers/*.json")
    driver = msgspec.json.decode(path.read_bytes(), type=drivers.Driver)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(driver, host="login2")))
    said = drivers.about_the_lock([], tmp_path)
    assert "on another host" in said and f"PID {driver.pid} on login2" in said


def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    started(tmp_path).kill()
    (path,) = tmp_path.glob("drivers/*.json")
    driver = msgspec.json.decode(path.read_bytes(), type=drivers.Driver)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(driver, pid=1)))
    assert drivers.living(tmp_path) == []


def test_without_a_lock_nothing_is_said(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.kill()
    process.communicate()
    (tmp_path / "locks/0.input.lock").unlink()
    assert drivers.about_the_lock([], tmp_path) == ""
