#!/usr/bin/env python3
"""Write the configuration that compares the frameworks' trainings of one network.

study.py NETWORK_FILE [--steps N] [--repeats N] fills in studies/peers/config.yaml.j2 and prints it.
The study is peers-NAME for NAME.py. Recipes in bfloat16 are included only if this processor
multiplies bfloat16: others convert it, and take longer than in float32.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import jinja2

sys.path.append(str(Path(__file__).resolve().parents[1]))

from peers import network_file

TEMPLATE = Path(__file__).resolve().parents[2] / "studies/peers/config.yaml.j2"
EPOCHS = 2
STEPS, REPEATS = 200, 6
#: Recipe → what floor.py multiplies, for network files with `products`.
PRODUCTS = {"floor": "layers", "floor_update": "update", "peak": "one"}
#: Flags of /proc/cpuinfo: x86 with AMX or AVX-512, and Arm.
BFLOAT16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}


def multiplied_precisions(cpu_flags: Iterable[str]) -> tuple[str, ...]:
    """Return the precisions in which a processor with these flags multiplies."""
    return ("float32", "bfloat16") if BFLOAT16_FLAGS & {*cpu_flags} else ("float32",)


def render(path: str, precisions: Sequence[str], steps: int = STEPS, repeats: int = REPEATS) -> str:
    """Return the study of a network as YAML.

    Args:
        path: The network file, relative to the project folder.
        precisions: Precisions of the trainings.
        steps: Steps of each training.
        repeats: Runs of each configuration.

    Raises:
        network_file.NetworkFileError: The file is not in the folder, or lacks a name.
    """
    network = network_file.load(path)
    module = Path(path).with_suffix("").parts
    if Path(path).is_absolute() or not all(part.isidentifier() for part in module):
        raise network_file.NetworkFileError(
            f"{path}: expected a path of Python names below this folder, such as own/lstm.py"
        )
    template = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(TEMPLATE.read_text())
    return template.render(
        name=module[-1],
        path=path,
        module=".".join(module),
        batch_size=network.BATCH_SIZE,
        steps=steps,
        epochs=EPOCHS,
        repeats=repeats,
        precisions=precisions,
        products=PRODUCTS if hasattr(network, "products") else {},
        cpus=len(os.sched_getaffinity(0)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", help="a network file, see benchmarks/peers/network_file.py")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each training")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each configuration")
    args = parser.parse_args()
    precisions = multiplied_precisions(Path("/proc/cpuinfo").read_text().split())
    try:
        print(render(args.network, precisions, args.steps, args.repeats))
    except network_file.NetworkFileError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
