"""A user's program on ranks that are processes: what it is given, and how its failures are told."""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import threading
import venv
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import REGISTRIES, SCRIPTS, is_gone, local_spec, raw_config, wait_until
from fake_programs import fake_nvidia_smi
from program_runs import cause_of, record_of, start
from tfscaling.launch import heartbeat, provenance, rank_files, rank_process, user_program
from tfscaling.plan.retries import is_permanent
from tfscaling.record import events
from tfscaling.record.attempts import Cause
from tfscaling.study import acceptance, config_validation, run_spec
from tfscaling.study.geometry import Geometry

GOOD = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "GROUP_RANK", "JAX_COORDINATOR_ADDRESS", "TORCHELASTIC_RUN_ID")
said = {name: os.environ[name] for name in (*names, "CUDA_VISIBLE_DEVICES", "TF_CONFIG")}
said["words"], said["tensorflow"] = sys.argv[1:], "tensorflow" in sys.modules
said["secret"] = os.environ.get("TFSCALING_LAUNCHER")
with open(os.path.join(sys.argv[1], "said.json"), "w") as file:
    json.dump(said, file)
"""


@pytest.mark.parametrize("gpus", [0, 1, 2, 4])
@pytest.mark.parametrize("tasks_on_nodes", [(1,), (1, 1), (4,), (2, 2), (2, 1), (4, 4, 4)])
def test_ranks_get_the_variables_of_torchrun(tasks_on_nodes: tuple[int, ...], gpus: int) -> None:
    """The device `LOCAL_RANK` exists: a task with one GPU sees it as device 0."""
    even = len({*tasks_on_nodes}) == 1
    tasks = tasks_on_nodes[0] if even else "+".join(map(str, tasks_on_nodes))
    geometry = Geometry(len(tasks_on_nodes), tasks, gpus * tasks_on_nodes[0])
    ranks = range(sum(tasks_on_nodes))
    told = [user_program.rank_variables(rank, geometry) for rank in ranks]
    assert [each["RANK"] for each in told] == [*map(str, ranks)]
    assert {each["WORLD_SIZE"] for each in told} == {str(len(ranks))}
    assert all(each["NODE_RANK"] == each["GROUP_RANK"] for each in told)
    groups = [(each["GROUP_RANK"], each["LOCAL_RANK"]) for each in told]
    if gpus == 1:
        assert groups == [(str(rank), "0") for rank in ranks]
        assert {each["LOCAL_WORLD_SIZE"] for each in told} == {"1"}
        assert {each["GROUP_WORLD_SIZE"] for each in told} == {str(len(ranks))}
    else:
        places = [(n, own) for n, count in enumerate(tasks_on_nodes) for own in range(count)]
        assert groups == [(str(node), str(own)) for node, own in places]
        sizes = [str(tasks_on_nodes[node]) for node, _ in places]
        assert [each["LOCAL_WORLD_SIZE"] for each in told] == sizes
        assert {each["GROUP_WORLD_SIZE"] for each in told} == {str(len(tasks_on_nodes))}


def test_a_program_is_told_its_place_and_leaves_a_record(tmp_path: Path) -> None:
    record = record_of(tmp_path, GOOD, "{folder}", "{epochs}", nodes=2)
    assert record.is_valid
    phases = record.phases
    assert phases.execution_time_s > 0 and phases.program_time_s is not None
    assert phases.unknown_phases() == [
        "import_time_s", "rendezvous_time_s", "data_time_s", "build_time_s", "first_step_time_s",
        "train_time_s", "evaluation_time_s", "probe_time_s",
    ]  # fmt: skip
    assert phases.wall_time_s == pytest.approx(
        phases.launch_time_s + phases.program_time_s + phases.teardown_time_s
    )
    assert (record.metrics.loss, record.metrics.epochs, record.environment.dataset) == (
        None, (), None,
    )  # fmt: skip
    assert {"cluster", "cpus", "report"} <= {*record.validity.checks}
    for rank in (0, 1):
        own = tmp_path / f"run/attempt=1/rank-{rank}.files"
        said = json.loads((own / "said.json").read_text())
        addresses = json.loads(said["TF_CONFIG"])["cluster"]["worker"]
        assert said == {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": addresses[0].partition(":")[2],
            "JAX_COORDINATOR_ADDRESS": addresses[0], "GROUP_RANK": str(rank),
            "TORCHELASTIC_RUN_ID": record.parameters_hash,
            "CUDA_VISIBLE_DEVICES": "", "TF_CONFIG": said["TF_CONFIG"],
            "words": [str(own), "2"], "tensorflow": False, "secret": None,
        }  # fmt: skip


#: Its rank had the launcher's secret when it began: where else is it?
LOOKS_FOR_SECRET = """
import json, os, pathlib, sys
environ = pathlib.Path(f"/proc/{os.getppid()}/environ").read_text().split(chr(0))
(line,) = [line for line in environ if line.startswith("TFSCALING_LAUNCHER=")]
secret, found = line.split()[1].encode(), []
files = [path for path in pathlib.Path().rglob("*") if path.is_file()]
for path in (*files, *pathlib.Path("/proc").glob("[0-9]*/cmdline")):
    try:
        found += [str(path)] * (secret in path.read_bytes())
    except OSError:  # it has ended
        pass
