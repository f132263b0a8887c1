"""What the board's power limit leaves of an engine's rate: one law for every engine and dtype.

A FLOP takes the energy e at the lowest voltage of the chip's process. Up to the knee clock the voltage stays there, and
power grows with the clock; above it the voltage grows with the clock, so that a FLOP takes e (f / knee)^2:

    x P e(f) = TDP - base,   f = x f_peak,   e(f) = e max(1, f / knee)^2

with P the peak at the clock f_peak, and x the share of both that the limit leaves. The base has a constant part, which
would leave nothing of 22 W; it is at most a share of the limit, since modules of few watts are built for them. A FLOP
takes at least 1 / (x P), and a byte that crosses device memory takes its energy's time of TDP - base besides
(`s_per_byte`).

The prior energies of a FLOP in TSMC 4N are 4.8 pJ in fp32 on the vector engine and 0.58 pJ in 16 bits on the tensor
engine (``energy`` of the families), times bytes / 2 for narrower dtypes. They are assumed: they were chosen on open
rows and hold the whole board, registers and caches included. The published anchor is no source for them: W. J. Dally
gives 110 pJ for one HMMA of 128 FLOP, that is 0.86 pJ a FLOP, and 30 pJ for its issue, both estimated for 45 nm and for
the instruction alone.
"""

from __future__ import annotations

import math

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import Load
from perfmodel.core.work import Number, maximum, minimum
from perfmodel.prediction.latency.machine import Machine

#: prior energy of a FLOP of the tensor engine in 16 bits, see above [J]
TENSOR_ENERGY = 0.58e-12
#: the same of the vector engine in fp32, see above [J]
VECTOR_ENERGY = 4.8e-12
#: clock up to which the lowest voltage is enough [Hz]; power of memory, leakage and regulators: a constant part [W] and
#: a share of the limit. Chosen by hand on T4, V100, H100 and L40S (rows of NeuSight and aiconfigurator).
KNEE_HZ, BASE_W, BASE_SHARE = 1.2e9, 20.0, 0.10
#: the most of a limit that the base takes (assumed): a little more than on the board of the lowest one in the catalog,
#: 26 of an A2's 60 W. It holds below 57 W, where nobody measured arithmetic
BASE_MOST = 0.45
#: process -> energy of an operation at equal speed over that of TSMC 4N. A process that is not listed counts as 4N.
#:
#: What a foundry states, and what the factors make of it:
#: - 16FF to N7: -60 % for CLN7FF over CLN16FF+
#:   (TSMC, techgage.com/news/tsmc-has-begun-mass-production-of-chips-built-on-its-7nm-process); here -61 %.
#: - N7 to N5: -30 % (TSMC, cheapdeveloper.com/news/general/tsmc-pumped-7-nm-and-5-nm-processes-technology-r848); here
#:   -28 %: the factor that follows from -30 % is 1.05. The constants were fitted with 1.08.
#: Assumed, since nobody states it:
#: - 16FF to 12FFN, NVIDIA's variant: -16 %, in the middle of two figures. TSMC states -25 % for 12FFC over 16FFC
#:   (anandtech.com/show/11337), smaller cells included, which V100 does not have: 25.9 million transistors a mm^2, and
#:   P100 25.1. The fp32 products of T4 and P4 alone would make it -7 %. With -24 % T4, left out, ran whole models 15 %
#:   too fast; now 10 %.
#: - 4N and 4NP, NVIDIA's variants: -7 % over N5. TSMC states -22 % for N4P over N5, another variant.
#: - N6: -5 % over N7. TSMC states 18 % more logic density and nothing about power.
#: - Samsung 8N: between 12FFN and N7. Samsung states -10 % for 8LPP over its own 10LPP; nothing relates that to TSMC.
PROCESS_ENERGY = {
    "TSMC 16FF": 3.8, "TSMC 12FFN": 3.2, "Samsung 8N": 1.77, "TSMC N7": 1.5, "TSMC N6": 1.42, "TSMC N5": 1.08,
    "TSMC 4N": 1.0, "TSMC 4NP": 1.0,
}  # fmt: skip
#: tensor engines gain less from a process than vector engines: their energy goes with this power of the factor
#: (assumed: no open row has a power-limited tensor engine older than 4N)
TENSOR_POWER = 0.55
#: energy of a FLOP of AMD's matrix cores in 16 and 8 bits over that of NVIDIA's: with it the six products of a second
#: each that AMD published for MI300X and MI325X (654 and 794 TFLOP/s in fp16, 708 and 843 in bf16, 1273 and 1519 in
#: fp8; "Measuring Max-Achievable FLOPs, part 2", 2025-02-28) come out 4 % off in the mean under sustained load, without
#: it 9 % too fast, before the factor of AMD's library (`perfmodel.prediction.latency.own_figures.HIPBLASLT`). In fp32
#: the energy is fitted on MI100 and MI210 as it is
MFMA_ENERGY, MFMA_DTYPES = 1.18, ("fp16", "bf16", "fp8", "int8", "fp4")


