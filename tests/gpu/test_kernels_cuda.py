"""Our kernels on a real GPU: every backend and variant against float64. Skipped where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from perfmodel.kernels import registry  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402
from perfmodel.operators import Operator  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.conv2d import Conv2d  # noqa: E402
from perfmodel.operators.dropout import Dropout  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.optimizer import Optimizer  # noqa: E402
from perfmodel.operators.rms_norm import RmsNorm  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU"),
    pytest.mark.filterwarnings(r"ignore:::torch\."),  # advice of torch's own machinery
]


@pytest.fixture(autouse=True)
def _one_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the first configuration of each search space: compiling all of them takes minutes; benchmarks do it."""
    from triton.runtime.autotuner import Autotuner

    pruned = Autotuner.prune_configs
    monkeypatch.setattr(Autotuner, "prune_configs", lambda tuner, arguments: pruned(tuner, arguments)[:1])


def _products() -> Iterator[Operator]:
    for dtype in ("fp32", "tf32", "fp16"):
        yield Gemm(m=513, n=264, k=1000, dtype=dtype)
    yield Gemm(m=1024, n=1536, k=2048, bias=True, activation="gelu", dtype="bf16")
    yield Gemm(m=512, n=768, k=1024, dtype="fp8")
    yield Gemm(m=16, n=4096, k=4096, dtype="bf16")
    yield Gemm(m=200, n=136, k=72, batch=5, bias=True, activation="silu", dtype="bf16")


def _rows() -> Iterator[Operator]:
    for dtype, kind in (("fp32", LayerNorm), ("bf16", RmsNorm), ("fp16", Softmax)):
        yield kind(rows=1000, cols=1600, dtype=dtype)
    for kind in (LayerNorm, RmsNorm, Softmax):
        yield kind(rows=5, cols=32768, dtype="bf16")
        yield kind(rows=3000, cols=33, dtype="bf16")
    yield Softmax(rows=40, cols=50_000, dtype="bf16")


def _elementwise() -> Iterator[Operator]:
    for kind in ("add", "gelu", "silu_mul", "chain4"):
        yield Elementwise(numel=100_003, kind=kind, dtype="bf16")
        yield Elementwise(numel=2**23, kind=kind, dtype="fp32")


def _attentions() -> Iterator[Operator]:
    # in fp32 without tensor cores the compiler takes 15 s for it
    yield Attention(heads=8, kv_heads=2, seq_q=300, head_dim=64, causal=True, dtype="tf32")
    yield Attention(batch=2, heads=4, seq_q=1000, head_dim=128, dtype="bf16")
    yield Attention(heads=4, kv_heads=1, seq_q=500, seq_kv=1100, head_dim=128, causal=True, dtype="bf16")
    yield Attention(heads=4, seq_q=700, head_dim=128, causal=True, window=200, dtype="bf16")
    yield Attention(batch=3, heads=32, kv_heads=8, seq_q=1, seq_kv=5000, head_dim=128, causal=True, dtype="bf16")
    yield Attention(batch=1, heads=8, kv_heads=2, seq_q=4, seq_kv=9000, head_dim=64, causal=True, dtype="fp16")


@pytest.mark.parametrize(
    "op", [*_products(), *_rows(), *_elementwise(), *_attentions()], ids=lambda op: f"{op.op}-{op.dtype}-{op.params()}"
)
def test_every_kernel_agrees_with_float64_on_fresh_inputs(op: Operator) -> None:
    device = open_device("cuda")
    inputs = make_inputs(op, "cuda", seed=1)
    ran, wrong = [], []
    for kernel in registry.find_kernels(op.op):
        # torch.compile is tried on one shape below: it takes seconds for each
        if kernel.compiles or not kernel.applies(op) or kernel.supports(op, device):
            continue
        with device.precision(op.dtype):
            sums = kernel.rounded_sums(op)
            verdict = verify(op, kernel.prepare(op, inputs), inputs, seed=1, rounded_sums=sums)
        ran.append(kernel.backend)
        if not verdict.correct:
            wrong.append(f"{kernel.name}: {verdict.message}, {verdict.max_relative_error:.2g}")
    assert not wrong
    assert {"torch", "triton"} <= set(ran)


