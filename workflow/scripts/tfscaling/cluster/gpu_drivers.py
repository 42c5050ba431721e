"""Readings of this node's GPUs by their makers' libraries: NVML, and AMD SMI for AMD's GPUs.

Energies come from the drivers' counters. Names and units of AMD SMI are from the reference of its
Python API for ROCm 6.4 to 7.2; it has never run here on a GPU (docs/gpu.md).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Protocol

from tfscaling.cluster.gpu_allocation import Gpu, amd_gpus_of_task, visible_gpus


class GpuDriverError(RuntimeError):
    """NVML or AMD SMI fails, or does not report a value; the message has the reason."""


class GpuReadings(Protocol):
    """Readings of one GPU. Each raises GpuDriverError for a value that the GPU does not report.

    Attributes:
        uuid: UUID of the GPU.
    """

    uuid: str

    def energy_mj(self) -> float:
        """Return the reading of the energy counter in millijoules."""

    def busy_share(self) -> float:
        """Return the share of the last sample period in which the GPU was busy."""

    def used_bytes(self) -> int:
        """Return the memory in use, in bytes."""

    def total_bytes(self) -> int:
        """Return the total memory, in bytes."""


class NvmlReadings:
    """Readings of one NVIDIA GPU by NVML.

    Args:
        nvml: The module pynvml, initialised.
        entry: Number or UUID of the GPU, as an entry of CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, nvml: Any, entry: str) -> None:
        self._nvml = nvml
        if entry.isdecimal():
            self._handle = self._call("nvmlDeviceGetHandleByIndex", int(entry))
        else:
            self._handle = self._call("nvmlDeviceGetHandleByUUID", entry)
        self.uuid = str(self._call("nvmlDeviceGetUUID", self._handle))

    def energy_mj(self) -> float:
        """Return the reading of the energy counter in millijoules."""
        return int(self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle))

    def busy_share(self) -> float:
        """Return the share of the last sample period in which the GPU was busy."""
        return self._call("nvmlDeviceGetUtilizationRates", self._handle).gpu / 100

    def used_bytes(self) -> int:
        """Return the memory in use, in bytes."""
        return int(self._call("nvmlDeviceGetMemoryInfo", self._handle).used)

    def total_bytes(self) -> int:
        """Return the total memory, in bytes."""
        return int(self._call("nvmlDeviceGetMemoryInfo", self._handle).total)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Return what a function of NVML returns.

        Raises GpuDriverError instead of NVML's own error.
        """
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise GpuDriverError(f"NVML: {error}") from error


class AmdReadings:
    """Readings of one AMD GPU by AMD SMI.

    Args:
        smi: The module amdsmi, initialised.
        handle: AMD SMI's handle of the GPU.

    Attributes:
        number: Number of the GPU for HIP and ROCr, if no variable selects GPUs.
        uuid: UUID of the GPU, as in ROCR_VISIBLE_DEVICES.
    """

    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi, self._handle = smi, handle
        if not hasattr(smi, "amdsmi_get_gpu_enumeration_info"):
            raise GpuDriverError("AMD SMI is older than ROCm 6.4 and does not number GPUs as HIP")
        names = self._call("amdsmi_get_gpu_enumeration_info")
        self.number, self.uuid = names["hip_id"], str(names["hip_uuid"])

    def energy_mj(self) -> float:
        """Return the reading of the energy counter in millijoules."""
        counter = self._call("amdsmi_get_energy_count")
        microjoules = counter["energy_accumulator"] * counter["counter_resolution"]
        return float(microjoules / 1000)

    def busy_share(self) -> float:
        """Return the share of the last sample period in which the GPU was busy."""
        percent = self._call("amdsmi_get_gpu_activity")["gfx_activity"]
        if percent == "N/A":
            raise GpuDriverError("AMD SMI: gfx_activity is N/A")
        return float(percent / 100)

    def used_bytes(self) -> int:
        """Return the memory in use, in bytes."""
        return int(self._call("amdsmi_get_gpu_memory_usage", self._smi.AmdSmiMemoryType.VRAM))

    def total_bytes(self) -> int:
        """Return the total memory, in bytes."""
        return int(self._call("amdsmi_get_gpu_memory_total", self._smi.AmdSmiMemoryType.VRAM))

    def describe(self) -> Gpu:
        """Return model, UUID and driver of the GPU."""
        name = self._call("amdsmi_get_gpu_asic_info")["market_name"]
        driver = self._call("amdsmi_get_gpu_driver_info")["driver_version"]
        return Gpu(name, self.uuid, driver)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Return what a function of AMD SMI returns for this GPU.

        Raises GpuDriverError instead of AMD SMI's own error.
        """
        try:
            return getattr(self._smi, function)(self._handle, *arguments)
        except self._smi.AmdSmiException as error:
            raise GpuDriverError(f"AMD SMI: {' '.join(str(error).split())}") from error


def read_task_gpus(environ: Mapping[str, str], nvml: Any = None, smi: Any = None) -> list[Any]:
    """Return the `GpuReadings` of each GPU of this task; of all GPUs if no variable selects some.

    Args:
        environ: The environment of the task.
        nvml: Replaces the module pynvml in tests.
        smi: Replaces the module amdsmi in tests.

    Raises:
        GpuDriverError: Neither library works, or it does not list a selected GPU.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except ImportError as error:
        missing = f"NVML: {error}"
    except nvml.NVMLError as error:
        missing = f"NVML: {error}"
    else:
        entries = visible_gpus(environ)
        if entries is None:
            try:
                entries = tuple(map(str, range(nvml.nvmlDeviceGetCount())))
            except nvml.NVMLError as error:
                raise GpuDriverError(f"NVML: {error}") from error
        return [NvmlReadings(nvml, entry) for entry in entries]
    if (smi := smi or _import_amdsmi()) is None:
        raise GpuDriverError(missing)
    on_node = _amd_gpus_of_node(smi)
    names = {str(gpu.number): gpu for gpu in on_node} | {gpu.uuid: gpu for gpu in on_node}
    selected = amd_gpus_of_task(environ)
    if unknown := [entry for entry in selected or () if entry not in names]:
        raise GpuDriverError(f"AMD SMI: GPU {unknown[0]} is not among {', '.join(names)}")
    return on_node if selected is None else [names[entry] for entry in selected]


def list_amd_gpus(smi: Any = None) -> tuple[Gpu, ...]:
    """Return the AMD GPUs of this node; empty without AMD SMI, or if it fails.

    Args:
        smi: Replaces the module amdsmi in tests.
    """
    try:
        smi = smi or _import_amdsmi()
        return () if smi is None else tuple(gpu.describe() for gpu in _amd_gpus_of_node(smi))
    except GpuDriverError:
        return ()


def _amd_gpus_of_node(smi: Any) -> list[AmdReadings]:
    """Return the readings of all AMD GPUs of this node.

    Raises GpuDriverError if AMD SMI fails.
    """
    try:
        smi.amdsmi_init()
        handles = smi.amdsmi_get_processor_handles()
    except smi.AmdSmiException as error:
        raise GpuDriverError(f"AMD SMI: {' '.join(str(error).split())}") from error
    return [AmdReadings(smi, handle) for handle in handles]


def _import_amdsmi() -> Any:
    """Return the module amdsmi, or None if it is not installed or finds no library of ROCm."""
    if importlib.util.find_spec("amdsmi") is None:
        return None
    try:
        return importlib.import_module("amdsmi")
    except (ImportError, OSError, KeyError, AttributeError):  # as without libamd_smi.so
        return None
