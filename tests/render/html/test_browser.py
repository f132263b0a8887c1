"""The page in a real browser, headless and offline. `make browser-test` installs what these tests need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.core.report import Column, Report
from perfmodel.core.vocabulary import EventKind
from perfmodel.investment.amdahl import amdahl_speedup
from perfmodel.profile.timeline import GpuEvents, Timeline
from perfmodel.render.html.page import page
from perfmodel.render.html.timeline import timeline_view
from perfmodel.render.html.views import report_views

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = "</script><img src=x onerror=document.title='hacked'>"
KERNELS = 100_000


def many_kernels() -> Timeline:
    """Return a time line of 10^5 kernels on two streams, with gaps."""
    rng = np.random.default_rng(0)
    lengths = rng.exponential(4e-6, KERNELS)
    starts = np.cumsum(lengths + rng.exponential(1e-6, KERNELS)) - lengths
    events = GpuEvents(
        starts, lengths, rng.integers(0, 40, KERNELS), category=np.full(KERNELS, EventKind.KERNEL.code),
        stream=rng.integers(0, 2, KERNELS), device=np.zeros(KERNELS, dtype=np.int64),
        entry=rng.integers(0, 40, KERNELS),
    )  # fmt: skip
    names = (HOSTILE, *(f"kernel_{number}" for number in range(39)))
    return Timeline(names=names, gpu=events, window_s=(0.0, float(starts[-1] + lengths[-1])))


def diagnosis() -> Report:
    """Return a report with dimensions, candidates and 5,000 rows, as `diagnose` gives one."""
    entries = [{"name": f"kernel_{i}" if i else HOSTILE, "time_s": (i * 7919 % 5000) * 1e-6} for i in range(5000)]
    candidates = [
        {"name": "fuse", "target_time_s": 4.0, "time_saved_s": 2.0, "dev_days": 2.0, "targets": ["a"]},
        {"name": "tune", "target_time_s": 3.0, "time_saved_s": 1.0, "dev_days": 5.0, "targets": ["b"]},
    ]
    return Report(
        "diagnose", (Column("dimension"), Column("time_s", "time", "s")),
        [{"dimension": "compute", "time_s": 7.0}, {"dimension": "idle", "time_s": 3.0}], title="A run",
        more={
            "candidates": Report("x", (Column("name"), Column("target_time_s", "touches", "s")), candidates),
            "entries": Report("x", (Column("name"), Column("time_s", "time", "s")), entries, title="Entries"),
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    line = timeline_view(many_kernels(), [HOSTILE, *(f"kernel_{number}" for number in range(39))])
    assert line is not None
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page([[*report_views(diagnosis()), line]], title="A run"), encoding="utf-8")
    return path


@pytest.fixture
def tab(opened: Callable[..., Any], path: Path) -> Any:
    return opened(path.as_uri())


def test_it_is_drawn_and_foreign_names_are_text(tab: Any, path: Path) -> None:
    assert path.stat().st_size < 3e6
    assert tab.title() == "A run"
    assert tab.locator("img").count() == 0
    assert tab.locator("section[data-kind=table]").last.get_by_text(HOSTILE, exact=True).count() == 1
    assert tab.locator("section[data-kind=bars] rect").count() == 2


def test_what_rounded_clocks_leave_of_nothing_is_not_shown(opened: Callable[..., Any], tmp_path: Path) -> None:
    rows = [{"dimension": name, "time_s": time, "fraction": time} for name, time in (("launch", 1.0), ("idle", 2e-7))]
    columns = (Column("dimension"), Column("time_s", "time", "s"), Column("fraction", "share", "fraction"))
    path = tmp_path / "page.html"
    path.write_text(page([report_views(Report("diagnose", columns, rows))], title="Rounded"), encoding="utf-8")
    tab = opened(path.as_uri())
    assert tab.locator("section[data-kind=bars] rect").count() == 1
    assert tab.locator("section[data-kind=table] tbody tr").last.inner_text().split("\t")[-1] == "0 %"


def test_a_table_of_5000_rows_is_sorted_and_filtered(tab: Any) -> None:
    table = tab.locator("section[data-kind=table]").last
    table.get_by_role("button", name="time").click()
    assert table.locator("tbody td").nth(1).inner_text() == "4.999 ms", "the largest first"
    table.get_by_label("filter rows").fill("kernel_4999")
    assert table.locator("tbody tr").count() == 1
    assert "1 of 5000 rows" in table.inner_text()


def test_the_joint_gain_is_that_of_amdahls_law(tab: Any) -> None:
    section = tab.locator("section[data-kind=candidates]")
    assert f"Together {amdahl_speedup(0.4, 2.0):.3f} x" in section.locator("[data-result=joint]").inner_text()
    section.get_by_label("use tune").check()
    both = 1 / (1 - 0.4 * (1 - 1 / 2.0) - 0.3 * (1 - 1 / 1.5))
    assert f"Together {both:.3f} x" in section.locator("[data-result=joint]").inner_text()
    slider = section.get_by_label("speedup of fuse")
    before = section.locator("[data-result=joint]").inner_text()
    slider.focus()
    slider.press("ArrowRight")
    assert section.locator("[data-result=joint]").inner_text() != before


def test_the_time_line_zooms_and_finds(tab: Any) -> None:
    section = tab.locator("section[data-kind=timeline]")
    canvas = section.locator("canvas")
    assert "100000 events" in section.inner_text()
    whole = canvas.screenshot()
    canvas.hover(position={"x": 300, "y": 10})
    tab.mouse.wheel(0, -3000)
    assert canvas.screenshot() != whole
    section.get_by_label("find events by name").fill("kernel_7")
    assert "found" in section.inner_text()
    section.get_by_role("button", name="Whole window").click()
    canvas.focus()
    tab.keyboard.press("ArrowRight")


def test_a_click_on_an_event_marks_its_row(tab: Any) -> None:
    section = tab.locator("section[data-kind=timeline]")
    canvas = section.locator("canvas")
    canvas.hover(position={"x": 500, "y": 10})
    for _ in range(12):
        tab.mouse.wheel(0, -500)
    for x in range(100, 1000, 5):  # until the pointer is on an event and not between two
        canvas.hover(position={"x": x, "y": 10})
        if tab.locator("#tip").is_visible():
            break
    canvas.click(position={"x": x, "y": 10})
    assert tab.locator("tr.mark").count() == 1


def _back(tab: Any) -> str:
    return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_wider_than_the_window(opened: Callable[..., Any], path: Path, width: int) -> None:
    tab = opened(path.as_uri(), viewport={"width": width, "height": 800}, color_scheme="dark")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    light = opened(path.as_uri())
    assert _back(tab) != _back(light)


def test_it_is_soon_ready_and_soon_drawn_anew(tab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ready_ms = float(tab.evaluate("document.documentElement.dataset.readyMs"))
    canvas = tab.locator("section[data-kind=timeline] canvas")
    whole_ms = float(canvas.get_attribute("data-draw-ms"))
    canvas.hover(position={"x": 300, "y": 10})
    tab.mouse.wheel(0, -300)
    tab.wait_for_timeout(50)
    zoomed_ms = float(canvas.get_attribute("data-draw-ms"))
    with capsys.disabled():
        print(  # noqa: T201 -- the times are the result; a busy machine may not fail the test
            f"\npage with {KERNELS} kernels: ready {ready_ms:.0f} ms, drawn in {whole_ms} ms, zoomed in {zoomed_ms} ms"
        )
    assert whole_ms > 0
    assert zoomed_ms < ready_ms


def test_paper_has_every_row_and_no_controls(tab: Any) -> None:
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(".bar").first.is_hidden()
    assert tab.evaluate("document.documentElement.scrollWidth") <= tab.viewport_size["width"]
    assert tab.locator("section[data-kind=table] tbody tr").count() > 300
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
