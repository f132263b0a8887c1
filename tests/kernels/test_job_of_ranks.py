"""The rank that torchrun or srun gave this process: by their variables, also where a job has some but no ranks."""

from __future__ import annotations

import pytest

from perfmodel.errors import UsageError
from perfmodel.kernels.distributed.job import JobRank, first_host, job_rank

STEP = {
    "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "2", "SLURM_NTASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1",
    "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "gpu[07-08]",
}  # fmt: skip


def test_torchrun_comes_before_srun() -> None:
    variables = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "5"}
    assert job_rank({**STEP, **variables}) == JobRank(3, 4, 1, "a", 5)


def test_a_task_of_srun_is_a_rank() -> None:
    assert job_rank(STEP) == JobRank(5, 8, 1, "gpu07", 15000 + 3458, by_srun=True)
    # the tasks of this step, not of the job
    assert job_rank({**STEP, "SLURM_STEP_NUM_TASKS": "6"}).size == 6


def test_two_steps_of_a_job_meet_at_different_ports() -> None:
    assert job_rank(STEP).port != job_rank({**STEP, "SLURM_STEP_ID": "3"}).port


def test_what_the_user_says_comes_first() -> None:
    rank = job_rank({**STEP, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "777"})
    assert (rank.address, rank.port) == ("10.0.0.1", 777)


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"SLURM_NNODES": "1"}, "127.0.0.1"),
        ({"SLURM_STEP_NUM_NODES": "1"}, "127.0.0.1"),
        ({"SLURM_STEP_NODELIST": "gpu08,gpu[01-02]"}, "gpu08"),
    ],
)
def test_the_address_is_that_of_the_first_host(variables: dict[str, str], address: str) -> None:
    assert job_rank({**STEP, **variables}).address == address


def test_variables_of_tasks_alone_mean_this_machine() -> None:
    tasks = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}
    assert job_rank(tasks) == JobRank(1, 2, 1, "127.0.0.1", 29500, by_srun=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_NTASKS": "1"},
        {"SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_STEP_ID": "", "SLURM_PROCID": "0"},  # a batch script
        {"SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"},  # the same, as a step of Slurm's own
        {"SLURM_PROCID": ""},
    ],
)
def test_a_batch_script_and_a_single_task_are_no_job_of_ranks(changed: dict[str, str]) -> None:
    assert job_rank({**STEP, **changed}) is None
    assert job_rank({}) is None


def test_a_step_on_hosts_that_nobody_names_is_refused() -> None:
    unnamed = {key: value for key, value in STEP.items() if key != "SLURM_JOB_NODELIST"}
    with pytest.raises(UsageError, match="MASTER_ADDR"):
        job_rank(unnamed)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node[01-04,07]", "node01"),
        ("node[1,3]-ib0,other", "node1-ib0"),
        ("a", "a"),
        ("a,b[1-2]", "a"),
        ("r[2-3]n[05,06],x", "r2n05"),
        ("", ""),
    ],
)
def test_the_first_of_a_list_of_hosts(hosts: str, first: str) -> None:
    assert first_host(hosts) == first
