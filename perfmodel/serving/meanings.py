"""What the terms of a step are, for people."""

from collections.abc import Mapping
from types import MappingProxyType

#: what the terms of a step are, for people
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "weights": "matrix products of attention and MLP",
        "experts": "products of experts, their router, moving tokens",
        "kv": "attention of decoding sequences: reading keys and values",
        "prefill": "attention of prompts",
        "encoder": "the encoder of the sound of prompts, and the keys that the decoder keeps of it",
        "exchange": "reductions and exchanges between GPUs",
        "sends": "hidden states from one stage of a pipeline to the next",
        "kernels": "norms, rotary positions, activations",
        "head": "logits and sampling",
        "gaps": "device idle between kernels",
        "host": "scheduler, detokenizer, launch: not hidden by kernels",
    }
)
