"""AMD's GPUs by the answers of AMD SMI that others have recorded.

No AMD GPU has run these tests. Sources of the numbers:

- ROCM_7: the table of `amd-smi` in the changelog of amd_smi_lib for ROCm 7.0.0: eight MI300X;
- UNITS: a maintainer's output in github.com/ROCm/amdsmi/issues/38: counter, resolution, joules;
- STUCK: github.com/AMDResearch/hpcfund/issues/21, an MI100;
- BACKWARD: github.com/ROCm/amdsmi/issues/115, two readings one second apart.

UUIDs are made up: the sources hide them.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from tfscaling.cluster import gpu_drivers
from tfscaling.cluster.gpu_allocation import allocate, amd_gpus_of_task
from tfscaling.launch import containers, provenance, resource_use
from tfscaling.launch.resource_use import gpu_meters_of_rank
from tfscaling.study.config_types import Container

#: HIP-ID → busy in %, memory in use in MB.
ROCM_7 = {number: (busy, 4976) for number, busy in enumerate((98, 83, 34, 12, 11, 23, 36, 47))}
NAME, DRIVER, TOTAL_MB = "AMD Instinct MI300X", "6.12.12", 196592
RESOLUTION = 15.300000190734863
UNITS = {65628: 1.004, 59230: 0.906}
STUCK, BACKWARD = (8152136, 8152136), (4750896266, 4736943791)
#: Of a step with eight tasks: test_gpu_allocation.py.
LUMI = {"ROCR_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "SLURM_GPUS_ON_NODE": "8", "PATH": "/none"}


class AmdSmiException(Exception):  # noqa: N818
    """As amdsmi's."""


class NVMLError(Exception):
    """As pynvml's."""


def uuid(number: int) -> str:
    return f"GPU-{number:016x}"


class AmdSmi:
    """amdsmi of a node with eight MI300X, which it lists in the order of their bus addresses."""

    AmdSmiException = AmdSmiException
    AmdSmiMemoryType = SimpleNamespace(VRAM=0)

    def __init__(self, *counters: int, order: list[int] | None = None) -> None:
        self._counters, self._order = list(counters or (0,)), order or [*ROCM_7]

    def amdsmi_init(self) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[int]:
        return self._order

    def amdsmi_get_gpu_enumeration_info(self, gpu: int) -> dict[str, Any]:
        return {"drm_render": 128 + gpu, "hsa_id": gpu + 2, "hip_id": gpu, "hip_uuid": uuid(gpu)}

    def amdsmi_get_energy_count(self, _: int) -> dict[str, Any]:
        counters = self._counters
        counter = counters.pop(0) if counters[1:] else counters[0]
        return {"energy_accumulator": counter, "counter_resolution": RESOLUTION, "timestamp": 1}

    def amdsmi_get_gpu_activity(self, gpu: int) -> dict[str, Any]:
        return {"gfx_activity": ROCM_7[gpu][0], "umc_activity": 0, "mm_activity": "N/A"}

    def amdsmi_get_gpu_memory_usage(self, gpu: int, _: int) -> int:
        return ROCM_7[gpu][1] * 1024**2

    def amdsmi_get_gpu_memory_total(self, _: int, __: int) -> int:
        return TOTAL_MB * 1024**2

    def amdsmi_get_gpu_asic_info(self, _: int) -> dict[str, Any]:
        return {"market_name": NAME, "target_graphics_version": "gfx942"}

    def amdsmi_get_gpu_driver_info(self, _: int) -> dict[str, Any]:
        return {"driver_name": "amdgpu", "driver_version": DRIVER}


def _no_nvml() -> None:
    raise NVMLError("NVML Shared Library Not Found")


