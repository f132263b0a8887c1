"""Files of remote stores are read and written as local ones are; patterns name several of them."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfmodel import storage
from perfmodel.errors import InputFileError, UnavailableError, UsageError
from perfmodel.files import read_document, read_text, write_atomic
from perfmodel.storage import cache, growing, remote
from perfmodel.storage.failure import explained
from perfmodel.storage.place import Url, url_of


def url(text: str) -> Url:
    found = url_of(text)
    assert found is not None
    return found


def test_what_is_written_is_read_again(memory: str) -> None:
    write_atomic(f"{memory}/a.json", '{"x": 1}')
    assert read_document(f"{memory}/a.json") == {"x": 1}
    write_atomic(f"{memory}/a.json", '{"x": 2}')
    assert read_document(f"{memory}/a.json") == {"x": 2}, "a copy of the old version was read"
    assert storage.exists(f"{memory}/a.json")
    assert storage.size(f"{memory}/a.json") == 8
    assert not storage.is_file(f"{memory}/b.json")


def test_packed_documents_and_web_addresses_with_a_query(web: str, site: Path) -> None:
    (site / "a.json.gz").write_bytes(gzip.compress(b'{"x": 1}'))
    assert read_document(f"{web}/a.json.gz?token=1") == {"x": 1}


def test_a_copy_is_kept_until_the_file_changes(
    web: str, site: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_FRESH_S", 0.0)
    fetched: list[Url] = []
    fetch = remote.fetch
    monkeypatch.setattr(remote, "fetch", lambda url, target: (fetched.append(url), fetch(url, target)))
    (site / "a.txt").write_text("one")
    os.utime(site / "a.txt", (1e9, 1e9))
    assert read_text(f"{web}/a.txt") == read_text(f"{web}/a.txt") == "one"
    assert len(fetched) == 1
    (site / "a.txt").write_text("two")
    assert read_text(f"{web}/a.txt") == "two"
    assert not list(own_cache.glob("**/*.part"))


def test_old_copies_are_removed(web: str, site: Path, own_cache: Path) -> None:
    (own_cache / "files").mkdir(parents=True)
    (own_cache / "files/old").write_text("x")
    os.utime(own_cache / "files/old", (0, 0))
    (site / "a.txt").write_text("one")
    read_text(f"{web}/a.txt")
    assert [path.name[21:] for path in (own_cache / "files").iterdir()] == ["a.txt"]


def test_patterns_name_files_in_order(memory: str, web: str, site: Path, tmp_path: Path) -> None:
    for name in ("rank1.json", "rank0.json", "other.txt"):
        write_atomic(f"{memory}/{name}", "x")
        (site / name).write_text("x")
    ranks = ["rank0.json", "rank1.json"]
    for place in (memory, web, str(site)):
        assert storage.expand([f"{place}/rank*.json"]) == [f"{place}/{name}" for name in ranks]
        assert storage.expand([f"{place}/other.txt", f"{place}/rank[1].json"]) == [
            f"{place}/other.txt",
            f"{place}/rank1.json",
        ]
        with pytest.raises(InputFileError, match="no file matches"):
            storage.expand([f"{place}/none*.json"])


def test_where_one_file_is_read_a_pattern_has_to_match_one(memory: str, tmp_path: Path) -> None:
    for place in (memory, str(tmp_path)):
        for name in ("rank0.json", "rank1.json", "plan.json"):
            write_atomic(f"{place}/{name}", f'"{name}"')
        assert read_document(f"{place}/pl*") == "plan.json"
        with pytest.raises(InputFileError, match=r"2 files match.*Name one, as .*rank0\.json"):
            read_document(f"{place}/rank*.json")


def test_a_name_with_brackets_is_written_and_read_as_it_is(memory: str, tmp_path: Path) -> None:
    for place in (memory, str(tmp_path)):
        write_atomic(f"{place}/a[1].txt", "x")
        assert read_text(f"{place}/a[1].txt") == "x"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none.json", "no such file. Check the address"),
        ("/403/a.json", "access is denied"),
        ("/401/a.json", "no credentials"),
        ("/500/a.json", "answers with status 500"),
        ("/cut/a.json", "the connection ended before the file did"),
        ("/403/*.json", "access is denied"),
    ],
)
def test_refusals_of_a_server_are_one_message(web: str, path: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        [read_text(place) for place in storage.expand([web + path])]


def test_a_server_that_is_not_there_and_a_store_that_nobody_knows() -> None:
    pytest.importorskip("aiohttp")
    with pytest.raises(InputFileError, match="cannot be reached"):
        read_text("http://127.0.0.1:1/a.json")
    with pytest.raises(UsageError, match=r"unknown kind of store 's4'\. Did you mean 's3'"):
        read_text("s4://bucket/a.json")


def test_a_driver_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")

    def absent(*_: Any, **__: Any) -> None:
        raise ImportError("Install gcsfs to access Google Storage")

    monkeypatch.setattr("fsspec.core.url_to_fs", absent)
    for scheme, extra in {"gs": "gcs", "s3": "s3", "https": "http"}.items():
        with pytest.raises(UnavailableError, match=rf"the driver for {scheme}:// is not.*perfmodel\[{extra}\]"):
            read_text(f"{scheme}://bucket/a.json")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(UnavailableError, match="fsspec, which is not installed"):
        read_text("s3://bucket/a.json")


def test_drivers_say_the_same_thing_in_different_ways() -> None:
    class ClientError(Exception):
        response = {"ResponseMetadata": {"HTTPStatusCode": 403}}  # noqa: RUF012 -- as botocore has it

    for error in (PermissionError("AccessDenied"), OSError("Forbidden: b/runs/o"), ClientError()):
        with pytest.raises(InputFileError, match="access is denied"), explained(url("gs://runs/a.json")):
            raise error
    with (
        pytest.raises(UsageError, match="the driver of the store reports: disk on fire"),
        explained(url("gs://runs/a.json"), UsageError),
    ):
        raise RuntimeError("disk on fire")


def test_web_addresses_are_not_written(web: str) -> None:
    with pytest.raises(UsageError, match="can be read, not written"):
        write_atomic(f"{web}/a.json", "x")


def test_a_growing_file_is_saved_at_once_at_intervals_and_at_the_end(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{memory}/run.jsonl"
    with storage.held(place, keep=False) as copy:
        for number in range(3):
            with copy.path.open("a") as stream:
                stream.write(f"{number}\n")
            copy.changed()
            assert read_text(place).count("\n") == number + 1, "this process does not see what it wrote"
            assert remote_text(place) == "0\n", "a row was saved before the interval was over"
        monkeypatch.setattr(copy, "_next_s", 0.0)
        copy.changed()
        assert remote_text(place) == "0\n1\n2\n"
        copy.path.write_text("all\n")
        copy.changed()
    assert remote_text(place) == "all\n"
    assert not copy.path.exists()


def remote_text(place: str) -> str:
    import fsspec

    return str(fsspec.filesystem("memory").cat_file(place).decode())


def test_what_a_killed_process_left_is_continued(memory: str) -> None:
    place = f"{memory}/run.jsonl"
    write_atomic(place, "0\n")
    growing.unsaved(url(place)).write_text("0\n1\n")
    with storage.held(place, keep=True) as copy:
        assert copy.path.read_text() == "0\n1\n"


def test_a_store_that_refuses_keeps_the_content_here(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("access is denied.", place=memory)

    monkeypatch.setattr(remote, "put", refuse)
    copy = growing.WorkingCopy(url(f"{memory}/run.jsonl"))
    copy.path.write_text("0\n")
    for leave in (copy.changed, copy.close):
        with pytest.raises(UsageError, match=r"Nothing is lost: the content is in .*run\.jsonl"):
            leave()
        assert copy.path.read_text() == "0\n"


def test_other_stores_get_a_file_beside_that_is_renamed(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    monkeypatch.setattr(remote, "_WHOLE_OBJECTS", ())
    write_atomic(f"{memory}/a.txt", "x")
    assert fsspec.filesystem("memory").find("/runs") == ["/runs/a.txt"]


Run = Callable[..., Any]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_commands_pass_files_on_through_a_store(perfmodel: Run, memory: str) -> None:
    """Records, specs, plans, plots and pages go to a store and come back, by name and by pattern."""
    commands = [
        ("hardware", "show", "h100", "-o", f"{memory}/my_gpu.toml"),
        ("hardware", "lint", f"{memory}/my_*.toml"),
        ("analyze", "gemm", "m=64/128", "n=64", "k=64", "--on", f"{memory}/my_gpu.toml", "-o", f"{memory}/r1.json"),
        ("show", f"{memory}/r*.json", "--format", "json"),
        ("plot", f"{memory}/r*.json", "-o", f"{memory}/plot.svg"),
        ("report", f"{memory}/r*.json", "-o", f"{memory}/page.html"),
    ]
    for command in commands:
        ran = perfmodel(*command)
        assert ran.code == 0, (command, ran.err)
    assert len(json.loads(perfmodel("show", f"{memory}/r1.json", "--format", "json").out)["rows"]) == 2
    assert read_text(f"{memory}/plot.svg").startswith("<?xml")
    assert "<html" in read_text(f"{memory}/page.html")


def test_profiles_plans_and_scenarios_come_from_the_web(perfmodel: Run, web: str, site: Path) -> None:
    for name in ("profile_abc.csv", "plan_abc.toml", "profile_gpt2.csv", "gpt2_scenario.toml", "training_plan.toml"):
        (site / name).write_bytes((EXAMPLES / name).read_bytes())
    for command in (
        ("roi", "profile_abc.csv", "--plan", "plan_abc.toml"),
        ("whatif", "profile_gpt2.csv", "gpt2_scenario.toml"),
        ("diagnose", "profile_abc.csv"),
    ):
        words = [f"{web}/{word}" if "." in word else word for word in command]
        here = [str(site / word) if "." in word else word for word in command]
        assert perfmodel(*words).out == perfmodel(*here).out
    assert "training_plan.toml" in perfmodel("roi", f"{web}/training*.toml").out


def test_exit_codes_are_those_of_local_files(perfmodel: Run, memory: str) -> None:
    assert perfmodel("show", f"{memory}/none.json").code == 3
    assert perfmodel("roi", f"{memory}/none*.csv").code == 3
    assert perfmodel("analyze", "gemm", "m=8", "n=8", "k=8", "--on", "h100", "-o", "https://a/b.json").code == 2
    ran = perfmodel("analyze", "gemm", "m=8", "n=8", "k=8", "--on", "h100", "-o", "az://a/b.json")
    assert (ran.code, "driver" in ran.err) == (4, True)


def test_files_that_a_worker_does_not_see_are_named(
    perfmodel: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of a cluster answer as they would on a machine without the folder."""
    import contextlib

    from perfmodel import workers

    def unseen(_: object, tasks: list[tuple[str, object]], *more: object) -> list[str]:
        kept = more[-1]
        assert isinstance(kept, dict)
        kept.update({place: f"{path}: {storage.NO_FILE} Check the path." for place, (path, _) in enumerate(tasks)})
        return list(kept.values())

    monkeypatch.setattr(workers, "executor", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(workers, "mapped", unseen)
    (tmp_path / "rank0.json").write_text("{}")
    command = ("diagnose", tmp_path / "rank0.json", tmp_path / "rank1.json")
    ran = perfmodel(*command, "--scheduler", "tcp://head:8786")
    assert ran.code == 3
    assert "1 of 2 files are on this machine, but a worker of tcp://head:8786 does not see them. Put them" in ran.err
    assert "a worker" not in perfmodel(*command).err


def test_a_folder_of_specs_has_to_be_here(perfmodel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfmodel.hardware_catalog.spec_folders import search_folders

    monkeypatch.setenv("PERFMODEL_HARDWARE", "s3://bucket/specs")
    with pytest.raises(InputFileError, match="only folders of this machine"):
        search_folders()
