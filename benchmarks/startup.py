"""Start-up time of the program, relative to a minimal typer + rich + numpy program that prints a table.

The programs run in turn, since machines are noisy; the claim is the ratio of the medians. A first round, which does not
count, writes the bytecode, which installed programs have too. The last rows have the example plugin installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
PLUGIN = Path(__file__).resolve().parents[1] / "examples" / "plugin"
WITH_PLUGIN = ", example plugin installed"
COMMANDS = {
    "bare typer + rich + numpy": ("-c", BARE),
    "perfmodel --help": ("-m", "perfmodel", "--help"),
    "perfmodel analyze gemm ...": ("-m", "perfmodel", *GEMM),
    f"perfmodel --help{WITH_PLUGIN}": ("-m", "perfmodel", "--help"),
    f"perfmodel analyze gemm ...{WITH_PLUGIN}": ("-m", "perfmodel", *GEMM),
}
REPEATS = 15
ALLOWED = 1.5


def install_plugin(folder: str) -> None:
    """Install the example plugin into a folder, without a network."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", folder, str(PLUGIN)], check=True)


def seconds(arguments: tuple[str, ...], bytecode: str, plugins: str = "") -> float:
    """Return how long a run of the interpreter takes, with folders of bytecode and of plugins [s]."""
    path = os.pathsep.join(filter(None, (plugins, os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path}
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin


def main() -> int:
    """Print the medians and their ratios; return 1 when a ratio is above the allowed one."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as bytecode, tempfile.TemporaryDirectory() as plugins:
        install_plugin(plugins)
        for repeat in range(1 + REPEATS):
            for name, arguments in COMMANDS.items():
                taken = seconds(arguments, bytecode, plugins if name.endswith(WITH_PLUGIN) else "")
                times[name] += [taken] if repeat else []
    bare = statistics.median(times["bare typer + rich + numpy"])
    worst = 0.0
    for name, samples in times.items():
        median = statistics.median(samples)
        worst = max(worst, median / bare)
        print(f"{name:<54} median {1e3 * median:6.0f} ms  ratio {median / bare:.2f} (allowed {ALLOWED})")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
