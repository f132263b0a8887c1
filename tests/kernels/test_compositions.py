"""What naive kernels really run, stated as operators: their traffic is that of the calls in the code."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 -- after the check that torch is there

from perfmodel.kernels import registry  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gated_delta import GatedDelta  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.rms_norm import RmsNorm  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402
from perfmodel.prediction.predict import predict  # noqa: E402

CPU = open_device("cpu")


class Traffic(TorchDispatchMode):
    """Counts the bytes that each call of torch reads and writes."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        read = {id(t): t for t in args if isinstance(t, torch.Tensor)}.values()
        # a view, or a cast to the same dtype, shares its input's memory; so does an operation in place, named with _
        shared = any(t.untyped_storage().data_ptr() == output.untyped_storage().data_ptr() for t in read)
        if not shared or function.overloadpacket.__name__.endswith("_"):
            self.bytes += sum(t.numel() * t.element_size() for t in [*read, output])
        return output


def _naive(op, name="naive"):
    return next(k for k in registry.find_kernels(op.op) if k.name == name and k.applies(op))


def _counted(op, name="naive"):
    return sum(float(part.count * part.work().bytes) for part in _naive(op, name).composition(op))


@pytest.mark.parametrize(
    ("op", "tolerance"),
    [
        # operands of one row or one column are left out of the composition: 1 of 512 and 1 of 256
        (LayerNorm(rows=256, cols=512), 0.02),
        (RmsNorm(rows=256, cols=512), 0.02),
        (Softmax(rows=256, cols=512), 0.02),
        *((Elementwise(numel=1000, kind=kind), 1e-12) for kind in ("gelu", "silu", "sigmoid", "fma", "chain4")),
        (Elementwise(numel=1000, kind="silu_mul", dtype="bf16"), 1e-12),
        (Gemm(m=64, n=48, k=600), 1e-12),
        (Gemm(m=64, n=48, k=512, bias=True, activation="relu"), 0.01),
        (Attention(heads=2, seq_q=64, head_dim=32), 1e-12),
    ],
    ids=lambda value: f"{value.op}-{value.params()}" if hasattr(value, "op") else "",
)
def test_traffic_of_the_composition_is_that_of_the_calls(op, tolerance):
    inputs = make_inputs(op, "cpu", seed=0)
    with CPU.precision(op.dtype):
        call = _naive(op).prepare(op, inputs)
        with Traffic() as seen:
            call()
    assert _counted(op) == pytest.approx(seen.bytes, rel=tolerance)


def test_traffic_by_hand():
    # n = 1000 elements of 4 bytes: add 3 n, gelu 2 n, mul 3 n, silu 2 n, against 4 n in one pass
    chain = Elementwise(numel=1000, kind="chain4")
    assert _counted(chain) == 4 * 10_000
    assert float(chain.work().bytes) == 4 * 4_000
    # silu 2 n and mul 3 n, against 3 n
    assert _counted(Elementwise(numel=1000, kind="silu_mul"), "torch.silu_mul") == 4 * 5_000
    # 2 products of panels of 256, 8 x 4 results each: A 8 x 256, B 256 x 4, C 32; then C = C + product: 3 x 32
    assert _counted(Gemm(m=8, n=4, k=512)) == 4 * (2 * (8 * 256 + 256 * 4 + 32) + 3 * 32)


@pytest.mark.parametrize(
    "op",
    [
        Elementwise(numel=2**26, kind="chain4", dtype="bf16"),
        Elementwise(numel=2**26, kind="gelu", dtype="bf16"),
        LayerNorm(rows=65536, cols=4096, dtype="bf16"),
        RmsNorm(rows=65536, cols=4096, dtype="bf16"),
        Softmax(rows=65536, cols=4096, dtype="bf16"),
        Attention(heads=32, seq_q=8192, head_dim=128, causal=True, dtype="bf16"),
        Gemm(m=4096, n=4096, k=4096, dtype="bf16"),
    ],
    ids=lambda op: op.op,
)
def test_the_model_expects_naive_kernels_of_large_tensors_to_be_slower(op):
    from perfmodel.hardware_catalog import hardware

    h200 = hardware("h200-sxm-141gb")
    composed = sum(part.count * float(predict(part, h200).predicted_time_s) for part in _naive(op).composition(op))
    # the RMSNorm that was measured in 16 bits loads element by element, as the parts of the naive one do
    assert composed > (1.05 if op.op == "rms_norm" else 1.2) * float(predict(op, h200).predicted_time_s)


