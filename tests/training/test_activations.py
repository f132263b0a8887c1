"""What a layer keeps: Korthikanti's formulas by hand, and what recomputation and sharing out must do."""

from __future__ import annotations

import csv
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.hardware_catalog import hardware
from perfmodel.training.activations import Slice, kept_by_layer, layer_activations
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import Recompute, TrainingPlan
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.layer_kinds import DENSE, Kind
from perfmodel.workloads.shape import model_from_sizes

#: Megatron's layer of 2022: 16 bits, dropout, softmax in a kernel of its own
MEGATRON = Slice(
    tokens=2048.0,
    keys=2048.0,
    tp=1,
    etp=1,
    sp=False,
    element_bytes=2.0,
    kernel="unfused",
    dropout=True,
    norm_copies=False,
    gate_copies=False,
    expert_outputs=False,
    gathered_inputs=False,
    narrow_inputs=False,
    last_output=True,
)
S, B, H, A = 2048, 1, 12288, 96


def gpt(hidden: int = H, heads: int = A):
    return model_from_sizes({"type": "gpt2", "layers": 2, "hidden": hidden, "heads": heads, "vocab": 51200})


def test_a_layer_keeps_34_sbh_and_5_as2b():
    # Korthikanti et al. 2022, equation 1: s b h (34 + 5 a s / h)
    kept = kept_by_layer(gpt(), MEGATRON, DENSE)
    assert kept.total == S * B * H * (34 + 5 * A * S / H)
    # attention 11 s b h, of it 2 the input of its products, and the scores 5 a s^2 b; MLP 19 s b h; norms 4 s b h
    assert kept.scores == 5 * A * S * S * B
    assert kept.mlp == 16 * S * B * H
    assert kept.queries == 6 * S * B * H


def test_tensor_parallel_ranks_share_out_all_but_10_sbh():
    # equation 2: s b h (10 + 24 / t + 5 a s / (h t))
    kept = kept_by_layer(gpt(), MEGATRON._replace(tp=8), DENSE)
    assert kept.total == pytest.approx(S * B * H * (10 + 24 / 8 + 5 * A * S / (H * 8)))


def test_sequence_parallelism_shares_out_these_too():
    # equation 4: s b h / t (34 + 5 a s / h)
    kept = kept_by_layer(gpt(), MEGATRON._replace(tp=8, sp=True), DENSE)
    assert kept.total == pytest.approx(S * B * H / 8 * (34 + 5 * A * S / H))


@pytest.mark.parametrize(("recompute", "factor"), [("none", 34 + 5 * A * S / H), ("selective", 34.0), ("full", 2.0)])
def test_recomputation_keeps_34_or_2_sbh(recompute, factor):
    # equations 6 and 7
    kept = layer_activations(gpt(), MEGATRON, DENSE, recompute).kept
    assert kept == pytest.approx(S * B * H * factor)


def test_a_flash_kernel_keeps_the_logarithms_only():
    flash = kept_by_layer(gpt(), MEGATRON._replace(kernel="fa2", dropout=False), DENSE)
    assert flash.scores == 4 * S * A
    assert flash.total == S * B * H * 32 + 4 * S * A


def test_a_gated_mlp_keeps_three_widths_and_four_in_separate_kernels():
    config = named_model("llama-3.1-8b")
    part = MEGATRON._replace(kernel="fa2", dropout=False)
    assert kept_by_layer(config, part, DENSE).mlp == 6 * S * config.ffn
    assert kept_by_layer(config, part._replace(gate_copies=True), DENSE).mlp == 8 * S * config.ffn
    # keys and values of 8 heads of 128 beside 32 query heads
    assert kept_by_layer(config, part, DENSE).queries == 2 * S * (4096 + 2 * 1024)


def test_experts_keep_what_the_tokens_that_visit_them_need():
    config = named_model("mixtral-8x7b")
    part = MEGATRON._replace(kernel="fa2", dropout=False)
    # two experts a token: inputs 2 x 4096 in 16 bits, gate, up and their product 3 x 14336, fp32 scores of 8 experts
    assert kept_by_layer(config, part, Kind(moe=True)).mlp == S * (2 * 4096 * 2 + 2 * 14336 * 6 + 8 * 4)


