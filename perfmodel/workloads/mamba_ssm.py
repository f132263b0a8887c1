"""Configurations that the package mamba-ssm writes, as those of transformers.

They have no ``model_type``: ``d_model``, ``n_layer`` and ``ssm_cfg`` are those of ``MambaConfig`` and of the classes
``Mamba`` and ``Mamba2`` in state-spaces/mamba (mamba_ssm/models/config_mamba.py, mamba_ssm/modules/).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.workloads.config_values import WrongValueError, stated_number

#: names of layers -> the model type of transformers that has them
_TYPES = {"Mamba1": "mamba", "Mamba2": "mamba2"}


def is_mamba_ssm(document: Mapping[str, Any]) -> bool:
    """Return whether a configuration is one of mamba-ssm."""
    return not document.get("model_type") and {"d_model", "n_layer"} <= {*document} and "ssm_cfg" in document


def as_transformers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of such a configuration under the names of ``MambaConfig`` or ``Mamba2Config``.

    Raises
    ------
    WrongValueError
        For layers of another name, and for attention or MLPs between the layers, which are not modelled.
    """
    own = document["ssm_cfg"] or {}
    if not isinstance(own, dict):
        raise WrongValueError(f"ssm_cfg = {own!r} is not a table of keys")
    name = own.get("layer", "Mamba1")
    if name not in _TYPES:
        raise WrongValueError(f"ssm_cfg has the layer {name!r}; {' and '.join(_TYPES)} are modelled")
    for key in ("attn_layer_idx", "d_intermediate"):
        if document.get(key):
            raise WrongValueError(f"{key} = {document[key]!r} puts attention or MLPs beside its states: not modelled")
    hidden = stated_number(document, "d_model", 2560, least=1)
    multiple = stated_number(document, "pad_vocab_size_multiple", 8, least=1)
    inner, head = stated_number(own, "expand", 2, least=1) * hidden, stated_number(own, "headdim", 64, least=1)
    return {
        "model_type": _TYPES[name],
        "hidden_size": hidden,
        "num_hidden_layers": document["n_layer"],
        "vocab_size": multiple * math.ceil(stated_number(document, "vocab_size", 50277, least=1) / multiple),
        "tie_word_embeddings": document.get("tie_embeddings", True),
        "rms_norm": document.get("rms_norm", True),
        "intermediate_size": inner,
        "state_size": own.get("d_state"),
        "conv_kernel": own.get("d_conv"),
        "time_step_rank": own.get("dt_rank"),
        "num_heads": inner // head,
        "head_dim": head,
        "n_groups": stated_number(own, "ngroups", 1, least=1),
        "use_bias": bool(own.get("bias", False)),
        "use_conv_bias": own.get("conv_bias", True),
    }
