"""Kernels of other people's traces and op graphs beside their predictions, with next to nothing fitted on them.

    python scripts/other_laboratories_traces.py

Reads ``$PERFMODEL_DATA/traces``, ``nsys`` and ``profile_tables`` (default: ``../shared/data`` beside the checkout).
Each operator with its shapes is a row. Its time in a trace is the mean of its calls in the profiler's steps, predicted
as `perfmodel diagnose` does: on cold caches, by the library that the call and the kernels' names tell. Those of an op
graph (sitar-lab/NeuSight @ 6945927d9afc; fp32, PyTorch 2.1) stand between events, whose cost is that of its views; its
products take 1.5 times as long as the same ones in these authors' tables, at one clock or another.

Left out are collectives, whose kernels wait for other ranks, and what has no shapes; `left_out` lists it. Traces of
2021 name no GPU: 80 SMs (warps over "warps per SM") and cuDNN's kernels for Volta are a V100. `ADDRESS_CYCLES` rests
on 9 of these operators in the trace of Qwen1.5 and 6 in the op graphs. Deviations of such kernels, of fills and of
filters, and `GAP_OF_FLOOR` were chosen with these rows in view: coverage is not blind.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import public_data
from beside import figures
from other_laboratories import Judged

import perfmodel as pm
from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.limits import profile_limits
from perfmodel.formats import read_profile

Shapes = list[list[int]]
DATA = public_data.path_of()
#: file -> what the table calls it, and the machine
TRACES = {
    "traces/hta_a100_2rank_nccl_resnet.json.gz": ("ResNet, DDP", "a100-sxm4-40gb"),
    "traces/hta_alexnet_a100_big_gaps.json.gz": ("AlexNet", "a100-sxm4-40gb"),
    "traces/kineto_resnet50_train_nw0_2021.pt.trace.json.gz": ("ResNet-50, 0 loaders", "v100-sxm2-32gb"),
    "traces/kineto_resnet50_train_nw4_2021.pt.trace.json.gz": ("ResNet-50, 4 loaders", "v100-sxm2-32gb"),
    "traces/tracelens_h100_bert-small.json.gz": ("BERT-small", "h100-sxm5-80gb"),
    "traces/tracelens_h100_qwen1.5-0.5b_prefill.json.gz": ("Qwen1.5-0.5B, prefill", "h100-sxm5-80gb"),
    "traces/tracelens_mi300_resnet_act_checkpoint_ddp.json.gz": ("ResNet, DDP", "mi300x"),
    "traces/tracelens_sglang_qwen3-8b_decode_cudagraph_mi300.json.gz": ("Qwen3-8B, decode", "mi300x"),
    "traces/tracelens_torch_compile_triton_mi300.json.gz": ("layer, torch.compile", "mi300x"),
    "nsys/ginda_h100_2gpu_megatron_before.sqlite": ("Megatron", "h100-sxm5-80gb"),
}
GRAPHS = {
    "profile_tables/neusight_opgraph_A100-PCIE-40GB_bert_large-inf-512-16.csv": ("BERT-large", "a100-pcie-40gb"),
    "profile_tables/neusight_opgraph_A100-PCIE-40GB_gpt2_large-inf-1024-4.csv": ("GPT2-large", "a100-pcie-40gb"),
    "profile_tables/neusight_opgraph_H100_80GB_HBM3_bert_large-train-512-2.csv": ("BERT-large", "h100-sxm5-80gb"),
}
HEAD = ("run", "machine", "operator", "kernels", "error", "bias", "in the interval", "width")
#: least time of a call in traces that round to whole microseconds [s]; least share of a run's time in `left_out`
LEAST_WHOLE_S, LEAST_SHARE = 5e-6, 0.01
#: calls of the graphs that run no kernel, and the least time over that of these that is a kernel's, not the dispatch's
VIEWS, LEAST_RATIO = ("view", "permute", "transpose"), 5.0


@dataclass(frozen=True, kw_only=True)
class Called(Judged):
    """One operator (``what``) of a run (``library``) with its shapes (``size``): times of a call, and the calls."""

    kernels: int = 1


def judged(data: Path = DATA) -> Iterator[Called]:
    """Yield the operators of all runs that have a prediction."""
    for file, (run, machine) in TRACES.items():
        profile = read_profile(data / file)
        times_us = 1e6 * profile.timeline.gpu.duration_s if profile.timeline else np.zeros(1)
        least_s = LEAST_WHOLE_S if np.allclose(times_us, np.rint(times_us), rtol=0.0, atol=1e-3) else 0.0
        for limit in profile_limits(profile, pm.hardware(machine)):
            entry, calls = limit.entry, limit.entry.calls or 0
            if limit.predicted_time_s is None or entry.op is None or entry.category is EventKind.COMMUNICATION:
                continue
            of_all = (entry.time_s, limit.predicted_time_s, limit.predicted_low_s, limit.predicted_high_s)
            times = [float(time_s or 0.0) / calls for time_s in of_all]
            if times[0] >= least_s:
                yield _called(entry.op, run, machine, entry.name, times, limit.not_seen, calls)
    for file, (run, machine) in GRAPHS.items():
        for op, measured in graph(data / file):
            found = pm.predict(op, machine, library="torch-2.1")
            of_all = (measured, found.predicted_time_s, found.predicted_time_low_s, found.predicted_time_high_s)
            yield _called(op, run, machine, op.name, [float(time_s) for time_s in of_all], tuple(found.uncertainty))


def _called(
    op: pm.Operator, run: str, machine: str, name: str, times: Sequence[float], unseen: tuple[str, ...], calls: int = 1
) -> Called:
    measured, predicted, low, high = times
    return Called(
        what=_kind(op), library=run, machine=machine, size=name, measured_s=measured, predicted_s=predicted,
        low_s=low, high_s=high, not_seen=unseen, kernels=calls,
    )  # fmt: skip


def _kind(op: pm.Operator) -> str:
    return f"{op.op} backward" if getattr(op, "backward", False) else op.op


def lines(rows: Sequence[Called]) -> list[list[str]]:
    """Return a line for each run, machine and operator, those with most time first, and one for all of a run."""
    runs: dict[tuple[str, str], dict[str, list[Called]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        runs[row.library, row.machine][row.what].append(row)
    made = []
    for run, operators in runs.items():
        longest = sorted(operators.items(), key=lambda item: -sum(row.kernels * row.measured_s for row in item[1]))
        made += [[*run, name, *_figures(group)] for name, group in longest]
        made.append([*run, "all", *_figures([row for group in operators.values() for row in group])])
    return [*made, ["all", "all", "all", *_figures(rows)]]


def _figures(rows: Sequence[Called]) -> list[str]:
    """Return kernels, mean error, bias, coverage and median width; each operator with its shapes counts once."""
    return figures(rows, sum(row.kernels for row in rows))


def left_out(data: Path = DATA) -> Iterator[list[str]]:
    """Yield run, machine, call or kernel, share of the run's time and reason of what is not judged."""
    for file, (run, machine) in TRACES.items():
        profile = read_profile(data / file)
        parts: dict[tuple[str, str], float] = defaultdict(float)
        for limit in profile_limits(profile, pm.hardware(machine)):
            waits = limit.entry.category is EventKind.COMMUNICATION
            if limit.predicted_time_s is None or waits:
                name = limit.entry.name.partition("(")[0] if waits else limit.entry.launched_by or limit.entry.name
                reason = "waits for other ranks" if waits else limit.why_unknown
                parts[name, reason] += limit.entry.time_s / profile.total_time_s
        for (name, reason), share in sorted(parts.items(), key=lambda item: -item[1]):
            if share >= LEAST_SHARE:
                yield [run, machine, name, f"{share:.1%}", reason]


