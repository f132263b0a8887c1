"""s3:// against moto's server: buckets, patterns, records that grow, refusals."""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfmodel import storage
from perfmodel.errors import InputFileError, UsageError
from perfmodel.files import read_document, read_text, write_atomic
from perfmodel.formats import read_profile

moto_server = pytest.importorskip("moto.server", reason="needs moto and s3fs")
s3fs = pytest.importorskip("s3fs")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with contextlib.redirect_stdout(io.StringIO()):
        server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket."""
    from moto.backends import get_backend

    facts = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in facts.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem(anon=False).mkdir("runs")
    yield "s3://runs"
    s3fs.S3FileSystem.clear_instance_cache()
    get_backend("s3").reset()


def test_files_patterns_and_packed_profiles(bucket: str) -> None:
    for name in ("rank1", "rank0"):
        write_atomic(f"{bucket}/job/{name}.csv.gz", gzip.compress(b"name,time_ms\na,1\nb,2\n"))
    assert storage.expand([f"{bucket}/**/rank*.gz"]) == [f"{bucket}/job/rank{n}.csv.gz" for n in (0, 1)]
    assert read_profile(f"{bucket}/job/rank0*").total_time_s == pytest.approx(3e-3)
    write_atomic(f"{bucket}/a.json", "1")
    write_atomic(f"{bucket}/a.json", "2")
    assert read_document(f"{bucket}/a.json") == 2
    assert not storage.is_file(f"{bucket}/job")


def test_a_record_grows_and_is_resumed(bucket: str) -> None:
    place = f"{bucket}/run.jsonl"
    for row in ("0\n", "1\n"):
        with storage.held(place, keep=True) as copy:
            with copy.path.open("a") as stream:
                stream.write(row)
            copy.changed()
    assert read_text(place) == "0\n1\n"


def test_what_is_not_there_is_named(bucket: str) -> None:
    with pytest.raises(InputFileError, match="no such file"):
        read_text(f"{bucket}/none.json")
    with pytest.raises(InputFileError, match="no such bucket"):
        read_text("s3://none/a.json")
    with pytest.raises(InputFileError, match="this is a folder"):
        read_text(bucket)
    for place, message in (("s3://none/a.json", "no such bucket"), ("s3://runs", "names no file in a bucket")):
        with pytest.raises(UsageError, match=message):
            storage.check_writable(place)


def test_no_permission_and_no_credentials(
    bucket: str, monkeypatch: pytest.MonkeyPatch, perfmodel: Callable[..., Any]
) -> None:
    from moto.core import set_initial_no_auth_action_count

    write_atomic(f"{bucket}/a.json", "1")

    @set_initial_no_auth_action_count(0)
    def refused() -> None:
        with pytest.raises(InputFileError, match=r"access is denied\. Check AWS_PROFILE"):
            read_text(f"{bucket}/a.json")
        with pytest.raises(InputFileError, match="access is denied"):
            storage.expand([f"{bucket}/*.json"])
        storage.check_writable(f"{bucket}/b.json")  # who may write need not be allowed to look
        ran = perfmodel("analyze", "gemm", "m=8", "n=8", "k=8", "--on", "h100", "-o", f"{bucket}/b.json")
        assert (ran.code, "access is denied" in ran.err) == (2, True)

    refused()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(InputFileError, match="no credentials"):
        read_text(f"{bucket}/c.json")
