"""The machines of records: of the specification that a record holds, or of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel import storage
from perfmodel.errors import InputFileError, PerfModelError, UsageError, nearest

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.records.schema import Record


def machine_of(name: str, record: Record, path: str) -> Hardware:
    """Return the machine of a row, from the specification in the record's context or from the catalog.

    Raises
    ------
    InputFileError
        When neither has the machine.
    """
    from perfmodel.hardware_catalog import hardware, hardware_names
    from perfmodel.hardware_catalog.read import parse_spec, to_hardware

    document = record.context.spec
    if document and document.get("name") == name:
        place = f"{path}: context.spec"
        return to_hardware(parse_spec(document, place), place)
    try:
        return hardware(name)
    except UsageError:
        known = nearest(name, hardware_names())
        raise InputFileError(
            f"holds no specification of its machine {name!r}, and the catalog has none.",
            place=path,
            remedy=f"{known} Pass the machine's file to --on.".strip(),
        ) from None


def recorded_machine(path: str) -> Hardware | None:
    """Return the machine that a record of bench was compared with, None where the catalog has one of its name.

    Raises
    ------
    InputFileError
        When the specification in the record is wrong.
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.records.record import read_record

    if not storage.name_of(path).removesuffix(".gz").endswith(".json"):
        return None
    try:
        record = read_record(path, ("bench",))
    except PerfModelError:
        return None  # what reads the rows explains it
    name = (record.context.spec or {}).get("name")
    if name is None:
        return None
    try:
        hardware(name)
    except UsageError:
        return machine_of(name, record, path)
    return None
