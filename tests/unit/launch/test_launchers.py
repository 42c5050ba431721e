"""The exact commands of each launcher, and setup lines run by a real shell."""

from __future__ import annotations

import errno
import json
import random
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_programs import program
from project import REPOSITORY
from tfscaling.cluster.gpu_allocation import ClusterError
from tfscaling.launch import containers, launchers, link
from tfscaling.launch.launchers import LAUNCHERS, LaunchRequest, ReservedPorts
from tfscaling.study.config_types import Container, MeasuredKeys
from tfscaling.study.geometry import Geometry

FOLDER = Path("attempt=1")


def request(geometry: Geometry, **changes: Any) -> LaunchRequest:
    jobs = {"worker": geometry.tasks}
    usual: dict[str, Any] = {"jobs": jobs, "cpus_per_task": 4, "folder": FOLDER, "uses_gpus": False}
    return LaunchRequest(["python", "run_rank.py", "--seed", "1"], geometry, **{**usual, **changes})


@pytest.mark.parametrize(
    ("geometry", "shape"),
    [
        (Geometry(1, 1, 0), ["--nodes=1", "--ntasks=1", "--ntasks-per-node=1"]),
        (Geometry(6, 1, 4), ["--nodes=6", "--ntasks=6", "--ntasks-per-node=1"]),
        (Geometry(2, 3, 0), ["--nodes=2", "--ntasks=6", "--ntasks-per-node=3"]),
        (Geometry(3, "2+2+1", 0), ["--nodes=3", "--ntasks=5", "--ntasks-per-node=2"]),
    ],
)
def test_srun_is_told_the_whole_geometry(geometry: Geometry, shape: list[str]) -> None:
    (command,) = LAUNCHERS["srun"](request(geometry, env={"A": "1"}))
    assert list(command.argv) == [
        "srun",
        *shape,
        "--distribution=block",
        "--cpus-per-task=4",
        "--export=ALL",
        "--kill-on-bad-exit=1",
        "--unbuffered",
        "--output=attempt=1/rank-%t.log",
        *["python", "run_rank.py", "--seed", "1"],
    ]
    assert command.env == {"A": "1"}
    assert command.log == FOLDER / "srun.log"
    assert command.rank is None


def test_srun_binds_ranks_as_the_platform_says() -> None:
    measured = MeasuredKeys(launcher="srun", cpus_per_node=4, cpu_bind="cores", gpu_bind="closest")
    (command,) = LAUNCHERS["srun"](
        request(Geometry(2, 1, 0), binding=measured.srun_binding_options)
    )
    words = command.argv[: command.argv.index("python")]
    assert {"--cpu-bind=cores", "--gpu-bind=closest"} < {*words}


def test_local_ranks_are_told_their_place_by_tf_config() -> None:
    with ExitStack() as held:
        commands = LAUNCHERS["local"](request(Geometry(2, 2, 0), resources=held))
    told = [json.loads(command.env["TF_CONFIG"]) for command in commands]
    (addresses,) = {tuple(each["cluster"]["worker"]) for each in told}
    assert len(set(addresses)) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert [each["task"] for each in told] == [{"type": "worker", "index": n} for n in range(4)]
    assert [command.rank for command in commands] == [0, 1, 2, 3]
    assert [command.log for command in commands] == [FOLDER / f"rank-{n}.log" for n in range(4)]
    assert {command.argv for command in commands} == {("python", "run_rank.py", "--seed", "1")}


def test_ranks_of_an_mpi_job_are_told_how_to_find_each_other() -> None:
    (command,) = LAUNCHERS["srun"](request(Geometry(2, 1, 0), mpi="pmi2"))
    assert "--mpi=pmi2" in command.argv[: command.argv.index("python")]
    with ExitStack() as held:
        ranks = LAUNCHERS["local"](request(Geometry(2, 1, 0), mpi="pmi2", resources=held))
        assert [each.env["PMI_ID"] for each in ranks] == ["0", "1"]
        (address,) = {each.env["PMI_PORT"] for each in ranks}
        host, _, port = address.partition(":")
        socket.create_connection((host, int(port)), timeout=300).close()


