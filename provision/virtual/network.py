"""The network: namespaces held by files in ROOT/net, and the cables between them.

One namespace, `switch`, holds a bridge; every machine is a namespace of its own with a cable
(veth) to it, and the host has one cable to it. The bridge is not on the host, so that firewall
rules of the host (Docker's, for one) do not apply between the nodes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

from .plan import Plan

SWITCH = "switch"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_command(*words: str | Path, text: str = "") -> str:
    """Run a program and return its output.

    Args:
        *words: The command line.
        text: Text for its standard input.

    Raises:
        RuntimeError: The program failed; the message has its error.
    """
    done = subprocess.run(
        words, input=text, text=True, capture_output=True, env={"PATH": SYSTEM_PATH}
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise RuntimeError(f"{shlex.join(map(str, words))}: {said or done.returncode}")
    return done.stdout


def host_link_name(root: Path) -> str:
    """Return the name of the host's network interface to the switch of the cluster at `root`."""
    return "tfs" + hashlib.sha256(str(root).encode()).hexdigest()[:10]


def list_host_networks() -> list[IPv4Network]:
    """Return the IPv4 networks to which this machine has a route, without default routes."""
    routes = json.loads(run_command("ip", "-json", "-4", "route", "show", "table", "all"))
    networks = (IPv4Network(r["dst"], strict=False) for r in routes if r["dst"] != "default")
    return [network for network in networks if network.prefixlen >= 8]  # VPNs halve the default


def namespace_file(root: Path, machine: str) -> Path:
    """Return the path of the file that keeps a machine's network namespace, or the switch's."""
    return root / "net" / machine


def list_namespaces(root: Path) -> list[Path]:
    """Return the files of the network namespaces that exist for the cluster at `root`.

    After a reboot, plain files without a namespace may remain; they are left out.
    """
    kernel = os.stat("/proc/self/ns/net").st_dev
    files = sorted((root / "net").glob("*"))
    return [file for file in files if file.stat().st_dev == kernel]


def list_mounted_roots() -> list[Path]:
    """Return the root folders of the clusters on this machine, from its mounted namespaces."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split(" ")
        file = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), place))
        if kind == "nsfs" and file.parts[-2:] == ("net", SWITCH):
            found.append(file.parents[1])
    return [root for root in found if Path("/sys/class/net", host_link_name(root)).exists()]


def create_network(plan: Plan) -> None:
    """Make the namespaces of the cluster, and connect each machine and the host to the switch."""
    for machine in (SWITCH, *plan.machines):
        file = namespace_file(plan.root, machine)
        file.touch()
        run_command("unshare", f"--net={file}", "true")
    link, length = host_link_name(plan.root), plan.subnet.prefixlen
    batch = ["link set lo up", "link add bridge type bridge", "link set bridge up"]
    for port, machine in enumerate(plan.machines):
        file = namespace_file(plan.root, machine)
        batch += [
            f"link add port{port} type veth peer name eth0 netns {file}",
            f"link set port{port} master bridge up",
        ]
    batch += [f"link add host type veth peer name {link} netns {os.getpid()}"]
    batch += ["link set host master bridge up"]
    run_in_switch(plan.root, "ip", "-batch", "-", text="\n".join(batch) + "\n")
    host_batch = f"address add {plan.host_address}/{length} dev {link}\nlink set {link} up\n"
    run_command("ip", "-batch", "-", text=host_batch)


def run_in_switch(root: Path, *words: str, text: str = "") -> str:
    """Run a program in the namespace of the switch and return its output.

    Args:
        root: The root folder of the cluster.
        *words: The command line.
        text: Text for its standard input.
    """
    return run_command("nsenter", f"--net={namespace_file(root, SWITCH)}", *words, text=text)


def set_port(plan: Plan, machine: str, state: str) -> None:
    """Connect a machine to the switch, or disconnect it.

    Args:
        plan: The plan of the cluster.
        machine: Name of the machine.
        state: State of its port at the switch: "up" or "down".
    """
    port = list(plan.machines).index(machine)
    run_in_switch(plan.root, "ip", "link", "set", f"port{port}", state)