pathlib.Path(sys.argv[1], "found.json").write_text(json.dumps([len(secret), len(files), found]))
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_secret_of_an_attempt_is_in_no_file_and_no_command_line(
    nodes: int, tmp_path: Path
) -> None:
    """Several ranks on this machine are forks of a process that reads their variables."""
    record_of(tmp_path, LOOKS_FOR_SECRET, "{folder}", nodes=nodes)
    for rank in range(nodes):
        said = (tmp_path / f"run/attempt=1/rank-{rank}.files/found.json").read_text()
        length, files, found = json.loads(said)
        assert (length, files > 5, found) == (64, True, [])


SIGNALLED = """
import os, signal, sys, time
own, got = sys.argv[1], []
def note(number, _):
    got.append(signal.Signals(number).name)
    open(own + "/got", "a").write(got[-1] + " ")
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, note)
open(own + "/ready", "w").close()
while "SIGTERM" not in got and not os.path.exists(own + "/done"):
    time.sleep(0.05)
"""


@pytest.mark.parametrize("passes_on", [True, False])
def test_a_rank_passes_on_what_slurm_sends_to_it_alone(passes_on: bool, tmp_path: Path) -> None:
    """Where the program gets the signals of the rank's group, it does not get them twice."""
    env = {user_program.FORWARDS_VARIABLE: "1" if passes_on else ""}
    process = start(tmp_path, SIGNALLED, "{folder}", env=env)
    attempt = tmp_path / "run/attempt=1"
    own = attempt / "rank-0.files"
    wait_until(lambda: (own / "ready").exists() or process.poll() is not None)
    wait_until(lambda: bool(events.read_events(attempt / events.RANKS_EVENTS)))
    rank = events.read_events(attempt / events.RANKS_EVENTS)[0].details["pid"]
    os.kill(rank, signal.SIGUSR1)
    if passes_on:  # two signals may come in any order
        wait_until((own / "got").exists)
    os.kill(rank, signal.SIGTERM)
    if not passes_on:
        status = Path(f"/proc/{rank}/status")
        wait_until(lambda: "ShdPnd:\t0000000000000000" in status.read_text())
        (own / "done").touch()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    if passes_on:
        assert (own / "got").read_text() == "SIGUSR1 SIGTERM "
    else:
        assert not (own / "got").exists()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with one package, which is only installed in name."""
    folder = tmp_path / "an environment"
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "torch-9.9.dist-info").mkdir()
    (site / "torch-9.9.dist-info/METADATA").write_text("Name: torch\nVersion: 9.9\n")
    return folder


def test_a_program_runs_in_its_recipes_environment(tmp_path: Path, environment: Path) -> None:
    code = "import os, sys\nassert sys.prefix == os.environ['VIRTUAL_ENV'] == sys.argv[1]"
    program = ["python", "user.py", str(environment)]
    recipe = {"environment": str(environment)}
    facts = record_of(tmp_path, code, program=program, recipe=recipe).ranks[0].host_facts
    assert (facts.packages, facts.python) == ({"torch": "9.9"}, platform.python_version())


#: Two epochs of two steps of 8 examples on each rank, as the program says itself.
REPORTS = """
import observe

