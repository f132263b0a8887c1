"""The constants that a machine's own figures determine, whatever the tables of other machines say."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware
from perfmodel.prediction.latency.family import FACTOR, Family
from perfmodel.prediction.latency.machine import AMD, NVIDIA, USUAL_CLOCK_HZ, Machine, copies_to_shared
from perfmodel.prediction.latency.power import TENSOR_ENERGY, limited_share
from perfmodel.prediction.relatives import near_bandwidth

#: time of products in 16 and 8 bits by AMD's library over that of NVIDIA's at the same power, and their families. AMD's
#: typical attained FLOPs of an MI325X, ten products of DeepSeek-V3 (606 TFLOP/s in fp16, 616 in bf16, 1143 in fp8;
#: "Completing the GPU Performance Picture", 2026-10-06), take 1.29 times as long as predicted without it, those of a
#: layer on an MI300X (AMD-AGI/TraceLens @ 171dd74721ca) 1.3 to 1.6 times, the best that a search found 0.9 to 1.2 times
HIPBLASLT, MATRIX_PRODUCTS = 1.1, ("gemm_bf16", "gemm_fp8")
#: the same of tensor cores whose operands pass through registers, over those that copy to shared memory by themselves,
#: where power does not set the rate. Two sources on a V100 take 1.11 and 1.18 times as long as without it (11 rows of
#: `examples/published`, torch-performance and triton-1648, in view); a part of it is taken, since it is one machine
THROUGH_REGISTERS = 1.1


def measured_constants(family: Family, hardware: Hardware) -> dict[str, float]:
    """Return the constants that the machine's ``[sustained]`` bandwidth determines, for families that stream.

    Where it lacks one, that of a board of its generation with nearly its memory does (`near_bandwidth`). It is that of
    whole streams, reads and writes together, so that a written byte costs as much as a read one.
    """
    memory = hardware.main_memory
    peak = (memory.bandwidth_bytes_per_s or 0.0) * memory.delivered
    if not (family.streams and peak):
        return {}
    rate = memory.sustained_bytes_per_s or near_bandwidth(hardware, memory)
    if not rate:
        return {}
    known = {constant.name for constant in family.all_constants}  # not all streams tell a write from a read
    return {name: value for name, value in (("eta", rate / peak), ("write", 1.0)) if name in known}


def unlike_products(family: Family, hardware: Hardware) -> dict[str, float]:
    """Return the factor of matrix products on engines unlike all measured ones, `HIPBLASLT` or `THROUGH_REGISTERS`."""
    if family.name not in MATRIX_PRODUCTS:
        return {}
    if hardware.vendor == AMD:
        return {FACTOR.name: HIPBLASLT}
    peak = hardware.find_peak("fp16", "tensor")
    if hardware.vendor != NVIDIA or peak is None or copies_to_shared(hardware):
        return {}
    unlimited = limited_share(Machine.of(hardware, peak), TENSOR_ENERGY) >= 1.0
    return {FACTOR.name: THROUGH_REGISTERS} if unlimited else {}


def queued_starts(family: Family, hardware: Hardware) -> dict[str, float]:
    """Return the least start of a kernel in the machine's queue, for families that other machines were measured for.

    It is in seconds, or in clocks where that is the unit of the family's start. Protocols of exchanges start otherwise.
    """
    queued_s = hardware.launch.queued_s
    if queued_s is None:
        return {}
    clock = hardware.clocks_hz.get("tensor") or hardware.clocks_hz.get("vector") or USUAL_CLOCK_HZ
    starts = {("launch", "s"): queued_s, ("start", ""): queued_s * clock}
    own = {constant.name: (constant.name, constant.unit) for constant in family.all_constants}
    return {name: starts[kind] for name, kind in own.items() if kind in starts}
