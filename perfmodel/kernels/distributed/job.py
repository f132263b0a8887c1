"""The job of ranks that a launcher started this process in: by the variables of torchrun, or of a step of srun."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.errors import UsageError

#: a name of a list of hosts up to the comma after it, and the first number in brackets of "node[01-04,07]"
_FIRST_NAME = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_FIRST_NUMBER = re.compile(r"\[(\w+)[^\]]*\]")
#: Slurm numbers its own steps from here: batch scripts, interactive shells and others that are no task of srun
_OWN_STEPS = 0xFFFFFFF0
#: port of a job without a number, as torch has it, and the first of the ports of jobs with one
_USUAL_PORT, _FIRST_PORT, _PORTS = 29500, 15000, 10000
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class JobRank:
    """One process of a job.

    Attributes
    ----------
    rank, size : number of this rank from 0, and number of all.
    local_rank : its number among the ranks of this host.
    address, port : where the ranks find each other: the host of rank 0.
    by_srun : whether srun started it, which may show each rank its own GPU alone.
    """

    rank: int
    size: int
    local_rank: int
    address: str
    port: int
    by_srun: bool = False


def job_rank(variables: Mapping[str, str] | None = None) -> JobRank | None:
    """Return the rank that a launcher gave this process; None outside a job of ranks.

    Parameters
    ----------
    variables : the environment; None for that of this process.

    Raises
    ------
    UsageError
        When the job does not say where its rank 0 is.
    """
    found = os.environ if variables is None else variables
    if found.get("RANK", "").isdigit():
        return JobRank(
            int(found["RANK"]),
            _number(found, "WORLD_SIZE", 1),
            _number(found, "LOCAL_RANK", 0),
            found.get("MASTER_ADDR") or _LOOPBACK,
            _number(found, "MASTER_PORT", _USUAL_PORT),
        )
    size = _number(found, "SLURM_STEP_NUM_TASKS", _number(found, "SLURM_NTASKS", 1))
    if size < 2 or not _is_task(found):
        return None
    rank = int(found["SLURM_PROCID"])
    local_rank = _number(found, "SLURM_LOCALID", 0)
    return JobRank(rank, size, local_rank, _address(found), _port(found), by_srun=True)


def _is_task(variables: Mapping[str, str]) -> bool:
    """Return whether srun started this process.

    A batch script has the variables of its job, SLURM_PROCID=0 among them, but is in no step, or in one of Slurm's own.
    """
    if not variables.get("SLURM_PROCID", "").isdigit():
        return False
    step = variables.get("SLURM_STEP_ID") or variables.get("SLURM_STEPID", "")
    return int(step) < _OWN_STEPS if step.isdigit() else "SLURM_JOB_ID" not in variables


def _address(variables: Mapping[str, str]) -> str:
    """Return the host of rank 0: as it is told, this one where all tasks are here, or the first of the step's hosts."""
    if address := variables.get("MASTER_ADDR"):
        return address
    nodes = variables.get("SLURM_STEP_NUM_NODES") or variables.get("SLURM_NNODES", "")
    hosts = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST", "")
    if nodes == "1" or not (nodes or hosts):
        return _LOOPBACK
    if not hosts:
        raise UsageError("names no host of rank 0.", place="SLURM_STEP_NODELIST", remedy="Set MASTER_ADDR to it.")
    return first_host(hosts)


def first_host(hosts: str) -> str:
    """Return the first host of a list as Slurm writes it.

    >>> first_host("node[01-04,07],gpu3"), first_host("a1,b[2-3]"), first_host("rack[2-3]n[05-06]")
    ('node01', 'a1', 'rack2n05')
    """
    name = _FIRST_NAME.match(hosts.strip())
    return _FIRST_NUMBER.sub(r"\1", name[0]) if name else ""


def _port(variables: Mapping[str, str]) -> int:
    """Return the port of a step: as it is told, or by the numbers of job and step, so that two steps never meet."""
    job = _number(variables, "SLURM_JOB_ID", -1)
    step = _number(variables, "SLURM_STEP_ID", 0)
    usual = _USUAL_PORT if job < 0 else _FIRST_PORT + (job + step) % _PORTS
    return _number(variables, "MASTER_PORT", usual)


def _number(variables: Mapping[str, str], name: str, otherwise: int) -> int:
    text = variables.get(name, "")
    return int(text) if text.isdigit() else otherwise
