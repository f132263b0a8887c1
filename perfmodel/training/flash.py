"""The rates of flash-attention kernels that are known from their authors' charts."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.files import read_document, shipped_folder

#: instruction of the tensor engine -> architecture whose chart a machine takes that has none of its own: kernels for
#: mma.sync run alike on machines that have no other instruction; others run Hopper's or their like
_NEAREST = {"mma.sync": "ampere", "": "ampere"}
#: rates of the charted machines in 16 bits [FLOP/s], and their SMs times clock [1/s]
_CHARTED = {"ampere": (312e12, 108 * 1.41e9), "hopper": (989.4e12, 132 * 1.83e9)}


@functools.cache
def _charts() -> tuple[tuple[float, ...], Mapping[str, Mapping[str, Mapping[str, tuple[float, ...]]]]]:
    """Return the sequences of the charts, and kernel -> architecture -> head -> rates [TFLOP/s]."""
    document = read_document(shipped_folder("engine_specs") / "training" / "defaults" / "attention.toml")
    kernels = {
        kernel: {
            architecture: {key: tuple(map(float, rates)) for key, rates in chart.items() if key.startswith("d")}
            for architecture, chart in charts.items()
        }
        for kernel, charts in document.items()
        if isinstance(charts, dict)
    }
    return tuple(map(float, document["seq"])), kernels


def flash_rate(hardware: Hardware, kernel: str, seq: float, head_dim: float) -> float | None:
    """Return the rate of forward and backward together of a charted kernel [FLOP/s]; None for one without a chart.

    Between sequences the rate is linear in log2; a head between 64 and 128 lies between the two. A machine without a
    chart of its own takes that of its architecture, times the ratio of the 16-bit peaks; on Blackwell, times the ratio
    of SMs times clock where that is less, since its kernels of that age use the older instruction.
    """
    seqs, kernels = _charts()
    if kernel not in kernels:
        return None
    architecture = hardware.architecture.lower()
    nearest = _NEAREST.get(hardware.matrix_instruction, "hopper")
    chart = kernels[kernel][nearest]
    at = np.log2(np.clip(seq, seqs[0], seqs[-1]))
    wide = float(np.interp(at, np.log2(seqs), chart["d128"]))
    narrow = _narrow(kernels, kernel, nearest, at, wide)
    share = min(1.0, max(0.0, (head_dim - 64.0) / 64.0))
    small = min(1.0, head_dim / 64.0)
    return 1e12 * small * (narrow + share * (wide - narrow)) * _scale(hardware, architecture, nearest)


def _narrow(
    kernels: Mapping[str, Mapping[str, Mapping[str, tuple[float, ...]]]],
    kernel: str,
    architecture: str,
    at: float,
    wide: float,
) -> float:
    """Return the rate with a head of 64; without a bar for it, by the ratio of FlashAttention-2."""
    seqs = np.log2(_charts()[0])
    chart = kernels[kernel][architecture]
    if "d64" in chart:
        return float(np.interp(at, seqs, chart["d64"]))
    other = kernels["fa2"][architecture]
    return wide * float(np.interp(at, seqs, other["d64"]) / np.interp(at, seqs, other["d128"]))


def _scale(hardware: Hardware, architecture: str, nearest: str) -> float:
    peak, speed = _CHARTED[nearest]
    of_peaks = hardware.best_peak("fp16").flop_per_s / peak
    if architecture == "blackwell":
        clock = hardware.clocks_hz.get("tensor") or hardware.clocks_hz.get("vector", speed / 132)
        return min(of_peaks, (hardware.sm_count or 132) * clock / speed)
    return of_peaks
