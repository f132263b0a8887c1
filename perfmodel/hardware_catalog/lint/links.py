"""Rules about links: per direction, per device, in bytes."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.core.units import format_si, network_text, parse_network_rate
from perfmodel.hardware_catalog.lint._compare import near, unit_slip
from perfmodel.hardware_catalog.lint._draft import Draft, Finding
from perfmodel.hardware_catalog.schema import LinkSpec

#: GT/s per lane and encoding. Source: PCI Express Base Specification 6.0 (FLITs, 242/256, from generation 6)
PCIE = {1: (2.5, 8 / 10), 2: (5.0, 8 / 10), 3: (8.0, 128 / 130), 4: (16.0, 128 / 130), 5: (32.0, 128 / 130)}
PCIE |= {6: (64.0, 242 / 256), 7: (128.0, 242 / 256)}
#: fastest NVLink per direction and GPU [GB/s] by compute capability. Source: NVIDIA NVLink page,
#: nvidia.com/en-us/data-center/nvlink (300, 600, 900, 1800 GB/s, both directions together)
NVLINK_GB_PER_S = {"7.0": 150.0, "8.0": 300.0, "9.0": 450.0, "10.0": 900.0, "10.3": 900.0}
#: rates of one network port [Gbit/s]. Source: IEEE 802.3, InfiniBand HDR, NDR, XDR
PORT_GBIT_PER_S = (100, 200, 400, 800)
#: what leaves a GPU over its network [B/s]: from 10 Gb/s of old Ethernet to four ports of 800 Gb/s
NETWORK_BYTES_PER_S = (10e9 / 8, 4 * 800e9 / 8)
NETWORK_NAMES = ("nic", "network", "infiniband", "ib", "ethernet", "roce")


def check_links(draft: Draft) -> Iterator[Finding]:
    """Compare each link with its generation and with the known product."""
    for name, link in draft.spec.link.items():
        key = f"link.{name}.per_direction"
        value = draft.values.get(key)
        if value is None or value <= 0:
            continue
        if name == "pcie" and link.generation is not None and link.generation not in PCIE:
            message = f"there is no PCIe generation {link.generation}; known are {min(PCIE)} to {max(PCIE)}."
            yield draft.finding("link.pcie.generation", "error", "link-differs", message)
        expected, why = _expected(draft, name, link)
        if expected is not None:
            yield from _compare(draft, key, value, expected, why)
        elif name in NETWORK_NAMES and any(near(value, port * 1e9) for port in PORT_GBIT_PER_S):
            message = f"{_rate(value)} is the rate of a port in Gbit/s ({_rate(value / 8)}). Divide by 8, and per GPU."
            yield draft.finding(key, "error", "bits-for-bytes", message)


def check_network(draft: Draft) -> Iterator[Finding]:
    """Check the rate of the network between nodes, which is easily eight times too high: ports are sold in bits."""
    cluster, key = draft.spec.cluster, "cluster.nic"
    if cluster is None or cluster.nic is None:
        return
    value = parse_network_rate(cluster.nic)
    ports = [port for port in PORT_GBIT_PER_S if near(value, port * 1e9)]
    least, most = NETWORK_BYTES_PER_S
    if ports and "B" in cluster.nic and value > PORT_GBIT_PER_S[-1] * 1e9 / 8:
        message = (
            f"{_rate(value)} is {network_text(value)}, and {_rate(value / 8)} that of a port of {ports[0]}Gb/s. Write "
            "the network of one GPU and direction in bits."
        )
        yield draft.finding(key, "error", "bits-for-bytes", message)
    elif not least <= value <= most:
        message = (
            f"{cluster.nic} is {network_text(value)} of one GPU and direction, outside {network_text(least)} to "
            f"{network_text(most)} of known networks. Check the prefix, and bits against bytes."
        )
        yield draft.finding(key, "error" if value > most else "warning", "implausible-figure", message)


def _expected(draft: Draft, name: str, link: LinkSpec) -> tuple[float | None, str]:
    """Return the expected bandwidth and its origin."""
    key = f"link.{name}.per_direction"
    if draft.twin and key in draft.twin.values:
        return draft.twin.values[key], draft.twin.spec.name
    if name == "pcie" and link.generation in PCIE:
        transfers, encoding = PCIE[link.generation]
        lanes = link.lanes or 16
        return transfers * 1e9 * lanes * encoding / 8, f"PCIe generation {link.generation} x{lanes}"
    if name == "nvlink" and draft.spec.compute_capability in NVLINK_GB_PER_S:
        return NVLINK_GB_PER_S[draft.spec.compute_capability] * 1e9, "NVLink of this generation (at most)"
    return None, ""


def _compare(draft: Draft, key: str, value: float, expected: float, why: str) -> Iterator[Finding]:
    # datasheets print 16, 32 and 64 GB/s for PCIe 3, 4 and 5, without the encoding
    if near(value, expected, 0.02) or (value < expected and "at most" in why and value >= 10e9):
        return
    ratio = value / expected
    if unit_slip(ratio):
        code, hint = "unit-1000x", "Check the prefix."
    elif near(ratio, 2, 0.03):
        code, hint = "link-both-directions", "Divide by 2: links are per direction and per device."
    elif near(ratio, 8, 0.03):
        code, hint = "bits-for-bytes", "Divide by 8: links are in bytes."
    else:
        code, hint = "link-differs", f"Links are per direction and per device.{_whose(draft, key, value)}"
    yield draft.finding(key, "error", code, f"found {_rate(value)}, {why} has {_rate(expected)}. {hint}")


def _whose(draft: Draft, key: str, value: float) -> str:
    """Return the other link with this bandwidth, in words."""
    links = {name: draft.values.get(f"link.{name}.per_direction", 0.0) for name in draft.spec.link}
    same = [name for name, rate in links.items() if f"link.{name}.per_direction" != key and near(value, rate)]
    nvlink = NVLINK_GB_PER_S.get(draft.spec.compute_capability, 0.0) * 1e9
    if not same and nvlink and key.startswith("link.pcie") and near(value, nvlink):
        same = ["nvlink"]
    return f" That is the bandwidth of {same[0]}." if same else ""


def _rate(value: float) -> str:
    return format_si(value, "B/s")
