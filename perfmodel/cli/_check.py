"""`perfmodel bench --check`: is this device what its specification and earlier records say it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.cli._device import base_machine
from perfmodel.cli._output import Destination, context, status
from perfmodel.errors import PerfModelError, UnavailableError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report
    from perfmodel.kernels.device import Device
    from perfmodel.measure.health.judge import Check, Readings, Reference

#: dtypes whose products are judged, the one of the load under which clocks are read first
_DTYPES = {"cpu": ("fp32", "fp64"), "cuda": ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8")}
#: the least traffic of a row that shows the bandwidth of a GPU's memory and not of its cache [B]
_BEYOND_CACHES = 2**29
_RECORDS = ("examples", "records")


def run_check(device: Device, on: Sequence[str] | None, destination: Destination) -> int:
    """Judge a device, print the verdicts, and return the exit code: 1 when something is wrong, else 0.

    Parameters
    ----------
    device : the device, opened.
    on : the machine that it should be; None: by the device's name, a CPU by its arithmetic.
    destination : where the verdicts go.

    Raises
    ------
    UsageError
        When several machines are named, one of another kind, or the catalog has none of the GPU's name.
    """
    from perfmodel.measure.health.judge import WRONG, judge
    from perfmodel.measure.health.readings import take_readings
    from perfmodel.measure.telemetry.nvml import open_telemetry

    machine = base_machine(device, on) or _this_cpu()
    if machine and (machine.kind == "cpu") != (device.kind == "cpu"):
        raise UsageError(
            f"{machine.title} cannot be what is checked here, a {device.kind} device.",
            place="--on",
            remedy="Name this machine, or leave --on out.",
        )
    dtypes = [dtype for dtype in _DTYPES[device.kind] if machine is None or dtype in machine.dtypes()]
    records = tuple(_references(device, machine))
    readings = take_readings(device, open_telemetry(device), dtypes, lambda message: status(f"checking: {message}"))
    checks = judge(readings, machine, records)
    destination.write(_report(checks, readings, machine, device))
    return int(any(check.verdict == WRONG for check in checks))


def _this_cpu() -> Hardware | None:
    """Return this CPU as the operating system describes it, None where it tells no clock."""
    from perfmodel.hardware_catalog.cpu_spec import cpu_hardware
    from perfmodel.hardware_catalog.detect import detect_cpu

    try:
        return cpu_hardware(detect_cpu())
    except UnavailableError:
        return None


def _references(device: Device, machine: Hardware | None) -> Iterator[Reference]:
    """Yield the rates in the records that come with a checkout and were made on a GPU of this name.

    A record that cannot be read is passed over with a warning: it is not what was asked about.
    """
    from perfmodel.files import read_document, shipped_folder

    if device.kind == "cpu":
        return  # two CPUs of one name differ in memory channels and limits
    for path in sorted(shipped_folder().parent.joinpath(*_RECORDS).glob("*.json")):
        try:
            document = read_document(path)
        except PerfModelError as error:
            status(f"warning: {error}")
            continue
        reference = reference_of(document, path.name, (device.name, machine.name if machine else ""))
        if reference:
            yield reference


def reference_of(document: Any, name: str, devices: Sequence[str]) -> Reference | None:
    """Return the best rates of a bench record that was made on one of some devices, None for another record.

    Bandwidth is of copies and additions of at least 512 MB, compute of matrix products, both of good rows only.
    """
    from perfmodel.hardware_catalog.find import name_key
    from perfmodel.measure.health.judge import Reference

    if not isinstance(document, Mapping) or document.get("command") != "bench":
        return None
    made_on = str(document.get("context", {}).get("device", {}).get("name", ""))
    if not made_on or name_key(made_on) not in {name_key(device) for device in devices if device}:
        return None
    rows = [row for row in document.get("rows", ()) if isinstance(row, Mapping) and row.get("status") == "ok"]
    streams = [
        float(row["achieved_bytes_per_s"])
        for row in rows
        if row.get("op") == "elementwise"
        and row.get("achieved_bytes_per_s")
        and (row.get("bytes_read") or 0) + (row.get("bytes_written") or 0) >= _BEYOND_CACHES
        and not row.get("flags")
    ]
    products: dict[str, float] = {}
    for row in rows:
        if row.get("op") == "gemm" and row.get("achieved_flop_per_s"):
            dtype = str(row.get("dtype"))
            products[dtype] = max(products.get(dtype, 0.0), float(row["achieved_flop_per_s"]))
    return Reference(name, max(streams, default=None), products)


def _report(checks: Sequence[Check], readings: Readings, machine: Hardware | None, device: Device) -> Report:
    from perfmodel.core.report import Column, Report
    from perfmodel.measure.health.judge import LOW, NOT_JUDGED, OK, WRONG
    from perfmodel.measure.machine_facts import now_utc

    columns = (
        Column("area"),
        Column("figure"),
        Column("verdict"),
        Column("measured_text", "measured"),
        Column("expected_text", "expected"),
        Column("cause", "likely cause"),
        Column("measured", shown=False),
        Column("expected_low", shown=False),
        Column("expected_high", shown=False),
        Column("unit", shown=False),
        Column("source", "expected by", shown=False),
    )
    names = [machine.name] if machine else []
    counts = {verdict: sum(check.verdict == verdict for check in checks) for verdict in (OK, LOW, WRONG, NOT_JUDGED)}
    sources: dict[str, list[str]] = {}
    for check in checks:
        if check.source:
            sources.setdefault(check.source, []).append(check.figure)
    return Report(
        "bench --check",
        columns,
        [_row(check) for check in checks],
        context(hardware=names, date=now_utc(), device={"kind": device.kind, "name": device.name, **readings.facts}),
        (
            ", ".join(f"{verdict}: {count}" for verdict, count in counts.items()) + ".",
            *(f"Expected of {', '.join(figures)}: {source}." for source, figures in sources.items()),
        ),
        f"{machine.title if machine else device.name}: is it well?",
    )


def _row(check: Check) -> dict[str, Any]:
    from perfmodel.core.report import Column

    column = Column("", unit=check.unit)
    return {
        "area": check.area,
        "figure": check.figure,
        "verdict": check.verdict,
        "measured": check.measured,
        "expected_low": check.low,
        "expected_high": check.high,
        "unit": check.unit,
        "measured_text": column.text(check.measured),
        "expected_text": _range(check),
        "source": check.source,
        "cause": check.cause,
    }


def _range(check: Check) -> str:
    """Return the expected range for people: "4.1 TB/s to 4.9 TB/s", "at least 665 W", "16"."""
    from perfmodel.core.report import Column

    column = Column("", unit=check.unit)
    if check.low is None:
        return "-"
    if check.high is None:
        return "0" if not check.low else f"at least {column.text(check.low)}"
    if check.low == check.high:
        return column.text(check.low)
    return f"{column.text(check.low)} to {column.text(check.high)}"
