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