def gpus_of(
    geometry: Geometry,
    given: Sequence[str] | None,
    name: str = "CUDA_VISIBLE_DEVICES",
    **changes: Any,
) -> list[str]:
    """The variable `name` of each local rank, where it lists these GPUs, without nvidia-smi."""
    env = {"PATH": ""} if given is None else {"PATH": "", name: ",".join(given)}
    with ExitStack() as held:
        wanted = request(geometry, uses_gpus=True, env=env, resources=held, **changes)
        return [command.env[name] for command in LAUNCHERS["local"](wanted)]


FIVE = ["0", "1", "2", "3", "4"]
#: Names of a machine's GPUs, in numbers, as UUIDs, and of their parts.
NAMES = ["{0}", "GPU-8932f93{0}", "MIG-GPU-1/{0}/0"]


@pytest.mark.parametrize(
    ("geometry", "given", "visible"),
    [
        *((geometry, given, visible)
          for given in (None, FIVE)
          for geometry, visible in (
              (Geometry(1, 1, 2), ["0,1"]),
              (Geometry(2, 1, 2), ["0,1", "2,3"]),
              (Geometry(1, 2, 4), ["0,1", "2,3"]),
              (Geometry(2, 2, 2), ["0", "1", "2", "3"]),
              (Geometry(2, "2+1", 2), ["0", "1", "2"]),
          )),
    ],
)  # fmt: skip
def test_local_ranks_share_out_the_gpus_that_are_given_without_overlap(
    geometry: Geometry, given: list[str] | None, visible: list[str]
) -> None:
    assert gpus_of(geometry, given) == visible