def graph(path: Path) -> Iterator[tuple[pm.Operator, float]]:
    """Yield the forward operators of an op graph that run a kernel, with their times beyond those of views [s]."""
    before = csv.field_size_limit(10**8)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["op"].startswith("call_") and "float32" in row["dtype"]]
    csv.field_size_limit(before)  # the limit is the process's
    empty_s = 1e-3 * float(np.median([float(row["fw_latency"]) for row in rows if row["target"] in VIEWS]))
    for row in rows:
        measured, name = 1e-3 * float(row["fw_latency"]), row["Name"].rstrip("0123456789").rstrip("_")
        build = _module if row["op"] == "call_module" else _FUNCTIONS.get(name)
        inputs, out = literal_eval(row["input_shapes"]), list(literal_eval(row["output_shape"]))
        op = build(row["target"], inputs, out) if build else None
        if op is not None and measured >= LEAST_RATIO * empty_s:
            yield op, measured - empty_s


def _module(target: str, inputs: Shapes, out: list[int]) -> pm.Operator | None:
    """Return the operator of a module by its name in transformers."""
    x, name = inputs[0], target.rpartition(".")[2]
    rows, cols = math.prod(x[:-1]), x[-1]
    if "dropout" in name or name == "drop":
        return pm.Dropout(numel=math.prod(x), dtype="fp32")
    if name.startswith("ln_") or name == "LayerNorm":
        return pm.LayerNorm(rows=rows, cols=cols, dtype="fp32")
    if "embeddings" in name or name in ("wte", "wpe"):
        return None  # the graph has no size of its table
    if name == "activation":
        return pm.Elementwise(numel=math.prod(x), kind="tanh", dtype="fp32")
    return pm.Gemm(m=rows, n=out[-1], k=cols, bias=name != "lm_head", dtype="fp32")


def _elementwise(kind: str) -> Callable[[str, Shapes, list[int]], pm.Operator]:
    def build(target: str, inputs: Shapes, out: list[int]) -> pm.Operator:
        numel, sizes = math.prod(out), [math.prod(shape) for shape in inputs]
        full = max(1, sum(size == numel for size in sizes))
        spread = any(size < numel for size in sizes) or kind == "copy"
        return pm.Elementwise(numel=numel, kind=kind, num_inputs=full, strided=spread, dtype="fp32")

    return build


def _product(target: str, inputs: Shapes, out: list[int]) -> pm.Operator:
    *bias, a, b = inputs
    return pm.Gemm(m=a[-2], n=b[-1], k=a[-1], batch=math.prod(a[:-2]), bias=bool(bias), dtype="fp32")


_FUNCTIONS: dict[str, Callable[[str, Shapes, list[int]], pm.Operator | None]] = {
    **{name: _elementwise(name) for name in ("add", "sub", "mul", "pow", "tanh", "gelu", "where")},
    "truediv": _elementwise("div"),
    "contiguous": _elementwise("copy"),
    "matmul": _product,
    "addmm": _product,
    "softmax": lambda _, inputs, out: pm.Softmax(rows=math.prod(out[:-1]), cols=out[-1], dtype="fp32"),
}


def main() -> int:
    """Print the table, and what is left out."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not (DATA / "traces").is_dir():
        return public_data.missing(DATA / "traces")
    for cells in [list(HEAD), *lines(list(judged())), [], ["left out"], *left_out()]:
        print("  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
