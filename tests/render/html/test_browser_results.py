"""Pages of real results in a browser: the page's own formulas against Python's, and what a reader does with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.panel import Line, Panel
from perfmodel.core.report import Column, Report
from perfmodel.investment.amdahl import amdahl_speedup
from perfmodel.investment.economics import Economics

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def shown(opened: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Return what opens the page of some results."""

    def show(*results: Any, **facts: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(pm.html_report(*results), encoding="utf-8")
        return opened(path.as_uri(), **facts)

    return show


def operators(*machines: str) -> Any:
    """Return predictions of a product, a softmax and an addition."""
    ops = (
        pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16"),
        pm.Softmax(rows=4096, cols=4096, dtype="bf16"),
        pm.Elementwise(numel=2**24, kind="add", dtype="bf16"),
    )
    return [pm.predict(op, machine) for machine in machines for op in ops]


def test_amdahl_and_payback_are_pythons(shown: Callable[..., Any]) -> None:
    tab = shown(Report("x", (Column("a"),), [{"a": 1}]))
    rng = np.random.default_rng(0)
    for _ in range(50):
        share, local, gpus, price, day, hours, days = rng.uniform(0.01, 1, 7) * (1, 50, 512, 8, 2000, 8760, 60)
        local += 1
        whole = tab.evaluate(
            "([share, speedup]) => perfmodel.amdahl(1, [{target_time_s: share, speedup}])", [float(share), float(local)]
        )
        assert whole == pytest.approx(amdahl_speedup(share, local), rel=1e-12)
        money = Economics(gpus, price, day, hours)
        made = tab.evaluate(
            "([gpus, price, day, hours, speedup, days]) => perfmodel.payback({gpus, price, day, hours}, speedup, days)",
            [float(gpus), float(price), float(day), float(hours), whole, float(days)],
        )
        assert made["yearly"] == pytest.approx(money.yearly_saving(whole), rel=1e-12)
        assert made["days"] == pytest.approx(money.payback_days(whole, days), rel=1e-12)
        assert made["net"] == pytest.approx(money.net_value(whole, days), rel=1e-9, abs=1e-6)


def test_a_path_with_a_step_left_out_is_that_of_python(
    opened: Callable[..., Any], perfmodel: Any, tmp_path: Path
) -> None:
    text = (EXAMPLES / "gpt2_scenario.toml").read_text()
    steps = text.split("[[steps]]")
    without = tmp_path / "without.toml"
    without.write_text("[[steps]]".join([*steps[:2], *steps[3:]]))
    line = ("whatif", EXAMPLES / "profile_gpt2.csv")
    assert perfmodel(*line, EXAMPLES / "gpt2_scenario.toml", "-o", tmp_path / "path.html").code == 1, (
        "one claim is doubtful"
    )
    rows = perfmodel(*line, without, "--format", "json").json["rows"]
    tab = opened((tmp_path / "path.html").as_uri())
    section = tab.locator("section[data-kind=path]")
    before = section.locator("[data-result=path]").inner_text()
    section.get_by_label("use step 2: fused attention, backward").uncheck()
    result = section.locator("[data-result=path]").inner_text()
    assert result != before
    total_s, speedup = rows[-1]["total_time_s"], rows[-1]["speedup"]
    assert result == f"500 ms become {1e3 * total_s:.4g} ms: {speedup:.4g} x"


def test_the_front_has_what_nothing_beats_in_both(shown: Callable[..., Any]) -> None:
    tab = shown(Report("x", (Column("a"),), [{"a": 1}]))
    rng = np.random.default_rng(1)
    points = [{"x": float(x), "y": float(y)} for x, y in rng.integers(0, 12, (60, 2))]
    found = {(one["x"], one["y"]) for one in tab.evaluate("points => perfmodel.best(points)", points)}
    expected = {
        (one["x"], one["y"])
        for one in points
        if not any(
            (other["x"] >= one["x"] and other["y"] >= one["y"]) and (other["x"], other["y"]) != (one["x"], one["y"])
            for other in points
        )
    }
    assert found == expected


def test_an_axis_of_the_front_begins_at_0_unless_its_points_crowd_at_the_end(shown: Callable[..., Any]) -> None:
    tab = shown(Report("x", (Column("a"),), [{"a": 1}]))
    assert tab.evaluate("perfmodel.across([10, 100])") == pytest.approx([0, 108])
    low, high = tab.evaluate("perfmodel.across([33, 36])")
    assert 30 < low < 33 < 36 < high < 40
    low, high = tab.evaluate("perfmodel.across([5])")
    assert low < 5 < high


def test_names_are_shortened_to_the_pixels_that_they_have(shown: Callable[..., Any]) -> None:
    tab = shown(Report("x", (Column("a"),), [{"a": 1}]))
    wide = "text => { const pen = document.createElement('canvas').getContext('2d'); pen.font = '12px system-ui, sans-serif'; return pen.measureText(text).width; }"  # noqa: E501
    for text in ("W" * 60, "i" * 60, "gemm m=1000000000000 n=1000000000000 k=1000000000000", "矩阵乘法" * 20):
        short = tab.evaluate("text => perfmodel.clipped(text, 150)", text)
        assert short != text
        assert 100 < tab.evaluate(wide, short) <= 150
    assert tab.evaluate("perfmodel.clipped('gemm', 150)") == "gemm"


def test_the_roofline_changes_with_dtype_level_and_operators(shown: Callable[..., Any]) -> None:
    tab = shown(operators("h100-sxm5-80gb"))
    section = tab.locator("section[data-kind=roofline]")
    roofs = section.locator("svg text.halo")
    assert "bf16 989 TFLOP/s" in roofs.all_text_contents()
    section.get_by_label("dtype").select_option("fp8")
    assert "fp8 1.98 PFLOP/s" in roofs.all_text_contents()
    section.get_by_label("data from").select_option("shared")
    assert any(text.startswith("shared ") for text in roofs.all_text_contents())
    section.get_by_label("dtype").select_option("those used")
    circles = section.locator("circle")
    assert circles.count() == 3
    circles.first.hover()
    assert "attainable" in tab.locator("#tip").inner_text()
    section.get_by_role("button", name="softmax").click()
    assert circles.count() == 2
    at = circles.first.get_attribute("cx")
    section.locator("svg").hover()
    tab.mouse.wheel(0, -400)
    assert circles.first.get_attribute("cx") != at
    section.get_by_role("button", name="Reset zoom").click()


def test_a_number_says_how_it_was_made_and_has_an_address(shown: Callable[..., Any]) -> None:
    tab = shown(operators("h100-sxm5-80gb"))
    button = tab.locator("button.origin[data-origin*=bound_time_s]").last
    name = button.get_attribute("data-origin")
    button.focus()
    tab.keyboard.press("Enter")
    dialog = tab.locator("dialog")
    assert dialog.is_visible()
    assert "no kernel is faster" in dialog.inner_text()
    assert "3.35 TB/s" in dialog.inner_text(), "the figures of the machine"
    assert tab.url.endswith(f"#{name}")
    tab.keyboard.press("Escape")
    assert dialog.is_hidden()
    tab.goto(f"{tab.url.partition('#')[0]}#{name}")
    tab.reload()
    tab.wait_for_selector("dialog[open]")


def test_two_results_stand_side_by_side(shown: Callable[..., Any]) -> None:
    tab = shown(operators("a100-sxm4-80gb"), operators("h100-sxm5-80gb"))
    first, second = (tab.locator(".input").nth(number).bounding_box() for number in range(2))
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]
    assert re.search(r"[\d.]+ x faster", tab.locator("section[data-kind=pair]").inner_text())
    narrow = shown(operators("a100-sxm4-80gb"), operators("h100-sxm5-80gb"), viewport={"width": 400, "height": 800})
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 400


