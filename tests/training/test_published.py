"""Published runs: what their cells leave open, unknown names, runs that cannot be judged; errors on open tables."""

import math

import msgspec
import numpy as np
import pytest

from perfmodel.accuracy.run_table import Run, RunTable, read_run_table
from perfmodel.cluster.cluster import Cluster
from perfmodel.hardware_catalog import hardware
from perfmodel.training.constants import constants
from perfmodel.training.framework import frameworks, nearest_framework, says_nothing
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.published import KEYS, judge, recognises
from perfmodel.training.published_run import (
    UnusableRunError,
    measured_time,
    read_experts,
    read_run,
    run_cluster,
    run_config,
    run_plan,
)
from perfmodel.training.result import TrainingStep
from perfmodel.training.setup import setup_of
from perfmodel.training.step import compared_step, train
from perfmodel.workloads.catalog import named_model

CELLS = {
    "id": "x-1", "table": "x", "model": "llama3-8b", "hidden": "4096", "layers": "32", "heads": "32", "kv_heads": "8",
    "head_dim": "128", "ffn": "14336", "gated": "1", "norm": "rms", "vocab": "128256", "rotary": "1",
    "hardware": "h100-sxm5-80gb", "num_gpus": "64", "gpus_per_node": "8", "nic_gbps_per_gpu": "400", "gbs": "128",
    "seq": "8192", "mbs": "1", "dtype": "bf16", "framework": "torchtitan-compile", "step_time_s": "3.0", "zero": "3",
}  # fmt: skip


def run_of(**cells: str) -> Run:
    return Run({**CELLS, **cells}, "x", "x.csv:2")


def test_a_table_is_known_by_its_columns() -> None:
    assert recognises(["hardware", "num_gpus", "gbs", "seq", "step_time_s", "model"])
    assert not recognises(["hardware", "op", "time_s"])


def test_what_lives_on_the_host_and_documents_stand_in_columns_or_notes() -> None:
    plain = run_plan(run_of(notes="without offload; packed documents"))
    assert (plain.offload, plain.documents) == ("none", ())
    noted = run_plan(run_of(notes="ZeRO-3, offload=optimizer,parameters; documents=100,300, offload_fraction=0.5."))
    assert (noted.offload, noted.offload_fraction) == ("optimizer,parameters", 0.5)
    assert (noted.documents, noted.length_spread) == ((100, 300), 0.0)
    columns = run_plan(run_of(offload="activations", documents="512", length_spread="0.5"))
    assert (columns.offload, columns.documents, columns.length_spread) == ("activations", (512,), 0.5)
    with pytest.raises(UnusableRunError, match="length_spread = wide is no number"):
        run_plan(run_of(documents="512", length_spread="wide"))


