"""Files: every bad one has a message, and a write leaves the old file or the new one."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfmodel import files
from perfmodel.errors import InputFileError, UsageError
from perfmodel.files import read_document, read_text, write_atomic, written_atomic


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a.toml", "x = 1", {"x": 1}),
        ("a.yaml", "x: 1", {"x": 1}),
        ("a.yml", "- 1", [1]),
        ("a.json", '{"x": 1}', {"x": 1}),
        (
            "merged.yaml",
            "a: {b: &b {x: 1, y: 1}}\nc: {<<: *b, x: 2}",
            {"a": {"b": {"x": 1, "y": 1}}, "c": {"x": 2, "y": 1}},
        ),
        ("same.json", '{"x": 1, "x": 1}', {"x": 1}),
        ("bom.json", '\ufeff{"x": 1}', {"x": 1}),
    ],
)
def test_documents_read_packed_or_not(tmp_path: Path, name: str, text: str, value: object) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_document(tmp_path / name) == value
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_document(packed) == value


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.toml", b"x = \ny = 1", "not valid TOML.*line 1"),
        ("end.toml", b"x = ", "not valid TOML.*at end of document"),
        ("a.yaml", b"x: [1", "not valid YAML.*line"),
        ("a.json", b'{"x": 1', "not valid JSON.*line 1"),
        ("deep.json", b"[" * 100_000, "not valid JSON|nested too deeply"),
        ("a.toml", b"x = 1\nx = 2", "not valid TOML: Cannot overwrite"),
        ("a.yaml", b"- {y: 1, x: 1}\n- y: 1\n  x: 1\n  y: 2", "not valid YAML: the key 'y' stands twice.*line 4"),
        ("a.json", b'[{"y": {"x": 1, "z": 1, "x": 2}}]', "not valid JSON: the key 'x' stands twice"),
        ("a.json", b"", "empty"),
        ("a.json", b" \n", "empty"),
        ("a.json", b'{"x": \0}', "NUL"),
        ("a.json", b'{\n"x": "\xff"}', "line 2 is not UTF-8"),
        ("a.ini", b"x=1", "unknown suffix '.ini'"),
        ("a", b"x=1", "has no suffix"),
        ("a.json.gz", b"\x1f\x8b\x08 cut", "not a whole gzip"),
        ("a.ini.gz", gzip.compress(b"x=1", mtime=0), "unknown suffix '.ini'"),
    ],
)
def test_bad_documents_are_named(tmp_path: Path, name: str, data: bytes, part: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputFileError, match=part) as caught:
        read_document(tmp_path / name)
    assert name in str(caught.value)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="no such file"):
        read_text(tmp_path / "none.toml")
    with pytest.raises(InputFileError, match="directory"):
        read_text(tmp_path)
    with pytest.raises(InputFileError, match="cannot be read"):
        read_text("a\0b")


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "INPUT", "INPUT"),
        ("validate", "INPUT"),
        ("hardware", "show", "INPUT"),
        ("hardware", "lint", "INPUT"),
        ("analyze", "INPUT", "--on", "l4"),
        ("plot", "INPUT", "-o", "x.png"),
        ("show", "INPUT"),
        ("calibrate", "--from", "INPUT", "--on", "l4"),
        ("roi", "INPUT"),
        ("diagnose", "INPUT"),
        ("whatif", "INPUT", "INPUT"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_pipes_and_endless_devices_are_one_message_and_exit_code_3(
    arguments: tuple[str, ...], perfmodel: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")  # nobody writes to it: opening it would wait for ever
    os.symlink("/dev/zero", "zero.json")
    for name in ("pipe.json", "zero.json"):
        ran = perfmodel(*(name if word == "INPUT" else word for word in arguments))
        assert ran.code == 3, ran.err
        assert f"{name}: is a pipe or a device" in ran.err
        assert ran.err.count("\n") == 1
    assert sorted(os.listdir()) == ["pipe.json", "zero.json"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_text_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(files, "LARGEST_TEXT_BYTES", 10_000)
    # 20 kB of blanks in 60 B: a gzip file may unpack to a thousand times its size
    for size, fits in ((9_000, True), (20_000, False)):
        text = b'{"x": 1}'.ljust(size)
        path = tmp_path / f"{size}.json"
        path.write_bytes(gzip.compress(text) if packed else text)
        if fits:
            assert read_document(path) == {"x": 1}
        else:
            with pytest.raises(InputFileError, match=r"is larger than 0\.01 MB, unpacked"):
                read_document(path)


def test_a_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o640)
    write_atomic(target, "new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target = tmp_path / "real.txt"
    target.write_text("old")
    (tmp_path / "link.txt").symlink_to(target)
    write_atomic(tmp_path / "link.txt", "new")
    assert target.read_text() == "new"
    assert (tmp_path / "link.txt").is_symlink()


@pytest.mark.parametrize("place", ["folder", "none/a.txt", "a\0b"])
def test_unwritable_places_are_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_atomic(f"{tmp_path}/{place}", "x")


def test_what_is_written_a_piece_at_a_time_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with written_atomic(target) as stream:
        stream.write(b"o")
        assert not target.exists()
        stream.write(b"ld")
    assert target.read_text() == "old"

    def broken() -> None:
        with written_atomic(target) as stream:
            stream.write(b"new")
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        broken()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]
