"""Write the chapter on serving of docs/accuracy.md: predictions against published inference runs.

python scripts/serving_accuracy.py
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import public_data
import serving_elsewhere
import serving_left_out

from perfmodel.accuracy.published import PublishedRow
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.files import write_atomic
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import simulate
from perfmodel.serving.published import BASELINE, judge
from perfmodel.serving.requests import Requests
from perfmodel.workloads.catalog import find_model

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
DATA = public_data.path_of("e2e_serving")
BEGIN, END = "<!-- serving: written by scripts/serving_accuracy.py -->", "<!-- end of serving -->"
TABLES = ("trtllm_max_throughput", "trtllm_static_v05_v09", "aic_silicon_agg", "trtllm_online_serving",
          "lmdeploy_a100_static", "consumer_single_stream", "llmservingsim_vllm_requests")  # fmt: skip

Rows = Sequence[PublishedRow]
Keep = Callable[[PublishedRow], bool]


def _in(table: str, quantity: str, **labels: str) -> Keep:
    """Return whether a row is of a table and a quantity, and has some labels."""

    def keep(row: PublishedRow) -> bool:
        same = all(row.label(name) == value for name, value in labels.items())
        return same and row.label("table") == table and row.quantity == quantity

    return keep


def _of_old(row: PublishedRow) -> bool:
    return row.label("engine") == "trtllm-old"


def _latent(row: PublishedRow) -> bool:
    return "deepseek" in row.label("model")


RATE, TPOT, TTFT = "output_tokens_per_s", "tpot_s", "ttft_s"
_MAX, _BY_USERS, _ONLINE = "trtllm_max_throughput", "aic_silicon_agg", "trtllm_online_serving"
#: lines of the summary: what, rows, what is wanted
SUMMARY: tuple[tuple[str, Keep, str], ...] = (
    ("maximum throughput, dense, 0.17 and later",
     lambda row: _in(_MAX, RATE, kind="dense")(row) and not _of_old(row), "7 %, p90 15 %"),
    ("... of these B200 in fp4", _in(_MAX, RATE, kind="dense", hardware="b200-sxm-180gb"), "12 %"),
    ("... of these L40S",
     lambda row: _in(_MAX, RATE, kind="dense", hardware="l40s")(row) and not _of_old(row), "12 %"),
    ("maximum throughput, mixtures of experts", _in(_MAX, RATE, kind="moe"), "11 %"),
    ("maximum throughput, 0.14", lambda row: _in(_MAX, RATE)(row) and _of_old(row), ""),
    ("static batches, 0.5 to 0.9: throughput", _in("trtllm_static_v05_v09", RATE), ""),
    ("static batches, 0.5 to 0.9: TTFT at batch 1", _in("trtllm_static_v05_v09", TTFT), ""),
    ("TPOT by concurrency, dense, dtype known", _in(_BY_USERS, TPOT, kind="dense", dtype_known="yes"), "10 %"),
    ("TPOT by concurrency, dense, dtype guessed", _in(_BY_USERS, TPOT, kind="dense", dtype_known="no"), ""),
    ("TPOT by concurrency, experts, grouped heads",
     lambda row: _in(_BY_USERS, TPOT, kind="moe")(row) and not _latent(row), "15 %"),
    ("TPOT by concurrency, experts, latent attention",
     lambda row: _in(_BY_USERS, TPOT, kind="moe")(row) and _latent(row), ""),
    ("TTFT by concurrency, dense", _in(_BY_USERS, TTFT, kind="dense"), "median 28 %"),
    ("TTFT by concurrency, experts", _in(_BY_USERS, TTFT, kind="moe"), "median 28 %"),
    ("random arrivals: TTFT", _in(_ONLINE, TTFT), "12 %"),
    ("random arrivals: time between tokens", _in(_ONLINE, TPOT), "14 %"),
    ("random arrivals: tokens/s", _in(_ONLINE, RATE), "10 %"),
    ("LMDeploy on A100: tokens/s", _in("lmdeploy_a100_static", RATE), ""),
    ("consumer GPUs, one stream: TPOT", _in("consumer_single_stream", TPOT), ""),
    ("replay of every request: TPOT and latency, mean and P99",
     lambda row: row.quantity.startswith(("tpot_mean", "tpot_p99", "latency")), "6 %"),
)  # fmt: skip


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _line(rows: Rows) -> list[str]:
    """Return rows, mean, median, 90th percentile, bias, coverage and the baseline's error."""
    errors = np.abs([row.ratio - 1 for row in rows])
    inside = float(np.mean([row.low <= row.measured <= row.high for row in rows]))
    floor = np.abs([row.baseline / row.measured - 1 for row in rows])
    bias = float(np.mean([row.ratio - 1 for row in rows]))
    figures = (errors.mean(), np.median(errors), np.quantile(errors, 0.9), bias, inside, np.nanmean(floor))
    return [str(len(rows)), *(_percent(float(figure)) for figure in figures)]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    ruled = "|".join(["---"] * len(head))
    return "\n".join([f"| {' | '.join(head)} |", f"|{ruled}|", *(f"| {' | '.join(line)} |" for line in lines)])


