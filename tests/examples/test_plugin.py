"""Adding one thing is one file: from outside by an entry point, and inside by its place, as CONTRIBUTING.md says.

The example plugin is installed into a fresh environment; its files are also copied to the places that the table in
CONTRIBUTING.md names. Both times the same command lines have to work.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perfmodel.plugins import GROUPS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
PACKAGE = EXAMPLE / "example_plugin"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
ENTRY_POINTS = {group.removeprefix("perfmodel."): points for group, points in PROJECT["entry-points"].items()}

Program = Callable[..., subprocess.CompletedProcess[str]]


class Addition(NamedTuple):
    """One row of the table in CONTRIBUTING.md."""

    what: str
    place: str
    contents: tuple[str, ...]
    group: str
    example: str

    @property
    def name(self) -> str:
        """The name of the example's entry point."""
        (name,) = ENTRY_POINTS[self.group]
        return str(name)


def additions() -> list[Addition]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (an? .*?|kernels) \| `(.*?)` \| (.*?) \| `perfmodel\.(\w+)` \| `(.*?)` \|$", text, re.MULTILINE
    )
    return [
        Addition(what, place, tuple(re.findall(r"`(\w+)`", contents)), group, example)
        for what, place, contents, group, example in rows
    ]


def test_the_table_in_contributing_covers_every_group_and_every_file_of_the_example() -> None:
    rows = additions()
    assert {row.group for row in rows} == set(GROUPS) == set(ENTRY_POINTS)
    files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.*") if path.suffix in (".py", ".toml")}
    assert {row.example for row in rows} == files - {"__init__.py"}


@pytest.mark.parametrize("row", additions(), ids=lambda row: row.what)
def test_each_row_tells_the_truth(row: Addition) -> None:
    folder = (ROOT / row.place).parent if "{" not in row.place else ROOT
    folder = Path(str(folder).replace("BACKEND", "torch"))
    assert folder.is_dir()
    module = ENTRY_POINTS[row.group][row.name]
    if row.group == "hardware":
        assert (PACKAGE / row.example).parent == EXAMPLE / module.replace(".", "/")
        return
    assert PACKAGE / row.example == EXAMPLE / f"{module.replace('.', '/')}.py"
    text = (PACKAGE / row.example).read_text(encoding="utf-8")
    defined = set(re.findall(r"^(?:def |class )?(\w+)(?=\(| = |:.* = )", text, re.MULTILINE))
    needed = set(row.contents) - {"app"}
    assert needed <= defined, f"{row.example} lacks {needed - defined}"


def test_the_example_imports_public_modules_only() -> None:
    for path in PACKAGE.rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) (perfmodel\S*) import (.*)$", path.read_text(), re.MULTILINE)
        private = [f"{module}.{name}" for module, names in imported for name in re.split(r"[,\s()]+", names)]
        assert not [name for name in private if re.search(r"\._", name)], path.name


def test_the_layers_in_contributing_are_those_that_are_checked() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in config["contracts"] if contract["type"] == "layers")
    block = re.search(r"```text\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    written = [set(line.split()) for line in block[1].splitlines()]
    assert written == [set(layer.replace("perfmodel.", "").split(" | ")) for layer in layers]


def program(python: Path | str, folder: Path, **environment: str) -> Program:
    """Return a function that runs the program with an interpreter, in a folder."""

    def call(*arguments: object, module: tuple[str, ...] = ("-m", "perfmodel")) -> subprocess.CompletedProcess[str]:
        words = [str(python), *module, *map(str, arguments)]
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "COLUMNS": "200",
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environ)

    return call


def fresh_environment(folder: Path) -> Path:
    """Make an environment that has perfmodel and what it needs, and nothing else; return its interpreter."""
    home = folder / "venv"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    # The packages of the environment that runs the tests are lent; .pth files in there are not processed, so that
    # an editable install is not found that way.
    (site / "lent.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{ROOT}\n")
    return home / "bin" / "python"


def installed(folder: Path) -> Program:
    """Install the example into a fresh environment, without a network."""
    python = fresh_environment(folder)
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", *offline, str(EXAMPLE)]
    subprocess.run(pip, check=True, cwd=folder, capture_output=True)
    return program(python, folder)


