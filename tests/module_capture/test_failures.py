"""What a user's own code does that no capture survives, or that must not reach the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

_LINEAR = "from torch import nn\ndef build():\n    return nn.Linear(8, 8)\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module of the current folder and return its name, which no other test has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(text: str) -> str:
        name = f"of_a_user_{abs(hash((text, str(tmp_path))))}"
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(3)\n", "ends the program while it is imported (exit code 3)"),
        ("import sys\ndef build():\n    sys.exit(3)\n", "build ends the program (exit code 3)"),
    ],
)
def test_code_that_ends_the_program_is_no_success(perfmodel, module, text: str, said: str) -> None:
    ran = perfmodel("capture", f"{module(text)}:build", "--input", "8x8")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "__main__" in ran.err


def test_what_the_module_prints_is_none_of_the_result(perfmodel, module) -> None:
    name = module(f"print('imported')\n{_LINEAR}".replace("    return", "    print('built')\n    return"))
    ran = perfmodel("capture", f"{name}:build", "--input", "4x8", "--format", "json")
    assert ran.code == 0
    assert json.loads(ran.out)["context"]["flop"] == 2 * 4 * 8 * 8 + 4 * 8
    assert ran.err.split() == ["imported", "built"]


def test_a_module_that_runs_on_no_device_is_no_fault_of_perfmodel(perfmodel, module) -> None:
    name = module(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        if type(x) is torch.Tensor:\n"
        "            raise RuntimeError('only counted')\n"
        "        return x + x\n"
    )
    assert perfmodel("capture", f"{name}:M", "--input", "4x8").code == 0
    ran = perfmodel("capture", f"{name}:M", "--input", "4x8", "--run")
    assert ran.code == 2
    assert f"{name}.py:5: M fails: only counted." in ran.err
    assert "without --run" in ran.err


@pytest.mark.parametrize(
    ("target", "inputs", "said"),
    [
        ("build", [], "--input 8x1024:int64"),
        ("build", ["x=4x8", "x=4x8"], "'x' is given twice"),
        ("build(8)", ["4x8"], "name a function that builds it"),
        ("nn.Linear", ["4x8"], "name a function that builds it"),
        ("buidl", ["4x8"], "Did you mean 'build'?"),
    ],
)
def test_a_mistake_on_the_command_line_has_its_remedy(perfmodel, module, target: str, inputs: list[str], said) -> None:
    given = [word for text in inputs for word in ("--input", text)]
    ran = perfmodel("capture", f"{module(_LINEAR)}:{target}", *given)
    assert ran.code == 2
    assert said in ran.err


def test_one_machine_is_asked_for_where_one_is_taken(perfmodel, module) -> None:
    ran = perfmodel("capture", f"{module(_LINEAR)}:build", "--input", "4x8", "--on", "h100,a100-sxm4-80gb")
    assert (ran.code, "takes one machine" in ran.err) == (2, True)
