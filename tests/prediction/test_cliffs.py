"""No cliffs: a size that grows by 5 % neither multiplies the predicted time nor cuts it, on any machine.

Attention, convolutions and collectives have tests of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import perfmodel as pm
from perfmodel.core.dtypes import dtype_bytes
from perfmodel.operators.base import Operator

Floats = NDArray[np.float64]

#: random operators of each case
COUNT = 3000
MACHINES = (
    "a10", "a100-pcie-40gb", "a100-sxm4-80gb", "b200-sxm-180gb", "h100-pcie-80gb", "h100-sxm5-80gb", "l4", "l40s",
    "mi300x", "rtx-4090", "t4", "v100-pcie-32gb",
)  # fmt: skip
#: most that the time may grow, over the growth of the size where that is more than 5 %; least that is left of it
JUMP, FALL = 3.0, 0.9
#: up to so many indices PyTorch has a kernel of its own for
FEW = 16.0
#: bytes at which a row must start for loads of whole vectors
ALIGNED = 16.0


@dataclass(frozen=True)
class Case:
    """Random operators of one kind.

    Attributes
    ----------
    kind : the operator.
    powers : size -> power of two up to which it is drawn.
    params : other parameters.
    """

    kind: type[Operator]
    powers: Mapping[str, int]
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join((self.kind.op, *map(str, self.params.values()), *self.powers))

    def sizes(self) -> dict[str, Floats]:
        """Return the sizes of `COUNT` operators, as often small as large."""
        random = np.random.default_rng(1)
        return {name: np.floor(2.0 ** random.uniform(0.0, power, COUNT)) for name, power in self.powers.items()}

    def time_s(self, machine: pm.Hardware, sizes: Mapping[str, Floats], cache: str) -> Floats:
        """Return the predicted times [s]."""
        return np.asarray(pm.predict(self.kind(**sizes, **self.params), machine, cache=cache).predicted_time_s)


GEMM = {"m": 14, "n": 14, "k": 14}
BATCHED = {"m": 11, "n": 11, "k": 11, "batch": 8}
ROWS = {"rows": 15, "cols": 15}
TOKENS = {"tokens": 15, "dim": 13}
ROTATED = {"tokens": 15, "heads": 11}
CASES = (
    *(Case(pm.Gemm, sizes, {"dtype": dtype}) for sizes in (GEMM, BATCHED) for dtype in ("fp32", "bf16", "fp8")),
    *(Case(pm.Elementwise, {"numel": 30}, {"dtype": dtype, "kind": kind})
      for dtype in ("fp32", "bf16") for kind in ("add", "pow", "silu_mul")),
    *(Case(kind, ROWS, {"dtype": dtype})
      for kind in (pm.LayerNorm, pm.RmsNorm, pm.Softmax, pm.Reduction, pm.Transpose) for dtype in ("fp32", "bf16")),
    *(Case(pm.Rope, ROTATED, {"dtype": dtype, "head_dim": 2}) for dtype in ("fp32", "bf16")),
    *(Case(pm.Embedding, TOKENS, {"dtype": dtype, "vocab": 32000}) for dtype in ("fp32", "bf16")),
)  # fmt: skip


def allowed(case: Case, machine: pm.Hardware, name: str, sizes: Mapping[str, Floats], larger: Floats) -> Floats:
    """Return the most and the least that each time may change by, [2, count]; wider only where that was measured."""
    most, least = np.full(COUNT, JUMP), np.full(COUNT, FALL)
    if case.kind is pm.Gemm and case.params["dtype"] == "fp32" and name == "batch":
        # cuBLAS splits a single product along k, and never a batch of them in fp32: m=20 n=237 k=987 takes an A100
        # 35 us at batch 1 and 333 us at batch 2. A single product is a kernel of its own, and slower on some machines.
        alone = sizes["batch"] == 1.0
        most[alone], least[alone] = np.inf, 0.75
    if case.kind is pm.Gemm and case.params["dtype"] == "fp32":
        # Rows that start at cache lines, in whole tiles, are computed faster: the median rate of linear layers whose
        # sizes are all multiples of 32 is 1.25 times the others' on T4, 1.14 on V100 and 1.17 on P100 (NeuSight).
        least[np.gcd(larger.astype(int), 32) == 32] = 0.75
    if case.kind is pm.Gemm and case.params["dtype"] == "bf16" and name in ("n", "k"):
        # Rows off 16 bytes are loaded in pieces, whatever the engine's rate: 2047 x 8192 x 3073 takes an H100 0.90 ms
        # (PyTorch float8_experimental, pull request 145), and 0.15 with k of 3072; the SMs of a B200 multiply faster.
        vectors = [np.gcd(one.astype(int), int(ALIGNED / 2.0)) for one in (sizes[name], larger)]
        most[vectors[1] < vectors[0]], least[vectors[1] > vectors[0]] = 15.0, 1.0 / 15.0
    if case.kind is pm.Embedding and name == "tokens":
        # Up to 16 indices are looked up one after another: 11 tokens take an RTX 4090 5.0 us, and 36 take 2.7.
        least[(sizes["tokens"] <= FEW) & (larger > FEW)] = 0.3
    if case.kind is pm.LayerNorm and name == "cols":
        # Rows of whole vectors of 4 take one kernel, others two: 1030 columns take twice as long as 1024 (H100). In 16
        # bits single elements take twice the instructions of vectors besides. The two have 512 and 256 threads a row,
        # however short it is, in place of 128, so that an SM holds a quarter as many rows (layer_norm_kernel.cu): 11
        # such shapes of an H200 come out 6 % off.
        vectors = [np.mod(one, 4.0) == 0.0 for one in (sizes["cols"], larger)]
        most[vectors[0] & ~vectors[1]], least[vectors[1] & ~vectors[0]] = 8.0, 1.0 / 8.0
    if case.kind is pm.Softmax and name == "cols":
        vector = int(ALIGNED / dtype_bytes(case.params["dtype"]))
        better = np.gcd(larger.astype(int), vector) > np.gcd(sizes["cols"].astype(int), vector)
        # A warp has a row up to 2048 columns, a block above: a lane waits longer for 64 columns than a thread for 3. On
        # an H100 (torch 2.11) 256 rows of 1024 columns take 6.7 us, of 4096 columns 5.7 us. Many rows take longer in
        # blocks: 1.65 times on a B200 from 2048 to 2176 columns of fp32. Rows that leave a warm L2 there add to that.
        wider = (sizes["cols"] <= 2048.0) & (larger > 2048.0)
        most[wider], least[wider] = 4.5, 0.2
        # From 10 columns a thread on, rows of whole vectors are in shared memory: 9216 columns of fp32 reach 2.23 TB/s
        # on a B200, and 9344 3.33 TB/s; others are read three times.
        least[better & (larger > 9216.0)] = 0.4
        least[(sizes["cols"] <= 9216.0) & (larger > 9216.0)] = 0.5
    return np.stack([most, least])


@pytest.mark.waiting
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_size_that_grows_by_5_percent_neither_multiplies_the_time_nor_cuts_it(case: Case, cache: str) -> None:
    sizes = case.sizes()
    for name in MACHINES:
        machine = pm.hardware(name)
        if case.kind is pm.Gemm and case.params["dtype"] not in {peak.dtype for peak in machine.peaks}:
            continue
        before = case.time_s(machine, sizes, cache)
        for size, values in sizes.items():
            larger = np.maximum(values + 1.0, np.floor(1.05 * values))
            ratio = case.time_s(machine, {**sizes, size: larger}, cache) / before
            most, least = allowed(case, machine, size, sizes, larger)
            # A size of 1 that becomes 2 may double the time.
            wrong = (ratio > most * np.maximum(1.0, larger / values / 1.05)) | (ratio < least)
            worst = {key: int(array[wrong][0]) for key, array in sizes.items()} if wrong.any() else None
            assert not wrong.any(), f"{name}, {size} of {worst}: {ratio[wrong][0]:.2f} times ({wrong.sum()} of {COUNT})"
