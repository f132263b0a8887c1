"""The notebooks run from top to bottom, and their results show as tables and pictures."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def ids(path):
    return path.name


@pytest.fixture
def own_folders(tmp_path, monkeypatch):
    """The kernel writes its history and sockets below the test's folder, and uses this environment's kernel."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    monkeypatch.delenv("PERFMODEL_HARDWARE", raising=False)


def test_there_is_a_notebook():
    assert "roofline_tour.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_a_notebook_is_kept_without_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
@pytest.mark.usefixtures("own_folders")
@pytest.mark.waiting
def test_a_notebook_runs_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}
    ).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    tables = [data["text/html"] for data in shown if "<table" in data.get("text/html", "")]
    pictures = [data for data in shown if "image/png" in data]
    written = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"
    ]
    assert len(tables) >= 5
    assert len(pictures) >= 3
    assert written == []