for epoch in (1, 2):
    for batch in observe.steps([[0] * 8, [1] * 8]):
        pass
    observe.epoch(loss=1 / epoch)
    observe.eval(accuracy=epoch / 4)
"""


def test_what_a_program_reports_is_in_its_record(tmp_path: Path) -> None:
    recipe = {"observe": "events", "train_examples": 32}
    record = record_of(tmp_path, REPORTS, nodes=2, recipe=recipe)
    metrics = record.metrics
    assert (metrics.loss, metrics.test_accuracy, metrics.examples_trained) == (0.5, 0.5, 64)
    assert [epoch.test_accuracy for epoch in metrics.epochs] == [0.25, 0.5]
    assert record.derived.steps_per_epoch == 2
    assert record.phases.train_time_s is not None
    assert record.phases.evaluation_time_s is not None


#: As NCCL's watchdog ends a process: from a thread that Python does not know of.
ABORTS = """
import ctypes, sys, time

WORDS = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)"


def wait():
    time.sleep(600)


print("terminate called after throwing an instance of 'c10::DistBackendError'", file=sys.stderr)
print(f"  what():  {WORDS}", *(f"frame #{n}: f()" for n in range(40)), sep="\\n", file=sys.stderr)
libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
abort = ctypes.cast(libc.abort, ctypes.c_void_p)
libc.pthread_create(ctypes.byref(thread), None, abort, None)
wait()
"""


#: Code of a program, how it is run, the cause's kind, and what the message has.
FAILURES: dict[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "exits": ("import sys; print('so far'); sys.exit(3)", {}, "program_failed",
              ["exit code 3", "so far", "log: run/attempt=1/rank-0.log"]),
    "crashes": ("import ctypes\n\nctypes.string_at(0)", {}, "program_failed",
                ["SIGSEGV", "user.py:3: Fatal Python error: Segmentation fault"]),
    "no executable": ("", {"program": ["no-such-program"], "setup": ["true"]}, "program_failed",
                      ["cannot be started on ", "'no-such-program' on PATH"]),
    "trains too many examples": (
        REPORTS, {"recipe": {"observe": "events", "train_examples": 8}}, "invalid",
        ["32 examples trained"]),
    "reports nothing": ("", {"recipe": {"observe": "events"}}, "program_failed",
                        ["`observe: events`: "]),
    "prints something else": (
        "print('epoch 1 loss: 0.5')",
        {"recipe": {"observe": "output", "patterns": {"loss": "Loss: (.+)"}}}, "program_failed",
        ["`observe: output`: "]),
}  # fmt: skip


@pytest.mark.parametrize(("code", "how", "kind", "words"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_sentence_with_its_cause(
    tmp_path: Path, code: str, how: dict[str, Any], kind: str, words: list[str]
) -> None:
    cause = cause_of(tmp_path, code, **how)
    assert (cause["kind"], cause.get("rank", 0)) == (kind, 0)
    assert [word for word in words if word not in cause["message"]] == []


#: Quotes secrets: of the platform's `env`, of the user's shell, and of `setup`.
QUOTES = """
import os
words = [os.environ[name] for name in ("API_TOKEN", "MY_PASSWORD", "SIGNING_KEY")]
raise ValueError(f"refused: {words}")
"""


def test_a_cause_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [random.randbytes(8).hex() for _ in range(3)]
    monkeypatch.setenv("MY_PASSWORD", secrets[1])
    how = {"env": {"API_TOKEN": secrets[0]}, "setup": [f"export SIGNING_KEY={secrets[2]}"]}
    cause = cause_of(tmp_path, QUOTES, **how)
    assert cause["message"].count("***") == 3, cause
    assert not any(secret in cause["message"] for secret in secrets)
    # the log's end is private, and the launcher does not know what `setup` exports
    assert not any(secret in json.dumps(cause) for secret in secrets[:2])


def test_a_secret_at_the_place_where_a_line_is_cut_is_masked(
    tmp_path: Path, dice: random.Random
) -> None:
    """The last line of a program's output is cut after 300 characters."""
    secret = f"{dice.getrandbits(128):032x}"
    code = f"import os\nprint({'x' * dice.randint(270, 292)!r} + os.environ['API_TOKEN'])\nexit(1)"
    message = cause_of(tmp_path, code, env={"API_TOKEN": secret})["message"]
    assert "xxx***; log: " in message and secret[:6] not in message


