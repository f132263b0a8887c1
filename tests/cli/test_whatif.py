"""`perfmodel whatif`: its output, its exit codes, and its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
GPT2 = (EXAMPLES / "profile_gpt2.csv", EXAMPLES / "gpt2_scenario.toml")


def test_a_claim_that_does_not_hold_ends_with_1(perfmodel):
    ran = perfmodel("whatif", *GPT2, "--on", "a100-sxm4-40gb", "--format", "json")
    assert ran.code == 1
    assert ran.json["command"] == "whatif"
    assert [row["total_time_s"] for row in ran.json["rows"]] == pytest.approx([0.42, 0.38, 0.42, 0.84])
    assert "420 ms, not 380 ms" in ran.json["notes"][0]


def test_markdown_says_the_decision_first(perfmodel):
    assert "500 ms become 840 ms" in perfmodel("whatif", *GPT2, "--format", "markdown").out.splitlines()[0]


def test_a_wrong_scenario_ends_with_3(perfmodel, tmp_path):
    path = tmp_path / "path.toml"
    path.write_text('[[steps]]\nname = "a"\nkind = "scale"\nspeedup = 2\ntargets = ["attention"]\n')
    ran = perfmodel("whatif", GPT2[0], path)
    assert ran.code == 3
    assert "step 1" in ran.err
    assert "Did you mean 'attention (forward)'?" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "missing"),
    [((), "PROFILE..."), ((GPT2[0],), "SCENARIO"), ((GPT2[0], "--on", "a100-sxm4-40gb", "--no-color"), "SCENARIO")],
)
def test_what_is_missing_is_named(perfmodel, words, missing):
    ran = perfmodel("whatif", *words)
    assert ran.code == 2
    assert ran.err == f"perfmodel: Missing argument '{missing}'. See: perfmodel whatif --help\n"
