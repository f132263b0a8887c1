"""The command `report` and documents whose values were changed."""

import gzip
import json
from pathlib import Path

import pytest

from perfmodel.cli.app import run

ROW = {"plan": "dp8", "hardware": "a100", "time_s": 2.0, "mfu": 0.4, "terms_s": {"products": 1.5, "bubble": 0.5}}


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": [{**ROW, "time_s": 0.0}]},
        {"rows": [{**ROW, "time_s": "fast"}]},
        {"rows": [{**ROW, "ttft_s": {"mean": 1.0, "mean_low": "1", "mean_high": 2.0}}]},
        {"context": {"hardware": True}},
    ],
)
def test_a_value_that_perfmodel_does_not_write_ends_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, object]
) -> None:
    path, page = tmp_path / "step.json", tmp_path / "page.html"
    document = {"schema_version": 1, "command": "train", "context": {}, "rows": [ROW]}
    path.write_text(json.dumps(document))
    assert run(["report", str(path), "-o", str(page)]) == 0
    page.unlink()
    path.write_text(json.dumps({**document, **changed}))
    assert run(["report", str(path), "-o", str(page)]) == 3
    said = capsys.readouterr().err
    assert "step.json: No page can be made of it" in said
    assert not page.exists()


def test_ranks_of_a_job_are_not_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = sorted((Path(__file__).parents[1] / "diagnosis" / "ranks" / "traces" / "ddp_4_even").iterdir())
    page = tmp_path / "page.html"
    for given in (traces[:2], traces):
        assert run(["report", *map(str, given), "-o", str(page)]) == 2
        assert "perfmodel diagnose FILE... -o page.html" in capsys.readouterr().err
    assert not page.exists()
    assert run(["report", str(traces[0]), str(traces[0]), "-o", str(page)]) == 0, "the same rank of two runs"


@pytest.mark.parametrize(("option", "place"), [(("--on", "h100"), "--on"), (("--assume",), "--assume")])
def test_a_machine_that_nothing_would_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...], place: str
) -> None:
    path, page = tmp_path / "step.json", tmp_path / "page.html"
    path.write_text(json.dumps({"schema_version": 1, "command": "train", "context": {}, "rows": [ROW]}))
    assert run(["report", str(path), *option, "-o", str(page)]) == 2
    assert f"perfmodel: {place}: nothing would use it beside {path}." in capsys.readouterr().err
    assert not page.exists()
    profile = tmp_path / "profile.csv"
    profile.write_text("name,time_ms\na,1\n")
    assert run(["report", str(path), str(profile), "--on", "h100", "-o", str(page)]) == 0, "the profile uses it"


def test_a_packed_document_gives_the_page_of_the_plain_one(tmp_path: Path) -> None:
    document = json.dumps({"schema_version": 1, "command": "train", "context": {}, "rows": [ROW]})
    (tmp_path / "step.json").write_text(document)
    (tmp_path / "step.json.gz").write_bytes(gzip.compress(document.encode()))
    pages = []
    for name in ("step.json", "step.json.gz"):
        assert run(["report", str(tmp_path / name), "-o", str(tmp_path / "page.html")]) == 0
        pages.append((tmp_path / "page.html").read_text())
    assert pages[0] == pages[1].replace("step.json.gz", "step.json")
