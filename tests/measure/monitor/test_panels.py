"""The course of readings as lines, in a plot and in the page."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.measure.monitor.findings import Finding
from perfmodel.measure.monitor.panels import MOST_POINTS, monitor_panels
from perfmodel.measure.monitor.record import Recorder, is_monitored
from perfmodel.measure.monitor.report import live_text
from perfmodel.measure.monitor.series import Series
from perfmodel.measure.monitor.sources import Sample


def filled(n: int, *metrics: str) -> Series:
    """Return readings, one a second, that rise by 1."""
    made = Series()
    for second in range(n):
        made.add(1.79e9 + second, [Sample(metric, f"gpu {gpu}", second) for metric in metrics for gpu in range(2)])
    return made


def test_each_quantity_has_a_panel_with_a_line_for_each_gpu() -> None:
    power, temperature = monitor_panels(filled(5, "gpu_temperature_celsius", "gpu_power_watts", "gpu_throttled_x"))
    assert (power.title, power.unit, temperature.unit) == ("Power", "W", "°C")
    assert [line.name for line in power.lines] == ["gpu 0", "gpu 1"]
    assert list(power.lines[0].values) == [0, 1, 2, 3, 4]
    assert power.lines[0].low == ()
    assert monitor_panels(filled(1, "gpu_power_watts")) == (), "no line has one point"


def test_long_series_are_means_with_a_band() -> None:
    (panel,) = monitor_panels(filled(5 * MOST_POINTS, "gpu_power_watts"))
    line = panel.lines[0]
    assert len(panel.x) == len(line.values) == MOST_POINTS
    assert (line.low[0], line.values[0], line.high[0]) == (0.0, 2.0, 4.0)
    assert np.mean(np.array(line.values)) == pytest.approx((5 * MOST_POINTS - 1) / 2), "means keep the mean"


def test_a_clock_that_was_set_back_keeps_values_at_their_times() -> None:
    made = Series()
    for second, value in ((3.0, 30.0), (1.0, 10.0), (2.0, 20.0)):
        made.add(second, [Sample("gpu_power_watts", "gpu 0", value)])
    (panel,) = monitor_panels(made)
    assert (list(panel.x), list(panel.lines[0].values)) == ([1, 2, 3], [10, 20, 30])


def test_a_line_has_gaps_where_another_has_readings() -> None:
    made = filled(3, "gpu_power_watts")
    made.add(1.79e9 + 9, [Sample("gpu_power_watts", "gpu 0", 1.0)])
    (panel,) = monitor_panels(made)
    assert panel.lines[1].values[-1] is None


def test_plot_and_report_read_a_record(perfmodel, tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as record:
        for second in range(5):
            record.write(1.79e9 + second, [Sample("gpu_power_watts", "gpu $0$", 100.0 + second)])
    assert is_monitored(path)
    assert not is_monitored(tmp_path / "none.jsonl")
    assert perfmodel("plot", path, "-o", tmp_path / "run.svg").code == 0
    assert perfmodel("report", path, "-o", tmp_path / "run.html").code == 0
    assert "gpu_power_watts" in (tmp_path / "run.html").read_text()
    ran = perfmodel("plot", path, path, "-o", tmp_path / "run.png")
    assert (ran.code, "drawn alone" in ran.err) == (2, True)
    path.write_text(path.read_text().splitlines()[0] + "\n")
    ran = perfmodel("plot", path, "-o", tmp_path / "run.png")
    assert (ran.code, "Record for longer" in ran.err) == (2, True)


def test_the_live_lines_have_findings_first_and_fit_the_terminal() -> None:
    made = filled(30, "gpu_power_watts")
    made.add(1.79e9 + 40, [Sample("host_cpu_ratio", "ho\x1b[2Jst", 0.5)])
    lines = live_text(made, [Finding("swapping", "host", "it swaps.", "Stop. " * 30)], 60).splitlines()
    assert lines[0].startswith("host: swapping: it swaps. Stop.")
    assert max(map(len, lines)) <= 60
    assert "gpu 0" in lines[-3]
    assert "29 W" in lines[-3]
    assert lines[-3].endswith("█")
    assert "\x1b" not in "".join(lines), "a name does not move the cursor"
    assert live_text(Series(), [], 5) == ""
