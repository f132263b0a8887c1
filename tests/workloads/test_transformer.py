"""The operators of a forward pass: FLOP against parameters, and the list against op graphs of the real models."""

from __future__ import annotations

import ast
import csv
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.workloads.config import ModelConfig, read_model_config
from perfmodel.workloads.transformer import forward_pass

GPT2 = ModelConfig("gpt2", 64, 3, 4, 4, 16, 256, 1000, 128, "gelu_new", True, 64, 0, 0, True, True, True)
LLAMA = ModelConfig("llama", 64, 3, 4, 2, 32, 160, 1000, 4096, "silu", False, 64)


def named(operators, name):
    (found,) = (op for op in operators if op.name == name)
    return found


def products(operators):
    return sum(op.count * op.flop() for op in operators if op.op in ("gemm", "attention"))


@pytest.mark.parametrize("config", [GPT2, LLAMA])
@pytest.mark.parametrize("attention", ["unfused", "flash"])
def test_flop_are_two_a_weight_and_token_and_attention(config, attention):
    batch, seq = 2, 96
    tokens = batch * seq
    per_token = config.layers * sum(linear.n * linear.k for linear in config.layer_linears())
    per_token += config.vocab * config.hidden
    biases = config.layers * sum(linear.n * linear.bias for linear in config.layer_linears())
    pairs = seq**2 if attention == "unfused" else seq * (seq + 1) / 2  # flash leaves out what the mask hides
    scores = 4 * config.layers * batch * config.heads * pairs * config.head_dim
    made = products(forward_pass(config, batch, seq, attention=attention))
    assert made == 2 * tokens * per_token + tokens * biases + scores


@given(
    layers=st.integers(1, 5),
    groups=st.integers(1, 4),
    kv_heads=st.integers(1, 4),
    head_dim=st.integers(1, 64),
    hidden=st.integers(1, 300),
    ffn=st.integers(1, 500),
    vocab=st.integers(2, 2000),
    tied=st.booleans(),
)
def test_the_matrices_that_run_are_the_parameters_but_embedding_and_norms(
    layers, groups, kv_heads, head_dim, hidden, ffn, vocab, tied
):
    config = ModelConfig(
        "qwen3", hidden, layers, groups * kv_heads, kv_heads, head_dim, ffn, vocab, 64, "silu", tied, hidden
    )
    weights = sum(op.count * op.n * op.k for op in forward_pass(config, 1, 4, attention="flash") if op.op == "gemm")
    # Two norms a layer and one at the end, and in each layer one over a head for queries and one for keys.
    norms = (2 * layers + 1) * hidden + 2 * layers * head_dim
    assert config.parameters == weights + norms + vocab * hidden * (not tied)


def test_flop_of_llama_8b_are_near_two_a_parameter(data_dir):
    config = read_model_config(data_dir / "hf_configs" / "meta-llama__Meta-Llama-3.1-8B.json")
    made = products(forward_pass(config, 1, 2048))
    # Attention adds 4 L h s a token, as in case 19 without its factor of 3 for training; the embedding's 0.525e9
    # parameters are looked up, not multiplied.
    expected = 2048 * (2 * (config.parameters - 128256 * 4096) + 4 * 32 * 4096 * 2048)
    assert made == pytest.approx(expected, rel=1e-3)


def test_query_and_key_widths_follow_the_heads_not_the_hidden_size():
    made = forward_pass(LLAMA, 1, 8)
    assert named(made, "layer.attention.query").n == 4 * 32
    assert named(made, "layer.attention.key").n == 2 * 32
    assert (named(made, "layer.attention.output").k, named(made, "layer.attention.output").n) == (128, 64)


def test_a_model_is_taken_by_its_name():
    by_name = pm.forward_pass("gpt2", batch=1, seq=8)
    assert by_name == pm.forward_pass(pm.find_model("gpt2"), batch=1, seq=8)
    with pytest.raises(pm.UsageError, match=r"unknown model 'gtp2'\. Did you mean"):
        pm.forward_pass("gtp2", batch=1, seq=8)


