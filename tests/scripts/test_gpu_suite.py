"""The commands of the GPU suite are ones that perfmodel has; where there is no GPU, nothing else runs them."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from perfmodel.cli.app import build_app
from perfmodel.operators.parse import parse_operators, read_operators

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def commands():
    """Return the command lines of the suite, each as its words."""
    script = ("bash", str(ROOT / "scripts" / "gpu_suite.sh"), "--dry-run")
    environment = {"OUT": "folder", "PYTHON": "python", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(script, capture_output=True, text=True, check=True, env=environment)
    return [shlex.split(line) for line in ran.stdout.splitlines()]


def _parsed(words):
    """Return the command that a command line names, and the values of its options; they are parsed, not run."""
    command, names, rest = typer.main.get_command(build_app()), [], list(words)
    while hasattr(command, "commands"):
        names.append(rest.pop(0))
        command = command.commands[names[-1]]
    return " ".join(names), command.make_context(names[-1], rest).params


def test_every_command_is_one_that_perfmodel_takes(commands):
    parsed = [_parsed(words[3:]) for words in commands if words[1:3] == ["-m", "perfmodel"]]
    assert [name for name, _ in parsed] == [
        "hardware detect",
        *("bench", "bench", "calibrate", "bench", "bench"),
        *("validate", "validate"),
        "calibrate",
        "plot",
    ]
    assert [params["timing"] for name, params in parsed if name == "bench"] == ["auto"] * 3 + ["do-bench"]
    compiled = parsed[4][1]
    assert {op.op for op in parse_operators(compiled["ops"])} == {"elementwise", "layer_norm", "rms_norm"}


def test_what_one_step_reads_an_earlier_one_writes(commands):
    written = set()
    for words in commands:
        outputs = {after for word, after in itertools.pairwise(words) if word in ("-o", "scripts/record_models.py")}
        read = {word for word in words if word.startswith("folder/")} - outputs - {"folder/steps.tsv"}
        assert read <= written, words
        written |= outputs
    assert "folder/bench.json" in written


def test_the_files_that_it_names_exist(commands):
    named = {word for words in commands for word in words if word.startswith(("tests/", "scripts/"))}
    assert named == {
        "tests/gpu", "scripts/kernel_targets.py", "scripts/draw_shapes.py", "scripts/record_models.py"
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in named)


def test_a_seed_draws_the_same_operators_again(tmp_path):
    drawn = []
    for seed in (1, 1, 2):
        out = tmp_path / "operators.json"
        script = (sys.executable, str(ROOT / "scripts" / "draw_shapes.py"), str(seed), "-o", str(out), "--share", "0.1")
        subprocess.run(script, check=True, capture_output=True)
        drawn.append(read_operators(out))
    first, again, other = ([repr(op) for op in ops] for ops in drawn)
    assert first == again != other
    assert len({op.op for op in drawn[0]}) > 10
