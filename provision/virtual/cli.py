"""The commands of `cluster`: up, down, status, env, exec, and the faults."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import lifecycle, machines
from .network import namespace_file
from .plan import CONTROLLER, Partition, Plan, PowerSaving, Shape, check_partitions, parse_partition

DEFAULT_NODES = 12

Command = Callable[[argparse.Namespace], None]


def bring_up(args: argparse.Namespace) -> None:
    """Start the cluster that the options describe, after removing abandoned clusters."""
    saving = None
    if args.power_saving:
        saving = PowerSaving(boot_s=args.boot_delay, idle_s=args.idle_time)
    partitions = requested_partitions(args)
    shape = Shape(partitions, args.accounting, saving, args.memory_limits, args.urgent)
    lifecycle.remove_abandoned()
    lifecycle.bring_up(args.root, shape, args.down_command, args.owner)


def requested_partitions(args: argparse.Namespace) -> tuple[Partition, ...]:
    """Return the partitions that the options of `up` describe.

    Raises:
        RuntimeError: The options contradict each other, or no cluster can have these partitions.
    """
    try:
        if args.partition:
            if args.nodes is not None:
                raise ValueError("give --nodes or --partition, not both")
            partitions = [parse_partition(text, args.cpus_per_node) for text in args.partition]
        else:
            nodes = DEFAULT_NODES if args.nodes is None else args.nodes
            if nodes < 2:
                raise ValueError("--nodes is split over two partitions, cpu and gpu: at least 2")
            partitions = [
                Partition("cpu", nodes - nodes // 2, args.cpus_per_node),
                Partition("gpu", nodes // 2, args.cpus_per_node, args.gpus_per_node),
            ]
        check_partitions(args.root, tuple(partitions))
    except ValueError as error:
        raise RuntimeError(str(error)) from None
    return tuple(partitions)


def install_packages(args: argparse.Namespace) -> None:
    """Replace this process by the installer of Debian packages, with the given options."""
    os.execv(lifecycle.INSTALLER, [str(lifecycle.INSTALLER), *args.options])


def take_down(args: argparse.Namespace) -> None:
    """Stop and remove the cluster, then abandoned clusters."""
    lifecycle.take_down(args.root, args.keep_logs)
    lifecycle.remove_abandoned()


def print_status(args: argparse.Namespace) -> None:
    """Print the nodes and jobs of the cluster.

    Raises:
        RuntimeError: The cluster is not up, or not healthy.
    """
    plan = lifecycle.load_plan(args.root)
    found = lifecycle.find_problems(plan)
    for words in (["sinfo", "--Node", "--format=%12N %10P %10T %5c %8G %E"], ["squeue"]):
        subprocess.run(words, env=machines.daemon_environment(plan.root), timeout=30)
    if found:
        raise RuntimeError("not healthy: " + "; ".join(found))


def print_environment(args: argparse.Namespace) -> None:
    """Print the shell line that sets SLURM_CONF for the cluster.

    Raises:
        RuntimeError: The cluster is not up.
    """
    lifecycle.load_plan(args.root)
    print(lifecycle.export_line(args.root))


# --- faults, and commands on one node ---------------------------------------------------------


def load_plan_with_machine(args: argparse.Namespace) -> Plan:
    """Return the plan of the cluster that is up, after a check that it has the machine `args.name`.

    Raises:
        RuntimeError: The cluster is not up, or has no such machine.
    """
    plan = lifecycle.load_plan(args.root)
    if args.name not in plan.machines:
        raise RuntimeError(f"no node '{args.name}'; there are: {', '.join(plan.machines)}")
    return plan


def kill_node(args: argparse.Namespace) -> None:
    """Cut the machine's power: kill all of its processes at once."""
    machines.power_off(load_plan_with_machine(args), args.name)


def kill_slurmd(args: argparse.Namespace) -> None:
    """Kill the Slurm daemon of a machine, and wait until it has ended; the jobs there continue.

    On the machines `controller` and `database` this is slurmctld or slurmdbd.

    Raises:
        RuntimeError: The daemon is not running.
    """
    plan, name = load_plan_with_machine(args), machines.daemon_name(args.name)
    if not machines.kill_processes(namespace_file(plan.root, args.name), only=name):
        raise RuntimeError(f"{name} does not run on {args.name}")
    machines.wait_until(
        lambda: not machines.is_daemon_running(plan.root, args.name), f"{name} ends"
    )


def start_node(args: argparse.Namespace) -> None:
    """Boot a machine without power, or start its Slurm daemon again; wait until the daemon answers.

    If the daemon runs already, only a line is printed.
    """
    plan, root, name = load_plan_with_machine(args), args.root, args.name

    def is_gone() -> bool:
        return not machines.is_daemon_running(root, name)

    def answers() -> bool:
        if is_gone() or name != CONTROLLER:
            return not is_gone()
        return not lifecycle.is_controller_ending(root) and bool(lifecycle.node_states(root))

    with lifecycle.hold_lock(root):
        # after `scontrol shutdown` the old process needs a moment to end
        machines.wait_until(lambda: is_gone() or answers(), f"{name} answers or ends")
        if not is_gone():
            print(f"{name} is running")
        elif machines.init_process(root, name):
            words = machines.command_on_machine(
                root, name, machines.daemon_command(root, name), "/"
            )
            machines.spawn(root, f"boot.{name}.log", *words)
        else:
            machines.power_on(plan, name)
        machines.wait_until(answers, f"{name} answers")


