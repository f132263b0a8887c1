"""The kernels that networks are made of, beside the products and norms: each against float64, in every dtype."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels import registry  # noqa: E402
from perfmodel.kernels.check import check  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import changed_inputs, make_inputs  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402
from perfmodel.measure.benchmark import presets  # noqa: E402
from perfmodel.operators.listing import operator_names  # noqa: E402
from perfmodel.operators.parse import parse_operators  # noqa: E402
from perfmodel.prediction.latency import families  # noqa: E402

CPU = open_device("cpu")
DTYPES = ("fp64", "bf16")


def _operators(dtype):
    yield pm.Rope(tokens=9, heads=3, kv_heads=1, head_dim=8, dtype=dtype)
    yield pm.Rope(tokens=9, heads=3, head_dim=8, rotary=4, dtype=dtype)
    yield pm.Swiglu(rows=7, cols=33, dtype=dtype)
    yield pm.Geglu(rows=7, cols=33, dtype=dtype)
    yield pm.Geglu(rows=7, cols=33, gelu="tanh", dtype=dtype)
    yield pm.AddRmsNorm(rows=7, cols=300, dtype=dtype)
    yield pm.Dropout(numel=1001, dtype=dtype)
    yield pm.BatchNorm(n=3, c=5, hw=49, dtype=dtype)
    yield pm.BatchNorm(n=3, c=5, hw=49, training=False, dtype=dtype)
    yield pm.GroupNorm(n=3, groups=2, c=6, hw=49, dtype=dtype)
    yield pm.Pool2d(n=2, c=3, h=9, w=8, k=3, stride=2, padding=1, dtype=dtype)
    yield pm.Pool2d(n=2, c=3, h=9, w=8, k=2, ceil_mode=True, indices=False, dtype=dtype)
    yield pm.Pool2d(n=2, c=3, h=9, w=8, k=2, kind="mean", dtype=dtype)
    film = {"n": 2, "c": 4, "d": 4, "h": 6, "w": 7, "dtype": dtype}
    yield pm.Pool3d(**film, t=2, r=3, s=2, stride_h=2, padding_h=1)
    yield pm.Pool3d(**film, t=2, r=2, s=2, ceil_mode=True, indices=False)
    yield pm.Pool3d(**film, t=1, r=2, s=3, kind="mean", padding_w=1)
    yield pm.Conv3d(**film, k=6, t=3, r=3, s=2, padding_d=1, padding_h=1, stride_h=2, groups=2)
    yield pm.Conv3d(**film, k=6, t=2, r=2, s=2, dilation_w=2)
    for kind in ("complex", "real", "inverse_real"):
        yield pm.Fft(batch=3, n=12, kind=kind, dtype=dtype)
        yield pm.Fft(batch=3, n=12, others=5, kind=kind, dtype=dtype)
    yield pm.Resample(n=2, c=3, w=9, q=14, dtype=dtype)
    yield pm.Resample(n=2, c=3, h=5, w=9, p=8, q=6, kind="cubic", dtype=dtype)
    yield pm.Resample(n=2, c=3, h=5, w=9, p=8, q=6, kind="nearest", dtype=dtype)
    yield pm.Resample(n=2, c=3, h=5, w=9, p=8, q=6, grid=True, dtype=dtype)
    yield pm.Resample(n=2, c=3, d=3, h=5, w=4, o=5, p=8, q=6, grid=True, dtype=dtype)
    yield pm.Embedding(tokens=20, vocab=50, dim=16, dtype=dtype)
    yield pm.EmbeddingBag(bags=20, pooling=3, vocab=50, dim=16, dtype=dtype)
    yield pm.Mla(batch=2, heads=3, seq_kv=50, latent=16, rope_dim=8, dtype=dtype)
    yield pm.Mla(heads=3, seq_q=4, seq_kv=50, latent=16, rope_dim=8, causal=True, dtype=dtype)
    yield pm.Attention(heads=3, seq_q=20, head_dim=24, value_dim=16, causal=True, dtype=dtype)
    yield pm.CrossEntropy(rows=9, vocab=1000, dtype=dtype)
    yield pm.LinearCrossEntropy(rows=20, hidden=16, vocab=100, chunk=8, dtype=dtype)
    yield pm.LinearCrossEntropy(rows=20, hidden=16, vocab=100, gradients=False, dtype=dtype)
    yield pm.KvWrite(tokens=9, kv_heads=2, head_dim=8, dtype=dtype)
    yield pm.Quantize(rows=5, cols=128, in_dtype=dtype)
    yield pm.Quantize(rows=5, cols=128, in_dtype=dtype, scale="group:32")
    yield pm.Quantize(rows=5, cols=128, in_dtype=dtype, scale="tensor")
    yield pm.Dequantize(rows=5, cols=128, dtype=dtype)
    yield pm.Dequantize(rows=5, cols=128, dtype=dtype, scale="group:32")
    yield pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, padding=1, dtype=dtype)
    yield pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=1, s=1, stride=2, dtype=dtype)
    yield pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, padding=1, groups=2, layout="nhwc", dtype=dtype)
    yield pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, stride=2, algorithm="im2col", dtype=dtype)
    for spread in ("even", "zipf", "same"):
        yield pm.Gather(numel=100, table=1000, distribution=spread, dtype=dtype)
        yield pm.IndexSelect(rows=20, cols=9, table=30, distribution=spread, dtype=dtype)
        yield pm.ScatterAdd(rows=200, cols=3, table=30, distribution=spread, dtype=dtype)
    for algorithm in ("fused", "foreach", "loop"):
        yield pm.Optimizer(parameters=100, algorithm=algorithm, num_tensors=3, dtype=dtype)
        yield pm.Optimizer(parameters=100, algorithm=algorithm, num_tensors=3, kind="sgd", dtype=dtype)
    yield pm.Muon(rows=8, cols=20, dtype=dtype, state_dtype=dtype)
    yield pm.LinearAttention(heads=2, seq=32, head_dim=8, chunk=8, dtype=dtype)
    yield pm.LinearAttention(heads=2, seq=17, head_dim=8, value_dim=4, algorithm="recurrent", dtype=dtype)
    yield pm.GatedDelta(heads=4, key_heads=2, seq=32, head_dim=8, chunk=8, dtype=dtype)
    yield pm.GatedDelta(heads=2, seq=17, head_dim=8, value_dim=4, algorithm="recurrent", carried=True, dtype=dtype)
    yield pm.SsmScan(batch=2, seq=20, channels=6, state=4, dtype=dtype)
    yield pm.SsmScan(batch=2, seq=20, channels=6, state=4, carried=True, gated=True, dtype=dtype)
    yield pm.Transpose(rows=9, cols=7, batch=3, dtype=dtype)
    yield pm.OptimizerAdamw(parameters=100, dtype=dtype)


def _runs():
    for dtype in DTYPES:
        for op in _operators(dtype):
            for kernel in registry.find_kernels(op.op):
                if kernel.applies(op) and not kernel.refuses(op, CPU) and not kernel.compiles:
                    yield pytest.param(op, kernel, id=f"{op.op}-{op.params()}-{dtype}-{kernel.name}")


@pytest.mark.parametrize(("op", "kernel"), _runs())
def test_kernel_agrees_with_float64(op, kernel):
    inputs = make_inputs(op, "cpu", seed=1)
    with CPU.precision(op.dtype):
        verdict = verify(op, kernel.prepare(op, inputs), inputs, seed=1, in_place=kernel.in_place)
    assert verdict.correct, verdict
    assert verdict.checked == "all outputs"


def test_every_operator_with_kernels_has_a_case_of_each_dtype_here_or_in_its_own_tests():
    tested = {op.op for op in _operators("fp32")}
    own = {"gemm", "attention", "layer_norm", "rms_norm", "softmax", "reduction", "elementwise"}
    assert own <= set(registry.operators_with_kernels())
    assert tested <= set(registry.operators_with_kernels())


#: operators that no kernel of `bench` runs, and what measures them instead
WITHOUT_KERNEL = {
    **dict.fromkeys(
        ("all_gather", "all_reduce", "alltoall", "broadcast", "reduce_scatter", "send_recv"),
        "they run among ranks: bench --num-gpus",
    ),
    "memcpy": "a copy between memories is no operator of one device",
}


def test_every_operator_and_every_latency_family_has_a_kernel_or_a_reason():
    with_kernels = set(registry.operators_with_kernels())
    assert set(operator_names()) - with_kernels == set(WITHOUT_KERNEL)
    served = families._own().families
    for family in {name for names in served.values() for name in names}:
        operators = [op for op, names in served.items() if family in names]
        assert any(op in with_kernels or op in WITHOUT_KERNEL for op in operators), family
    full = {op.op for kind in ("cpu", "cuda") for op in _cases(kind)}
    assert full == with_kernels


def _cases(kind):
    return parse_operators(presets.preset("full", kind).tokens(2**25))


@pytest.mark.parametrize(
    "name", ["fp8_block", "int4_wo", "int8_wo", "nvfp4", "mxfp4", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8", "sq"]
)
def test_products_and_experts_with_scales_run_on_a_cpu_by_widening(name):
    shape = {"tokens": 6, "hidden": 256, "inter": 128, "experts": 4, "top_k": 2}
    for op in (pm.Gemm(m=5, n=128, k=256, dtype=name), pm.Moe(**shape, dtype=name)):
        inputs = make_inputs(op, "cpu", seed=2)
        kernel = next(k for k in registry.find_kernels(op.op) if k.name == "widened")
        assert kernel.computes(op)
        assert kernel.refuses(op, CPU) == ""
        with CPU.precision(op.dtype):
            verdict = verify(op, kernel.prepare(op, inputs), inputs, seed=2)
        assert verdict.correct, (op.op, verdict)
        assert all(pm.predict(part, "b200").predicted_time_s > 0 for part in kernel.composition(op))


def test_numbers_of_4_bits_are_those_of_e2m1():
    b = make_inputs(pm.Gemm(m=2, n=64, k=64, dtype="nvfp4"), "cpu", 0)["b"]
    assert sorted(set(b.abs().flatten().tolist())) == [0, 1, 2, 3, 4, 6, 8, 12]


def test_a_result_that_is_off_is_wrong():
    for op, wrong in (
        (pm.IndexSelect(rows=20, cols=9, table=30), lambda y: y.roll(1, 0)),
        (pm.Rope(tokens=9, heads=3, head_dim=8), lambda y: y * 1.001),
        (pm.Pool2d(n=2, c=3, h=9, w=8, k=2), lambda y: y + 1e-3),
        (pm.BatchNorm(n=3, c=5, hw=49), lambda y: 1.001 * y),
        (pm.CrossEntropy(rows=9, vocab=1000), lambda y: y + 1e-3),
        (pm.LinearAttention(heads=2, seq=32, head_dim=8, chunk=8), lambda y: y.flip(2)),
    ):
        inputs = make_inputs(op, "cpu", seed=1)
        call = registry.find_kernels(op.op)[0].prepare(op, inputs)
        assert check(op, inputs, call()).correct, op.op
        assert not check(op, inputs, wrong(call())).correct, op.op


def test_an_optimizer_steps_on_its_weights_and_verification_restores_them():
    op = pm.Optimizer(parameters=100)
    inputs = make_inputs(op, "cpu", seed=4)
    (kernel,) = registry.find_kernels("optimizer")
    call = kernel.prepare(op, inputs)
    assert verify(op, call, inputs, seed=4, in_place=True).correct
    assert changed_inputs(op, inputs, 4) == []
    assert call() is inputs["weights"]
    assert set(changed_inputs(op, inputs, 4)) == {"weights", "exp_avg", "exp_avg_sq"}


def test_indices_are_spread_as_asked():
    tables = {
        spread: make_inputs(pm.Gather(numel=20_000, table=1000, distribution=spread), "cpu", 0)["index"]
        for spread in ("even", "zipf", "same")
    }
    most = {spread: int(torch.bincount(index, minlength=1000).max()) for spread, index in tables.items()}
    assert all(int(index.min()) >= 0 and int(index.max()) < 1000 for index in tables.values())
    assert most["same"] == 20_000
    assert most["even"] < 60
    # ln 2 / ln 1001 of all fall on the first rank
    assert 0.08 < most["zipf"] / 20_000 < 0.12
    slots = make_inputs(pm.KvWrite(tokens=50, kv_heads=1, head_dim=2), "cpu", 0)["slots"]
    assert sorted(slots.tolist()) == list(range(50))


def test_dtypes_without_kernels_are_refused():
    for op, part in (
        (pm.Quantize(rows=2, cols=4, dtype="int8"), "int8"),
        (pm.Optimizer(parameters=4, kind="adam8bit"), "adam8bit"),
        (pm.Muon(rows=4, cols=4), "orthogonal"),
        (pm.Rope(tokens=2, heads=1, head_dim=4, dtype="fp8"), "fp8"),
        (pm.LinearAttention(heads=1, seq=100, head_dim=8), "do not divide"),
        (pm.GatedDelta(heads=1, seq=100, head_dim=8), "do not divide"),
    ):
        assert part in registry.find_kernels(op.op)[0].refuses(op, CPU)


@pytest.mark.parametrize(
    "op", [op for op in _operators("fp32") if op.op != "muon"], ids=lambda op: f"{op.op}-{op.params()}"
)
def test_the_passes_of_a_composition_can_be_predicted(op):
    for kernel in registry.find_kernels(op.op):
        if kernel.composition is not None and kernel.applies(op):
            passes = kernel.composition(op)
            assert passes
            assert all(pm.predict(one, "a100").predicted_time_s > 0 for one in passes)
        assert kernel.workspace_bytes(op) >= 0


def test_images_by_channels_are_inputs_and_no_copies_of_the_call():
    for backward in (False, True):
        op = pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, padding=1, layout="nhwc", backward=backward)
        inputs = make_inputs(op, "cpu", seed=1)
        assert all(x.is_contiguous(memory_format=torch.channels_last) for x in inputs.values())
    plain = pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, padding=1)
    assert all(x.is_contiguous() for x in make_inputs(plain, "cpu", seed=1).values())
    library = registry.find_kernels("conv2d")[0]
    y = library.prepare(op.changed(backward=False), inputs)()
    assert y.is_contiguous(memory_format=torch.channels_last)
