"""Whose kernels ran for an entry of a profile: the library, as measurement tables name it, by its call and kernels."""

from __future__ import annotations

import re

from perfmodel.profile.profile import ProfileEntry

#: part of the name of PyTorch's calls of attention -> the kernel within the library
_ATTENTION = {"flash_attention": "fa2", "efficient_attention": "efficient", "cudnn_attention": "cudnn"}
#: PyTorch's calls of norms of images that are kernels of the vendor's library, not of PyTorch -> that library
_VENDORS_NORMS = {"aten::cudnn_batch_norm": "cudnn", "aten::miopen_batch_norm": "miopen"}
#: kernels that look up rows element by element, and the release before PyTorch took vectors in their place
#: (`GATHER_SINCE` of perfmodel.prediction.latency.by_element)
_OLDER_LOOK_UPS, _BEFORE_VECTORS = re.compile(r"indexSelect(Large|Small)Index"), "torch-2.6"


def library_of(entry: ProfileEntry) -> str:
    """Return the library that runs an entry, as measurement tables name it: "torch" for PyTorch's operators.

    Attention has the kernel too, which the operator names. An older release is named where its kernels tell it.
    """
    call = entry.launched_by
    if own := _VENDORS_NORMS.get(call.removesuffix("_backward")):
        return own
    kernel = next((kernel for part, kernel in _ATTENTION.items() if part in call), "")
    if call.startswith("aten::"):
        if any(map(_OLDER_LOOK_UPS.search, entry.kernels)):
            return _BEFORE_VECTORS
        return f"torch/{kernel}" if kernel else "torch"
    return "fa2" if call.startswith("flash_attn::") else ""
