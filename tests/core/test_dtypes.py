"""Data types: sizes in memory, and the spellings of other tools."""

from __future__ import annotations

import re

import pytest

from perfmodel.core.dtypes import _ALIASES, DTYPE_BYTES, canonical_dtype, dtype_bytes
from perfmodel.errors import UsageError


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPE_BYTES if dtype != "tf32"])
def test_a_dtype_takes_the_bits_of_its_name(dtype: str) -> None:
    bits = re.search(r"\d+", dtype)
    assert bits is not None
    assert dtype_bytes(dtype) == int(bits.group()) / 8


def test_tf32_is_stored_as_fp32() -> None:
    """Only the tensor engine rounds it to 19 bits."""
    assert dtype_bytes("tf32") == dtype_bytes("fp32")


@pytest.mark.parametrize(("spelling", "dtype"), _ALIASES.items())
def test_spellings_of_other_tools_are_understood(spelling: str, dtype: str) -> None:
    assert canonical_dtype(spelling) == canonical_dtype(f"torch.{spelling}") == dtype
    # a spelling that states its bits is a dtype of as many
    bits = re.search(r"(?:float|fp)(\d+)", spelling)
    assert bits is None or dtype_bytes(dtype) == int(bits.group(1)) / 8


def test_capitals_are_forgiven_and_other_names_are_refused() -> None:
    assert canonical_dtype(" BF16 ") == "bf16"
    with pytest.raises(UsageError, match=r"gemm: .*'fp17'.*fp16"):
        canonical_dtype("fp17", place="gemm")
