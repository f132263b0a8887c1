"""What the commands that run on a device share: its options, and the machine that it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._options import only_machine
from perfmodel.cli._output import status
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.kernels.device import Device
    from perfmodel.measure.calibration.calibrate import Figures
    from perfmodel.measure.calibration.cpu_caches import CacheSize
    from perfmodel.measure.calibration.plan import Effort

DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda", help="Where to run; default: the GPU if there is one, else the CPU."),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="CPU threads; default: torch's choice, one a core.")
]


def warn_if_busy() -> str:
    """Say on stderr that other processes disturb the measurement, where they do; return what was said."""
    from perfmodel.measure.machine_facts import disturbance

    warning = disturbance()
    if warning:
        status(f"warning: {warning}")
    return warning


def base_machine(device: Device, on: Sequence[str] | None) -> Hardware | None:
    """Return the machine with datasheet figures that a device is: by ``--on``, else by its name; None for a CPU.

    Raises
    ------
    UsageError
        When several machines are named, or the catalog has none of the GPU's name.
    """
    from perfmodel.hardware_catalog import hardware

    if named := only_machine(on):
        return hardware(named)
    if device.kind == "cpu":
        return None
    try:
        return hardware(device.name)
    except UsageError:
        raise UsageError(
            f"the catalog has no machine that calls itself {device.name!r}.",
            remedy="Name the one that it is with --on, or write a specification file and give that.",
        ) from None


def cpu_caches() -> list[CacheSize]:
    """Return the caches of this CPU as the operating system describes them; empty where it does not."""
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
    device: Device, base: Hardware | None, dtypes: Sequence[str], effort: Effort
) -> tuple[Hardware, Figures]:
    """Return a machine with ceilings measured now; without a base, this CPU as the system describes it."""
    from perfmodel.hardware_catalog.cpu_spec import cpu_hardware
    from perfmodel.hardware_catalog.detect import detect_cpu
    from perfmodel.measure.calibration.calibrate import calibrate
    from perfmodel.measure.calibration.sustained import with_figures

    if base is not None:
        dtypes = [dtype for dtype in dtypes if dtype in base.dtypes()]
    figures = calibrate(
        device,
        dtypes,
        effort,
        lambda message: status(f"calibrating: {message}"),
        cpu_caches() if device.kind == "cpu" else (),
    )
    if base is not None:
        measured = base.kind == "cpu"
        return with_figures(base, figures, memory_is_measured=measured), figures
    base = cpu_hardware(
        detect_cpu(),
        bandwidth_bytes_per_s=figures.fastest_bytes_per_s,
        sustained_flop_per_s=figures.flop_per_s,
        launch_overhead_s=figures.call_overhead_s,
        source=figures.source,
    )
    return with_figures(base, figures, memory_is_measured=True), figures
