#!/usr/bin/env python3
"""Compare the all-reduce by MPI with iperf3 over a link of known rate between two nodes.

usage: all_reduce_over_link.py [--rate RATE] [--rounds N], as root, after
provision/virtual/install and `apt-get install iperf3`.

Both nodes belong to a virtual Slurm cluster; `tc` limits what each sends to RATE. Over two nodes
a rank sends, and receives, as many bytes as the tensor has. Prints bytes per second of the
all-reduce (`all_reduce.py`, median of the slower rank) and of an iperf3 transfer of as many bytes,
median of --rounds transfers, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import all_reduce

REPOSITORY = Path(__file__).resolve().parents[1]
CLUSTER = REPOSITORY / "provision/virtual/cluster"
NODES = ("link1", "link2")
#: Bytes that may leave at once, and how long others wait in the queue of the link.
SHAPE = "burst 256kb latency 1s"
WAIT_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", default="1gbit", help="rate of the link in the notation of tc")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfscaling-link-") as folder:
        root = Path(folder) / "cluster"
        partition = f"link:{len(NODES)}:cpus=1"
        try:
            subprocess.run([CLUSTER, "up", "--root", root, "--partition", partition], check=True)
            os.environ["SLURM_CONF"] = str(root / "etc/slurm.conf")
            for node in NODES:
                shape = f"tc qdisc replace dev eth0 root tbf rate {args.rate} {SHAPE}"
                run_on_node(root, node, *shape.split())
            print_table(args.rate, iperf_bytes_per_s(root, args.rounds), times_ms(args.rounds))
        finally:
            subprocess.run([CLUSTER, "down", "--root", root], check=True)


def run_on_node(root: Path, node: str, *words: str) -> str:
    """Run a command on a node of the cluster, and return its output."""
    command: list[str | Path] = [CLUSTER, "exec", "--root", root, node, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def iperf_bytes_per_s(root: Path, rounds: int) -> dict[int, float]:
    """Return size of a transfer in bytes → median rate of iperf3 between the nodes."""
    server = subprocess.Popen(
        [CLUSTER, "exec", "--root", root, NODES[0], "iperf3", "--server"],
        stdout=subprocess.DEVNULL,
    )
    try:
        time.sleep(WAIT_S)
        found = {}
        for size in sizes():
            words = ["iperf3", "--client", NODES[0], "--bytes", str(size), "--json"]
            ended = [json.loads(run_on_node(root, NODES[1], *words))["end"] for _ in range(rounds)]
            rates = [each["sum_received"]["bits_per_second"] / 8 for each in ended]
            found[size] = median(rates)
        return found
    finally:
        server.kill()
        server.wait()


def sizes() -> list[int]:
    """Return the sizes for which a rate means something, in bytes."""
    return [size for size in all_reduce.SIZES_BYTES if size >= all_reduce.COPIED_MIN_BYTES]


def times_ms(rounds: int) -> dict[int, float]:
    """Return size of a tensor in bytes → milliseconds of its all-reduce by MPI over both nodes."""
    program = [sys.executable, str(REPOSITORY / "benchmarks/all_reduce.py"), "--rank"]
    options = [f"--workers={len(NODES)}", f"--rounds={rounds}"]
    srun = ["srun", f"--nodes={len(NODES)}", "--mpi=pmi2", "--export=ALL,TF_CPP_MIN_LOG_LEVEL=3"]
    done = subprocess.run(
        [*srun, *program, *options], check=True, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    print(done.stdout)
    cells = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    rows = {row[1]: float(row[3]) for row in cells if len(row) > 3 and "bytes" in row[1]}
    return {size: rows[f"all-reduce, {size:,} bytes"] for size in sizes()}


def print_table(rate: str, iperf: dict[int, float], mpi_ms: dict[int, float]) -> None:
    """Print both rates for each size."""
    print(f"link of {rate}\n")
    print("| bytes | all-reduce, ms | all-reduce, MB/s | iperf3, MB/s | ratio |")
    print("|--:|--:|--:|--:|--:|")
    for size, duration_ms in mpi_ms.items():
        own, other = size / duration_ms / 1e3, iperf[size] / 1e6
        print(f"| {size:,} | {duration_ms:.2f} | {own:.1f} | {other:.1f} | {own / other:.2f} |")


if __name__ == "__main__":
    main()