def run_on_machine(args: argparse.Namespace) -> None:
    """Replace this process by a command on a machine, in the same working directory."""
    plan = load_plan_with_machine(args)
    if not args.command:
        raise RuntimeError("give a command to run")
    words = machines.command_on_machine(plan.root, args.name, args.command, os.getcwd())
    os.environ["SLURM_CONF"] = machines.daemon_environment(plan.root)["SLURM_CONF"]
    os.execvp(words[0], words)


# --- command line -----------------------------------------------------------------------------


def parse_root(text: str) -> Path:
    """Return the absolute path of the root folder from the value of --root.

    Raises:
        argparse.ArgumentTypeError: The path has characters that Slurm does not accept.
    """
    root = Path(text).resolve()
    if not re.fullmatch(r"[\w/.+-]+", str(root), re.ASCII):
        raise argparse.ArgumentTypeError(f"'{root}': Slurm reads only letters, digits and /._+-")
    return root


def parse_seconds(text: str) -> int:
    """Return a number of seconds from the value of an option.

    Raises:
        argparse.ArgumentTypeError: The text is no whole number from 0 to 99999.
    """
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 0 to 99999")
    return int(text)


def make_parser(default_root: Path, program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Args:
        default_root: The root folder of the cluster if neither --root nor the environment sets it.
        program: The name by which the program was called, for its usage and for advice.
    """
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--root",
        type=parse_root,
        default=os.environ.get("TFSCALING_CLUSTER_ROOT") or str(default_root),
        help="folder that holds all of the cluster (default: $TFSCALING_CLUSTER_ROOT or .cluster)",
    )
    top = argparse.ArgumentParser(
        prog=Path(program).name, description="A real Slurm cluster, right here."
    )
    top.set_defaults(down_command=lambda root: down_command(root, default_root, program))
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Command, text: str, node: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, parents=[common], help=text, description=text)
        sub.set_defaults(function=function)
        if node:
            sub.add_argument("name", metavar="NAME", help="cpu1, gpu2, …, controller, database")
        return sub

    add_up = add("up", bring_up, "start the cluster; returns when all nodes are idle")
    add_up.add_argument(
        "--nodes", type=int, help=f"nodes, split over partitions cpu and gpu ({DEFAULT_NODES})"
    )
    add_up.add_argument("--gpus-per-node", type=int, default=4, help="in partition gpu (4)")
    add_up.add_argument("--cpus-per-node", type=int, default=16, help="declared CPUs (16)")
    add_up.add_argument(
        "--partition",
        action="append",
        metavar="NAME:NODES[:gpus=G][:cpus=C]",
        help="a partition with nodes NAME1…; repeat it; instead of --nodes",
    )
    add_up.add_argument(
        "--accounting", action="store_true", help="slurmdbd with a database; limits are enforced"
    )
    add_up.add_argument(
        "--power-saving", action="store_true", help="nodes boot when a job wants them, as on clouds"
    )
    add_up.add_argument(
        "--boot-delay",
        type=parse_seconds,
        default=10,
        help="of a node that is powered up, in s (10)",
    )
    add_up.add_argument(
        "--idle-time",
        type=parse_seconds,
        default=300,
        help="until a node is powered down, in s (300)",
    )
    add_up.add_argument(
        "--memory-limits", action="store_true", help="jobs get no more memory than they ask for"
    )
    add_up.add_argument(
        "--urgent", action="store_true", help="a partition of all nodes that preempts the others"
    )
    add_up.add_argument(
        "--owner",
        type=int,
        metavar="PID",
        help="the next up or down of any cluster removes this one if that process has ended",
    )
    add_install = add("install", install_packages, "install Debian packages that are missing")
    for option in ("--check", "--accounting", "--late-files", "--containers", "--pages"):
        add_install.add_argument(
            option, dest="options", action="append_const", const=option, default=[]
        )
    add("down", take_down, "stop and remove it all").add_argument(
        "--keep-logs", action="store_true", help="leave the logs in the root folder"
    )
    add("status", print_status, "nodes and jobs; fails unless all is healthy")
    add("env", print_environment, 'shell line for eval "$(cluster env)"')
    add("kill-node", kill_node, "power cut: all its processes, and no goodbye", node=True)
    add("start-node", start_node, "boot a killed node, or restart its daemon", node=True)
    add("kill-slurmd", kill_slurmd, "SIGKILL the daemon; its jobs go on", node=True)
    add("exec", run_on_machine, "run a command on a node", node=True).add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND..."
    )
    return top


def down_command(root: Path, default_root: Path, program: str) -> str:
    """Return the command line that removes the cluster at `root`, for messages to the user.

    Args:
        root: The root folder of the cluster.
        default_root: The folder for which the user needs no --root.
        program: The name by which the program was called.
    """
    return shlex.join([program, "down", *([] if root == default_root else ["--root", str(root)])])


def main(default_root: Path | None = None, program: str = "virtual-slurm-cluster") -> int:
    """Run the command in `sys.argv`, as root by sudo if necessary; return the exit status.

    Args:
        default_root: The root folder of the cluster if neither --root nor the environment sets it;
            None: `.cluster` in the working directory.
        program: The name by which the program was called, for its usage and for advice.
    """
    args = make_parser(default_root or Path.cwd() / ".cluster", program).parse_args()
    if os.geteuid() != 0 and args.function is not print_environment:
        # namespaces need root; the root folder is passed on, for sudo clears the environment
        variable = f"TFSCALING_CLUSTER_ROOT={args.root}"
        if shutil.which("sudo") is None:
            print("cluster: error: run it as root (there is no sudo)", file=sys.stderr)
            return 1
        os.execvp("sudo", ["sudo", "env", variable, sys.executable, *sys.argv])
    try:
        args.function(args)
    except KeyboardInterrupt:
        return 130
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"cluster: error: {error}", file=sys.stderr)
        return 1
    return 0
