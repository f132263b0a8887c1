"""Requests that a simulation of a served model gets through on one core, and how fast the largest load is found.

10^5 and 10^6 requests, open and closed loop; and the largest rate within an objective, as `serve --slo` looks for it,
beside a search that doubles a rate and then halves what lies between, with all requests of each.
"""

from __future__ import annotations

import math
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import perfmodel as pm
from perfmodel.serving.load import Fleet, simulate, simulate_fleet
from perfmodel.serving.points import QPS, Workload
from perfmodel.serving.requests import Requests, closed_loop, open_loop
from perfmodel.serving.slo import parse_slo
from perfmodel.serving.study import Loads, Study, largest_load
from perfmodel.workloads.catalog import find_model

ISL, OSL, SPREAD = 1024, 256, 0.2
#: requests -> seconds of processor time in which they have to be simulated
WANTED_S = {100_000: 3.0, 1_000_000: 20.0}


#: times by which `serve --slo` has to be faster than the plain search
WANTED_RATIO = 2.0


def plain_search(deployment: pm.Deployment, study: Study) -> float:
    """Return the largest rate within 2 %, from 1 request a second on, by doubling and halving."""
    loads, slo = Loads(deployment, study), study.slo
    assert slo is not None

    def met(per_s: float) -> bool:
        return slo.met(simulate_fleet(deployment, loads.at(per_s), study.fleet, interval=False))

    low, high = 0.0, 1.0
    while met(high):
        low, high = high, 2.0 * high
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if met(middle) else (low, middle)
    return low


def search_ratio(deployment: pm.Deployment) -> float:
    """Print the times of both searches; return their ratio, or 0 where their rates differ by more than both may."""
    study = Study(Workload(ISL, OSL), Fleet(), QPS, (), parse_slo("ttft=500ms,tpot=30ms"), only_largest=True)
    begin = time.process_time()
    plain = plain_search(deployment, study)
    between = time.process_time()
    found = largest_load(deployment, study, Loads(deployment, study))
    plain_s, taken_s = between - begin, time.process_time() - between
    rate = 0.0 if found is None else found.load
    print(
        f"{study.slo}: {plain:.4g} requests/s by doubling and halving in {plain_s:.2f} s, {rate:.4g} as serve --slo "
        f"finds it in {taken_s:.2f} s: {plain_s / taken_s:.1f} times as fast (wanted {WANTED_RATIO:g})"
    )
    return plain_s / taken_s if abs(math.log(rate / plain)) < 0.04 else 0.0


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
    missed += search_ratio(deployment) < WANTED_RATIO
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
