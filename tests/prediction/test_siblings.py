"""Machines of one generation come in the order of their specifications: less of everything is never faster."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import load_all
from perfmodel.operators.base import Operator
from perfmodel.prediction.designs import generation
from perfmodel.prediction.topology import most_joined

#: random operators of each kind, and of those whose formulas take longer
COUNT, FEWER = 3000, 400
#: most that the machine of lesser figures may be faster by: machines of one chip have the same constants and surface
TOLERANCE = 1.02
#: the same where one of two chips has constants of its own: what the fits of L40S and RTX 4090 differ by
OWN_FIT = 1.25
#: and the start of a kernel on two chips, by what the laboratories that measured them differ [s] (RTX 4090 and L40S)
START = 1e-6
#: the same chip with the same memory, of which one was measured and the other takes what its generation has, and what
#: they differ by: streams of 16 bits, of which an RTX 4090 has rows and an L40S none, by 13 %, and a few products of
#: many rows and few columns by a third
ONE_OF_THEM_MEASURED = {("l40", "l40s"): 1.35}
#: kinds that read a row twice: a chip of fewer SMs has more L2 for each row that is under way
READS_TWICE = ("layer_norm", "softmax")
#: kinds whose time is that of the links
EXCHANGES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
#: TensorRT-LLM chooses among the kernels of one query by how many blocks an SM has (mayHavePerfGain in
#: decoderXQAImplPrecompiled.cpp), not by their time, so that a chip of a few more SMs may get the slower one
CHOSEN_BY_SMS = "trtllm"
#: libraries of operators for which they were measured
LIBRARIES = {"gemm": ("", "sglang", "trtllm", "vllm", "vidur"), "attention": ("", "sglang", "trtllm", "vllm"),
             "all_reduce": ("", "nccl", "sglang_custom_allreduce", "trtllm_custom_allreduce"),
             "moe": ("sglang", "trtllm")}  # fmt: skip


def figures(machine: pm.Hardware) -> dict[str, float]:
    """Return what a machine is sold by, and the rate of one SM."""
    cache = machine.caches[-1].capacity_bytes if machine.caches else None
    found = {
        "SMs": float(machine.sm_count or 0),
        "bandwidth": machine.main_memory.bandwidth_bytes_per_s or 0.0,
        "tdp": machine.tdp_alone_w or machine.tdp_w or 0.0,
        "l2": float(cache or 0.0),
    }
    for peak in machine.peaks:
        found[f"{peak.engine} {peak.dtype}"] = peak.flop_per_s
        found[f"{peak.engine} {peak.dtype} of an SM"] = peak.flop_per_s / (machine.sm_count or 1)
        found[f"{peak.engine} {peak.dtype} clock"] = peak.clock_hz or 0.0
    return found


def has_less(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return whether no figure of one machine is above the other's."""
    return one != other and all(name in other and value <= 1.0001 * other[name] for name, value in one.items())


@functools.cache
def pairs() -> list[tuple[pm.Hardware, pm.Hardware]]:
    """Return the pairs of a generation in which the first has less or as much of everything."""
    machines = [machine for machine in load_all() if machine.kind == "gpu"]
    return [
        (less, more)
        for less, more in itertools.permutations(machines, 2)
        if generation(less) == generation(more) and has_less(figures(less), figures(more))
    ]


def random_operators() -> Iterator[Operator]:
    """Yield `COUNT` operators of each kind and dtype, as often small as large."""
    random = np.random.default_rng(2)

    def draw(power: int) -> NDArray[np.float64]:
        return np.floor(2.0 ** random.uniform(0.0, power, COUNT))

    for dtype in ("fp32", "bf16", "fp8"):
        yield pm.Gemm(m=draw(14), n=draw(14), k=draw(14), dtype=dtype)
    for dtype in ("fp32", "bf16"):
        yield pm.Gemm(m=draw(11), n=draw(11), k=draw(11), batch=1.0 + draw(8), dtype=dtype)
        yield pm.Elementwise(numel=draw(30), dtype=dtype)
        for kind in (pm.LayerNorm, pm.RmsNorm, pm.Softmax, pm.Reduction):
            yield kind(rows=draw(15), cols=draw(15), dtype=dtype)


def random_prompts_and_others() -> Iterator[Operator]:
    """Yield `FEWER` operators of each kind whose formula takes longer."""
    random = np.random.default_rng(3)

    def draw(power: int, least: int = 0) -> NDArray[np.float64]:
        return np.floor(2.0 ** random.uniform(least, power, FEWER))

    yield pm.Pool2d(n=draw(6), c=draw(9), h=draw(7, 3), w=draw(7, 3), k=3.0, dtype="fp32")
    yield pm.Gather(numel=draw(27), dtype="fp32")
    yield pm.Optimizer(parameters=draw(28), dtype="fp32")
    yield pm.Scan(cols=draw(27), dtype="fp32")
    yield pm.Sort(cols=draw(27), dtype="fp32")
    for dtype in ("fp32", "bf16"):
        yield pm.Rope(tokens=draw(15), heads=draw(11), head_dim=2, dtype=dtype)
        yield pm.Embedding(tokens=draw(15), dim=draw(13), vocab=32000, dtype=dtype)
        yield pm.Transpose(rows=draw(15), cols=draw(15), dtype=dtype)
        yield pm.Conv2d(
            n=draw(6), c=draw(9), k=draw(9), h=draw(7, 3), w=draw(7, 3), r=3.0, s=3.0, padding=1, dtype=dtype
        )
    for head_dim in (64.0, 128.0, 256.0):
        kv_heads, tokens = 2.0 ** random.integers(0, 6, FEWER), draw(15, 1)
        shape = {"heads": kv_heads * 2.0 ** random.integers(0, 4, FEWER), "kv_heads": kv_heads, "head_dim": head_dim}
        yield pm.Attention(batch=draw(4), seq_q=tokens, seq_kv=tokens, causal=True, dtype="bf16", **shape)
        yield pm.Attention(batch=draw(8), seq_q=1.0, seq_kv=draw(16), causal=True, dtype="bf16", **shape)
    for scale in ("none", "block:128x128"):
        yield pm.Moe(tokens=draw(13), hidden=4096, inter=1536, experts=128, top_k=8, dtype="fp8", scale=scale)
    yield pm.Gemm(m=draw(14), n=128.0 * draw(7), k=128.0 * draw(7), dtype="fp8", scale="block:128x128")
    for kind in (pm.AllReduce, pm.AllGather, pm.ReduceScatter, pm.Alltoall):
        yield kind(bytes=draw(30, 3), num_gpus=8.0, dtype="bf16")


