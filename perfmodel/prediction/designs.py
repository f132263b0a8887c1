"""The names by which machines share what was measured on others: generation, product line and vendor."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware


def generation(hardware: Hardware) -> str:
    """Return the name of the machines that share a machine's design and defaults: "hopper-9.0", "cdna-2-gfx90a".

    It is the specification's ``generation``, else architecture and compute capability. The compute capability tells
    chips apart that share the architecture's name: A100 (8.0) has twice the L2 and half the fp32 lanes of A40 (8.6).
    """
    return _slug(hardware.generation) if hardware.generation else _design(hardware)


def has_another_chip(hardware: Hardware) -> bool:
    """Return whether a machine takes the constants of a generation whose chip is not its own: B300 those of B200."""
    return generation(hardware) != _design(hardware)


def _design(hardware: Hardware) -> str:
    parts = (hardware.architecture, hardware.compute_capability)
    return _slug("-".join(part for part in parts if part))


def vendor(hardware: Hardware) -> str:
    """Return the name of the machines of a vendor, which share the software that dispatches kernels."""
    return _slug(hardware.vendor)


def product_line(hardware: Hardware) -> str:
    """Return the name of the machines that share vendor and kind of memory: "nvidia-hbm", "nvidia-gddr", "amd-hbm".

    The kind of memory decides which share of the datasheet bandwidth streams reach. It also tells chips apart: stacked
    memory is on data-centre chips, GDDR on those of graphics cards.
    """
    kind = "gddr" if "GDDR" in hardware.main_memory.technology.upper() else "hbm"
    return f"{vendor(hardware)}-{kind}"


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")