def test_kernels_of_one_pass_have_no_composition():
    several = ("naive", "torch.silu_mul", "widened", "torch.sdpa.math", "torch._int_mm")
    # with an activation, or operands that are copied first
    sometimes = ("torch.matmul", "torch.scaled_mm", "triton.gemm", "triton.gemm.persistent", "triton.gemm.tma")
    for operator in ("gemm", "elementwise", "layer_norm", "rms_norm", "softmax", "attention"):
        for kernel in registry.find_kernels(operator):
            if kernel.gradient or kernel.name in sometimes:
                continue
            assert (kernel.composition is None) == (
                kernel.name not in several and (operator, kernel.name) != ("attention", "compiled")
            ), kernel.name


def test_a_product_of_the_library_is_several_kernels_with_an_activation_or_a_conversion():
    library, scaled, integer = (_named(name) for name in ("torch.matmul", "torch.scaled_mm", "torch._int_mm"))
    sizes = {"m": 64, "n": 32, "k": 16}
    assert library.parts(Gemm(**sizes, bias=True, dtype="bf16")) == ()
    assert library.parts(Gemm(**sizes, dtype="tf32")) == ()
    product, activation = library.parts(Gemm(**sizes, bias=True, activation="gelu", dtype="bf16"))
    assert (product.bias, product.activation, activation.kind, activation.numel) == (True, "none", "gelu", 64 * 32)
    product, cast, bias = library.parts(Gemm(**sizes, bias=True, dtype="bf16", out_dtype="fp32"))
    assert (product.bias, cast.kind, cast.out_dtype, bias.kind, bias.strided) == (False, "cast", "fp32", "add", True)
    assert scaled.parts(Gemm(**sizes, dtype="fp8")) == ()
    assert [part.op for part in scaled.parts(Gemm(**sizes, bias=True, activation="relu", dtype="fp8"))] == [
        "gemm", "elementwise", "elementwise",
    ]  # fmt: skip
    ours = _named("triton.gemm")
    assert ours.parts(Gemm(m=512, n=32, k=16, dtype="bf16")) == ours.parts(Gemm(**sizes, dtype="tf32")) == ()
    assert [part.op for part in ours.parts(Gemm(m=512, n=32, k=16, dtype="tf32"))] == ["transpose", "gemm"]
    product, scale, cast = integer.parts(Gemm(**sizes, dtype="sq"))
    assert (product.dtype, scale.kind, cast.out_dtype) == ("int8", "mul", Gemm(**sizes, dtype="sq").out_dtype)


def _named(name):
    return next(kernel for kernel in registry.find_kernels("gemm") if kernel.name == name)


def test_operands_of_a_row_or_a_column_are_read_element_by_element():
    for op, count in ((LayerNorm(rows=64, cols=64), 4), (RmsNorm(rows=64, cols=64), 2), (Softmax(rows=64, cols=64), 2)):
        parts = _naive(op).composition(op)
        assert sum(part.count for part in parts if getattr(part, "strided", False)) == count, op.op


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (Attention(heads=1, seq_q=3, head_dim=8), "torch.sdpa.math"),  # 0.75 of 9 scores
        (Attention(heads=1, seq_q=3, head_dim=8, dtype="bf16"), "torch.sdpa.math"),
        (GatedDelta(heads=1, seq=3, head_dim=8), "chunked"),  # 5.5 times 3 x 3
    ],
)
def test_a_pass_over_a_share_of_the_elements_has_a_whole_number_of_them(op, name):
    parts = _naive(op, name).composition(op)
    assert all(float(part.numel).is_integer() for part in parts if isinstance(part, Elementwise))
