"""Discovery: names without imports, perfmodel's own names first, and plugins that fail are named and skipped."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfmodel import operators, plugins, render
from perfmodel.formats import detect
from perfmodel.hardware_catalog import hardware, hardware_names
from perfmodel.prediction.latency import families

Program = Callable[..., Any]
Install = Callable[..., None]


def forget() -> None:
    """Forget every plugin that was found."""
    for module in (plugins, operators, families, render, detect):
        for function in vars(module).values():
            if hasattr(function, "cache_clear") and function.__module__ == module.__name__:
                function.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution of one package: ``install({"operators": {"name": "module"}}, module="source")``."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    imported = set(sys.modules)

    def call(points: dict[str, dict[str, str]], **sources: str) -> None:
        sections = (
            "\n".join([f"[perfmodel.{group}]", *(f"{name} = {module}" for name, module in entries.items())])
            for group, entries in points.items()
        )
        info = tmp_path / "strange_plugin-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "entry_points.txt").write_text("[console_scripts]\nx = y:z\n\n" + "\n\n".join(sections) + "\n")
        package = tmp_path / "strange_plugin"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        for name, source in sources.items():
            (package / f"{name}.py").write_text(source)
        forget()

    forget()
    yield call
    for name in set(sys.modules) - imported:
        if name.startswith("strange_plugin"):
            del sys.modules[name]
    forget()


OPERATOR = """
from dataclasses import dataclass
from perfmodel.operators.base import Operator, size
from perfmodel.core.work import Tensor

@dataclass(frozen=True, kw_only=True, eq=False)
class TwoWords(Operator):
    op = "two_words"
    numel: float = size()

    def flop(self):
        return 1.0 * self.numel

    def tensors(self):
        return (Tensor.input("x", (self.numel,), self.dtype), Tensor.output("y", (self.numel,), self.dtype))
"""


def test_an_operator_of_a_plugin_is_found_without_importing_it(install: Install) -> None:
    install({"operators": {"two_words": "strange_plugin.code"}}, code=OPERATOR)
    assert "two_words" in operators.operator_names()
    assert operators.class_names()["TwoWords"] == "two_words"
    assert "strange_plugin" not in sys.modules
    op = operators.load_class("TwoWords")(numel=3)
    assert (op.op, op.flop()) == ("two_words", 3)


def test_a_distribution_that_occurs_twice_on_the_path_counts_once(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install({"operators": {"two_words": "strange_plugin.code"}}, code=OPERATOR)
    old = tmp_path / "old" / "strange_plugin-0.9.dist-info"
    old.mkdir(parents=True)
    (old / "entry_points.txt").write_text("[perfmodel.operators]\nold = strange_plugin.old\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "old"), str(tmp_path)])
    forget()
    assert [plugin.name for plugin in plugins.plugins("operators")] == ["two_words"]


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ({"operators": {"Two_Words": "strange_plugin.code"}}, "lower-case letters"),
        ({"operators": {"two-words": "strange_plugin.code"}}, "lower-case letters"),
        ({"operators": {"two_words": "strange_plugin.code:TwoWords"}}, "name the module alone"),
        ({"operator": {"two_words": "strange_plugin.code"}}, "there is no group perfmodel.operator"),
    ],
)
def test_an_entry_point_that_is_written_wrongly_is_named(
    install: Install, capsys: pytest.CaptureFixture[str], points: dict[str, dict[str, str]], reason: str
) -> None:
    install(points, code=OPERATOR)
    assert "two_words" not in operators.operator_names()
    assert operators.operator_names()
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert reason in err


def test_a_plugin_does_not_replace_what_perfmodel_has(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    names = operators.operator_names()
    install({"operators": {"gemm": "strange_plugin.code"}}, code="raise RuntimeError")
    assert operators.operator_names() == names
    assert operators.load_operator("gemm").__module__ == "perfmodel.operators.gemm"
    assert "the operator 'gemm' exists already" in capsys.readouterr().err


GEMM = ("gemm", "m=64", "n=64", "k=64", "dtype=fp16", "--on", "a100-sxm4-40gb")
#: group -> the name of an entry point, and a command line that looks for it
TRIGGERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "operators": ("broken_operator", ("analyze", "broken_operator", "n=1", *GEMM)),
    "latency": ("broken_family", ("analyze", "transpose", "rows=1", "cols=1", *GEMM[4:])),
    "formats": ("broken_format", ("diagnose", "table.csv")),
    "benchmark_formats": ("broken_benchmark", ("compare", "record.json", "record.json")),
    "renderers": ("broken_renderer", ("hardware", "list", "-o", "machines.unknown")),
    "commands": ("broken_command", ("--help",)),
}
#: a plugin that is asked for by its name is not there, which is wrong usage
CODES = {"operators": 2, "renderers": 2}
FAILURES = {
    "raises": "raise RuntimeError('it is\\nbroken')",
    "needs what is not there": "import a_module_that_nobody_has",
    "no Python": "def f(:",
    "exits": "import sys\nsys.exit(3)",
    "empty": "",
}


def test_every_group_is_tried() -> None:
    """Kernels and machines have tests of their own below."""
    assert {*TRIGGERS, "kernels", "hardware"} == set(plugins.GROUPS)


def leave_without_family(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let perfmodel have no family of an operator, as of those of plugins: it then looks for one among plugins."""
    own = families._own()
    left = own._replace(families={name: served for name, served in own.families.items() if name != op})
    monkeypatch.setattr(families, "_own", lambda: left)
    monkeypatch.setattr(families, "_serving", functools.cache(families._serving.__wrapped__))
    monkeypatch.delitem(vars(hardware(GEMM[-1])), "_cached", raising=False)  # which keeps the families of its calls


