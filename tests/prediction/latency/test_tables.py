"""The [latency] tables of a specification: units, names, ranges, and the shipped ones."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

import perfmodel as pm
from perfmodel.core.latency_table import REGIMES
from perfmodel.errors import InputFileError
from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog import load_all, read_hardware
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.prediction.latency.families import family, family_names
from perfmodel.prediction.latency.tables import (
    LatencySpec,
    LazyTables,
    default_tables,
    latency_specs,
    read_latency_tables,
    to_tables,
)

#: the most numbers that one family has on one machine, those of each library included
MOST_CONSTANTS = 12


def tables(**spec: object) -> object:
    return to_tables({"elementwise": LatencySpec(**spec)}, "my.toml")  # type: ignore[arg-type]


def test_times_have_units_and_shares_have_none() -> None:
    table = to_tables({"elementwise": LatencySpec(constants={"eta": 0.9, "host": "30 us"})}, "my.toml")["elementwise"]
    assert table.constants == {"eta": 0.9, "host": pytest.approx(30e-6)}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"constants": {"etta": 0.9}}, "my.toml: latency.elementwise.constants: unknown constant 'etta'"),
        ({"constants": {"eta": 1.7}}, "1.7 is outside 0.3 to 0.95"),
        ({"constants": {"eta": "fast"}}, "'fast' is not a number"),
        ({"constants": {"host": 3e-5}}, "has no unit"),
        ({"constants": {"host": "3 GB"}}, "is not in s"),
        ({"library": {"torch": {"write": 0.8}}}, "unknown constant 'write'"),
        ({"interval": {"huge": (0.9, 1.1)}}, "unknown regime 'huge'"),
        ({"spread": {"torch": 9.0}}, "outside 0.25 to 4"),
        ({"interval": {"mid": (1.05, 1.1)}}, "does not contain 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(spec: dict[str, object], said: str) -> None:
    with pytest.raises(InputFileError) as caught:
        tables(**spec)
    assert said in str(caught.value)


def test_an_unknown_family_names_the_nearest() -> None:
    with pytest.raises(InputFileError, match="'softmax'"):
        to_tables({"softmaxx": LatencySpec()}, "my.toml")


def test_a_lazy_table_is_checked_when_it_is_asked_for() -> None:
    good, wrong = LatencySpec(constants={"eta": 0.9}), LatencySpec(constants={"eta": 1.7})
    lazy = LazyTables({"elementwise": good, "reduction": wrong}, "my.toml")
    assert lazy["elementwise"].constants == {"eta": 0.9}
    assert lazy["elementwise"] is lazy["elementwise"]
    assert ("reduction" in lazy, "gemm_fp32" in lazy, len(lazy)) == (True, False, 2)
    with pytest.raises(InputFileError, match=r"my.toml: latency.reduction.constants.eta: 1.7 is outside 0.3 to 1"):
        lazy["reduction"]
    with pytest.raises(InputFileError, match="'softmax'"):
        LazyTables({"softmaxx": LatencySpec()}, "my.toml")


def test_a_file_of_ones_own_is_checked_whole_and_one_of_the_catalog_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (shipped_folder() / "t4.toml").read_text(encoding="utf-8").split("[latency")[0]
    path = tmp_path / "my-t4.toml"
    wrong = "[latency.reduction.constants]\neta = 1.7\n"
    path.write_text(text.replace('"t4"', '"my-t4"', 1) + wrong, encoding="utf-8")
    with pytest.raises(InputFileError, match=r"1\.7 is outside 0\.3 to 1"):
        pm.hardware(str(path))
    assert [finding.severity for finding in lint_file(path) if "1.7" in finding.message] == ["error"]
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    machine = pm.hardware("my-t4")
    assert pm.predict(pm.Gemm(m=64, n=64, k=64), machine).family == "gemm_fp32"
    with pytest.raises(InputFileError, match=r"1\.7 is outside 0\.3 to 1"):
        pm.predict(pm.Reduction(rows=64, cols=64), machine)


def test_a_specification_keeps_its_tables_when_written(tmp_path: Path) -> None:
    machine = pm.hardware("v100-pcie-32gb")
    assert machine.latency, "the shipped V100 is calibrated"
    write_spec(machine, tmp_path / "mine.toml")
    again = read_hardware(tmp_path / "mine.toml")
    assert latency_specs(again.latency) == latency_specs(machine.latency)


def test_a_misspelt_key_of_a_table_is_an_error(tmp_path: Path) -> None:
    text = (shipped_folder() / "t4.toml").read_text(encoding="utf-8").split("# ---- from here")[0]
    path = tmp_path / "t4.toml"
    path.write_text(text + "[latency.elementwise]\nconstant = { eta = 0.9 }\n", encoding="utf-8")
    with pytest.raises(InputFileError, match="constant"):
        read_hardware(path)


def test_every_family_exists_and_its_constants_are_in_range() -> None:
    for name in family_names():
        found = family(name)
        assert found.name == name
        assert len({constant.name for constant in found.all_constants}) == len(found.all_constants)
        for constant in found.all_constants:
            assert 0 < constant.low <= constant.default <= constant.high, (name, constant.name)


def test_the_constants_are_few() -> None:
    for name in family_names():
        assert len(family(name).all_constants) <= MOST_CONSTANTS, name
    for machine in load_all():
        for name, table in machine.latency.items():
            # those that hold for the kernels of one library
            for own in table.libraries.values() or ({},):
                assert len({*table.constants, *own}) <= MOST_CONSTANTS, (machine.name, name)


def test_every_shipped_table_has_a_source_a_date_and_all_intervals() -> None:
    shipped = [machine.latency for machine in load_all() if machine.latency]
    defaults = [read_latency_tables(path) for path in sorted((shipped_folder() / "defaults").glob("*.toml"))]
    assert len(shipped) >= 10
    assert len(defaults) >= 5
    for tables in (*shipped, *defaults):
        for name, table in tables.items():
            assert table.source, name
            assert table.date, name
            assert set(table.intervals) == set(REGIMES), name


def test_the_defaults_know_every_family_that_was_measured() -> None:
    generic = default_tables("generic")
    for machine in load_all():
        assert set(machine.latency) <= set(generic), machine.name


def test_a_generation_without_a_file_has_no_defaults() -> None:
    assert default_tables("maxwell") == {}


def test_tables_that_are_parsed_one_by_one_are_those_of_the_whole_file() -> None:
    for path in sorted((shipped_folder() / "defaults").glob("*.toml")):
        whole = msgspec.convert(tomllib.loads(path.read_text())["latency"], dict[str, LatencySpec])
        tables = read_latency_tables(path)
        assert list(tables) == list(whole), path
        assert dict(tables) == dict(LazyTables(whole, str(path))), path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[latency.softmax]\nsource = "a"\n[latency.softmax.constants]\nlaunch = oops\n', "line 4"),
        ('[latency.softmax]\nsource = "a"\n[latency.rope]\n[latency.softmax]\n', "softmax"),
        ("[latency.softmax]\nsources = 1\n", "sources"),
        ("[latency.softmaxx]\n", "softmaxx"),
    ],
)
def test_what_is_wrong_in_a_file_of_defaults_is_told_where_it_stands(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        read_latency_tables(path)["softmax"]
    assert message in str(caught.value)


def test_a_file_whose_lines_do_not_tell_its_tables_apart_is_parsed_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[latency]\nsoftmax = { note = """\n[latency.rope]\n""" }\n')
    assert list(read_latency_tables(path)) == ["softmax"]
