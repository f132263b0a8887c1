"""What the board's power limit leaves of an engine's rate: one law for every engine and dtype.

A FLOP takes the energy e at the lowest voltage of the chip's process. Up to the knee clock the voltage stays there, and
power grows with the clock; above it the voltage grows with the clock, so that a FLOP takes e (f / knee)^2:

    x P e(f) = TDP - base,   f = x f_peak,   e(f) = e max(1, f / knee)^2

with P the peak at the clock f_peak, and x the share of both that the limit leaves. A FLOP takes at least 1 / (x P).
"""

from __future__ import annotations

import math

from perfmodel.prediction.latency.machine import Machine

#: clock up to which the lowest voltage is enough [Hz]; power of memory, leakage and regulators: a constant part [W] and
#: a share of the limit. Chosen by hand on T4, V100, H100 and L40S (rows of NeuSight and aiconfigurator).
KNEE_HZ, BASE_W, BASE_SHARE = 1.2e9, 20.0, 0.10
#: process -> energy of an operation at equal speed over that of TSMC 4N. 12FFN from 16FF: -25 % (TSMC's statement for
#: 12FFC, AnandTech 11337); N5 from N7: -30 % (TSMC). Assumed, since no statement was found: N7 from 16FF -60 %, Samsung
#: 8N, N6, 4N. A process that is not listed counts as 4N.
PROCESS_ENERGY = {
    "TSMC 16FF": 3.8, "TSMC 12FFN": 2.9, "Samsung 8N": 1.77, "TSMC N7": 1.5, "TSMC N6": 1.42, "TSMC N5": 1.08,
    "TSMC 4N": 1.0, "TSMC 4NP": 1.0,
}  # fmt: skip
#: tensor engines gain less from a process than vector engines: their energy goes with this power of the factor
#: (assumed: no open row has a power-limited tensor engine older than 4N)
TENSOR_POWER = 0.6


def process_energy(machine: Machine) -> float:
    """Return the energy of an operation on a machine's engine over that of the same engine in TSMC 4N."""
    factor = PROCESS_ENERGY.get(machine.process, 1.0)
    return factor if machine.engine == "vector" else factor**TENSOR_POWER


def limited_share(machine: Machine, joule_per_flop: float) -> float:
    """Return the share x of the peak that the power limit leaves; 1 or more where it does not bind.

    Parameters
    ----------
    machine : the machine, with the peak of the engine.
    joule_per_flop : energy of a FLOP at the lowest voltage in TSMC 4N [J].

    With linear = (TDP - base) / (e P): x = linear below the knee, (linear (knee / f_peak)^2)^(1/3) above it.
    """
    if not math.isfinite(machine.tdp_w):
        return math.inf
    joule = joule_per_flop * process_energy(machine)
    linear = (machine.tdp_w * (1.0 - BASE_SHARE) - BASE_W) / (joule * machine.peak_flop_per_s)
    knee = KNEE_HZ / machine.clock_hz
    return float(linear if linear < knee else (linear * knee**2) ** (1.0 / 3.0))


def s_per_flop(machine: Machine, joule_per_flop: float) -> float:
    """Return the least time of a FLOP under the power limit [s]; see `limited_share`."""
    return 1.0 / (limited_share(machine, joule_per_flop) * machine.peak_flop_per_s)
