"""The file of a run: one writer at a time, an existing one is safe, and a killed writer blocks nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from perfmodel.errors import UsageError
from perfmodel.records.output_file import measurements_in, output_file

HOLDER = """
import sys, time
from perfmodel.records.output_file import output_file
with output_file(sys.argv[1], keep=True):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of ``record.json``."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "record.json")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_new_or_an_empty_file_needs_no_option(tmp_path):
    path = tmp_path / "record.json"
    with output_file(path):
        path.touch()
    with output_file(path):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"], "the lock is gone"


def test_an_existing_file_needs_an_option_and_stays_as_it_is(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("measurements")
    with pytest.raises(UsageError, match=r"exists already.*--resume.*--overwrite"), output_file(path):
        raise AssertionError("was entered")
    assert path.read_text() == "measurements"
    for option in ({"keep": True}, {"replace": True}):
        with output_file(path, **option):
            assert path.read_text() == "measurements", "until the block writes"


def test_another_writer_is_named(tmp_path, holder):
    path = tmp_path / "record.json"
    for option in ({}, {"keep": True}, {"replace": True}):
        with (
            pytest.raises(UsageError, match=f"is being written by process {holder.pid}, since "),
            output_file(path, **option),
        ):
            raise AssertionError("was entered")


def test_a_link_to_the_file_has_the_same_lock(tmp_path, holder):
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "record.json")
    with pytest.raises(UsageError, match="is being written"), output_file(link):
        raise AssertionError("was entered")


def test_other_files_are_not_locked(tmp_path, holder):
    with output_file(tmp_path / "other.json"):
        pass


def test_a_killed_writer_blocks_nobody(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with output_file(tmp_path / "record.json"):
        pass


def test_the_lock_ends_with_an_error_in_the_block(tmp_path):
    path = tmp_path / "record.json"
    with pytest.raises(ValueError, match="why"), output_file(path):
        raise ValueError("why")
    with output_file(path):
        pass


def test_a_device_is_neither_locked_nor_checked():
    with output_file(os.devnull), output_file(os.devnull):
        pass


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(UsageError, match="folder does not exist"), output_file(tmp_path / "none" / "record.json"):
        raise AssertionError("was entered")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('{\n  "schema_version": 2,\n  "command": "bench",', True),
        ('{"command":"bench"}', True),
        ('{"schema_version": 2, "command": "analyze", "context": {"was": "bench"}}', False),
        ("op,command\n", False),
        ("", False),
    ],
)
def test_measurements_are_told_from_the_beginning_of_a_file(tmp_path, text, holds):
    (tmp_path / "a.json").write_text(text)
    assert bool(measurements_in(tmp_path / "a.json")) == holds
    assert not measurements_in(tmp_path / "none.json")
