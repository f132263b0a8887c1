"""Which figures of a machine differ from those that its measured constants were fitted with.

Constants are those of a machine: a copy of its file with other figures is another machine, as a slice of a GPU is, or a
board with another power limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable

#: figures that differ by less are the same: roundings, and clocks of boards
TOLERANCE = 0.05
#: figures that leave the chip as it is
POWER = ("chip.tdp", "chip.tdp_alone")
#: beginning of the figures of links, which exchanges alone cross
LINK = "link."


def figures(hardware: Hardware) -> Mapping[str, float]:
    """Return the figures of a machine that times follow from, in SI units by their keys."""
    cache = hardware.caches[-1] if hardware.caches else None
    found = {
        "chip.sm_count": hardware.sm_count,
        "chip.tdp": hardware.tdp_w,
        "chip.tdp_alone": hardware.tdp_alone_w,
        "memory.l2.capacity": cache.capacity_bytes if cache else None,
        **{f"chip.{engine}_clock": clock for engine, clock in hardware.clocks_hz.items()},
        **{f"chip.{key}": value for key, value in hardware.chip.items()},
        **{f"peak.{peak.engine}.{peak.dtype}": peak.flop_per_s for peak in hardware.peaks},
        f"memory.{hardware.main_memory.name}.bandwidth": hardware.main_memory.bandwidth_bytes_per_s,
        **{f"{LINK}{link.name}": link.bandwidth_bytes_per_s for link in hardware.links},
    }
    return {key: float(value) for key, value in found.items() if value}


def changed(hardware: Hardware, family: str) -> tuple[str, ...]:
    """Return the keys of the figures that differ from those that a family's own constants were fitted with.

    None differs where the machine has no constants of the family. Figures that only one of the two has tell nothing.
    """
    before = hardware.fitted_with.get(family)
    if before is None or family not in hardware.latency:
        return ()
    return tuple(
        key
        for key, value in figures(hardware).items()
        if key in before and abs(math.log(value / before[key])) > math.log(1.0 + TOLERANCE)
    )


def compared_as(hardware: Hardware, stated: Hardware) -> Hardware:
    """Return a machine that is compared with what its constants were fitted with by the figures that another states.

    The other is the machine without what is assumed of it: an assumed figure is no other one than that of the fit.
    """
    known = figures(stated)
    return replace(
        hardware,
        fitted_with=MappingProxyType(
            {
                family: {key: value for key, value in before.items() if key in known}
                for family, before in hardware.fitted_with.items()
            }
        ),
    )


def with_tables(hardware: Hardware, tables: Mapping[str, LatencyTable]) -> Hardware:
    """Return a machine with constants of some families that were fitted on this very machine."""
    lent = {name: before for name, before in hardware.fitted_with.items() if name not in tables}
    return replace(hardware, latency={**hardware.latency, **tables}, fitted_with=MappingProxyType(lent))
