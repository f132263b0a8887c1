"""Training plans as baselines of investments: each change is worth what the changed plan is predicted to be worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.case import TOKENS, is_training_file, read_training_case
from perfmodel.training.changes import (
    PlanChange,
    candidates_of,
    path_of_plan,
    profile_of_plan,
    read_plan_changes,
    usual_plan_changes,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def case():
    return read_training_case(EXAMPLES / "training_plan.toml", hardware)[0]


def test_the_profile_is_the_gpu_time_of_a_billion_tokens(case):
    step = case.step()
    expected = TOKENS / step.tokens_per_s * case.cluster.gpus
    assert profile_of_plan(case).total_time_s == pytest.approx(expected)


def test_a_file_takes_hyphens_and_underscores(tmp_path):
    text = 'model = "llama-3.1-8b"\nhardware = "h100"\n[plan]\nbatch = 8\nseq = 2048\npp = 2\nzero = 1\n'
    plans = []
    for index, mark in enumerate("-_"):
        path = tmp_path / f"{index}.toml"
        words = f'schedule = "zero{mark}bubble"\nrecompute = "selective{mark}op"\noptimizer = "adam{mark}8bit"\n'
        path.write_text(text + words)
        plans.append(read_training_case(path, hardware)[0].plan)
    assert plans[0] == plans[1]
    assert (plans[0].schedule, plans[0].recompute, plans[0].optimizer) == ("zero_bubble", "selective_op", "adam-8bit")


PACKED = """
model = "llama-3.1-8b"
hardware = "h200-sxm-141gb"
gpus = 1
host_memory = "512 GiB"
host_bandwidth = "250 GB/s"

[plan]
batch = 64
seq = 4096
micro_batch = 4
framework = "deepspeed"
zero = 2
recompute = "full"
offload = "optimizer"
documents = [512, 2048]
length_spread = 0.5

