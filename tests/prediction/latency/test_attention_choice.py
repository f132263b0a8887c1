"""Which kernel of attention a library launches on a machine, by sizes, dtype and release; what no machine has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.judge import judge_calls
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.choice import NEEDS, choices
from perfmodel.prediction.latency.attention.kernels import KERNELS
from perfmodel.prediction.latency.machine import Machine
from perfmodel.records.measurements import read_measurements


def attention(**sizes: object) -> pm.Attention:
    return pm.Attention(**{"heads": 32, "seq_q": 4096, "head_dim": 128, "dtype": "fp16", **sizes})  # type: ignore[arg-type]


def seconds(machine: str, library: str, **sizes: object) -> float:
    return float(pm.predict(attention(**sizes), machine, library=library).predicted_time_s)


@pytest.mark.parametrize(
    ("machine", "library", "sizes", "kernel"),
    [
        # FlashAttention is for Ampere and later, cuDNN preferred on Hopper and the Blackwell of data centres
        *((name, "torch", {}, "efficient") for name in ("v100-sxm2-16gb", "t4", "p100-pcie-16gb")),
        *((name, "torch", {}, "fa2") for name in ("a100-sxm4-80gb", "l40s", "rtx-5090", "mi300x")),
        *((name, "torch", {}, "cudnn") for name in ("h100-sxm5-80gb", "b200-sxm-180gb")),
        # FlashAttention ends at 256 columns, cuDNN at 128 or 256
        ("a100-sxm4-80gb", "torch", {"head_dim": 256}, "fa2"),
        ("h100-sxm5-80gb", "torch", {"head_dim": 256}, "cudnn"),
        ("b200-sxm-180gb", "torch", {"head_dim": 256}, "fa2"),
        *((name, "torch", {"head_dim": 320}, "efficient") for name in ("a100-sxm4-80gb", "h100-sxm5-80gb")),
        ("h100-sxm5-80gb", "torch", {"head_dim": 100}, "fa2"),
        # releases: 2.5.0 alone, 2.9, and 2.11 on
        *(("h100-sxm5-80gb", f"torch-{v}", {}, "fa2") for v in ("2.1", "2.4", "2.5.1", "2.6", "2.8", "2.10.0")),
        *(("h100-sxm5-80gb", f"torch-{v}", {}, "cudnn") for v in ("2.5.0", "2.9", "2.11", "2.12.1")),
        ("a100-sxm4-80gb", "torch-2.11", {}, "fa2"),
        ("h100-sxm5-80gb", "torch", {"dtype": "fp32"}, "efficient"),
    ],
)
def test_pytorch_runs_what_its_dispatcher_finds_first(
    machine: str, library: str, sizes: dict[str, object], kernel: str
) -> None:
    assert seconds(machine, library, **sizes) == seconds(machine, f"torch/{kernel}", **sizes)


def test_a_sweep_over_heads_has_the_kernel_of_each() -> None:
    heads = np.array([64.0, 128.0, 256.0, 320.0, 512.0])
    got = pm.predict(attention(head_dim=heads), "b200-sxm-180gb", library="torch")
    names = ("cudnn", "cudnn", "fa2", "efficient", "efficient")
    for head_dim, name, time_s, low_s in zip(heads, names, got.predicted_time_s, got.predicted_time_low_s, strict=True):
        alone = pm.predict(attention(head_dim=int(head_dim)), "b200-sxm-180gb", library=f"torch/{name}")
        assert time_s == pytest.approx(float(alone.predicted_time_s))
        assert low_s == pytest.approx(float(alone.predicted_time_low_s))


WINDOWED = {"kv_heads": 8, "seq_q": 16384, "causal": True, "window": 1024}


@pytest.mark.parametrize(
    ("machine", "library", "kernel"),
    [
        *((name, "torch", "efficient") for name in ("a100-sxm4-80gb", "l40s", "rtx-4090")),
        ("h100-sxm5-80gb", "torch-2.7", "efficient"),
        *((name, "torch", "cudnn") for name in ("h100-sxm5-80gb", "b200-sxm-180gb")),
    ],
)
@pytest.mark.parametrize("backward", [False, True])
def test_a_window_is_a_mask_of_all_keys_that_flashattention_does_not_take(
    machine: str, library: str, kernel: str, backward: bool
) -> None:
    sizes = {**WINDOWED, "backward": backward}
    found, full, flash = (
        seconds(machine, name, **{**sizes, **changed})
        for name, changed in (
            (library, {}),
            (f"torch/{kernel}", {"causal": False, "window": 0}),
            ("torch/fa2", {}),
        )
    )
    assert found == seconds(machine, f"torch/{kernel}", **sizes)
    # the square, and a mask to be read beside it
    assert full < found < 2.5 * full
    # which has a window as an argument where it is named
    assert flash < found / 5
    # none is hidden
    wide = {**sizes, "window": 16384}
    assert seconds(machine, library, **wide) == seconds(machine, library, **{**sizes, "window": 0})


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("machine", ["a100-sxm4-80gb", "h100-sxm5-80gb", "mi300x"])
def test_points_with_and_without_a_window_have_the_kernel_of_each(machine: str, backward: bool) -> None:
    windows, lengths = np.array([0.0, 256.0, 8192.0, 1024.0]), np.array([2048.0, 8192.0, 8192.0, 4096.0])
    got = pm.predict(
        attention(causal=True, window=windows, seq_q=lengths, backward=backward), machine, library="torch-2.8"
    )
    for place, (window, length) in enumerate(zip(windows, lengths, strict=True)):
        one = attention(causal=True, window=int(window), seq_q=int(length), backward=backward)
        alone = pm.predict(one, machine, library="torch-2.8")
        for name in ("predicted_time_s", "predicted_time_low_s", "predicted_time_high_s"):
            assert getattr(got, name)[place] == pytest.approx(float(getattr(alone, name)))


@pytest.mark.parametrize("machine", ["a100-sxm4-80gb", "h100-sxm5-80gb"])
def test_one_query_with_a_window_needs_no_mask(machine: str) -> None:
    """Its keys are the last ones of the cache, which a program passes alone."""
    sizes = {"kv_heads": 8, "batch": 8, "seq_kv": 16384, "causal": True, "window": 1024}
    one, two = (seconds(machine, "torch-2.8", **sizes, seq_q=queries) for queries in (1, 2))
    assert one == seconds(machine, "torch/fa2", **sizes, seq_q=1)
    assert two == seconds(machine, "torch/efficient", **sizes, seq_q=2) > one


@pytest.mark.parametrize(
    ("machine", "library", "sizes", "wrong"),
    [
        ("b200-sxm-180gb", "fa3", {}, "fa3 does not run on b200"),
        ("v100-sxm2-16gb", "fa3", {}, "does not run"),
        ("t4", "fa4", {}, "does not run"),
        ("v100-sxm2-16gb", "fa4", {}, "does not run"),
        *((name, "fa2", {}, "does not run") for name in ("v100-sxm2-16gb", "t4", "p100-pcie-16gb")),
        ("t4", "torch/cudnn", {}, "does not run"),
        ("h100-sxm5-80gb", "trtllm_gen", {}, "does not run"),
        ("mi300x", "fa3", {}, "does not run"),
        ("h100-sxm5-80gb", "fa2", {"dtype": "fp8"}, "fa2 has no fp8"),
        ("h100-sxm5-80gb", "fa2", {"kv_dtype": "fp8"}, "fa2 has no fp8"),
        ("h100-sxm5-80gb", "fa2", {"dtype": "fp32"}, "fa2 has no fp32"),
        ("h100-sxm5-80gb", "fa2", {"head_dim": 512}, "fa2 has no heads of 512 columns, but of up to 256"),
        ("h100-sxm5-80gb", "torch/fa2", {"head_dim": 264}, "fa2 has no heads of 264 columns"),
        ("l40s", "fa3", {"dtype": "fp8"}, "fa3 has no fp8"),
        ("h100-sxm5-80gb", "torch", {"dtype": "fp8"}, "scaled_dot_product_attention has no fp8"),
        ("h100-sxm5-80gb", "torch", {"dtype": "fp64"}, "no fused kernel for fp64"),
    ],
)
def test_a_kernel_that_does_not_exist_is_refused(
    machine: str, library: str, sizes: dict[str, object], wrong: str
) -> None:
    with pytest.raises(UsageError, match=wrong):
        seconds(machine, library, **sizes)


@pytest.mark.parametrize(
    ("machine", "library", "sizes"),
    [
        # sgl-kernel builds FlashAttention-3 for Ampere and Ada
        ("a100-sxm4-80gb", "fa3", {}),
        ("l40s", "fa3", {}),
        ("h100-sxm5-80gb", "fa3", {"dtype": "fp8"}),
        ("h100-sxm5-80gb", "fa4", {}),
        ("a100-sxm4-80gb", "fa4", {}),
        ("rtx-5090", "fa4", {}),
        ("b200-sxm-180gb", "fa4", {}),
        ("b200-sxm-180gb", "fa2", {}),
        ("mi300x", "fa2", {}),
        ("t4", "torch/efficient", {"dtype": "fp32"}),
        ("t4", "flashinfer", {}),
        ("h100-sxm5-80gb", "torch", {"dtype": "fp64", "algorithm": "unfused"}),
    ],
)
def test_kernels_that_exist_are_not_refused(machine: str, library: str, sizes: dict[str, object]) -> None:
    assert seconds(machine, library, **sizes) > 0.0


def test_what_is_named_is_known_and_machines_of_symbols_are_not_asked() -> None:
    assert set(NEEDS) <= set(KERNELS)
    machine = Machine(100.0, 1e9, 4e14, "tensor", "bf16", 1e13, 1e13, 0.0, np.inf)
    conditions = Conditions(library="torch")
    assert choices(attention(dtype="fp8"), machine, conditions) == [(True, conditions)]


def test_rows_of_a_kernel_that_does_not_exist_are_left_out_with_the_reason(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(
        "hardware,op,dtype,heads,seq_q,head_dim,time_s,implementation\n"
        "b200-sxm-180gb,attention,bf16,32,4096,128,1e-4,fa3\n"
        "b200-sxm-180gb,attention,bf16,32,4096,128,1e-4,fa4\n"
    )
    judged, skipped = judge_calls([read_measurements(table)], hardware)
    assert [part.calls.library for part in judged] == ["fa4"]
    assert ["fa3 does not run" in skip.reason for skip in skipped] == [True]


CACHE = {"heads": 32, "kv_heads": 1, "batch": 128, "seq_q": 1, "seq_kv": 4096, "dtype": "bf16"}


def test_tensorrt_llm_decodes_by_the_kernels_of_tcgen05_but_in_the_release_that_fell_back() -> None:
    """The fallback reads the cache for each head of a group, which takes 20 times as long as its bytes."""
    own, gen, fallback = (
        seconds("b200-sxm-180gb", name, **CACHE, kv_write=True)
        for name in ("trtllm", "trtllm/trtllm_gen", "trtllm-1.3.0rc10")
    )
    assert own == gen
    assert fallback > 10 * own
    bound = pm.predict(attention(**CACHE), "b200-sxm-180gb").bound_time_s
    assert own < 2 * bound
    one, other = (seconds("h100-sxm5-80gb", name, **CACHE) for name in ("trtllm", "trtllm-1.3.0rc10"))
    assert one == other


def test_prompts_of_tensorrt_llm_keep_its_kernels_beside_decodes_of_others() -> None:
    queries = np.array([1.0, 4096.0, 1.0])
    both = attention(kv_heads=8, batch=4, seq_q=queries, seq_kv=4096.0, dtype="bf16", causal=True)
    got = pm.predict(both, "b200-sxm-180gb", library="trtllm").predicted_time_s
    sizes = {"kv_heads": 8, "batch": 4, "seq_kv": 4096, "dtype": "bf16", "causal": True}
    for place, queries_of_one in enumerate((1, 4096, 1)):
        alone = seconds("b200-sxm-180gb", "trtllm", **sizes, seq_q=queries_of_one)
        assert got[place] == pytest.approx(alone)
    prompt = seconds("b200-sxm-180gb", "trtllm-1.3.0rc10", **sizes, seq_q=4096)
    assert got[1] == pytest.approx(prompt)


def width(library: str, **sizes: object) -> float:
    found = pm.predict(attention(**{**CACHE, **sizes}), "b200-sxm-180gb", library=library)
    return float(found.predicted_time_high_s / found.predicted_time_s)


def test_a_decode_that_may_run_on_the_lanes_or_keep_its_keys_whole_is_less_sure() -> None:
    """FlashInfer's lanes take longer than the bytes of groups alone, FlashAttention-4 leaves SMs idle in few blocks."""
    assert width("flashinfer", kv_heads=8) > 1.3 * width("flashinfer", kv_heads=32)
    assert width("flashinfer_fa2", kv_heads=8) < 1.1 * width("flashinfer_fa2", kv_heads=32)
    assert width("fa4", kv_heads=8, batch=8, seq_kv=32768) > 1.3 * width("fa4", kv_heads=8, batch=64)


@pytest.mark.parametrize("kernel", ["fa2", "fa3", "flashinfer"])
@pytest.mark.parametrize("machine", ["a30", "h100"])
def test_a_kernel_that_is_named_has_windows_as_an_argument(kernel: str, machine: str) -> None:
    """PyTorch visits all keys of a window, which calls of no library may do, and a kernel of that name does not."""
    op = pm.Attention(batch=8, heads=32, seq_q=4096, head_dim=128, causal=True, window=128, dtype="fp16")
    masked = float(pm.predict(op, machine, library="torch").predicted_time_s)
    named, unnamed = (float(pm.predict(op, machine, library=name).predicted_time_high_s) for name in (kernel, ""))
    assert 2.0 * named < masked <= unnamed
