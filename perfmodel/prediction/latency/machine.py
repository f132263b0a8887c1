"""What the formulas need to know about a machine, and the groups of machines that share constants."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import USUAL_THREADS_PER_SM, Hardware, Kernels, Link, Peak, cached_per_machine
from perfmodel.core.work import Number, minimum
from perfmodel.prediction.usual_figures import completed

#: stand-in for the clock of a CPU; those of GPUs are in `perfmodel.prediction.usual_figures`
USUAL_CLOCK_HZ = 1.5e9
#: the most threads of an SM that kernels of rows reach: MI100 could hold 2560, and its LayerNorm and softmax rows in
#: NeuSight fit better with 2048 (2.8 and 3.3 % off against 3.0 and 3.3 %)
MOST_THREADS_PER_SM = 2048.0
#: results of the exponential unit of an SM in a clock (CUDA C++ programming guide, throughput of native arithmetic)
USUAL_EXPONENTIALS = 16.0
USUAL_MATRIX_INSTRUCTION = "mma.sync"
#: warps that an SM issues from in a clock (CUDA C++ programming guide, compute capabilities; 2 on 6.0)
USUAL_SCHEDULERS = 4.0
#: compute capability from which on copies from global to shared memory are asynchronous
ASYNCHRONOUS_COPIES = 8
#: FLOP of an SM in a clock by mma.sync on chips whose tensor engine has an instruction of its own: 62.9 % of wgmma's
#: 4096 on H100, assumed after microbenchmarks of mma.sync on Hopper; the rows say about the same, as follows. Kernels
#: that widen int4 reach 0.40 of 4096 on H100 and H200, 0.20 of 8192 on B200 and 0.63 of A100's 2048 (aiconfigurator @
#: 095f58a51c4c, 1,400 rows): if they reach one share of mma.sync everywhere, that is 0.40 / 0.63 = 63.5 % of wgmma.
MMA_SYNC, OTHER_INSTRUCTIONS = 0.629 * 4096.0, ("wgmma", "tcgen05")
#: share of its peak that an engine reaches at most where the vendor limits it: the best of 60 published products on an
#: H20 has 282.7 of 296 TFLOP/s (github.com/vllm-project/vllm pull request 49932); assumed for others
LIMITED_MOST = 0.955
#: rates on datasheets are rounded, so that the ratio of two of them is off by a little
ROUNDING = 1.05
#: engines that multiply fp8 by fp4 as they are, so that nothing is widened (PTX ISA, tcgen05.mma, .kind::mxf8f6f4)
MIXED = ("tcgen05",)
#: vendors as specifications write them
NVIDIA, AMD = "NVIDIA", "AMD"
#: what is kept on one machine; a fit tries many constants
_MOST_KEPT = 64
Found = TypeVar("Found")


@dataclass(frozen=True)
class Machine:
    """The symbols of the formulas, for one machine and one math engine.

    Attributes
    ----------
    sm_count : streaming multiprocessors (compute units on AMD).
    clock_hz : the clock of the peak [Hz].
    peak_flop_per_s : dense datasheet peak of the engine and dtype that the operator uses [FLOP/s].
    engine, dtype : of that peak.
    vector_flop_per_s : fp32 peak of the vector engine [FLOP/s].
    bandwidth_bytes_per_s : datasheet bandwidth of device memory, as far as its controller delivers it [B/s].
    l2_bytes : capacity of the last-level cache that all SMs share [B]; 0 where there is none.
    tdp_w : board power limit [W]; infinite where unknown.
    alone_w : power limit while the other devices of its module idle [W]; 0 where it is the same.
    links : links off the device by name.
    threads_per_sm : threads that kernels of rows keep on one SM at once.
    schedulers_per_sm : warps that an SM issues from in one clock.
    l2_copies : copies of a line that the L2 holds when all SMs read it.
    packed : results of one lane and clock that the fp32 vector peak counts.
    exponentials_per_clock : results of the exponential unit of one SM in a clock.
    matrix_instruction : the tensor engine's instruction: "mma.sync", "wgmma", "tcgen05", "mfma", "wmma" or "dpas".
    slack : how much faster an SM feeds its tensor engine than the engine computes: 2 where fp32 accumulation runs at
        half rate (GeForce), which its 8-bit integer rate shows, twice what the 16-bit rate asks for; more where the
        vendor limits the engine (H20); else 1.
    tensor_share : share of the design's tensor rate that the vendor leaves.
    process : process node, as "TSMC 4N"; empty where unknown.
    copies_to_shared : whether copies from global to shared memory bypass the registers (cp.async).
    kernels : how the libraries' kernels for this machine are cut.
    hardware, peak : what the symbols come from; None for a machine that is made of symbols.
    """

    sm_count: float
    clock_hz: float
    peak_flop_per_s: float
    engine: str
    dtype: str
    vector_flop_per_s: float
    bandwidth_bytes_per_s: float
    l2_bytes: float
    tdp_w: float
    links: Mapping[str, Link] = field(default_factory=dict)
    threads_per_sm: float = USUAL_THREADS_PER_SM
    schedulers_per_sm: float = USUAL_SCHEDULERS
    l2_copies: float = 1.0
    packed: float = 1.0
    exponentials_per_clock: float = USUAL_EXPONENTIALS
    matrix_instruction: str = USUAL_MATRIX_INSTRUCTION
    slack: float = 1.0
    tensor_share: float = 1.0
    process: str = ""
    alone_w: float = 0.0
    copies_to_shared: bool = False
    kernels: Kernels = field(default_factory=Kernels)
    hardware: Hardware | None = field(default=None, repr=False, compare=False)
    peak: Peak | None = field(default=None, repr=False, compare=False)

    @property
    def is_cpu(self) -> bool:
        """Whether it is a CPU, which dispatches to nothing else."""
        return self.hardware is not None and self.hardware.kind == "cpu"

    @property
    def flop_per_clock_per_sm(self) -> float:
        """Dense FLOP of one SM in one clock, on the engine of the operator."""
        return self.peak_flop_per_s / (self.sm_count * self.clock_hz)

    @property
    def mma_sync_flop_per_s(self) -> float:
        """Peak of kernels that use mma.sync, also where the tensor engine has an instruction of its own [FLOP/s]."""
        if self.matrix_instruction not in OTHER_INSTRUCTIONS:
            return self.peak_flop_per_s
        return min(self.peak_flop_per_s, MMA_SYNC * self.tensor_share * self.sm_count * self.clock_hz)

    @functools.cached_property
    def by_mma_sync(self) -> Machine:
        """The same machine as kernels see it that use mma.sync."""
        return replace(self, matrix_instruction="mma.sync", peak_flop_per_s=self.mma_sync_flop_per_s)

    def fed(self, share: Number) -> Number:
        """Return the share of the engine's peak that kernels reach which feed an engine without slack at ``share``."""
        return minimum(1.0 if self.tensor_share == 1.0 else LIMITED_MOST, self.slack * share)

    @functools.cached_property
    def cache(self) -> dict[Any, Any]:
        """What formulas derive from this machine once and use in every call."""
        return {}

    def kept(self, key: tuple[Any, ...], c: Mapping[str, float], find: Callable[[], Found]) -> Found:
        """Return what follows from this machine, some constants and a key; it is found once and kept.

        Constants that cannot change are known by their place in memory, which is theirs for as long as they are kept.
        """
        whole = (*key, id(c) if isinstance(c, MappingProxyType) else (tuple(c), tuple(c.values())))
        kept: tuple[Any, Found] | None = self.cache.get(whole)
        if kept is None:
            if len(self.cache) >= _MOST_KEPT:
                self.cache.clear()
            kept = self.cache[whole] = c, find()
        return kept[1]

    @classmethod
    def of(cls, hardware: Hardware, peak: Peak | None) -> Machine:
        """Return the symbols of a machine; usual figures stand for those that its specification leaves out."""
        return _machine(hardware, peak)


