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


def command(*words: str | Path, text: str = "") -> str:
    """Run one program, `text` on its stdin; raises RuntimeError with what it said."""
    done = subprocess.run(
        words, input=text, text=True, capture_output=True, env={"PATH": SYSTEM_PATH}
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise RuntimeError(f"{shlex.join(map(str, words))}: {said or done.returncode}")
    return done.stdout


def host_link(root: Path) -> str:
    return "tfs" + hashlib.sha256(str(root).encode()).hexdigest()[:10]


def host_networks() -> list[IPv4Network]:
    """Return the IPv4 networks this machine has a route to, default routes aside."""
    routes = json.loads(command("ip", "-json", "-4", "route", "show", "table", "all"))
    networks = (IPv4Network(r["dst"], strict=False) for r in routes if r["dst"] != "default")
    return [network for network in networks if network.prefixlen >= 8]  # VPNs halve the default


def namespace(root: Path, machine: str) -> Path:
    return root / "net" / machine


def namespaces(root: Path) -> list[Path]:
    """Return the namespaces that exist; after a reboot, a plain file in ROOT/net may remain."""
    kernel = os.stat("/proc/self/ns/net").st_dev
    files = sorted((root / "net").glob("*"))
    return [file for file in files if file.stat().st_dev == kernel]


def mounted_roots() -> list[Path]:
    """Return the root folders of all clusters on this machine, by their mounted namespaces."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split(" ")
        file = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), place))
        if kind == "nsfs" and file.parts[-2:] == ("net", SWITCH):
            found.append(file.parents[1])
    return [root for root in found if Path("/sys/class/net", host_link(root)).exists()]


def create_network(plan: Plan) -> None:
    """Make all namespaces, plug every machine and the host into the switch."""
    for machine in (SWITCH, *plan.machines):
        file = namespace(plan.root, machine)
        file.touch()
        command("unshare", f"--net={file}", "true")
    link, length = host_link(plan.root), plan.subnet.prefixlen
    batch = ["link set lo up", "link add bridge type bridge", "link set bridge up"]
    for port, machine in enumerate(plan.machines):
        batch += [
            f"link add port{port} type veth peer name eth0 netns {namespace(plan.root, machine)}",
            f"link set port{port} master bridge up",
        ]
    batch += [f"link add host type veth peer name {link} netns {os.getpid()}"]
    batch += ["link set host master bridge up"]
    switch_command(plan.root, "ip", "-batch", "-", text="\n".join(batch) + "\n")
    host_batch = f"address add {plan.host_address}/{length} dev {link}\nlink set {link} up\n"
    command("ip", "-batch", "-", text=host_batch)


def switch_command(root: Path, *words: str, text: str = "") -> str:
    return command("nsenter", f"--net={namespace(root, SWITCH)}", *words, text=text)


def plug(plan: Plan, machine: str, state: str) -> None:
    """Set a machine's port at the switch `up` or `down`."""
    port = list(plan.machines).index(machine)
    switch_command(plan.root, "ip", "link", "set", f"port{port}", state)