def test_a_blank_step_time_comes_from_the_tokens() -> None:
    run = run_of(step_time_s="", tokens_per_s_per_gpu="2048")
    assert measured_time(run) == pytest.approx(128 * 8192 / 2048 / 64)
    assert math.isnan(measured_time(run_of(step_time_s="")))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"step_time_s": "-3"}, "step_time_s = -3 is not above zero"),
        ({"step_time_s": "0", "tokens_per_s_per_gpu": "2048"}, "step_time_s = 0 is not above zero"),
        ({"memory_gib": "-40"}, "memory_gib = -40 is not above zero"),
        ({"step_time_s": "", "tokens_per_s_per_gpu": "2048", "num_gpus": "0"}, "num_gpus = 0 is not above zero"),
    ],
)
def test_a_run_whose_measurement_is_impossible_is_left_out(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(UnusableRunError, match=reason):
        read_run(run_of(**cells), hardware)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ({"zero": "hsdp"}, {"zero": 3, "hsdp": True}),
        ({"dtype": "FP8-CS"}, {"dtype": "fp8"}),
        ({"dtype": "FP8-MX"}, {"dtype": "mxfp8"}),
        ({"dtype": "amp_bf16"}, {"dtype": "bf16"}),
        ({"attention": "sdpa"}, {"attention": ""}),
        ({"attention": "sdpa", "framework": "ddp-eager"}, {"attention": "fa2"}),
        ({"attention": "something"}, {"attention": ""}),
        ({"vp": "4", "pp": "1"}, {"vp": 1}),
        ({"cp": "2", "cp_balanced": "0"}, {"cp": 2, "cp_algorithm": "ring"}),
        ({"mbs": "16"}, {"micro_batch": 2}),
        ({"mbs": ""}, {"micro_batch": 1}),
        ({"notes": "no optimizer step"}, {"optimizer": "none"}),
        ({"notes": "LoRA fine-tuning, rank 8"}, {"lora": 8, "frozen_dtype": ""}),
        ({"notes": "QLoRA (NF4 base) rank 64"}, {"lora": 64, "frozen_dtype": "nf4"}),
        ({"model": "llama3-8b_lora"}, {"lora": 16}),
        ({"ep": "8", "dispatcher": "allgather"}, {"dispatcher": "allgather"}),
        ({"ep": "8", "framework": "nemo automodel (fsdp2, DeepEP)"}, {"dispatcher": "deepep"}),
        ({"ep": "8", "notes": "80 CUs for DeepEP"}, {"dispatcher": "deepep"}),
        ({"ep": "1", "notes": "80 CUs for DeepEP"}, {"dispatcher": ""}),
        ({"tp": "2", "ep": "8", "notes": "experts over 8 ranks without tensor parallelism"}, {"etp": 1}),
        ({"tp": "2", "ep": "8", "etp": "2"}, {"etp": 2}),
        ({"tp": "2", "ep": "8", "notes": "128 experts; attention without tensor parallelism"}, {"etp": 0}),
        ({"encoder_seq": "512"}, {"encoder_seq": 512}),
        ({"notes": "encoder_seq=512, decoder of 114"}, {"encoder_seq": 512}),
    ],
)
def test_a_cell_becomes_a_plan(cells: dict[str, str], values: dict[str, object]) -> None:
    plan = run_plan(run_of(**cells))
    assert {name: getattr(plan, name) for name in values} == values


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"recompute": "unknown"}, "recompute is not published"),
        ({"gbs": ""}, "gbs is blank"),
        ({"num_gpus": "0"}, "num_gpus = 0 is below 1"),
        ({"moe": "experts=8;magic=1"}, "magic"),
        ({"step_time_s": ""}, "no step time"),
    ],
)
def test_a_run_that_cannot_be_judged_has_a_reason(cells: dict[str, str], message: str) -> None:
    with pytest.raises(UnusableRunError, match=message):
        read_run(run_of(**cells), hardware)
    judged = judge(RunTable("x.csv", tuple(CELLS), (run_of(**cells), run_of())), hardware)
    assert (len(judged.rows), [skipped.rows for skipped in judged.skipped]) == (1, [1])


def test_a_run_without_sizes_has_those_of_its_model() -> None:
    blank = dict.fromkeys(("hidden", "layers", "heads", "ffn", "vocab"), "")
    assert run_config(run_of(**blank, model="nemotron-3-nano-30b-a3b")) == named_model("nemotron-3-nano-30b-a3b")
    judged = judge(RunTable("x.csv", tuple(CELLS), (run_of(**blank, model="of nobody"), run_of())), hardware)
    assert "unknown model 'of nobody'" in judged.skipped[0].reason
    with pytest.raises(UnusableRunError, match="ffn is blank"):
        run_config(run_of(ffn=""))


def test_a_run_with_hsdp_is_judged() -> None:
    run = run_of(zero="hsdp", framework="fms_fsdp", num_gpus="128", gbs="256", mbs="2", nic_gbps_per_gpu="50")
    (row,) = judge(RunTable("x.csv", tuple(CELLS), (run,)), hardware).rows
    assert row.terms["data"] > 0


def test_rows_group_by_who_published_them() -> None:
    runs = judge(RunTable("x.csv", tuple(CELLS), tuple(run_of(source=name) for name in "aab")), hardware)
    assert {row["source"]: row["rows"] for row in runs.by(("source",))} == {"a": 2, "b": 1, "all": 3}
    assert set(runs.keys) == set(KEYS)


def test_a_kernel_that_a_framework_switches_off_did_not_run() -> None:
    assert run_plan(run_of(attention="cudnn", framework="nemo-megatron")).attention == ""
    assert run_plan(run_of(attention="fa3", framework="nemo-megatron")).attention == "fa3"
    for name in ("megatron-bridge 26.04", "torchtitan-compile", "nemo-24.09", "nemo-25.07"):
        assert run_plan(run_of(attention="cudnn", framework=name)).attention == "cudnn"