def test_layers_are_counted_and_named_once():
    made = forward_pass(GPT2, 2, 96)
    assert {op.count for op in made if op.name.startswith("layer.")} == {3}
    assert {op.count for op in made if not op.name.startswith("layer.")} == {1}
    names = [op.name for op in made]
    assert len(names) == len(set(names))


def test_one_sequence_needs_no_copies_for_the_products_but_one_to_merge_the_heads():
    def copies(batch):
        return [op.name for op in forward_pass(GPT2, batch, 96) if op.op == "elementwise" and op.kind == "copy"]

    assert copies(1) == ["layer.attention.merge_heads"]
    assert len(copies(2)) == 4


def test_a_flash_layer_has_no_scores_in_memory():
    scores = 2 * 4 * 96 * 96
    unfused = forward_pass(GPT2, 2, 96)
    flash = forward_pass(GPT2, 2, 96, attention="flash")
    assert any(t.numel == scores for op in unfused for t in op.tensors())
    assert not any(t.numel == scores for op in flash for t in op.tensors())


def test_dtype_reaches_every_operator_but_norms_and_softmax_which_are_taken_in_fp32():
    assert {op.dtype for op in forward_pass(GPT2, 1, 8, "bf16")} == {"bf16"}
    fp32 = {op.name.split(".")[-2] for op in forward_pass(LLAMA, 1, 8, "bf16") if op.dtype == "fp32"}
    assert fp32 == {"norm", "attention"}
    softmax = named(forward_pass(LLAMA, 1, 8, "bf16"), "layer.attention.softmax")
    narrow = named(forward_pass(LLAMA, 1, 8, "bf16"), "layer.attention.narrow")
    assert (softmax.dtype, narrow.dtype, narrow.out_dtype) == ("fp32", "fp32", "bf16")


def test_a_mask_of_floats_is_read_for_each_head_once_it_outgrows_a_cache():
    short, long = (named(forward_pass(LLAMA, 1, seq), "layer.attention.mask_broadcast") for seq in (1024, 1025))
    assert (short.num_inputs, long.num_inputs) == (1, 2)  # 4 MiB and a little more


def test_kernels_that_compute_addresses_are_told_from_plain_ones():
    made = {op.name: getattr(op, "strided", None) for op in forward_pass(GPT2, 2, 96)}
    assert made["layer.attention.mask_broadcast"] is True
    assert made["layer.attention.residual"] is False
    assert made["layer.attention.scores"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"attention": "paged"}, "unknown attention 'paged'"),
        ({"head": "value"}, "unknown head 'value'"),
        ({"head": "classifier"}, "needs BERT, not gpt2"),
        ({"seq": 129}, "seq=129 is longer than the model's 128 positions"),
        ({"batch": 0}, "batch=0 is not a whole number"),
        ({"seq": -1, "batch": -1}, "=-1 is not a whole number"),
        ({"seq": 8.0}, "seq=8.0 is not a whole number"),
    ],
)
def test_bad_arguments_are_named(arguments, said):
    with pytest.raises(UsageError) as error:
        forward_pass(**({"config": GPT2, "batch": 1, "seq": 8} | arguments))
    assert said in str(error.value)


# --- the graphs of the real models -----------------------------------------------------------------------------

#: what a graph calls the elementwise kinds
KINDS = {"truediv": "div", "add": "add", "sub": "sub", "mul": "mul", "pow": "square", "tanh": "tanh", "gelu": "gelu",
         "where": "where"}  # fmt: skip


