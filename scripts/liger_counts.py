"""Liger-Kernel's own measurements of fused kernels against the bytes that the operators count, with nothing fitted.

    python scripts/liger_counts.py

Reads ``$PERFMODEL_DATA/other_latency/liger_kernel_benchmarks.csv`` (linkedin/Liger-Kernel @ ead96b618e5c; default:
``../shared/data`` beside the checkout). The time of a kernel is its bytes over the share of the datasheet bandwidth
that good streams reach, `SHARE`, and the start of a kernel. Rows below 10 us, and gradients below 150 us, are left out:
there the benchmark measures the host. The gradients of the file also copy what they return into ``.grad``, so that they
say little about the kernels. Other rows are whole layers, losses that perfmodel has no operator for, or compositions.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import public_data

import perfmodel as pm

#: share of the datasheet bandwidth, by a part of the GPU's name: what the fastest of these very kernels reach
SHARE = {"A100-SXM4-80GB": 0.87, "H100": 0.93, "RTX 3090": 0.93}
MACHINES = {"A100-SXM4-80GB": "a100-sxm4-80gb", "H100": "h100-sxm5-80gb", "RTX 3090": "rtx-3090"}
#: start of a kernel as events around it see it, with the caches flushed before (assumed) [s]
START_S = 5e-6
#: rows below these times measure the host [s]
LEAST_S = {"forward": 10e-6, "backward": 150e-6}

Row = Mapping[str, str]


def config(row: Row) -> dict[str, Any]:
    """Return the sizes of a row, and what else it names."""
    return {row["x_name"]: int(float(row["x_value"])), **json.loads(row["extra_benchmark_config_str"])}


def dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype that the sizes of a row name."""
    return str(config.get("dtype", "torch.float32"))


def _add_rms_norm(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.AddRmsNorm(rows=c["M"], cols=c["H"], dtype=dtype(c), backward=backward)


def _rms_norm(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.RmsNorm(rows=c["M"], cols=c["H"], dtype=dtype(c), backward=backward)


def _megatron_rms_norm(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.RmsNorm(rows=c["S"] * c["B"], cols=c["H"], dtype="bf16", backward=backward)


def _layer_norm(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.LayerNorm(rows=c["M"], cols=c["N"], dtype=dtype(c), backward=backward)


def _rope(c: dict[str, Any], backward: bool) -> pm.Operator:
    heads = c["num_q_heads"]
    return pm.Rope(tokens=c["T"], heads=heads, kv_heads=c["num_kv_heads"], head_dim=c["hidden_size"] // heads,
                   dtype=dtype(c), backward=backward)  # fmt: skip


def _swiglu(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.Swiglu(rows=c["S"] * c["B"], cols=c["ffn_local"], dtype="bf16", backward=backward)


def _relu_squared(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.Elementwise(numel=c["M"] * c["N"], kind="relu", dtype=dtype(c), backward=backward)


def _cross_entropy(c: dict[str, Any], backward: bool) -> pm.Operator:
    rows = c.get("S", c.get("T")) * c["B"]
    return pm.CrossEntropy(rows=rows, vocab=c["V"], algorithm="fused", dtype="fp32", backward=backward)


def _softmax(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.Softmax(rows=c["M"], cols=c["N"], dtype=dtype(c), backward=backward)


def _embedding(c: dict[str, Any], backward: bool) -> pm.Operator:
    return pm.Embedding(tokens=c["B"] * c["T"], vocab=c["V"], dim=c["D"], dtype=dtype(c), backward=backward)


#: kernel, provider -> operator
KERNELS: dict[tuple[str, str], Callable[[dict[str, Any], bool], pm.Operator]] = {
    ("fused_add_rms_norm", "liger_fused_add_rms_norm"): _add_rms_norm,
    ("rms_norm", "liger"): _rms_norm,
    ("megatron_rms_norm", "liger"): _megatron_rms_norm,
    ("layer_norm", "liger"): _layer_norm,
    ("rope", "liger"): _rope,
    ("megatron_swiglu", "liger"): _swiglu,
    ("relu_squared", "liger"): _relu_squared,
    ("cross_entropy", "liger"): _cross_entropy,
    ("megatron_cross_entropy", "liger"): _cross_entropy,
    ("softmax", "liger"): _softmax,
    ("embedding", "liger"): _embedding,
}


@dataclass(frozen=True)
class Checked:
    """One measured kernel beside what the counts say.

    Attributes
    ----------
    kernel, mode, size, machine : which.
    measured_s, counted_s : times [s].
    predicted_s : what `pm.predict` says without a library [s].
    """

    kernel: str
    mode: str
    size: str
    machine: str
    measured_s: float
    counted_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Counted over measured, less 1."""
        return self.counted_s / self.measured_s - 1.0


def table() -> Path:
    """Return the path of Liger-Kernel's measurements."""
    return public_data.path_of("other_latency", "liger_kernel_benchmarks.csv")


def checked(path: Path) -> Iterator[Checked]:
    """Yield the kernels of the table that an operator counts."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            build = KERNELS.get((row["kernel"], row["provider"]))
            measured = float(row["latency_ms"]) * 1e-3
            part = next((part for part in SHARE if part in row["gpu_name"]), "")
            if build is None or not part or measured < LEAST_S.get(row["mode"], np.inf):
                continue
            op = build(config(row), row["mode"] == "backward")
            machine = pm.hardware(MACHINES[part])
            counted = START_S + op.work().bytes / (SHARE[part] * machine.main_memory.bandwidth_bytes_per_s)
            predicted = float(pm.predict(op, machine, timing="do_bench").predicted_time_s)
            size = f"{row['x_name']}={row['x_value']}"
            yield Checked(row["kernel"], row["mode"], size, machine.name, measured, float(counted), predicted)


def main() -> int:
    """Print each kernel and the mean error."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rows = list(checked(table()))
    for row in rows:
        print(f"{row.kernel:24} {row.mode:9} {row.size:18} {row.machine:16} measured {1e6 * row.measured_s:8.1f} us, "
              f"counted {1e6 * row.counted_s:8.1f} us ({row.error:+6.1%}), predicted {1e6 * row.predicted_s:8.1f} us "
              f"({row.predicted_s / row.measured_s - 1:+6.1%})")  # fmt: skip
    for mode in LEAST_S:
        errors = np.array([row.error for row in rows if row.mode == mode])
        ours = np.array([row.predicted_s / row.measured_s - 1 for row in rows if row.mode == mode])
        print(f"{mode}: {errors.size} kernels; by counts mean {np.mean(abs(errors)):.1%}, median "
              f"{np.median(abs(errors)):.1%}, bias {np.mean(errors):+.1%}; predicted mean {np.mean(abs(ours)):.1%}, "
              f"median {np.median(abs(ours)):.1%}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
