"""Every kernel against the float64 reference, in every dtype, and the checker against kernels that are wrong."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from perfmodel.kernels import registry  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check import UNIT_ROUNDOFF, _tolerance, check, select  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.reference import Reference  # noqa: E402
from perfmodel.kernels.reference.attention import hidden  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import KINDS, Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.reduction import Reduction  # noqa: E402
from perfmodel.operators.rms_norm import RmsNorm  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402

DTYPES = ("fp64", "fp32", "bf16", "fp16")
CPU = open_device("cpu")


def _operators(dtype):
    yield Gemm(m=33, n=17, k=29, dtype=dtype)
    yield Gemm(m=65, n=30, k=700, bias=True, activation="gelu", dtype=dtype)
    yield Gemm(m=9, n=17, k=257, batch=3, bias=True, activation="relu", dtype=dtype)
    yield Gemm(m=9, n=17, k=300, batch=2, activation="silu", dtype=dtype)
    yield LayerNorm(rows=37, cols=1000, dtype=dtype)
    yield LayerNorm(rows=1, cols=8, dtype=dtype)
    yield RmsNorm(rows=37, cols=1000, dtype=dtype)
    yield Softmax(rows=37, cols=1000, dtype=dtype)
    yield Reduction(rows=9, cols=5000, dtype=dtype)
    yield Attention(heads=2, seq_q=50, head_dim=64, dtype=dtype)
    yield Attention(batch=2, heads=4, seq_q=64, head_dim=32, causal=True, dtype=dtype)
    yield Attention(heads=4, kv_heads=2, seq_q=33, seq_kv=65, head_dim=32, causal=True, dtype=dtype)
    yield Attention(heads=4, seq_q=64, head_dim=32, causal=True, window=9, dtype=dtype)
    yield Attention(heads=2, seq_q=5, seq_kv=64, head_dim=32, causal=True, window=9, dtype=dtype)
    yield Attention(batch=2, heads=8, kv_heads=2, seq_q=1, seq_kv=513, head_dim=64, causal=True, dtype=dtype)
    yield Attention(heads=2, seq_q=40, head_dim=16, causal=True, algorithm="unfused", dtype=dtype)
    for kind in KINDS:
        yield Elementwise(numel=1001, kind=kind, dtype=dtype)
    yield Elementwise(numel=1001, kind="mul", num_inputs=1, dtype=dtype)
    yield Elementwise(numel=1001, kind="silu_mul", num_inputs=1, dtype=dtype)


def _runs():
    for dtype in DTYPES:
        for op in _operators(dtype):
            for kernel in registry.find_kernels(op.op):
                if kernel.applies(op) and not kernel.supports(op, CPU) and not kernel.compiles:
                    yield pytest.param(op, kernel, id=f"{op.op}-{op.params()}-{dtype}-{kernel.name}")


@pytest.mark.parametrize(("op", "kernel"), _runs())
def test_kernel_agrees_with_float64_and_leaves_its_inputs_alone(op, kernel):
    inputs = make_inputs(op, "cpu", seed=1)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    with CPU.precision(op.dtype):
        call = kernel.prepare(op, inputs)
        first, second = call(), call()
    verdict = check(op, inputs, first)
    assert verdict.correct, verdict
    assert verdict.checked == "all outputs"
    # a generous normwise limit that does not come from the checker: up to 1000 terms are added here
    assert verdict.max_relative_error < 32 * UNIT_ROUNDOFF[op.dtype]
    assert torch.equal(first, second)
    assert all(torch.equal(before[name], tensor) for name, tensor in inputs.items())


def test_naive_exists_for_each_operator_of_the_first_release():
    rows = [kind(rows=4, cols=4) for kind in (LayerNorm, RmsNorm, Softmax)]
    for op in (Gemm(m=8, n=8, k=512, bias=True), Attention(heads=1, seq_q=8, head_dim=8), *rows):
        assert {"naive", "compiled"} < {k.name for k in registry.find_kernels(op.op) if k.applies(op)}
    naive = next(k for k in registry.find_kernels("elementwise") if k.name == "naive")
    chains = {kind for kind in KINDS if naive.applies(Elementwise(numel=1, kind=kind))}
    assert {"gelu", "silu", "sigmoid", "silu_mul", "chain4"} <= chains
    assert "add" not in chains


def test_kernel_modules_declare_their_own_operator_and_unique_names():
    for operator in ("gemm", "elementwise", "layer_norm", "rms_norm", "softmax", "attention", "reduction"):
        kernels = registry.find_kernels(operator)
        assert kernels
        assert {kernel.operator for kernel in kernels} == {operator}
        assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert registry.find_kernels("memcpy") == []


def _library(op):
    inputs = make_inputs(op, "cpu", seed=3)
    with CPU.precision(op.dtype):
        return inputs, registry.find_kernels(op.op)[0].prepare(op, inputs)()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "op",
    [
        Gemm(m=64, n=64, k=256, bias=True),
        LayerNorm(rows=16, cols=512),
        Attention(heads=2, seq_q=256, head_dim=64, causal=True),
        Elementwise(numel=4096, kind="gelu"),
    ],
    ids=lambda op: op.op,
)
def test_checker_catches_zeros_a_shift_nan_and_a_wrong_shape(op, dtype):
    changed = {"dtype": dtype} | {
        name: dtype for name in ("out_dtype", "kv_dtype", "weight_dtype") if hasattr(op, name)
    }
    op = dataclasses.replace(op, **changed)
    inputs, output = _library(op)
    assert check(op, inputs, output).correct
    assert not check(op, inputs, torch.zeros_like(output)).correct
    assert not check(op, inputs, (output.double() + 0.2 * output.double().abs().max()).to(output.dtype)).correct
    broken = output.clone()
    broken.view(-1)[-1] = math.nan
    assert not check(op, inputs, broken).correct
    assert "instead of shape" in check(op, inputs, output[..., :1]).message


def test_checker_catches_a_forgotten_bias_and_a_forgotten_mask():
    op = Gemm(m=32, n=32, k=1024, bias=True, dtype="bf16")
    inputs, _ = _library(op)
    assert not check(op, inputs, inputs["a"] @ inputs["b"]).correct
    op = Attention(heads=1, seq_q=128, head_dim=64, causal=True, dtype="bf16")
    inputs, _ = _library(op)
    unmasked = torch.nn.functional.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"])
    assert not check(op, inputs, unmasked).correct


def test_large_output_is_checked_in_part_and_says_so():
    op = Elementwise(numel=2**22 + 1, kind="copy")
    inputs, output = _library(op)
    verdict = check(op, inputs, output)
    assert verdict.correct
    looked_at, of, total, _ = verdict.checked.split()
    assert of == "of"
    assert int(total) == 2**22 + 1
    assert 0 < int(looked_at) < 2**22 + 1


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=4).map(tuple),
    st.floats(0, 1e15),
    st.integers(0, 10),
)
def test_selection_stays_in_range_has_the_corners_and_respects_the_budget(shape, flop, seed):
    chosen = select(shape, flop, seed, torch.device("cpu"))
    for size, indices in zip(shape, chosen, strict=True):
        assert indices[0] == 0
        assert indices[-1] == size - 1
        assert indices.numel() == indices.unique().numel() <= size
    count = math.prod(indices.numel() for indices in chosen)
    floor = math.prod(min(2, size) for size in shape)
    assert count <= max(2**22, floor)
    assert count * flop / math.prod(shape) <= max(2e9, 2 * floor * flop / math.prod(shape))


def test_the_budget_of_a_check_from_both_sides():
    """4 M elements, or 2 GFLOP, are compared as a whole; one element or a little FLOP more are not."""
    cpu = torch.device("cpu")

    def whole(size, flop):
        return select((size,), flop, 0, cpu)[0].numel() == size

    assert whole(2**22, 0.0)
    assert not whole(2**22 + 1, 0.0)
    assert whole(1000, 1.99e9)
    assert not whole(1000, 2.01e9)


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "expected"),
    [
        # 4 (u R + sqrt(L) u_acc S + eta) with R = 3, S = 5, L = 16
        ("fp32", "fp32", 4 * (2**-24 * 3 + 4 * 2**-24 * 5)),
        ("fp64", "fp64", 4 * (2**-53 * 3 + 4 * 2**-53 * 5)),
        ("bf16", "bf16", 4 * (2**-8 * 3 + 4 * 2**-24 * 5)),
        ("tf32", "tf32", 4 * (2**-11 * 3 + 4 * 2**-24 * 5)),
        ("fp16", "fp16", 4 * (2**-11 * 3 + 4 * 2**-24 * 5 + 2**-25)),
        # sums of 8-bit products are rounded to 14 bits, once in 32 of them
        ("fp8", "bf16", 4 * (2**-8 * 3 + math.sqrt(16 / 32) * 2**-14 * 5)),
    ],
)
def test_the_tolerance_by_hand(dtype, out_dtype, expected):
    three, five = torch.full((1,), 3.0, dtype=torch.float64), torch.full((1,), 5.0, dtype=torch.float64)
    tolerance = _tolerance(dtype, out_dtype, Reference(three, three, five, 16))
    assert float(tolerance) == pytest.approx(expected, rel=1e-12)


@given(st.data())
def test_mask_hides_what_the_operator_does_not_count(data):
    """The FLOP count and the kernels' mask are two statements of one rule: visible pairs = op.pairs()."""
    seq_kv = data.draw(st.integers(1, 40))
    seq_q = data.draw(st.integers(1, seq_kv))
    window = data.draw(st.integers(0, 45))
    op = Attention(heads=1, seq_q=seq_q, seq_kv=seq_kv, head_dim=8, causal=True, window=window)
    mask = hidden(op, torch.arange(seq_q))
    assert mask.shape == (seq_q, op.keys()), "of keys that no query sees there is no tensor"
    assert int((~mask).sum()) == op.pairs()
    assert bool((~mask).any(-1).all()), "every query sees at least itself"


