"""Frameworks as files: every shipped one reads and says where its facts come from; wrong files get one message."""

import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError, UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.case import read_training_case
from perfmodel.training.constants import constants
from perfmodel.training.fitting import changes_that_fit
from perfmodel.training.framework import RANK_NAMES, find_framework, frameworks, nearest_framework, read_framework
from perfmodel.training.memory import training_memory
from perfmodel.training.result import TrainingStep
from perfmodel.training.setup import setup_of
from perfmodel.training.space import default_space
from perfmodel.workloads.catalog import find_model


@pytest.mark.parametrize("name", sorted(frameworks()))
def test_a_shipped_framework_has_sources_and_a_title(name: str) -> None:
    framework = frameworks()[name]
    assert framework.name == name == find_framework(name).name
    assert framework.title
    assert framework.sources
    assert all(len(source) > 10 for source in framework.sources.values())


def test_no_two_frameworks_share_an_alias() -> None:
    aliases = [alias for framework in frameworks().values() for alias in framework.aliases]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "x"\n', "name"),
        ('name = "x"\ntitle = "x"\natention = "fa2"\n[sources]\n', "Did you mean 'attention'"),
        ('name = "x"\ntitle = "x"\nloss_bytes = "many"\n[sources]\n', "loss_bytes"),
    ],
)
def test_a_wrong_file_gets_one_message(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputFileError, match=message):
        read_framework(path)


def test_a_file_of_ones_own_can_be_named(tmp_path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\ntitle = "My own"\nattention = "cudnn"\n[sources]\nattention = "my own measurement"\n'
    )
    assert find_framework(str(path)).attention == "cudnn"
    assert nearest_framework(str(path))[0].name == "own"


def test_a_library_that_no_table_has_is_said(tmp_path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\ntitle = "My own"\nlibraries = { bf16 = ["vllm", "sglnag"] }\n[sources]\n')
    plan = pm.TrainingPlan(batch=8, seq=2048, framework=str(path))
    notes = pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=8), plan).notes
    (said,) = (note for note in notes if "library" in note)
    assert "'sglnag'" in said
    assert "Did you mean 'sglang'?" in said


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'picotron'"):
        find_framework("picotrn")


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("ddp-eager", ["tp", "cp", "pp", "vp"]),
        ("torchtune", ["pp", "vp"]),
        ("picotron", ["vp"]),
        ("megatron", []),
        ("torchtitan", []),
    ],
)
def test_a_search_leaves_out_the_ranks_that_a_framework_lacks_and_says_so(name, lacking) -> None:
    plan = pm.TrainingPlan(batch=16, seq=2048, framework=name)
    found = pm.search("llama-3.2-1b", pm.Cluster("h100", gpus=8), plan, micro_batch=[1], top=100)
    assert all(getattr(each.plan, size) == 1 for each in found.best for size in lacking)
    said = [note for note in found.notes if "not tried" in note]
    assert len(said) == bool(lacking)
    assert all(RANK_NAMES[size] in said[0] for size in lacking)


def test_expert_parallel_ranks_are_left_out_where_a_framework_lacks_them() -> None:
    config, cluster = find_model("mixtral-8x7b"), pm.Cluster("h100", gpus=8)
    spaces = [
        default_space(config, cluster, pm.TrainingPlan(batch=16, seq=2048, framework=name))
        for name in ("picotron", "megatron")
    ]
    assert [space.ep for space in spaces] == [(1,), (1, 2, 4, 8)]


def test_ranks_that_a_framework_lacks_are_predicted_with_a_note() -> None:
    cluster = pm.Cluster("h100", gpus=8)
    plan = pm.TrainingPlan(batch=16, seq=2048, framework="ddp-eager", tp=2, pp=2)
    (said,) = (note for note in pm.train("llama-3.1-8b", cluster, plan).notes if "has no" in note)
    assert said == "ddp-eager has no tensor parallel ranks or pipeline: this is predicted as if it had."
    megatron = pm.TrainingPlan(batch=16, seq=2048, tp=2, pp=2)
    assert not any("has no" in note for note in pm.train("llama-3.1-8b", cluster, megatron).notes)
    given = pm.search("llama-3.2-1b", cluster, plan.changed(tp=1, pp=1), tp=[2], zero=[1])
    assert "ddp-eager has no tensor parallel ranks: this is predicted as if it had." in given.notes


