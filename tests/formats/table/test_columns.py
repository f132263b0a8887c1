"""Which column is which: the headers that profilers write."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.formats.table.columns import choose_columns, time_columns
from perfmodel.formats.text.numbers import unit_s


def choose(*headers, cells_with_unit=()):
    columns = choose_columns(headers, lambda index: headers[index] in cells_with_unit, place="p.csv")
    calls = None if columns.calls is None else headers[columns.calls]
    return headers[columns.name], columns.time.header, columns.time.unit_s, columns.time.kind, calls


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (("name", "time_ms"), ("name", "time_ms", 1e-3, "total", None)),
        (("Kernel", "Time (ns)"), ("Kernel", "Time (ns)", 1e-9, "total", None)),
        (("op", "Duration [ms]", "calls"), ("op", "Duration [ms]", 1e-3, "total", "calls")),
        (("# of Calls", "Name", "self_cuda_time_us"), ("Name", "self_cuda_time_us", 1e-6, "total", "# of Calls")),
        # rocprof stats
        (
            ("Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage"),
            ("Name", "TotalDurationNs", 1e-9, "total", "Calls"),
        ),
        # nsys stats, kernels
        (
            ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Med (ns)", "Min (ns)", "StdDev (ns)", "Name"),
            ("Name", "Total Time (ns)", 1e-9, "total", "Instances"),
        ),
        # nsys stats, one row a kernel run
        (("Start (ns)", "Duration (ns)", "Name"), ("Name", "Duration (ns)", 1e-9, "total", None)),
        # TraceLens
        (
            ("Kernel name", "Kernel duration (µs)_sum", "Kernel duration (µs)_count", "Kernel duration (µs)_mean"),
            ("Kernel name", "Kernel duration (µs)_sum", 1e-6, "total", "Kernel duration (µs)_count"),
        ),
        # the entry itself before what it calls, the device before the host
        (("name", "total_time_ms", "self_time_ms"), ("name", "self_time_ms", 1e-3, "total", None)),
        (("name", "cpu_time_us", "cuda_time_us"), ("name", "cuda_time_us", 1e-6, "total", None)),
        # an average where there is nothing else
        (("name", "mean_ms", "max_ms", "count"), ("name", "mean_ms", 1e-3, "mean", "count")),
        (("name", "median_us", "p95_us"), ("name", "median_us", 1e-6, "median", None)),
        (("layer", "time per call (us)", "calls"), ("layer", "time per call (us)", 1e-6, "mean", "calls")),
        (("layer", "end to end latency (s)"), ("layer", "end to end latency (s)", 1.0, "total", None)),
        (("layer_name", "elapsed milliseconds"), ("layer_name", "elapsed milliseconds", 1e-3, "total", None)),
    ],
)
def test_headers_of_real_tools(headers, expected):
    assert choose(*headers) == expected


@pytest.mark.parametrize(
    "header",
    [
        "Throughput (GB/s)",
        "GFLOP/s",
        "bytes_per_s",
        "tokens/s",
        "Percent of total time (%)",
        "min_ms",
        "p95_ms",
        "start_us",
    ],
)
def test_rates_percentages_and_moments_are_no_times(header):
    assert time_columns([header]) == []


def test_a_unit_in_the_cells_will_do():
    assert choose("name", "time", cells_with_unit=("time",))[1:3] == ("time", None)


def test_a_time_without_a_unit_is_an_error_that_says_how_to_give_one():
    with pytest.raises(InputFileError, match=r"'latency' has no unit.*'latency_ms'.*'12 ms'"):
        choose("name", "latency")


@pytest.mark.parametrize(
    ("header", "unit"), [("time (h)", 3600.0), ("time_hours", 3600.0), ("Duration [minutes]", 60.0), ("time_s", 1.0)]
)
def test_long_runs_have_minutes_and_hours(header, unit):
    assert choose("name", header)[1:3] == (header, unit)


def test_a_unit_that_is_none_is_replaced_and_not_continued():
    with pytest.raises(InputFileError, match=r"'time \(ticks\)' has no unit.*, as in 'time \(ms\)'"):
        choose("name", "time (ticks)")


def test_min_is_the_least_time_and_the_message_says_so():
    with pytest.raises(InputFileError, match="'min' is taken for the least one: write 'minutes'"):
        choose("name", "time_min")
    assert time_columns(["h", "w", "gpu hours"]) == [], "sizes of an image and what a run costs"


def test_a_missing_column_lists_what_there_is():
    with pytest.raises(InputFileError, match="no column holds a name; the columns are 'a', 'time_ms'"):
        choose("a", "time_ms")
    with pytest.raises(InputFileError, match="no column holds a time; the columns are 'name', 'size'"):
        choose("name", "size")


def test_a_choice_between_times_is_noted():
    columns = choose_columns(["name", "fwd_time_ms", "bwd_time_ms"], lambda _: False, place="")
    assert columns.notes == ("Times come from column 'fwd_time_ms', not from 'bwd_time_ms'.",)


def test_a_limit_or_a_prediction_is_the_time_only_where_nothing_was_measured():
    assert choose("name", "bound_time_ms", "predicted_ms", "median_ms")[1] == "median_ms"
    assert choose("name", "ideal_kernel_time_us", "time_us")[1] == "time_us"
    columns = choose_columns(["name", "predicted_ms"], lambda _: False, place="")
    assert columns.notes == ("Times come from column 'predicted_ms': a limit or a prediction, not what was measured.",)


def test_ranges_may_nest_and_it_is_said():
    columns = choose_columns(["Total Time (ns)", "Range"], lambda _: False, place="")
    assert "nest" in columns.notes[0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "µs", "μs", "ns"])
def test_units_are_a_thousand_apart(unit):
    power = {"s": 0, "m": 3, "u": 6, "µ": 6, "μ": 6, "n": 9}[unit[0]]
    assert unit_s(unit) == pytest.approx(10.0**-power)
    assert unit_s(unit + "ec") == unit_s(unit)


@given(st.lists(st.text(max_size=20), max_size=8))
def test_any_headers_give_columns_or_a_message(headers):
    with contextlib.suppress(InputFileError):
        columns = choose_columns(headers, lambda _: True, place="p.csv")
        assert columns.name != columns.time.index


@pytest.mark.parametrize(
    ("headers", "chosen"),
    [
        (["name", "total_duration_us", "Kernel Time (µs)_sum"], 2),  # host time of operators, and that of their kernels
        (["name", "duration_us", "kernel_time_us"], 2),
        (["name", "time_ms", "gpu_time_ms"], 2),
        (["name", "cpu_time_ms", "time_ms"], 2),
        (["name", "cuda_time_us", "time_us"], 1),
    ],
)
def test_time_on_the_device_is_preferred(headers: list[str], chosen: int) -> None:
    assert choose(*headers)[1] == headers[chosen]
