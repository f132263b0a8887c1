"""Numbers and units as profilers write them."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.formats.text.numbers import NumberFormat, number_format, unit_s, whole_count


@pytest.mark.parametrize("unit", ["s", "ms", "us", "µs", "μs", "ns"])
def test_units_are_a_thousand_apart(unit):
    power = {"s": 0, "m": 3, "u": 6, "µ": 6, "μ": 6, "n": 9}[unit[0]]
    assert unit_s(unit) == pytest.approx(10.0**-power)
    assert unit_s(unit + "ec") == unit_s(unit)


@pytest.mark.parametrize("word", ["", "GB", "mins", "sms", "%", "ss"])
def test_other_words_are_not_units_of_time(word):
    assert unit_s(word) is None


@pytest.mark.parametrize(
    ("texts", "decimal"),
    [
        (["1,215,000,000.00"], "."),
        (["27.595.520"], ","),
        (["1,234"], "."),  # fits both
        (["1.234", "12,5"], ","),
        (["1.234", "0.5"], "."),
        (["1'234'567", "1 234 567,5"], ","),
        (["12", "n/a"], "."),
        ([], "."),
    ],
)
def test_all_numbers_of_a_file_decide_its_decimal_mark(texts, decimal):
    assert number_format(texts).decimal == decimal


def test_two_decimal_marks_in_one_file_are_an_error():
    with pytest.raises(InputFileError, match=r"p.csv: the numbers '1,5x?' and '1.5' use|'1.5' and '1,5' use"):
        number_format(["1,5", "1.5"], place="p.csv")


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("1,234.5", ".", 1234.5),
        ("1.234,5", ",", 1234.5),
        ("1 234", ".", 1234.0),
        ("1\u202f234,25", ",", 1234.25),
        ("-1e3", ".", -1000.0),
        ("", ".", None),
        ("nan", ".", None),
        ("inf", ".", None),
        ("1e999", ".", None),
        ("9" * 299, ".", float("9" * 299)),
        # 400 digits are above the largest float64, 1.8e308, and would become infinity
        ("9" * 400, ".", None),
    ],
)
def test_numbers(text, decimal, number):
    assert NumberFormat(decimal).parse(text) == number


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("6,496", 6496), ("2.0", 2), ("-1", None), ("n/a", None), (str(2**53), None)]
)
def test_counts(text, count):
    assert NumberFormat().count(text) == count


def test_counts_end_where_float64_loses_whole_numbers():
    assert whole_count(2.0**53 - 1) == 2**53 - 1
    assert float(2**53 + 1) == 2.0**53
    assert whole_count(2.0**53) is None
    assert whole_count(math.nan) is whole_count(math.inf) is None


@given(number=st.floats(allow_nan=False, allow_infinity=False))
@example(number=-0.0)
@example(number=5e-324)
@example(number=1.7976931348623157e308)
def test_what_python_prints_is_read_back(number):
    assert NumberFormat().parse(repr(number)) == number


@given(text=st.text("0123456789.,'eE+-naif \u202f", max_size=12), decimal=st.sampled_from(".,"))
@example(text="1e999", decimal=".")
@example(text="nan", decimal=".")
@example(text="", decimal=",")
def test_any_text_is_a_finite_number_or_none(text, decimal):
    number = NumberFormat(decimal).parse(text)
    assert number is None or math.isfinite(number)