@pytest.mark.parametrize(
    ("name", "zero", "tried"),
    [
        ("ddp-eager", 0, (0, 1)),
        ("ddp-compile", 0, (0, 1)),
        ("huggingface", 0, (0, 1, 3)),
        ("picotron", 0, (0,)),
        ("megatron", 1, (1, 3)),
        ("torchtitan", 3, (2, 3)),
    ],
)
def test_what_is_shared_out_unless_a_plan_says(name, zero, tried) -> None:
    assert find_framework(name).usual_zero == zero
    plan = pm.TrainingPlan(batch=16, seq=2048, framework=name)
    assert plan.zero == zero
    assert plan == pm.TrainingPlan(batch=16, seq=2048, framework=name, zero=-1)
    assert pm.TrainingPlan(batch=16, seq=2048, framework=name, zero=0).zero == 0
    assert default_space(find_model("llama-3.2-3b"), pm.Cluster("h100", gpus=8), plan).zero == tried


@pytest.mark.parametrize("name", ["fsdp2-compile", "megatron", "ddp-eager"])
def test_a_plan_without_zero_is_one_plan_on_the_command_line_in_a_file_and_in_python(name, tmp_path, perfmodel) -> None:
    row = perfmodel("train", "llama-3.1-8b", "--on", "h100", "--gpus", 8, "--batch", 8, "--seq", 2048,
                    "--framework", name, "--format", "json").json["rows"][0]  # fmt: skip
    plan = pm.TrainingPlan(batch=8, seq=2048, framework=name)
    step = pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=8), plan)
    assert row["zero"] == plan.zero
    assert row["time_s"] == pytest.approx(step.time_s)
    assert step.memory is not None
    assert row["memory_total_bytes"] == pytest.approx(step.memory.total_bytes)
    file = tmp_path / "plan.toml"
    file.write_text(f'model = "llama-3.2-1b"\nhardware = "h100"\n[plan]\nbatch = 8\nseq = 2048\nframework = "{name}"\n')
    assert read_training_case(file, hardware)[0].plan == plan


def test_another_framework_leaves_what_is_shared_out() -> None:
    plan = pm.TrainingPlan(batch=8, seq=2048, framework="megatron")
    assert plan.changed(framework="fsdp2-compile").zero == 1
    assert plan.changed(framework="fsdp2-compile", zero=-1).zero == 3


def test_recomputation_that_megatron_lacks_is_not_offered() -> None:
    """Megatron-LM recomputes the core of attention, or whole layers: some of them, or all."""
    cluster = pm.Cluster("h100", gpus=8)
    plan = pm.TrainingPlan(batch=16, seq=2048, recompute="selective_op")
    assert any("recompute = selective_op" in note for note in pm.train("llama-3.1-8b", cluster, plan).notes)
    config, full = find_model("llama-3.1-8b"), pm.TrainingPlan(batch=64, micro_batch=2, seq=4096, zero=1)
    offered = [change.text for change in changes_that_fit(config, cluster, full)]
    assert "--recompute full" in offered
    assert "--recompute selective-op" not in offered
    titan = changes_that_fit(config, cluster, full.changed(framework="torchtitan", zero=2))
    assert "--recompute selective-op" in [change.text for change in titan]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("nanoGPT (ddp script, torch.compile)", "ddp-compile"),
        ("llm.c (C/CUDA)", "ddp-compile"),
        ("gpt-simple (accelerate ddp, compile)", "ddp-compile"),
        ("kempnerforge (pytorch fsdp2, compile)", "fsdp2-compile"),
        ("kempnerforge (pytorch fsdp2, eager)", "fsdp2-eager"),
        ("fsdp1-compile", "fsdp1-eager"),
        ("megatron with torch.compile", "fsdp2-compile"),
        ("torchtune-compile", "torchtune"),
    ],
)
def test_what_is_compiled_as_a_whole_is_told_from_compiled_blocks(name: str, nearest: str) -> None:
    assert nearest_framework(name)[0].name == nearest


