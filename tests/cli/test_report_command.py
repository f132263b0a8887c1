"""The command `report` and documents whose values were changed."""

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