@pytest.mark.parametrize("source", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("group", TRIGGERS)
def test_a_broken_plugin_is_named_once_and_skipped(
    install: Install, perfmodel: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, source: str
) -> None:
    name, arguments = TRIGGERS[group]
    if group == "latency":
        leave_without_family("transpose", monkeypatch)
    install({group: {name: "strange_plugin.code"}}, code=source)
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("name,time_ms\nk,1\n")
    Path("record.json").write_text(json.dumps({"results": [{"command": "x", "median": 1.0, "times": [1.0, 1.1, 1.0]}]}))
    ran = perfmodel(*arguments)
    assert ran.code == CODES.get(group, 0), ran.err
    warnings = [line for line in ran.err.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert f"plugin {name!r} (strange_plugin.code) is skipped" in warnings[0]
    assert perfmodel(*arguments).err.count("is skipped") == 0


@pytest.mark.parametrize("command", [("operators",), ("analyze", "--help"), ("analyze", "ops.json", *GEMM[5:])])
def test_an_operator_that_is_broken_leaves_the_others(
    install: Install, perfmodel: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    install({"operators": {"broken_operator": "strange_plugin.code"}}, code="import a_module_that_nobody_has")
    monkeypatch.chdir(tmp_path)
    Path("ops.json").write_text(
        '{"defaults": {"causal": true}, "operators": [{"op": "softmax", "rows": 1, "cols": 1}]}'
    )
    ran = perfmodel(*command)
    assert ran.code == 0, ran.err
    assert "softmax" in ran.out
    assert "broken_operator" not in ran.out
    assert "Did you mean 'broken_operator'" not in perfmodel("operators", "broken_operator").err


def test_kernels_that_are_broken_leave_the_others(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from perfmodel.kernels.registry import find_kernels

    own = find_kernels("softmax")
    wrong = (
        "from perfmodel.kernels.registry import Kernel\n"
        "def prepare(op, inputs): ...\n"
        "KERNELS = (3, Kernel('naive', 'softmax', 'strange', prepare), Kernel('fine', 'softmax', 'strange', prepare),\n"
        "           Kernel('other', 'gemm', 'strange', prepare))\n"
    )
    for source, added in ((FAILURES["raises"], []), (wrong, ["fine"])):
        install({"kernels": {"softmax": "strange_plugin.code"}}, code=source)
        sys.modules.pop("strange_plugin.code", None)
        found = find_kernels("softmax")
        assert [kernel.name for kernel in found] == [*(kernel.name for kernel in own), *added]
    err = capsys.readouterr().err
    for reason in ("RuntimeError: it is broken", "3 in KERNELS is not", "a kernel 'naive' already"):
        assert reason in err


def test_machines_that_are_broken_leave_the_others(
    install: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = hardware_names()
    install({"hardware": {"gone": "strange_plugin.nowhere", "here": "strange_plugin.machines"}})
    folder = tmp_path / "strange_plugin" / "machines"
    folder.mkdir()
    (folder / "broken.toml").write_text("name = 3")
    # a shipped machine keeps its name and its device's name
    text = Path(hardware("t4").path).read_text(encoding="utf-8").replace('vendor = "NVIDIA"', 'vendor = "Nobody"')
    (folder / "t4.toml").write_text(text)
    (folder / "mine.toml").write_text(text.replace('name = "t4"', 'name = "mine"').replace("t4-16gb", "mine-16gb"))
    forget()
    assert hardware_names() == sorted([*names, "broken", "mine"])
    assert hardware("Tesla T4").vendor == hardware("t4").vendor == "NVIDIA"
    assert hardware("mine-16gb").vendor == "Nobody"
    err = capsys.readouterr().err
    assert "plugin 'gone' (strange_plugin.nowhere) is skipped: there is no such package" in err
    assert err.count("broken.toml") == 2  # the path, and the place in the message
    assert "strange_plugin" not in sys.modules
