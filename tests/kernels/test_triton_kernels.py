"""Our Triton kernels against float64: under Triton's interpreter, at sizes that are no multiple of anything."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from perfmodel.kernels import registry  # noqa: E402 -- after the check that torch and triton are there
from perfmodel.kernels.check import check  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.triton import attention as attention_kernels  # noqa: E402
from perfmodel.kernels.triton import gemm as gemm_kernels  # noqa: E402
from perfmodel.kernels.triton import softmax as softmax_kernels  # noqa: E402
from perfmodel.kernels.verify import poisoned_allocators  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.rms_norm import RmsNorm  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402

interpreted = pytest.mark.skipif(
    not triton.knobs.runtime.interpret, reason="the interpreter must be chosen before triton is imported"
)
HALF = ("bf16", "fp16")
ALL = ("fp32", *HALF)
CPU = open_device("cpu")


class FakeGpu:
    """Stands in for a CUDA device where a kernel is asked what it supports."""

    kind = "cuda"


def _kernels(op):
    return [k for k in registry.find_kernels(op.op) if k.backend == "triton" and k.applies(op)]


def _judged(op, kernel):
    inputs = make_inputs(op, "cpu", seed=1)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    call = kernel.prepare(op, inputs)
    with poisoned_allocators():
        output = call()
    assert all(torch.equal(before[name].float(), tensor.float()) for name, tensor in inputs.items())
    return check(op, inputs, output)


def _products():
    for dtype in (*ALL, "fp8"):
        # 2 x 2 tiles of 32 x 32 for the 2 blocks of a persistent kernel; k, n: whole 16 bytes in every dtype
        yield Gemm(m=40, n=48, k=48, bias=True, activation="gelu", dtype=dtype)
        yield Gemm(m=9, n=17, k=29, batch=3, dtype=dtype)
    yield Gemm(m=35, n=17, k=40, batch=2, bias=True, activation="silu", dtype="bf16")
    for activation in ("relu", "sigmoid", "tanh"):
        yield Gemm(m=5, n=7, k=9, activation=activation, dtype="fp16")
    yield Gemm(m=16, n=16, k=128, dtype="bf16", out_dtype="fp32")
    yield Gemm(m=80, n=72, k=64, bias=True, activation="gelu", dtype="bf16")
    yield Gemm(m=257, n=68, k=72, dtype="tf32")
    yield Gemm(m=256, n=33, k=40, batch=2, dtype="tf32")


def _rows():
    for dtype in ALL:
        for kind in (LayerNorm, RmsNorm, Softmax):
            yield kind(rows=3, cols=1025, dtype=dtype)
        yield kind(rows=3, cols=1, dtype=dtype)


def _elementwise():
    for dtype in ALL:
        for kind in ("add", "mul", "silu_mul", "chain4", "gelu", "silu", "relu", "copy"):
            yield Elementwise(numel=1001, kind=kind, dtype=dtype)
    yield Elementwise(numel=300, kind="add", dtype="fp32", out_dtype="bf16")


def _attentions():
    yield Attention(heads=1, seq_q=70, head_dim=64, dtype="bf16")
    yield Attention(batch=2, heads=2, kv_heads=1, seq_q=35, head_dim=64, causal=True, dtype="bf16")
    yield Attention(heads=2, kv_heads=1, seq_q=70, head_dim=16, causal=True, dtype="fp32")
    yield Attention(heads=2, kv_heads=1, seq_q=33, seq_kv=65, head_dim=24, causal=True, dtype="fp16")
    yield Attention(heads=1, seq_q=68, head_dim=16, causal=True, window=9, dtype="fp32")
    yield Attention(heads=1, seq_q=65, seq_kv=130, head_dim=64, causal=True, window=40, dtype="bf16")
    # decode: 4 query heads share a key head; two splits of 640 keys, and one split
    yield Attention(heads=4, kv_heads=1, seq_q=1, seq_kv=640, head_dim=64, causal=True, dtype="bf16")
    yield Attention(batch=2, heads=4, kv_heads=2, seq_q=1, seq_kv=45, head_dim=32, causal=True, dtype="fp16")
    yield Attention(heads=2, kv_heads=1, seq_q=5, seq_kv=530, head_dim=20, causal=True, dtype="fp32")
    yield Attention(heads=1, seq_q=3, seq_kv=300, head_dim=16, dtype="bf16")
    yield Attention(heads=1, seq_q=3, seq_kv=300, head_dim=16, causal=True, window=80, dtype="fp16")


def _runs(operators):
    for op in operators:
        for kernel in _kernels(op):
            # what it says of the operator's shape, whatever the GPU
            refused = kernel.supports(op, FakeGpu())
            if not any(word in refused for word in ("descriptors", "multiple")):
                yield pytest.param(op, kernel, id=f"{kernel.name}-{op.dtype}-{op.params()}")


@interpreted
@pytest.mark.parametrize(("op", "kernel"), _runs([*_products(), *_rows(), *_elementwise(), *_attentions()]))
def test_kernel_agrees_with_float64_on_fresh_inputs(op, kernel):
    verdict = _judged(op, kernel)
    assert verdict.correct, verdict
    assert verdict.checked == "all outputs"
    # a limit of its own: outputs of 8 (bf16) or 11 (fp16) bits, which the interpreter cuts instead of rounding
    last = op.out_dtype if hasattr(op, "out_dtype") else op.dtype
    assert verdict.max_relative_error < {"fp32": 2e-6, "tf32": 2.0**-10, "bf16": 2.0**-6, "fp16": 2.0**-9}[last]


def test_every_variant_is_among_those_that_ran():
    ran = {run.values[1].name for run in _runs([*_products(), *_rows(), *_elementwise(), *_attentions()])}
    operators = ("gemm", "elementwise", "layer_norm", "rms_norm", "softmax", "attention")
    declared = {k.name for op in operators for k in registry.find_kernels(op) if k.backend == "triton"}
    assert ran == declared
    assert all(name.startswith("triton.") for name in declared)


@interpreted
@pytest.mark.parametrize("cols", [257, 1000])
def test_softmax_of_a_row_beyond_a_block_is_found_online(monkeypatch, cols):
    monkeypatch.setattr(softmax_kernels, "WIDEST", 64)
    op = Softmax(rows=3, cols=cols, dtype="fp32")
    assert _judged(op, _kernels(op)[0]).correct


@interpreted
def test_online_softmax_survives_large_numbers_in_any_block():
    from perfmodel.kernels.triton._softmax import softmax

    # the largest number in the last of four blocks of 256, and a row whose sum overflows without its maximum
    x = torch.zeros(2, 1000)
    x[0, 999], x[1, 3] = 300.0, 1000.0
    y = torch.empty_like(x)
    softmax(x, y, widest=64)
    # exp(-300) is 0 in float32
    assert y[0, 999] == 1.0
    assert y[1, 3] == 1.0
    torch.testing.assert_close(y.sum(1), torch.ones(2))


@interpreted
def test_offsets_of_64_bits_give_the_same():
    from perfmodel.kernels.triton._gemm import persistent, tiled

    op = Gemm(m=33, n=40, k=29, batch=2, dtype="fp16")
    inputs = make_inputs(op, "cpu", seed=1)
    modes = {"EVEN_K": False, "HAS_BIAS": False, "ACTIVATION": "none", "UPCAST": False, "PRECISION": "ieee"}
    made = [torch.empty(2, 33, 40, dtype=torch.float16) for _ in range(4)]
    for number, c in enumerate(made):
        (tiled, persistent)[number // 2](inputs["a"], inputs["b"], c, None, WIDE=bool(number % 2), **modes)
    assert all(torch.equal(made[0], other) for other in made[1:])


@pytest.mark.parametrize(
    ("op", "name", "words"),
    [
        (Gemm(m=8, n=8, k=8, dtype="fp64"), "triton.gemm", "does not support fp64"),
        (Gemm(m=8, n=8, k=8, dtype="fp8", out_dtype="fp8"), "triton.gemm", "does not support fp8"),
        (Gemm(m=8, n=8, k=8, batch=2, dtype="bf16"), "triton.gemm.tma", "not a batch"),
        (Gemm(m=8, n=8, k=8, dtype="bf16"), "triton.gemm.tma", "have 64 rows, more than m=8"),
        (Gemm(m=8, n=9, k=8, dtype="bf16"), "triton.gemm.tma", "n=9 bf16 elements are not a multiple of 16 bytes"),
        (Gemm(m=8, n=8, k=8, dtype="bf16"), "triton.gemm", "GPU"),
        (Elementwise(numel=8, kind="pow"), "triton.elementwise", "no Triton kernel for pow"),
        (Elementwise(numel=8, kind="add", num_inputs=1), "triton.elementwise", "needs 2 tensors"),
        (LayerNorm(rows=8, cols=40_000), "triton.layer_norm", "does not fit the registers"),
        (Softmax(rows=8, cols=8, dtype="fp64"), "triton.softmax", "does not support fp64"),
        (Attention(heads=1, seq_q=100, head_dim=512), "triton.attention", "head_dim=512 does not fit"),
        (Attention(heads=1, seq_q=100, head_dim=64, algorithm="unfused"), "triton.attention", "unfused"),
        (Attention(heads=1, seq_q=100, head_dim=64, dtype="bf16", kv_dtype="fp16"), "triton.attention", "fp16 keys"),
        (Attention(heads=1, seq_q=100, head_dim=80, dtype="bf16"), "triton.attention.tma", "head_dim=64 and 128"),
        (Attention(heads=1, seq_q=100, head_dim=64, dtype="fp32"), "triton.attention.tma", "bf16 and fp16"),
        (Attention(heads=1, seq_q=2**20, head_dim=64, seq_kv=2**26), "triton.attention", "32 bits"),
    ],
)
def test_what_a_kernel_cannot_do_has_a_reason(op, name, words):
    kernel = next(k for k in _kernels(op) if k.name == name)
    assert words in kernel.supports(op, CPU)


def test_a_machine_without_triton_says_so(monkeypatch):
    from perfmodel.kernels.triton import _base

    monkeypatch.setattr(_base.importlib.util, "find_spec", lambda name: None)
    kernels = _kernels(Gemm(m=64, n=8, k=8, dtype="bf16"))
    assert {k.supports(Gemm(m=64, n=8, k=8, dtype="bf16"), FakeGpu()) for k in kernels} == {
        "triton is not installed (pip install triton)"
    }


@given(
    st.integers(1, 20_000),
    st.integers(1, 20_000),
    st.integers(1, 64),
    st.sampled_from(["bfloat16", "float32", "float8_e4m3fn"]),
)
def test_tiles_that_are_tried_fit_the_dtype_and_the_product(m, n, batch, dtype):
    from perfmodel.kernels.triton import _gemm_space

    element = torch.empty(1, dtype=getattr(torch, dtype))
    with mock.patch.object(_gemm_space, "multiprocessors", return_value=132):
        sizes = {"M": m, "N": n, "K": 512, "BATCH": batch}
        kept = _gemm_space.fits(list(_gemm_space.CONFIGS), {**sizes, "a_ptr": element})
    assert 1 <= len(kept) <= 6
    for candidate in kept:
        rows, columns, depth = (candidate.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        assert rows < 2 * m or rows <= 64
        stages = (rows + columns) * depth * element.element_size() * candidate.num_stages
        assert stages <= 227 * 1024, "shared memory of one block on sm_90"


@given(st.integers(1, 4096), st.integers(1, 200_000))
def test_splits_of_decode_cover_the_keys_and_none_is_empty(blocks, keys):
    from perfmodel.kernels.triton._decode import splits_of

    splits, span = splits_of(blocks, keys)
    assert (splits - 1) * span < keys <= splits * span
    assert span % 128 == 0
    # no more than fill the 2 multiprocessors with 4 blocks each, which stand for a GPU here
    assert splits <= math.ceil(8 / blocks)


@given(st.integers(1, 50), st.integers(1, 40), st.integers(1, 12))
def test_every_block_of_every_head_is_taken_once(blocks, heads, section):
    """The order of `_place_of`, restated on numbers: a permutation of all (head, block)."""
    seen = set()
    for program in range(blocks * heads):
        number, inside = divmod(program, section * blocks)
        width = min(section, heads - number * section)
        seen.add((number * section + inside % width, blocks - 1 - inside // width))
    assert seen == {(head, block) for head in range(heads) for block in range(blocks)}


def test_inputs_of_8_bits_lie_as_hopper_takes_them():
    b = make_inputs(Gemm(m=4, n=6, k=8, batch=2, dtype="fp8"), "cpu", seed=0)["b"]
    assert b.shape == (2, 8, 6)
    assert b.stride() == (48, 1, 8)


def test_preparation_finds_the_variants_it_names():
    """`_preparing` looks its function up by name only when it is called."""
    for module, names in ((gemm_kernels, 3), (attention_kernels, 3)):
        assert len(module.KERNELS) == names
    op = dataclasses.replace(Gemm(m=16, n=16, k=16, dtype="fp16"))
    inputs = make_inputs(op, "cpu", seed=0)
    assert all(callable(kernel.prepare(op, inputs)) for kernel in gemm_kernels.KERNELS)


@interpreted
def test_gelu_of_narrow_results_is_the_normal_distribution():
    from perfmodel.kernels.triton import _gemm

    # no sum is longer than one term, so that the product is x, exactly
    x = torch.linspace(-12, 12, 64).bfloat16()
    a, b = torch.diag(x)[None], torch.eye(64, dtype=torch.bfloat16)[None]
    y = torch.empty_like(a)
    modes = {"EVEN_K": False, "WIDE": False, "HAS_BIAS": False, "ACTIVATION": "gelu", "UPCAST": True}
    _gemm.tiled(a, b, y, None, **modes, PRECISION="ieee")
    exact = x.double() * torch.special.ndtr(x.double())
    torch.testing.assert_close(y[0].diagonal().double(), exact, rtol=2.0**-7, atol=1e-6)


def test_blocks_of_attention_that_are_tried_suit_the_sequence_and_the_dtype():
    from perfmodel.kernels.triton import _attention

    def tried(dtype, queries, precision="ieee"):
        arguments = {"q_ptr": torch.empty(1, dtype=dtype), "seq_q": queries}
        kept = _attention._fits(list(_attention.CONFIGS), arguments, BLOCK_D=64, PRECISION=precision)
        return {(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"], c.num_warps, c.num_stages) for c in kept}

    assert tried(torch.bfloat16, 16) == {(64, 64, 4, 3)}
    assert (128, 128, 8, 3) not in tried(torch.bfloat16, 300)
    assert {(128, 128, 8, 3), (128, 64, 4, 2)} < tried(torch.bfloat16, 4096)
    assert all(m == 128 for m, *_ in tried(torch.bfloat16, 4096))
    # without tensor cores the compiler unrolls every multiply-add
    assert {m for m, *_ in tried(torch.float32, 4096)} == {64}
    assert 128 in {m for m, *_ in tried(torch.float32, 4096, "tf32")}
