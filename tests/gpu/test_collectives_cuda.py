"""Collectives of NCCL between two ranks, as two hosts that share one GPU. Skipped where there is none."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.measure.collectives.links import calibrate_link  # noqa: E402
from perfmodel.operators import load_operator  # noqa: E402
from perfmodel.operators.collective import Collective  # noqa: E402
from perfmodel.records.record import read_record  # noqa: E402
from perfmodel.records.schema import Status  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU"),
]
LONGEST_S = 90
Both = Callable[..., list[subprocess.Popen[str]]]


def _start(rank: int, port: int, words: tuple[object, ...]) -> subprocess.Popen[str]:
    """Start one rank as torchrun does on a host of one GPU; NCCL takes ranks of one host ID for ranks of one host."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    ranks = {"RANK": f"{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    nccl = {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [sys.executable, "-m", "perfmodel", "bench", *map(str, words), "--num-gpus", "2", "--device", "cuda"],
        env={**os.environ, **rendezvous, **ranks, **nccl}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def both() -> Iterator[Both]:
    """Start both ranks; at the end of the test none is left, wherever it waits."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> list[subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started.extend(_start(rank, port, words) for rank in (0, 1))
        return started

    yield start
    for rank in started:
        rank.kill()
    for rank in started:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the driver still ends it; nothing waits for that
            rank.communicate(timeout=10)


def test_collectives_of_nccl_are_right_and_give_a_link(
    perfmodel: Callable[..., Any], both: Both, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    names = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv")
    words = [word for name in names for word in (name, "bytes=4KiB/256KiB/4MiB", "dtype=fp32")]
    ranks = both(*words, "--time-limit", "0.2", "-o", record)
    for rank in ranks:
        out, err = rank.communicate(timeout=LONGEST_S)
        assert rank.returncode == 0, err + out
    found = read_record(record, ("bench",))
    assert [row.status for row in found.rows] == [Status.OK] * (3 * len(names))
    assert found.facts["ranks"]["backend"] == "nccl"
    validated = perfmodel("validate", record)
    assert validated.code == 0, validated.err
    fitted = calibrate_link(found, pm.hardware(found.rows[0].hardware))
    assert set(fitted.parts) == set(names)
    assert fitted.together.beta_bytes_per_s > 0
    lines = next(link.lines for link in fitted.machine.links if link.name == fitted.link)
    assert lines, "no collective has a line of its own"
    for row in found.rows:
        if row.op in lines:
            op = load_operator(row.op)(dtype=row.dtype, **row.params)
            assert isinstance(op, Collective)
            prediction = pm.predict(op, fitted.machine, library="nccl")
            assert (prediction.calibration, prediction.family) == ("calibrated", f"{row.op}_line")
            line = lines[row.op].latency_s * op.steps() + op.peer_bytes() / lines[row.op].bandwidth_bytes_per_s
            assert prediction.predicted_time_s == pytest.approx(max(line, prediction.bound_time_s))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_stops_is_named_and_its_rows_stay(both: Both, tmp_path: Path, number: int) -> None:
    record = tmp_path / "record.json"
    ranks = both("all_reduce", "bytes=4KiB..64MiB", "dtype=fp32", "--time-limit", "1", "--rank-timeout", "10",
                 "-o", record)  # fmt: skip
    begin = time.monotonic()
    while not (record.exists() and read_record(record, ("bench",)).rows):
        assert ranks[0].poll() is None, ranks[0].communicate(timeout=5)
        assert time.monotonic() - begin < LONGEST_S
        time.sleep(0.1)
    ranks[1].send_signal(number)
    out, err = ranks[0].communicate(timeout=45)  # the limit of a rank, the roll, and as much again
    assert ranks[0].returncode == 4, err + out
    assert "rank 1 " in err, err + out
    assert "rows are measured and kept" in err, err
    assert "Traceback" not in err
    assert "ProcessGroupNCCL" not in err, "torch's watchdog says nothing beside it"
    assert read_record(record, ("bench",)).rows


def test_more_ranks_than_gpus_are_refused(perfmodel: Callable[..., Any]) -> None:
    more = torch.cuda.device_count() + 1
    ran = perfmodel("bench", "all_reduce", "bytes=1KiB", "--num-gpus", more, "--device", "cuda")
    assert ran.code == 4
    assert f"not {more}" in ran.err
