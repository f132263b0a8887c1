"""Fixtures that every test may use."""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import typer
from hypothesis import settings

# Two workers share the processors already: threads of numpy and torch in each would wait for one another. The tests
# start the program many times; it is compiled once for all of them, also where no bytecode is wanted otherwise.
# Programs that the tests start inherit all three.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell starts what it runs in the background with Ctrl-C ignored, and programs inherit it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from perfmodel.cli.app import build_app, command_modules, run  # noqa: E402 -- numpy reads these variables when it is imported
from perfmodel.core.hardware import Hardware, Launch, Link, MemoryLevel, Peak  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

# Machines differ in speed: a deadline would make a slow one fail. The examples are the same in every run.
settings.register_profile("perfmodel", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("perfmodel")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without searching for garbage: thousands of tests stay until the end, and would be searched each time.

    While they run garbage is searched for seldom, which takes a twentieth off their time.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let the interpreter take down at its end what was collected."""
    gc.unfreeze()


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def built(only: str = "", **options: bool) -> Any:
    """Return what `build_app` does, built once for each command: that takes an eighth of a test that runs one."""
    modules = command_modules()
    used = [modules[only]] if only else list(modules.values())
    if options or not all(name.startswith("perfmodel.") for name in used):
        return build_app(only, **options)
    loaded = (sys.modules.get(name) for name in used)  # which a test may give another function
    return _built(only, *(getattr(one, "command", None) or getattr(one, "app", None) for one in loaded))


@functools.cache
def _built(only: str, *commands: object) -> Any:
    return typer.main.get_command(build_app(only))


@pytest.fixture
def perfmodel(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the program in this process: ``perfmodel("analyze", "gemm", ...) -> Ran``."""
    monkeypatch.delenv("PERFMODEL_HARDWARE", raising=False)
    monkeypatch.setattr("perfmodel.cli.app.build_app", built)

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor have a last-level cache of 8 MB: emptying a server's takes most of the time of each sample."""
    monkeypatch.setattr("perfmodel.kernels.device.cpu.last_level_cache_bytes", lambda: 8e6)


@pytest.fixture
def cpu_spec(tmp_path: Path) -> Path:
    """The specification of a CPU."""
    path = tmp_path / "cpu.toml"
    path.write_text(
        'name = "test-cpu"\nvendor = "none"\narchitecture = "none"\nkind = "cpu"\n'
        '[memory.dram]\nbandwidth = "10 GB/s"\n[peak.vector]\nfp32 = "300 GFLOP/s"\n'
    )
    return path


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real measurements and profiles made by others; the test skips where it is absent."""
    folder = Path(os.environ.get("PERFMODEL_DATA", ROOT.parent / "shared" / "data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no measurement data: set PERFMODEL_DATA (looked in {folder})")
    return folder


@pytest.fixture
def simple_gpu() -> Hardware:
    """A made-up machine with round numbers: 100 TFLOP/s tensor, 10 vector, 1 TB/s, 4 TB/s L2 of 10 MB, 1 us.

    It has all figures that predictions need, and power to spare.
    """
    return Hardware(
        name="simple",
        title="Simple GPU",
        vendor="none",
        architecture="round",
        memory=(
            MemoryLevel("hbm", 1e9, 1e12, 0.8e12),
            MemoryLevel("l2", 1e7, 4e12),
        ),
        peaks=(
            Peak("fp16", "tensor", 100e12, sustained_flop_per_s=80e12),
            Peak("fp32", "vector", 10e12),
        ),
        links=(Link("pcie", 10e9),),
        sm_count=50,
        clocks_hz=MappingProxyType({"vector": 1.5e9, "tensor": 1.5e9}),
        tdp_w=1000.0,
        launch=Launch(floor_s=1e-6, overhead_s=2e-6),
        sustained_links=MappingProxyType({"pcie": 8e9, "pcie_pageable": 4e9}),
    )
