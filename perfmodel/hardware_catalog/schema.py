"""The shape of a hardware specification file: which tables and keys there are, and their types.

Quantities are strings with units (``"1555 GB/s"``); `perfmodel.hardware_catalog.read` converts them. Unknown
keys are errors, so that a misspelt one is not silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from perfmodel.prediction.latency.tables import LatencySpec, Quantity

Count = Annotated[int, msgspec.Meta(gt=0, le=10**9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class MemorySpec(msgspec.Struct, forbid_unknown_fields=True):
    """``[memory.NAME]``: one level. Give a capacity of the device, or one per SM."""

    capacity: Quantity | None = None
    capacity_per_sm: Quantity | None = None
    bandwidth: Quantity | None = None
    technology: str = ""
    partitions: int = 1
    bus_width_bits: Positive | None = None
    memory_clock: Quantity | None = None
    transfers_per_clock: Positive | None = None
    bytes_per_clock: Positive | None = None
    bytes_per_clock_per_sm: Positive | None = None
    source: str = ""
    note: str = ""


class RateSpec(msgspec.Struct, forbid_unknown_fields=True):
    """One dense peak: the printed rate and what it can be recomputed from."""

    rate: Quantity
    flop_per_clock_per_sm: Positive | None = None
    clock: Quantity | None = None
    sparse_2to4: Quantity | None = None
    source: str = ""
    note: str = ""


class LinkSpec(msgspec.Struct, forbid_unknown_fields=True):
    """``[link.NAME]``: bandwidth per direction and per device."""

    per_direction: Quantity
    generation: Count | None = None
    lanes: Count | None = None
    source: str = ""
    note: str = ""


class ChipSpec(msgspec.Struct, forbid_unknown_fields=True):
    """``[chip]``: processors, clocks and limits. On a CPU an SM is a core."""

    sm_count: Count | None = None
    vector_clock: Quantity | None = None
    tensor_clock: Quantity | None = None
    max_warps_per_sm: Count | None = None
    max_threads_per_sm: Count | None = None
    max_blocks_per_sm: Count | None = None
    warp_size: Count | None = None
    simd_bits: Count | None = None
    tdp: Quantity | None = None
    source: str = ""
    note: str = ""


class LaunchSpec(msgspec.Struct, forbid_unknown_fields=True):
    """``[launch]``: the floor bounds, the overhead predicts."""

    floor: Quantity | None = None
    overhead: Quantity | None = None
    source: str = ""
    note: str = ""


class SustainedSpec(msgspec.Struct, forbid_unknown_fields=True):
    """``[sustained]``: measured ceilings; they predict and never bound."""

    memory: dict[str, Quantity] = {}
    tensor: dict[str, Quantity] = {}
    vector: dict[str, Quantity] = {}
    link: dict[str, Quantity] = {}
    source: str = ""
    date: str = ""
    note: str = ""


class HardwareSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A whole specification file."""

    name: Name
    vendor: Name
    architecture: Name
    memory: dict[str, MemorySpec]
    peak: dict[str, Any]
    title: str = ""
    kind: Literal["gpu", "cpu"] = "gpu"
    compute_capability: str = ""
    aliases: list[str] = []
    device_names: list[str] = []
    chip: ChipSpec = msgspec.field(default_factory=ChipSpec)
    link: dict[str, LinkSpec] = {}
    launch: LaunchSpec = msgspec.field(default_factory=LaunchSpec)
    sustained: SustainedSpec = msgspec.field(default_factory=SustainedSpec)
    latency: dict[str, LatencySpec] = {}
