"""Tables are written into a file in their places."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_latency import replace_tables, stored_deviations, tables_in

from perfmodel.prediction.latency.tables import default_tables, latency_specs


def test_a_table_that_was_dropped_gets_its_place_back(tmp_path: Path) -> None:
    path = tmp_path / "generic.toml"
    specs = latency_specs({name: default_tables("generic")[name] for name in ("softmax", "rope", "embedding")})
    replace_tables(path, "# head", specs)
    whole = path.read_text(encoding="utf-8")
    replace_tables(path, "# head", {}, dropped=["rope"])
    assert list(tables_in(path)) == ["softmax", "embedding"]
    replace_tables(path, "# head", {"rope": specs["rope"]}, order=list(specs))
    assert path.read_text(encoding="utf-8") == whole


def test_shared_tables_have_deviations_that_a_fit_of_some_families_keeps() -> None:
    stored = stored_deviations()
    assert stored["hopper-9.0", "gemm_bf16"] == default_tables("hopper-9.0")["gemm_bf16"].deviations
    assert not any(key.startswith("h100") for key, _ in stored)
