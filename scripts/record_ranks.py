"""Record the traces of small trainings on several processes, which the tests of ``diagnose rank*.json.gz`` read.

    python scripts/record_ranks.py even --ranks 2 --out tests/diagnosis/ranks/traces
    python scripts/record_ranks.py slow_rank --ranks 4 --strategy fsdp
    python scripts/record_ranks.py even --ranks 2 --device cuda

Kinds: even; slow_rank, where rank 1 sleeps 20 ms a step before its backward pass; slow_pair, where ranks 1 and 2 do;
accumulated, where rank 1 does and the gradients of four steps are exchanged at once (DDP); stall, where rank 1 sleeps
300 ms in one step; unequal, where rank 1 has 64 times the batch. DDP or FSDP of a model of three linear layers, gloo on
the CPU or NCCL on GPUs, torch.profiler with shapes, six steps after one of warm-up (twelve where gradients accumulate).
The traces are written as rank0.json.gz, rank1.json.gz, ... into a folder of the kind.
Where there are fewer GPUs than ranks, they share them: by NCCL_HOSTID, NCCL takes the ranks for those of several hosts,
and joins them by sockets. Their kernels then take turns on the GPU, so that an exchange lasts some time slices.

Record on an idle machine. Beside other processes the ranks do not get the same share of the cores: at a load of four
times the cores, a rank of an "even" FSDP training made the others wait for half of each step.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.profiler import ProfilerActivity, profile, schedule

SLEEP_S, STALL_S = 0.020, 0.300
#: every rank waits this long at the start of a step, as for its input: a recording on a busy machine stays clean
PAUSE_S = 0.010
SLOW = 1
#: kind -> ranks that sleep in each step
SLEEPING = {"slow_rank": (1,), "slow_pair": (1, 2), "accumulated": (1,)}
STEPS, ACCUMULATED = 6, 4


def model(strategy: str) -> nn.Module:
    """Return a small model, wrapped for its strategy."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    from torch.distributed.fsdp import fully_shard

    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(net)


def joined(device: str) -> int:
    """Join the group of a kind of device, and return this rank."""
    rank = int(os.environ["RANK"])
    if device == "cpu":
        dist.init_process_group("gloo")
        return rank
    count = torch.cuda.device_count()
    torch.cuda.set_device(rank % count)
    if count < int(os.environ["WORLD_SIZE"]):
        os.environ |= {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank % count))
    return rank


def sleep_s(kind: str, rank: int, step: int) -> float:
    """Return how long a rank sleeps in a step, on top of the pause of all [s]."""
    if kind == "stall":
        return STALL_S if (rank, step) == (SLOW, 2 + STEPS // 2) else 0.0
    return SLEEP_S if rank in SLEEPING.get(kind, ()) else 0.0


def train(kind: str, strategy: str, folder: str, device: str) -> None:
    """Train some steps on one rank and write its trace."""
    torch.set_num_threads(1)
    rank = joined(device)
    torch.set_default_device(device)
    net = model(strategy)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    batch = 64 * (64 if kind == "unequal" and rank == SLOW else 1)
    x = torch.randn(batch, 64)
    steps = 3 * ACCUMULATED if kind == "accumulated" else STEPS
    plan = schedule(wait=1, warmup=1, active=steps)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA][: 2 if device == "cuda" else 1]
    with profile(activities=activities, record_shapes=True, schedule=plan) as profiler:
        for step in range(2 + steps):
            time.sleep(PAUSE_S)
            exchanges = kind != "accumulated" or step % ACCUMULATED == ACCUMULATED - 1
            with nullcontext() if exchanges else net.no_sync():
                loss = net(x).square().mean()
                time.sleep(sleep_s(kind, rank, step))
                loss.backward()
            if exchanges:
                optimizer.step()
                optimizer.zero_grad()
            if device == "cuda":
                torch.cuda.synchronize()  # as a training does that prints its loss
            profiler.step()
    Path(folder).mkdir(parents=True, exist_ok=True)
    write(profiler, Path(folder) / f"rank{rank}.json.gz")
    dist.barrier()
    dist.destroy_process_group()


def write(profiler: profile, path: Path) -> None:
    """Export a trace without the names of the host and of files."""
    profiler.export_chrome_trace(str(path))
    document = json.loads(gzip.decompress(path.read_bytes()))
    kept = {key: value for key, value in document.items() if key not in ("host_name", "traceName")}
    path.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


def main() -> int:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("even", "unequal", "stall", *SLEEPING))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--strategy", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/ranks"))
    given = parser.parse_args()
    nccl = "nccl_" if given.device == "cuda" else ""
    folder = given.out / f"{nccl}{given.strategy}_{given.ranks}_{given.kind}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    config = LaunchConfig(1, 1, given.ranks, run_id="record", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0",
                          max_restarts=0, start_method="spawn")  # fmt: skip
    elastic_launch(config, train)(given.kind, given.strategy, str(folder), given.device)
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
