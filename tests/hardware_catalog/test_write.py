"""What is written is read back the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import parse_quantity
from perfmodel.errors import UsageError
from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog import hardware, hardware_names, read_hardware
from perfmodel.hardware_catalog.as_spec import quantity
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.read import parse_spec, read_spec, to_hardware
from perfmodel.hardware_catalog.write import spec_text, write_spec

UNITS = st.sampled_from(["B", "B/s", "FLOP/s", "Hz", "s", "W"])
POSITIVE = st.floats(min_value=1e-2, max_value=1e20, allow_nan=False)


@pytest.mark.parametrize("name", hardware_names())
def test_every_machine_of_the_catalog_comes_back_equal(name: str, tmp_path: Path) -> None:
    machine = hardware(name)
    write_spec(machine, tmp_path / "copy.toml")
    assert dataclasses.replace(read_hardware(tmp_path / "copy.toml"), path="") == dataclasses.replace(machine, path="")


@pytest.mark.parametrize("name", hardware_names())
def test_every_specification_comes_back_equal_and_clean(name: str, tmp_path: Path) -> None:
    spec = read_spec(shipped_folder() / f"{name}.toml")
    path = tmp_path / f"{name}.toml"
    write_spec(spec, path)
    assert read_spec(path) == spec
    assert lint_file(path) == []


@given(value=POSITIVE, unit=UNITS)
def test_a_quantity_reads_back_to_the_same_float(value: float, unit: str) -> None:
    text = quantity(value, unit)
    assert text is not None
    assert parse_quantity(text, unit) == value


@given(
    name=st.text(min_size=1, max_size=30),
    title=st.text(min_size=1, max_size=30),
    bandwidth=POSITIVE,
    rate=POSITIVE,
    note=st.text(max_size=40),
)
def test_any_text_and_any_figure_survive(name: str, title: str, bandwidth: float, rate: float, note: str) -> None:
    import tomllib

    made = Hardware(name=name, vendor="v", architecture="a", memory=(), peaks=(), title=title)
    base = hardware("t4")
    memory = (dataclasses.replace(base.memory[0], bandwidth_bytes_per_s=bandwidth, note=note), *base.memory[1:])
    peaks = (dataclasses.replace(base.peaks[0], flop_per_s=rate), *base.peaks[1:])
    notes = {key: text for key, text in {**base.notes, "memory.hbm": note}.items() if text}
    made = dataclasses.replace(base, name=name, title=title, memory=memory, peaks=peaks, notes=notes)  # type: ignore[arg-type]
    read = to_hardware(parse_spec(tomllib.loads(spec_text(made)), "x"), "x")
    assert dataclasses.replace(read, path="") == dataclasses.replace(made, path="")


def test_quantities_are_written_as_people_write_them() -> None:
    assert quantity(1555e9, "B/s") == "1555 GB/s"
    assert quantity(80 * 2.0**30, "B") == "80 GiB"
    assert quantity(80e9, "B") == "80 GB"
    assert quantity(312e12, "FLOP/s") == "312 TFLOP/s"
    assert quantity(2.43e-6, "s") == "2.43 us"
    assert quantity(None, "s") is None


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_spec(hardware("t4"), tmp_path / "no" / "folder.toml")


def test_dash_writes_to_stdout(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_spec(hardware("t4"), "-")
    assert capsysbinary.readouterr().out.startswith(b'name = "t4"')
