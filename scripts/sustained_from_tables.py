"""Derive the [sustained] figures of hardware_specs/ from public measurement tables.

    python scripts/sustained_from_tables.py [HARDWARE ...]

reads ``$PERFMODEL_DATA/measurements`` (default: ``../shared/data`` beside the checkout), tables in the schema of
``perfmodel validate``: rows of sitar-lab/NeuSight @ 6945927d9afc and ai-dynamo/aiconfigurator @ 095f58a51c4c. It
prints, for each machine, the lines for its specification file, each with its criterion and number of rows.

A sustained figure is a ceiling, the best that good kernels reach: the 90th percentile over the rows that its
criterion admits, since the very best row may be an artefact. A figure of fewer than `MIN_ROWS` rows is not printed,
and one that is not below the datasheet's peak is printed as a comment.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import public_data

from perfmodel.core.hardware import Hardware
from perfmodel.hardware_catalog import hardware

MIN_ROWS = 20
MIN_GEMM_ROWS = 30
#: rows smaller than this are dominated by the host (events round a framework call) or sit in a cache
ELEMENTWISE_BYTES = 300e6
WEIGHT_BYTES = 200e6
#: rows of A in a product that does little but stream its weights
STREAMING_ROWS = 16
#: the share of rows that stays below a sustained figure
PERCENTILE = 90
L2_MULTIPLE = {"elementwise": 4, "weights": 2}
FP32_GEMM_FLOP = 100e9
AIC_DTYPES = {"bf16": 2, "fp8": 1}
#: whose fp32 matrix product runs on the matrix cores
FP32_ON_TENSOR = ("mi100", "mi210")

Samples = dict[tuple[str, str], list[float]]


def rows(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of one table."""
    with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def machine_of(name: str, known: dict[str, Hardware]) -> Hardware:
    """Return a machine of the catalog, read once."""
    if name not in known:
        known[name] = hardware(name)
    return known[name]


def l2_bytes(machine: Hardware) -> float:
    """Return the capacity of the L2 cache [B]."""
    level = machine.level("l2")
    return (level.capacity_bytes if level else None) or 0.0


def elementwise_rates(folder: Path, known: dict[str, Hardware]) -> Samples:
    """Return achieved B/s of large fp32 add and mul, each input read once and the output written once."""
    samples: Samples = defaultdict(list)
    for row in rows(folder, "neusight_elementwise_fp32"):
        if row["kind"] not in ("add", "mul"):
            continue
        # not the column numel: some of its values have overflowed 32 bits
        traffic = 4 * float(row["rows"]) * float(row["cols"]) * (int(row["num_inputs"]) + 1)
        l2 = l2_bytes(machine_of(row["hardware"], known))
        if traffic > max(ELEMENTWISE_BYTES, L2_MULTIPLE["elementwise"] * l2):
            samples[row["hardware"], "memory.hbm"].append(traffic / float(row["time_s"]))
    return samples


def fp32_gemm_rates(folder: Path) -> Samples:
    """Return achieved FLOP/s of large fp32 matrix products (TF32 off)."""
    samples: Samples = defaultdict(list)
    for row in rows(folder, "neusight_gemm_fp32"):
        m, n, k, batch = (float(row[name]) for name in ("m", "n", "k", "batch"))
        flop = 2 * m * n * k * batch
        if min(m, n, k) >= 1024 and flop > FP32_GEMM_FLOP:
            engine = "tensor" if row["hardware"] in FP32_ON_TENSOR else "vector"
            samples[row["hardware"], f"{engine}.fp32"].append(flop / float(row["time_s"]))
    return samples


def low_precision_rates(folder: Path, known: dict[str, Hardware]) -> Samples:
    """Return FLOP/s of GEMMs with m, n, k >= 4096, and B/s of bf16 GEMMs with m <= 16, which stream their weights."""
    samples: Samples = defaultdict(list)
    for row in rows(folder, "aic_gemm"):
        size = AIC_DTYPES.get(row["dtype"])
        if size is None or row["flags"]:
            continue
        m, n, k = (float(row[name]) for name in ("m", "n", "k"))
        if min(m, n, k) >= 4096:
            samples[row["hardware"], f"tensor.{row['dtype']}"].append(2 * m * n * k / float(row["time_s"]))
        weights = n * k * size
        l2 = l2_bytes(machine_of(row["hardware"], known))
        if m <= STREAMING_ROWS and size == 2 and weights > max(WEIGHT_BYTES, L2_MULTIPLE["weights"] * l2):
            samples[row["hardware"], "memory.hbm"].append((weights + size * m * (n + k)) / float(row["time_s"]))
    return samples


def peak_of(machine: Hardware, key: str) -> float:
    """Return the datasheet's figure that belongs to a sustained one."""
    table, name = key.split(".")
    if table == "memory":
        return machine.main_memory.bandwidth_bytes_per_s or 0.0
    found = machine.find_peak(name, table)
    return found.flop_per_s if found else 0.0


def lines(machine: Hardware, samples: Samples) -> Iterator[str]:
    """Yield the TOML lines of one machine."""
    for (name, key), rates in sorted(samples.items()):
        if name != machine.name or len(rates) < (MIN_ROWS if key == "memory.hbm" else MIN_GEMM_ROWS):
            continue
        unit, scale = ("GB/s", 1e9) if key == "memory.hbm" else ("TFLOP/s", 1e12)
        table, entry = key.split(".")
        best, peak = statistics.quantiles(rates, n=100)[PERCENTILE - 1], peak_of(machine, key)
        mark = "" if best < peak else "# not below the peak: "
        share = f"{100 * best / peak:.0f} % of the peak" if peak else "no peak"
        spread = f"{min(rates) / scale:.4g} to {max(rates) / scale:.4g}"
        yield f'{mark}{table}.{entry} = "{best / scale:.4g} {unit}"  # {len(rates)} rows, {spread}, {share}'


def main() -> int:
    """Print the figures of the machines that are named, of all that the tables have otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", metavar="HARDWARE", nargs="*", help="machines; all of the tables by default")
    machines = parser.parse_args().machines
    folder = public_data.path_of("measurements")
    if not folder.is_dir():
        return public_data.missing(folder)
    known: dict[str, Hardware] = {}
    samples: Samples = {}
    for part in (elementwise_rates(folder, known), fp32_gemm_rates(folder), low_precision_rates(folder, known)):
        samples.update(part)
    for name in sorted(machines or {name for name, _ in samples}):
        sys.stdout.write(f"\n[sustained]  # {name}\n")
        sys.stdout.writelines(f"{line}\n" for line in lines(machine_of(name, known), samples))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
