"""Sustained rates of a machine that nobody measured, from those of the measured machines of its generation.

A machine without a measured figure is assumed to sustain the usual share of its datasheet's. Where a machine of its
generation was measured, that says more: boards of one chip whose datasheets are near each other reach the same share,
and a machine with less of something is never faster. With a datasheet's figure x, the usual share s, and the figures
x_i of measured machines of the generation, which sustain s_i x_i, the rate is

    min(max(s x, l_1, l_2, ...), h_1, h_2, ...),   l_i = s_i min(x, n x_i) from x_i / n on,
                                                   h_i = s_i max(x, x_i / n) up to n x_i,

so that it is s_i x within the factor n (`NEAR`) of x_i, no less beyond it, and no more below it. A V100 SXM2 runs at
1530 MHz and a V100 PCIe at 1370, of which the latter alone was measured: it sustains 98 % in fp32, where the usual
share is 80. Memories compare with those of their own technology.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.core.hardware import Hardware, MemoryLevel
from perfmodel.prediction.designs import generation

Pairs = tuple[tuple[float, float], ...]

#: factor within which the datasheets of two boards are taken for those of one chip with another clock or memory
#: (assumed: V100 PCIe and SXM2 differ by 1.12 in fp32, H100 NVL and SXM5 by 1.18 in bandwidth; L40 and L40S, whose
#: power limits are near, by 2.0 in 16 bits). With it streams on GH200, H100 NVL and RTX 6000 Ada come out 6, 6 and 1 %
#: off, without 11, 14 and 5 (`examples/published`, in view)
NEAR = 1.25
#: generation -> memory level and its technology, or engine and dtype -> what measured machines have on the datasheet
#: and what they sustain [GB/s or TFLOP/s]. The figures stand in the shipped specifications with their sources (a test
#: compares them)
MEASURED: Mapping[str, Mapping[str, Pairs]] = {
    "pascal-6.0": {"hbm HBM2": ((732.2, 556.9),), "vector fp32": ((9.34, 7.031),)},
    "pascal-6.1": {"hbm GDDR5": ((192.3, 144.4),)},
    "volta-7.0": {"hbm HBM2": ((898.0, 827.3),), "l2": ((2806.0, 2440.0),), "vector fp32": ((14.03, 13.79),)},
    "turing-7.5": {"hbm GDDR6": ((320.1, 244.2),)},
    "ampere-8.0": {
        "hbm HBM2": ((1555.0, 1380.0),), "hbm HBM2e": ((2039.0, 1703.0),), "l2": ((7219.0, 5410.0),),
        "vector fp32": ((19.49, 16.41),), "tensor fp16": ((312.0, 264.7),), "tensor bf16": ((312.0, 264.7),),
    },
    "ada-8.9": {
        "hbm GDDR6": ((864.1, 727.5),), "tensor fp16": ((366.3, 229.6),), "tensor bf16": ((366.3, 229.6),),
        "tensor fp8": ((732.5, 375.2),),
    },
    "hopper-9.0": {
        "hbm HBM3": ((3352.0, 2890.0),), "hbm HBM3e": ((4814.0, 4111.0),), "vector fp32": ((66.9, 51.92),),
        "tensor fp16": ((989.4, 806.2), (989.4, 800.1)), "tensor bf16": ((989.4, 806.2), (989.4, 800.1)),
        "tensor fp8": ((1979.0, 1377.0), (1979.0, 1354.0)),
    },
    "blackwell-10.0": {
        "hbm HBM3e": ((7672.0, 6603.0),), "tensor fp16": ((2250.0, 1590.0),), "tensor bf16": ((2250.0, 1590.0),),
        "tensor fp8": ((4500.0, 2619.0),),
    },
    "cdna-gfx908": {"hbm HBM2": ((1229.0, 997.3),), "tensor fp32": ((46.1, 33.15),)},
    "cdna-2-gfx90a": {"hbm HBM2e": ((1638.0, 1380.0),), "l2": ((6963.0, 4859.0),), "tensor fp32": ((45.3, 31.39),)},
}  # fmt: skip
#: generation -> the measured times of a launch [us], as the shipped specifications have them
LAUNCHES: Mapping[str, tuple[float, ...]] = {
    "ampere-8.0": (2.62,), "ampere-8.6": (2.05,), "ada-8.9": (1.64,), "hopper-9.0": (2.43, 2.51),
    "blackwell-10.0": (1.75,), "cdna-2-gfx90a": (2.05,),
}  # fmt: skip
#: what the figures of `MEASURED` are in
_BYTES, _FLOP = 1e9, 1e12


def sustained_bandwidth(hardware: Hardware, level: MemoryLevel, usual: float) -> float:
    """Return the rate that a memory level with a datasheet's bandwidth is assumed to sustain [B/s].

    Parameters
    ----------
    usual : the share where no machine of the generation says another one.
    """
    return _rate(_of_level(hardware, level), level.bandwidth_bytes_per_s or 0.0, usual)


def sustained_compute(hardware: Hardware, engine: str, dtype: str, datasheet: float, usual: float) -> float:
    """Return the rate that an engine is assumed to sustain in a dtype, given that of its datasheet [FLOP/s]."""
    return _rate(_measured(hardware, f"{engine} {dtype}", _FLOP), datasheet, usual)


def near_bandwidth(hardware: Hardware, level: MemoryLevel) -> float | None:
    """Return the rate of a memory level by the share of a board with nearly its datasheet; None without one [B/s]."""
    found, sheet = _of_level(hardware, level), level.bandwidth_bytes_per_s or 0.0
    is_near = any(x / NEAR <= sheet <= NEAR * x for x, _ in found)
    return _rate(found, sheet, 0.0) if is_near else None


def launch_of_generation(hardware: Hardware, usual: float) -> float:
    """Return the time of a launch: the mean of the measured machines of a generation, else the usual one [s]."""
    measured = LAUNCHES.get(generation(hardware), ())
    return 1e-6 * sum(measured) / len(measured) if measured else usual


def name_of_level(level: MemoryLevel) -> str:
    """Return the name of a memory level in `MEASURED`."""
    return f"{level.name} {level.technology}".rstrip()


def _of_level(hardware: Hardware, level: MemoryLevel) -> Pairs:
    return _measured(hardware, name_of_level(level), _BYTES)


def _measured(hardware: Hardware, name: str, unit: float) -> Pairs:
    """Return the datasheet's and the sustained figures of the measured machines of a generation, in SI units."""
    known = MEASURED.get(generation(hardware), {}).get(name, ())
    return tuple((sheet * unit, rate * unit) for sheet, rate in known)


def _rate(found: Pairs, datasheet: float, usual: float) -> float:
    least = [rate / x * min(datasheet, NEAR * x) for x, rate in found if datasheet >= x / NEAR]
    most = [rate / x * max(datasheet, x / NEAR) for x, rate in found if datasheet <= NEAR * x]
    return min((max((usual * datasheet, *least)), *most))