@pytest.mark.parametrize(
    ("name", "whole", "shared"),
    [
        ("nanogpt (ddp script, eager)", "ddp-eager", "ddp-eager"),
        ("pytorch (eager)", "ddp-eager", "fsdp1-eager"),
        ("lightning", "ddp-eager", "fsdp1-eager"),
        ("lightning ddp (huggingface-eager)", "huggingface", "huggingface"),
        ("my trainer, accelerate", "huggingface", "huggingface"),
        ("flash-attn gpt (lightning ddp)", "megatron-te", "megatron-te"),
        ("something else", "megatron-te", "fsdp1-eager"),
    ],
)
def test_eager_code_is_plain_pytorch_or_shares_out_its_weights(name: str, whole: str, shared: str) -> None:
    assert nearest_framework(name)[0].name == whole
    assert nearest_framework(name, shards=True)[0].name == shared


#: GPT-2 124M as it is trained: its vocabulary filled up to whole vectors
GPT2 = pm.find_model("layers=12 hidden=768 heads=12 vocab=50304 tied=true")


@pytest.mark.parametrize("machine", ["b200", "h100", "a100-sxm4-80gb", "l40s", "rtx-4090", "l4"])
def test_a_loss_inside_the_compiled_model_moves_a_sixth_of_its_bytes(machine: str) -> None:
    """GPT-2 124M, whose head is half of a step with the loss outside: measured steps lie 0.6 to 0.8 of that."""
    plan = pm.TrainingPlan(batch=64, seq=1024, micro_batch=16, framework="ddp-compile")
    cluster = pm.Cluster(machine, gpus=1)
    names = ("ddp-compile", "fsdp2-compile")
    inside, outside = (pm.train(GPT2, cluster, plan.changed(framework=name)) for name in names)
    assert 1.1 < outside.time_s / inside.time_s < 1.8
    assert outside.terms_s["head"] > 2.0 * inside.terms_s["head"]


@pytest.mark.parametrize("name", ["huggingface", "ddp-eager"])
def test_plain_pytorch_keeps_no_scores_unless_it_is_told(name: str) -> None:
    """PyTorch's scaled_dot_product_attention is the default of transformers since 4.36, too."""
    config, cluster = find_model("llama-3.1-8b"), pm.Cluster("h100", gpus=1)
    plan = pm.TrainingPlan(batch=1, seq=4096, framework=name)
    apart = plan.changed(attention="eager-unfused")
    assert pm.train(config, cluster, plan).time_s < pm.train(config, cluster, apart).time_s
    assert (
        training_memory(config, cluster, plan).peak.used_bytes < training_memory(config, cluster, apart).peak.used_bytes
    )


@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_pytorch_keeps_no_scores_in_fp32_either(dtype: str) -> None:
    """Its memory-efficient kernel has fp32; attention of Transformer Engine is unfused there."""
    config, cluster = find_model("llama-3.1-8b"), pm.Cluster("h200", gpus=4)
    plans = {
        name: pm.TrainingPlan(batch=4, seq=8192, framework=name, dtype=dtype, zero=0, recompute="full")
        for name in ("ddp-compile", "megatron")
    }
    steps = {name: pm.train(config, cluster, plan) for name, plan in plans.items()}
    assert any("Attention runs efficient" in note for note in steps["ddp-compile"].notes)
    assert any("Attention runs eager-unfused" in note for note in steps["megatron"].notes)
    plan = plans["ddp-compile"]
    apart = plan.changed(attention="eager-unfused")
    assert steps["ddp-compile"].time_s < pm.train(config, cluster, apart).time_s
    scores = 4.0 * config.heads * plan.seq**2  # of one layer, whose backward pass has them
    used = [training_memory(config, cluster, one).peak.used_bytes for one in (plan, apart)]
    assert used[1] - used[0] > 0.5 * scores


