"""What the stages of a pipeline pass on: the hidden states of a step's tokens, from one stage to the next."""

from __future__ import annotations

import numpy as np

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group, exchange_variances, send_time
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.all_gather import AllGather
from perfmodel.serving.cost import Array, Cost, Deviation, kernel
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.shard import Shard

#: bytes of a number of hidden states
_BYTES = 2.0


def add_sends(cost: Cost, shard: Shard, parallel: Parallel, hardware: Hardware, tokens: Array) -> None:
    """Add the mean stage's share of the sends of a step: pp - 1 of them for pp stages.

    A stage passes on the hidden states of the step's tokens, and beside them the residual that the next norm adds,
    where a layer has one. Each of its tp ranks sends its part of both to its neighbour, which gathers the other parts
    from its own stage (vLLM's and SGLang's ``send_tensor_dict`` with an ``all_gather_group``):

        t = send(S / tp) + all_gather(S, tp),  S = tokens x 2 tensors x hidden x 2 B

    The time of a send is that of training, `perfmodel.cluster.collectives.send_time`.

    Parameters
    ----------
    cost : of all layers of a stage.
    shard, parallel : a GPU's part of the model, and how GPUs share it.
    hardware : one of the GPUs, with its network.
    tokens : of the step, of a micro-batch of one copy.
    """
    if parallel.pp == 1:
        return
    tensors = shard.residual_streams if shard.residual_streams > 1 else 1 if shard.parallel_block else 2
    sent = np.maximum(1.0, np.asarray(tokens)) * tensors * shard.hidden * _BYTES
    ranks = parallel.stage_gpus
    far = Group(Cluster.of(hardware, ranks * parallel.pp), parallel.pp, ranks)
    near = Group(far.cluster, far.inside, ranks)
    across = far.domains - 1
    within = parallel.pp - 1 - across
    each = np.array([across * send_time(far, size) + within * send_time(near, size) for size in sent / parallel.tp])
    variances = dict(exchange_variances(hardware, ranks * parallel.pp))
    shape = variances.pop(ErrorSource.SHAPE, 0.0)
    deviation = Deviation(np.full(each.shape, np.sqrt(shape)), np.full(each.shape, np.sqrt(sum(variances.values()))))
    cost.add("sends", each / parallel.pp, "collectives", deviation, "send")
    if parallel.tp > 1:
        gathered = AllGather(bytes=np.maximum(2.0, np.round(sent)), num_gpus=parallel.tp, dtype="bf16")
        time, wide = kernel(gathered, hardware, "nccl")
        cost.add("sends", time * (parallel.pp - 1) / parallel.pp, "collectives", wide, "all_gather")
