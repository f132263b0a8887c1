"""Commands and output formats of another distribution: found by entry points, and named and skipped where broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.hardware_catalog import hardware_names

COMMAND = '''
def command() -> None:
    """Greet.

    Example: perfmodel greet
    """
    print("hello")
'''
RENDERER = """
SUFFIXES = (".names",)


def render(report, *, width):
    return f"{width}: " + " ".join(row["name"] for row in report.rows[:2]) + "\\n"
"""


def _install(folder: Path, group: str, modules: dict[str, str]) -> None:
    """Install a distribution with one entry point for each module; the name before a dot is the entry point's."""
    info = folder / f"addition_{group}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: addition-{group}\nVersion: 1.0\n")
    points = "".join(f"{name} = addition_{name}\n" for name in modules)
    (info / "entry_points.txt").write_text(f"[perfmodel.{group}]\n{points}")
    for name, text in modules.items():
        (folder / f"addition_{name}.py").write_text(text)


def _run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "90"}
    command = [sys.executable, "-m", "perfmodel", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "Traceback" not in ran.stderr
    return ran


def test_a_command_of_a_plugin_is_listed_and_runs(tmp_path: Path) -> None:
    _install(tmp_path, "commands", {"greet": COMMAND})
    assert "Greet." in _run(tmp_path, "--help").stdout
    ran = _run(tmp_path, "greet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "hello\n", "")


@pytest.mark.waiting
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise RuntimeError('no such thing')", "RuntimeError: no such thing"),
        ("command = 3", "TypeError"),
        ("app = 3", "AttributeError"),
        ("", "neither a function command nor a typer program"),
    ],
)
def test_a_broken_command_is_named_in_one_warning_and_skipped(tmp_path: Path, module: str, reason: str) -> None:
    _install(tmp_path, "commands", {"greet": module})
    ran = _run(tmp_path, "--help")
    assert ran.returncode == 0
    assert "analyze" in ran.stdout
    assert "greet" not in ran.stdout
    (warning,) = ran.stderr.splitlines()
    assert warning.startswith("perfmodel: warning: plugin 'greet' (addition_greet) is skipped: ")
    assert reason in warning
    assert _run(tmp_path, "hardware", "list").stderr == ""  # a command loads no other
    assert _run(tmp_path, "greet").returncode == 2


def test_a_plugin_does_not_replace_a_command(tmp_path: Path) -> None:
    _install(tmp_path, "commands", {"hardware": COMMAND})
    ran = _run(tmp_path, "hardware", "list")
    assert ran.returncode == 0
    assert "a100-sxm4-40gb" in ran.stdout
    assert "plugin 'hardware'" in ran.stderr


@pytest.mark.waiting
def test_an_output_format_of_a_plugin_is_listed_and_takes_its_suffix(tmp_path: Path) -> None:
    _install(tmp_path, "renderers", {"names": RENDERER, "broken": "1 / 0", "empty": ""})
    ran = _run(tmp_path, "hardware", "list", "--format", "names")
    # the broken ones are not imported: nobody asked for them
    first, second = hardware_names()[:2]
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"90: {first} {second}\n", "")
    path = tmp_path / "machines.names"
    assert _run(tmp_path, "hardware", "list", "-o", path).returncode == 0
    assert path.read_text() == ran.stdout
    assert "names" in _run(tmp_path, "analyze", "--help").stdout
    for name, reason in (("broken", "ZeroDivisionError: division by zero"), ("empty", "the module has no render")):
        broken = _run(tmp_path, "hardware", "list", "--format", name)
        assert (broken.returncode, broken.stdout) == (2, "")
        assert f"plugin '{name}' (addition_{name}) is skipped: {reason}" in broken.stderr.splitlines()[0]
    wrong = _run(tmp_path, "hardware", "list", "--format", "nams")
    assert wrong.returncode == 2
    assert "unknown format 'nams'. Did you mean 'names'?" in wrong.stderr
