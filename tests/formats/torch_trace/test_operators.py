"""Calls of PyTorch's operators as operators of the model: shapes and FLOP by hand, and reasons for the others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.formats.torch_trace.call import NotModelledError, describe, parse_call
from perfmodel.formats.torch_trace.operators.aten import MAPPINGS, operator_of
from perfmodel.formats.torch_trace.operators.memory import collective

BF16, HALF, FLOAT, LONG = "c10::BFloat16", "c10::Half", "float", "long int"


def call(name, dims, types=(), values=(), strides=(), kernels=()):
    texts = (json.dumps(part).encode() if part else b"" for part in (dims, strides, types, values))
    return parse_call(name, list(texts), tuple(kernels))


def mapped(name, dims, types=(), values=(), **more):
    operator, reason = operator_of(call(name, dims, types or [BF16] * len(dims), values, **more))
    assert operator is not None, reason
    return operator


def sizes(operator):
    told = {name: getattr(operator, name) for name in operator.given()}
    return (operator.op, told)


def refused(name, dims, types=(), values=(), **more):
    operator, reason = operator_of(call(name, dims, types or [BF16] * len(dims), values, **more))
    assert operator is None
    return reason


@pytest.mark.parametrize(
    ("kernel", "strided"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)", False),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)", False),
        ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<f> >(int, f)", True),
        # AMD's of the same name converts dtypes, too
        ("void at::native::elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<f> >(f)", True),
        ("void at::native::elementwise_kernel_manual_unroll<128, 4, at::native::gpu_kernel_impl<f> >(f)", False),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, 4>(x)", True),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<unsigned, 4>(x)", False),
    ],
)
def test_the_kernels_name_says_whether_it_computes_the_address_of_each_element(kernel, strided):
    assert mapped("aten::add", [[64, 32], [64, 1]], kernels=[kernel, "Memset (Device)"]).strided is strided


INT, CHAR, FP8 = "int", "signed char", "c10::Float8_e4m3fn"


@pytest.mark.parametrize(
    ("a", "b", "sizes_of_groups"),
    [
        # tokens of experts times their weights; the transposed; gradients of the weights; and a batch
        ([1024, 256], [8, 256, 512], {"batch": 8, "m": 128, "n": 512, "k": 256}),
        ([8, 512, 256], [256, 1024], {"batch": 8, "m": 512, "n": 128, "k": 256}),
        ([256, 1024], [1024, 512], {"batch": 8, "m": 256, "n": 512, "k": 128}),
        ([8, 16, 32], [8, 32, 64], {"batch": 8, "m": 16, "n": 64, "k": 32}),
        # five tokens have five experts at most
        ([5, 256], [8, 256, 512], {"batch": 5, "m": 1, "n": 512, "k": 256}),
    ],
)
def test_grouped_products_share_rows_or_k_among_their_groups(a, b, sizes_of_groups):
    operator = mapped("aten::_grouped_mm", [a, b, [8], [], []], [BF16, BF16, INT, "", ""], [""] * 5)
    assert operator.op == "gemm"
    assert {name: getattr(operator, name) for name in sizes_of_groups} == sizes_of_groups
    scaled = [a, b, [a[0]], [8, b[-1]], [8], [], [], [], []]
    types = [FP8, FP8, FLOAT, FLOAT, INT, "", "", "", "Scalar"]
    quantised = mapped("aten::_scaled_grouped_mm", scaled[:8], types[:8], [""] * 7 + ["15"])
    assert (quantised.dtype, quantised.out_dtype, quantised.flop()) == ("fp8", "bf16", operator.flop())


def test_groups_that_are_none_are_refused():
    assert "do not form groups" in refused(
        "aten::_grouped_mm", [[16, 32], [8, 16, 64], [8]], [BF16, BF16, INT], [""] * 3
    )
    assert "do not form groups" in refused("aten::_grouped_mm", [[16, 32], [8, 32, 64]], [BF16, BF16], [""] * 2)
    assert "do not form groups" in refused("aten::_grouped_mm", [[32], [32, 64], [8]], [BF16, BF16, INT], [""] * 3)


def test_products_of_narrow_weights_read_them_as_they_are():
    whole = mapped("aten::_int_mm", [[64, 128], [128, 256]], [CHAR, CHAR])
    assert (whole.work().bytes, whole.flop()) == (64 * 128 + 128 * 256 + 4 * 64 * 256, 2 * 64 * 128 * 256)
    eight = mapped("aten::_weight_int8pack_mm", [[64, 128], [256, 128], [256]], [BF16, CHAR, BF16])
    assert (eight.m, eight.n, eight.k, eight.dtype, eight.weight_dtype) == (64, 256, 128, "bf16", "int8")
    # [n / 8, k / (4 16), 32, 2] packed weights, and scale and zero of each 32 of them
    packed, scales = [512, 64, 32, 2], [128, 4096, 2]
    dims, types, values = [[16, 4096], packed, [], scales], [BF16, INT, "Scalar", BF16], ["", "", "32", ""]
    four = mapped("aten::_weight_int4pack_mm", dims, types, values)
    assert (four.m, four.n, four.k, four.weight_dtype, four.scale) == (16, 4096, 4096, "int4", "group:32")
    assert "weights" in refused("aten::_weight_int4pack_mm", dims, types, ["", "", "", ""])
    assert "form a product" in refused("aten::_weight_int8pack_mm", [[64, 128], [128, 256], [256]], [BF16, CHAR, BF16])


def test_bags_of_an_embedding_are_told_by_their_offsets():
    dims, types = [[1000, 64], [1280], [64]], [FLOAT, LONG, LONG]
    values = ["", "", "", "False", "0", "False", "", "False", "-1"]
    bags = mapped("aten::_embedding_bag", dims, types, values)
    assert sizes(bags) == (
        "embedding_bag",
        {"bags": 64, "pooling": 20, "vocab": 1000, "dim": 64, "distribution": "same"},
    )
    # the last offset is the end of the last bag
    values[7] = "True"
    assert mapped("aten::_embedding_bag", [*dims[:2], [65]], types, values).bags == 64
    dy = [[64, 64], [1280], [64], [1280], [64], [64], [], [], [], [], [], []]
    back = mapped("aten::_embedding_bag_backward", dy, [FLOAT, *[LONG] * 5], [""] * 6 + ["1000", *[""] * 5])
    assert (back.backward, back.pooling, back.vocab) == (True, 20, 1000)
    dense = [*dy[:2], *dy[3:]]
    told = [""] * 5 + ["1000", *[""] * 5]
    assert mapped("aten::_embedding_bag_dense_backward", dense, [FLOAT, *[LONG] * 4], told).params() == back.params()
    assert "not of 2000 bags" in refused("aten::_embedding_bag", [*dims[:2], [2000]], types, [*values[:7], "False"])
    assert "rows of the table" in refused("aten::_embedding_bag_backward", dy, [FLOAT, *[LONG] * 5], [""] * 12)


COMPLEX = "c10::complex<float>"


@pytest.mark.parametrize(
    ("name", "dims", "types", "moved"),
    [
        ("aten::mul", [[4, 128, 8, 32], [1, 128, 1, 32]], [COMPLEX, COMPLEX], 2 * 8 * 4 * 128 * 8 * 32),
        ("aten::add", [[64, 32], [64, 32]], [COMPLEX, COMPLEX], 3 * 8 * 64 * 32),
        # a real number multiplies both parts
        ("aten::mul_", [[64, 32], [64, 1]], [COMPLEX, FLOAT], 2 * 8 * 64 * 32),
        ("aten::copy_", [[64, 32], [64, 32]], ["c10::complex<double>"] * 2, 2 * 16 * 64 * 32),
        ("aten::polar", [[64, 32], [64, 32]], [FLOAT, FLOAT], 2 * 8 * 64 * 32),
    ],
)
def test_complex_numbers_move_both_parts(name, dims, types, moved):
    assert mapped(name, dims, types).work().bytes == moved


def test_functions_of_complex_numbers_are_refused():
    assert "complex" in refused("aten::exp", [[64, 32]], [COMPLEX])
    assert "complex" in refused("aten::addmm", [[8], [64, 32], [32, 8]], [COMPLEX] * 3)
    assert "expanded" in refused("aten::polar", [[64, 32], [1, 32]], [FLOAT, FLOAT])


@pytest.mark.parametrize(
    ("name", "dims", "flop"),
    [
        # 2 m n k, and m n for what is added
        ("aten::mm", [[16, 32], [32, 8]], 2 * 16 * 8 * 32),
        ("aten::bmm", [[3, 16, 32], [3, 32, 8]], 3 * 2 * 16 * 8 * 32),
        ("aten::addmm", [[8], [16, 32], [32, 8]], 2 * 16 * 8 * 32 + 16 * 8),
        ("aten::baddbmm", [[3, 16, 8], [3, 16, 32], [3, 32, 8]], 3 * (2 * 16 * 8 * 32 + 16 * 8)),
        ("aten::linear", [[2, 8, 32], [8, 32], [8]], 2 * 16 * 8 * 32 + 16 * 8),
        ("aten::linear", [[2, 8, 32], [8, 32], []], 2 * 16 * 8 * 32),
        ("aten::matmul", [[2, 8, 32], [32, 8]], 2 * 16 * 8 * 32),
        ("aten::mv", [[16, 32], [32]], 2 * 16 * 32),
        ("aten::addmv", [[16], [16, 32], [32]], 2 * 16 * 32 + 16),
    ],
)
def test_products(name, dims, flop):
    operator = mapped(name, dims)
    assert (operator.op, operator.dtype, operator.flop()) == ("gemm", "bf16", flop)


def test_fused_and_scaled_products():
    values = ["", "", "", "1", "1", "True"]
    fused = mapped("aten::_addmm_activation", [[8], [16, 32], [32, 8], [], [], []], values=values)
    assert (fused.activation, fused.bias) == ("gelu", True)
    fp8 = ["c10::Float8_e4m3fn"] * 2
    scaled = mapped("aten::_scaled_mm", [[16, 32], [32, 8]], fp8, ["", "", "", "", "", "", "15", "True"])
    assert (scaled.dtype, scaled.out_dtype) == ("fp8", "bf16")


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>(Params)", "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64_stage3", "tf32"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "tf32"),
    ],
)
def test_the_kernel_says_whether_fp32_is_rounded(kernel, dtype):
    assert mapped("aten::mm", [[16, 32], [32, 8]], [FLOAT] * 2, kernels=[kernel]).dtype == dtype


def test_a_batch_norm_moves_at_least_its_input_and_its_result():
    # bf16: 2 x 16 x 8 x 8 elements of 2 B; forward in and out, backward two in and one out
    dims = [[2, 16, 8, 8], *[[16]] * 4]
    assert mapped("aten::native_batch_norm", dims).work().bytes == 2 * 2048 * 2
    training = mapped("aten::native_batch_norm", dims, values=["", "", "", "", "", "True", "0.1", "1e-05"])
    assert (training.work().bytes, training.work().least_bytes) == (3 * 2048 * 2, 2 * 2048 * 2)
    backward = mapped("aten::cudnn_batch_norm_backward", [dims[0], *dims])
    assert (backward.work().bytes, backward.work().least_bytes) == (5 * 2048 * 2, 3 * 2048 * 2)


IMAGE, ROWS = [2, 16, 8, 8], [6, 32]


@pytest.mark.parametrize(
    ("name", "dims", "values", "op", "params"),
    [
        ("aten::native_group_norm", [IMAGE, [16], [16]], ["", "", "", "2", "16", "64", "4", "1e-05"],
         "group_norm", {"n": 2, "c": 16, "hw": 64, "groups": 4}),
        ("aten::native_layer_norm_backward", [ROWS, ROWS, [], [6, 1], [6, 1], [32]], [],
         "layer_norm", {"rows": 6, "cols": 32, "backward": True}),
        ("aten::_fused_rms_norm_backward", [ROWS, ROWS, [], [6, 1], [32]], [],
         "rms_norm", {"rows": 6, "cols": 32, "backward": True}),
        ("aten::_log_softmax_backward_data", [ROWS, ROWS, [], []], ["", "", "1", "15"],
         "softmax", {"rows": 6, "cols": 32, "backward": True}),
        ("aten::nll_loss_forward", [ROWS, [6]], [], "gather", {"numel": 6}),
        ("aten::nll_loss_backward", [[], ROWS, [6]], [], "elementwise", {"numel": 192, "kind": "fill"}),
        ("aten::cross_entropy_loss", [ROWS, [6]], [], "cross_entropy", {"rows": 6, "vocab": 32}),
        ("aten::max_pool2d_with_indices", [IMAGE], ["", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"],
         "pool2d", {"k": 3, "stride": 2, "padding": 1, "p": 4, "kind": "max"}),
        ("aten::max_pool2d_with_indices", [IMAGE], ["", "[2, 2]", "[]", "[0, 0]", "[1, 1]", "True"],
         "pool2d", {"k": 2, "stride": 2, "p": 4}),
        ("aten::max_pool2d_with_indices_backward", [[2, 16, 4, 4], IMAGE], [],
         "pool2d", {"k": 2, "backward": True, "n": 2, "c": 16}),
        ("aten::avg_pool2d_backward", [[2, 16, 4, 4], IMAGE], [], "pool2d", {"kind": "mean", "backward": True}),
        ("aten::_adaptive_avg_pool2d", [IMAGE], ["", "[1, 1]"], "reduction", {"rows": 32, "cols": 64}),
        ("aten::embedding_dense_backward", [[6, 32], [6]], ["", "", "1000", "-1", "False"],
         "embedding", {"tokens": 6, "vocab": 1000, "dim": 32, "backward": True, "unique": 1}),
        ("aten::gather", [ROWS, [], [6, 1]], ["", "1", "", "False"], "gather", {"numel": 6, "sectors": 1}),
        ("aten::index", [ROWS, [[4]]], [], "index_select", {"rows": 4, "cols": 32}),
        ("aten::index", [ROWS, [[4, 1], [5]]], [], "index_select", {"rows": 20, "cols": 1}),
        ("aten::index_add_", [ROWS, [], [4], [4, 32]], ["", "0", "", ""], "scatter_add", {"rows": 4, "cols": 32}),
        ("aten::scatter_add_", [ROWS, [], [6, 4]], ["", "1", "", ""], "scatter_add", {"rows": 24, "table": 192}),
        ("aten::native_dropout", [ROWS], ["", "0.1", "True"], "dropout", {"numel": 192, "saves_mask": True}),
        ("aten::native_dropout_backward", [ROWS, ROWS], [], "dropout", {"backward": True}),
        ("aten::gelu_backward", [ROWS, ROWS], [], "elementwise", {"kind": "gelu", "backward": True}),
        ("aten::fill_", [ROWS], [], "elementwise", {"kind": "fill", "numel": 192}),
        ("aten::sort", [ROWS], ["", "1", "False"], "sort", {"rows": 6, "cols": 32}),
        ("aten::topk", [ROWS], ["", "5", "1", "True", "True"], "topk", {"rows": 6, "k": 5}),
        ("aten::cumsum", [ROWS], ["", "1", ""], "scan", {"rows": 6, "cols": 32}),
        ("aten::multinomial", [ROWS], ["", "1", "False"], "sampling", {"rows": 6, "vocab": 32}),
        ("aten::scatter_", [ROWS, [], [6, 4], [6, 4]], ["", "1", "", ""], "gather", {"numel": 24}),
        ("aten::index_put_", [ROWS, [[4]], [4, 32]], ["", "", "", "False"], "elementwise", {"numel": 128}),
        ("aten::index_put_", [ROWS, [[4]], [4, 32]], ["", "", "", "True"], "scatter_add", {"rows": 4, "cols": 32}),
        ("aten::index_copy_", [ROWS, [], [4], [4, 32]], ["", "0", "", ""], "elementwise", {"numel": 128}),
        ("aten::hardswish_backward", [ROWS, ROWS], [], "elementwise", {"numel": 192, "backward": True}),
        ("aten::std", [ROWS, [], [], []], ["", "[1]", "1", "True"], "reduction", {"rows": 6, "cols": 32}),
        # twice as many pixels each way: all of them are written, a quarter is read
        ("aten::upsample_nearest2d", [IMAGE], ["", "[16, 16]", "", ""],
         "elementwise", {"numel": 8192, "kind": "copy", "num_inputs": 0}),
        ("aten::upsample_nearest2d_backward", [[2, 16, 16, 16]], ["", "[16, 16]", "[2, 16, 8, 8]"],
         "reduction", {"rows": 2048, "cols": 4}),
        ("aten::reflection_pad2d_backward", [[2, 16, 10, 10], IMAGE], [], "elementwise", {"numel": 2048}),
        # the loss reads two tensors; its gradient, whose own gradient is a number, too
        ("aten::mse_loss", [ROWS, ROWS], ["", "", "1"], "elementwise", {"numel": 192, "num_inputs": 2}),
        ("aten::mse_loss_backward", [[], ROWS, ROWS], [], "elementwise", {"numel": 192, "num_inputs": 2}),
        ("aten::glu", [ROWS], ["", "-1"], "elementwise", {"numel": 96, "kind": "silu_mul", "num_inputs": 2}),
        ("aten::glu_backward", [[6, 16], ROWS], ["", "", "-1"], "elementwise", {"numel": 96, "backward": True}),
    ],
)  # fmt: skip
def test_what_networks_are_made_of(name, dims, values, op, params):
    operator = mapped(name, dims, values=values)
    assert operator.op == op
    assert {key: getattr(operator, key) for key in params} == params


@pytest.mark.parametrize(
    ("name", "places", "heads_first"),
    [
        ("aten::_scaled_dot_product_flash_attention_backward", 11, True),
        ("aten::_scaled_dot_product_efficient_attention_backward", 11, True),
        ("aten::_scaled_dot_product_cudnn_attention_backward", 14, True),
        ("aten::_flash_attention_backward", 11, False),
        ("flash_attn::_flash_attn_backward", 10, False),
    ],
)
def test_gradients_of_attention(name, places, heads_first):
    q, k = ([2, 8, 100, 64], [2, 4, 100, 64]) if heads_first else ([2, 100, 8, 64], [2, 100, 4, 64])
    values = [""] * 16
    values[places] = "True"
    operator = mapped(name, [q, q, k, k], values=values)
    # 10 FLOP a pair and element of a head: 2.5 times the forward pass
    assert operator.flop() == 10 * 2 * 8 * 64 * 5050
    assert (operator.backward, operator.kv_heads) == (True, 4)


@pytest.mark.parametrize(
    ("name", "dims", "values", "part"),
    [
        ("aten::native_batch_norm", [[16]], [], "has the shape 16"),
        ("aten::native_group_norm", [IMAGE], [], "no values"),
        ("aten::native_layer_norm_backward", [ROWS, ROWS, [], [5, 1]], [], "5 statistics do not belong"),
        ("aten::max_pool2d_with_indices", [IMAGE], [], "does not say its windows"),
        ("aten::max_pool2d_with_indices", [IMAGE], ["", "[3]", "", "", "[2]", ""], "have gaps"),
        ("aten::avg_pool3d", [IMAGE], ["", "[3, 2]", "", "", ""], "does not say its windows"),
        ("aten::max_pool2d_with_indices_backward", [[2, 16, 9, 9], IMAGE], [], "no window leads"),
        ("aten::adaptive_max_pool2d", [IMAGE], ["", "[9, 9]"], "larger than its input"),
        ("aten::adaptive_max_pool2d", [IMAGE], ["", ""], "does not say the size of its result"),
        ("aten::index", [ROWS, [[], [4]]], [], "other axes than the first"),
        ("aten::index", [ROWS, [[4], [4], [4]]], [], "other axes than the first"),
        ("aten::index_add_", [ROWS, [], [4], [4, 32]], ["", "2", "", ""], "does not say the axis"),
        ("aten::_fft_c2c", [ROWS], ["", "[1]", "0", "True"], "the dtype is bf16"),
        ("aten::_fft_c2r", [ROWS], ["", "[1]", "0", ""], "does not say the size of its result"),
        ("aten::grid_sampler_2d", [IMAGE, [2, 4, 4, 2]], ["", "", "3"], "how it joins pixels"),
        ("aten::im2col", [IMAGE], ["", "[3, 3]", "", "[1, 1]", "[1, 1]"], "does not say its windows"),
        ("aten::sort", [ROWS], ["", "", ""], "does not say the axis of aten::sort"),
        ("aten::index_put_", [ROWS, [[4]], [4, 32]], [], "does not say whether it adds"),
        ("aten::upsample_nearest2d", [IMAGE], ["", "", "[2.0, 2.0]"], "does not say the size of its result"),
        ("aten::upsample_nearest2d_backward", [[2, 16, 9, 9]], ["", "[9, 9]", ""], "the size of its result"),
    ],
)
def test_what_a_trace_does_not_say(name, dims, values, part):
    assert part in refused(name, dims, values=values)


@pytest.mark.parametrize(
    ("name", "heads_first", "place"),
    [
        ("aten::_scaled_dot_product_flash_attention", True, 4),
        ("aten::_scaled_dot_product_efficient_attention", True, 6),
        ("aten::_scaled_dot_product_cudnn_attention", True, 6),
        ("aten::scaled_dot_product_attention", True, 5),
        ("aten::_flash_attention_forward", False, 8),
        ("flash_attn::_flash_attn_forward", False, 5),
    ],
)
def test_attention(name, heads_first, place):
    q, k = ([2, 8, 100, 64], [2, 4, 100, 64]) if heads_first else ([2, 100, 8, 64], [2, 100, 4, 64])
    for causal in (True, False):
        values = [""] * 10
        values[place] = str(causal)
        operator = mapped(name, [q, k, k], values=values)
        assert (operator.batch, operator.heads, operator.kv_heads, operator.seq_q) == (2, 8, 4, 100)
        # 4 FLOP for each pair of query and key and element of a head; causal: 1 + 2 + ... + 100 pairs
        assert operator.flop() == 4 * 2 * 8 * 64 * (5050 if causal else 10000)


def test_efficient_attention_of_two_versions():
    shape = [[2, 100, 8, 64]] * 3
    newer = ["", "", "", "", "", "", "100", "100", "0.", "1", "False"]
    older = ["", "", "", "", "", "", "100", "0.", "0", "False"]
    assert mapped("aten::_efficient_attention_forward", shape, values=newer).causal
    assert not mapped("aten::_efficient_attention_forward", shape, values=older).causal
    assert "causal" in refused("aten::_efficient_attention_forward", shape, values=[""] * 9)


def test_values_of_attention_may_be_narrower_than_keys():
    latent = [[1, 8, 5, 192], [1, 8, 5, 192], [1, 8, 5, 128]]
    op = mapped("aten::_scaled_dot_product_efficient_attention", latent, values=[""] * 7)
    assert (op.head_dim, op.value_dim, op.flop()) == (192, 128, 2 * 8 * 25 * (192 + 128))
    assert (
        "value_dim" not in mapped("aten::_scaled_dot_product_flash_attention", latent[:2] * 2, values=[""] * 6).params()
    )


def test_attention_that_is_not_modelled():
    packed = [[900, 8, 64]] * 3
    assert "packed into one" in refused("aten::_flash_attention_forward", packed, values=[""] * 10)
    assert "packed into one" in refused("aten::_flash_attention_backward", [packed[0], *packed], values=[""] * 12)
    values = ["", "", "", "0.", "0.1", "True", "128", "0"]
    assert "window" in refused("flash_attn::_flash_attn_forward", [[1, 5, 8, 64]] * 3, values=values)


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "expected"),
    [
        ("aten::add", [[4, 8], [4, 8], []], [FLOAT, FLOAT, "Scalar"], [], ("add", 32, 2, "fp32", "fp32")),
        ("aten::mul_", [[4, 8], []], [FLOAT, "double"], [], ("mul", 32, 1, "fp32", "fp32")),
        ("aten::mul", [[4, 8], [8]], [FLOAT, FLOAT], [], ("mul", 32, 1, "fp32", "fp32")),
        ("aten::add", [[4, 8], [4, 8]], [FLOAT, BF16], [], ("add", 32, 2, "bf16", "fp32")),
        ("aten::eq", [[4, 8], [4, 8]], [LONG, LONG], [], ("sub", 32, 2, "int64", "int8")),
        ("aten::gelu", [[4, 8]], [HALF], [], ("gelu", 32, 1, "fp16", "fp16")),
        ("aten::mish_", [[4, 8]], [HALF], [], ("gelu", 32, 1, "fp16", "fp16")),
        ("aten::isnan", [[4, 8]], [HALF], [], ("neg", 32, 1, "fp16", "int8")),
        ("aten::clamp_min_", [[4, 8], []], [HALF, "Scalar"], [], ("relu", 32, 1, "fp16", "fp16")),
        ("aten::copy_", [[4, 8], [4, 8], []], [FLOAT, FLOAT], [], ("copy", 32, 1, "fp32", "fp32")),
        ("aten::copy_", [[4, 8], [4, 8], []], [FLOAT, BF16], [], ("cast", 32, 1, "bf16", "fp32")),
        ("aten::addcmul_", [[9], [9], [9]], [FLOAT] * 3, [], ("fma", 9, 3, "fp32", "fp32")),
        ("aten::where", [[9], [9], [9]], ["bool", HALF, HALF], [], ("where", 9, 2, "fp16", "fp16")),
    ],
)
def test_elementwise(name, dims, types, values, expected):
    operator = mapped(name, dims, types, values)
    found = (operator.kind, operator.numel, operator.num_inputs, operator.dtype, operator.out_dtype)
    assert (operator.op, *found) == ("elementwise", *expected)


def test_expanded_tensors_are_read_once():
    # an axis of stride 0 holds one row of 8 over and over: smaller than the result, it does not count as an input
    operator = mapped("aten::add", [[4, 8], [4, 8]], [FLOAT] * 2, strides=[[8, 1], [0, 1]])
    assert operator.num_inputs == 1
    copied = mapped("aten::copy_", [[4, 8], [4, 8]], [FLOAT] * 2, strides=[[8, 1], [0, 1]])
    outer = mapped("aten::mul", [[4, 1], [1, 8]], [FLOAT] * 2)
    for operator in (copied, outer):
        assert (operator.work().bytes_read, operator.work().bytes_written) == (0, 4 * 32)
    assert "do not broadcast" in refused("aten::mul", [[4], [3]], [FLOAT] * 2)


def test_lists_of_tensors_take_their_dtype_from_the_kernel():
    kernel = "void at::native::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4, 64, 64>(char*)"
    dims, types = [[[4, 8], [2, 8]], []], ["TensorList", "Scalar"]
    operator = mapped("aten::cat", dims, types, ["", "0"], kernels=[kernel])
    assert (operator.kind, operator.numel, operator.work().bytes_written) == ("copy", 48, 96)
    assert "dtype" in refused("aten::cat", dims, types, ["", "0"])


def test_optimizers():
    lists = [[[10, 10], [20]]] * 4
    adam = "void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >()"
    operator = mapped("aten::_fused_adamw_", lists, ["TensorList"] * 4, kernels=[adam])
    # weights, gradients and two moments are read, all but the gradients written: 7 x 120 x 4 B
    assert operator.work().bytes_read + operator.work().bytes_written == 7 * 120 * 4
    add = mapped("aten::_foreach_add_", lists[:2], ["TensorList"] * 2, kernels=["f<float>"])
    assert (add.kind, add.numel, add.num_inputs) == ("add", 120, 2)
    assert mapped("aten::_foreach_mul_", lists[:1], ["TensorList"], kernels=["f<float>"]).num_inputs == 1
    assert mapped("aten::_foreach_norm", lists[:1], ["TensorList"], kernels=["f<float>"]).cols == 120


@pytest.mark.parametrize(
    ("name", "dims", "values", "expected"),
    [
        ("aten::_softmax", [[4, 8, 16]], ["", "-1", "False"], ("softmax", {"rows": 32, "cols": 16})),
        ("aten::_log_softmax", [[4, 8, 16]], ["", "1", "False"], ("softmax", {"rows": 64, "cols": 8, "log": True})),
        (
            "aten::native_layer_norm",
            [[4, 8, 16], [], [16], [16]],
            ["", "[16]"],
            ("layer_norm", {"rows": 32, "cols": 16}),
        ),
        ("aten::native_layer_norm", [[4, 8, 16]], ["", "[8, 16]"], ("layer_norm", {"rows": 4, "cols": 128})),
        ("aten::rms_norm", [[4, 8, 16], [], [16]], ["", "[16]"], ("rms_norm", {"rows": 32, "cols": 16})),
        ("aten::sum", [[4, 8]], ["", ""], ("reduction", {"rows": 1, "cols": 32})),
        ("aten::sum", [[4, 8]], ["", "6"], ("reduction", {"rows": 1, "cols": 32})),  # sum(self, dtype)
        ("aten::mean", [[4, 8], [], [], []], ["", "[-1]", "True", ""], ("reduction", {"rows": 4, "cols": 8})),
        ("aten::amax", [[4, 8], [], []], ["", "[0, 1]", "True"], ("reduction", {"rows": 1, "cols": 32})),
        ("aten::linalg_vector_norm", [[4, 8]], ["", "2", "", "False"], ("reduction", {"rows": 1, "cols": 32})),
    ],
)
def test_rows_and_columns(name, dims, values, expected):
    assert sizes(mapped(name, dims, values=values)) == expected


def test_look_ups():
    for name, dims, values in (
        ("aten::embedding", [[1000, 64], [7, 2]], ["", "", "-1"]),
        ("aten::index_select", [[1000, 64], [], [14]], ["", "0", ""]),
    ):
        operator = mapped(name, dims, [BF16, LONG if name.endswith("g") else "Scalar", LONG], values)
        assert (operator.op, operator.tokens, operator.vocab, operator.dim) == ("embedding", 14, 1000, 64)
    # along the other axis a place has 1000 elements: 14 indices of 8 B, and at least those of one place
    across = mapped("aten::index_select", dims, [BF16, "Scalar", LONG], ["", "1", ""])
    assert across.work().bytes_written == 14 * 1000 * 2
    assert across.work().bytes_read == pytest.approx(14 * 8 + 1000 * 2, rel=0.02)  # whole sectors
    assert "does not say the axis" in refused("aten::index_select", dims, [BF16, "Scalar", LONG], ["", "", ""])


def test_generated_kernels():
    dims, values = [[8, 32], [8, 32], [8, 32], []], ["", "", "", "256"]
    pointwise = mapped("triton_poi_fused_add_3", dims, [BF16] * 3, values)
    assert pointwise.work().bytes_read + pointwise.work().bytes_written == 3 * 256 * 2
    norm = mapped("triton_red_fused_mean_0", [[8, 32], [32], [8, 32], [], []], [BF16] * 3, ["", "", "", "8", "32"])
    assert norm.work().bytes_read + norm.work().bytes_written == 2 * 256 * 2
    # the last tensor is a product that is viewed as the first, so that the first is read and written
    product = [[2, 4, 32], [8, 32], []]
    gated = mapped("triton_poi_fused__unsafe_view_mul_silu_2", product, [BF16] * 2, ["", "", "256"])
    assert gated.work().bytes == (2 + 1) * 256 * 2
    apart = mapped("triton_poi_fused__unsafe_view_silu_2", [[8, 32], [2, 4, 32], []], [BF16] * 2, ["", "", "256"])
    assert apart.work().bytes == (1 + 1) * 256 * 2
    summed = mapped("triton_per_fused_sum_1", [[8, 32], [8], [], []], [BF16] * 2, ["", "", "8", "32"])
    assert sizes(summed) == ("reduction", {"rows": 8, "cols": 32})


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("triton_tem_fused_mm_0", [[64, 32], [32, 16], [64, 16]]),
        # what is added, and a factor that is fused behind the product
        ("triton_tem_fused_addmm_mul_3", [[16], [64, 32], [32, 16], [64, 16], [64, 16]]),
        ("triton_tem_fused_bmm_1", [[3, 64, 32], [3, 32, 16], [3, 64, 16]]),
        # factors of one size are one product, whichever is the first
        ("triton_tem_fused_mm_2", [[64, 64], [64, 64], [64, 64], []]),
    ],
)
def test_products_of_inductor_s_templates_are_told_by_their_tensors(name, dims):
    product = mapped(name, dims, [BF16] * len(dims), [""] * len(dims))
    batch, (m, n) = dims[1][:-2], [size for size in dims if size][-1][-2:]
    k = 64 if name.endswith("2") else 32
    assert (product.op, product.flop()) == ("gemm", 2 * (batch or [1])[0] * m * n * k)


@pytest.mark.parametrize(
    "dims", [[[64, 32], [16, 8], [64, 8]], [[64], [64]], [[64, 32], [32, 64], [64, 64], [64, 64], [64, 64]]]
)
def test_templates_that_do_not_tell_their_product_are_refused(dims):
    said = refused("triton_tem_fused_mm_0", dims, [BF16] * len(dims), [""] * len(dims))
    assert "which of them it multiplies" in said


@pytest.mark.parametrize(
    ("name", "elements", "op", "size"),
    [
        ("allreduce", (1000, 1000), "all_reduce", 2000),
        ("_allgather_base", (1000, 8000), "all_gather", 16000),
        ("allgather_into_tensor_coalesced", (1000, 8000), "all_gather", 16000),
        ("reduce_scatter_tensor_coalesced", (8000, 1000), "reduce_scatter", 16000),
        ("all_to_allv", (1000, 1000), "alltoall", 2000),
    ],
)
def test_collectives(name, elements, op, size):
    operator = collective(name, elements, 8, "BFloat16")
    assert (operator.op, operator.bytes, operator.num_gpus, operator.dtype) == (op, size, 8, "bf16")


@pytest.mark.parametrize(("number", "dtype"), [(5, "fp16"), (6, "fp32"), (15, "bf16")])
def test_the_result_of_a_scaled_product_has_the_dtype_of_its_number(number, dtype):
    # c10::ScalarType: 5 Half, 6 Float, 15 BFloat16
    values = ["", "", "", "", "", "", str(number), "True"]
    assert mapped("aten::_scaled_mm", [[16, 32], [32, 8]], ["c10::Float8_e4m3fn"] * 2, values).out_dtype == dtype


def test_sizes_that_no_tensor_has_are_no_shapes():
    # 2^53 is where float64 loses whole numbers; 9 PB are more than any memory
    assert mapped("aten::relu", [[2**52]]).numel == 2**52
    for size in (2**53, 10**30, True, 1.5, -1, "4"):
        assert "record_shapes" in refused("aten::relu", [[size]])


def test_collectives_of_absurd_size_are_damage():
    assert collective("allreduce", (2**40, 2**40), 8, "BFloat16").bytes == 2 * 2**40
    for elements, ranks in ((2**51, 8), (2**40, 2**51), (0, 8), (8, 0)):
        with pytest.raises(NotModelledError, match="the trace does not say the size of the allreduce"):
            collective("allreduce", (elements, elements), ranks, "BFloat16")
    with pytest.raises(NotModelledError, match="no collective broadcast"):
        collective("broadcast", (8, 8), 8, "BFloat16")


def test_reasons():
    assert "record_shapes" in refused("aten::mm", [])
    assert "(c10::complex<float>)" in refused("aten::exp", [[2, 2]], ["c10::complex<float>"])
    assert "do not form a product" in refused("aten::mm", [[2, 3], [2, 2]])
    assert "no elements" in refused("aten::mm", [[0, 3], [3, 2]])


def test_names_say_shapes_and_dtypes():
    assert describe(call("aten::addmm", [[512], [16, 2048], [2048, 512], [], []], [BF16] * 3)) == (
        "aten::addmm(bias 512, 16x2048, 2048x512) bf16"
    )
    assert describe(call("aten::copy_", [[4], [4]], [FLOAT, BF16])) == "aten::copy_(4, 4) fp32/bf16"
    assert describe(call("aten::cat", [[[2], [3]], []], ["TensorList"])) == "aten::cat([2, 3])"
    # up to four shapes fit a table
    assert describe(call("aten::cat", [[[2]] * 4])) == "aten::cat([2, 2, 2, 2])"
    assert describe(call("aten::cat", [[[2]] * 5])) == "aten::cat([5 tensors, 10 elements])"


DIMS = st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=5)


@given(
    name=st.sampled_from(sorted(MAPPINGS)),
    dims=DIMS,
    dtype=st.sampled_from([BF16, FLOAT, "TensorList", "Scalar"]),
    values=st.lists(st.sampled_from(["", "1", "[1, 1]", "True", "-1", "x", "0.5", "[0]"]), max_size=9),
)
def test_every_mapping_gives_an_operator_or_a_reason(name, dims, dtype, values):
    operator, reason = operator_of(call(name, dims, [dtype] * len(dims), values))
    assert (operator is None) == bool(reason)
    assert operator is None or operator.work().bytes_written > 0