@cached_per_machine
def _machine(hardware: Hardware, peak: Peak | None) -> Machine:
    hardware = completed(hardware)
    vector = hardware.find_peak("fp32", "vector") or peak
    # Points of a sweep that compute nothing have no peak: the vector engine has one clock, whatever a peak states.
    stated = peak.clock_hz if peak and (peak.engine != "vector" or "vector" not in hardware.clocks_hz) else None
    clock = stated or hardware.clocks_hz.get("vector") or USUAL_CLOCK_HZ
    fp32 = vector.flop_per_s if vector else np.nan
    chosen = peak or vector
    cache = hardware.caches[-1] if hardware.caches else None
    memory = hardware.main_memory
    return Machine(
        sm_count=float(hardware.sm_count or 1),
        clock_hz=float(clock),
        peak_flop_per_s=chosen.flop_per_s if chosen else np.nan,
        engine=chosen.engine if chosen else "",
        dtype=chosen.dtype if chosen else "",
        vector_flop_per_s=fp32,
        bandwidth_bytes_per_s=(memory.bandwidth_bytes_per_s or np.nan) * memory.delivered,
        l2_bytes=(cache.capacity_bytes or 0.0) if cache else 0.0,
        tdp_w=hardware.tdp_w or np.inf,
        alone_w=hardware.tdp_alone_w or 0.0,
        links={link.name: link for link in hardware.links},
        threads_per_sm=min(hardware.chip.get("max_threads_per_sm", USUAL_THREADS_PER_SM), MOST_THREADS_PER_SM),
        schedulers_per_sm=hardware.chip.get("warp_schedulers_per_sm", USUAL_SCHEDULERS),
        l2_copies=float(cache.copies) if cache else 1.0,
        packed=vector.packed if vector else 1.0,
        exponentials_per_clock=hardware.chip.get("exponentials_per_clock_per_sm", USUAL_EXPONENTIALS),
        matrix_instruction=hardware.matrix_instruction or USUAL_MATRIX_INSTRUCTION,
        slack=_slack(hardware, peak),
        tensor_share=hardware.chip.get("tensor_share", 1.0),
        process=hardware.process,
        copies_to_shared=copies_to_shared(hardware),
        kernels=hardware.kernels,
        hardware=hardware,
        peak=peak,
    )


def multiplies_mixed(machine: Machine, dtype: str, weight_dtype: str) -> bool:
    """Return whether an engine multiplies operands of two dtypes as they are, so that nothing is widened."""
    return machine.matrix_instruction in MIXED and (dtype, weight_dtype) == ("fp8", "fp4")


def copies_to_shared(hardware: Hardware) -> bool:
    """Return whether the hardware copies to shared memory by itself.

    It does from compute capability 8.0 on (CUDA C++ programming guide, section Asynchronous Data Copies).
    """
    major, _, _ = hardware.compute_capability.partition(".")
    return major.isdigit() and int(major) >= ASYNCHRONOUS_COPIES


def _slack(hardware: Hardware, peak: Peak | None) -> float:
    if peak is None or peak.engine != "tensor":
        return 1.0
    limited = 1.0 / hardware.chip.get("tensor_share", 1.0)
    integer = hardware.find_peak("int8", "tensor")
    ratio = integer.flop_per_s / (dtype_bytes(peak.dtype) * peak.flop_per_s) if integer else 1.0
    return limited * (ratio if ratio > ROUNDING else 1.0)