def graph_kernels(path):
    """Return the kernels of one layer and the ends as (kind, sizes), from a torch.fx graph with shapes."""
    before = csv.field_size_limit(10**9)
    found = Counter()
    with open(path, newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            shape = tuple(ast.literal_eval(row["output_shape"] or "()"))
            if row["dtype"] != "torch.float32" or not isinstance(shape, tuple):
                continue
            inputs = ast.literal_eval(row["input_shapes"] or "[]")
            made = kernel(row["op"], row["target"], inputs, shape)
            if made and math.prod(shape) > 1:
                found[made] += 1
    csv.field_size_limit(before)  # the limit is the process's
    return found


def kernel(op, target, inputs, shape):
    name = target.replace("<built-in method ", "").replace("<built-in function ", "").replace("<function ", "")
    name = name.split(" ")[0].rstrip(">")
    last = target.split(".")[-1].lower()
    if op == "call_function" and name == "matmul":
        (*batch, m, k), n = inputs[0], inputs[1][-1]
        return ("gemm", math.prod(batch), m, n, k)
    if op == "call_function" and name == "addmm":
        return ("gemm", 1, *inputs[1][:1], inputs[2][1], inputs[2][0])
    if op == "call_function" and name == "softmax":
        return ("softmax", math.prod(shape[:-1]), shape[-1])
    if op == "call_function" and name in KINDS:
        return (KINDS[name], math.prod(shape))
    if op == "call_method" and target == "contiguous":
        return ("transpose", math.prod(shape))
    if op == "call_module":
        return module(last, target, inputs[0], shape)
    return None


def module(last, target, taken, shape):
    rows = math.prod(shape[:-1])
    if last in ("layernorm", "ln_1", "ln_2", "ln_f"):
        return ("layer_norm", rows, shape[-1])
    if last in ("dropout", "drop", "attn_dropout", "resid_dropout"):
        return None  # nothing runs in evaluation
    if "embeddings" in last or last in ("wte", "wpe"):
        return ("embedding", rows, shape[-1])
    if last == "activation":
        return ("tanh", math.prod(shape))
    return ("gemm", 1, rows, shape[-1], taken[-1])


def listed_kernels(operators):
    """Return the same of an operator list, once a layer, without the copies that torch makes inside of a matmul."""
    found = Counter()
    for op in operators:
        if op.op == "gemm":
            found[("gemm", op.batch, op.m, op.n, op.k)] += 1
        elif op.op in ("softmax", "layer_norm"):
            found[(op.op, op.rows, op.cols)] += 1
        elif op.op == "embedding":
            found[("embedding", op.tokens, op.dim)] += 1
        elif op.op == "elementwise" and op.kind != "copy":
            found[(op.kind, op.numel)] += 1
        elif op.name.endswith("merge_heads"):
            found[("transpose", op.numel)] += 1
    return found


@pytest.mark.parametrize(
    ("graph", "model", "batch", "seq", "head"),
    [
        ("A100-PCIE-40GB_gpt2_large-inf-1024-4", "gpt2-large", 4, 1024, "lm"),
        ("A100-PCIE-40GB_bert_large-inf-512-16", "bert-large", 16, 512, "classifier"),
    ],
)
def test_the_list_is_the_graph_of_the_real_model(data_dir, graph, model, batch, seq, head):
    config = read_model_config(data_dir / "hf_configs" / f"neusight__{model}.json")
    expected = graph_kernels(data_dir / "profile_tables" / f"neusight_opgraph_{graph}.csv")
    assert sum(expected.values()) > 20
    assert listed_kernels(forward_pass(config, batch, seq, head=head)) == expected


def test_the_language_models_head_of_bert_is_that_of_the_training_graph(data_dir):
    config = read_model_config(data_dir / "hf_configs" / "neusight__bert-large.json")
    expected = graph_kernels(data_dir / "profile_tables" / "neusight_opgraph_H100_80GB_HBM3_bert_large-train-512-2.csv")
    listed = listed_kernels(forward_pass(config, 2, 512))
    # The graph also pools for its second task: a matrix, tanh, and two classes.
    assert expected - listed == Counter({("gemm", 1, 2, 1024, 1024): 1, ("tanh", 2048): 1, ("gemm", 1, 2, 2, 1024): 1})
    assert not listed - expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mistralai__Mixtral-8x7B-v0.1", "experts"),
        ("deepseek-ai__DeepSeek-V3", "latent attention (MLA)"),
        ("t5-small", "an encoder with a decoder"),
        ("gemma-2-9b-it", "a window on some of its layers and the kernels of gemma2"),
        ("phi-2", "parallel attention and MLP"),
    ],
)
def test_kernels_that_are_not_listed_are_refused_by_name(data_dir, name, said):
    config = read_model_config(data_dir / "hf_configs" / f"{name}.json")
    with pytest.raises(UsageError) as error:
        forward_pass(config, 1, 128)
    assert said in str(error.value)
