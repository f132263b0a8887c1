"""Quantities with units: parsing input, printing for people.

Inside perfmodel every quantity is a float in SI base units (B, B/s, FLOP, FLOP/s, s, Hz, W, V).
Prefixes exist only in files and in print. GB = 1e9 B, GiB = 2^30 B.
"""

from __future__ import annotations

import math
import re

from perfmodel.errors import PerfModelError, UsageError

HOUR_S, DAY_S = 3600.0, 86400.0
#: the slowest and the fastest network of one GPU that is believed [B/s]
SLOWEST_NETWORK, FASTEST_NETWORK = 1e6, 1e15

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9, "p": 1e-12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_LARGE = {**_DECIMAL, **_BINARY}

# canonical unit -> (spellings, prefixes that make sense for it)
_UNITS: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "B": (("B", "byte", "bytes"), _LARGE),
    "B/s": (("B/s", "Bps"), _LARGE),
    "FLOP": (("FLOP", "OP"), _DECIMAL),
    "FLOP/s": (("FLOP/s", "FLOPS", "OP/s", "OPS"), _DECIMAL),
    "s": (("s", "sec", "second", "seconds"), {"": 1.0, **_SMALL}),  # and `_LONG_TIMES`
    "Hz": (("Hz",), _DECIMAL),
    "T/s": (("T/s",), _DECIMAL),
    "W": (("W",), {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6}),
}
#: units of long times, which have no prefixes [s]
_LONG_TIMES = {
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), HOUR_S),
    **dict.fromkeys(("d", "day", "days"), DAY_S),
}
#: the least fraction that is printed with its figures, and what rounded clocks leave of nothing
_LEAST_FRACTION, _ROUNDED = 1e-3, 1e-6
_TEXT = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*?)?\s*$")
_FRACTION = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*")
_BITS = re.compile(r"((?:[kKMGTP]i?)?)(b|bit|bits)(/s|ps)?$")


