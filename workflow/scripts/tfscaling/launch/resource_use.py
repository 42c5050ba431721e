"""What a rank uses while it works: energy, its GPUs' time and memory, CPU time.

Energy comes from counters, never from sampled power: NVML's counter of each GPU (Volta or later)
and RAPL's counters of the node's processors. nvidia-smi samples power for a part of the time only.
All ranks of a node read the same counters; `record.energy` counts each of them once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscaling.cluster.gpu_allocation import visible_gpus
from tfscaling.record.rank_report import GpuUse, ResourceUse

#: Counters of processors wrap around after some minutes; utilisation is sampled as often.
INTERVAL_S = 1.0
#: The last readings of a driver that answers take less.
_ANSWER_S = 10.0
#: More than a socket with its memory, or a GPU, can take: such a counter started again.
POWER_MAX_W = 3000.0
_POWERCAP = Path("/sys/class/powercap")


class Processors:
    """The energy counters of the node's processors and their memory, which wrap around.

    `unknown` is why they cannot be read, or empty. On a node that the job shares with other jobs
    the energy is unknown.
    """

    def __init__(self, environ: Mapping[str, str], powercap: Path = _POWERCAP) -> None:
        self.unknown = ""
        given, online = environ.get("SLURM_CPUS_ON_NODE", ""), os.cpu_count() or 0
        if given.isdecimal() and int(given) < online:
            shared = f"the job has {given} of the node's {online} CPUs"
            self.unknown = f"{shared} (platform key `exclusive`)"
        self._total_uj = 0
        self._read_s = time.monotonic()
        self._last_uj: dict[Path, int] = {}
        self._wraps_at_uj: dict[Path, int] = {}
        for zone in sorted(powercap.glob("intel-rapl:*")):  # AMD's processors have this name, too
            try:  # a container may mask the counters, and a kernel protect them
                name = (zone / "name").read_text().strip()
                if not self.unknown and (name.startswith("package") or name == "dram"):
                    self._wraps_at_uj[zone] = int((zone / "max_energy_range_uj").read_text())
            except (OSError, ValueError) as error:
                self.unknown = self.unknown or f"{zone} cannot be read: {error}"
        if not self._wraps_at_uj:
            self.unknown = self.unknown or f"{powercap} has no energy counter"
        self.read()

    def read(self) -> None:
        """Add what the counters counted since they were read; they may wrap around once between.

        A counter that started again counted a power that no socket can take: then the energy is
        unknown.
        """
        before_s, self._read_s = self._read_s, time.monotonic()
        most_uj = POWER_MAX_W * max(self._read_s - before_s, INTERVAL_S) * 1e6
        for zone, wraps_at_uj in self._wraps_at_uj.items():
            try:
                value_uj = int((zone / "energy_uj").read_text())
            except (OSError, ValueError) as error:
                self.unknown = f"{zone}/energy_uj cannot be read: {error}"
                return
            counted_uj = (value_uj - self._last_uj.get(zone, value_uj)) % (wraps_at_uj + 1)
            if counted_uj > most_uj:
                self.unknown = f"{zone}/energy_uj started again from zero"
                return
            self._total_uj += counted_uj
            self._last_uj[zone] = value_uj

    @property
    def energy_j(self) -> float | None:
        """Joules since the start; None if unknown."""
        return None if self.unknown else self._total_uj / 1e6


class Gpu:
    """One GPU by NVML: `nvml` is the module pynvml, `handle` its handle."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self.uuid = str(nvml.nvmlDeviceGetUUID(handle))
        self._busy: list[float] = []
        self._memory_bytes = 0
        self.unknown = ""
        self._first_mj = self._last_mj = self._energy_mj()

    def _energy_mj(self) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError as error:
            self.unknown = f"energy of {self.uuid}: {error}"
            return None

    @property
    def memory_gb(self) -> float:
        """All of its memory. Raises NVMLError."""
        return float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).total / 1e9)

    def sample(self) -> None:
        """Read current utilisation, memory and the energy counter.

        What the GPU does not support stays unknown.
        """
        self._read_energy()
        with contextlib.suppress(self._nvml.NVMLError):
            self._busy.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100)
        with contextlib.suppress(self._nvml.NVMLError):
            used = self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used
            self._memory_bytes = max(self._memory_bytes, used)

    def _read_energy(self) -> None:
        """Read the counter; it only grows unless the driver resets it."""
        if self._first_mj is None or self._last_mj is None:
            return
        before_mj, self._last_mj = self._last_mj, self._energy_mj()
        if self._last_mj is not None and self._last_mj < before_mj:
            self.unknown = f"energy of {self.uuid}: the driver's counter was reset"
            self._last_mj = None

    def end(self) -> GpuUse:
        """Return what the GPU used since the start."""
        self._read_energy()
        energy_j = None
        if self._first_mj is not None and self._last_mj is not None:
            energy_j = (self._last_mj - self._first_mj) / 1000
        return GpuUse(
            uuid=self.uuid,
            energy_j=energy_j,
            busy_share=statistics.fmean(self._busy) if self._busy else None,
            memory_gb=self._memory_bytes / 1e9 if self._memory_bytes else None,
        )