def test_sdpa_is_the_kernel_that_pytorch_takes_on_the_machine() -> None:
    """torchtitan orders PyTorch's kernels: FlashAttention 2 on Hopper, cuDNN's on Blackwell; FSDP1's has one."""

    def kernel(**cells: str) -> str:
        row = read_run(run_of(attention="sdpa", **cells), hardware)
        return setup_of(row.config, row.cluster, row.plan).kernel

    assert (kernel(), kernel(hardware="b200-sxm-180gb")) == ("fa2", "cudnn")
    assert kernel(hardware="b200-sxm-180gb", framework="fsdp1-eager") == "fa2"
    assert run_plan(run_of(attention="fa2", hardware="b200-sxm-180gb")).attention == "fa2"


def test_experts_that_no_tensor_parallel_ranks_share_stay_in_their_node() -> None:
    """8 expert parallel ranks are a node; two tensor parallel ranks of each expert are two, which the network joins."""
    cells = {"model": "qwen3-30b-a3b", "tp": "2", "ep": "8", "framework": "megatron-core", "zero": "1", "moe": ""}
    cells |= dict.fromkeys(("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab"), "")
    whole, cut = (
        read_run(run_of(**cells, notes=f"experts over 8 ranks{end}"), hardware).step()
        for end in (" without tensor parallelism", "")
    )
    assert whole.terms_s["expert"] < cut.terms_s["expert"] / 2
    assert whole.plan.etp == 1


def test_experts_and_windows_are_read() -> None:
    found = read_experts("experts=128;topk=4;shared=0;window=128 every 2nd layer")
    assert (found.experts, found.top_k, found.window, found.every) == (128, 4, 128, 2)
    config = run_config(run_of(moe="experts=256;topk=8;shared=1;dense_layers=3;mla", model="deepseek-v3"))
    assert config.latent_attention
    assert config.dense_layers == 3
    assert config.router == (256, 8, 8, 4)


def test_a_rack_is_one_domain_whatever_the_table_says() -> None:
    cluster = run_cluster(run_of(hardware="gb200-nvl72", gpus_per_node="8"), hardware("gb200-nvl72"))
    assert cluster.nvlink_domain == 72


@pytest.mark.parametrize(
    ("notes", "links"),
    [("two RTX 3090 without NVLink", ["pcie"]), ("No NVLink bridge", ["pcie"]), ("with NVLink", ["pcie", "nvlink"])],
)
def test_notes_say_that_cards_have_no_bridge(notes: str, links: list[str]) -> None:
    cluster = run_cluster(run_of(num_gpus="2", gpus_per_node="2", notes=notes), hardware("rtx-3090"))
    assert [link.name for link in cluster.machine.links] == links


def test_a_machine_without_a_known_network_gets_an_assumed_one() -> None:
    cluster = run_cluster(run_of(hardware="a100-pcie-80gb", nic_gbps_per_gpu=""), hardware("a100-pcie-80gb"))
    assert cluster.nic_bytes_per_s == 12.5e9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("megatron-bridge 26.08", "megatron-bridge-26.06"), ("megatron-bridge 25.11", "megatron-bridge"),
        ("nemo-megatron", "nemo"), ("fms_fsdp", "fsdp2-compile"), ("torchtune", "torchtune"),
        ("composer-fsdp-eager", "fsdp1-eager"), ("picotron", "picotron"), ("picotron-sdpa (fork)", "picotron-sdpa"),
        ("prime-rl (fsdp2-compile)", "prime-rl"), ("prime-rl-sft (fsdp2-compile)", "prime-rl-sft"),
        ("deepspeed zero3", "deepspeed"),
        ("megatron-lm e156d2fe (2022)", "megatron-2022"), ("Megatron-LM 8aa4619f (NGC 20.12)", "megatron-2021"),
        ("nemo dev (2025)", "megatron-bridge"), ("megatron-lm", "megatron-te"), ("fsdp2-eager (rocm)", "fsdp2-eager"),
        ("nemo 25.09 (transformer-engine 2.8)", "megatron-bridge"), ("nemo automodel (fsdp2)", "megatron-te"),
        ("unsloth (huggingface trainer)", "unsloth"), ("llmq (C++/CUDA)", "llmq"), ("surogate (C++/CUDA)", "llmq"),
        ("huggingface-eager (trainer, liger)", "huggingface-liger"), ("huggingface-eager (trainer)", "huggingface"),
        ("trl (liger)", "huggingface-liger"), ("fsdp2-eager (huggingface trl)", "trl-fsdp2"),
        ("cs336 (pytorch eager)", "cs336"), ("cs336 (pytorch eager, own ddp)", "cs336"),
        ("deepspeed (liger)", "deepspeed"), ("languini (torch-autocast-compile)", "ddp-compile-model"),

        ("deepspeed (gpt-neox 2021)", "deepspeed-overlap"), ("ms-swift (huggingface + deepspeed)", "deepspeed-overlap"),
        ("megatron-core (local spec)", "megatron-local"), ("megatron-core (0.13)", "megatron-te"),
        ("megatron-core (local spec, Liger norms and cross entropy)", "megatron-local-liger"),
    ],
)  # fmt: skip
def test_names_find_their_framework(name: str, expected: str) -> None:
    framework, known = nearest_framework(name)
    assert (framework.name, known) == (expected, True)


