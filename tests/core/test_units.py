"""Units: what is written reads back as the right number, and everything else is refused."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.units import format_binary, format_long, format_si, parse_fraction, parse_quantity
from perfmodel.errors import PerfModelError, UsageError


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1555 GB/s", "B/s", 1555e9),
        ("1.555TB/s", "B/s", 1.555e12),
        ("80 GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("164 KiB", "B", 164 * 1024),
        ("312 TFLOP/s", "FLOP/s", 312e12),
        ("312 TFLOPS", "FLOP/s", 312e12),
        ("624 TOP/s", "FLOP/s", 624e12),
        ("2.4 us", "s", 2.4e-6),
        ("2.4 µs", "s", 2.4e-6),
        ("12 ms", "s", 12e-3),
        ("1410 MHz", "Hz", 1.41e9),
        ("400 W", "W", 400.0),
        ("1_000 B", "B", 1000.0),
        ("3e3 B", "B", 3000.0),
        ("10min", "s", 600.0),
        ("5 minutes", "s", 300.0),
        ("1h", "s", 3600.0),
        ("0.5d", "s", 43200.0),
        ("2 days", "s", 172800.0),
        (7.5, "s", 7.5),
        ("0.25", "s", 0.25),
    ],
)
def test_quantities_read(text: str | float, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "part"),
    [
        ("2400 Gb/s", "B/s", "bits"),
        ("2400 Gbit/s", "B/s", "bits"),
        ("1555 GB", "B/s", "not in B/s"),
        ("312 TFLOP", "FLOP/s", "not in FLOP/s"),
        ("fast", "B/s", "not a number"),
        ("", "s", "not a number"),
        ("1e999 s", "s", "not a finite"),
        (float("nan"), "s", "not a finite"),
        (True, "s", "not a quantity"),
        ("12 kW h", "W", "not in W"),
        ("2 weeks", "s", r"is not in s\. Write it as in '2\.4 us' or '10 min'\.$"),
        ("5 mmin", "s", "not in s"),  # long times have no prefixes
        ("5 min", "Hz", "not in Hz"),
        ("5 Gb/s", "B", "not in B"),
        ("1gb", "B", r"is not in B\. Write it as in '1GB' or '1GiB'\.$"),
        ("80 gib", "B", r"is not in B\. Write it as in '80 GiB'\.$"),
        ("1gb/s", "B/s", r"Write it as in '1555 GB/s'\.$"),
        (10**400, "B", "not a finite"),
    ],
)
def test_other_text_is_refused(text: str | float, unit: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        parse_quantity(text, unit)


@pytest.mark.parametrize(
    ("text", "unit", "remedy"),
    [
        ("50 Mib", "B", "Divide by 8: '6.25 MiB', or write '50 MiB' for bytes."),
        ("1Gb", "B", "Divide by 8: '0.125GB', or write '1GB' for bytes."),
        ("3_000 kib", "B", "Divide by 8: '375 KiB', or write '3_000 KiB' for bytes."),
        ("2400 Gbit/s", "B/s", "Divide by 8: '300 GB/s'."),
        ("400Gbps", "B/s", "Divide by 8: '50GB/s', or write '400GB/s' for bytes."),
    ],
)
def test_bits_are_refused_with_what_they_are_in_bytes(text: str, unit: str, remedy: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_quantity(text, unit)
    assert refused.value.message == f"{text!r} is in bits; bytes are needed."
    assert refused.value.remedy == remedy
    for written in remedy.split("'")[1::2]:
        parse_quantity(written, unit)


@given(st.text(max_size=30))
def test_any_text_gives_a_finite_number_or_our_error(text: str) -> None:
    with contextlib.suppress(PerfModelError):
        assert math.isfinite(parse_quantity(text, "B/s"))


@given(st.floats(1e-9, 1e9, allow_nan=False), st.sampled_from(["s", "B/s", "FLOP/s"]))
def test_what_is_printed_reads_back(value: float, unit: str) -> None:
    assert parse_quantity(format_si(value, unit), unit) == pytest.approx(value, rel=1e-3, abs=1e-12)


@given(st.floats(1e-9, 1e9, allow_nan=False))
def test_long_times_read_back(value: float) -> None:
    assert parse_quantity(format_long(value), "s") == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (440.5e-6, "s", "440.5 us"),
        (999.96e-6, "s", "1 ms"),
        (999.94e-6, "s", "999.9 us"),
        (7.716e-6, "s", "7.716 us"),
        (1.5e-10, "s", "0.15 ns"),
        (137.44e9, "FLOP", "137.4 GFLOP"),
        (1.555e12, "B/s", "1.555 TB/s"),
        (0.0833333, "FLOP/B", "0.08333 FLOP/B"),
        (1365.33, "FLOP/B", "1365 FLOP/B"),
        (0.0, "B", "0 B"),
        (math.nan, "s", "-"),
        (math.inf, "s", "-"),
        (-2e-3, "s", "-2 ms"),
        # ordinary numbers without a prefix are written out, however few digits count
        (123456.0, "FLOP/B", "123456 FLOP/B"),
        (999999.0, "FLOP/B", "999999 FLOP/B"),
        (1e6, "FLOP/B", "1e+06 FLOP/B"),
        (1e-4, "FLOP/B", "0.0001 FLOP/B"),
    ],
)
def test_printing(value: float, unit: str, text: str) -> None:
    assert format_si(value, unit) == text


def test_capacities_print_in_binary() -> None:
    assert format_binary(40 * 2**20) == "40 MiB"
    assert format_binary(80 * 2**30) == "80 GiB"
    assert format_binary(100.0) == "100 B"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5%", 0.05),
        ("0.05", 0.05),
        (" .5 ", 0.5),
        ("0", 0.0),
        ("0%", 0.0),
        ("100%", 1.0),
        ("150 %", 1.5),
        ("0.999", 0.999),
    ],
)
def test_fractions_read(text: str, value: float) -> None:
    assert parse_fraction(text) == pytest.approx(value, abs=0)


@pytest.mark.parametrize("text", ["1", "5", "1.0", "100"])
def test_a_bare_number_from_one_up_is_no_fraction(text: str) -> None:
    """5 could mean 5 % or 500 %."""
    with pytest.raises(UsageError, match=f"^--error: '{text}' has no per cent sign and is 1 or more. Write {text}%"):
        parse_fraction(text, "--error")


def test_a_bare_1_may_be_the_whole() -> None:
    with pytest.raises(UsageError, match=r"Write 1% or 100%\.$"):
        parse_fraction("1", "--error")


@pytest.mark.parametrize("text", ["", "five", "-5%", "5 percent", "5%%", "1e-2", "nan", "inf"])
def test_other_text_is_no_fraction(text: str) -> None:
    with pytest.raises(UsageError, match="is not a percentage or a fraction"):
        parse_fraction(text, "--error")


@pytest.mark.parametrize(("text", "watts"), [("500 mW", 0.5), ("0.7 kW", 700.0), ("2 MW", 2e6), ("700 W", 700.0)])
def test_power_reads_with_its_prefixes(text: str, watts: float) -> None:
    assert parse_quantity(text, "W") == pytest.approx(watts)


@pytest.mark.parametrize(("power", "text"), [(10, "1 KiB"), (20, "1 MiB"), (30, "1 GiB"), (40, "1 TiB")])
def test_each_binary_prefix_starts_at_its_own_power(power: int, text: str) -> None:
    assert format_binary(2.0**power) == text
    assert format_binary(2.0**power * (1 - 1e-6)) != text


@pytest.mark.parametrize(("prefixes", "step"), [("kMGTPE", 1000.0), (("Ki", "Mi", "Gi", "Ti", "Pi"), 1024.0)])
def test_each_prefix_is_the_next_power(prefixes: Sequence[str], step: float) -> None:
    for power, prefix in enumerate(prefixes, start=1):
        assert parse_quantity(f"3 {prefix}B", "B") == 3.0 * step**power
        assert parse_quantity(f"3 {prefix}B/s", "B/s") == 3.0 * step**power


@pytest.mark.parametrize(("prefix", "power"), [("m", -3), ("u", -6), ("µ", -6), ("μ", -6), ("n", -9), ("p", -12)])
def test_each_prefix_of_a_time_is_its_power_of_ten(prefix: str, power: int) -> None:
    assert parse_quantity(f"3 {prefix}s", "s") == pytest.approx(3.0 * 10.0**power)


@pytest.mark.parametrize(("prefixes", "unit", "step"), [(" kMGTPE", "B/s", 1e3), (" mun", "s", 1e-3)])
def test_each_prefix_is_printed_from_its_own_power_on(prefixes: str, unit: str, step: float) -> None:
    for power, prefix in enumerate(prefixes):
        assert format_si(step**power, unit) == f"1 {prefix.strip()}{unit}"
