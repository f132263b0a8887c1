"""Frameworks as files: every shipped one reads and says where its facts come from; wrong files get one message."""

import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError, UsageError
from perfmodel.training.framework import find_framework, frameworks, nearest_framework, read_framework


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
    ("name", "nearest"),
    [
        ("nanoGPT (ddp script, torch.compile)", "ddp-compile"),
        ("llm.c (C/CUDA)", "ddp-compile"),
        ("gpt-simple (accelerate ddp, compile)", "ddp-compile"),
        ("kempnerforge (pytorch fsdp2, compile)", "fsdp2-compile"),
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
