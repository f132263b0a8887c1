"""What PyTorch's own CUDA kernels take where they are not the one kernel that an operator describes.

These families are for ``library="torch"`` alone: torch.sort moves 64-bit indices, torch.multinomial is a dozen kernels
and waits for the host twice, a batch norm has one block a channel. Each module lists the kernels of some operators with
the files of PyTorch that they stand in (pytorch/aten/src/ATen/native/cuda, 2.11), as passes whose times add up. Any
other library, and none named, keeps the operator's one kernel; where the library is not known, its interval reaches
these.

The defaults of the constants, and the numbers beside them, were set on our own records of an H100 with torch 2.11.0
(2026-11-23, 116 rows); those in `hardware_specs` are fitted on half of their shapes. Kernels that a first look at an
H200 (51 rows: 19 % off in the mean, 84 % in the interval) showed to be other than assumed say so.
"""

from perfmodel.prediction.latency.eager import conversions, elements, images, lookups, selections, steps

SERVES = {
    "eager_selection": ("sort", "topk", "scan", "sampling"),
    "eager_lookup": ("gather", "scatter_add", "index_select", "kv_write", "embedding", "embedding_bag"),
    "eager_image": ("batch_norm", "group_norm", "pool2d", "pool3d"),
    "eager_conversion": ("quantize", "dequantize"),
    "eager_element": ("dropout", "transpose"),
    "eager_step": ("optimizer", "optimizer_adamw"),
    "eager_norm_backward": ("layer_norm", "rms_norm", "add_rms_norm", "softmax", "reduction"),
}

FAMILIES = (
    selections.FAMILY,
    lookups.FAMILY,
    images.FAMILY,
    images.NORM_BACKWARD,
    conversions.FAMILY,
    elements.FAMILY,
    steps.FAMILY,
)