def parse_quantity(text: str | float, unit: str, *, place: str = "") -> float:
    """Return a quantity as a float in the SI base unit ``unit``.

    Parameters
    ----------
    text : a number with a unit, as in ``"1555 GB/s"``; a bare number is in SI base units.
    unit : one of B, B/s, FLOP, FLOP/s, s, Hz, T/s (transfers), W.
    place : location of the text, for the message.

    Raises
    ------
    UsageError
        When it is not a number, has another unit, is in bits instead of bytes, or is not finite.

    >>> parse_quantity("1555 GB/s", "B/s")
    1555000000000.0
    >>> parse_quantity("40 MiB", "B")
    41943040.0
    >>> parse_quantity("2.4 us", "s"), parse_quantity("10 min", "s")
    (2.4e-06, 600.0)
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UsageError(f"{text!r} is not a quantity in {unit}.", place=place)
    if not isinstance(text, str):
        return _finite(text, repr(text), unit, place)
    match = _TEXT.match(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a number with a unit.", place=place, remedy=f"Write it as in {_example(unit)}."
        )
    number, suffix = match.group(1).replace("_", ""), match.group(2) or ""
    return _finite(float(number) * _scale(suffix, unit, text, place), repr(text), unit, place)


def parse_duration(text: str, *, place: str = "", written: str = "") -> float:
    """Return a duration [s] where a bare number would be read as milliseconds by one and as seconds by another.

    Parameters
    ----------
    text : a number with a unit, or 0.
    place : location of the text, for the message.
    written : what stands before it, for the message.

    Raises
    ------
    UsageError
        As `parse_quantity`, and when a number other than 0 has no unit.

    >>> parse_duration("100ms")
    0.1
    """
    text = text.strip()
    value_s = parse_quantity(text, "s", place=place)
    if value_s != 0 and not text[-1].isalpha():
        remedy = f"Write {written}{text}ms or {written}{text}s."
        raise UsageError(f"{text!r} has no unit.", place=place, remedy=remedy)
    return value_s


def _finite(value: float, shown: str, unit: str, place: str) -> float:
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise UsageError(f"{shown} is not a finite quantity in {unit}.", place=place)
    return value


def _example(unit: str) -> str:
    return {
        "B": "'80 GiB'",
        "B/s": "'1555 GB/s'",
        "FLOP/s": "'312 TFLOP/s'",
        "s": "'2.4 us' or '10 min'",
        "Hz": "'1410 MHz'",
    }.get(unit, f"'1 {unit}'")


def _scale(suffix: str, unit: str, text: str, place: str) -> float:
    """Return the factor from the written suffix to the base unit."""
    if not suffix:
        return 1.0
    if unit == "s" and suffix in _LONG_TIMES:
        return _LONG_TIMES[suffix]
    spellings, prefixes = _UNITS[unit]
    for spelling in spellings:
        if suffix.endswith(spelling) and suffix[: -len(spelling)] in prefixes:
            return prefixes[suffix[: -len(spelling)]]
    number = text.strip().removesuffix(suffix)
    gap = number[len(number.rstrip()) :]
    bits = _BITS.match(suffix)
    if bits and unit == ("B/s" if bits[3] else "B"):
        # "1Gb" often means bytes, "1Gbit" never does
        prefix = "Ki" if bits[1] == "ki" else bits[1]
        bytes_ = f", or write '{number}{prefix}{unit}' for bytes" if bits[2] == "b" else ""
        eighth = f"{float(number) / 8:.15g}{gap}{prefix}{unit}"
        raise UsageError(
            f"{text!r} is in bits; bytes are needed.", place=place, remedy=f"Divide by 8: '{eighth}'{bytes_}."
        )
    examples = _respelt(number, suffix, unit) or _example(unit)
    raise UsageError(f"{text!r} is not in {unit}.", place=place, remedy=f"Write it as in {examples}.")


def _respelt(number: str, suffix: str, unit: str) -> str:
    """Return a size in bytes whose unit has letters of the wrong size, as "1gb", as it is to be written, or ""."""
    right = {f"{prefix}B".lower(): prefix for prefix in ("k", "M", "G", "T", "P", *_BINARY)}.get(suffix.lower())
    if unit != "B" or right is None:
        return ""
    other = "" if right in _BINARY else f" or '{number}{right.upper()}iB'"
    return f"'{number}{right}B'{other}"


_NETWORK = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([kKMGT])(?:bit/s|b/s|bps|bit|b)\s*$")


def parse_network_rate(text: str, *, place: str = "") -> float:
    """Return the rate of a network link [B/s], which is usually written in bits: "400 Gb/s", "400Gbit/s", "50 GB/s".

    Raises
    ------
    UsageError
        When it is neither a rate in bits nor in bytes, or not above 0.

    >>> parse_network_rate("400Gb/s")
    50000000000.0
    >>> parse_network_rate("25 GB/s")
    25000000000.0
    """
    remedy = "Write it as in '400 Gb/s' (bits) or '50 GB/s' (bytes), for one GPU and direction."
    match = _NETWORK.match(text) if isinstance(text, str) else None
    bare = not isinstance(text, str) or text.strip()[-1:].isdigit()
    if match:
        rate = float(match.group(1)) * _DECIMAL[match.group(2)] / 8.0
    elif bare or (parsed := try_quantity(text, "B/s")) is None:
        raise UsageError(f"{text!r} is not a rate of a network.", place=place, remedy=remedy)
    else:
        rate = parsed
    if rate <= 0:
        raise UsageError(f"{text!r} is not above 0.", place=place, remedy=remedy)
    return rate


def network_text(bytes_per_s: float) -> str:
    """Return the rate of a network as it is usually written, in bits; `parse_network_rate` reads it back.

    >>> network_text(50e9), network_text(1.25e9)
    ('400Gb/s', '10Gb/s')
    """
    return f"{8.0 * bytes_per_s / 1e9:.9f}".rstrip("0").rstrip(".") + "Gb/s"


def try_quantity(text: str | float, unit: str) -> float | None:
    """Return `parse_quantity`, or None if the text does not parse."""
    try:
        return parse_quantity(text, unit)
    except PerfModelError:
        return None


def parse_fraction(text: str, place: str = "") -> float:
    """Return a fraction written as a percentage or as a number below 1: ``5%`` and ``0.05`` are the same.

    Parameters
    ----------
    text : what was written; not negative.
    place : the option or key, for the message.

    Raises
    ------
    UsageError
        When it is neither. A bare number from 1 up is refused: ``5`` could mean 5 % or 500 %.

    >>> parse_fraction("5%"), parse_fraction("0.05"), parse_fraction("150 %")
    (0.05, 0.05, 1.5)
    """
    match = _FRACTION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a percentage or a fraction.", place=place, remedy="Write 5% or 0.05.")
    number, percent = float(match.group(1)), match.group(2)
    if not percent and number >= 1:
        written = f"{text.strip()}%"
        remedy = f"Write {written} or 100%." if number == 1 else f"Write {written} for per cent."
        raise UsageError(f"{text!r} has no per cent sign and is 1 or more.", place=place, remedy=remedy)
    return number / 100 if percent else number


def format_fraction(value: float) -> str:
    """Return a fraction in per cent: of less than a tenth of a per cent, that it is less.

    What rounded clocks leave of nothing is 0, as on HTML pages (``ROUNDED`` of their ``base.js``).

    >>> format_fraction(0.254), format_fraction(-0.02), format_fraction(4e-4), format_fraction(-4e-4)
    ('25.4 %', '-2.0 %', '<0.1 %', '>-0.1 %')
    >>> format_fraction(0.0), format_fraction(2e-7)
    ('0 %', '0 %')
    """
    if abs(value) < _ROUNDED:
        return "0 %"
    if abs(value) < _LEAST_FRACTION:
        return "<0.1 %" if value > 0.0 else ">-0.1 %"
    return f"{100 * value:.1f} %"


def format_si(value: float, unit: str, digits: int = 4) -> str:
    """Return a number with an SI prefix: ``format_si(4.405e-4, "s") == "440.5 us"``.

    Counts without a unit print as they are; a quantity that is not finite prints as ``-``.

    >>> format_si(1.555e12, "B/s")
    '1.555 TB/s'
    >>> format_si(0.0, "s")
    '0 s'
    >>> format_si(12.542, "FLOP/B")
    '12.54 FLOP/B'
    """
    if value is None or not math.isfinite(value):
        return "-"
    if unit not in _PREFIXED or value == 0:
        return f"{_digits(value, digits)} {unit}".rstrip()
    prefixes = _PRINT_SMALL if unit == "s" else _PRINT_LARGE
    for factor, prefix in prefixes:
        if abs(value) >= factor * (1 - 0.5 * 10.0**-digits):
            return f"{_digits(value / factor, digits)} {prefix}{unit}"
    factor, prefix = prefixes[-1]
    return f"{_digits(value / factor, digits)} {prefix}{unit}"


#: units of long times, the longest first [s]
_LONG_UNITS = ((DAY_S, "d"), (HOUR_S, "h"), (60.0, "min"))


def format_long(seconds: float, digits: int = 3) -> str:
    """Return a time for people that may be long: in days, hours or minutes from one of them on.

    >>> format_long(90.0), format_long(7200.0), format_long(2.0), format_long(259200.0)
    ('1.5 min', '2 h', '2 s', '3 d')
    """
    for unit_s, unit in _LONG_UNITS:
        if unit_s <= abs(seconds) < math.inf:
            return f"{seconds / unit_s:.{digits}g} {unit}"
    return format_si(seconds, "s", digits)


_LARGE_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def format_large(number: float, digits: int = 4) -> str:
    """Return a large count as people write tokens and parameters: in thousands, millions, billions or trillions.

    >>> format_large(1e9), format_large(8.03e9, 3), format_large(15.2e12), format_large(999.0)
    ('1 B', '8.03 B', '15.2 T', '999')
    """
    for factor, suffix in _LARGE_COUNTS:
        if factor * (1 - 0.5 * 10.0**-digits) <= abs(number) < math.inf:
            return f"{_digits(number / factor, digits)} {suffix}"
    return format_si(number, "", digits)


def format_interval(low: float | None, high: float | None, unit: str, digits: int = 3) -> str:
    """Return an interval, with one unit where both ends have the same prefix; ``-`` where an end is not finite.

    >>> format_interval(1.5e-6, 2e-6, "s"), format_interval(9e-4, 1.2e-3, "s")
    ('1.5-2 us', '900 us-1.2 ms')
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return "-"
    (first, one), (last, other) = format_si(low, unit, digits).split(), format_si(high, unit, digits).split()
    return f"{first}-{last} {other}" if one == other else f"{first} {one}-{last} {other}"


_PREFIXED = frozenset(_UNITS) | {"FLOP/s/W"}
_PRINT_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
_PRINT_LARGE = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def _digits(value: float, digits: int) -> str:
    """Print ``digits`` significant digits, without an exponent for ordinary sizes."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in the right form.

    >>> format_count(1, "row"), format_count(2000, "row"), format_count(2, "entry", "entries")
    ('1 row', '2,000 rows', '2 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_binary(size_bytes: float) -> str:
    """Return a capacity in binary prefixes: ``format_binary(2**30) == "1 GiB"``.

    >>> format_binary(41943040.0)
    '40 MiB'
    """
    for factor, prefix in ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki")):
        if size_bytes >= factor:
            return f"{_digits(size_bytes / factor, 4)} {prefix}B"
    return f"{_digits(size_bytes, 4)} B"
