"""An encoder of sound in a serving engine: what it computes once for each request, and leaves for its decoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.serving.cost import Array, Cost
from perfmodel.serving.kernels import Kernels

#: the term of a step that it is
TERM = "encoder"


def encoded(kernels: Kernels, requests: Array) -> Cost:
    """Return the cost of encoding the sound of some requests, and of the keys that the decoder's layers keep of it.

    Two convolutions, of which the first has two results for each token of the encoder, with a GELU each; the encoder's
    layers, whose tokens attend to all of their sequence; and for each layer of the decoder the products of its keys and
    values, which are written. Engines encode outside of their graphs: see
    `perfmodel.serving.host.Host.prompt_launches_s`.

    Parameters
    ----------
    kernels : what runs the decoder.
    requests : requests of one copy of the model.

    Returns
    -------
    Cost
        All of it under one term.

    Raises
    ------
    ValueError
        Without an encoder.
    """
    part = kernels.shard
    if part.encoder is None:
        raise ValueError("the model has no encoder of sound")
    own = replace(kernels, shard=part.encoder)
    tokens = requests * float(part.cross_tokens)
    cost = own.linear(tokens)
    lengths = np.full(requests.shape, float(part.cross_tokens))
    time, deviation = own.attention.over_layers(batch=requests, seq_q=lengths, seq_kv=lengths)
    cost.add("prefill", time, "prefill", deviation)
    for times, one in zip((2.0, 1.0), part.stem, strict=True):
        own.wide_product(cost, "weights", times * tokens, one.n, one.k)
        own.stream(cost, "kernels", times * tokens * one.n, 1, "gelu", 1.0)
    own.product(cost, "weights", tokens, part.keys_width, part.hidden, part.layers)
    own.stream(cost, "kernels", tokens * part.keys_width, 1, "copy", part.layers)
    return Cost({TERM: cost.total_s}, cost.spread)


def encoder_kernels(kernels: Kernels) -> float:
    """Return the kernels of an encoder of sound, and of the keys that it leaves; 0 without one.

    A convolution is a product and a GELU; a layer of the decoder has a product and a write.
    """
    part = kernels.shard
    if part.encoder is None:
        return 0.0
    own = replace(kernels, shard=part.encoder)
    return 4.0 + part.encoder.layers * own.kernels_per_layer + 2.0 * part.layers
