"""What the terms of a training step are, for people."""

from collections.abc import Mapping
from types import MappingProxyType

#: term of a step -> what it is, in the order in which a page lists them
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "products": "matrix products of layers, forward and backward",
        "attention": "attention, and layers with a state",
        "memory_bound": "norms, activations, residuals, sums of gradients",
        "casts": "what products read, quantised to 8 bits or fewer",
        "head": "embedding, logits and loss",
        "recompute": "what backward computes anew",
        "tensor": "tensor parallel exchanges that nothing hides",
        "context": "context parallel exchanges that nothing hides",
        "expert": "tokens to experts and back that nothing hides",
        "data": "data parallel exchanges that nothing hides",
        "sends": "hidden states from one stage to the next",
        "optimizer": "the update of the weights on the GPU",
        "compression": "kernels that compress gradients",
        "offload": "copies to and from the host that nothing hides",
        "cpu_optimizer": "the update of the weights on the host",
        "bubble": "the wait while the pipeline fills and drains",
        "imbalance": "the wait for the rank with the longest documents",
        "stragglers": "the wait for the slowest GPU of all",
        "loading": "the wait for samples",
        "gaps": "the device is idle between kernels",
        "host": "the device waits for launches of short kernels",
    }
)