@given(
    tp=st.sampled_from((1, 2, 4, 8)),
    sp=st.booleans(),
    kernel=st.sampled_from(("fa2", "unfused", "eager-unfused")),
    name=st.sampled_from(("llama-3.1-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "falcon-7b")),
)
def test_more_recomputation_never_keeps_more(tp, sp, kernel, name):
    config = named_model(name)
    part = MEGATRON._replace(tp=tp, sp=sp and tp > 1, kernel=kernel)
    kept = [layer_activations(config, part, Kind(bool(config.experts)), how).kept for how in Recompute]
    none, selective, by_product, every_second, full = kept
    assert full <= every_second <= none
    assert full <= by_product <= none + 1e-6
    assert full <= selective <= none
    assert kept_by_layer(config, part, Kind(bool(config.experts))).total == none


def test_figure_1_of_korthikanti(data_dir):
    """Weights and optimizer have 18 B a parameter of the layers; activations are those of the first stage."""
    path = data_dir / "e2e" / "megatron_korthikanti2022_fig1_memory.csv"
    for row in csv.DictReader(path.read_text().splitlines()):
        size = {name: int(row[name]) for name in ("hidden", "seq_len", "attn_heads", "num_layers",
                "tensor_parallel", "pipeline_parallel", "microbatch_size", "global_batch_size")}  # fmt: skip
        config = model_from_sizes({"type": "gpt2", "layers": size["num_layers"], "hidden": size["hidden"],
                                   "heads": size["attn_heads"], "vocab": 51200})  # fmt: skip
        plan = TrainingPlan(
            batch=size["global_batch_size"],
            seq=size["seq_len"],
            micro_batch=size["microbatch_size"],
            tp=size["tensor_parallel"],
            pp=size["pipeline_parallel"],
            sp=row["mode"] == "seqsel",
            recompute="selective" if row["mode"] == "seqsel" else "none",
            framework="megatron-2022",
        )
        gpus = plan.tp * plan.pp
        cluster = Cluster.of(hardware("a100-sxm4-80gb"), gpus, nic="200Gb/s")
        first = training_memory(dataclasses.replace(config), cluster, plan).stages[0]
        assert first.parts["activations"] / 2**30 == pytest.approx(float(row["activation_gib"]), rel=1e-6)
        state = sum(first.parts[name] for name in ("weights", "gradients", "optimizer"))
        embedding = 18 * config.embedding_parameters / plan.tp * (2 if plan.pp == 1 else 1)
        layers = float(row["params_and_optimizer_gib"]) * 2**30
        assert layers == pytest.approx(18 * 12 * config.hidden**2 * config.layers / gpus)
        assert layers < state < layers * 1.01 + embedding


def test_a_flash_kernel_keeps_its_output_beside_the_8_bit_input_of_the_projection():
    """Its backward reads the output; separate kernels read their probabilities instead."""
    llama = named_model("llama-3.1-8b")
    part = Slice(
        tokens=8192, keys=8192, tp=1, etp=1, sp=False, element_bytes=2, kernel="cudnn", dropout=False,
        norm_copies=False, gate_copies=False, expert_outputs=False, gathered_inputs=False, narrow_inputs=True,
        last_output=False,
    )  # fmt: skip
    kept = [kept_by_layer(llama, part._replace(narrow_inputs=narrow), DENSE).values for narrow in (True, False)]
    assert kept == [3 * 8192 * 4096, 2 * 8192 * 4096]
    assert kept_by_layer(llama, part._replace(kernel="unfused"), DENSE).values == 8192 * 4096


def test_the_busiest_rank_keeps_as_much_more_of_its_experts() -> None:
    """Half as many tokens again at the experts: what is inside these, and what is sent, not what is beside them."""
    mixtral = named_model("mixtral-8x7b")
    even, skewed = (kept_by_layer(mixtral, MEGATRON._replace(imbalance=each), Kind(moe=True)) for each in (1.0, 1.5))
    scores = 2048 * 8 * 4.0  # of the router, in fp32
    assert skewed.mlp - scores == pytest.approx(1.5 * (even.mlp - scores))
    assert skewed.total - skewed.mlp == pytest.approx(even.total - even.mlp)