def test_local_ranks_take_no_other_gpus_than_those_that_are_given(dice: random.Random) -> None:
    form, nodes, gpus = dice.choice(NAMES), dice.randint(1, 4), dice.randint(1, 3)
    given = [form.format(number) for number in dice.sample(range(16), 16)]
    given = given[: nodes * gpus + dice.randrange(3)]
    shares = [",".join(given[n * gpus : (n + 1) * gpus]) for n in range(nodes)]
    name = dice.choice(["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
    assert gpus_of(Geometry(nodes, 1, gpus), given, name) == shares


def test_engines_get_the_image_its_python_and_all_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def words(engine: Any, python: str = sys.executable) -> list[str]:
        container = Container(image="i.sif", engine=engine, binds=("/a:/b",))
        wanted = request(Geometry(1, 1, 1), uses_gpus=True, container=container)
        wanted = replace(wanted, command=[python, *wanted.command[1:]])
        (command,) = LAUNCHERS["srun"](wanted)
        return list(command.argv[command.argv.index("--output=attempt=1/rank-%t.log") + 1 :])

    here, rank = str(tmp_path), ["run_rank.py", "--seed", "1"]
    own = words("apptainer")
    folders = [own[n + 1] for n, word in enumerate(own) if word == "--bind"]
    assert folders == [here, str(REPOSITORY), sys.prefix, sys.base_prefix, "/a:/b"]
    assert own[:3] == ["apptainer", "exec", "--nv"]
    assert words("singularity") == ["singularity", *own[1:]]
    assert own[-7:] == ["--pwd", here, "i.sif", sys.executable, *rank]
    binds = ["--bind", here, "--bind", str(REPOSITORY), "--bind", "/a:/b"]
    charliecloud = words("charliecloud", python="/p")
    assert charliecloud == ["ch-run", *binds, "--cd", here, "i.sif", "--", "/p", *rank]
    assert words("pyxis", python="/p") == [
        "--container-image=i.sif",
        f"--container-mounts={here}:{here},{REPOSITORY}:{REPOSITORY},/a:/b",
        f"--container-workdir={here}",
        *["/p", *rank],
    ]


@pytest.mark.parametrize("launcher", ["srun", "local"])
@pytest.mark.parametrize(
    ("engine", "prefix"),
    [
        *(("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")),
        *(("charliecloud", None), ("pyxis", None)),
    ],
)
def test_variables_of_the_platform_keep_their_values_in_an_image(
    launcher: str, engine: Any, prefix: str | None
) -> None:
    env = {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4", "PATH": "/site/bin", link.VARIABLE: "x"}
    container = Container(image="i.sif", engine=engine)
    with ExitStack() as held:
        wanted = request(Geometry(1, 1, 0), env=env, container=container, resources=held)
        (command,) = LAUNCHERS[launcher](wanted)
    assert command.env.items() >= env.items()
    kept = {name: value for name, value in command.env.items() if "ENV_" in name}
    assert kept.items() >= {f"{prefix}NCCL_DEBUG": "INFO"}.items() if prefix else not kept
    # the image has its own programs, and a rank removes the secret by its one name
    assert not kept.keys() & {f"{prefix}PATH", f"{prefix}{link.VARIABLE}"}
    options = [word for word in command.argv if word.startswith("--container-env")]
    is_pyxis = engine == "pyxis" and launcher == "srun"
    assert options == ["--container-env=NCCL_DEBUG,OMP_NUM_THREADS"] * is_pyxis


def test_the_digest_of_an_image_changes_with_its_files(tmp_path: Path) -> None:
    def digest(path: Path) -> str | None:
        return containers.image_sha256(Container(image=str(path)))

    file = tmp_path / "folder/usr/program"
    file.parent.mkdir(parents=True)
    file.write_text("one")
    found = [digest(tmp_path / "folder"), digest(file), digest(tmp_path / "folder")]
    assert found[0] == found[2]
    file.write_text("other")
    assert len({*found, digest(tmp_path / "folder"), digest(file)}) == 4
    assert digest(tmp_path / "missing") is None


@pytest.mark.parametrize("given", [[], ["2"], ["2", "3", "4"]])
def test_too_few_gpus_for_all_nodes_are_an_error_before_any_rank_starts(given: list[str]) -> None:
    with pytest.raises(ClusterError, match=f"2 workers .* 2 GPUs .* need 4 .* {len(given)} "):
        gpus_of(Geometry(2, 1, 2), given)


def test_only_workers_take_gpus() -> None:
    """A coordinator and parameter servers compute nothing on them."""
    jobs = {"chief": 1, "ps": 1, "worker": 2}
    assert gpus_of(Geometry(4, 1, 1), ["6", "7"], jobs=jobs) == ["", "", "6", "7"]


def test_local_ranks_go_to_the_jobs_in_the_order_of_their_names() -> None:
    jobs = {"worker": 2, "ps": 1, "chief": 1}
    commands = LAUNCHERS["local"](request(Geometry(4, 1, 0), jobs=jobs))
    told = [json.loads(command.env["TF_CONFIG"]) for command in commands]
    cluster = told[0]["cluster"]
    assert {job: len(tasks) for job, tasks in cluster.items()} == jobs
    tasks = [(each["task"]["type"], each["task"]["index"]) for each in told]
    assert tasks == [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)]


def show_environment(folder: Path, setup: list[str]) -> list[str]:
    """A command that prints its process id, a variable, its arguments, after `setup`."""
    file = folder / "setup file.sh"
    launchers.write_setup(file, setup)
    code = "import os, sys; print(os.getpid(), os.environ.get('A'), sys.argv[1:])"
    command = [sys.executable, "-c", code, "one two", "$A", "'"]
    return replace(request(Geometry(1, 1, 0)), command=command, setup=file).words


def run(argv: list[str]) -> tuple[int, subprocess.Popen[str], str]:
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output, _ = process.communicate(timeout=300)
    return process.pid, process, output


def test_ranks_do_not_get_what_a_user_has_set_for_srun_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step would wait for ever, end early or begin in another folder. The platform's stay."""
    removed = {
        "SLURM_CONSTRAINT": "fast", "SLURM_TIMELIMIT": "1", "SLURM_REMOTE_CWD": "/",
        "SLURM_GRES": "gpu:1", "SLURM_TASK_PROLOG": "/nowhere", "SLURM_STDERRMODE": "none",
    }  # fmt: skip
    of_job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": "2", "SLURM_CONF": "/etc/conf"}
    for name, value in {**removed, **of_job}.items():
        monkeypatch.setenv(name, value)
    program(tmp_path, "srun", "env")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    wanted = replace(request(Geometry(1, 1, 0)), folder=tmp_path, env={"SLURM_WAIT": "5"})
    (command,) = LAUNCHERS["srun"](wanted)
    launchers.start_process(command).wait()
    seen = dict(line.split("=", 1) for line in command.log.read_text().splitlines() if "=" in line)
    assert not removed.keys() & seen.keys()
    assert seen.items() >= {**of_job, "SLURM_WAIT": "5"}.items()


def test_setup_lines_run_first_and_the_shell_is_replaced_by_the_command(tmp_path: Path) -> None:
    pid, process, output = run(
        show_environment(tmp_path, ["trap : USR1", "A='set by setup'", "export A", "echo ready"])
    )
    assert process.returncode == 0
    assert output.splitlines() == ["ready", f"{pid} set by setup ['one two', '$A', \"'\"]"]


@pytest.mark.parametrize(
    ("lines", "place", "code"),
    [
        (["true", "false", "echo after"], "line 2 ", 1),
        (["module() { grep none /dev/null; }", "true", "module load cuda", "true"], "line 3 ", 1),
        (["if true; then", "nowhere_installed", "fi"], "line 2 ", 127),
        (["true", "A=$(false)"], "line 2 ", 1),
        (["set -x", "false"], "line 2 ", 1),
        # bash itself names these lines
        (["exit 3"], "", 3),
        ([". /nowhere/init.sh"], "", 1),
        (["set -u", 'echo "$NOWHERE_SET"'], "", 1),
    ],
)
def test_a_failing_setup_line_ends_the_rank_before_the_command(
    lines: list[str], place: str, code: int, tmp_path: Path
) -> None:
    lines = ["echo before; SECRET=s3cr3t", *lines]
    if place:
        place = f"line {int(place.split()[1]) + 1} "
    _, process, output = run(show_environment(tmp_path, lines))
    assert process.returncode == code
    printed = output.splitlines()
    assert (printed[0], printed[-1]) == ("before", f"setup: {place}ended with exit code {code}")
    assert "s3cr3t" not in output and "after" not in output


def test_a_command_that_fails_is_no_failure_of_setup(tmp_path: Path) -> None:
    file = tmp_path / "setup.sh"
    launchers.write_setup(file, ["false || true", "if false; then false; fi"])
    for command, code in ((["false"], 1), (["nowhere_installed"], 127)):
        _, process, output = run(["bash", "-e", str(file), *command])
        assert process.returncode == code and "setup: " not in output


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_setup_lines_of_any_length_are_in_an_owner_only_file_and_in_no_command(
    tmp_path: Path, launcher: str
) -> None:
    file, secret = tmp_path / "setup.sh", secrets.token_hex(8)
    launchers.write_setup(file, [f"TOKEN={secret} # {'x' * 200_000}"])
    assert file.stat().st_mode & 0o777 == 0o600 and secret in file.read_text()
    with ExitStack() as held:
        asked = replace(request(Geometry(1, 2, 0)), setup=file, resources=held)
        commands = LAUNCHERS[launcher](asked)
    assert all(str(file) in command.argv for command in commands)
    assert not any(secret in word for command in commands for word in command.argv)


def bind(port: int, reuse: bool = False) -> socket.socket:
    other = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if reuse:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        other.bind(("127.0.0.1", port))
    except OSError:
        other.close()
        raise
    return other


def test_held_ports_are_different_and_need_no_rights() -> None:
    with ReservedPorts(5) as ports:
        assert len({*ports.numbers}) == 5 and min(ports.numbers) >= 1024


def test_nobody_else_can_bind_a_held_port() -> None:
    with ReservedPorts(1) as ports, pytest.raises(OSError, match="in use") as caught:
        bind(ports.numbers[0])
    assert caught.value.errno == errno.EADDRINUSE


def test_a_server_that_reuses_addresses_can_bind_and_serve_a_held_port() -> None:
    with ReservedPorts(1) as ports, bind(ports.numbers[0], reuse=True) as server:
        server.listen()
        with socket.create_connection(("127.0.0.1", ports.numbers[0]), timeout=300) as client:
            accepted, _ = server.accept()
            client.sendall(b"hello")
            with accepted:
                assert accepted.recv(5) == b"hello"
