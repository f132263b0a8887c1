"""Files that people pass and that are not read: each message says what they are and what to do first."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats import read_profile

TRACE = b'{"traceEvents": []}\n' * 40


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("trace.json", TRACE)
    return made.getvalue()


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(TRACE)
        archive.addfile(member, io.BytesIO(TRACE))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.nsys-rep", b"\x00\x01\x02" * 500, "nsys export --type sqlite "),
        ("x.qdrep", b"\x00\x01\x02" * 500, "nsys export --type sqlite "),
        ("y.ncu-rep", b"\x00\x01\x02" * 500, "ncu --csv --page raw --import "),
        ("renamed", b"NVR\x00" + b"\x00\x01" * 500, "ncu --csv --page raw --import "),
        ("trace.json.xz", lzma.compress(TRACE), "packed with xz. Unpack it first: unxz "),
        ("trace.json.bz2", bz2.compress(TRACE), "packed with bzip2. Unpack it first: bunzip2 "),
        ("trace.json.zst", b"\x28\xb5\x2f\xfd\x00\x00", "packed with zstd. Unpack it first: unzstd "),
        ("trace.zip", _zip(), "packed with zip. Unpack it first: unzip "),
        ("times.xlsx", _zip(), "Save it as CSV first"),
        ("1_results.pftrace", b"\x0a\x00\x12" * 500, "binary trace of Perfetto. Write CSV: rocprofv3 "),
        ("1_results.json", b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "JSON of rocprofv3. Write CSV: rocprofv3 "),
        (
            "results.json",
            b'{ "traceEvents":[{}\n,{"ph":"X","ts":"1","dur":"2","args":{"BeginNs":"1000","EndNs":"3000"}}]}',
            "JSON of rocprof. Give results.csv or results.stats.csv",
        ),
        ("trace.tar.gz", _tar(), "tar archive. Unpack it first: tar xf "),
        ("trace.json", TRACE.decode().encode("utf-16")[:-1], "is UTF-16 text. Save it as UTF-8"),  # cut off
        ("trace.json", TRACE.decode().encode("utf-32")[:-1], "is UTF-32 text. Save it as UTF-8"),
        ("times.csv", "name,time_ms\na,1\n".encode("utf-16-le"), "is UTF-16 text. Save it as UTF-8"),
        (
            "times.csv.gz",
            gzip.compress("name,time_ms\na,1\n".encode("utf-16"), mtime=0),
            "is UTF-16 text. Save it as UTF-8",
        ),
    ],
)
@pytest.mark.parametrize("read", [read_profile, read_text])
def test_the_message_says_what_to_do_first(tmp_path: Path, name, data, said, read) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputFileError) as caught:
        read(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_other_files_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_bytes("name,time_ms\nname é,1\n".encode("utf-8-sig"))
    assert read_profile(path).total_time_s == pytest.approx(1e-3)
    path.write_bytes(b"name,time_ms\na\x00,1\n")
    with pytest.raises(InputFileError, match="NUL"):
        read_profile(path)