@pytest.mark.parametrize("name", ["deepspeed", "huggingface"])
def test_checkpointing_of_whole_layers_is_all_that_a_search_offers(name: str) -> None:
    """transformers and DeepSpeed have no recomputation of single operations or of every second layer."""
    plan = pm.TrainingPlan(batch=8, seq=512, framework=name)
    config, cluster = find_model("llama-3.1-8b"), pm.Cluster("h100", gpus=8)
    assert default_space(config, cluster, plan).recompute == ("none", "full")
    note = "".join(pm.train(config, cluster, plan.changed(recompute="selective_op")).notes)
    assert f"{name} has no recompute = selective_op" in note


def test_context_parallel_ranks_of_deepspeed_exchange_heads() -> None:
    """DeepSpeed has Ulysses only; a ring is predicted, and a note says that it is none of its ways."""
    config, cluster = find_model("llama-3.1-8b"), pm.Cluster("h100", gpus=8)
    plan = pm.TrainingPlan(batch=8, seq=8192, framework="deepspeed")
    two = plan.changed(cp=2)
    assert two == pm.TrainingPlan(batch=8, seq=8192, framework="deepspeed", cp=2, cp_algorithm="ulysses")
    assert two.changed(cp=1) == plan
    assert two.changed(framework="megatron").cp_algorithm == "zigzag"
    assert two.changed(cp=4, cp_algorithm="ring").changed(cp=2).cp_algorithm == "ring"
    ring = pm.train(config, cluster, two.changed(cp_algorithm="ring"))
    assert any("deepspeed has no cp_algorithm = ring" in note for note in ring.notes)
    assert not any("cp_algorithm" in note for note in pm.train(config, cluster, two).notes)


@pytest.mark.parametrize("name", ["megatron", "nemo", "megatron-bridge"])
def test_machines_without_transformer_engine_run_megatron_of_before(name: str) -> None:
    """Its kernels begin with Ampere (compute capability 8.0): a V100 runs what came before, and a note says so."""
    config = find_model("layers=24 hidden=2048 heads=16 vocab=50304")
    plan = pm.TrainingPlan(batch=64, seq=2048, tp=4, dtype="fp16", framework=name, zero=0)

    def trained(machine: str, framework: str = name) -> TrainingStep:
        return pm.train(config, pm.Cluster(machine, gpus=8), plan.changed(framework=framework))

    old = trained("v100-sxm2-32gb")
    assert old.time_s == trained("v100-sxm2-32gb", "megatron-2022").time_s
    assert any("not built for compute capability 7.0" in note for note in old.notes)
    new = trained("a100-sxm4-80gb")
    assert new.time_s != trained("a100-sxm4-80gb", "megatron-2022").time_s
    assert not any("not built" in note for note in new.notes)


def test_machines_after_a_release_run_a_later_one() -> None:
    """NeMo of 2024 came before Blackwell, whose first CUDA is of 2025."""
    plan = pm.TrainingPlan(batch=64, seq=4096, framework="nemo")
    step = pm.train("llama-3.1-8b", pm.Cluster("b200", gpus=8), plan)
    assert (
        step.time_s == pm.train("llama-3.1-8b", pm.Cluster("b200", gpus=8), plan.changed(framework="nemo 25.04")).time_s
    )
    assert any("not built for compute capability 10.0" in note for note in step.notes)


@pytest.mark.parametrize("name", ["fsdp2-compile", "fsdp2-eager"])
def test_torchtitan_runs_attention_of_cudnn_on_blackwell(name: str) -> None:
    """Its list of kernels has cuDNN first from compute capability 10.0 on; a plan that names one has that one."""
    plan = pm.TrainingPlan(batch=8, seq=16384, framework=name, recompute="selective_op")

    def attention(machine: str, **changes: str) -> float:
        return pm.train("llama-3.1-8b", pm.Cluster(machine, gpus=8), plan.changed(**changes)).terms_s["attention"]

    assert attention("b200") == attention("b200", attention="cudnn") < attention("b200", attention="fa2")
    assert attention("h100") == attention("h100", attention="fa2")


def test_checkpointed_blocks_of_prime_rl_run_eager() -> None:
    """Twice and more of the traffic of compiled blocks, and the same products."""
    cluster, plan = pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=16, seq=16384, recompute="full", attention="fa2")
    names = ("prime-rl-sft", "fsdp2-compile")
    eager, compiled = (pm.train("qwen3-4b", cluster, plan.changed(framework=name)) for name in names)
    assert eager.terms_s["memory_bound"] > 2.0 * compiled.terms_s["memory_bound"]
    assert eager.terms_s["products"] == pytest.approx(compiled.terms_s["products"])
    assert eager.time_s > 1.1 * compiled.time_s


