"""One GPU as a library of its vendor reports it, whichever library that is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuReading:
    """One GPU as it is reported; None where its source does not say.

    Attributes
    ----------
    index : its number where it was read, which CUDA may count in another order.
    memory_bytes : memory that is reported, reserved part included [B].
    sm_clock_hz, memory_clock_hz : highest clocks [Hz].
    pcie_generation, pcie_width : of the link as it is trained at most on this machine; width in lanes.
    power_limit_w : enforced limit [W].
    compute_capability : "9.0", or "gfx942" of an AMD GPU.
    bus_bits : width of the memory's bus [bit].
    ecc : whether the memory corrects errors.
    bus_id : where it is on the PCI bus, by which the CUDA driver finds it.
    sm_count, l2_bytes : multiprocessors (compute units), and size of the L2 [B].
    source : who reports it: "NVML", "torch".
    """

    index: int
    name: str
    memory_bytes: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    power_limit_w: float | None = None
    driver: str = ""
    compute_capability: str = ""
    bus_bits: int | None = None
    ecc: bool | None = None
    bus_id: str = ""
    sm_count: int | None = None
    l2_bytes: float | None = None
    source: str = "NVML"

    @property
    def memory_bandwidth_bytes_per_s(self) -> float | None:
        """Bandwidth of the memory at its highest clock [B/s]: two transfers a clock, as wide as the bus."""
        if self.memory_clock_hz is None or self.bus_bits is None:
            return None
        return 2.0 * self.memory_clock_hz * self.bus_bits / 8.0
