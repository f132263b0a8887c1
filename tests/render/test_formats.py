"""Each output format, on whole documents: several tables, notes, Unicode, control characters, unknown values."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

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
#: a report with all that a format has to cope with
WHOLE = Report(
    "analyze",
    (
        Column("name", "kernel"),
        Column("time_s", "time", "s"),
        Column("share", unit="fraction"),
        Column("parts", shown=False),
        Column("limit", shown=False),
        Column("range", show_row=lambda row: f"{row['low']} to {row['high']}"),
        Column("why", prose=True, drop=1),
    ),
    [
        {
            "name": "fill<float*>(int) | `x` \\ 矩阵",
            "time_s": 1.5e-6,
            "share": 0.25,
            "parts": {"fixed overhead": 1e-7, "hbm": None},
            "limit": math.inf,
            "low": 1,
            "high": 2,
            "why": "It moves a lot of data.",
            "tags": ["a", "b"],
            "good": True,
        },
        {
            "name": "a\x1b[31m\nb\tc",
            "time_s": math.nan,
            "share": None,
            "parts": None,
            "limit": 3.0,
            "low": 3,
            "high": 4,
            "why": None,
            "tags": [],
            "good": False,
        },
        {"name": "tiny", "time_s": 4e-10, "share": 4e-4, "low": 5, "high": 6, "why": "It moves a lot of data."},
    ],
    {"hardware": ["x"], "peak": math.nan},
    notes=("A note about <b>.", "Two\nlines."),
    title="Title <i>",
    decision="Do 'fill<int>' first.",
    assumptions=("Price: 2",),
    more={
        "terms": Report("analyze", (Column("term"), Column("time_s", "time", "s")), [{"term": "hbm", "time_s": 1.0}])
    },
)

JSON = """\
{
  "schema_version": 2,
  "command": "analyze",
  "context": {
    "hardware": [
      "x"
    ],
    "peak": null
  },
  "rows": [
    {
      "name": "fill<float*>(int) | `x` \\\\ 矩阵",
      "time_s": 1.5e-06,
      "share": 0.25,
      "parts": {
        "fixed overhead": 1e-07,
        "hbm": null
      },
      "limit": null,
      "low": 1,
      "high": 2,
      "why": "It moves a lot of data.",
      "tags": [
        "a",
        "b"
      ],
      "good": true
    },
    {
      "name": "a\\u001b[31m\\nb\\tc",
      "time_s": null,
      "share": null,
      "parts": null,
      "limit": 3.0,
      "low": 3,
      "high": 4,
      "why": null,
      "tags": [],
      "good": false
    },
    {
      "name": "tiny",
      "time_s": 4e-10,
      "share": 0.0004,
      "low": 5,
      "high": 6,
      "why": "It moves a lot of data."
    }
  ],
  "terms": [
    {
      "term": "hbm",
      "time_s": 1.0
    }
  ],
  "notes": [
    "A note about <b>.",
    "Two\\nlines."
  ]
}
"""

CSV = """\
name,time_s,share,parts.fixed_overhead,parts.hbm,limit,low,high,why,tags,good
fill<float*>(int) | `x` \\ 矩阵,1.5e-06,0.25,1e-07,,,1,2,It moves a lot of data.,a;b,true
"a\x1b[31m
b\tc",,,,,3.0,3,4,,,false
tiny,4e-10,0.0004,,,,5,6,It moves a lot of data.,,
"""

MARKDOWN = """\
### Title &lt;i>

**Decision:** Do 'fill&lt;int>' first.

- Price: 2

