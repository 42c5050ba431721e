"""Energy counters of processors and GPUs: wraps, resets, shared nodes, what cannot be read."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tfscaling.launch import resource_use
from tfscaling.launch.resource_use import ProcessorMeter, RankMeter, gpu_meters_of_rank

#: What nvidia-smi and NVML answered on an NVIDIA H200, driver 580.159.04, on 2026-11-26.
H200 = json.loads((Path(__file__).parents[3] / "studies/gpu/check.json").read_text())
UUID = H200["facts"]["nvml"]["uuids"][0]


class NVMLError(Exception):
    """As pynvml's."""


class Nvml:
    """NVML of a node with one H200: its counter of energy, in mJ, goes through these values."""

    NVMLError = NVMLError

    def __init__(self, *energies_mj: int | None, busy: tuple[int, ...] = (99,)) -> None:
        self._energies_mj, self._busy = list(energies_mj), list(busy)

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index:
            raise NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != UUID:
            raise NVMLError("Not Found")
        return 0

    def nvmlDeviceGetUUID(self, _: int) -> str:
        return str(UUID)

    def nvmlDeviceGetTotalEnergyConsumption(self, _: int) -> int:
        # the last value stays
        values = self._energies_mj
        if (energy_mj := values.pop(0) if values[1:] else values[0]) is None:
            raise NVMLError("Not Supported")
        return energy_mj

    def nvmlDeviceGetUtilizationRates(self, _: int) -> Any:
        return SimpleNamespace(gpu=self._busy.pop(0))

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Any:
        return SimpleNamespace(used=2_375_942_144)


def zone(powercap: Path, name: str, called: str, energy_uj: int, wraps_at: int = 1000) -> Path:
    folder = powercap / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(called + "\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
    return folder


def test_processors_and_memory_count_and_cores_do_not(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0, wraps_at=10**9)
    zone(tmp_path, "intel-rapl:0:0", "core", 0, wraps_at=10**9)
    zone(tmp_path, "intel-rapl:0:1", "dram", 0, wraps_at=10**9)
    zone(tmp_path, "intel-rapl:1", "psys", 0, wraps_at=10**9)
    processors = ProcessorMeter({}, tmp_path)
    zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 4_000_000)
    zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    zone(tmp_path, "intel-rapl:1", "psys", 9_000_000)
    processors.update()
    assert (processors.energy_j, processors.unknown) == (6.0, "")


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 900)
    processors = ProcessorMeter({}, tmp_path)
    for energy_uj in (1000, 99, 600):
        zone(tmp_path, "intel-rapl:0", "package-0", energy_uj)
        processors.update()
    # 100 to the end, 100 to 99 again, 501
    assert processors.energy_j == pytest.approx(701e-6)


def test_a_job_on_a_part_of_a_node_has_no_processor_energy(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    online = os.cpu_count() or 1
    shared = ProcessorMeter({"SLURM_CPUS_ON_NODE": str(online - 1)}, tmp_path)
    assert shared.energy_j is None and "exclusive" in shared.unknown
    assert ProcessorMeter({"SLURM_CPUS_ON_NODE": str(online)}, tmp_path).energy_j == 0.0


def test_counters_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    assert ProcessorMeter({}, tmp_path).energy_j is None
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0) / "energy_uj"
    counter.unlink()
    counter.mkdir()  # as for a user without the permission
    unknown = ProcessorMeter({}, tmp_path)
    assert unknown.energy_j is None and str(counter) in unknown.unknown


@pytest.mark.parametrize("fault", ["nowhere", "no name", "no permission", "garbled", "no range"])
def test_a_masked_counter_makes_the_energy_unknown_and_ends_no_rank(
    tmp_path: Path, fault: str
) -> None:
    """As containers and hardened kernels show them."""
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    other = tmp_path / f"intel-rapl:{random.randint(1, 9)}"
    if fault == "nowhere":
        other.symlink_to(tmp_path / "masked")
    else:
        folder = zone(tmp_path, other.name, "package-1", 0)
        file = folder / ("max_energy_range_uj" if fault == "no range" else "name")
        if fault == "garbled":
            file.write_bytes(b"\xff\xfe")
        else:
            file.unlink()
        if fault == "no permission":
            file.mkdir()
    unknown = ProcessorMeter({}, tmp_path)
    unknown.update()
    assert unknown.energy_j is None and str(other) in unknown.unknown


@pytest.mark.parametrize("visible", ["0", UUID, None])
def test_a_gpus_energy_is_the_difference_of_its_counter(visible: str | None) -> None:
    measured = H200["energy"]["products"]["counter_j"]
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    nvml = Nvml(1_000_000, 1_000_000 + round(1000 * measured), busy=(99, 0))
    (gpu,), why = gpu_meters_of_rank(environ, nvml)
    gpu.sample()
    gpu.sample()
    used = gpu.end()
    assert (used.uuid, used.energy_j, used.busy_share) == (UUID, measured, 0.495)
    assert (used.memory_gb, why, gpu.unknown) == (2.375942144, "", "")