def test_inputs_repeat_with_the_seed_and_differ_from_tensor_to_tensor():
    op = Gemm(m=16, n=16, k=16, dtype="fp16")
    one, same, other = (make_inputs(op, "cpu", seed) for seed in (1, 1, 2))
    assert torch.equal(one["a"], same["a"])
    assert not torch.equal(one["a"], other["a"])
    assert not torch.equal(one["a"], one["b"])
    assert one["a"].dtype is torch.float16
    assert set(one) == {"a", "b"}, "the output is not an input"


def test_inputs_are_standard_normal():
    values = make_inputs(Elementwise(numel=100_000, kind="relu"), "cpu", seed=0)["x"]
    # mean and deviation of n = 1e5 samples: standard errors 0.003 and 0.002
    assert abs(float(values.mean())) < 0.02
    assert abs(float(values.std()) - 1) < 0.02


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (Gemm(m=8, n=8, k=8, dtype="fp8"), "no torch kernel for fp8"),
        (Gemm(m=8, n=8, k=8, dtype="int8"), "no torch kernel for int8"),
        (Gemm(m=8, n=8, k=8, dtype="tf32"), "tensor cores"),
        (Elementwise(numel=8, kind="dropout"), "random"),
        (Elementwise(numel=8, kind="add", num_inputs=3), "no single call for add of 3 tensors"),
        (Attention(heads=1, seq_q=8, head_dim=8, algorithm="unfused"), "unfused"),
        (Attention(heads=1, seq_q=8, head_dim=8, dtype="bf16", kv_dtype="fp16"), "fp16 keys"),
    ],
)
def test_what_a_kernel_cannot_do_has_a_reason(op, words):
    assert words in registry.find_kernels(op.op)[0].supports(op, CPU)


