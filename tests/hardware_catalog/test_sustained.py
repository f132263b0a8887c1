"""The measured ceilings in the specifications are what the script derives from the public tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.core.units import parse_quantity
from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog.read import read_spec

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "sustained_from_tables.py"
#: throttled by their power limits, so not in the files
LEFT_OUT = {("p4", "vector.fp32"), ("t4", "vector.fp32")}


@pytest.fixture(scope="module")
def derived(data_dir: Path) -> dict[tuple[str, str], float]:
    """What the script prints: (hardware, table.key) -> value in SI base units."""
    env = {**os.environ, "PERFMODEL_DATA": str(data_dir)}
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True, env=env)
    found: dict[tuple[str, str], float] = {}
    name = ""
    for line in done.stdout.splitlines():
        head, figure = re.match(r"\[sustained\]  # (.*)", line), re.match(r'([\w.]+) = "(.*?)"', line)
        if head:
            name = head.group(1)
        elif figure:
            unit = "B/s" if figure.group(1).startswith("memory") else "FLOP/s"
            found[name, figure.group(1)] = parse_quantity(figure.group(2), unit)
        else:
            assert not line, line
    return found


@pytest.mark.waiting
def test_the_files_hold_what_the_script_prints(derived: dict[tuple[str, str], float]) -> None:
    assert len(derived) > 20
    for (name, key), value in derived.items():
        table, entry = key.split(".")
        written = getattr(read_spec(shipped_folder() / f"{name}.toml").sustained, table).get(entry)
        if (name, key) in LEFT_OUT:
            assert written is None
        else:
            unit = "B/s" if table == "memory" else "FLOP/s"
            assert parse_quantity(written, unit) == value, (name, key)