@pytest.mark.parametrize(
    ("energies_mj", "why"),
    [
        ((5000, 4000), "reset"),
        ((None, None), "Not Supported"),
        ((5000, 6000, 100, 9000), "reset"),  # it has outgrown its start since
        ((5000, 6000, 100, 4000), "reset"),
    ],
)
def test_a_counter_that_is_reset_or_missing_is_no_energy(
    energies_mj: tuple[int | None, ...], why: str
) -> None:
    (idle,), _ = gpu_meters_of_rank({}, Nvml(5000, 5000))
    assert idle.end().energy_j == 0.0
    (gpu,), _ = gpu_meters_of_rank({}, Nvml(*energies_mj, busy=(1, 1, 1)))
    for _ in energies_mj[2:]:
        gpu.sample()
    assert gpu.end().energy_j is None
    assert why in gpu.unknown and UUID in gpu.unknown


def test_a_driver_that_hangs_does_not_hold_a_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(_: object) -> Any:
        released.wait()
        return [], ""

    monkeypatch.setattr(resource_use, "_ANSWER_S", 0.01)
    monkeypatch.setattr(resource_use, "gpu_meters_of_rank", hang)
    used = RankMeter({}, on_gpus=True).end()
    released.set()
    assert used.gpus == () and any("NVML" in text for text in used.unknown)


def test_the_meter_takes_the_cpu_time_of_the_work_and_tells_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_use, "INTERVAL_S", 0.01)
    monkeypatch.setattr(ProcessorMeter.__init__, "__defaults__", (tmp_path,))
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0, wraps_at=10**9)
    meter = RankMeter({}, on_gpus=False)
    until_s = time.process_time() + 0.1
    while time.process_time() < until_s:
        pass
    (tmp_path / "new").write_text("2000000")
    (tmp_path / "new").rename(counter / "energy_uj")  # the kernel's file is never half written
    used = meter.end()
    assert used.memory_gb is not None and 0.01 < used.memory_gb < 1000
    assert used.cpu_s >= 0.1 and used.processors_energy_j == 2.0
    assert (used.gpus, used.unknown) == ((), ())


@pytest.mark.parametrize(("before_uj", "after_uj"), [(900, 3), (262_000_000_000, 5), (10**9, 0)])
def test_a_processors_counter_that_starts_again_is_no_energy(
    tmp_path: Path, before_uj: int, after_uj: int
) -> None:
    """A whole range of 262 kJ within a second would be 262 kW."""
    wraps_at = 262_143_328_850
    zone(tmp_path, "intel-rapl:0", "package-0", before_uj, wraps_at)
    processors = ProcessorMeter({}, tmp_path)
    zone(tmp_path, "intel-rapl:0", "package-0", after_uj, wraps_at)
    processors.update()
    is_wrap = wraps_at - before_uj < 10**9
    assert (processors.energy_j is None) is not is_wrap
    assert ("started again" in processors.unknown) is not is_wrap


@pytest.mark.parametrize(("power", "is_known"), [(0.99, True), (1.01, False)])
@pytest.mark.parametrize(("since_s", "counted_s"), [(0.0, 1.0), (0.5, 1.0), (7.0, 7.0)])
def test_a_counter_grows_by_no_more_than_a_processor_can_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power: float, is_known: bool,
    since_s: float, counted_s: float,
) -> None:  # fmt: skip
    """Two readings at once may have the energy of the second between them."""
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(resource_use, "time", clock)
    zone(tmp_path, "intel-rapl:0", "package-0", 0, wraps_at=10**12)
    processors = ProcessorMeter({}, tmp_path)
    clock.monotonic = lambda: 100.0 + since_s
    energy_uj = round(power * resource_use.POWER_MAX_W * counted_s * 1e6)
    zone(tmp_path, "intel-rapl:0", "package-0", energy_uj, wraps_at=10**12)
    processors.update()
    assert processors.energy_j == (pytest.approx(energy_uj / 1e6) if is_known else None)


def test_what_a_gpu_does_not_report_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise NVMLError("Not Supported")

    nvml = Nvml(None)
    for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"):
        monkeypatch.setattr(nvml, name, refuse)
    (gpu,), _ = gpu_meters_of_rank({}, nvml)
    gpu.sample()
    used = gpu.end()
    assert (used.energy_j, used.busy_share, used.memory_gb) == (None, None, None)


def test_the_memory_of_a_gpu_is_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, used = Nvml(0, busy=(1, 1, 1)), iter([2e9, 5e9, 3e9])
    memory = lambda _: SimpleNamespace(used=int(next(used)), total=141e9)  # noqa: E731
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", memory)
    (gpu,), _ = gpu_meters_of_rank({}, nvml)
    for _ in range(3):
        gpu.sample()
    assert gpu.end().memory_gb == 5.0