_FIGURES = ("rows", "mean", "median", "p90", "bias", "covered", "baseline")


def _summary(rows: Rows) -> str:
    lines = []
    for title, keep, wanted in SUMMARY:
        found = [row for row in rows if keep(row)]
        if found:
            lines.append([title, *_line(found), wanted])
    return _table(("runs", *_FIGURES, "wanted"), lines)


def _by(rows: Rows, quantity: str, table: str, keys: Sequence[str]) -> str:
    groups: dict[tuple[str, ...], list[PublishedRow]] = {}
    for row in rows:
        if row.quantity == quantity and row.label("table") == table:
            groups.setdefault(tuple(row.label(key) for key in keys), []).append(row)
    return _table((*keys, *_FIGURES), [[*key, *_line(found)] for key, found in sorted(groups.items())])


def _nano_vllm() -> str:
    """Return the sentence about nano-vLLM's published run: 256 requests with random lengths from 100 to 1024."""
    random = np.random.default_rng(0)
    prompt, output = (random.integers(100, 1025, 256) for _ in range(2))
    deployment = Deployment(find_model("qwen3-0.6b"), hardware("rtx-4070-laptop-8gb"), engine="nano-vllm")
    replay = simulate(deployment, Requests(np.zeros(256), prompt, output))
    rate = float(output.sum()) / replay.duration_s
    assert replay.ends is not None
    slow, fast = sorted(rate * replay.ends[1].duration_s / end.duration_s for end in (replay.ends[0], replay.ends[2]))
    return (
        f"nano-vLLM's published run (RTX 4070 laptop, Qwen3-0.6B, 256 requests): 1434 tokens/s measured, {rate:.0f} "
        f"predicted ({slow:.0f} to {fast:.0f}), {_percent(rate / 1434 - 1)}."
    )


def _peers() -> str:
    with open(DATA / "peers_published.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    lines = [[row["source"], row["what"], f"{row['value']} {row['unit']}", row["note"]] for row in rows]
    return _table(("source", "what", "error", "conditions"), lines)


INTRODUCTION = f"""\
Predictions of `perfmodel validate` against published inference runs (`make accuracy` writes this chapter). Tables of
throughput and concurrency are predicted by the steady state, those with random arrivals and single requests by the
simulation. Few constants were fitted: what sustained load costs products, the waiting of reductions, front ends of
servers, launches of prompts' kernels. The formulas, and the shipped constants but the front ends, were chosen with all
of these runs in view: the figures of runs, engines, machines and models left out, further below, are the fairer ones.
How often SGLang looks for requests in InferenceX's runs on Blackwell is not in the tables: it was seen in them. The
error of each constant stands in `engine_specs/serving` (`scripts/engine_errors.py`).
Baseline: {BASELINE}."""
LEFT_OUT = """\
`scripts/serving_left_out.py` fits host, gaps and front end of each engine on a part of the runs and judges the others:
half of the runs by a hash of deployment and lengths, and all runs of an engine, a GPU or a model family. An engine that
is left out is predicted by the profile `generic`, as every engine without a profile. Kernels keep the constants that
tables of kernels gave them, and formulas stay as they are."""


def chapter() -> str:
    """Return the chapter: a summary, what was left out, other laboratories, errors by machine and model, and peers."""
    judged = [judge(read_run_table(DATA / f"{name}.csv"), hardware) for name in TABLES]
    rows = [row for runs in judged for row in runs.rows]
    steps = [row for row in rows if row.quantity in (TPOT, RATE)]
    inside = float(np.mean([row.low <= row.measured <= row.high for row in steps]))
    skipped = [[name, str(part.rows), part.reason] for name, runs in zip(TABLES, judged, strict=True)
               for part in runs.skipped]  # fmt: skip
    return f"""{BEGIN}

## Serving

{INTRODUCTION}

{_summary(rows)}

80 % intervals of TPOT and tokens/s cover {_percent(inside)} of {len(steps)} figures.

{_nano_vllm()}

### Left out

{LEFT_OUT}

{serving_left_out.markdown()}

### Other laboratories

{serving_elsewhere.page()}

### Maximum throughput by machine and model

{_by(rows, RATE, _MAX, ("engine", "hardware", "model"))}

### TPOT by engine, machine and model

{_by(rows, TPOT, _BY_USERS, ("engine", "hardware", "model", "dtype"))}

### TTFT by engine

{_by(rows, TTFT, _BY_USERS, ("engine", "kind", "lengths"))}

### What others state

Published by their authors, on runs of their own choice:

{_peers()}

### Runs that are left out

{_table(("table", "rows", "reason"), skipped)}

{END}
"""


def write(page: Path = PAGE) -> None:
    """Put the chapter into the page, in place of an older one or at its end."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2].lstrip("\n")
    write_atomic(page, before.rstrip("\n") + "\n\n" + chapter() + (f"\n{after}" if after else ""))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write()