def test_lines_of_readings_are_drawn_with_their_day(shown: Callable[..., Any]) -> None:
    panel = Panel("Power", [1.79e9 + second for second in range(100)], "time", "W",
                  (Line("gpu </script>", [100.0 + second for second in range(100)]),))  # fmt: skip
    tab = shown(Report("monitor", (Column("a"),), [{"a": 1}], panels=(panel,)), timezone_id="UTC")
    section = tab.locator("section[data-kind=lines]")
    assert section.locator("canvas").count() == 1
    assert "gpu </script>" in section.inner_text()
    assert tab.evaluate("perfmodel.clockTexts(null, [1.79e9, 1.79e9 + 60], 0, 60, 60)") == ["14:13\nSep 21", "14:14"]
    steps = tab.evaluate("perfmodel.CLOCK_STEPS")
    assert steps == sorted(steps)
    assert steps[0] == 1, "texts of ticks within a second would be equal"


def test_passes_of_a_pipeline_are_named_under_the_pointer(shown: Callable[..., Any]) -> None:
    step = pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=8), pm.TrainingPlan(tp=1, pp=4, batch=16, seq=2048))
    tab = shown(step)
    section = tab.locator("section[data-kind=pipeline]")
    canvas = section.locator("canvas")
    canvas.hover(position={"x": 70, "y": 8})
    assert "micro batch 1" in tab.locator("#tip").inner_text()
    whole = canvas.screenshot()
    canvas.focus()
    tab.keyboard.press("+")
    assert canvas.screenshot() != whole