#: energy of a FLOP of the tensor engine in minutes of real work, over that in short replays: of 1.2, 1.3 and 1.4 the
#: one with which published training steps of frameworks left out of the fit come out best (5.9, 5.07 and 5.12 % in the
#: mean of four; scripts/fit_training.py with these ENERGIES, 2026-11-22). Since it is known which attention NeMo runs
#: they are 5.2, 4.8 and 4.6 %, and each half by the other 3.9, 3.9 and 4.3 %: 1.3 stays. It makes 685 TFLOP/s of 745
#: for a replay of 8192^3 in bf16 on an H100 at its 700 W, and 544 of 657 on one of 500 W; nothing changes on A100,
#: whose limit leaves the clock. Heat, other consumers of the board's power and data that toggle more bits are likely
#: reasons; no machine has been measured for it
SUSTAINED_ENERGY = 1.3


def process_energy(machine: Machine) -> float:
    """Return the energy of an operation on a machine's engine over that of the same engine in TSMC 4N."""
    factor = PROCESS_ENERGY.get(machine.process, 1.0)
    if machine.engine == "vector":
        return factor
    of_amd = machine.matrix_instruction == "mfma" and machine.dtype in MFMA_DTYPES
    energy: float = (MFMA_ENERGY if of_amd else 1.0) * factor**TENSOR_POWER
    return energy


def available_w(machine: Machine, load: Load = Load.BURST) -> float:
    """Return the power that the limit leaves to arithmetic and traffic, TDP - base [W].

    A benchmark has a device of a module alone, and with it what the others leave; minutes of real work use them all.
    """
    limit = machine.alone_w if machine.alone_w and load is Load.BURST else machine.tdp_w
    return max(limit * (1.0 - BASE_SHARE) - BASE_W, limit * (1.0 - BASE_MOST))


def is_of_few_watts(hardware: Hardware) -> bool:
    """Return whether a limit is so low that the base is the assumed share of it, `BASE_MOST`."""
    return hardware.tdp_w is not None and hardware.tdp_w * (BASE_MOST - BASE_SHARE) < BASE_W


def limited_share(machine: Machine, joule_per_flop: Number, load: Load = Load.BURST) -> Number:
    """Return the share x of the peak that the power limit leaves; 1 or more where it does not bind.

    Parameters
    ----------
    machine : the machine, with the peak of the engine.
    joule_per_flop : energy of a FLOP at the lowest voltage in TSMC 4N [J].
    load : whether the device has a limit that it shares to itself.

    With linear = (TDP - base) / (e P): x = linear below the knee, (linear (knee / f_peak)^2)^(1/3) above it.
    """
    if not math.isfinite(machine.tdp_w):
        return math.inf
    joule = joule_per_flop * process_energy(machine)
    linear = available_w(machine, load) / (joule * machine.peak_flop_per_s)
    knee = KNEE_HZ / machine.clock_hz
    return minimum(linear, (linear * knee**2) ** (1.0 / 3.0))


def _heated(machine: Machine, load: Load) -> float:
    """Return the energy of a FLOP under a load over that in the calls that were measured.

    The measurements of vector engines, and of matrix cores in fp32, are calls of up to seconds, one after another, so
    that their energies are already those of a sustained load.
    """
    heated = load == Load.SUSTAINED and machine.engine != "vector" and machine.dtype != "fp32"
    return SUSTAINED_ENERGY if heated else 1.0


def s_per_flop(machine: Machine, joule_per_flop: Number, load: Load = Load.BURST) -> Number:
    """Return the least time of a FLOP under the power limit [s]; see `limited_share`."""
    joule = joule_per_flop * _heated(machine, load)
    return 1.0 / (limited_share(machine, joule, load) * machine.peak_flop_per_s)


def sustained_share(machine: Machine, share: Number) -> Number:
    """Return the share of the clock that minutes of load leave, at most 1, given the one that short calls leave.

    It is for kernels that keep the engine busy for a part of the time, so that their rate does not tell their clock.
    What a call at ``share`` x of the clock draws, linear = x below the knee and x^3 / knee^2 above it, grows by what
    heat and the other devices of a board take; x follows from it as in `limited_share`.

    Parameters
    ----------
    machine : the machine, with its clock and a limit.
    share : the share x of the peak clock that the limit leaves in short calls; above 1 where it has power to spare.
    """
    knee = KNEE_HZ / machine.clock_hz
    power = available_w(machine, Load.SUSTAINED) / (available_w(machine) * _heated(machine, Load.SUSTAINED))
    linear = maximum(1.0 * share, share**3.0 / knee**2) * power
    return minimum(1.0, minimum(linear, (linear * knee**2) ** (1.0 / 3.0)))


def s_per_byte(machine: Machine, joule_per_byte: float, load: Load = Load.BURST) -> float:
    """Return the time that the energy of a byte of device memory takes of the power limit [s]."""
    return joule_per_byte / available_w(machine, load)
