"""`perfmodel bench --check`: compare this device with its specification and earlier records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perfmodel.cli._device import base_machine, described_cpu
from perfmodel.cli._output import Destination, context, status
from perfmodel.errors import PerfModelError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.kernels.device import Device
    from perfmodel.measure.health.verdict import Reference

#: dtypes of the matrix products; clocks are read under the load of the first
_DTYPES = {"cpu": ("fp32", "fp64"), "cuda": ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8")}
_RECORDS = ("examples", "records")


def run_check(device: Device, on: Sequence[str] | None, destination: Destination) -> int:
    """Judge a device, write the verdicts, and return the exit code: 1 if something is wrong, else 0.

    Parameters
    ----------
    device : the open device.
    on : the machine to compare with; None for the one with the device's name, or this CPU's computed figures.
    destination : destination of the verdicts.

    Raises
    ------
    UsageError
        When ``on`` names several machines or one of another kind, or the catalog has no machine with the GPU's name.
    """
    from perfmodel.core.report import report
    from perfmodel.measure.health.judge import judge
    from perfmodel.measure.health.readings import take_readings
    from perfmodel.measure.health.verdict import DeviceHealth
    from perfmodel.measure.telemetry.nvml import open_telemetry

    machine = base_machine(device, on) or described_cpu()
    if machine and (machine.kind == "cpu") != (device.kind == "cpu"):
        raise UsageError(
            f"the device is of kind {device.kind}, but {machine.title} is of kind {machine.kind}.",
            place="--on",
            remedy="Name this machine, or remove --on.",
        )
    dtypes = [dtype for dtype in _DTYPES[device.kind] if machine is None or dtype in machine.dtypes()]
    references = tuple(_references(device, machine))
    readings = take_readings(device, open_telemetry(device), dtypes, lambda message: status(f"checking: {message}"))
    health = DeviceHealth(device.name, device.kind, machine, readings, judge(readings, machine, references))
    destination.write(report(health, context=context()))
    return int(health.is_wrong)


def _references(device: Device, machine: Hardware | None) -> Iterator[Reference]:
    """Yield the rates in the repository's records that were measured on a GPU of this name.

    An unreadable record causes only a warning, since the check does not depend on it.
    """
    from perfmodel.files import shipped_folder
    from perfmodel.hardware_catalog.names import name_key
    from perfmodel.measure.health.verdict import Reference
    from perfmodel.records.record import read_record

    if device.kind == "cpu":
        return  # CPUs of the same name differ in memory channels and limits
    names = {name_key(name) for name in (device.name, machine.name if machine else "") if name}
    for path in sorted(shipped_folder().parent.joinpath(*_RECORDS).glob("*.json")):
        try:
            record = read_record(path, ("bench",))
        except PerfModelError as error:
            status(f"warning: {error}")
            continue
        if name_key(str(record.context.device.get("name", ""))) in names:
            yield Reference.of(record, path.name)
