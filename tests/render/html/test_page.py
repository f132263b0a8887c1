"""The page without a browser: its data are the report's, foreign names stay text, equal results give equal pages."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.report import Column, Report, report
from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.timeline import GpuEvents, Timeline
from perfmodel.render.html import render
from perfmodel.render.html.inputs import html_report, json_report
from perfmodel.render.html.tables import MOST_ROWS
from perfmodel.render.html.timeline import timeline_view
from perfmodel.render.html.views import report_views

HOSTILE = "</script><img src=x onerror=alert(1)>&amp;<b>\u2028"


def embedded(page: str) -> Any:
    """Return the data of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def view(page: str, kind: str, number: int = 0) -> Any:
    return [view for view in embedded(page)["inputs"][0] if view["kind"] == kind][number]


def test_every_row_and_column_is_in_the_page() -> None:
    columns = (Column("name"), Column("time_s", "time", "s"), Column("hidden", shown=False), Column("empty"))
    rows = [{"name": f"k{i}", "time_s": i * 1e-6, "hidden": [i, 1], "empty": None} for i in range(50)]
    table = view(render(Report("x", columns, rows, title="T")), "table")
    assert [column["key"] for column in table["columns"]] == ["name", "time_s", "hidden"]
    assert table["rows"][7][:3] == ["k7", 7e-6, "7, 1"]
    assert [column["shown"] for column in table["columns"]] == [True, True, False]


def test_what_is_too_much_is_counted() -> None:
    rows = [{"a": number} for number in range(MOST_ROWS + 5)]
    table = report_views(Report("x", (Column("a"),), rows))[-1]
    assert (table["count"], table["left_out"]) == (MOST_ROWS, 5)
    unpacked = json.loads(gzip.decompress(base64.b64decode(table["packed"])))
    assert unpacked == [[number] for number in range(MOST_ROWS)]


def test_foreign_names_stay_text() -> None:
    page = html_report(Report("x", (Column("name"),), [{"name": HOSTILE}], title=HOSTILE, notes=(HOSTILE,)))
    assert page.count("</script>") == 3, "the page's own three"
    assert "<img" not in page
    assert view(page, "table")["rows"] == [[HOSTILE]]
    assert "Content-Security-Policy" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)


def test_equal_results_give_equal_pages() -> None:
    prediction = pm.predict(pm.Gemm(m=512, n=512, k=512, dtype="bf16"), "h100")
    assert html_report([prediction]) == html_report([prediction])


def test_the_ceilings_are_those_of_the_machine() -> None:
    sizes = [pm.Gemm(m=m, n=4096, k=4096, dtype="bf16") for m in (64, 8192)]
    machine = pm.hardware("h100")
    roof = view(html_report(report([pm.predict(op, machine) for op in sizes])), "roofline")
    (ceiling,) = roof["ceilings"]
    assert ceiling["peak"] == pytest.approx(machine.best_peak("bf16").flop_per_s)
    assert ceiling["bandwidth"] == pytest.approx(machine.main_memory.bandwidth_bytes_per_s)
    assert len(roof["points"]) == 2


def test_a_time_line_reads_back() -> None:
    events = GpuEvents(
        np.array([0.0, 1e-6, 5e-6]), np.array([1e-6, 2e-6, 1e-6]), np.array([0, 1, 0]),
        category=np.array([EventKind.KERNEL.code] * 3), stream=np.array([7, 20, 7]), device=np.zeros(3, dtype=np.int64),
        entry=np.array([0, -1, 0]),
    )  # fmt: skip
    line = timeline_view(Timeline(names=("a", HOSTILE), gpu=events, window_s=(0.0, 6e-6)), ["entry"])
    assert line is not None
    assert line["lanes"] == ["stream 7", "stream 20"]
    columns = {
        key: np.frombuffer(gzip.decompress(base64.b64decode(text)), dtype=line["types"][key])
        for key, text in line["columns"].items()
    }
    assert columns["start"] == pytest.approx([0, 1, 5])
    assert columns["lane"].tolist() == [0, 1, 0]
    assert [line["names"][number] for number in columns["name"]] == ["a", HOSTILE, "a"]
    assert columns["entry"].tolist() == [0, -1, 0]
    assert timeline_view(Timeline(), []) is None


def test_a_page_of_a_trace_is_small(data_dir: Path, perfmodel, tmp_path) -> None:
    path = tmp_path / "report.html"
    trace = data_dir / "traces" / "tracelens_h100_bert-small.json.gz"
    ran = perfmodel("report", trace, "-o", path)
    assert ran.code == 0, ran.err
    kinds = {one["kind"] for one in embedded(path.read_text())["inputs"][0]}
    assert {"heading", "timeline", "bars", "candidates", "table"} <= kinds
    assert path.stat().st_size < 3e6
    pair = tmp_path / "pair.html"
    assert perfmodel("report", trace, trace, "-o", pair).code == 0
    assert len(embedded(pair.read_text())["inputs"]) == 2


def test_json_of_any_command_has_units() -> None:
    made = json_report(
        {"command": "train", "rows": [{"time_s": 1.0, "memory_bytes": 5, "mfu": 0.4}], "steps": [{"a_s": 1}]}, "x.json"
    )
    assert {column.key: column.unit for column in made.columns} == {
        "time_s": "s",
        "mfu": "fraction",
        "memory_bytes": "iB",
    }
    assert set(made.more) == {"steps"}


def test_any_command_writes_a_page(perfmodel, tmp_path) -> None:
    path = tmp_path / "machines.html"
    assert perfmodel("hardware", "list", "-o", path).code == 0
    assert len(view(path.read_text(), "table")["rows"]) > 20
    record = tmp_path / "record.json"
    assert perfmodel("analyze", "gemm", "m=64", "n=64", "k=64", "--on", "h100", "-o", record).code == 0
    assert perfmodel("report", record, "-o", tmp_path / "record.html").code == 0
    assert perfmodel("report", record, record, record, "-o", path).code == 2
    assert perfmodel("report", record, "-o", tmp_path / "record.pdf").code == 2
    assert perfmodel("report", tmp_path / "none.json", "-o", path).code == 3


def test_what_is_vendored_is_what_was_published() -> None:
    folder = files("perfmodel.render.html").joinpath("assets", "vendor")
    for facts in tomllib.loads(folder.joinpath("VENDORED.toml").read_text()).values():
        assert hashlib.sha256(folder.joinpath(facts["file"]).read_bytes()).hexdigest() == facts["sha256"]
        assert folder.joinpath(facts["licence_file"]).is_file()
