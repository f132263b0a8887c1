"""`perfmodel bench --check`: does this device perform as its specification and earlier records say."""

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

#: dtypes whose products are judged; clocks are read under the load of the first
_DTYPES = {"cpu": ("fp32", "fp64"), "cuda": ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8")}
_RECORDS = ("examples", "records")


def run_check(device: Device, on: Sequence[str] | None, destination: Destination) -> int:
    """Judge a device, print the verdicts, and return the exit code: 1 when something is wrong, else 0.

    Parameters
    ----------
    device : the device, opened.
    on : the machine that it should be; None for the one with the device's name, or the arithmetic of a CPU.
    destination : where the verdicts go.

    Raises
    ------
    UsageError
        When several machines are named, one of another kind, or the catalog has none of the GPU's name.
    """
    from perfmodel.core.report import report
    from perfmodel.measure.health.judge import judge
    from perfmodel.measure.health.readings import take_readings
    from perfmodel.measure.health.verdict import DeviceHealth
    from perfmodel.measure.telemetry.nvml import open_telemetry

    machine = base_machine(device, on) or described_cpu()
    if machine and (machine.kind == "cpu") != (device.kind == "cpu"):
        raise UsageError(
            f"the device that is checked is a {device.kind} device, which {machine.title} is not.",
            place="--on",
            remedy="Name this machine, or leave --on out.",
        )
    dtypes = [dtype for dtype in _DTYPES[device.kind] if machine is None or dtype in machine.dtypes()]
    references = tuple(_references(device, machine))
    readings = take_readings(device, open_telemetry(device), dtypes, lambda message: status(f"checking: {message}"))
    health = DeviceHealth(device.name, device.kind, machine, readings, judge(readings, machine, references))
    destination.write(report(health, context=context()))
    return int(health.is_wrong)


def _references(device: Device, machine: Hardware | None) -> Iterator[Reference]:
    """Yield the rates in the records of a checkout that were made on a GPU of this name.

    A record that cannot be read gets a warning only: the check does not depend on it.
    """
    from perfmodel.files import shipped_folder
    from perfmodel.hardware_catalog.find import name_key
    from perfmodel.measure.health.verdict import Reference
    from perfmodel.records.record import read_record

    if device.kind == "cpu":
        return  # two CPUs of one name differ in memory channels and limits
    names = {name_key(name) for name in (device.name, machine.name if machine else "") if name}
    for path in sorted(shipped_folder().parent.joinpath(*_RECORDS).glob("*.json")):
        try:
            record = read_record(path, ("bench",))
        except PerfModelError as error:
            status(f"warning: {error}")
            continue
        if name_key(str(record.context.device.get("name", ""))) in names:
            yield Reference.of(record, path.name)
