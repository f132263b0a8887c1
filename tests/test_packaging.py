"""The wheel carries the hardware specs and works from another directory; so does the editable install."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPECS = sorted(path.name for path in (ROOT / "hardware_specs").rglob("*.toml"))
ANALYZE = ("analyze", "gemm", "m=4096", "n=4096", "k=4096", "dtype=fp16", "--on", "a100-sxm4-40gb")
WHERE = "import perfmodel.hardware_catalog.spec_folders as found; print(found.__file__); print(found.shipped_folder())"


def run(*arguments: object, cwd: Path) -> str:
    # PYTHONPATH would come before what is installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [str(argument) for argument in arguments]
    ran = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_specs_the_licence_and_the_type_marker(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packed = sorted(Path(name).name for name in names if name.startswith("perfmodel/_hardware_specs/"))
    assert packed == SPECS
    assert "perfmodel/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "hardware_specs/")) for name in names)


def test_the_wheel_works_in_a_clean_environment_and_another_directory(wheel: Path, tmp_path: Path) -> None:
    """The environment has nothing but the wheel; what it depends on is lent by the one that runs the tests."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # A .pth file puts the other site-packages on the path, after the wheel, and ignores their own .pth files:
    # the editable install in there stays out.
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = home / "bin" / "python"
    module, folder = run(python, "-c", WHERE, cwd=tmp_path).split()
    assert Path(module).is_relative_to(site)
    assert Path(folder) == site / "perfmodel" / "_hardware_specs"
    assert "440.5 us" in run(python, "-m", "perfmodel", *ANALYZE, cwd=tmp_path)


def test_the_editable_install_reads_the_checkout_from_anywhere(tmp_path: Path) -> None:
    _, folder = run(sys.executable, "-c", WHERE, cwd=tmp_path).split()
    assert Path(folder) == ROOT / "hardware_specs"
    assert "440.5 us" in run(sys.executable, "-m", "perfmodel", *ANALYZE, cwd=tmp_path)
