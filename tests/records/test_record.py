"""The record: what is written is read back, version 1 is translated, and everything else is refused with a reason."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.report import SCHEMA_VERSION, report
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.predict import predict
from perfmodel.records.record import parse_record, read_record
from perfmodel.records.runs import read_bench_run
from perfmodel.records.schema import MEASURED_KEYS, OPTIONAL_KEYS, Record, Row, Status

ROW = {"op": "gemm", "hardware": "a100-sxm4-40gb", "dtype": "fp16"}


def document(**changes):
    return {"schema_version": SCHEMA_VERSION, "command": "bench", "rows": [ROW], "context": {}} | changes


@pytest.mark.parametrize("name", ["a.csv", "a.toml", "a"])
@pytest.mark.parametrize("read", [read_record, read_bench_run])
def test_a_file_that_is_no_json_is_told_how_to_get_a_record(tmp_path, name, read):
    (tmp_path / name).write_text("op,kernel\ngemm,torch.matmul\n")
    with pytest.raises(InputFileError, match=r"A record is JSON. Write one with: perfmodel .*record.json") as caught:
        read(tmp_path / name)
    assert "Allowed" not in str(caught.value)


# --- what is written is read back

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_NUMBER = st.floats(1e-12, 1e18)
_WORDS = {"status": st.sampled_from(Status), "cache": st.sampled_from(CacheState), "timing": st.sampled_from(Timing)}
_DICTS = {
    "params": st.dictionaries(_TEXT, st.integers(1, 2**53) | st.booleans() | _TEXT, max_size=3),
    "time_s": st.dictionaries(_TEXT, _NUMBER, max_size=3),
    "telemetry": st.dictionaries(_TEXT, st.fixed_dictionaries({"median": _NUMBER}), max_size=2),
    "sustain": st.fixed_dictionaries({"rate": st.lists(_NUMBER, max_size=3)}),
    "discarded": st.dictionaries(_TEXT, st.integers(0, 99), max_size=2),
    "samples_s": st.lists(_NUMBER, max_size=4),
}
_BY_TYPE = {str: _TEXT, float: _NUMBER, int: st.integers(0, 2**40), bool: st.booleans()}


def _values(field: msgspec.structs.FieldInfo):
    """Return a strategy for one key of a row, by the type that the schema has for it."""
    if field.name in _WORDS:
        return _WORDS[field.name]
    if field.name in _DICTS:
        return _DICTS[field.name]
    return next(_BY_TYPE[kind] for kind in _BY_TYPE if kind.__name__ in str(field.type))


_FIELDS = msgspec.structs.fields(Row)
_ROWS = st.fixed_dictionaries(
    {field.name: _values(field) for field in _FIELDS if field.required},
    optional={
        field.name: _values(field) | st.none() for field in _FIELDS if not field.required and field.name != "params"
    },
)
_FACTS = st.fixed_dictionaries(
    {},
    optional={"perfmodel": _TEXT, "hardware": st.lists(_TEXT, max_size=2), "device": st.dictionaries(_TEXT, _NUMBER)},
)


@given(
    st.lists(_ROWS, min_size=1, max_size=4), _FACTS, st.lists(_TEXT, max_size=2), st.sampled_from(["analyze", "bench"])
)
def test_a_record_that_is_written_is_read_back(tmp_path_factory, rows, facts, notes, command):
    path = tmp_path_factory.mktemp("record") / "record.json"
    written = Record(command, rows, facts, tuple(notes))
    path.write_text(report(written).json_text())
    found = read_record(path)
    assert found.rows == written.rows == [msgspec.convert(row, Row) for row in rows]
    assert list(found.values) == rows
    assert (found.command, found.facts, found.notes, found.place) == (command, facts, tuple(notes), str(path))
    assert found.context == written.context
    assert json.loads(path.read_text())["schema_version"] == SCHEMA_VERSION


def test_keys_of_a_later_version_are_kept(tmp_path):
    path = tmp_path / "record.json"
    later = {**ROW, "of_tomorrow": [1]}
    path.write_text(report(Record("bench", [later], {"tomorrow": 1})).json_text())
    record = read_record(path)
    assert (record.values, record.facts) == ([later], {"tomorrow": 1})
    assert record.rows[0].op == "gemm"


def test_a_number_that_is_not_finite_is_unknown(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(report(Record("bench", [{**ROW, "efficiency": float("nan")}])).json_text())
    assert read_record(path).rows[0].efficiency is None


def test_every_prediction_fits_the_schema(simple_gpu):
    rows = predict(Gemm(m=64, n=64, k=64, dtype="fp16"), simple_gpu).rows()
    record = parse_record(json.loads(report(Record("analyze", rows)).json_text()), "analyze.json")
    (row,) = record.rows
    for name in Row.__struct_fields__:
        if name not in MEASURED_KEYS:
            assert name in rows[0], f"no prediction has {name}"
    assert (row.op, row.params["m"], row.limiter) == ("gemm", 64, "launch")


def test_a_point_is_a_row_with_a_status():
    (row,) = Record("analyze", [ROW]).rows
    assert row.point()["status"] == "ok"
    (row,) = Record("bench", [{**ROW, "status": "wrong"}]).rows
    assert row.point()["status"] == "wrong"
    assert set(OPTIONAL_KEYS) < set(MEASURED_KEYS)


@pytest.mark.parametrize(
    ("row", "composed"),
    [
        ({"kernel": "naive"}, True),
        ({"kernel": "experts one by one"}, True),
        ({"composition_time_s": 1e-3}, True),
        ({"kernel": "torch.matmul"}, False),
    ],
)
def test_compositions_are_recognised_also_where_an_old_record_only_names_them(row, composed):
    (found,) = Record("bench", [{**ROW, **row}]).rows
    assert found.is_composed == composed


# --- version 1


def test_version_1_is_read_in_the_words_of_version_2(version_1):
    record = read_record(version_1)
    gemm, memcpy = record.rows
    assert (gemm.cache, gemm.timing, gemm.measured_time_s) == (CacheState.COLD, Timing.GRAPH, 5e-6)
    assert (gemm.status, memcpy.status) == (Status.OK, Status.SKIPPED)
    assert (gemm.limiter, memcpy.limiter) == ("launch", "link")
    assert record.values[1]["resident_limiter"] == "link"
    assert record.values[0]["predicted_terms_s"] == {"tile waste": 3e-6, "hbm": 1.2e-6}
    assert (record.values[0]["largest_term"], record.values[0]["predicted_limiter"]) == ("tile waste", "compute")
    assert (record.values[1]["largest_term"], record.values[1]["predicted_limiter"]) == ("pcie", "link")
    assert (record.facts["cache"], record.context.settings) == (
        "cold",
        {"cache": "cold", "timing": "kernel", "seed": 0},
    )
    assert record.notes == ("memcpy, 1 shape: skipped",)


def test_the_main_memory_of_a_cpu_stays_dram(version_1):
    text = version_1.read_text().replace('"limiter": "launch"', '"limiter": "dram"')
    version_1.write_text(text.replace('"predicted_limiter": "tile waste"', '"predicted_limiter": "dram"'))
    row = read_record(version_1).values[0]
    assert row["predicted_terms_s"] == {"tile waste": 3e-6, "dram": 1.2e-6}
    assert (row["limiter"], row["largest_term"], row["predicted_limiter"]) == ("dram", "dram", "dram")


@pytest.mark.parametrize(
    ("word", "limiter"),
    [
        ("nvlink", "link"),
        ("xgmi", "link"),
        ("transfer", "link"),
        ("memory", "hbm"),
        ("l2", "l2"),
        ("compute", "compute"),
    ],
)
def test_limiters_of_version_1(version_1, word, limiter):
    version_1.write_text(version_1.read_text().replace('"limiter": "launch"', f'"limiter": "{word}"'))
    assert read_record(version_1).rows[0].limiter == limiter


@pytest.mark.parametrize(("term", "limiter"), [("dram", "hbm"), ("host", "host"), ("contention", "unknown")])
def test_largest_terms_of_version_1_belong_to_a_limiter(version_1, term, limiter):
    version_1.write_text(
        version_1.read_text().replace('"predicted_limiter": "tile waste"', f'"predicted_limiter": "{term}"')
    )
    assert read_record(version_1).values[0]["predicted_limiter"] == limiter


def test_version_2_is_not_translated():
    rows = [{**ROW, "predicted_limiter": "launch", "predicted_terms_s": {"dram": 1.0}}]
    assert parse_record(document(rows=rows), "r.json").values == rows


# --- what is refused


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "is not a record: expected `object`, got `array`"),
        ({}, "is not a record: object missing required field `schema_version`"),
        (document(schema_version=3), "schema version 3 is not known; 1 and 2 are"),
        (document(schema_version="two"), "schema version 'two' is not known"),
        (document(command="roi"), "is a record of 'roi'; one of analyze or bench is needed"),
        # whose context is unlike that of a record
        (
            document(command="diagnose", context={"device": "H100"}),
            "is a record of 'diagnose'; one of analyze or bench",
        ),
        (document(rows=[]), "the record has no rows"),
        (document(rows=3), "expected `array`, got `int` at rows"),
        (document(rows=[{"op": "gemm"}]), "missing required field `hardware` at rows[0]"),
        (document(rows=[{**ROW, "status": "good"}]), "invalid enum value 'good' at rows[0].status"),
        (document(rows=[{**ROW, "cache": "tepid"}]), "invalid enum value 'tepid' at rows[0].cache"),
        (document(rows=[{**ROW, "time_s": {"median": "x"}}]), "at rows[0].time_s"),
        (document(context=[]), "expected `object`, got `array` at context"),
        (document(notes=5), "expected `array`, got `int` at notes"),
        (document(rows=[{**ROW, "status": "\ud800"}]), r"a text in it holds half of a character, '\ud800'"),
    ],
)
def test_what_is_not_a_record_is_refused_with_the_key(tmp_path, found, said):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InputFileError) as refused:
        read_record(path)
    assert said in str(refused.value)
    assert "record.json" in str(refused.value)
    assert ("Write one with: perfmodel analyze" in str(refused.value)) == ("schema version" not in said)


def test_only_the_commands_that_are_asked_for_are_accepted():
    with pytest.raises(InputFileError, match="is a record of 'analyze'; one of bench is needed"):
        parse_record(document(command="analyze"), "r.json", ("bench",))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["flushed", "dram", "pcie", "event", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*Row.__struct_fields__, "limiter", "fits_in", "predicted_limiter", "predicted_terms_s", "settings"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(_JSON, _JSON, st.sampled_from([1, 2]))
def test_any_document_is_a_record_or_an_error_with_its_file(rows, context, version):
    found = {"schema_version": version, "command": "bench", "rows": rows, "context": context}
    try:
        record = parse_record(found, "record.json")
    except PerfModelError as error:
        assert "record.json" in str(error)  # noqa: PT017 -- either outcome is right
    else:
        assert record.rows
        assert record.context is not None