NO_NVML = SimpleNamespace(NVMLError=NVMLError, nvmlInit=_no_nvml)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (LUMI, "ROCR_VISIBLE_DEVICES"),
        (LUMI | {"HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, "HIP_VISIBLE_DEVICES"),
        (LUMI | {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_eight_tasks_are_measured_on_eight_gpus(environ: dict[str, str], name: str) -> None:
    order = random.sample([*ROCM_7], 8)
    found = []
    for task in range(8):
        (own,) = allocate(environ, task, 8, 8) or ()
        (gpu,), why = gpu_meters_of_rank({**environ, name: own}, NO_NVML, AmdSmi(order=order))
        gpu.sample()
        used = gpu.end()
        assert (why, used.busy_share) == ("", ROCM_7[task][0] / 100)
        assert used.memory_gb == 4976 * 1024**2 / 1e9
        found.append(gpu.uuid)
    assert found == [uuid(number) for number in range(8)]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ROCR_VISIBLE_DEVICES": "0,3,4,7", "HIP_VISIBLE_DEVICES": "2"}, ("4",)),
        ({"ROCR_VISIBLE_DEVICES": "0,3,4,7", "CUDA_VISIBLE_DEVICES": "1,3"}, ("3", "7")),
        ({"ROCR_VISIBLE_DEVICES": f"{uuid(5)},{uuid(6)}"}, (uuid(5), uuid(6))),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ("1",)),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
        ({}, None),
    ],
)
def test_hip_counts_within_what_rocr_shows(
    environ: dict[str, str], expected: tuple[str, ...] | None
) -> None:
    assert amd_gpus_of_task(environ) == expected
    gpus, why = gpu_meters_of_rank(environ, NO_NVML, AmdSmi())
    numbers = [*ROCM_7] if expected is None else expected
    assert [gpu.uuid for gpu in gpus] == [
        uuid(int(each)) if str(each).isdecimal() else each for each in numbers
    ]
    assert why == ""


@pytest.mark.parametrize(("counter", "joules"), UNITS.items())
def test_the_counter_times_its_resolution_is_in_microjoules(counter: int, joules: float) -> None:
    (gpu,), _ = gpu_meters_of_rank({"HIP_VISIBLE_DEVICES": "0"}, NO_NVML, AmdSmi(0, counter))
    assert gpu.end().energy_j == pytest.approx(joules, abs=5e-4)


@pytest.mark.parametrize(("counters", "why"), [(STUCK, "stuck"), (BACKWARD, "reset")])
def test_a_counter_that_stands_still_or_runs_backward_is_no_energy(
    counters: tuple[int, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(resource_use, "time", clock)
    smi = AmdSmi(*counters)
    (gpu,), _ = gpu_meters_of_rank({"HIP_VISIBLE_DEVICES": "3"}, NO_NVML, smi)
    clock.monotonic = lambda: 101.0 + resource_use.STUCK_S
    assert gpu.end().energy_j is None
    assert why in gpu.unknown and uuid(3) in gpu.unknown


def test_what_amd_smi_does_not_report_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise AmdSmiException("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED")

    smi = AmdSmi()
    for name in ("amdsmi_get_energy_count", "amdsmi_get_gpu_memory_usage"):
        monkeypatch.setattr(smi, name, refuse)
    monkeypatch.setattr(smi, "amdsmi_get_gpu_activity", lambda _: {"gfx_activity": "N/A"})
    (gpu,), _ = gpu_meters_of_rank({"HIP_VISIBLE_DEVICES": "0"}, NO_NVML, smi)
    gpu.sample()
    used = gpu.end()
    assert (used.energy_j, used.busy_share, used.memory_gb) == (None, None, None)
    assert "NOT_SUPPORTED" in gpu.unknown and "\n" not in gpu.unknown


@pytest.mark.parametrize("fault", ["init", "old", "other gpu"])
def test_gpus_that_cannot_be_identified_are_not_measured(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi: Any = AmdSmi()
    environ = {"ROCR_VISIBLE_DEVICES": "8" if fault == "other gpu" else "0"}
    if fault == "old":  # before ROCm 6.4
        monkeypatch.delattr(AmdSmi, "amdsmi_get_gpu_enumeration_info")
    elif fault == "init":

        def refuse() -> None:
            raise AmdSmiException("34 | AMDSMI_STATUS_DRIVER_NOT_LOADED")

        monkeypatch.setattr(smi, "amdsmi_init", refuse)
    gpus, why = gpu_meters_of_rank(environ, NO_NVML, smi)
    assert gpus == [] and "AMD SMI" in why
    assert (gpu_drivers.list_amd_gpus(smi) == ()) is (fault != "other gpu")


def test_model_and_driver_are_facts_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setattr(gpu_drivers, "_import_amdsmi", AmdSmi)
    facts = provenance.host_facts()
    assert facts.gpus == (NAME,) * 8 and facts.gpu_driver == DRIVER
    assert facts.gpu_uuids == tuple(map(uuid, ROCM_7))


@pytest.mark.parametrize("text", ["raise KeyError('libamd_smi.so')", "raise OSError('none')", None])
def test_amd_smi_without_its_library_is_as_none(
    text: str | None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "amdsmi.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
    gpus, why = gpu_meters_of_rank(LUMI, NO_NVML)
    assert gpus == [] and "NVML" in why
    assert gpu_drivers.list_amd_gpus() == ()


@pytest.mark.parametrize("has_driver", [True, False])
@pytest.mark.parametrize("engine", ["apptainer", "singularity"])
def test_containers_get_the_option_of_the_nodes_maker(
    has_driver: bool, engine: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_AMD_DRIVER", tmp_path if has_driver else tmp_path / "kfd")
    container = Container(image="i.sif", engine=engine)
    words = containers.wrap_command(container, ["python"], on_gpus=True)
    assert ("--rocm" in words, "--nv" in words) == (has_driver, not has_driver)
    assert not {"--rocm", "--nv"} & {*containers.wrap_command(container, ["python"], False)}
