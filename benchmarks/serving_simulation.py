"""Requests that a simulation of a served model gets through on one core: 10^5 and 10^6, open and closed loop."""

from __future__ import annotations

import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import perfmodel as pm
from perfmodel.serving.load import simulate
from perfmodel.serving.requests import Requests, closed_loop, open_loop
from perfmodel.workloads.catalog import find_model

ISL, OSL, SPREAD = 1024, 256, 0.2
#: requests -> seconds of processor time in which they have to be simulated
WANTED_S = {100_000: 3.0, 1_000_000: 20.0}


def main() -> int:
    """Print the times; return 1 when one is longer than wanted."""
    deployment = pm.Deployment(find_model("llama-3.1-8b"), "h100", weights="fp8", kv="fp8")
    simulate(deployment, closed_loop(8, 64, ISL, OSL), interval=False)  # the tables of step times
    missed = 0
    for count, wanted_s in WANTED_S.items():
        loads: dict[str, Requests] = {
            "open loop, 20 requests/s": open_loop(20.0, count, ISL, OSL, spread=SPREAD),
            "closed loop, 128 users": closed_loop(128, count, ISL, OSL, spread=SPREAD),
        }
        for name, load in loads.items():
            begin = time.process_time()
            replay = simulate(deployment, load, interval=False)
            taken_s = time.process_time() - begin
            missed += taken_s > wanted_s
            print(
                f"{count:>9,} requests, {name:<26} {taken_s:5.2f} s (wanted {wanted_s:g} s), {replay.steps:,} steps, "
                f"{replay.mean_batch:.0f} sequences a step"
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
