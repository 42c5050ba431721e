#!/usr/bin/env python3
"""Check the estimated exchange of a program: PyTorch DDP between two network namespaces.

usage: exchange.py [--repeats N], as root, after `make .venv-torch`. `tc` shapes the link between
the namespaces: by `netem delay`, or by the rate of `tbf` where the kernel has no netem. The truth
is measured in the same steps: from DDP's first all-reduce of a step until its last one has ended.
The workflow gets it as the metric `exchange_ms`, and does not use it for its estimate.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
NAMESPACE, ADDRESS = "tfscaling-exchange-", "10.213.77."
STUDY, STEPS, BATCH, UNITS = "exchange", 30, 8, 512
#: Name of a shape → arguments of `tc qdisc`, for the end of the link in each namespace.
NETEM = {"netem-10ms": "netem delay 10ms", "netem-40ms": "netem delay 40ms"}
TBF = {
    "tbf-200mbit": "tbf rate 200mbit burst 64kb latency 2s",
    "tbf-50mbit": "tbf rate 50mbit burst 64kb latency 2s",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--rank", metavar="SHAPE", help=argparse.SUPPRESS)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train()
    elif args.rank:
        enter_namespace(args.rank)
    else:
        check(args.repeats)


def run(words: str, check: bool = True) -> int:
    """Run a command of words without spaces; return its exit status."""
    return subprocess.run(words.split(), check=check).returncode


def check(repeats: int) -> None:
    """Make the network, run the sweep, and print estimate and truth."""
    try:
        for rank in (0, 1):
            run(f"ip netns add {NAMESPACE}{rank}")
        first, second = (f"{NAMESPACE}{rank}" for rank in (0, 1))
        run(f"ip -n {first} link add eth0 type veth peer name eth0 netns {second}")
        for rank in (0, 1):
            run(f"ip -n {NAMESPACE}{rank} address add {ADDRESS}{rank + 1}/24 dev eth0")
            for device in ("lo", "eth0"):
                run(f"ip -n {NAMESPACE}{rank} link set {device} up")
        has_netem = run(f"tc -n {first} qdisc replace dev eth0 root netem", check=False) == 0
        sweep(NETEM if has_netem else TBF, repeats)
    finally:
        for rank in (0, 1):
            run(f"ip netns delete {NAMESPACE}{rank}", check=False)
    print_table()


def sweep(shapes: dict[str, str], repeats: int) -> None:
    """Run the sweep; runs that have a record are not repeated."""
    import yaml

    words = ["python", "benchmarks/exchange.py", "--rank", "{parameters.shape}"]
    recipe = {
        "program": words,
        "environment": ".venv-torch",
        "observe": "events",
        "per_replica_batch_size": BATCH,
        "epochs": 1,
        "parameters": {"shape": [*shapes]},
        "quality": {"metric": "exchange_ms", "direction": "lower", "unit": "ms"},
    }
    here = {"launcher": "local", "nodes_max": 2, "cpus_per_node": 1}
    block = {"platform": "here", "strategy": "own", "recipe": "ddp", "nodes": [1, 2]}
    config = {
        "study": STUDY,
        "platforms": {"here": here},
        "recipes": {"ddp": recipe},
        "grid": [{**block, "repeats": repeats}],
    }
    file = REPOSITORY / f"results/{STUDY}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(config))
    snakemake = [sys.executable, "-m", "snakemake", "--profile", "profiles/local"]
    subprocess.run([*snakemake, "--configfile", str(file)], cwd=REPOSITORY, check=True)


def print_table() -> None:
    """Print the medians of estimate and truth for each shape, in milliseconds."""
    import pandas as pd

    folder = REPOSITORY / f"results/{STUDY}"
    found = pd.read_csv(folder / "details/conclusions/attribution.csv")
    rows = found[found["communication_share"].notna()].merge(
        pd.read_csv(folder / "comparison.csv")[["recipe", "nodes", "quality"]]
    )
    print("| link | runs | step | exchange, estimated | measured inside | error |")
    print("|---|--:|--:|--:|--:|--:|")
    for row in rows.to_dict("records"):
        step_ms = 1000 * row["step_time_s"]
        estimate_ms = step_ms * row["communication_share"]
        error = estimate_ms / row["quality"] - 1
        shape = row["recipe"].partition("shape=")[2]
        print(
            f"| {shape} | {row['runs']} | {step_ms:.1f} ms | {estimate_ms:.1f} ms "
            f"| {row['quality']:.1f} ms | {error:+.1%} |"
        )


def enter_namespace(shape: str) -> None:
    """Shape this rank's end of the link, and continue in its namespace."""
    namespace = NAMESPACE + os.environ["RANK"]
    run(f"tc -n {namespace} qdisc replace dev eth0 root {(NETEM | TBF)[shape]}")
    os.environ |= {"MASTER_ADDR": f"{ADDRESS}1", "GLOO_SOCKET_IFNAME": "eth0"}
    words = ["ip", "netns", "exec", namespace, sys.executable, __file__, "--train"]
    os.execvp(words[0], words)


def train() -> None:
    """Train a small network by DistributedDataParallel; report steps and measured exchange."""
    import statistics

    import torch
    import torch.distributed as dist

    import observe

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(UNITS, UNITS))
    spans_s: list[list[float]] = []  # begin and end of the exchange in each step

    def all_reduce(bucket: Any) -> Any:
        spans_s[-1] = spans_s[-1] or [time.perf_counter()]
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def divide(reduced: Any) -> Any:
            spans_s[-1][1:] = [time.perf_counter()]
            return reduced.value()[0] / dist.get_world_size()

        return future.then(divide)

    # DDP rejects a hook with other annotations than its own
    network.register_comm_hook(None, lambda _, bucket: all_reduce(bucket))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    examples = torch.randn(BATCH, UNITS)
    for _ in observe.steps(range(STEPS), examples=BATCH):
        spans_s.append([])
        optimizer.zero_grad()
        loss = network(examples).square().mean()
        loss.backward()
        optimizer.step()
    # DDP has other buckets in its first steps
    exchange_s = statistics.median(end - begin for begin, end in spans_s[2:])
    observe.epoch(loss=loss, exchange_ms=1000 * exchange_s)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
