"""Fit the constants of training steps on published runs, and say how well they do on runs that were not fitted.

    python scripts/fit_training.py            prints the errors
    python scripts/fit_training.py --write    writes engine_specs/training/defaults/constants.toml, and its chapter of
                                              docs/accuracy.md, as well

Rows are split in halves by a hash of their id. The shipped constants are fitted on one half; intervals are quantiles of
rows that were not fitted: each half by the constants of the other, and each framework by those of the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

import msgspec
import numpy as np
import open_tables
from elsewhere import widening
from training_elsewhere import LABORATORIES, elsewhere_text, other_laboratories, other_memory
from training_fit import (
    SOURCES,
    UNFITTED,
    Findings,
    Fitted,
    Rows,
    Vector,
    dense,
    find,
    first_half,
    read_rows,
    table_of,
)
from training_search import standings, standings_text

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.files import write_atomic
from perfmodel.hardware_catalog import hardware
from perfmodel.training.constants import Constants, Interval
from perfmodel.training.framework import nearest_framework
from perfmodel.training.published import judged_rows, rule_of_thumb
from perfmodel.training.published_run import measured_time, read_run
from perfmodel.training.unmeasured import MEMORY

ROOT = Path(__file__).resolve().parents[1]
#: where the host's share of a step comes from: constants that no run of a table sets by a fit
DISPATCH = (
    "our own steps of one sequence of 2,048 tokens under transformers on an H100 and an H200, which waited for their "
    "hosts (examples/records): 108.5 and 96.8 ms, and with 38 us 108.3 and 98.1; larger batches of the same records do "
    "not wait. Decoding there takes 20 us a kernel, without gradients and autocast"
)
DISPATCH_DEVIATION = (
    "steps of few tokens of eight other sources (examples/published/training.csv): cs336_snider_h100, "
    "llm_from_scratch_5090, hf_docs_bert_v100, hf_issue9371_3090, qwen_readme_a100, lightning_lite_v100, "
    "dstar_enoki_h100 and languini took 0.9 to 3.6 times as long; root of the mean square of ln of it"
)
FILE = ROOT / "engine_specs" / "training" / "defaults" / "constants.toml"
PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- training: written by scripts/fit_training.py -->", "<!-- end of training -->"


def interval(ratio: Vector) -> Interval:
    """Return the 10 % and 90 % quantiles of measured over predicted."""
    low, high = np.quantile(1.0 / ratio[np.isfinite(ratio)], (0.1, 0.9))
    return Interval(round(float(low), 3), round(float(high), 3))


def intervals(found: Findings) -> dict[str, Interval]:
    """Return the interval of each kind of knowledge, from rows that were not fitted."""
    unusual = np.array([table_of(row) in UNFITTED for row in found.rows])
    return {
        "seen": interval(found.other_half[found.mask() & ~unusual]),
        "unseen": interval(found.left_out[found.mask()]),
        "experts": interval(found.other_half[found.mask(kind="experts")]),
    }


def rounded(fixed: Constants) -> Constants:
    """Return constants as their file has them, to three digits."""
    values = ("casts", "fsdp_share", "routing", "host_s", "dispatch_s")
    tables = ("memory_bound", "chart_factor")
    return msgspec.structs.replace(
        fixed,
        **{name: float(f"{getattr(fixed, name):.3g}") for name in values},
        **{name: {key: float(f"{value:.3g}") for key, value in getattr(fixed, name).items()} for name in tables},
    )


def known(found: Findings) -> Constants:
    """Return the fitted constants with what they know: frameworks, machines and laboratories, and their intervals."""
    fitted = [row for row in found.rows if table_of(row) not in UNFITTED]
    return msgspec.structs.replace(
        rounded(found.shipped.constants),
        seen=tuple(sorted({nearest_framework(row.run.text("framework"))[0].name for row in fitted})),
        seen_machines=tuple(sorted({row.cluster.hardware.name for row in fitted})),
        laboratories=LABORATORIES,
        intervals=intervals(found),
    )


def pairs_in_order(rows: Rows, ratio: Vector) -> tuple[int, int]:
    """Return how many pairs of set-ups come out in the right order, and how many there are.

    A pair is of one table, model and sequence; its times for a sequence on a GPU differ by over 5 %.
    """
    right = total = 0
    times = [measured_time(row.run) / row.plan.batch * row.cluster.gpus for row in rows]
    keys = [(table_of(row), row.run.text("model"), row.plan.seq) for row in rows]
    setups = [(row.cluster.gpus, row.plan.changed(framework="", vp=row.plan.vp)) for row in rows]
    for i, key in enumerate(keys):
        for j in range(i):
            if keys[j] == key and setups[i] != setups[j] and abs(math.log(times[i] / times[j])) > 0.05:
                total += 1
                right += (times[i] * ratio[i] > times[j] * ratio[j]) == (times[i] > times[j])
    return right, total


def figures(ratio: Vector) -> str:
    """Return rows, mean, median and 90 % quantile of |ratio - 1|, and the bias, as cells of a table."""
    error = np.abs(ratio - 1.0)
    cells = (np.mean(error), np.median(error), np.quantile(error, 0.9), np.mean(ratio - 1.0))
    return f"{len(ratio)} | " + " | ".join(f"{100 * value:.1f} %" for value in cells)


def coverage(ratio: Vector, span: Interval) -> float:
    """Return the share of measured times inside an interval."""
    inverse = 1.0 / ratio[np.isfinite(ratio)]
    return float(np.mean((inverse >= span.low) & (inverse <= span.high)))


def written(found: Findings) -> str:
    """Return the text of the file of constants."""
    fixed = known(found)
    by = {kind: widening(groups) for kind, groups in other_laboratories(fixed).items()}
    more = {**by, MEMORY: widening(other_memory())}
    spans = {**fixed.intervals, **{name: Interval(round(one.low, 3), round(one.high, 3)) for name, one in more.items()}}
    rows = sum(first_half(row) for row in found.rows)
    source = f"fitted on {rows} published runs by scripts/fit_training.py"
    lines = [
        "# Constants that all training frameworks share. scripts/fit_training.py --write writes this file.",
        "",
        f"casts = {fixed.casts:.3g}",
        f"sm_share = {fixed.sm_share:g}",
        f"fsdp_share = {fixed.fsdp_share:.3g}",
        f"routing = {fixed.routing:.3g}",
        f"host_s = {fixed.host_s:.3g}",
        f"dispatch_s = {fixed.dispatch_s:.3g}",
        f"dispatch_deviation = {fixed.dispatch_deviation:g}",
        f"seen = {msgspec.json.encode(fixed.seen).decode()}",
        f"seen_machines = {msgspec.json.encode(fixed.seen_machines).decode()}",
        f"laboratories = {msgspec.json.encode(fixed.laboratories).decode()}",
        f'date = "{np.datetime64("today")}"',
        "",
        "[memory_bound]",
        *(f"{name} = {value:.3g}" for name, value in fixed.memory_bound.items()),
        "",
        "[chart_factor]",
        *(f"{name} = {value:.3g}" for name, value in fixed.chart_factor.items()),
        "",
        "[intervals]",
        *(f"{name} = {{ low = {span.low:g}, high = {span.high:g} }}" for name, span in spans.items()),
        "",
        "[sources]",
        'sm_share = "Calculon systems/a100_80g.json, processor_usage of the network, '
        'calculon-ai/calculon @ caa4b11f8fe1"',
        *(f'{name} = "{source}"' for name in ("casts", "fsdp_share", "routing", "host_s", "memory_bound")),
        f'dispatch_s = "{DISPATCH}"',
        f'dispatch_deviation = "{DISPATCH_DEVIATION}"',
        f'chart_factor = "{source}; MosaicML\'s Triton kernel of 2023 is faster than the one of the chart"',
        'intervals = "quantiles of runs that were not fitted: the other half; frameworks left out; experts; elsewhere, '
        "undescribed, memory: runs of other laboratories (examples/published/training.csv), a tenth of each source's "
        'beyond either end in the mean (scripts/elsewhere.py)"',
        "",
    ]
    return "\n".join(lines)


def summary(found: Findings) -> list[str]:
    """Return the errors as lines of Markdown."""
    usual = ~np.array([table_of(row) in UNFITTED for row in found.rows])
    lines = ["| rows | n | mean | median | p90 | bias |", "|---|---|---|---|---|---|"]
    base = np.array([rule_of_thumb(row) / measured_time(row.run) for row in found.rows])
    chosen = (
        ("no constant fitted, all dense rows", found.unfitted, found.mask()),
        ("no constant fitted, Korthikanti", found.unfitted, found.mask(table="korthikanti")),
        ("no constant fitted, Megatron SC21", found.unfitted, found.mask(table="megatron_sc21")),
        ("fitted on half, the other half", found.ratios, found.mask(fitted=False) & usual),
        ("fitted on half, the other half and all tables", found.ratios, found.mask(fitted=False)),
        ("each half by the other", found.other_half, found.mask() & usual),
        ("experts, each half by the other", found.other_half, found.mask(kind="experts")),
        ("6 N D at 45 % of the peak, dense rows", base, found.mask()),
    )
    lines += [f"| {title} | {figures(ratio[mask])} |" for title, ratio, mask in chosen]
    for title, names in SOURCES.items():
        mask = found.mask() & np.isin(
            [table_of(row) for row in found.rows],
            [table_of(row) for row in found.rows if table_of(row).startswith(names)],
        )
        lines.append(f"| {title} left out | {figures(found.left_out[mask])} |")
    for table in sorted({table_of(row) for row in found.rows}):
        mask = np.array([table_of(row) == table for row in found.rows])
        lines.append(f"| {table}, each half by the other | {figures(found.other_half[mask])} |")
    return lines


def remarks(found: Findings) -> list[str]:
    """Return what the intervals cover, and the order of pairs, as sentences."""
    spans = intervals(found)
    shares = {
        "seen": coverage(found.other_half[found.mask()], spans["seen"]),
        "unseen": coverage(found.left_out[found.mask()], spans["unseen"]),
        "experts": coverage(found.other_half[found.mask(kind="experts")], spans["experts"]),
    }
    kept = [row.ratio for run in found.rows for row in judged_rows(run) if row.quantity == "memory_bytes"]
    off = np.abs(np.array(kept) - 1.0)
    chosen = dense(found.rows)
    right, total = pairs_in_order(chosen, found.other_half[found.mask()])
    return [
        f"The constants: {constants_text(found.shipped)}.",
        f"The 80 % interval of known frameworks and machines covers {shares['seen']:.0%} of the dense rows that were "
        f"not fitted, that of unknown ones {shares['unseen']:.0%} of the frameworks left out, that of experts "
        f"{shares['experts']:.0%}.",
        f"Of {total} pairs of set-ups of one table, model and sequence whose times differ by over 5 %, "
        f"{right / total:.0%} come out in the right order.",
        f"The memory of {len(kept)} runs that print it is off by {np.mean(off):.1%} in the mean, "
        f"{np.max(off):.1%} at most.",
        standings_text(standings(found.rows)),
        long_sequences(found.shipped.constants),
    ]


def long_sequences(fixed: Constants) -> str:
    """Return how the steps of long sequences compare, whose recomputation nobody published, so that they fit nothing.

    The table's step times follow from FLOP/s that count attention's whole square, as NeMo's formulas do
    (NVIDIA/NeMo, nemo/utils/flops_formulas.py).
    """
    found = []
    for run in read_run_table(open_tables.folder().parent / "e2e_training" / "nemo_longseq_h100.csv").runs:
        row = read_run(dataclasses.replace(run, cells={**run.cells, "recompute": "none"}), hardware)
        found.append(100 * (row.step(fixed).time_s / measured_time(run) - 1))
    off = np.array(found)
    return (
        f"The {len(off)} runs of nemo_longseq_h100 (4,096 to 1,048,576 tokens) do not say what they recompute: they "
        f"fit nothing and are in no other figure. Without recomputation the predictions are off by "
        f"{np.abs(off).mean():.1f} % in the mean ({off.min():+.0f} to {off.max():+.0f} %), with the FLOP counted as "
        "NeMo counts them, by attention's whole square, and with FlashAttention-2, since NeMo's launcher of that time "
        "switches the kernels of cuDNN off (NVTE_FUSED_ATTN). These rows gave the reason to look that setting up; it "
        "is sourced, not fitted, and holds for all runs of NeMo of 2023 and 2024."
    )


def constants_text(fitted: Fitted) -> str:
    """Return the fitted constants for people."""
    fixed = fitted.constants
    values = {
        "energy": fitted.energy, **{f"memory_bound {name}": value for name, value in fixed.memory_bound.items()},
        "casts": fixed.casts, "fsdp_share": fixed.fsdp_share, **fixed.chart_factor, "routing": fixed.routing,
        "host_s": fixed.host_s,
    }  # fmt: skip
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def chapter(found: Findings) -> str:
    """Return the chapter on training of docs/accuracy.md."""
    lines = "\n".join(summary(found))
    said = "\n".join(f"- {remark}" for remark in remarks(found))
    return f"""## Training