def gpus_of_rank(environ: Mapping[str, str], nvml: Any = None) -> tuple[list[Gpu], str]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES, or else all GPUs of the node; or none, and why.

    `nvml` replaces the module pynvml.
    """
    nvml = nvml or importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        entries = visible_gpus(environ)
        if entries is None:
            entries = tuple(map(str, range(nvml.nvmlDeviceGetCount())))
        return [Gpu(nvml, _handle(nvml, entry)) for entry in entries], ""
    except nvml.NVMLError as error:
        return [], f"GPUs: NVML: {error}"


def _handle(nvml: Any, entry: str) -> Any:
    if entry.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(entry))
    return nvml.nvmlDeviceGetHandleByUUID(entry)


class Meter:
    """Measures from its construction to `end`, in a thread that samples once a second.

    The thread also queries the GPUs' driver, which can take a second: the work begins at once.
    """

    def __init__(self, environ: Mapping[str, str], on_gpus: bool) -> None:
        self._environ, self._on_gpus = dict(environ), on_gpus
        self._processors = Processors(environ)
        self._gpus: tuple[GpuUse, ...] = ()
        self._unknown: list[str] = ["GPUs: NVML does not answer"] * on_gpus
        self._begun_s, self._cpu_s, self._sampling_cpu_s = time.monotonic(), _cpu_s(), 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="resource use", daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        gpus, why = gpus_of_rank(self._environ) if self._on_gpus else ([], "")
        while (gpus or not self._processors.unknown) and not self._done.wait(INTERVAL_S):
            for gpu in gpus:
                gpu.sample()
            self._processors.read()
        self._processors.read()
        self._gpus = tuple(gpu.end() for gpu in gpus)
        self._unknown = [why, *(gpu.unknown for gpu in gpus)]
        self._sampling_cpu_s = time.thread_time()

    def end(self) -> ResourceUse:
        """Stop, and return what was used; a driver that hangs does not hold a finished run."""
        duration_s, cpu_s = time.monotonic() - self._begun_s, _cpu_s() - self._cpu_s
        self._done.set()
        self._thread.join(_ANSWER_S)
        unknown = list(self._unknown)
        if self._processors.unknown:
            unknown.append(f"processors: {self._processors.unknown}")
        return ResourceUse(
            duration_s=duration_s,
            gpus=self._gpus,
            processors_energy_j=self._processors.energy_j,
            cpu_s=cpu_s,
            memory_gb=memory_gb(),
            sampling_cpu_s=self._sampling_cpu_s,
            unknown=tuple(filter(None, unknown)),
        )


def memory_gb() -> float:
    """Highest resident memory of this process, or of the largest of its children that ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(each.ru_maxrss for each in used) * 1024 / 1e9


def _cpu_s() -> float:
    """Return CPU time of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
