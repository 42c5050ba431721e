#!/usr/bin/env python3
"""Print platform entries with the prices of a cloud provider today, to check and to paste.

The prices are from the catalogues of the package gpuhunt, which are downloaded. No file is changed.

    uv run --no-project --with gpuhunt provision/clouds/propose_prices.py verda --gpu H100
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from typing import Any


def main() -> None:
    """Print platform entries as YAML.

    Exit with a message if gpuhunt is not installed, or if it has no catalogue or no such offer.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("provider", help="such as aws, gcp, azure, nebius, verda")
    parser.add_argument("--gpu", help="model as gpuhunt names it, such as V100; default: no GPU")
    parser.add_argument("--gpus", type=int, help="GPUs of a node")
    parser.add_argument("--location", default="", help="begin of the region's name")
    parser.add_argument("--spot", action="store_true", help="prices of spot instances")
    parser.add_argument("--nodes-max", type=int, default=1, help="how many nodes you can have")
    args = parser.parse_args()
    try:
        import gpuhunt
    except ImportError:
        sys.exit("gpuhunt is not installed: uv run --no-project --with gpuhunt …, or pip install")
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # other providers' catalogues
    catalogue = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
    try:
        catalogue.load()
    except gpuhunt.GPUHuntError as error:
        sys.exit(f"no catalogue of prices: {error}")
    if args.provider not in catalogue.catalog:
        known = ", ".join(sorted(catalogue.catalog))
        sys.exit(f"provider {args.provider!r}: not allowed; allowed: {known}")
    counts = {"max_gpu_count": 0} if args.gpu is None else {"gpu_name": args.gpu}
    if args.gpus is not None:
        counts |= {"min_gpu_count": args.gpus, "max_gpu_count": args.gpus}
    offers = catalogue.query(provider=args.provider, spot=args.spot, **counts)
    offers = [each for each in offers if each.location.startswith(args.location)]
    if not offers:
        sys.exit(f"{args.provider} has no such offer; leave out --gpu, --gpus or --location")
    version = catalogue.catalog[args.provider].version
    print(describe_platforms(offers, version, args.nodes_max), end="")


def describe_platforms(offers: Iterable[Any], version: str, nodes_max: int) -> str:
    """Return the entries of `platforms` as YAML: one for each instance type and location.

    Args:
        offers: Items of gpuhunt's catalogue; of equal names, the cheapest is used.
        version: Version of the catalogue, which begins with its date.
        nodes_max: Value of the key `nodes_max` in each entry.
    """
    source = f"gpuhunt {metadata.version('gpuhunt')}, catalogue {version}"
    date = catalogue_date(version)
    cheapest: dict[str, Any] = {}
    for offer in sorted(offers, key=lambda each: each.price):
        cheapest.setdefault(platform_name(offer), offer)
    lines = [
        f"# Proposed from {source}. Nothing was changed: check the prices with your provider,",
        "# add your partition, then paste the entries that you use.",
        "platforms:",
    ]
    for name, offer in cheapest.items():
        kind = "spot" if offer.spot else "on demand"
        values = {
            "title": f"{offer.provider} {offer.instance_name}",
            "cloud": offer.provider,
            "launcher": "srun",
            "instance_type": offer.instance_name,
            **({"gpu_type": offer.gpu_name.lower()} if offer.gpu_count else {}),
            "nodes_max": nodes_max,
            "cpus_per_node": offer.cpu,
            "gpus_per_node_max": offer.gpu_count,
            "usd_per_node_hour": offer.price,
            "price_date": date,
            "price_source": f"{source}, {kind}, {offer.location}",
        }
        lines += [f"  {name}:", *(f"    {key}: {json.dumps(each)}" for key, each in values.items())]
    return "\n".join([*lines, ""])


def platform_name(offer: Any) -> str:
    """Return the name for the platform of an offer, such as `verda-1h100.80s.30v-fin-01`."""
    words = [offer.provider, offer.instance_name, offer.location, *(["spot"] * offer.spot)]
    return re.sub(r"[^a-z0-9._-]+", "-", "-".join(words).lower())[:100]


def catalogue_date(version: str) -> str:
    """Return the date with which the version of a catalogue begins, as YYYY-MM-DD.

    If it begins with no date, return today's date.
    """
    found = re.match(r"(\d{4})(\d{2})(\d{2})", version)
    return "-".join(found.groups()) if found else datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    main()