def test_chunks_of_logits_take_no_memory_and_are_multiplied_again() -> None:
    """Products of one more forward pass of the head, 2 T V h FLOP, and 14 B a logit less in memory."""
    config, cluster = find_model("qwen3-4b"), pm.Cluster("h100", gpus=8)
    plan = pm.TrainingPlan(batch=16, seq=16384, recompute="full")
    chunks, whole = (plan.changed(framework=name) for name in ("prime-rl", "prime-rl-sft"))
    steps = [pm.train(config, cluster, one) for one in (chunks, whole)]
    once = 2.0 * steps[0].tokens * config.vocab * config.embedding_dim
    assert steps[0].hardware_flop - steps[1].hardware_flop == pytest.approx(once)
    assert steps[0].flop == steps[1].flop
    assert steps[0].terms_s["head"] - steps[1].terms_s["head"] > once / 8 / steps[0].peak_flop_per_s
    used = [training_memory(config, cluster, one).peak.used_bytes for one in (chunks, whole)]
    assert used[1] - used[0] == pytest.approx(14.0 * plan.seq * config.vocab, rel=0.1)


def test_picotron_without_flash_attn_has_eager_norms_and_rotary_positions() -> None:
    cluster, plan = pm.Cluster("a100-sxm4-80gb", gpus=2), pm.TrainingPlan(batch=4, seq=2048, tp=2, zero=0)
    steps = [pm.train("llama-3.2-1b", cluster, plan.changed(framework=f"picotron{end}")) for end in ("-sdpa", "")]
    assert steps[0].terms_s["memory_bound"] > 2.0 * steps[1].terms_s["memory_bound"]
    assert steps[0].terms_s["products"] == steps[1].terms_s["products"]
    assert steps[0].terms_s["attention"] == steps[1].terms_s["attention"]


def test_layer_norms_of_transformers_run_in_fp32_under_autocast() -> None:
    """Of BERT-like layers, 18 + 38 B an element of a norm under autocast; 4 + 10 where weights are in 16 bits."""
    plan = pm.TrainingPlan(batch=8, seq=512, framework="huggingface", attention="eager-unfused")
    mixed, narrow = (
        setup_of(find_model("gpt2-medium"), pm.Cluster("a100", gpus=1), plan.changed(optimizer=optimizer)).shard
        for optimizer in ("adam", "adam-bf16")
    )
    assert (mixed.norm_bytes, narrow.norm_bytes) == ((18.0, 38.0), (4.0, 10.0))
    wide = setup_of(find_model("gpt2-medium"), pm.Cluster("a100", gpus=1), plan.changed(dtype="fp32")).shard
    assert wide.norm_bytes == (4.0, 10.0)  # of elements twice as wide


def test_local_layers_of_megatron_fuse_neither_norms_nor_scores() -> None:
    """Scores of 4 heads of 32 layers, 28 + 30 B each, in place of 4 + 6; norms 128 B an element, fused ones 10."""
    cluster = pm.Cluster("h100", gpus=8)
    plan = pm.TrainingPlan(batch=1, seq=4096, tp=8, sp=False, zero=0, attention="unfused", optimizer="none")
    fused, local, liger = (
        pm.train("llama-2-7b", cluster, plan.changed(framework=name))
        for name in ("megatron-te", "megatron-local", "megatron-local-liger")
    )
    slow = constants().memory_bound["counted"] / 2.9e12  # of a copy of the H100 [s/B]
    norms = 64 * 4096 * 4096 * (128.0 - 10.0) * slow
    assert local.terms_s["memory_bound"] - liger.terms_s["memory_bound"] == pytest.approx(norms, rel=0.2)
    scores = 32 * 4 * 4096**2 * 48.0 * slow
    assert scores < liger.terms_s["memory_bound"] - fused.terms_s["memory_bound"] < 2.0 * scores
