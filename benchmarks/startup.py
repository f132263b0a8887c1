"""Start-up of the program against a bare typer + rich + numpy program that prints a table.

Both run in turn in one go, since machines are noisy; the ratio of the medians is the claim. All have their bytecode, as
installed programs do: a first round, which does not count, writes it into a folder of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

BARE = """
import typer, numpy as np
from rich.console import Console
from rich.table import Table
def main(rows: int = 3):
    table = Table("a", "b")
    for value in np.arange(rows):
        table.add_row(str(value), "x")
    Console().print(table)
typer.run(main)
"""
GEMM = ("analyze", "gemm", "m=4096", "n=4096", "k=4096", "dtype=fp16", "--on", "a100-sxm4-40gb")
COMMANDS = {
    "bare typer + rich + numpy": ("-c", BARE),
    "perfmodel --help": ("-m", "perfmodel", "--help"),
    "perfmodel analyze gemm ...": ("-m", "perfmodel", *GEMM),
}
REPEATS = 15
ALLOWED = 1.5


def seconds(arguments: tuple[str, ...], bytecode: str) -> float:
    """Return how long a run of the interpreter takes with a folder of bytecode [s]."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin


def main() -> int:
    """Print the medians and their ratios; return 1 when a ratio is above the allowed one."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as bytecode:
        for repeat in range(1 + REPEATS):
            for name, arguments in COMMANDS.items():
                taken = seconds(arguments, bytecode)
                times[name] += [taken] if repeat else []
    bare = statistics.median(times["bare typer + rich + numpy"])
    worst = 0.0
    for name, samples in times.items():
        median = statistics.median(samples)
        worst = max(worst, median / bare)
        print(f"{name:<28} median {1e3 * median:6.0f} ms  ratio {median / bare:.2f} (allowed {ALLOWED})")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
