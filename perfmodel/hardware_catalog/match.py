"""The machine of the catalog that a device is, by what drivers report of it: name, memory, number of SMs."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.hardware_catalog.find import OTHER_PRODUCTS, has_memory, load_all, machines_by_key
from perfmodel.hardware_catalog.names import name_key, words_of


@dataclass(frozen=True)
class DeviceMatch:
    """The machine of the catalog that matches a device, and why.

    ``by`` is "name", or "name and memory size" where the name alone matches several, or "name, memory size and SMs"
    where these do. ``memory_differs`` means that the
    device has another memory size than the machine: it is a partition (MIG, vGPU) or another product.
    """

    hardware: Hardware
    by: str
    memory_differs: bool = False


def match_device(name: str, memory_bytes: float | None = None, sm_count: int | None = None) -> DeviceMatch | None:
    """Return the machine that matches a device's reported name, memory size and number of SMs, or None.

    If a machine lists the whole name, that decides. Otherwise it is the machine with this alias and memory of the same
    size, or the only one whose device name contains all words of the reported name and whose memory has the same size,
    or the only one of those that share the name of a board whose memory and SMs are those of the device.
    """
    if name.strip().lower() in OTHER_PRODUCTS:
        return None
    by_key = machines_by_key()
    exact = by_key.get(name_key(name))
    # An alias such as "v100-sxm2" is not a device name and does not determine the memory size.
    if exact is not None and name_key(name) in map(name_key, exact.device_names):
        return DeviceMatch(exact, "name", memory_bytes is not None and not has_memory(exact, memory_bytes))
    words = set(words_of(name))
    if memory_bytes is None or not words:
        return None
    if exact is not None and has_memory(exact, memory_bytes):
        return DeviceMatch(exact, "name and memory size")
    candidates = {
        machine.name: machine
        for machine in by_key.values()
        for listed in machine.device_names
        if words <= set(words_of(listed)) and has_memory(machine, memory_bytes)
    }
    if len(candidates) == 1:
        return DeviceMatch(next(iter(candidates.values())), "name and memory size")
    boards = [
        machine
        for machine in load_all()
        if name_key(name) in map(name_key, machine.boards)
        and has_memory(machine, memory_bytes)
        and machine.sm_count == sm_count
    ]
    return DeviceMatch(boards[0], "name, memory size and SMs") if len(boards) == 1 else None
