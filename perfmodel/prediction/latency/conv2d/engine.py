"""The machine as products of convolutions see it: its engine, tiles and constants."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from perfmodel.core.hardware import Kernels
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import gemm
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.rates import DEPTH_LANES
from perfmodel.prediction.latency.machine import Machine

#: outputs in flight that keep an SM busy in fp32 where copies to shared memory bypass the registers: any block does.
#: Six convolutions of 3 x 3 that are 12 to 99 blocks of 128 x 32 on 132 SMs reach 0.38 to 0.47 of the peak of as many
#: SMs, eight with 180 blocks and more 0.34 to 0.45 of all (own measurements on H100 and H200, torch 2.11.0, 2026-11-23;
#: in view). Without, so many a lane (NeuSight @ 6945927d9afc: P100, T4, V100 and P4 alone 77, 93, 155, 148)
COPIED_DEPTH, LANE_DEPTH = 0.0, 128.0
#: libraries that search blocks for each shape: 19 calls by TVM (GTX 1080 Ti, in view) are 37 % off so, 225 otherwise
SEARCHED = ("tvm",)
#: seconds that no split of a sum is worth
UNSPLIT_S = 1.0
#: (pixels, filters) of a block, read off the kernels' names in NeuSight's rows: scudnn_128x32, 128x64 and 128x128 of
#: implicit GEMMs; of the products of Winograd's tiles, sgemm_64x64 and 32x128
IMPLICIT_TILES = ((128, 32), (128, 64), (128, 128))
PRODUCT_TILES = ((64, 64), (32, 128))


def engine_of(machine: Machine, c: Values, conditions: Conditions, *, batched: bool) -> tuple[Machine, Values]:
    """Return the machine with the tiles of convolutions, and the constants of their matrix products.

    On tensor engines they are those of the machine's GEMMs. The kernel starts as one in 16 bits, without what scales
    inputs to 8 bits.
    """
    family = gemm.family_of(machine)
    values = {constant.name: constant.default for constant in family.constants}
    if gemm.is_fp32(machine):
        # The sum is never split, and the rows of the unfolded matrix are gathered anyway.
        values |= {"math": c["product" if batched else "math"], "linear": 1.0, "split": 1.0, "stride": 1.0}
        values |= {"ragged": 1.0, "bounds": 1.0, "byte_energy": 0.0, "batch_energy": 1.0}
        values |= {name: c[name] for name in ("eta", "launch", "energy", "fill")}
        if conditions.library in SEARCHED or (machine.copies_to_shared and not batched):
            values["depth"] = COPIED_DEPTH
        elif not machine.copies_to_shared:
            values["depth"] = LANE_DEPTH * max(DEPTH_LANES, machine.flop_per_clock_per_sm / 2.0)
        tiles = (machine.kernels.winograd_tiles or PRODUCT_TILES) if batched else IMPLICIT_TILES
        kernels = Kernels(gemm_tiles=tiles, gemm_batched_tiles=tiles)  # rows that lie in no memory cost nothing there
        key = ("conv2d", batched)
        if key not in machine.cache:
            machine.cache[key] = replace(machine, kernels=kernels)
        return machine.cache[key], MappingProxyType(values)
    if machine.hardware is not None:
        values |= constants(family, machine.hardware, conditions.library).values
        start = constants(gemm.GEMM_BF16, machine.hardware, conditions.library).values["start"]
    else:
        start = next(constant.default for constant in gemm.GEMM_BF16.constants if constant.name == "start")
    return machine, MappingProxyType({**values, "launch": start / machine.clock_hz})


def vector_engine(machine: Machine) -> Machine:
    """Return the same machine with the symbols of its vector engine in fp32."""
    if "vector" not in machine.cache:
        peak = machine.hardware and machine.hardware.find_peak("fp32", "vector")
        known = Machine.of(machine.hardware, peak) if machine.hardware is not None and peak else machine
        machine.cache["vector"] = replace(
            known, engine="vector", dtype="fp32", peak_flop_per_s=machine.vector_flop_per_s
        )
    found: Machine = machine.cache["vector"]
    return found


def implicit_engine(
    machine: Machine, c: Values, conditions: Conditions, weight: bool, whole: bool
) -> tuple[Machine, Values, Values]:
    """Return the machine and the constants of an implicit GEMM, and these without traffic to device memory.

    The gradient of the weights has few filters and many pixels, over which its sum is split.
    """
    machine, values = engine_of(machine, c, conditions, batched=False)
    if weight:
        usual = {constant.name: constant.default for constant in gemm.family_of(machine).constants}
        values = MappingProxyType({**values, "split": min(values["split"], usual.get("split", gemm.VECTOR_SPLIT))})
    if whole:
        values = MappingProxyType({**values, "split": UNSPLIT_S})
    return machine, values, MappingProxyType({**values, "eta": np.inf})
