"""The course of all readings as lines: one panel for each quantity, with the GPUs or processes as its lines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.panel import Line, Panel
from perfmodel.measure.monitor.series import Floats, Series

#: places on the axis; longer series show the mean of blocks, with a band from the smallest to the largest
MOST_POINTS = 1000
#: title -> unit, and the metrics that it shows with the names of their lines
_PANELS: dict[str, tuple[str, dict[str, str]]] = {
    "Training: time of a step": ("s", {"training_step_seconds": "measured", "training_expected_seconds": "expected",
                                       "training_expected_high_seconds": "slow end of 80 %"}),
    "Training: tokens a second": ("", {"training_tokens_per_second": "measured",
                                       "training_expected_tokens_per_second": "expected"}),
    "Training: model FLOP of the peak": ("fraction", {"training_mfu_ratio": "MFU"}),
    "Use of the GPUs": ("fraction", {"gpu_utilization_ratio": ""}),
    "Memory of the GPUs": ("iB", {"gpu_memory_used_bytes": "", "gpu_process_memory_bytes": ""}),
    "Power": ("W", {"gpu_power_watts": ""}),
    "Temperature": ("°C", {"gpu_temperature_celsius": ""}),
    "SM clock": ("Hz", {"gpu_sm_clock_hertz": ""}),
    "Traffic over PCIe": ("B/s", {"gpu_pcie_sent_bytes_per_second": "sent",
                                  "gpu_pcie_received_bytes_per_second": "received"}),
    "Traffic over NVLink": ("B/s", {"gpu_nvlink_sent_bytes_per_second": "sent",
                                    "gpu_nvlink_received_bytes_per_second": "received"}),
    "Use of the CPU": ("fraction", {"host_cpu_ratio": "all cores", "host_busiest_core_ratio": "busiest core"}),
    "CPUs that the process uses": ("", {"process_cpus": ""}),
    "Memory of the process": ("iB", {"process_memory_resident_bytes": ""}),
    "Memory of the host": ("iB", {"host_memory_used_bytes": "used", "host_swap_used_bytes": "swap"}),
    "Disk of the host": ("B/s", {"host_disk_read_bytes_per_second": "read",
                                 "host_disk_write_bytes_per_second": "written",
                                 "host_swap_bytes_per_second": "swapped"}),
    "Network of the host": ("B/s", {"host_network_received_bytes_per_second": "received",
                                    "host_network_sent_bytes_per_second": "sent"}),
}  # fmt: skip


def monitor_panels(series: Series) -> tuple[Panel, ...]:
    """Return the panels of the readings so far; those without two readings are left out."""
    panels = (_panel(title, unit, metrics, series) for title, (unit, metrics) in _PANELS.items())
    return tuple(panel for panel in panels if panel is not None)


def _panel(title: str, unit: str, metrics: dict[str, str], series: Series) -> Panel | None:
    found = [(metric, of, *series.get(metric, of)) for metric, of in series.names() if metric in metrics]
    found = [item for item in found if item[2].size > 1]
    if not found:
        return None
    several = len({of for _, of, _, _ in found}) > 1
    edges = _edges(np.unique(np.concatenate([times for _, _, times, _ in found])))
    lines = tuple(
        _line(_name(metrics[metric], of, several=several), times, values, edges) for metric, of, times, values in found
    )
    return Panel(title, [float(at) for at in edges[:-1]], "time", unit, lines)


def _name(what: str, of: str, *, several: bool) -> str:
    return f"{of}, {what}" if what and several else what or of


def _edges(times: Floats) -> Floats:
    """Return the beginnings of the blocks that are drawn as one point, and an end [s]."""
    block = -(-times.size // MOST_POINTS)
    starts = times[::block]
    return np.append(starts, np.nextafter(times[-1], np.inf))


def _line(name: str, times: Floats, values: Floats, edges: Floats) -> Line:
    """Return the mean of each block, and where some block has several values, the smallest and the largest."""
    order = np.argsort(times, kind="stable")  # a clock may be set back
    times, values = times[order], values[order]
    block = np.searchsorted(edges, times, side="right") - 1
    count = np.bincount(block, minlength=edges.size - 1)
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    filled = count > 0

    def spread(reduced: NDArray[np.float64]) -> list[float | None]:
        full = np.full(edges.size - 1, np.nan)
        full[filled] = reduced
        return [float(value) if np.isfinite(value) else None for value in full]

    middle = spread(np.add.reduceat(values, starts) / count[filled])
    if count.max() == 1:
        return Line(name, middle)
    return Line(name, middle, spread(np.minimum.reduceat(values, starts)), spread(np.maximum.reduceat(values, starts)))