| kernel | time | share | range | why |
|---|---:|---:|---|---|
| fill&lt;float\\*>(int) \\| \\`x\\` \\\\ 矩阵 | 1.5 us | 25.0 % | 1 to 2 | It moves a lot of data. |
| a\\\\x1b[31m\\\\nb\\\\tc | - | - | 3 to 4 | - |
| tiny | 0 s | <0.1 % | 5 to 6 | It moves a lot of data. |

A note about &lt;b>.

Two lines.

| term | time |
|---|---:|
| hbm | 1 s |
"""

TABLE = """\
Title <i>
#  kernel                            time   share  range
1  fill<float*>(int) | `x` \\ 矩阵  1.5 us  25.0 %  1 to 2
2  a\\x1b[31m\\nb\\tc                      -       -  3 to 4
3  tiny                               0 s  <0.1 %  5 to 6

why
1, 3  It moves a lot of data.

Do 'fill<int>' first.
A note about <b>.
Two\\nlines.

term  time
hbm    1 s
"""


def test_pieces_are_the_text_and_end_as_a_whole_document() -> None:
    long = replace(WHOLE, rows=[{**WHOLE.rows[0], "name": str(number)} for number in range(2500)])
    for report in (long, replace(long, notes=(), more={}), replace(WHOLE, rows=[])):
        assert "".join(json_format.pieces(report, lambda rows: True)) == json_format.render(report)
        assert json_format.render(report) == json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n"
    asked: list[int] = []
    cut = "".join(json_format.pieces(long, lambda rows: not asked.append(rows) and len(asked) < 2))
    missing = f"Interrupted: the first {sum(asked)} of 2500 rows."
    assert json.loads(cut) == replace(long, rows=long.rows[: sum(asked)], notes=(missing, *long.notes)).as_json()
    assert 0 < sum(asked) < 2500
    lines = "".join(csv_format.pieces(long, lambda rows: False)).splitlines()
    assert lines == csv_format.render(long).splitlines()[: len(lines)]
    assert len(lines) == 1 + asked[0]


def test_json_is_the_whole_document() -> None:
    assert json_format.render(WHOLE) == JSON
    assert json.loads(JSON, parse_constant=lambda name: 1 / 0)


def test_csv_is_the_first_table_with_every_key() -> None:
    assert csv_format.render(WHOLE) == CSV
    rows = list(csv.DictReader(io.StringIO(CSV)))
    assert rows[0]["name"] == WHOLE.rows[0]["name"]
    assert float(rows[0]["parts.fixed_overhead"]) == 1e-7
    assert rows[1]["name"] == WHOLE.rows[1]["name"]


def test_markdown_is_a_page_of_all_tables() -> None:
    assert markdown_format.render(WHOLE) == MARKDOWN


def test_a_table_for_people_has_sentences_below_it() -> None:
    assert table_format.render(WHOLE, width=80) == TABLE


def test_wide_shows_every_column_on_lines_as_long_as_they_need() -> None:
    lines = table_format.render(WHOLE, width=20, wide=True).splitlines()
    assert lines[1].split() == ["#", "kernel", "time", "share", "parts", "limit", "range"]
    assert "fixed overhead=1e-07 hbm=-" in lines[2]
    assert lines[6:8] == ["why", "1, 3  It moves a lot of data."]


def test_nothing_to_list_is_said_in_each_format_for_people() -> None:
    empty = Report("x", COLUMNS, [], title="T", notes=("A note.",))
    assert table_format.render(empty, width=20) == "T\n(no rows)\n\nA note.\n"
    assert markdown_format.render(empty) == "### T\n\n(no rows)\n\nA note.\n"
    assert csv_format.render(empty) == "name,time_s,rate,peaks\n"
    assert json.loads(json_format.render(empty))["rows"] == []


def test_a_key_that_is_a_mapping_in_some_row_has_the_same_columns_in_all_of_them() -> None:
    rows = [{"time_s": None, "n": 1}, {"time_s": {"median": 1.0}, "n": 2}]
    assert csv_format.render(Report("x", (), rows)) == "time_s.median,n\n,1\n1.0,2\n"


def test_csv_has_a_column_for_each_inner_key_of_any_row_and_leaves_unknown_cells_empty() -> None:
    rows = [
        {"a b": 1, "m": {"x y": 1.5, "n": {"q": True}}, "list": [1, None, True, math.nan]},
        {"a b": math.inf, "m": 3, "pair": ("a", 2.5)},
        {"m": {"n": 4, "x y": None, "z": {}}, "none": {}, "text": 'q,"u'},
    ]
    assert csv_format.render(Report("x", (), rows)) == (
        'a_b,m.x_y,m.n.q,m.n,list,pair,none,text\n1,1.5,true,,1;;true;,,,\n,,,,,a;2.5,,\n,,,4,,,,"q,""u"\n'
    )


def test_people_may_see_fewer_rows_than_json_and_csv() -> None:
    rows = [{"a": 1}, {"a": 2}]
    report = Report("compare", (Column("a"),), rows, people_rows=rows[1:], unlisted="Rows left out: 1.")
    assert markdown_format.render(report) == "| a |\n|---|\n| 2 |\n\nRows left out: 1.\n"
    assert table_format.render(report) == "a\n2\n\nRows left out: 1.\n"
    assert csv_format.render(report) == "a\n1\n2\n"
    document = json.loads(json_format.render(report))
    assert document["rows"] == rows
    assert "notes" not in document


ROWS = [
    {"name": "first | one", "time_s": 1.5e-6, "rate": 1e12},
    {"name": "second", "time_s": 2.0, "rate": 2e12},
]
REPORT = Report("analyze", COLUMNS, ROWS, {"hardware": ["x"]}, notes=("A note.",), title="Title")


# the narrowest table with all columns: "second", "1.5 us" and "1 TFLOP/s", two spaces between: 6 + 2 + 6 + 2 + 9 = 25
@pytest.mark.parametrize(("width", "shown"), [(25, True), (24, False)])
def test_a_table_that_is_too_wide_leaves_out_what_may_be_dropped(width: int, shown: bool) -> None:
    text = table_format.render(REPORT, width=width)
    assert ("1 TFLOP/s" in text) == shown
    assert "1.5 us" in text
    assert max(map(len, text.splitlines())) <= width


LONG = Report(
    "x",
    (Column("name"), Column("time_s", "time", "s"), Column("more", unit="s", drop=1)),
    [{"name": "one two three", "time_s": 1e-3, "more": 2e-3}],
)


def test_the_further_lines_of_a_name_are_indented_so_that_none_looks_like_a_row() -> None:
    rows = [{"name": "one two three", "time_s": 1e-3}, {"name": "four", "time_s": 2e-3}]
    found = Report("analyze", (Column("name"), Column("time_s", "time", "s")), rows)
    assert table_format.render(found, width=13) == "name     time\none two  1 ms\n  three\nfour     2 ms\n"
    # without room for the indent the words stay whole, and a name that fits stays as it is
    assert table_format.render(found, width=11) == "name   time\none    1 ms\ntwo\nthree\nfour   2 ms\n"
    assert table_format.render(found, width=40).splitlines()[1] == "one two three  1 ms"


def test_a_column_is_dropped_where_a_cell_would_take_three_lines() -> None:
    # "1 ms", "2 ms" and two gaps take 12 characters: "one two" is 7 long, so that two lines take 19
    assert table_format.render(LONG, width=19) == "name     time  more\none two  1 ms  2 ms\n  three\n"
    assert table_format.render(LONG, width=18) == "name          time\none two       1 ms\n  three\n"


TREE = Report(
    "x",
    (Column("module"), Column("time_s", "time", "s"), Column("traffic", unit="B", drop=1)),
    [{"module": "root", "time_s": 1e-3, "traffic": 1e6}, {"module": "    linear1", "time_s": 1e-3, "traffic": 1e6}],
)


def test_a_column_is_dropped_before_an_indented_name_is_torn() -> None:
    # "    linear1", "1 ms", "traffic" and two gaps take 26 characters
    rows = [line.split() for line in table_format.render(TREE, width=26).splitlines()]
    assert rows == [["module", "time", "traffic"], ["root", "1", "ms", "1", "MB"], ["linear1", "1", "ms", "1", "MB"]]
    assert table_format.render(TREE, width=25) == (
        f"{'module':<11}  time\n{'root':<11}  1 ms\n{'    linear1':<11}  1 ms\n"
    )


def test_an_indented_name_goes_on_below_its_beginning() -> None:
    report = Report("x", TREE.columns, [{"module": "  " + "a" * 20, "time_s": 1e-3, "traffic": None}])
    lines = table_format.render(report, width=18).splitlines()
    assert lines == ["module        time", "  " + "a" * 10 + "  1 ms", "  " + "a" * 10]


def test_where_no_table_fits_each_row_is_a_block_of_the_columns_that_are_not_dropped() -> None:
    columns = (Column("name"), Column("time_s", "duration", "s"), Column("rate", unit="FLOP/s", drop=1))
    assert table_format.render(Report("x", columns, ROWS), width=15).splitlines() == [
        *("name   first |", "       one", "durat  1.5 us", "ion", ""),
        *("name   second", "durat  2 s", "ion"),
    ]


def test_a_block_has_no_line_for_what_has_no_value_or_repeats_the_block_above() -> None:
    columns = (Column("table", merge=True), Column("key"), Column("sustained"), Column("fraction", unit="fraction"))
    rows = [
        {"table": "chip_of_a_gpu", "key": "clock_of_tensors", "sustained": "", "fraction": None},
        {"table": "chip_of_a_gpu", "key": "clock_of_vectors", "sustained": "1_is_a_value", "fraction": 0.5},
    ]
    text = table_format.render(Report("x", columns, rows), width=28)
    assert text.splitlines() == [
        *("table      chip_of_a_gpu", "key        clock_of_tensors", ""),
        *("key        clock_of_vectors", "sustained  1_is_a_value", "fraction   50.0 %"),
    ]


def test_a_long_value_of_a_block_goes_on_below_its_beginning() -> None:
    columns = (Column("name"), Column("time_s", "time", "s"))
    lines = table_format.render(Report("x", columns, [{"name": "w" * 20, "time_s": 1.0}]), width=12).splitlines()
    assert lines == ["name  wwwwww", "      wwwwww", "      wwwwww", "      ww", "time  1 s"]


def test_a_column_is_explained_where_it_is_shown_and_in_json_always() -> None:
    columns = (Column("time_s", "time", "s"), Column("ceiling", unit="x", drop=1, note="Ceiling: without this."))
    report = Report("x", columns, [{"time_s": 1e-3, "ceiling": 1.5}], notes=("A note.",))
    assert table_format.render(report, width=13) == "time  ceiling\n1 ms    1.5 x\n\nA note.\nCeiling:\nwithout this.\n"
    assert table_format.render(report, width=12) == "time\n1 ms\n\nA note.\n"
    assert "Ceiling: without this." in markdown_format.render(report)
    assert json.loads(json_format.render(report))["notes"] == ["A note.", "Ceiling: without this."]
    nowhere = Report("x", columns, [{"time_s": 1e-3, "ceiling": None}])
    assert table_format.render(nowhere) == "time\n1 ms\n"


def test_long_words_are_folded_before_a_table_becomes_blocks() -> None:
    columns = (Column("name"), Column("time_s", "time", "s"))
    report = Report("x", columns, [{"name": "a" * 60, "time_s": 1e-3}])
    assert table_format.render(report, width=80) == f"{'name':<60}  time\n{'a' * 60}  1 ms\n"
    lines = table_format.render(report, width=40).splitlines()
    assert lines == ["name" + " " * 32 + "time", "a" * 34 + "  1 ms", "a" * 26]
    assert table_format.render(report, width=30).splitlines()[1] == "a" * 24 + "  1 ms"
    # "1 ms" and the gap take 6 characters; words keep at least 12
    assert table_format.render(report, width=18).splitlines()[1] == "a" * 12 + "  1 ms"
    assert table_format.render(report, width=17).splitlines()[0] == "name  " + "a" * 11


def test_a_merged_column_does_not_repeat_the_row_above() -> None:
    columns = (Column("op", merge=True), Column("size", merge=True), Column("term"))
    rows = [
        {"op": "gemm", "size": "m=1", "term": "hbm"},
        {"op": "gemm", "size": "m=1", "term": "host"},
        {"op": "norm", "size": "m=1", "term": "host"},
    ]
    lines = table_format.render(Report("x", columns, rows)).splitlines()
    assert [line.split() for line in lines[1:]] == [["gemm", "m=1", "hbm"], ["host"], ["norm", "m=1", "host"]]


def test_sentences_are_under_the_rank_where_the_table_has_one() -> None:
    columns = (Column("rank", "#"), Column("name"), Column("why", prose=True))
    rows = [{"rank": 7, "name": "a", "why": "Because."}, {"rank": 9, "name": "b", "why": "Because not."}]
    text = table_format.render(Report("x", columns, rows))
    assert text == "#  name\n7  a\n9  b\n\nwhy\n7  Because.\n9  Because not.\n"


def test_a_pipe_gets_plain_text_and_a_terminal_colours() -> None:
    assert "\x1b" not in table_format.render(REPORT)
    assert "\x1b" in table_format.render(REPORT, width=80, color=True)


TEXT = st.text(st.characters(categories=["L", "N", "P", "Zs", "Cc"]), max_size=60)


@given(st.integers(1, 150), TEXT, TEXT)
def test_no_line_is_wider_than_the_terminal(width: int, name: str, why: str) -> None:
    columns = (*COLUMNS, Column("why", prose=True))
    report = Report("x", columns, [{**ROWS[0], "name": name, "why": why}], notes=(why,), title=name)
    text = table_format.render(report, width=width)
    assert max(map(cell_len, text.splitlines())) <= max(width, 2)


@given(TEXT, st.floats(), st.one_of(st.none(), st.booleans(), st.integers()))
def test_json_and_csv_keep_any_value(name: str, number: float, other: object) -> None:
    report = Report("x", COLUMNS, [{"name": name, "time_s": number, "rate": other}])
    (row,) = json.loads(json_format.render(report))["rows"]
    assert row == {"name": name, "time_s": number if math.isfinite(number) else None, "rate": other}
    (cells,) = csv.DictReader(io.StringIO(csv_format.render(report), newline=""))
    assert cells["name"] == name
    assert cells["time_s"] == (str(number) if math.isfinite(number) else "")


def test_a_table_is_eighty_characters_wide_where_no_width_is_known() -> None:
    lines = table_format.render(Report("x", (Column("name"),), [{"name": "a " * 100}])).splitlines()
    assert max(map(len, lines)) == 79, "80 without the space at the end"


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a_b_c", "a_b_c"),
        ("__global__ f", "\\_\\_global\\_\\_ f"),
        ("f[x](int)", "f[x]\\(int)"),
        ("$_0 and $_1", "\\$\\_0 and \\$\\_1"),
        ("a &lt; b & c", "a &amp;lt; b & c"),
    ],
)
def test_names_stay_as_they_are_in_markdown(name: str, escaped: str) -> None:
    report = Report("diagnose", (Column("name"),), [{"name": name}])
    assert markdown_format.render(report).splitlines()[-1] == f"| {escaped} |"
    prose = Report("diagnose", (), [], title=name, decision=name, assumptions=(name,), notes=(name,))
    assert markdown_format.render(prose).split("\n\n") == [
        f"### {escaped}", f"**Decision:** {escaped}", f"- {escaped}", "(no rows)", f"{escaped}\n"
    ]  # fmt: skip


def test_code_in_a_sentence_stays_code_in_markdown() -> None:
    said = "Run `perfmodel roi rank_*.json`, not a*b*."
    assert markdown_format.render(Report("x", (), [], notes=(said,))).endswith(
        r"Run `perfmodel roi rank_*.json`, not a\*b\*." + "\n"
    )