def test_liger_saves_traffic_and_leaves_the_products() -> None:
    """Its kernels read and write less than transformers' own in both precisions of weights; products are the same."""
    for optimizer in ("adam", "adam-bf16"):
        plain, fused = (
            read_run(run_of(framework=name, notes=f"optimizer={optimizer}", zero="0"), hardware).step()
            for name in ("huggingface", "huggingface-liger")
        )
        assert fused.terms_s["memory_bound"] < plain.terms_s["memory_bound"] / 2
        assert fused.terms_s["head"] <= plain.terms_s["head"]
        assert fused.terms_s["products"] == pytest.approx(plain.terms_s["products"])
        assert fused.time_s < plain.time_s


def test_gpt2_of_transformers_composes_its_gelu_of_many_kernels() -> None:
    """A profile of GPT-2 on H200: 95 ms a step of 64 x 1024 tokens went away with one kernel in place of eight."""
    sizes = {"hidden": "768", "layers": "12", "heads": "12", "kv_heads": "12", "head_dim": "64", "ffn": "3072"}
    kind = {"gated": "0", "norm": "ln", "vocab": "50304", "tied": "1", "rotary": "0", "dtype": "bf16", "zero": "0"}
    machine = {"hardware": "h200-sxm-141gb", "num_gpus": "1", "dp": "1", "mbs": "64", "gbs": "64", "seq": "1024"}
    of = {"model": "gpt2-124m", "framework": "huggingface-eager", "moe": "", **sizes, **kind, **machine}
    composed, fused = (
        read_run(run_of(**of, notes=notes), hardware).step() for notes in ("", "activation=gelu_pytorch_tanh")
    )
    assert 0.095 / 1.6 < composed.terms_s["memory_bound"] - fused.terms_s["memory_bound"] < 0.095 * 1.6
    elsewhere = read_run(run_of(**{**of, "framework": "megatron-te"}), hardware).config
    assert elsewhere.activation == "gelu"


def test_notes_name_the_optimizer() -> None:
    assert run_plan(run_of(notes="weights and states in bf16; optimizer=adam-bf16")).optimizer == "adam-bf16"
    assert run_plan(run_of(notes="no optimizer")).optimizer == "none"
    assert run_plan(run_of()).optimizer == "adam"


def test_an_unknown_framework_is_the_nearest_by_rule_with_the_widest_interval() -> None:
    assert nearest_framework("flashattention2") == (nearest_framework("megatron")[0], False)
    assert nearest_framework("a sharded one", shards=True)[0].name == "fsdp1-eager"
    known, unknown = (judge(RunTable("x.csv", tuple(CELLS), (run_of(framework=name),)), hardware).rows[0]
                      for name in ("torchtitan-compile", "my own fsdp2 compile"))  # fmt: skip
    assert unknown.predicted == pytest.approx(known.predicted)
    assert unknown.high / unknown.low > known.high / known.low


def ends(machine: str, framework: str, zero: int = 1) -> tuple[TrainingStep, float, float]:
    """Return a step of a framework, and the ends of its interval over its time."""
    plan = TrainingPlan(batch=16, seq=4096, zero=zero, framework=framework)
    found = train(named_model("llama-3.1-8b"), Cluster.of(hardware(machine), 8), plan)
    return found, found.low_s / found.time_s, found.high_s / found.time_s


