"""The four formats of every report."""

from __future__ import annotations

import csv
import io
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.report import Column, Report
from perfmodel.render import csv as csv_format
from perfmodel.render import json as json_format
from perfmodel.render import markdown as markdown_format
from perfmodel.render import table as table_format

COLUMNS = (
    Column("name"),
    Column("time_s", "time", "s"),
    Column("rate", "a wide heading", "FLOP/s", drop=1),
    Column("peaks", shown=False),
)
ROWS = [
    {"name": "first | one", "time_s": 1.5e-6, "rate": 1e12, "peaks": {"fp16": 3.0, "fp32": None}},
    {"name": "second", "time_s": math.nan, "rate": 2e12, "peaks": {"fp16": 4.0}, "list": ["a", "b"], "flag": True},
]
REPORT = Report("analyze", COLUMNS, ROWS, {"hardware": ["x"]}, notes=("A note.",), title="Title")


def test_json_is_whole_and_has_no_nan() -> None:
    document = json.loads(json_format.render(REPORT), parse_constant=lambda name: 1 / 0)
    assert document["rows"][0]["time_s"] == 1.5e-6
    assert document["rows"][1]["time_s"] is None
    assert document["notes"] == ["A note."]


def test_csv_spreads_mappings_over_columns() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_format.render(REPORT))))
    assert rows[0]["name"] == "first | one"
    assert float(rows[0]["time_s"]) == 1.5e-6
    assert (rows[0]["peaks.fp16"], rows[0]["peaks.fp32"]) == ("3.0", "")
    assert (rows[1]["time_s"], rows[1]["list"], rows[1]["flag"]) == ("", "a;b", "true")


def test_csv_of_no_rows_still_has_a_header() -> None:
    assert csv_format.render(Report("x", COLUMNS, [])) == "name,time_s,rate,peaks\n"


def test_markdown_escapes_what_ends_a_cell() -> None:
    text = markdown_format.render(REPORT)
    assert "| first \\| one | 1.5 us | 1 TFLOP/s |" in text
    assert text.startswith("### Title\n")
    assert text.endswith("A note.\n")


def test_markdown_shows_the_templates_of_kernels() -> None:
    name = "void fill<float*, 4>(`x`) <b>"
    report = Report("x", (Column("name"),), [{"name": name}], title="Of f<int>", notes=("Do 'f<int>' first: 2 < 3.",))
    text = markdown_format.render(report)
    assert "| void fill&lt;float\\*, 4>(\\`x\\`) &lt;b> |" in text
    assert "### Of f&lt;int>" in text
    assert "Do 'f&lt;int>' first: 2 < 3." in text


def test_a_table_fits_the_terminal_by_leaving_out_what_may_be_dropped() -> None:
    wide = table_format.render(REPORT, width=60)
    assert "a wide heading" in wide
    narrow = table_format.render(REPORT, width=26)
    assert "a wide heading" not in narrow
    assert "1.5 us" in narrow


def test_where_no_table_fits_each_row_is_a_block() -> None:
    block = table_format.render(REPORT, width=12)
    assert block.splitlines()[1].startswith("name")
    assert "TFLOP/s" in block


def test_a_pipe_gets_plain_text_that_is_not_cut() -> None:
    text = table_format.render(REPORT)
    assert "\x1b" not in text
    assert "a wide heading" in text
    assert "\x1b" in table_format.render(REPORT, width=80, color=True)


def test_no_rows() -> None:
    assert "(no rows)" in table_format.render(Report("x", COLUMNS, []), width=20)


@given(st.integers(1, 150), st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40))
def test_no_line_is_wider_than_the_terminal(width: int, name: str) -> None:
    text = table_format.render(Report("x", COLUMNS, [{**ROWS[0], "name": name}]), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_a_decision_stands_above_a_page_and_below_a_table_and_only_a_page_lists_assumptions() -> None:
    report = Report(
        "roi", (Column("a"),), [{"a": 1}], notes=("A note.",), title="T", decision="Do it.", assumptions=("Price: 2",)
    )
    page = "### T\n\n**Decision:** Do it.\n\n- Price: 2\n\n| a |\n|---|\n| 1 |\n\nA note.\n"
    assert markdown_format.render(report) == page
    assert table_format.render(report) == "T\na\n1\nDo it.\nA note.\n"


def test_people_may_see_fewer_rows_than_json_and_csv() -> None:
    rows = [{"a": 1}, {"a": 2}]
    report = Report("compare", (Column("a"),), rows, people_rows=rows[1:])
    assert markdown_format.render(report) == "| a |\n|---|\n| 2 |\n"
    assert table_format.render(report) == "a\n2\n"
    assert csv_format.render(report) == "a\n1\n2\n"
    assert json.loads(json_format.render(report))["rows"] == rows