def test_float32_products_are_full_float32_unless_tf32_is_asked_for():
    before = torch.get_float32_matmul_precision()
    with CPU.precision("fp32"):
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.is_inference_mode_enabled()
    with CPU.precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(ValueError, match="stop"), CPU.precision("tf32"):
        raise ValueError("stop")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn", "math"])
def test_every_backend_of_sdpa_has_a_kernel_that_runs_or_says_why_not(backend):
    kernel = next(k for k in registry.find_kernels("attention") if k.name == f"torch.sdpa.{backend}")
    reason = kernel.supports(Attention(heads=2, seq_q=8, head_dim=16), CPU)
    assert reason == ("" if backend in ("flash", "math") else "torch has this backend only on GPUs")


def test_a_backend_that_torch_refuses_is_skipped_with_a_reason(monkeypatch):
    from perfmodel.kernels.torch import _sdpa

    # torch's CPU has neither of the two: asked for them, it refuses
    monkeypatch.setattr(_sdpa, "_ON_CPU", ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION"))
    op = Attention(heads=2, seq_q=8, head_dim=16)
    for backend in ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        assert _sdpa.supports(backend, op, CPU) == "torch reports that this backend does not support it"
    # and the question leaves torch's own choice as it was
    assert torch.backends.cuda.flash_sdp_enabled()


def test_products_of_8_bits_are_checked_against_what_8_bits_hold():
    op = Gemm(m=32, n=48, k=512, bias=True, activation="relu", dtype="fp8")
    kernels = [k for k in registry.find_kernels("gemm") if k.applies(op) and not k.supports(op, CPU)]
    assert [k.name for k in kernels] == ["torch.scaled_mm"]
    inputs = make_inputs(op, "cpu", seed=2)
    output = kernels[0].prepare(op, inputs)()
    assert check(op, inputs, output).correct
    # one of the 512 products forgotten is seen: its size is about 1, the tolerance a few hundredths of sqrt(512)
    inputs["a"][..., 0] = 0.0
    assert not check(op, inputs, output).correct


@pytest.mark.slow
@pytest.mark.waiting
def test_a_compiled_composition_agrees_with_float64():
    op = Softmax(rows=5, cols=33)
    kernel = next(k for k in registry.find_kernels("softmax") if k.name == "compiled")
    if kernel.supports(op, CPU):
        pytest.skip(kernel.supports(op, CPU))
    inputs = make_inputs(op, "cpu", seed=1)
    # compiling programs that try the CPU's vector instructions, and headers for later ones, is most of the time
    quick = torch._inductor.config.patch({"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False})
    with CPU.precision("fp32"), quick:
        call = kernel.prepare(op, inputs)
        verdict = verify(op, call, inputs, seed=1)
    assert verdict.correct, verdict


def test_compiling_without_a_compiler_is_refused_with_the_names_of_some(monkeypatch):
    from perfmodel.kernels.torch import _compile

    monkeypatch.setattr(_compile.shutil, "which", lambda name: None)
    kernel = next(k for k in registry.find_kernels("rms_norm") if k.name == "compiled")
    assert "g++ or clang++" in kernel.supports(RmsNorm(rows=2, cols=2), CPU)