def test_an_abort_is_told_in_the_words_before_the_dump(tmp_path: Path) -> None:
    cause = cause_of(tmp_path, ABORTS)
    assert (cause["kind"], cause["exit_code"]) == ("program_failed", 134)
    assert "'c10::DistBackendError' what():  [Rank 0]" in cause["message"]
    assert any("Fatal Python error: Aborted" in line for line in cause["last_lines"])
    assert not is_permanent(msgspec.convert(cause, Cause))


def test_a_host_without_the_environment_takes_no_other_python(
    tmp_path: Path, environment: Path
) -> None:
    taken = f"mv {shlex.quote(str(environment))} {shlex.quote(str(tmp_path / 'elsewhere'))}"
    how = {"recipe": {"environment": str(environment)}, "setup": [taken]}
    cause = cause_of(tmp_path, "", program=["python", "user.py"], **how)
    assert cause["kind"] == "program_failed"
    assert f"has no program {environment}/bin/python" in cause["message"]


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n\n\n"
        "def wait():\n"
        "    time.sleep(600)\n\n\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('child', 'w').write(str(child.pid))\n"
        "print('waiting')\n"
        "wait()\n"
    )
    cause = cause_of(tmp_path, code, nodes=2, stall_timeout_s=15)
    assert cause["kind"] == "stalled"
    assert cause["last_event"] in (
        "program_start",
        "working",
    )  # whether a sign came before the hang
    assert "user.py:5 in wait" in cause["message"]
    assert f"log: run/attempt=1/rank-{cause['rank']}.log" in cause["message"]
    assert "waiting" in cause["last_lines"]
    assert is_gone(int((tmp_path / "child").read_text()))


def test_a_program_ends_with_its_launcher(tmp_path: Path) -> None:
    code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    process = start(tmp_path, code)
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.is_file() and bool(pid_file.read_text()))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    assert wait_until(lambda: is_gone(int(pid_file.read_text())))


def test_the_work_of_a_programs_children_counts() -> None:
    work = "import time\nwhile time.process_time() < 0.5: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; input()"], stdin=subprocess.PIPE
    ) as child:
        wait_until(lambda: heartbeat.tree_usage(child.pid).cpu_s >= 0.1)
        assert heartbeat.tree_usage(child.pid).io_bytes > 0
        # not by time: it has used this before
        assert heartbeat.tree_usage(os.getpid()).cpu_s >= 0.1
        assert child.stdin is not None
        child.stdin.write(b"\n")


#: Works longer than its limit, and prints all the time.
BUSY = """
import os, time
assert "TFSCALING_SIGNS_INTERVAL_S" not in os.environ
for number in range(14):
    print(number, flush=True)
    time.sleep(1)
"""


def test_a_program_that_prints_within_a_short_limit_is_not_stalled(tmp_path: Path) -> None:
    assert record_of(tmp_path, BUSY, stall_timeout_s=10).is_valid