@pytest.mark.parametrize(
    "op",
    [
        Gemm(m=256, n=264, k=512, bias=True, activation="gelu", dtype="fp32"),
        RmsNorm(rows=100, cols=1600, dtype="bf16"),
    ],
    ids=lambda op: op.op,
)
def test_compiled_compositions_agree_with_float64(op: Operator) -> None:
    device = open_device("cuda")
    kernel = next(k for k in registry.find_kernels(op.op) if k.compiles)
    assert kernel.supports(op, device) == ""
    inputs = make_inputs(op, "cuda", seed=1)
    with device.precision(op.dtype):
        verdict = verify(op, kernel.prepare(op, inputs), inputs, seed=1)
    assert verdict.correct, verdict


@pytest.mark.parametrize(
    "op",
    [
        Attention(batch=2, heads=4, seq_q=512, head_dim=64, causal=True, dtype="bf16", backward=True),
        Softmax(rows=2048, cols=2048, dtype="bf16", backward=True),
        Conv2d(n=4, c=64, h=28, w=28, k=64, r=3, s=3, padding=1, dtype="fp32"),
        Conv2d(n=4, c=64, h=28, w=28, k=64, r=3, s=3, padding=1, dtype="tf32"),
        Dropout(numel=2**24, dtype="bf16"),
        Optimizer(parameters=2**22, dtype="fp32"),
        Gemm(m=256, n=1024, k=8192, dtype="bf16"),
    ],
    ids=lambda op: f"{op.op}-{op.dtype}",
)
def test_kernels_of_torch_round_no_more_than_derived(op: Operator) -> None:
    device, wrong = open_device("cuda"), []
    inputs = make_inputs(op, "cuda", seed=1)
    for kernel in registry.find_kernels(op.op):
        if kernel.backend == "torch" and kernel.computes(op) and not kernel.compiles and not kernel.refuses(op, device):
            sums, in_place = kernel.rounded_sums(op), kernel.in_place
            with device.precision(op.dtype):
                call = kernel.prepare(op, inputs)
                verdict = verify(op, call, inputs, seed=1, in_place=in_place, rounded_sums=sums)
            if not verdict.correct:
                wrong.append(f"{kernel.name}: {verdict.message}, {verdict.max_relative_error:.2g}")
    assert not wrong


def test_each_backend_of_sdpa_runs_or_says_why_not() -> None:
    device, op = open_device("cuda"), Attention(heads=4, seq_q=512, head_dim=64, causal=True, dtype="bf16")
    reasons = {k.name: k.supports(op, device) for k in registry.find_kernels("attention") if "sdpa" in k.name}
    assert reasons["torch.sdpa.math"] == reasons["torch.sdpa"] == ""
    single = Attention(heads=4, seq_q=512, head_dim=64, dtype="fp32")
    flash = next(k for k in registry.find_kernels("attention") if k.name == "torch.sdpa.flash")
    assert flash.supports(single, device), "flash attention takes 16 bits only"


def test_elements_beyond_32_bits_are_reached() -> None:
    # 2^31 + 8 elements of 2 bytes and as many results: 8 GiB and the check's part of it
    op = Elementwise(numel=2**31 + 8, kind="relu", dtype="bf16")
    device = open_device("cuda")
    if device.free_memory_bytes() < 40e9:  # random numbers are drawn in float32
        pytest.skip("less than 40 GB are free")
    inputs = make_inputs(op, "cuda", seed=1)
    kernel = next(k for k in registry.find_kernels("elementwise") if k.backend == "triton")
    assert verify(op, kernel.prepare(op, inputs), inputs, seed=1).correct
