"""Options of the commands that run on a device, and the machine of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._options import only_machine
from perfmodel.cli._output import status
from perfmodel.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.kernels.device import Device
    from perfmodel.measure.calibration.cpu_caches import CacheSize
    from perfmodel.measure.calibration.plan import CalibrationPlan
    from perfmodel.measure.calibration.sustained import CalibratedMachine

DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda", help="Device to run on. Default: a GPU if present, else the CPU."),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="CPU threads. Default: torch's choice, one per core.")
]


def warn_if_busy() -> str:
    """Warn on stderr if other processes use the machine; return the warning or ""."""
    from perfmodel.measure.machine_facts import disturbance

    warning = disturbance()
    if warning:
        status(f"warning: {warning}")
    return warning


def base_machine(device: Device, on: Sequence[str] | None) -> Hardware | None:
    """Return the machine of ``--on``, else the one with the device's name, with datasheet figures; None for a CPU.

    Raises
    ------
    UsageError
        When ``on`` names several machines, or the catalog has no machine with the GPU's name.
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.find import suggestion

    if named := only_machine(on):
        return hardware(named)
    if device.kind == "cpu":
        return None
    try:
        return hardware(device.name)
    except UsageError:
        raise UsageError(
            f"the catalog has no machine with the device name {device.name!r}.",
            remedy=f"{_sentence(suggestion(device.name))}Pass its name or a spec file to --on.",
        ) from None


def machine_to_measure(device: Device, on: Sequence[str] | None) -> Hardware | None:
    """Return the machine that figures measured on a device describe, as `base_machine`.

    Raises
    ------
    UnavailableError
        When ``on`` names a GPU and there is none here: the figures would be those of the CPU.
    UsageError
        When ``on`` names a CPU and the device is a GPU, and as `base_machine`.
    """
    machine = base_machine(device, on)
    if machine is None or (machine.kind == "cpu") == (device.kind == "cpu"):
        return machine
    if device.kind == "cpu":
        raise UnavailableError(
            f"{machine.title} is a GPU, and the device is the CPU, whose figures are not the GPU's.",
            place="--on",
            remedy="Run it on a machine with that GPU, or leave --on out to calibrate this CPU.",
        )
    raise UsageError(
        f"{machine.title} is a CPU, and the device is a GPU.", place="--on", remedy="Add --device cpu, or name the GPU."
    )


def _sentence(text: str) -> str:
    return f"{text}. " if text else ""


def cpu_caches() -> list[CacheSize]:
    """Return the caches of this CPU that the operating system reports."""
    from perfmodel.hardware_catalog.detect import detect_cpu
    from perfmodel.measure.calibration.cpu_caches import CacheSize

    cpu = detect_cpu()
    sizes = {1: cpu.l1_bytes, 2: cpu.l2_bytes, 3: cpu.l3_bytes}
    return [
        CacheSize(f"l{level}", size / cpu.cache_counts[level], cpu.cache_counts[level])
        for level, size in sizes.items()
        if size and level in cpu.cache_counts
    ]


def measured_machine(
    device: Device, base: Hardware | None, dtypes: Sequence[str], plan: CalibrationPlan
) -> CalibratedMachine:
    """Measure the ceilings of a machine; without ``base``, of this CPU as the operating system describes it."""
    from perfmodel.hardware_catalog.cpu_spec import cpu_hardware
    from perfmodel.hardware_catalog.detect import detect_cpu
    from perfmodel.measure.calibration.calibrate import calibrate
    from perfmodel.measure.calibration.sustained import CalibratedMachine, with_figures

    if base is not None:
        dtypes = [dtype for dtype in dtypes if dtype in base.dtypes()]
    figures = calibrate(
        device,
        dtypes,
        plan,
        lambda message: status(f"calibrating: {message}"),
        cpu_caches() if device.kind == "cpu" else (),
    )
    if base is not None:
        machine = with_figures(base, figures, memory_is_measured=base.kind == "cpu")
        return CalibratedMachine(machine, figures, base)
    described = cpu_hardware(
        detect_cpu(),
        bandwidth_bytes_per_s=figures.fastest_bytes_per_s,
        sustained_flop_per_s=figures.flop_per_s,
        launch_overhead_s=figures.call_overhead_s,
        source=figures.source,
    )
    machine = with_figures(described, figures, memory_is_measured=True)
    return CalibratedMachine(machine, figures, described_cpu(), "arithmetic")


def described_cpu() -> Hardware | None:
    """Return this CPU with figures computed from its description; None if the system reports no clock rate."""
    from perfmodel.hardware_catalog.cpu_spec import cpu_hardware
    from perfmodel.hardware_catalog.detect import detect_cpu

    try:
        return cpu_hardware(detect_cpu())
    except UnavailableError:
        return None
