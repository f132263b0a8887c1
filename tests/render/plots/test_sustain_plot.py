"""The plot of a sustained run: each series where its record says, below one another, and readable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.text import Text

from perfmodel.errors import UsageError
from perfmodel.render.plots.records.sustain import sustain_plot


def row(kernel="torch.matmul", unit="FLOP/s", rate=7e14, count=20, **readings):
    time_s = [0.5 * (index + 1) for index in range(count)]
    falling = [rate * (1 - 0.005 * index) for index in range(count)]
    series = {
        "time_s": time_s,
        "rate": falling,
        "rate_unit": unit,
        "sm_clock_hz": [],
        "power_w": [],
        "temperature_c": [],
    }
    return {
        "op": "gemm",
        "name": "gemm",
        "dimensions": "m=64",
        "dtype": "bf16",
        "kernel": kernel,
        "sustain": series | readings,
    }


def lines(figure):
    return {line.get_gid(): line for axes in figure.axes for line in axes.get_lines() if line.get_gid()}


def labels(figure):
    return [axes.get_ylabel() for axes in figure.axes]


def test_a_cpus_rate_has_a_panel_and_nothing_else_does():
    figure = sustain_plot([row()])
    assert labels(figure) == ["rate"]
    line = lines(figure)["rate gemm m=64 bf16 torch.matmul"]
    assert list(line.get_xdata()) == row()["sustain"]["time_s"]
    assert list(line.get_ydata()) == row()["sustain"]["rate"]
    assert figure.axes[0].get_xlabel() == "time since the kernel began [s]"


def test_readings_stand_below_the_rates_on_the_same_axis_of_time():
    full = {"sm_clock_hz": [1.9e9] * 20, "power_w": [700.0] * 20, "temperature_c": [60.0] * 20}
    figure = sustain_plot([row(**full), row("triton.gemm"), row("copy", unit="B/s", rate=4e12)])
    assert labels(figure) == ["rate", "rate", "SM clock", "temperature", "power"]
    bottoms = [axes.get_position().y0 for axes in figure.axes]
    assert bottoms == sorted(bottoms, reverse=True)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    figure.canvas.draw()
    shown = [text.get_text() for text in figure.findobj(Text)]
    assert any(text.endswith(" TFLOP/s") for text in shown)
    assert any(text.endswith(" TB/s") for text in shown)
    assert any(text.endswith(" GHz") for text in shown)
    assert (
        lines(figure)["rate gemm m=64 bf16 triton.gemm"].get_color()
        != lines(figure)["power_w gemm m=64 bf16 torch.matmul"].get_color()
    )
    clock, rate = (lines(figure)[f"{key} gemm m=64 bf16 torch.matmul"].get_color() for key in ("sm_clock_hz", "rate"))
    assert clock == rate


def test_a_reading_that_failed_leaves_a_gap_and_a_shorter_list_is_not_drawn():
    known = [60.0] * 10 + [None] * 10
    figure = sustain_plot([row(temperature_c=known, power_w=[700.0] * 7)])
    assert labels(figure) == ["rate", "temperature"]
    values = lines(figure)["temperature_c gemm m=64 bf16 torch.matmul"].get_ydata()
    assert np.isnan(values[10:]).all()
    assert math.isclose(values[0], 60.0)


def test_rates_of_different_size_can_all_be_seen():
    figure = sustain_plot([row(), row("slow", rate=2e14), row("naive", rate=1e12)])
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    for line in lines(figure).values():
        assert np.all((np.asarray(line.get_ydata()) > low) & (np.asarray(line.get_ydata()) < high))
    assert sustain_plot([row(), row("slow", rate=2e14)]).axes[0].get_ylim()[0] == 0.0


@pytest.mark.parametrize(
    "rows",
    [
        [row(count=1)],
        [row(f"a_kernel_with_a_very_long_name_{index}_" + "x" * 60, count=120) for index in range(9)],
        [row(unit="B/s", rate=4.05e12, sm_clock_hz=[1.98e9] * 20, power_w=[0.0] * 20), row("naive", rate=1.0)],
    ],
)
def test_no_text_is_cut_off_or_lies_on_another(check_texts, rows):
    check_texts(sustain_plot(rows, title="A heading"))


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(UsageError, match="--sustain 60"):
        sustain_plot([{"op": "gemm"}, row(count=0)])
    short = row()
    short["sustain"]["rate"] = [1.0]
    with pytest.raises(UsageError, match="20 times and 1 rates"):
        sustain_plot([short])


def test_a_reading_that_the_device_never_gives_has_no_panel():
    series = {"time_s": [0.5, 1.0], "rate": [1e9, 0.9e9], "rate_unit": "B/s"}
    told, silent = (
        sustain_plot([{"op": "gemm", "sustain": series | {"power_w": power}}]) for power in ([5, 6], [None, None])
    )
    assert len(told.axes) == len(silent.axes) + 1


def test_a_logarithmic_axis_of_little_more_than_a_decade_has_labels():
    axes = sustain_plot([row(count=1), row("slow", rate=7e14 / 10.5, count=1)]).axes[0]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 4


@pytest.mark.parametrize(
    ("ratio", "scale", "from_zero"),
    [(2.9, "linear", False), (3.1, "linear", True), (9.9, "linear", True), (10.1, "log", False)],
)
def test_the_axis_follows_the_ratio_of_the_rates(ratio, scale, from_zero):
    axes = sustain_plot([row(count=1), row("slow", rate=7e14 / ratio, count=1)]).axes[0]
    assert axes.get_yscale() == scale
    assert bool(axes.get_ylim()[0] == 0.0) is from_zero