Steps of published training runs, predicted by `pm.train` (`scripts/fit_training.py` writes this chapter; `perfmodel
validate` judges the tables with the shipped constants). "No constant fitted" takes every kernel as it is predicted
alone. Five constants of dense models and two of experts are fitted on half of the runs, by a hash of their names; an
eighth, what minutes of load cost products, was chosen by the frameworks left out. "Left out" fits without any run of a
framework, whose own constants are then those of others. Runs whose recomputation is not published are not judged; fp32
runs and fine-tuning on packed samples fit nothing.

The formulas and facts about frameworks were chosen with all of these runs in view, the halves apart only for the
constants: the figures of frameworks left out are the fairer ones for what nobody here has looked at.

{lines}

{said}

{elsewhere_text(known(found))}"""


def write_chapter(page: Path, made: str = "") -> None:
    """Write the chapter, made anew where it is not given, into a page, between its markers or at the end."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    made = made or chapter(find(read_rows()))
    write_atomic(page, f"{before.rstrip()}\n\n{BEGIN}\n\n{made}\n{END}\n{after.lstrip()}")


def main() -> None:
    """Fit, print, and write the constants and the chapter where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the file of constants, and the chapter of docs/accuracy.md"
    )
    options = parser.parse_args()
    found = find(read_rows())
    made = chapter(found)
    print(made)
    if options.write:
        write_atomic(FILE, written(found))
        write_chapter(PAGE, made)


if __name__ == "__main__":
    main()
