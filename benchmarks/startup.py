"""Start-up time of the program, relative to a minimal typer + rich + numpy program that prints a table.

    python benchmarks/startup.py [CHECKOUT]

The programs run in turn, since machines are noisy; the claim is the ratio of the medians. A first round, which does not
count, writes the bytecode, which installed programs have too. Two rows have the example plugin installed. CHECKOUT, the
folder of another version, is measured in the same turns, so that "no slower than before" is a ratio of one run: the
median over the turns of this version's time by the other's, with its quartiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
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
HERE = Path(__file__).resolve().parents[1]
GEMM = ("analyze", "gemm", "m=4096", "n=4096", "k=4096", "dtype=fp16")
COMMANDS = {
    "--help": ("--help",),
    "analyze gemm": (*GEMM, "--on", "a100-sxm4-40gb"),
    "analyze gemm on an alias": (*GEMM, "--on", "h100"),
}
REPEATS = 15
ALLOWED = 1.5
#: largest ratio to the other checkout: what a quiet machine shows between two runs of one program
ALLOWED_AGAINST = 1.05


@dataclass(frozen=True)
class Program:
    """What one row measures: the interpreter's arguments, the checkout that they run in, and the folder of plugins."""

    name: str
    arguments: tuple[str, ...]
    checkout: Path = HERE
    plugins: str = ""

    def seconds(self, bytecode: str) -> float:
        """Return how long one run takes, with a folder of bytecode [s]."""
        # the checkout comes before a perfmodel that is installed
        path = os.pathsep.join(filter(None, (str(self.checkout), self.plugins, os.environ.get("PYTHONPATH", ""))))
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path}
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, *self.arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd=self.checkout,
        )
        return time.perf_counter() - begin


def install_plugin(folder: str) -> None:
    """Install the example plugin into a folder, without a network."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    plugin = HERE / "examples" / "plugin"
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", folder, str(plugin)], check=True)


def programs(plugins: str, other: Path | None) -> Iterator[Program]:
    """Yield what is measured, the bare program first; the rows of a command stand together."""
    yield Program("bare typer + rich + numpy", ("-c", BARE))
    for command, words in COMMANDS.items():
        arguments = ("-m", "perfmodel", *words)
        yield Program(f"perfmodel {command}", arguments)
        if other:
            yield Program(f"perfmodel {command}, {other.name}", arguments, other)
        yield Program(f"perfmodel {command}, example plugin installed", arguments, plugins=plugins)


def main(arguments: list[str] | None = None) -> int:
    """Print the medians and their ratios; return 1 when a ratio is above the allowed one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, nargs="?", help="folder of another version, to compare with")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="turns that count")
    given = parser.parse_args(arguments)
    other = given.checkout.resolve() if given.checkout else None
    if other and not (other / "perfmodel").is_dir():
        parser.error(f"{given.checkout} holds no folder perfmodel")
    with tempfile.TemporaryDirectory() as bytecode, tempfile.TemporaryDirectory() as plugins:
        install_plugin(plugins)
        measured = list(programs(plugins, other))
        times: dict[str, list[float]] = {program.name: [] for program in measured}
        for repeat in range(1 + given.repeats):
            for program in measured:
                taken = program.seconds(bytecode)
                times[program.name] += [taken] if repeat else []
    bare = statistics.median(times[measured[0].name])
    missed = False
    for program in measured:
        median = statistics.median(times[program.name])
        ratio = median / bare
        print(f"{program.name:<54} median {1e3 * median:6.0f} ms  ratio {ratio:.2f} (allowed {ALLOWED})")
        missed |= ratio > ALLOWED and program.checkout == HERE
    for command in COMMANDS if other else ():
        pairs = zip(times[f"perfmodel {command}"], times[f"perfmodel {command}, {other.name}"], strict=True)
        low, ratio, high = statistics.quantiles((mine / theirs for mine, theirs in pairs), n=4)
        name = f"perfmodel {command}, by {other.name}"
        print(f"{name:<54} ratio {ratio:.3f}, quartiles {low:.3f} to {high:.3f} (allowed {ALLOWED_AGAINST})")
        missed |= ratio > ALLOWED_AGAINST
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
