"""The text of a place: what is an address, and the name of a file in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.storage.globs import is_pattern
from perfmodel.storage.place import is_remote, name_of, place_of, stem_of, suffix_of, url_of


@pytest.mark.parametrize(
    "path", ["trace.json", "/a/b.json", "C:/a.json", "a:b", "s3", "//host/a", "gemm", "m=1://2", ""]
)
def test_paths_of_this_machine_are_no_addresses(path: str) -> None:
    assert not is_remote(path)
    assert place_of(path) == path


@pytest.mark.parametrize("scheme", ["s3", "gs", "https", "http", "memory", "az", "sftp"])
def test_addresses_are_remote_whatever_the_case(scheme: str) -> None:
    url = url_of(f"{scheme.upper()}://host/a.json")
    assert url is not None
    assert url.scheme == scheme


def test_what_pathlib_does_to_an_address_is_undone() -> None:
    assert place_of(Path("s3://bucket/key.json")) == "s3://bucket/key.json"


def test_file_addresses_are_paths() -> None:
    assert place_of("file:///a/b%20c.json") == "/a/b c.json"
    assert place_of("file://localhost/a.json") == "/a.json"


def test_names_leave_out_the_query_of_a_web_address_and_of_nothing_else() -> None:
    assert name_of("https://host/a/b%20c.json.gz?token=1/2#end") == "b c.json.gz"
    assert suffix_of("https://host/a.CSV?x=.json") == ".csv"
    assert stem_of("s3://bucket/run.1/rank?.json") == "rank?"
    assert (stem_of("a/record.json.gz"), stem_of("a.gz")) == ("record", "a")
    assert name_of("a?b.json") == "a?b.json"


@given(st.text(st.characters(exclude_characters="/\0?#%", exclude_categories=["Cs"]), min_size=1))
def test_a_name_is_the_same_here_and_in_a_store(name: str) -> None:
    assert name_of(f"s3://bucket/a/{name}") == name_of(f"a/{name}")


def test_patterns_are_told_from_names(tmp_path: Path) -> None:
    (tmp_path / "a[1].json").write_text("{}")
    assert not is_pattern(tmp_path / "a[1].json")  # a file is called so
    assert is_pattern(tmp_path / "b[1].json")
    assert is_pattern("s3://bucket/rank?.json")
    assert not is_pattern("https://host/a.json?query=*")
    assert not is_pattern("http://[::1]:8000/a.json")
    assert is_pattern("https://host/rank*.json?token=1")