@pytest.mark.parametrize("machine", ["h100", "b200"])
def test_a_framework_of_which_nothing_is_known_may_be_any(machine: str) -> None:
    """Its interval is wider at each end than that of every framework that waits as little for its host."""
    unknown, low, high = ends(machine, "foo")
    known = {name: ends(machine, name) for name in frameworks()}
    times = sorted(found.time_s for found, *_ in known.values())
    assert unknown.high_s > np.quantile(times, 0.9)  # but for a tenth of those described
    assert unknown.low_s < times[1]
    for name in ("nemo", "fsdp2-compile", "megatron-te"):
        assert low <= known[name][1] and high > 1.1 * known[name][2]  # noqa: PT018
    assert unknown.framework == "megatron-te"
    assert "Nothing is known of 'foo'" in " ".join(unknown.notes)
    assert "Megatron" in " ".join(unknown.notes)


def test_words_in_a_name_say_what_an_unknown_framework_is_like() -> None:
    assert says_nothing("foo")
    assert not any(map(says_nothing, ("my own fsdp2", "torchtitan", "megatron")))
    stated, *_ = ends("h100", "my own fsdp2 compile", zero=3)
    assert "Nothing is known" not in " ".join(stated.notes)


def test_a_step_for_a_comparison_has_the_same_time_and_own_interval() -> None:
    plan = TrainingPlan(batch=16, seq=4096, framework="foo")
    model, cluster = named_model("llama-3.1-8b"), Cluster.of(hardware("h100"), 8)
    whole, compared = train(model, cluster, plan), compared_step(setup_of(model, cluster, plan))
    assert (whole.time_s, whole.own_interval_s) == (compared.time_s, compared.own_interval_s)
    assert whole.high_s > compared.high_s


def test_constants_that_do_not_say_what_laboratories_differ_by_predict_an_unknown_framework_of_a_known_one() -> None:
    fixed = constants()
    shown = {name: ends for name, ends in fixed.intervals.items() if name not in ("elsewhere", "undescribed", "memory")}
    bare = msgspec.structs.replace(fixed, intervals=shown)
    plan = TrainingPlan(batch=16, seq=4096, framework="foo")
    model, cluster = named_model("llama-3.1-8b"), Cluster.of(hardware("h100"), 8)
    here = train(model, cluster, plan, bare, laboratory=fixed.laboratories[0])
    assert 0 < here.low_s < here.time_s < here.high_s < train(model, cluster, plan).high_s


def test_constants_have_a_source() -> None:
    fixed = constants()
    for name in ("memory_bound", "casts", "sm_share", "fsdp_share", "chart_factor", "routing", "host_s", "intervals"):
        assert fixed.sources[name]
    assert set(fixed.intervals) == {"seen", "unseen", "experts", "elsewhere", "undescribed", "memory"}


@pytest.fixture(scope="module")
def judged(data_dir):
    tables = sorted((data_dir / "e2e_training").glob("*.csv"))
    if not tables:
        pytest.skip("no tables of training runs")
    return [row for path in tables for row in judge(read_run_table(path), hardware).rows]


def test_steps_of_dense_models_are_within_6_per_cent_in_the_mean(judged) -> None:
    dense = np.array([row.ratio for row in judged if row.quantity == "step_time_s" and row.label("kind") == "dense"])
    assert len(dense) > 150
    assert np.mean(np.abs(dense - 1)) < 0.06
    baseline = [row.baseline / row.measured for row in judged if row.label("kind") == "dense" and row.baseline > 0]
    assert np.mean(np.abs(dense - 1)) < 0.5 * np.mean(np.abs(np.array(baseline) - 1))


def test_steps_of_experts_are_within_18_per_cent_in_the_mean(judged) -> None:
    experts = np.array([row.ratio for row in judged if row.quantity == "step_time_s" and row.label("kind") == "moe"])
    assert np.mean(np.abs(experts - 1)) < 0.18


def test_intervals_hold_about_80_per_cent(judged) -> None:
    steps = [row for row in judged if row.quantity == "step_time_s"]
    inside = np.mean([row.low <= row.measured <= row.high for row in steps])
    assert 0.72 < inside < 0.9


def test_the_terms_of_a_row_add_up(judged) -> None:
    for row in judged:
        if row.quantity == "step_time_s":
            assert sum(row.terms.values()) == pytest.approx(row.predicted)
