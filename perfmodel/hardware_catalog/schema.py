"""The shape of a hardware specification file: which tables and keys there are, and their types.

Quantities are strings with units (``"1555 GB/s"``); `perfmodel.hardware_catalog.read` converts them. Unknown
keys are errors, so that a misspelt one is not silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from perfmodel.core.machine_parts import GPUS_IN_A_HOST
from perfmodel.prediction.latency.tables import LatencySpec, Quantity

Count = Annotated[int, msgspec.Meta(gt=0, le=10**9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class MemorySpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[memory.NAME]``: one level. Give a capacity of the device, or one per SM.

    Attributes
    ----------
    partitions : parts that do not share what they hold (default 1).
    copies : copies of a line that the level holds when all SMs read it; 2 for the split L2 of A100, H100 (default 1).
    delivered : share of the peak that streams reach, over what they reach by usual memory controllers (default 1).
    shared_with_host : whether it is the memory of the CPU, too (default false).
    """

    capacity: Quantity | None = None
    capacity_per_sm: Quantity | None = None
    bandwidth: Quantity | None = None
    technology: str = ""
    partitions: int = 1
    copies: int = 1
    delivered: Share = 1.0
    shared_with_host: bool = False
    bus_width_bits: Positive | None = None
    memory_clock: Quantity | None = None
    transfers_per_clock: Positive | None = None
    bytes_per_clock: Positive | None = None
    bytes_per_clock_per_sm: Positive | None = None
    source: str = ""
    note: str = ""


class RateSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One dense peak: the printed rate and what it can be recomputed from.

    Attributes
    ----------
    microscaled : the rate of operands with a scale for every 32 numbers or fewer, where it is another one.
    packed : results of one lane and clock that the rate counts; 2 where it counts packed instructions (default 1).
    """

    rate: Quantity
    flop_per_clock_per_sm: Positive | None = None
    clock: Quantity | None = None
    sparse_2to4: Quantity | None = None
    microscaled: Quantity | None = None
    packed: Positive = 1.0
    source: str = ""
    note: str = ""


class ExchangeSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[link.NAME.collective.OP]``: one collective over the link, as `calibrate --links` measured it.

    Attributes
    ----------
    latency : time of one step of the ring without its bytes.
    bandwidth : of a rank.
    deviation : of ln(measured / predicted) of sizes that were left out of the fit; 1.28 times it is half of their 80 %
        interval.
    ranks : how many ranks exchanged.
    """

    latency: Quantity
    bandwidth: Quantity
    deviation: Positive
    ranks: Count


class LinkSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[link.NAME]``: bandwidth per direction and per device.

    Attributes
    ----------
    reduces_in_switch : whether the link ends in a switch that adds up what it forwards (NVLink SHARP). Default: NVLink
        of 400 GB/s and more, since a bound that ignored the switch could be beaten; but not a bridge, whose ``domain``
        is at most 4, nor with ``per_peer``.
    domain : the most devices that reach each other over the link: 2 across a bridge, 72 in an NVL72. Default: those of
        a node, or with ``per_peer`` as many as have links of their own.
    per_peer : the most per direction between two devices, where pairs have links of their own and no switch.
    latency : measured time of one step of an exchange between two devices, without its bytes.
    collective : what single collectives take, where they were measured.
    technology : what the link is where that is not its name ("NVLink-C2C" in place of PCIe).
    """

    per_direction: Quantity
    generation: Count | None = None
    lanes: Count | None = None
    domain: Count | None = None
    reduces_in_switch: bool | None = None
    per_peer: Quantity | None = None
    latency: Quantity | None = None
    collective: dict[str, ExchangeSpec] = {}
    technology: str = ""
    source: str = ""
    note: str = ""


class ChipSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[chip]``: processors, clocks and limits. On a CPU an SM is a core.

    Attributes
    ----------
    process : manufacturing process as the foundry names it, "TSMC 4N".
    max_clock : highest clock that the driver allows, where boards exceed those of the printed peaks.
    matrix_instruction : instruction of the tensor engine, which decides what kernels look like (default "mma.sync").
    max_threads_per_sm : threads that an SM holds at once (default 2048).
    warp_schedulers_per_sm : warps that an SM issues from in one clock.
    exponentials_per_clock_per_sm : results of the unit for exp2 and the like (default 16).
    tensor_share : share of the tensor rate of the design's SM that the vendor leaves the product (default 1).
    """

    sm_count: Count | None = None
    process: str = ""
    vector_clock: Quantity | None = None
    tensor_clock: Quantity | None = None
    max_clock: Quantity | None = None
    max_warps_per_sm: Count | None = None
    max_threads_per_sm: Count | None = None
    max_blocks_per_sm: Count | None = None
    warp_schedulers_per_sm: Count | None = None
    exponentials_per_clock_per_sm: Positive | None = None
    tensor_share: Share | None = None
    matrix_instruction: Literal["", "mma.sync", "wgmma", "tcgen05", "mfma", "wmma", "dpas"] = ""
    warp_size: Count | None = None
    simd_bits: Count | None = None
    tdp: Quantity | None = None
    tdp_alone: Quantity | None = None
    source: str = ""
    note: str = ""


class LaunchSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[launch]``: the floor bounds, the overhead predicts, and so does the time of a kernel in a queue."""

    floor: Quantity | None = None
    overhead: Quantity | None = None
    queued: Quantity | None = None
    source: str = ""
    note: str = ""


class SustainedSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[sustained]``: measured ceilings; they predict and never bound.

    Attributes
    ----------
    memory, tensor, vector, link : reached rates by name.
    run_deviation : standard deviation of ln(measured / predicted) of whole runs, where the machine's clock differs from
        that of its operators measured alone by more than usual (default: that of all machines).
    source, date, note : where the figures come from.
    """

    memory: dict[str, Quantity] = {}
    tensor: dict[str, Quantity] = {}
    vector: dict[str, Quantity] = {}
    link: dict[str, Quantity] = {}
    run_deviation: float | None = None
    source: str = ""
    date: str = ""
    note: str = ""


class KernelsSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[kernels]``: how the libraries' kernels for this machine are cut, as their names in profiles or sources show.

    Attributes
    ----------
    gemm_tiles, gemm_batched_tiles : [rows, columns] of the tiles of fp32 products, single and in a strided batch
        (default: every tile that cuBLAS is known to have).
    gemm_batched_share : share of the fp32 peak that the vendor's library reaches at most in strided batches, where it
        has one kernel for all of them (default 1).
    fp8_tiles : library -> tiles of 8-bit products that it chooses by the rows of the product: [rows, columns, largest
        number of rows], the last one without a limit (default: every tile of the tensor engine).
    winograd_patches : [images, rows, columns] of outputs that a block of the fused Winograd kernel may cover (default:
        1 x 8 x 16 only).
    winograd_tiles : [rows, columns] of the tiles of fp32 products of transformed images by filters, in Winograd's
        algorithm of separate kernels (default: 64 x 64 and 32 x 128).
    softmax_threads : threads of a block of softmax where every row has as many (default: as PyTorch chooses for CUDA).
    widens_fp8_keys : whether attention converts 8-bit keys to 16 bits in software (default false).
    translation_cost : time that fp32 products take longer by where address translation reaches none of a wave's rows,
        over the arithmetic's (default 0).
    channel_cost : time that single fp32 products take longer by where their rows lie multiples of 256 KiB apart, and so
        meet in one channel of memory, over the arithmetic's (default 0).
    reread_cost : time that single fp32 products off cache lines take to read their weights again for every 128 rows,
        over the arithmetic's, where k is 256 (default 0).
    ragged_batch_cost : time that batches of fp32 products take longer by where neither side of B is a multiple of 32,
        over the arithmetic's (default 0).
    small_batch_cost : time that batches of small fp32 products take longer by, those with up to 512 rows, columns and
        length of k of which B is the largest matrix or has over 49,152 elements, over the arithmetic's (default 0).
    averages_power : whether the power limit holds for the mean over calls and the pauses between them, so that short
        calls of a framework run at the full clock (default false).
    """

    gemm_tiles: list[tuple[Count, Count]] = []
    gemm_batched_tiles: list[tuple[Count, Count]] = []
    gemm_batched_share: Share = 1.0
    fp8_tiles: dict[str, list[list[Count]]] = {}
    winograd_patches: list[tuple[Count, Count, Count]] = []
    winograd_tiles: list[tuple[Count, Count]] = []
    softmax_threads: Count | None = None
    widens_fp8_keys: bool = False
    translation_cost: float = 0.0
    channel_cost: float = 0.0
    reread_cost: float = 0.0
    small_batch_cost: float = 0.0
    ragged_batch_cost: float = 0.0
    averages_power: bool = False
    source: str = ""
    note: str = ""


#: keys of ``[kernels]`` that are lists or words about them; the others stand in `perfmodel.core.hardware.Kernels` as is
_KERNEL_LISTS = (
    *("gemm_tiles", "gemm_batched_tiles", "fp8_tiles", "winograd_patches", "winograd_tiles"),
    *("source", "note"),
)
PLAIN_KERNELS = tuple(name for name in KernelsSpec.__struct_fields__ if name not in _KERNEL_LISTS)


class ClusterSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[cluster]``: how the vendor's usual systems join these devices; see `perfmodel.core.hardware.Fabric`.

    Attributes
    ----------
    gpus_per_node : devices that share a host (default 8).
    nic : network of one device in one direction, in bits or bytes ("400 Gb/s").
    nic_efficiency : share of it that large messages reach (default 0.85).
    alpha : time of one step between nodes (default 14 us).
    oversubscription : devices that share the bandwidth of one in the switches above (default 1).
    host_memory : memory of the host for a device ("240 GB").
    deviation : of ln(measured / predicted) of exchanges over this very network that were left out of the fit of
        efficiency and alpha (``calibrate --links``).
    """

    gpus_per_node: Count = GPUS_IN_A_HOST
    nic: str | None = None
    nic_efficiency: Positive | None = None
    alpha: Quantity | None = None
    oversubscription: Positive | None = None
    host_memory: Quantity | None = None
    deviation: Positive | None = None
    source: str = ""
    note: str = ""


class HardwareSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A whole specification file.

    Attributes
    ----------
    generation : name of the machines of the same design, which share defaults (default: architecture and compute
        capability, "hopper-9.0").
    boards : names that drivers report for boards of other makers with this chip and memory: they suggest the machine,
        and do not stand for it, since power and clocks may differ.
    """

    name: Name
    vendor: Name
    architecture: Name
    memory: dict[str, MemorySpec]
    peak: dict[str, Any]
    title: str = ""
    kind: Literal["gpu", "cpu"] = "gpu"
    compute_capability: str = ""
    generation: str = ""
    aliases: list[str] = []
    device_names: list[str] = []
    boards: list[str] = []
    chip: ChipSpec = msgspec.field(default_factory=ChipSpec)
    link: dict[str, LinkSpec] = {}
    launch: LaunchSpec = msgspec.field(default_factory=LaunchSpec)
    kernels: KernelsSpec = msgspec.field(default_factory=KernelsSpec)
    cluster: ClusterSpec | None = None
    sustained: SustainedSpec = msgspec.field(default_factory=SustainedSpec)
    latency: dict[str, LatencySpec] = {}
