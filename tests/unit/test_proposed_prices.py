"""Platform entries with prices, by gpuhunt itself and a catalogue of recorded offers."""

from __future__ import annotations

import csv
import io
import os
import random
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from builders import raw_config
from project import REPOSITORY
from tfscaling.study import config_validation
from tools_of_tests import program

pytestmark = pytest.mark.full

PROGRAM = REPOSITORY / "provision/clouds/propose_prices.py"
VERSION = "20261128-3"
#: An answer of DataCrunch, now Verda, that github.com/dstackai/gpuhunt has in the test of its
#: provider: price on demand and as a spot instance. The CPU instance is in the same file without
#: its price, which is made up.
H100 = {
    "instance_name": "1H100.80S.30V",
    "location": "FIN-01",
    "price": "3.95",
    "cpu": "30",
    "memory": "120",
    "gpu_count": "1",
    "gpu_name": "H100",
    "gpu_memory": "80",
    "spot": "False",
    "disk_size": "",
    "gpu_vendor": "nvidia",
    "flags": "",
    "cpu_arch": "x86",
    "provider_data": "{}",
}
SPOT = H100 | {"price": "1.70", "spot": "True"}
NO_GPU = {"gpu_count": "0", "gpu_name": "", "gpu_memory": "", "gpu_vendor": ""}
CPU = H100 | NO_GPU | {"instance_name": "CPU.4V.16G", "cpu": "4", "memory": "16", "price": "0.03"}


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """The catalogue of one provider, as gpuhunt publishes it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, H100)
    writer.writeheader()
    iceland = H100 | {"location": "ICE-01", "price": "4.10"}
    writer.writerows(random.sample([H100, SPOT, CPU, iceland], 4))
    folder = tmp_path / "catalogues/verda"
    (folder / VERSION).mkdir(parents=True)
    (folder / "version").write_text(VERSION + "\n")
    with zipfile.ZipFile(folder / VERSION / "catalog.zip", "w") as archive:
        archive.writestr("verda.csv", text.getvalue())
    return folder.parent


def propose(catalogue: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "GPUHUNT_CATALOG_URL": catalogue.as_uri()}
    command = [str(program("gpuhunt", "python")), str(PROGRAM), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpu", "H100"], {"fin-01": 3.95, "ice-01": 4.10}),
        (["--gpu", "H100", "--location", "FIN"], {"fin-01": 3.95}),
        (["--gpu", "H100", "--spot"], {"fin-01-spot": 1.70}),
        ([], {"fin-01": 0.03}),
    ],
)
def test_entries_have_the_catalogues_prices_date_and_source(
    catalogue: Path, words: list[str], expected: dict[str, float]
) -> None:
    nodes = random.randint(1, 64)
    done = propose(catalogue, "verda", *words, "--nodes-max", str(nodes))
    assert done.returncode == 0, done.stderr
    entries = yaml.safe_load(done.stdout)["platforms"]
    names = {
        name.partition("g-" if not words else "30v-")[2]: each for name, each in entries.items()
    }
    assert {name: each["usd_per_node_hour"] for name, each in names.items()} == expected
    config = config_validation.convert_to_types(raw_config((("platforms",), entries)))
    for platform in config.platforms.values():
        assert (platform.price_date, platform.nodes_max) == ("2026-11-28", nodes)
        assert VERSION in (platform.price_source or "")
        has_gpu = bool(words)
        assert platform.gpus_per_node_max == has_gpu
        assert platform.gpu_type == ("h100" if has_gpu else None)
        assert platform.cpus_per_node == (30 if has_gpu else 4)


@pytest.mark.parametrize("words", [["aws"], ["verda", "--gpu", "V100"], ["verda", "--gpus", "8"]])
def test_what_the_catalogue_does_not_have_is_an_error(catalogue: Path, words: list[str]) -> None:
    done = propose(catalogue, *words)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_without_a_catalogue_there_is_no_proposal(tmp_path: Path) -> None:
    done = propose(tmp_path, "verda")
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_without_gpuhunt_the_command_that_installs_it_is_named() -> None:
    done = subprocess.run([PROGRAM, "verda"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "--with gpuhunt" in done.stderr