def _links(machine: pm.Hardware) -> dict[str, float]:
    """Return what the links of a machine carry, and how many GPUs they join."""
    rates = {link.name: link.bandwidth_bytes_per_s for link in machine.links}
    joined = {f"GPUs by {link.name}": float(link.domain or np.inf) for link in machine.links}
    return rates | joined | {"GPUs without a network": float(most_joined(machine))}


def _has_no_better_links(less: pm.Hardware, more: pm.Hardware) -> bool:
    figures_of_more = _links(more)
    return all(value <= figures_of_more.get(name, 0.0) for name, value in _links(less).items())


def _l2_of_an_sm(machine: pm.Hardware) -> float:
    return figures(machine)["l2"] / (machine.sm_count or 1)


def _of_one_chip(less: pm.Hardware, more: pm.Hardware) -> bool:
    """Return whether two machines have the same constants: those of one generation whose memory is stacked have."""
    return all("HBM" in machine.main_memory.technology.upper() for machine in (less, more))


@pytest.mark.waiting
@pytest.mark.parametrize(
    "op", [*random_operators(), *random_prompts_and_others()], ids=lambda op: f"{op.op}-{op.dtype}-{len(op.params())}"
)
def test_a_machine_with_less_of_everything_is_not_faster(op: Operator) -> None:
    compared = 0
    for library in LIBRARIES.get(op.op, ("",)):
        found: dict[str, Any] = {}
        for machine in {machine.name: machine for pair in pairs() for machine in pair}.values():
            with contextlib.suppress(UsageError):  # no peak for the dtype, or no link
                found[machine.name] = pm.predict(op, machine, library=library)
        for less, more in pairs():
            if less.name not in found or more.name not in found:
                continue
            if op.op in READS_TWICE and _l2_of_an_sm(less) > _l2_of_an_sm(more):
                continue
            if op.op in EXCHANGES and not _has_no_better_links(less, more):
                continue
            if library == CHOSEN_BY_SMS and op.op == "attention" and less.sm_count != more.sm_count:
                continue
            compared += 1
            _compare(op, library, less, more, found)
    assert compared > 5


def _compare(op: Operator, library: str, less: pm.Hardware, more: pm.Hardware, found: Mapping[str, Any]) -> None:
    """Fail where the machine of lesser figures is faster."""
    slow, fast = found[less.name], found[more.name]
    own = {*np.atleast_1d(slow.family).tolist()} & {*less.latency, *more.latency}
    one_chip = _of_one_chip(less, more)
    limit = OWN_FIT if own and not one_chip else TOLERANCE
    limit = ONE_OF_THEM_MEASURED.get((less.name, more.name), limit)
    start = 0.0 if one_chip else START
    # Where the time is the bound, it is the measured start of an empty kernel (H200).
    free = np.asarray(fast.predicted_time_s) > 1.0001 * np.asarray(fast.bound_time_s)
    ratio = np.where(free, (np.asarray(fast.predicted_time_s) - start) / np.asarray(slow.predicted_time_s), 0.0)
    if ratio.max() > limit:
        worst = {k: int(v[ratio.argmax()]) for k, v in op.params().items() if isinstance(v, np.ndarray) and v.ndim}
        names = f"{less.name} is {ratio.max():.3f} times as fast as {more.name}"
        pytest.fail(f"{names} at {worst} {library} ({100 * (ratio > limit).mean():.1f} % of them)")


def test_the_pairs_hold_those_that_are_known() -> None:
    names = {(less.name, more.name) for less, more in pairs()}
    assert {
        ("h100-pcie-80gb", "h100-sxm5-80gb"),
        ("h800-sxm5-80gb", "h100-sxm5-80gb"),
        ("a100-pcie-80gb", "a100-sxm4-80gb"),
        ("v100-pcie-16gb", "v100-sxm2-16gb"),
        ("mi300x", "mi325x"),
    } <= names


def test_a_machine_with_another_chip_is_less_sure_than_one_with_the_chip_that_was_measured() -> None:
    op = pm.Gemm(m=64, n=5120, k=5120, dtype="bf16")
    same, other = (pm.predict(op, name, library="trtllm") for name in ("gb200", "b300"))  # 10.0 as B200, and 10.3
    deviations = [found.uncertainty.variances(found.regime)[ErrorSource.MACHINE] ** 0.5 for found in (same, other)]
    # H100 and H200 differ by 0.06, machines of other generations by twice that or more
    assert 2 * deviations[0] < deviations[1]