def in_the_tree(folder: Path) -> Program:
    """Copy perfmodel, and the files of the example to the places that CONTRIBUTING.md names."""
    tree = folder / "tree"
    for name in ("perfmodel", *(path.name for path in ROOT.glob("*_specs"))):
        shutil.copytree(ROOT / name, tree / name)
    for row in additions():
        name = Path(row.example).stem if row.group == "hardware" else row.name
        place = row.place.replace("BACKEND", "torch").replace("OPERATOR", name).replace("NAME", name)
        assert not (tree / place).exists(), place
        shutil.copy(PACKAGE / row.example, tree / place)
    return program(sys.executable, folder, PYTHONPATH=str(tree))


CHANNEL_NORM = ("channel_norm", "n=8", "c=64", "spatial=100", "groups=8", "dtype=fp16")

# command line -> what it prints
USES: list[tuple[tuple[str, ...], list[str]]] = [
    (("analyze", *CHANNEL_NORM, "--on", "imaginary-gpu"), ["channel_norm", "imaginary-gpu"]),
    (("analyze", *CHANNEL_NORM, "--on", "a100-sxm4-40gb", "--explain"), ["hbm", "launch"]),
    (("analyze", "channel-norm", *CHANNEL_NORM[1:], "--on", "imaginary"), ["channel_norm"]),
    (("analyze", "ops.toml", "--on", "imaginary-gpu"), ["spatial=64", "spatial=256"]),
    (("hardware", "show", "imaginary-gpu"), ["there is no such machine", "100 GB/s"]),
    (("hardware", "list"), ["imaginary-gpu", "h100-sxm5-80gb"]),
    (("hardware", "lint", str(PACKAGE / "machines" / "imaginary-gpu.toml")), ["errors: 0"]),
    (("diagnose", "run.stopwatch", "--on", "imaginary-gpu"), ["voltage_kernel"]),
    (("whatif", "run.stopwatch", "scenario.toml", "--on", "imaginary-gpu"), ["half"]),
    (("compare", "before.json", "after.json"), ["1 slower"]),
    (("hardware", "list", "--format", "latex"), [r"\begin{tabular}", "imaginary-gpu & 8 GiB"]),
    (("hardware", "list", "--output", "machines.tex"), []),
    (("balance", *CHANNEL_NORM, "--on", "imaginary-gpu"), ["ridge point", "channel_norm"]),
    (("--help",), ["balance", "analyze"]),
]

API = """
import math
import perfmodel as pm

op = pm.ChannelNorm(n=8, c=64, spatial=100, groups=8)
assert op.op == "channel_norm" and "channel_norm" in pm.operator_names() and "ChannelNorm" in dir(pm)
# 8 * 64 * 100 elements: 4 FLOP each; x read, y written, 64 gamma and beta, 4 B each
assert (op.work().flop, op.work().bytes) == (204_800, 2 * 204_800 + 512)
prediction = pm.predict(op, "imaginary-gpu")
assert math.isclose(prediction.bound_time_s, 410_112 / 100e9), prediction.bound_time_s
assert prediction.predicted_time_s > prediction.bound_time_s
assert pm.predict(op, "h100").predicted_time_s > 0
assert pm.read_profile("run.stopwatch").total_time_s == 0.75
assert "imaginary-gpu" in pm.hardware_names() and pm.hardware("Nobody Imaginary GPU").sm_count == 10
try:
    pm.ChannelNorm(n=8, c=64, spatial=100, groups=7)
except pm.UsageError as error:
    assert "does not divide" in str(error)
else:
    raise AssertionError
"""

