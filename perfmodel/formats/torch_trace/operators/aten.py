"""Maps calls of a framework's operators to operators of the model, by name, shapes and dtypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType

from perfmodel.errors import UsageError
from perfmodel.formats.kernel_names import computes_addresses
from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape, in_parts, part_of
from perfmodel.formats.torch_trace.operators import (
    attention,
    convolution,
    images,
    lookups,
    matrix,
    memory,
    network,
    norms,
    spectra,
)
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise

Mapping = Callable[[Call], Operator]

#: operators whose arguments broadcast -> the kind with as many inputs and FLOP; each name also stands for "name_"
_BROADCAST = {
    "add": "add", "sub": "sub", "rsub": "sub", "mul": "mul", "div": "div", "pow": "pow", "maximum": "maximum",
    "minimum": "minimum", "remainder": "div", "floor_divide": "div", "atan2": "div", "bitwise_and": "mul",
    "bitwise_or": "add", "logical_and": "mul", "logical_or": "add", "addcmul": "fma", "addcdiv": "fma", "lerp": "fma",
    "fmod": "div", "xlogy": "pow", "bitwise_xor": "add", "logical_xor": "add", "fmax": "maximum", "fmin": "minimum",
    "hypot": "pow", "logaddexp": "pow", "logaddexp2": "pow", "copysign": "mul", "heaviside": "maximum", "ldexp": "mul",
    "bitwise_left_shift": "mul", "bitwise_right_shift": "mul", "linalg_cross": "fma", "nextafter": "add",
}  # fmt: skip
#: gradients, which read the gradient of the result, and the input or the result -> the kind of the function
_GRADIENTS = {
    "threshold_backward": "relu", "silu_backward": "silu", "gelu_backward": "gelu", "tanh_backward": "tanh",
    "sigmoid_backward": "sigmoid", "hardtanh_backward": "relu", "leaky_relu_backward": "relu",
    "_prelu_kernel_backward": "relu", "elu_backward": "sigmoid", "softplus_backward": "rsqrt",
    "hardswish_backward": "rsqrt", "hardsigmoid_backward": "relu", "mish_backward": "gelu",
    "log_sigmoid_backward": "rsqrt", "softshrink_backward": "relu", "hardshrink_backward": "relu",
    "rrelu_with_noise_backward": "relu", "logit_backward": "sigmoid",
}  # fmt: skip
#: operators that write every element of their first argument
_FILLS = ("fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "ones_like", "zeros_like")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
#: operators of one tensor -> the kind with as many FLOP; a cosine is a special function like exp
_UNARY = {
    "relu": "relu", "clamp": "relu", "clamp_min": "relu", "clamp_max": "relu", "threshold": "relu", "gelu": "gelu",
    "silu": "silu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "neg": "neg", "abs": "abs", "square": "square", "reciprocal": "neg", "cos": "exp", "sin": "exp", "erf": "exp",
    "flip": "copy", "roll": "copy", "masked_fill": "copy", "tril": "copy", "triu": "copy",
    "leaky_relu": "relu", "hardtanh": "relu", "_prelu_kernel": "relu", "elu": "silu", "softplus": "silu",
    "log_sigmoid_forward": "silu", "hardsigmoid": "silu", "hardswish": "gelu", "mish": "gelu", "log1p": "log",
    "log2": "log", "log10": "log", "expm1": "exp", "exp2": "exp", "tan": "exp", "erfinv": "exp", "sign": "neg",
    "sgn": "neg", "floor": "neg", "ceil": "neg", "round": "neg", "trunc": "neg", "bitwise_not": "neg",
    "pixel_shuffle": "copy", "pixel_unshuffle": "copy", "reflection_pad1d": "copy", "reflection_pad2d": "copy",
    "replication_pad1d": "copy", "replication_pad2d": "copy", "reflection_pad3d": "copy", "replication_pad3d": "copy",
    "channel_shuffle": "copy", "native_channel_shuffle": "copy", "index_fill": "copy", "celu": "silu", "selu": "silu",
    "hardshrink": "relu", "softshrink": "relu", "rrelu_with_noise": "relu", "logit": "log", "asin": "exp",
    "acos": "exp", "atan": "exp", "sinh": "exp", "cosh": "exp", "asinh": "exp", "acosh": "exp", "atanh": "exp",
    "erfc": "exp", "lgamma": "exp", "digamma": "exp", "i0": "exp", "sinc": "exp", "nan_to_num": "relu", "frac": "sub",
    "deg2rad": "neg", "rad2deg": "neg", "conj_physical": "neg", "diag_embed": "copy",
}  # fmt: skip
_FOREACH = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "addcmul": "fma", "addcdiv": "fma", "lerp": "fma",
    "sqrt": "sqrt", "neg": "neg", "maximum": "maximum", "minimum": "minimum", "pow": "pow", "exp": "exp", "abs": "abs",
    "log": "log", "reciprocal": "neg",
}  # fmt: skip
#: operators that write a byte of truth for each element of their only tensor
_PREDICATES = ("isnan", "isinf", "isfinite", "logical_not")
_REDUCTIONS = (
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "prod", "logsumexp", "std", "var",
    "std_mean", "var_mean", "aminmax", "nansum", "count_nonzero", "histc", "bincount", "nonzero",
)  # fmt: skip
#: operators that make images of another size
_ENLARGED = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_bicubic2d", "_upsample_bicubic2d_aa", "upsample_trilinear3d",
)  # fmt: skip
#: operators that do the same to both parts of complex numbers. A product takes 6 FLOP for the two, and its bytes decide
_OF_PARTS = frozenset(
    f"aten::{name}{end}"
    for name in (
        *_BROADCAST,
        "copy_",
        "cat",
        "stack",
        "where",
        "neg",
        "masked_fill",
        "fill_",
        "zero_",
        "zeros_like",
        "sgn",
        "conj_physical",
    )
    for end in ("", "_")
)
#: operators with their own order of arguments
_SINGLE: dict[str, Mapping] = {
    "mm": matrix.mm,
    "bmm": matrix.mm,
    "addmm": matrix.addmm,
    "baddbmm": matrix.addmm,
    "addbmm": matrix.addbmm,
    "_addmm_activation": matrix.addmm_activation,
    "linear": matrix.linear,
    "matmul": matrix.matmul,
    "mv": matrix.mv,
    "addmv": matrix.addmv,
    "_scaled_mm": matrix.scaled_mm,
    "_scaled_mm_v2": matrix.scaled_mm_by_recipe,
    "_int_mm": matrix.int_mm,
    "_grouped_mm": matrix.grouped_mm(2, 4),
    "_scaled_grouped_mm": matrix.grouped_mm(4, 7),
    "_scaled_grouped_mm_v2": matrix.grouped_mm(8, 10),
    "_weight_int4pack_mm": matrix.int4_weights,
    "_weight_int8pack_mm": matrix.int8_weights,
    "convolution": convolution.convolution,
    "_convolution": convolution.convolution,
    "conv2d": convolution.conv2d,
    "cudnn_convolution": convolution.cudnn_convolution,
    "cudnn_convolution_relu": convolution.conv2d,
    "miopen_convolution": convolution.miopen_convolution,
    "_conv_depthwise2d": convolution.depthwise,
    "convolution_backward": convolution.convolution_backward,
    "cudnn_convolution_backward_input": convolution.cudnn_gradient,
    "cudnn_convolution_backward_weight": convolution.cudnn_gradient,
    "_scaled_dot_product_flash_attention": attention.sdpa_flash,
    "_scaled_dot_product_efficient_attention": attention.sdpa_efficient,
    "_scaled_dot_product_cudnn_attention": attention.sdpa_efficient,
    "scaled_dot_product_attention": attention.sdpa,
    "_flash_attention_forward": attention.flash_forward,
    "_efficient_attention_forward": attention.efficient_forward,
    "_cudnn_attention_forward": attention.cudnn_forward,
    "_scaled_dot_product_flash_attention_backward": attention.gradients(11, heads_first=True),
    "_scaled_dot_product_efficient_attention_backward": attention.gradients(11, heads_first=True),
    "_scaled_dot_product_cudnn_attention_backward": attention.gradients(14, heads_first=True),
    "_flash_attention_backward": attention.gradients(11, heads_first=False),
    "_efficient_attention_backward": attention.gradients(14, heads_first=False),
    "native_layer_norm": memory.layer_norm,
    "layer_norm": memory.layer_norm,
    "native_layer_norm_backward": norms.layer_norm_backward,
    "native_batch_norm": norms.batch_norm,
    "_native_batch_norm_legit": norms.batch_norm,
    "cudnn_batch_norm": norms.batch_norm,
    "miopen_batch_norm": norms.batch_norm,
    "_batch_norm_with_update": norms.batch_norm_of_batch,
    "native_batch_norm_backward": norms.batch_norm_backward,
    "cudnn_batch_norm_backward": norms.batch_norm_backward,
    "miopen_batch_norm_backward": norms.batch_norm_backward,
    "native_group_norm": norms.group_norm,
    "native_group_norm_backward": norms.group_norm_backward,
    "_fused_rms_norm_backward": norms.rms_norm_backward,
    "_softmax_backward_data": norms.softmax_backward,
    "_log_softmax_backward_data": norms.softmax_backward,
    "cross_entropy_loss": norms.cross_entropy,
    "nll_loss": norms.nll_loss,
    "nll_loss_forward": norms.nll_loss,
    "nll_loss2d_forward": norms.nll_loss,
    "nll_loss_backward": norms.nll_loss_backward,
    "nll_loss2d_backward": norms.nll_loss_backward,
    "mse_loss": memory.of_two("fma"),
    "mse_loss_backward": memory.of_two("fma", first=1),
    "smooth_l1_loss": memory.of_two("fma"),
    "smooth_l1_loss_backward": memory.of_two("fma", first=1),
    "huber_loss": memory.of_two("fma"),
    "huber_loss_backward": memory.of_two("fma", first=1),
    "binary_cross_entropy": memory.of_two("silu_mul"),
    "binary_cross_entropy_backward": memory.of_two("silu_mul", first=1),
    "binary_cross_entropy_with_logits": memory.of_two("silu_mul"),
    "soft_margin_loss": memory.of_two("silu_mul"),
    "soft_margin_loss_backward": memory.of_two("silu_mul", first=1),
    "multi_margin_loss": norms.row_loss,
    "multi_margin_loss_backward": memory.copied(1),
    "_weight_norm_interface": memory.scaled,
    "_weight_norm_interface_backward": memory.of_two("mul"),
    "max_pool2d_with_indices": images.max_pool(2),
    "max_pool2d_with_indices_backward": images.max_pool_backward(2),
    "max_pool3d_with_indices": images.max_pool(3),
    "max_pool3d_with_indices_backward": images.max_pool_backward(3),
    "avg_pool2d": images.mean_pool(2),
    "avg_pool2d_backward": images.mean_pool_backward(2),
    "avg_pool3d": images.mean_pool(3),
    "avg_pool3d_backward": images.mean_pool_backward(3),
    "_adaptive_avg_pool2d": images.adaptive_mean_pool(2),
    "_adaptive_avg_pool2d_backward": images.adaptive_backward(2, "mean"),
    "_adaptive_avg_pool3d": images.adaptive_mean_pool(3),
    "_adaptive_avg_pool3d_backward": images.adaptive_backward(3, "mean"),
    "adaptive_max_pool2d": images.adaptive_max_pool(2),
    "adaptive_max_pool2d_backward": images.adaptive_backward(2, "max"),
    "adaptive_max_pool3d": images.adaptive_max_pool(3),
    "adaptive_max_pool3d_backward": images.adaptive_backward(3, "max"),
    "max_unpool2d": images.unpooled(2),
    "max_unpool3d": images.unpooled(3),
    "grid_sampler_2d": images.grid_samples(0, 1, 2),
    "grid_sampler_3d": images.grid_samples(0, 1, 2),
    "cudnn_grid_sampler": images.grid_samples(0, 1, None),
    "grid_sampler_2d_backward": images.grid_samples(1, 2, 3, backward=True),
    "grid_sampler_3d_backward": images.grid_samples(1, 2, 3, backward=True),
    "cudnn_grid_sampler_backward": images.grid_samples(0, 1, None, backward=True),
    "affine_grid_generator": images.affine_grid,
    "im2col": images.unfolded,
    "col2im": images.folded,
    "_fft_c2c": spectra.fft("complex"),
    "_fft_r2c": spectra.fft("real"),
    "_fft_c2r": spectra.fft("inverse_real"),
    "complex": spectra.joined_parts,
    "_euclidean_dist": matrix.distances,
    "_cdist_forward": matrix.distances,
    "_cdist_backward": matrix.distances_backward,
    "dot": matrix.dot,
    "vdot": matrix.dot,
    "embedding_dense_backward": lookups.embedding_backward,
    "_embedding_bag": lookups.embedding_bag,
    "_embedding_bag_forward_only": lookups.embedding_bag,
    "_embedding_bag_backward": lookups.embedding_bag_backward(6),
    "_embedding_bag_dense_backward": lookups.embedding_bag_backward(5),
    "gather": lookups.gather,
    "index": lookups.index,
    "index_add_": lookups.index_add,
    "index_add": lookups.index_add,
    "scatter_add_": lookups.scatter_add,
    "scatter_add": lookups.scatter_add,
    "scatter_reduce_": lookups.scatter_add,
    "scatter_reduce": lookups.scatter_add,
    "index_reduce_": lookups.index_add,
    "index_reduce": lookups.index_add,
    "take": lookups.take,
    "masked_select": lookups.masked_select,
    "searchsorted": lookups.searched(1),
    "bucketize": lookups.searched(0),
    "scatter_": lookups.scatter,
    "scatter": lookups.scatter,
    "index_put_": memory.written,
    "index_put": memory.written,
    "_index_put_impl_": memory.written,
    "index_copy_": memory.copied(3),
    "index_copy": memory.copied(0),
    "slice_scatter": memory.copied(0),
    "select_scatter": memory.copied(0),
    "diagonal_scatter": memory.copied(0),
    "unfold_backward": memory.copied(0),
    "reflection_pad3d_backward": memory.copied(1),
    "replication_pad3d_backward": memory.copied(1),
    "glu": network.gated,
    "glu_backward": network.gated_backward,
    "reflection_pad1d_backward": memory.copied(1),
    "reflection_pad2d_backward": memory.copied(1),
    "replication_pad1d_backward": memory.copied(1),
    "replication_pad2d_backward": memory.copied(1),
    "native_dropout": network.dropout,
    "_fused_dropout": network.dropout,
    "native_dropout_backward": network.dropout_backward,
    "_masked_scale": network.dropout_backward,
    "sort": lookups.sort,
    "topk": lookups.topk,
    "cumsum": lookups.scan,
    "cumprod": lookups.scan,
    "cummax": lookups.scan,
    "cummin": lookups.scan,
    "_cummax_helper": lookups.scan,
    "_cummin_helper": lookups.scan,
    "logcumsumexp": lookups.scan,
    "_logcumsumexp": lookups.scan,
    "median": lookups.order_statistic(1),
    "nanmedian": lookups.order_statistic(1),
    "kthvalue": lookups.order_statistic(2),
    "mode": lookups.sort,
    "multinomial": lookups.multinomial,
    "rms_norm": memory.rms_norm,
    "_fused_rms_norm": memory.rms_norm,
    "_softmax": memory.softmax,
    "_safe_softmax": memory.softmax,
    "softmax": memory.softmax,
    "_log_softmax": memory.softmax,
    "log_softmax": memory.softmax,
    "where": memory.where,
    "copy_": memory.copy,
    "polar": memory.polar,
    "cat": memory.joined,
    "_cat": memory.joined,
    "stack": memory.joined,
    "embedding": memory.embedding,
    "index_select": memory.index_select,
    "linalg_vector_norm": memory.vector_norm,
    "norm": memory.vector_norm,
    "_foreach_copy_": memory.foreach_copy,
    "_foreach_norm": memory.foreach_norm,
    "_fused_adam_": network.fused_adam,
    "_fused_adamw_": network.fused_adam,
    "_fused_sgd_": network.fused_sgd,
}


def _table() -> dict[str, Mapping]:
    """Return all mappings."""
    table = dict(_SINGLE)
    for name, kind in _BROADCAST.items():
        table[name] = table[f"{name}_"] = memory.elementwise(kind)
    for name, kind in _UNARY.items():
        table[name] = table[f"{name}_"] = memory.unary(kind)
    for name, kind in _GRADIENTS.items():
        table[name] = network.gradient(kind)
    table.update(dict.fromkeys(_FILLS, network.fill))
    for name in _COMPARISONS:
        table[name] = table[f"{name}_"] = memory.elementwise("sub", out_dtype="int8")
    for name in _PREDICATES:
        table[name] = table[f"{name}_"] = memory.unary("neg", out_dtype="int8")
    for name in _ENLARGED:
        table[name], table[f"{name}_backward"] = images.enlarged, images.enlarged_backward
    for name, kind in _FOREACH.items():
        table[f"_foreach_{name}"] = table[f"_foreach_{name}_"] = memory.foreach(kind)
    for name in _REDUCTIONS:
        table[name] = memory.reduction
    table |= _by_number(table)
    named = {f"aten::{name}": mapping for name, mapping in table.items()}
    return {
        **named,
        "flash_attn::_flash_attn_forward": attention.flash_attn_package,
        "flash_attn::_flash_attn_backward": attention.gradients(10, heads_first=False),
    }


def _by_number(table: dict[str, Mapping]) -> dict[str, Mapping]:
    """Return the mappings of operators that have other ones for complex numbers."""
    sizes = {name: _of_complex(spectra.magnitude, memory.unary("abs")) for name in ("abs", "angle")}
    return sizes | {name: _of_complex(spectra.product, table[name]) for name in ("mm", "bmm")}


def _of_complex(mapping: Mapping, otherwise: Mapping) -> Mapping:
    """Return the mapping of an operator that has one of its own for complex numbers."""

    def build(call: Call) -> Operator:
        return (mapping if any(map(part_of, call.all_tensors())) else otherwise)(call)

    return build


#: name of a framework's operator -> function that turns its call into an operator of the model
MAPPINGS = MappingProxyType(_table())


def operator_of(call: Call) -> tuple[Operator | None, str]:
    """Return the operator of the model that a call computes; or None, and the reason.

    >>> from perfmodel.formats.torch_trace.call import Call, Shape
    >>> half = [Shape(dims, "fp16", 1) for dims in ((16, 2048), (2048, 512))]
    >>> operator, _ = operator_of(Call("aten::mm", tuple(half), has_shapes=True))
    >>> operator.params()["n"]
    512
    """
    mapping = MAPPINGS.get(call.name) or _generated(call.name)
    if mapping is None:
        return None, f"the model has no operator for {call.name}"
    if not call.has_shapes:
        return None, "the trace has no shapes (record_shapes=True records them)"
    try:
        call = in_parts(call) if call.name in _OF_PARTS else call
        return _as_run(mapping(call), call), ""
    except NotModelledError as reason:
        return None, str(reason)
    except UsageError as error:
        # the operator refuses the sizes, as padding without an output or heads that do not form groups
        return None, f"the shapes fit no {error.place or 'operator'}: {error.message.rstrip('.')}"


def _as_run(operator: Operator, call: Call) -> Operator:
    """Return an operator with what the names of its kernels, the longest first, say of its loads, or else strides."""
    if not isinstance(operator, Elementwise):
        return operator
    strided = computes_addresses(call.kernels[0]) if call.kernels else _is_strided(call)
    return dataclasses.replace(operator, strided=True) if strided else operator


def _is_strided(call: Call) -> bool:
    """Return whether the operands of a call lie so that PyTorch computes the address of each element.

    Vectors need tensors without gaps, of one shape and one order of their axes; numbers have no address.
    """
    tensors = [tensor for tensor in call.arguments if isinstance(tensor, Shape) and tensor.numel > 1]
    if not all(tensor.inner is not None for tensor in tensors):
        return False  # strides are not told
    return not all(tensor.dense for tensor in tensors) or len({(one.dims, one.inner) for one in tensors}) > 1


def _generated(name: str) -> Mapping | None:
    """Return the mapping of a kernel that TorchInductor generated, from its name."""
    if name.startswith("triton_poi_"):
        return memory.triton_pointwise
    if name.startswith("triton_tem_") and "mm" in name:
        return matrix.triton_product
    return memory.triton_reduction if name.startswith(("triton_red_", "triton_per_")) else None


__all__ = ["MAPPINGS", "operator_of"]
