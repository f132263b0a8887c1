"""Whether a record survives a writer that is killed, and two writers at once: 20 trials of each.

    python scripts/record_safety.py [--trials 20]

A trial of the first kind kills ``perfmodel bench`` with SIGKILL at a random moment while it replaces an existing
record, checks that the file is a whole record, resumes it if it is the new one, and checks that no finished row was
measured again. A trial of the second kind starts two runs on one file; one of them has to finish its record and the
other one has to be refused. Exit code 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPEC = """
name = "test-cpu"
vendor = "none"
architecture = "none"
kind = "cpu"
[memory.dram]
bandwidth = "10 GB/s"
[peak.vector]
fp32 = "300 GFLOP/s"
"""
ROWS = (8, 16, 32, 64, 128, 256)
#: start-up takes a few seconds; the rows then take 0.2 s each
EARLIEST_S, LATEST_S = 0.5, 12.0
REFUSED = 2


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a run of six rows on ``record.json`` in a folder."""
    sizes = "/".join(map(str, ROWS))
    command = [sys.executable, "-m", "perfmodel", "bench", "layer_norm", f"rows={sizes}", "cols=16"]
    command += ["--kernel", "F.layer_norm", "--device", "cpu", "--time-limit", "0.3", "--min-time", "0.2"]
    command += ["--on", str(folder / "cpu.toml"), "-o", str(folder / "record.json"), *options]
    return subprocess.Popen(  # noqa: S603 -- a fixed command, written above
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the record; raises where it is not a whole JSON document."""
    rows: list[dict[str, Any]] = json.loads((folder / "record.json").read_text(encoding="utf-8"))["rows"]
    return rows


def killed(folder: Path, chance: random.Random) -> str:
    """Kill a run that replaces a record; return what was lost, or an empty string."""
    old = [{**row, "old": True} for row in rows_of(folder)]
    document = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    (folder / "record.json").write_text(json.dumps({**document, "rows": old}), encoding="utf-8")
    process = start(folder, "--overwrite")
    try:
        process.wait(chance.uniform(EARLIEST_S, LATEST_S))
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    left = rows_of(folder)
    if left == old:
        return ""
    if not left or any("old" in row for row in left):
        return f"the file holds {len(left)} rows, some of the old record"
    resumed = start(folder, "--resume")
    _, messages = resumed.communicate()
    after = rows_of(folder)
    if resumed.returncode:
        return f"it cannot be resumed: {messages}"
    if after[: len(left)] != left:
        return "finished rows were changed"
    return "" if [row["params"]["rows"] for row in after] == list(ROWS) else "rows are missing"


def two_writers(folder: Path, chance: random.Random) -> str:
    """Start two runs on one file; return what was lost, or an empty string."""
    first = start(folder, "--overwrite")
    time.sleep(chance.uniform(0.0, 1.0))
    second = start(folder, "--overwrite")
    messages = [process.communicate()[1] for process in (first, second)]
    codes = sorted(process.returncode for process in (first, second))
    if [row["params"]["rows"] for row in rows_of(folder)] != list(ROWS):
        return "rows are missing"
    if codes == [0, 0]:
        return "both have written"
    refused = any("is being written by process" in text for text in messages)
    return "" if codes == [0, REFUSED] and refused else f"exit codes {codes}: {messages}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials and print how many lost something; return 1 when any did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    chance = random.Random(given.seed)
    losses = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cpu.toml").write_text(SPEC, encoding="utf-8")
        start(folder).communicate()
        for trial in (killed, two_writers):
            found = [trial(folder, chance) for _ in range(given.trials)]
            lost = [reason for reason in found if reason]
            losses += len(lost)
            print(f"{trial.__name__}: {len(lost)} of {given.trials} lost something", *lost, sep="\n  ", flush=True)
    return int(losses > 0)


if __name__ == "__main__":
    sys.exit(main())