[[changes]]
name = "half of the optimizer on the GPU"
set = { offload_fraction = 0.5 }
"""


def test_a_file_states_the_host_and_documents(tmp_path):
    path = tmp_path / "packed.toml"
    path.write_text(PACKED)
    case, changes = read_training_case(path, hardware)
    assert (case.cluster.host_memory_bytes, case.cluster.host_bytes_per_s) == (512 * 2**30, 250e9)
    assert (case.plan.offload, case.plan.documents) == ("optimizer", (512, 2048))
    (change,) = read_plan_changes(changes, "packed.toml")
    after = change.applied(case)
    terms = [one.step().terms_s["cpu_optimizer"] for one in (case, after)]
    assert terms[1] == pytest.approx(0.5 * terms[0])
    assert after.cluster == case.cluster
    faster = case.changed({"host_bandwidth": "500 GB/s"})
    assert faster.step().terms_s["cpu_optimizer"] == pytest.approx(0.5 * terms[0])
    assert faster.cluster.host_memory_bytes == case.cluster.host_memory_bytes
    assert "offload" not in case.changed({"offload": "none", "documents": 1024, "optimizer": "none"}).step().terms_s
    path.write_text(PACKED.replace("512 GiB", "64 GiB"))
    with pytest.raises(InputFileError, match="does not fit in the memory of its hosts"):
        read_training_case(path, hardware)


def test_a_candidate_takes_the_time_of_the_changed_plan(case):
    change = PlanChange("none", {"recompute": "none"})
    (candidate,) = candidates_of(case, [change]).candidates
    before, after = (sum(one.gpu_terms().values()) for one in (case, change.applied(case)))
    targets = sum(case.gpu_terms()[name] for name in candidate.targets)
    assert before - targets + candidate.new_time_s == pytest.approx(after)
    assert after < before


def test_a_change_keeps_the_hosts_and_the_network_of_the_file(tmp_path):
    """Hosts of 4 GPUs stay so with more GPUs or another network; another machine brings its own of both."""
    path = tmp_path / "plan.toml"
    text = 'model = "llama-3.1-8b"\nhardware = "h100"\ngpus = 32\ngpus_per_node = 4\nnic = "200Gb/s"\n'
    path.write_text(text + "[plan]\nbatch = 64\nseq = 2048\ntp = 4\n")
    case = read_training_case(path, hardware)[0]
    for values in ({"gpus": 64}, {"nic": "400Gb/s"}):
        cluster = case.changed(values).cluster
        assert (cluster.gpus_per_node, cluster.nvlink_domain) == (4, 4)
    assert case.changed({"gpus": 64}).cluster.nic_bytes_per_s == 25e9
    assert case.changed({"gpus_per_node": 8}).cluster.gpus_per_node == 8
    moved = case.changed({"hardware": "h200"}).cluster
    assert (moved.gpus_per_node, moved.nic_bytes_per_s) == (8, 50e9)


def test_a_bridge_may_be_missing_in_a_file_and_be_bought(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('model = "gpt2"\nhardware = "rtx-3090"\ngpus = 2\nbridge = false\n[plan]\nbatch = 8\nseq = 1024\n')
    case = read_training_case(path, hardware)[0]
    assert case.changed({"gpus": 1}).cluster.machine.links == hardware("rtx-3090").links[:1]
    bought = case.changed({"bridge": True})
    assert bought.cluster.machine.links == hardware("rtx-3090").links
    assert bought.step().time_s < case.step().time_s


def test_more_gpus_have_to_pay_for_themselves(case):
    more = PlanChange("twice the GPUs", {"gpus": 64}).applied(case)
    assert more.step().time_s < case.step().time_s
    assert sum(more.gpu_terms().values()) >= 0.99 * sum(case.gpu_terms().values())


def test_usual_changes_can_run_and_change_the_time(case):
    changes = usual_plan_changes(case)
    assert "recompute=none" in {change.name for change in changes}
    before = sum(case.gpu_terms().values())
    for change in changes:
        assert sum(change.applied(case).gpu_terms().values()) != pytest.approx(before, rel=1e-4)


def test_a_path_is_followed_step_by_step(case):
    changes = [PlanChange("a", {"tp": 2}), PlanChange("b", {"recompute": "none"}), PlanChange("c", {"dtype": "fp8"})]
    result = path_of_plan(case, changes)
    speedups = [step.speedup for step in result.steps]
    product = 1.0
    for step in result.steps:
        product *= step.step_speedup
    assert speedups[-1] == pytest.approx(product)
    assert result.steps[-1].throughput_per_s == pytest.approx(TOKENS / result.steps[-1].total_time_s)


def test_a_claim_that_is_too_high_is_flagged(case):
    result = path_of_plan(case, [PlanChange("a", {"recompute": "none"}, claimed_speedup=3.0)])
    assert result.steps[0].flags


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('model = "llama-3.1-8b"\nhardware = "h100"\n[plan]\nseq = 8\n', "the plan has no batch"),
        ('model = "gpt2"\nhardware = "h100"\nnic = [3]\n[plan]\nbatch = 8\nseq = 8\n', "nic = [3] is no rate"),
        ('model = "gpt2"\nhardware = "h100"\nbridge = 0\n[plan]\nbatch = 8\nseq = 8\n', "bridge = 0 is neither true"),
        ('model = "gpt2"\nhardware = "h100"\nnic = true\n[plan]\nbatch = 8\nseq = 8\n', "nic = True is no rate"),
        ('model = "llama-3.1-8b"\nhardware = "h100"\n[plan]\nbatc = 8\n', "Did you mean 'batch'?"),
        ('model = "llama-3.1-8b"\nhardware = "h100"\ngpu = 8\n[plan]\nbatch = 8\nseq = 8\n', "Did you mean 'gpus'?"),
        ('model = "llama-3.1-70b"\nhardware = "h100"\n[plan]\nbatch = 8\nseq = 4096\n', "does not fit"),
        ('model = "lama"\nhardware = "h100"\n[plan]\nbatch = 8\nseq = 8\n', "unknown model"),
        ('model = "llama-3.1-8b"\nhardware = "h100"\nplan = 3\n', "plan is no table"),
    ],
)
def test_a_wrong_file_is_one_message(tmp_path, text, said):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert is_training_file(path)
    with pytest.raises(InputFileError) as error:
        read_training_case(path, hardware)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"name": "a"}, "sets nothing"),
        ({"set": {"tpp": 2}}, "Did you mean 'tp'?"),
        ({"set": {"tp": 2}, "days": 2}, "unknown key 'days'"),
        ("tp", "is not a table"),
    ],
)
def test_wrong_changes_are_one_message(item, said):
    with pytest.raises(InputFileError) as error:
        read_plan_changes([item], "plan.toml")
    assert said in str(error.value)


def test_an_impossible_change_says_why(case):
    with pytest.raises(UsageError, match="does not divide"):
        PlanChange("three", {"tp": 3}).applied(case)


def test_roi_and_whatif_take_a_plan(perfmodel):
    ran = perfmodel("roi", EXAMPLES / "training_plan.toml", "--format", "json")
    assert ran.code == 0
    assert "recompute=none" in {row["name"] for row in ran.json["rows"]}
    ran = perfmodel("whatif", EXAMPLES / "training_plan.toml", EXAMPLES / "training_path.toml", "--format", "json")
    assert ran.code == 0
    assert len(ran.json["rows"]) == 3


def test_a_misspelt_framework_is_no_change(case):
    with pytest.raises(UsageError, match="Did you mean 'megatron'"):
        PlanChange("other", {"framework": "megatrn"}).applied(case)
