"""Kernels and layers that another laboratory measured, predicted with nothing fitted on its rows.

    python scripts/other_laboratories.py

Reads ``$PERFMODEL_DATA/other_latency/liger_kernel_benchmarks.csv`` (linkedin/Liger-Kernel @ ead96b618e5c; default:
``../shared/data`` beside the checkout): fused kernels in Triton, which no table of ours knows, and the modules of
PyTorch and transformers that they replace, by many people on A100, H100 and RTX 3090.

Its benchmark is Triton's do_bench, which writes a buffer as large as the caches before each call, behind which the host
hides: times are those of the device between two events, from cold caches. Which PyTorch ran, the table does not say;
the newest kernels at a row's date are taken.
Left out are gradients, which copy what they return into ``.grad``, and modules whose kernels the table does not name.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import liger_counts
import numpy as np
import public_data
from beside import Beside, figures
from liger_counts import Row, config, dtype

import perfmodel as pm
from perfmodel.core.vocabulary import Timing
from perfmodel.prediction.latency.terms import EVENTS_S
from perfmodel.prediction.uncertainty import half_width

#: day of PyTorch's release 2.7, the only one of these years whose kernels are modelled apart from those before it
RELEASE_2_7 = "2025-04-23"
TORCH = "torch"
TABLE = liger_counts.table()
Sizes = dict[str, Any]


def _cross_entropy(c: Sizes) -> pm.Operator:
    return pm.CrossEntropy(rows=c["B"] * c["T"], vocab=c["V"], dtype="fp32")


def _mlp(c: Sizes, kind: str) -> list[pm.Operator]:
    """Return LlamaMLP of transformers: two products, the activation, their product, and one back."""
    rows, hidden, wide = c.get("bsz", c.get("B")) * c["T"], c["hidden_size"], c["intermediate_size"]
    up = pm.Gemm(m=rows, n=wide, k=hidden, dtype="bf16", count=2)
    back = pm.Gemm(m=rows, n=hidden, k=wide, dtype="bf16")
    of = [pm.Elementwise(numel=rows * wide, kind=one, dtype="bf16") for one in (kind, "mul")]
    return [up, *of, back]


def _rms_norm(c: Sizes) -> list[pm.Operator]:
    """Return LlamaRMSNorm of transformers, kernel by kernel: in fp32, and the weight in 16 bits."""
    rows, cols = c["M"], c["H"]
    whole = {"numel": rows * cols}
    return [
        pm.Elementwise(**whole, kind="cast", dtype=dtype(c), out_dtype="fp32"),
        pm.Elementwise(**whole, kind="square", dtype="fp32"),
        pm.Reduction(rows=rows, cols=cols, dtype="fp32"),
        pm.Elementwise(numel=rows, kind="add", num_inputs=1, dtype="fp32"),
        pm.Elementwise(numel=rows, kind="rsqrt", dtype="fp32"),
        pm.Elementwise(**whole, kind="mul", num_inputs=1, dtype="fp32", strided=True),
        pm.Elementwise(**whole, kind="cast", dtype="fp32", out_dtype=dtype(c)),
        pm.Elementwise(**whole, kind="mul", num_inputs=1, dtype=dtype(c), strided=True),
    ]


def _rope(c: Sizes) -> list[pm.Operator]:
    """Return apply_rotary_pos_emb of transformers for q and k: x cos + cat(-x2, x1) sin, of transposed heads."""
    head = c["hidden_size"] // c["num_q_heads"]
    parts: list[pm.Operator] = []
    for heads in (c["num_q_heads"], c["num_kv_heads"]):
        numel = c["T"] * heads * head
        product = pm.Elementwise(numel=numel, kind="mul", num_inputs=1, dtype=dtype(c), strided=True, count=2)
        negated = pm.Elementwise(numel=numel / 2, kind="neg", dtype=dtype(c), strided=True)
        joined = pm.Elementwise(numel=numel, kind="copy", dtype=dtype(c), strided=True)
        parts += [product, negated, joined, pm.Elementwise(numel=numel, kind="add", dtype=dtype(c))]
    return parts


def _relu_squared(c: Sizes) -> list[pm.Operator]:
    return [pm.Elementwise(numel=c["M"] * c["N"], kind=kind, dtype=dtype(c)) for kind in ("relu", "square")]


def _head(c: Sizes) -> list[pm.Operator]:
    """Return the product of the head and the cross entropy of its logits."""
    loss = pm.CrossEntropy(rows=c["BT"], vocab=c["V"], dtype="bf16")
    return [pm.Gemm(m=c["BT"], n=c["V"], k=c["H"], dtype="bf16"), *loss.composition()]


def _forward(kernel: str, provider: str = "liger") -> Callable[[Sizes], pm.Operator]:
    return lambda c: liger_counts.KERNELS[kernel, provider](c, False)


#: kernel, provider -> library, and the operator, or the operators of a layer one after the other
KINDS: dict[tuple[str, str], tuple[str, Callable[[Sizes], Any]]] = {
    **{key: ("liger", _forward(*key)) for key in liger_counts.KERNELS},
    ("layer_norm", "huggingface"): (TORCH, _forward("layer_norm")),
    ("softmax", "torch"): (TORCH, _forward("softmax")),
    ("embedding", "huggingface"): (TORCH, _forward("embedding")),
    ("embedding", "torch_compile"): ("inductor", _forward("embedding")),
    ("megatron_rms_norm", "torch"): (TORCH, _forward("megatron_rms_norm")),
    ("cross_entropy", "huggingface"): (TORCH, _cross_entropy),
    ("rms_norm", "huggingface"): (TORCH, _rms_norm),
    ("rope", "huggingface"): (TORCH, _rope),
    ("relu_squared", "torch"): (TORCH, _relu_squared),
    ("swiglu", "huggingface"): (TORCH, lambda c: _mlp(c, "silu")),
    ("geglu", "huggingface"): (TORCH, lambda c: _mlp(c, "gelu")),
    ("fused_linear_cross_entropy", "huggingface"): (TORCH, _head),
}
#: what the table calls some of them, and what they are
NAMES = {"geglu": "MLP with GELU", "swiglu": "MLP with SiLU", "fused_linear_cross_entropy": "head and cross entropy"}
HEAD = ("kernel or layer", "library", "machine", "rows", "error", "bias", "in the interval", "width", "not seen")


@dataclass(frozen=True, kw_only=True)
class Judged(Beside):
    """One measured kernel or layer and its prediction.

    Attributes
    ----------
    what, library, machine, size : which.
    not_seen : sources of error of the interval beside the shape.
    """

    what: str
    library: str
    machine: str
    size: str
    not_seen: tuple[str, ...]


def judged(path: Path) -> Iterator[Judged]:
    """Yield the forward passes of the table that `KINDS` names and that take as long as a kernel is timed well."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["kernel"], row["provider"]
            part = next((part for part in liger_counts.MACHINES if part in row["gpu_name"]), "")
            measured = float(row["latency_ms"]) * 1e-3
            if row["mode"] == "forward" and key in KINDS and part and measured >= liger_counts.LEAST_S["forward"]:
                yield _predicted(row, *KINDS[key], liger_counts.MACHINES[part], measured)