#: runs many command lines in one process, since each start takes as long as all of them
DRIVER = """
import contextlib, io, json, sys
from perfmodel.cli.app import run

results = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    results.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


#: with a machine given, bench need not calibrate this one first
CPU = """
name = "some-cpu"
vendor = "none"
architecture = "none"
kind = "cpu"
[memory.dram]
bandwidth = "10 GB/s"
[peak.vector]
fp32 = "100 GFLOP/s"
"""


@pytest.fixture(scope="module", params=[installed, in_the_tree], ids=["installed", "in the tree"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("plugin")
    sizes = "n = 8\nc = 64\ngroups = 8\n"
    (folder / "run.stopwatch").write_text("# stopwatch\nvoltage_kernel 10 0.5\nthe norm 2 0.25\n")
    (folder / "ops.toml").write_text(f'[[operators]]\nop = "channel_norm"\nspatial = "64..256"\n{sizes}')
    (folder / "scenario.toml").write_text(
        f'[[operators]]\nentry = "the norm"\nop = "channel_norm"\ncalls = 2\nspatial = 64\n{sizes}'
        '[[steps]]\nname = "half"\nkind = "scale"\ntargets = ["the norm"]\nspeedup = 2\n'
    )
    (folder / "cpu.toml").write_text(CPU)
    for name, seconds in (("before", 1.0), ("after", 4.0)):
        times = [seconds * (1 + 0.001 * number) for number in range(8)]
        (folder / f"{name}.json").write_text(json.dumps({"stopwatch": 1, "runs": {"solve": times}}))
    return request.param(folder)  # type: ignore[no-any-return]


@pytest.mark.waiting
@pytest.mark.slow
def test_each_addition_works_on_the_command_line(run: Program) -> None:
    ran = run(json.dumps([arguments for arguments, _ in USES]), module=("-c", DRIVER))
    assert ran.returncode == 0, ran.stderr
    for (arguments, parts), (code, out, err) in zip(USES, json.loads(ran.stdout), strict=True):
        line = " ".join(arguments)
        assert (code, err) == (0, "wrote machines.tex\n" if "machines.tex" in line else ""), line
        assert [part for part in parts if part not in out] == [], line


@pytest.mark.slow
def test_each_addition_works_from_python(run: Program) -> None:
    ran = run(module=("-c", API))
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.waiting
def test_kernels_run_and_are_checked_against_their_reference(run: Program) -> None:
    pytest.importorskip("torch")
    sizes = ("n=2", "c=16", "spatial=64", "groups=4")
    ran = run(
        "bench",
        "channel_norm",
        *sizes,
        "--device",
        "cpu",
        "--time-limit",
        "0.05",
        "--cache",
        "warm",
        "--format",
        "json",
        "--on",
        "cpu.toml",
    )
    assert ran.returncode == 0, ran.stderr
    rows = {row["kernel"]: row for row in json.loads(ran.stdout)["rows"]}
    assert {"F.group_norm", "naive"} <= set(rows)
    assert {row["status"] for row in rows.values()} == {"ok"}


COUNT = """
import sys
sys.argv = ["perfmodel", *{arguments!r}]
from perfmodel.__main__ import main
try:
    main()
except SystemExit:
    pass
print(len(sys.modules), [name for name in sys.modules if name.startswith("example_plugin")], file=sys.stderr)
"""


@pytest.mark.waiting
@pytest.mark.slow
def test_a_plugin_is_imported_only_where_it_is_used(tmp_path: Path) -> None:
    plain, extended = tmp_path / "plain", tmp_path / "extended"
    for folder in (plain, extended):
        folder.mkdir()
    without, with_plugin = program(fresh_environment(plain), plain), installed(extended)
    for arguments, loaded in (
        (("analyze", "gemm", "m=64", "n=64", "k=64", "--on", "a100-sxm4-40gb"), []),
        (("analyze", *CHANNEL_NORM, "--on", "a100-sxm4-40gb"), ["example_plugin.channel_norm", "channel_norm_latency"]),
    ):
        counts = [
            call(module=("-c", COUNT.format(arguments=arguments))).stderr.splitlines()[-1].split(maxsplit=1)
            for call in (without, with_plugin)
        ]
        if loaded:
            assert all(name in counts[1][1] for name in loaded)
            assert "kernels" not in counts[1][1]
        else:
            assert counts[0] == counts[1]


def test_the_example_needs_nothing_but_perfmodel() -> None:
    assert PROJECT["dependencies"] == ["perfmodel"]
    assert importlib.util.find_spec("example_plugin") is None, "the tests are to run without the example installed"
