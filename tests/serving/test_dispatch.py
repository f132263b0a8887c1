"""What copies of the attention exchange with experts that they share, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cli._serving_input import Spec
from perfmodel.errors import InputFileError, UsageError
from perfmodel.operators.all_gather import AllGather
from perfmodel.operators.alltoall import Alltoall
from perfmodel.operators.collective import Collective
from perfmodel.operators.reduce_scatter import ReduceScatter
from perfmodel.operators.routing import Dispatcher
from perfmodel.serving.cost import kernel
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import read_engine
from perfmodel.serving.kernels import Kernels
from perfmodel.workloads.catalog import find_model

H200 = pm.hardware("h200")
#: tokens of a copy, size of one in 16 bits [B], and layers with experts
TOKENS, TOKEN_BYTES, LAYERS = 256.0, 7168 * 2.0, 58


def kernels(**facts: Any) -> Kernels:
    made = Deployment(find_model("deepseek-v3"), H200, **({"dp": 8, "ep": 8, "engine": "vllm"} | facts))
    return Kernels(made.part, made.parallel, made.profile, made.hardware, made.format, made.kv)


def exchanged(served: Kernels) -> float:
    """Return the time of the exchanges of all layers [s]."""
    return float(served.linear(np.array([TOKENS])).times["exchange"][0])


def taken(kind: type[Collective], sent: float, gpus: int = 8, calls: int = LAYERS) -> float:
    op = kind(bytes=np.array([round(sent)]), num_gpus=gpus, dtype="bf16")
    return calls * float(kernel(op, H200, "nccl")[0][0])


def test_all_tokens_are_gathered_where_the_engine_does_so() -> None:
    """Eight copies with 256 tokens each: all 2048 go to all GPUs, and their sums back."""
    whole = 8 * TOKENS * TOKEN_BYTES
    assert exchanged(kernels()) == pytest.approx(taken(AllGather, whole) + taken(ReduceScatter, whole))


def test_a_token_is_sent_to_each_gpu_or_to_each_expert() -> None:
    """With deepep to 4 (1 - C(96, 8) / C(128, 8)) = 3.629 of 8 GPUs, in blocks of 8 bits and back in 16."""
    sent = 3.62901 * TOKENS * TOKEN_BYTES
    there, back = taken(Alltoall, sent * (1 + 4 / 128) / 2), taken(Alltoall, sent)
    assert exchanged(kernels(dispatcher="deepep")) == pytest.approx(there + back, rel=1e-4)
    copies = 8 * TOKENS * TOKEN_BYTES
    assert exchanged(kernels(dispatcher="alltoall")) == pytest.approx(2.0 * taken(Alltoall, copies))
    assert exchanged(kernels(dispatcher="deepep")) < exchanged(kernels(dispatcher="alltoall")) < exchanged(kernels())


@pytest.mark.parametrize(("weights", "element"), [("fp8", 1.0), ("fp8_block", 2.0), ("bf16", 2.0)])
def test_what_is_quantised_before_it_is_gathered_is_narrow(weights: str, element: float) -> None:
    whole = 8 * TOKENS * TOKEN_BYTES
    expected = taken(AllGather, whole * element / 2) + taken(ReduceScatter, whole)
    assert exchanged(kernels(engine="trtllm", weights=weights)) == pytest.approx(expected)


def test_ranks_of_a_copy_share_out_its_tokens_and_gather_the_sums() -> None:
    """Four copies on two GPUs each: each GPU sends half of its copy's tokens, and gathers the others' in the end."""
    served = kernels(dp=4, tp=2)
    whole = 4 * TOKENS * TOKEN_BYTES
    dense = Deployment(find_model("deepseek-v3"), H200, tp=2, engine="vllm")
    sums = exchanged(Kernels(dense.part, dense.parallel, dense.profile, H200, dense.format, dense.kv))
    reduced = sums * (2 * 61 - 58) / (2 * 61)  # behind attention, and behind the dense layers
    experts = taken(AllGather, whole) + taken(ReduceScatter, whole) + taken(AllGather, TOKENS * TOKEN_BYTES, 2)
    assert exchanged(served) == pytest.approx(reduced + experts)


def test_wide_experts_are_reached_over_nvlink_that_leaves_the_host() -> None:
    """TensorRT-LLM: one copy to each rank with more GPUs than experts of a token, in an NVL72."""
    gb200, deepseek = pm.hardware("gb200"), find_model("deepseek-v3")
    for gpus, expected in ((8, Dispatcher.ALLGATHER), (16, Dispatcher.DEEPEP)):
        made = Deployment(deepseek, gb200, dp=gpus, ep=gpus, engine="trtllm", weights="nvfp4")
        found = Kernels(made.part, made.parallel, made.profile, gb200, made.format, made.kv).exchanges.dispatcher
        assert found == expected
    mixtral = Deployment(find_model("mixtral-8x7b"), H200, dp=8, ep=8, engine="trtllm")
    alike = Kernels(mixtral.part, mixtral.parallel, mixtral.profile, H200, mixtral.format, mixtral.kv)
    assert alike.exchanges.dispatcher == Dispatcher.ALLGATHER


def test_an_unknown_dispatcher_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown dispatcher 'deep'"):
        kernels(dispatcher="deep")
    profile = tmp_path / "engine.toml"
    profile.write_text('name = "own"\ndispatcher = "deep"\n')
    with pytest.raises(InputFileError, match="unknown dispatcher 'deep'"):
        read_engine(profile)
    profile.write_text('name = "own"\ndispatcher = "deepep"\n')
    assert read_engine(profile).dispatcher == Dispatcher.DEEPEP


def test_a_dispatcher_without_shared_experts_is_refused(perfmodel) -> None:
    words = ("mixtral-8x7b", "--on", "h100", "--tp", "2", "--ep", "1", "--dispatcher", "deepep")
    for command in (("serve",), ("search", "serve")):
        refused = perfmodel(*command, *words)
        assert refused.code == 2
        assert "no copies of the attention share experts" in refused.err
    shared = Spec("mixtral-8x7b", "h100", ep=8, dp=8, dispatcher="deepep").deployment()
    assert shared.profile.dispatcher == Dispatcher.DEEPEP