def _predicted(row: Row, library: str, build: Callable[[Sizes], Any], machine: str, measured: float) -> Judged:
    called = library
    if library == TORCH:
        called = f"{TORCH}-2.7" if row["timestamp"] >= RELEASE_2_7 else f"{TORCH}-2.6"
    ops = build(config(row))
    if isinstance(ops, list):
        whole = pm.predict_model(ops, machine, library=called)
        factor = math.exp(half_width(whole.variances.values()))
        beside = whole.gaps_s + EVENTS_S
        predicted, low, high = (whole.kernels_s * share + beside for share in (1.0, 1.0 / factor, factor))
        unseen = {source for part in whole.parts for source in part.prediction.uncertainty}
    else:
        one = pm.predict(ops, machine, library=called, timing=Timing.DO_BENCH)
        predicted, low, high = map(float, (one.predicted_time_s, one.predicted_time_low_s, one.predicted_time_high_s))
        unseen = set(one.uncertainty)
    what = NAMES.get(row["kernel"], row["kernel"].replace("_", " ")) if isinstance(ops, list) else ops.op
    return Judged(
        what=what, library=library, machine=machine, size=f"{row['x_name']}={row['x_value']}", measured_s=measured,
        predicted_s=predicted, low_s=low, high_s=high, not_seen=tuple(sorted(unseen - {"shape"})),
    )  # fmt: skip


def lines(rows: Sequence[Judged]) -> list[list[str]]:
    """Return the table: a line for each kernel or layer, library and machine, and one for those of each library."""
    groups: Mapping[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.library, row.what, row.machine)):
        groups[row.what, row.library, row.machine].append(row)
    made = [[*key, *figures(group), ", ".join(group[0].not_seen) or "-"] for key, group in groups.items()]
    libraries = dict.fromkeys(library for _, library, _ in groups)
    made += [["all", one, "all", *figures([row for row in rows if row.library == one]), ""] for one in libraries]
    return [*made, ["all", "all", "all", *figures(rows), ""]]


def sentence(rows: Sequence[Judged]) -> str:
    """Return what the README says of PyTorch's rows."""
    of = [row for row in rows if row.library == TORCH]
    error, inside = np.mean([abs(row.error) for row in of]), np.mean([row.inside for row in of])
    return (
        f"Another laboratory: {len(of)} kernels and layers of PyTorch on A100, H100 and RTX 3090 that Liger-Kernel's "
        f"contributors measured come out {100.0 * error:.1f} % off with nothing fitted on them, "
        f"{100.0 * inside:.0f} % in the interval."
    )


def main() -> int:
    """Print each row, and the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not TABLE.is_file():
        return public_data.missing(TABLE)
    rows = list(judged(TABLE))
    for row in rows:
        print(f"{row.what:24} {row.library:8} {row.size:12} {row.machine:14} {1e6 * row.measured_s:9.1f} us, predicted "
              f"{1e6 * row.predicted_s:9.1f} ({1e6 * row.low_s:.1f} to {1e6 * row.high_s:.1f}) {row.error:+6.1%}"
              f"{'' if row.inside else '  outside'}")  # fmt: skip
    for cells in [list(HEAD), *lines(rows)]:
        print("  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
