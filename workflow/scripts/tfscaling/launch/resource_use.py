"""Meters for what a rank uses while it works: energy, its GPUs' time and memory, CPU time.

Energy comes from counters, never from sampled power: the driver's counter of each GPU (NVIDIA's
since Volta) and RAPL's counters of the node's processors. nvidia-smi samples power for a part of
the time only. All ranks of a node read the same counters; `record.energy` counts each of them once.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscaling.cluster.gpu_drivers import GpuDriverError, GpuReadings, read_task_gpus
from tfscaling.record.rank_report import GpuUse, ResourceUse

#: Seconds between two samples of utilisation. Counters of processors wrap around after some
#: minutes.
INTERVAL_S = 1.0
#: Longest wait for the last readings of the GPU driver, in seconds.
_ANSWER_S = 10.0
#: More power than a socket with its memory, or a GPU, can take. A counter that implies more was
#: reset.
POWER_MAX_W = 3000.0
#: After this many seconds any GPU has used energy: a counter that has not moved does not count.
STUCK_S = 5.0
_POWERCAP = Path("/sys/class/powercap")


class ProcessorMeter:
    """Measures the energy of this node's processors and their memory, by RAPL's counters.

    The measurement begins with the construction. `update` must be called more often than the
    counters wrap around, which takes some minutes. The energy is unknown on a node that the job
    shares with other jobs.

    Args:
        environ: The environment, with Slurm's number of CPUs of the job on this node.
        powercap: The folder of the counters.

    Attributes:
        unknown: Why the energy is unknown, as a sentence; "" if it is known.
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
        self.update()

    def update(self) -> None:
        """Read the counters and add the energy since the last call to the total.

        If a counter was reset to zero meanwhile, the energy is unknown from then on.
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
        """Energy in joules from construction to the last `update`; None if unknown."""
        return None if self.unknown else self._total_uj / 1e6


class GpuMeter:
    """Energy, utilisation and memory of one GPU since construction, by its driver.

    Args:
        readings: The driver's readings of the GPU.

    Attributes:
        uuid: The driver's UUID of the GPU.
        unknown: Why the energy is unknown, as a sentence; "" if it is known.
    """

    def __init__(self, readings: GpuReadings) -> None:
        self._readings = readings
        self.uuid = readings.uuid
        self._busy: list[float] = []
        self._memory_bytes = 0
        self.unknown = ""
        self._begun_s = time.monotonic()
        self._first_mj = self._last_mj = self._energy_mj()

    def _energy_mj(self) -> float | None:
        """Return the reading of the energy counter in millijoules; None if there is no counter."""
        try:
            return self._readings.energy_mj()
        except GpuDriverError as error:
            self.unknown = f"energy of {self.uuid}: {error}"
            return None

    @property
    def memory_gb(self) -> float:
        """Total memory of the GPU in GB.

        Raises:
            GpuDriverError: The driver does not report it.
        """
        return self._readings.total_bytes() / 1e9

    def sample(self) -> None:
        """Read utilisation, used memory and energy counter once.

        Values that the GPU does not report stay unknown.
        """
        self._read_energy()
        with contextlib.suppress(GpuDriverError):
            self._busy.append(self._readings.busy_share())
        with contextlib.suppress(GpuDriverError):
            self._memory_bytes = max(self._memory_bytes, self._readings.used_bytes())

    def _read_energy(self) -> None:
        """Store the reading of the energy counter; if it has decreased, the energy is unknown."""
        if self._first_mj is None or self._last_mj is None:
            return
        before_mj, self._last_mj = self._last_mj, self._energy_mj()
        if self._last_mj is not None and self._last_mj < before_mj:
            self.unknown = f"energy of {self.uuid}: the driver's counter was reset"
            self._last_mj = None

    def end(self) -> GpuUse:
        """Return energy, mean utilisation and peak memory from construction until now."""
        self._read_energy()
        if self._first_mj == self._last_mj and time.monotonic() - self._begun_s > STUCK_S:
            self.unknown = self.unknown or f"energy of {self.uuid}: the driver's counter is stuck"
            self._last_mj = None
        energy_j = None
        if self._first_mj is not None and self._last_mj is not None:
            energy_j = (self._last_mj - self._first_mj) / 1000
        return GpuUse(
            uuid=self.uuid,
            energy_j=energy_j,
            busy_share=statistics.fmean(self._busy) if self._busy else None,
            memory_gb=self._memory_bytes / 1e9 if self._memory_bytes else None,
        )


def gpu_meters_of_rank(
    environ: Mapping[str, str], nvml: Any = None, smi: Any = None
) -> tuple[list[GpuMeter], str]:
    """Return a meter for each GPU of this rank; if they cannot be measured, the reason.

    Args:
        environ: The environment. Its CUDA_VISIBLE_DEVICES, or AMD's variable, selects the GPUs;
            without it, all GPUs of the node are measured.
        nvml: Replaces the module pynvml in tests.
        smi: Replaces the module amdsmi in tests.

    Returns:
        (meters, ""), or ([], the driver's error).
    """
    try:
        return [GpuMeter(readings) for readings in read_task_gpus(environ, nvml, smi)], ""
    except GpuDriverError as error:
        return [], f"GPUs: {error}"


class RankMeter:
    """Measures this rank's resource usage from construction to `end`.

    A thread finds the GPUs, which can take a second, and samples once a second.

    Args:
        environ: The environment, which selects the GPUs.
        on_gpus: Whether the rank uses GPUs.
    """

    def __init__(self, environ: Mapping[str, str], on_gpus: bool) -> None:
        self._environ, self._on_gpus = dict(environ), on_gpus
        self._processors = ProcessorMeter(environ)
        self._gpus: tuple[GpuUse, ...] = ()
        self._unknown: list[str] = ["GPUs: neither NVML nor AMD SMI answers"] * on_gpus
        self._begun_s, self._cpu_s, self._sampling_cpu_s = time.monotonic(), _cpu_s(), 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="resource use", daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        """Sample GPUs and processors until `end` is called: the thread's function."""
        gpus, why = gpu_meters_of_rank(self._environ) if self._on_gpus else ([], "")
        while (gpus or not self._processors.unknown) and not self._done.wait(INTERVAL_S):
            for gpu in gpus:
                gpu.sample()
            self._processors.update()
        self._processors.update()
        self._gpus = tuple(gpu.end() for gpu in gpus)
        self._unknown = [why, *(gpu.unknown for gpu in gpus)]
        self._sampling_cpu_s = time.thread_time()

    def end(self) -> ResourceUse:
        """Stop the measurement and return the usage.

        If the GPU driver does not answer within `_ANSWER_S` seconds, the GPUs' usage is unknown.
        """
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
            memory_gb=peak_memory_gb(),
            sampling_cpu_s=self._sampling_cpu_s,
            unknown=tuple(filter(None, unknown)),
        )


def peak_memory_gb() -> float:
    """Return the peak resident memory in GB of this process or of its largest ended child."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(each.ru_maxrss for each in used) * 1024 / 1e9


def _cpu_s() -> float:
    """Return the CPU time in seconds of this process and its ended children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