def run_rank(
    folder: Path,
    program: list[str],
    platform: dict[str, Any],
    gpus: int = 0,
    observe: str = "nothing",
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a rank without a launcher, with these settings of the platform `laptop`."""
    recipe = {"per_replica_batch_size": 8, "epochs": 1, "program": program, "observe": observe}
    if observe == "output":
        recipe["patterns"] = {"loss": r"loss: ([\d.]+)"}
    block = {"platform": "laptop", "recipe": "script", "strategy": "own", "nodes": 1,
             "gpus_per_node": gpus}  # fmt: skip
    raw = raw_config((("recipes", "script"), recipe), (("grid",), [block]))
    raw["platforms"]["laptop"] |= platform
    (run,) = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES).runs
    folder.mkdir()
    (folder / "spec.json").write_text(run_spec.encode_spec(run.spec))
    cluster = {"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "run_rank.py"), "--spec", "spec.json", "--folder", "."],
        cwd=folder,
        env={**os.environ, "TF_CONFIG": json.dumps(cluster), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


#: A module that Python imports at its start: a rank may not sleep while it waits for its program.
NO_POLLING = """
import sys, time
sleep = time.sleep
def sleep_elsewhere(seconds):
    frame = sys._getframe()
    while frame := frame.f_back:
        code = frame.f_code
        waits = code.co_name == "_wait" and code.co_filename.endswith("user_program.py")
        assert not waits, f"a rank polls every {seconds} s"
    sleep(seconds)
time.sleep = sleep_elsewhere
"""


@pytest.mark.parametrize("observe", ["nothing", "output", "events"])
def test_the_end_of_a_program_is_known_at_once(tmp_path: Path, observe: str) -> None:
    """A wait with a timeout polls every 50 ms, which would be part of each time."""
    (tmp_path / "sitecustomize.py").write_text(NO_POLLING)
    code = "import time; time.sleep(0.3); print('loss: 0.5')"
    if observe == "events":
        code += "; import observe; [*observe.steps([1], examples=8)]; observe.epoch(loss=0.5)"
    words, paths = [sys.executable, "-c", code], os.pathsep.join([str(tmp_path), *sys.path])
    done = run_rank(tmp_path / "run", words, {}, observe=observe, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    names = [event.name for event in events.read_events_by_rank(tmp_path / "run")[0]]
    assert events.EventName.PROGRAM_ENDED in names and "failed" not in names


def test_too_few_cpus_end_a_rank_before_its_program(tmp_path: Path) -> None:
    lacking = len(os.sched_getaffinity(0)) + random.randint(1, 100)
    for launcher, code in (("srun", 1), ("local", 0)):
        settings = {"launcher": launcher, "cpus_per_node": lacking}
        if launcher == "srun":
            settings["devices"] = "physical"
        folder = tmp_path / launcher
        done = run_rank(folder, ["touch", "begun"], settings)
        assert done.returncode == code, done.stderr
        assert (folder / "begun").exists() == (launcher == "local")
        last = events.read_events_by_rank(folder)[0][-1]
        if launcher == "srun":
            assert (last.name, last.details["error"]) == ("failed", "CpuError")
            assert str(lacking) in last.details["message"]
    assert is_permanent(Cause(kind="rank_failed", message="", error="CpuError"))


@pytest.mark.parametrize(
    ("launcher", "quota", "is_missing"),
    [("srun", 0.5, True), ("srun", 1.0, False), ("srun", None, False), ("local", 0.5, False)],
)
def test_a_limit_of_cpu_time_is_too_few_cpus(
    launcher: str, quota: float | None, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "cpu_quota", lambda: quota)
    spec = local_spec()
    measured = msgspec.structs.replace(spec.measured, launcher=launcher, cpus_per_node=1)
    spec = msgspec.structs.replace(spec, measured=measured)
    assert spec.cpus_per_task == 1
    assert bool(rank_process._find_missing_cpus(spec)) == is_missing


@pytest.mark.parametrize(
    ("visible", "names"),
    [("1,0", ("B", "A")), ("1", ("B",)), ("GPU-0", ("A",)), ("0,7", ()), ("GPU-7", ())],
    ids=["all", "one", "by UUID", "unknown", "unknown UUID"],
)
def test_a_rank_reports_the_names_of_the_gpus_that_its_program_may_use(
    visible: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """The driver lists two GPUs, A and B."""
    (tools := tmp_path / "tools").mkdir()
    rows = "".join(f"{name}, GPU-{number}, 535.104.05\n" for number, name in enumerate("AB"))
    environ = fake_nvidia_smi(tools, f"printf '{rows}'")
    environ["PATH"] += f":{os.environ['PATH']}"
    settings = {"launcher": "srun", "devices": "physical", "cpus_per_node": 1}
    gpus = len(visible.split(","))
    done = run_rank(
        tmp_path / "run", ["true"], settings, gpus, CUDA_VISIBLE_DEVICES=visible, **environ
    )
    assert done.returncode == 0, done.stderr
    (report,) = rank_files.read_reports(tmp_path / "run")
    assert (report.gpu_names, report.host_facts.gpus) == (names, ("A", "B"))


@pytest.mark.parametrize(
    "visible", ["0", "0,1,2", "", None], ids=["fewer", "more", "none", "listed"]
)
def test_a_program_with_other_gpus_than_requested_does_not_begin(
    visible: str | None, tmp_path: Path
) -> None:
    """By CUDA_VISIBLE_DEVICES, else by the driver, which lists three GPUs here."""
    (tools := tmp_path / "tools").mkdir()
    rows = "".join(f"{name}, GPU-{number}, 535.104.05\n" for number, name in enumerate("ABC"))
    environ = fake_nvidia_smi(tools, f"printf '{rows}'")
    environ["PATH"] += f":{os.environ['PATH']}"
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    settings = {"launcher": "srun", "devices": "physical", "cpus_per_node": 1}
    begun = tmp_path / "begun"
    done = run_rank(tmp_path / "run", ["touch", str(begun)], settings, 2, **environ)
    assert done.returncode == 1 and not begun.exists()
    assert "requested 2 GPUs for the program, this rank may use" in done.stderr
    (failed,) = [
        event for event in events.read_events_by_rank(tmp_path / "run")[0] if event.name == "failed"
    ]
    assert failed.details["error"] == "DeviceError"


def test_a_progress_bar_is_activity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It may end no line for hours. Of its line, the shown text explains a failure."""
    program = user_program.UserProgram(local_spec())
    read, write = os.pipe()
    with os.fdopen(read, "rb") as output:
        thread = threading.Thread(target=program._copy_output, args=(output,))
        thread.start()
        size = os.write(write, b"\r10%")
        wait_until(lambda: program._output_bytes == size)
        for _ in range(200):
            size += os.write(write, b"\r20%" + b" " * 1000)
        size += os.write(write, b"\rall\r")
        wait_until(lambda: program._output_bytes == size)
        os.write(write, b"\nnext\r\n\r30%\rerror: 7")
        os.close(write)
        thread.join()
    assert program._last_lines() == ["all", "next", "error: 7"]


def test_a_secret_that_only_the_rank_has_is_masked(tmp_path: Path) -> None:
    """As from a file that `setup` sources: the launcher does not know it."""
    secret = random.randbytes(8).hex()
    (tmp_path / "secrets.sh").write_text(f"export HUB_TOKEN={secret}\n")
    code = "import os, sys; print(os.environ['HUB_TOKEN']); sys.exit(3)"
    cause = cause_of(tmp_path, code, setup=[f"source {tmp_path}/secrets.sh"])
    assert "***" in cause["last_lines"] and secret not in json.dumps(cause)
    assert secret not in (tmp_path / "run/failure.json").read_text()
