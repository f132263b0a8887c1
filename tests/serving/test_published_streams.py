"""Tests of llama-bench, and loads of which a table prints only some quantities."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.serving.published import judge
from perfmodel.serving.published_case import RATE, TPOT, TTFT

STREAM = "model,hardware,wdtype,batch,test,tok_per_s\n"
BATCHES = "engine,model,hardware,tp,wdtype,kvdtype,batch,isl,osl,value,unit,ftl_mean_s,tpot_p50_s\n"
ARRIVALS = "engine,model,hardware,tp,wdtype,requests,isl_mean,osl_mean,qps,ttft_mean_ms,itl_mean_ms,output_tok_s\n"


def judged(tmp_path: Path, text: str) -> tuple[dict[str, float], list[str]]:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    found = judge(read_run_table(path), pm.hardware)
    return {row.quantity: row.predicted for row in found.rows}, [str(one) for one in found.skipped]


def test_decoding_behind_a_long_context_reads_its_keys(tmp_path: Path) -> None:
    """llama-bench writes ``tg128 @ d8192`` for 128 tokens behind 8,192: by hand, 1.07 GB of keys and values more."""
    at_start, _ = judged(tmp_path, STREAM + "llama-3.1-8b,rtx-4090,F16,1,tg128,60\n")
    for test in ("tg128@d8192", "tg128 @ d8192"):
        deep, _ = judged(tmp_path, STREAM + f"llama-3.1-8b,rtx-4090,F16,1,{test},50\n")
        bytes_of_keys = 8192 * 32 * 2 * 8 * 128 * 2
        assert deep[TPOT] - at_start[TPOT] == pytest.approx(bytes_of_keys / 1008e9, rel=0.35)


def test_a_batch_of_prompts_takes_the_time_of_all_its_tokens(tmp_path: Path) -> None:
    one, _ = judged(tmp_path, STREAM + "llama-3.1-8b,rtx-4090,F16,1,pp512,5000\n")
    found = judge(read_run_table(tmp_path / "runs.csv"), pm.hardware).rows[0]
    assert found.measured == pytest.approx(512 / 5000)
    assert one.keys() == {TTFT}


def test_a_rate_of_decode_alone_is_a_time_per_token(tmp_path: Path) -> None:
    """One token each of 32 sequences behind 128 in 2.73 ms is no rate of a batch that reads its prompts in them."""
    row = 'generic,gpt2,v100-pcie-16gb,1,fp16,fp16,32,128,1,11720,"output tok/s, {}",,\n'
    found, _ = judged(tmp_path, BATCHES + row.format("decode only"))
    assert found.keys() == {TPOT}
    assert judge(read_run_table(tmp_path / "runs.csv"), pm.hardware).rows[0].measured == pytest.approx(32 / 11720)
    assert judged(tmp_path, BATCHES + row.format("prefill included"))[0].keys() == {RATE}


@pytest.mark.parametrize("test", ["ppx", "tg", "pp512@d1024"])
def test_a_test_that_is_not_understood_is_left_out_with_its_reason(tmp_path: Path, test: str) -> None:
    found, reasons = judged(tmp_path, STREAM + f"llama-3.1-8b,rtx-4090,F16,1,{test},60\n")
    assert not found
    assert len(reasons) == 1


@pytest.mark.parametrize(
    ("cells", "quantities"),
    [("50,20,400", {TTFT, TPOT, RATE}), (",20,", {TPOT}), (",,400", {RATE}), ("50,,", {TTFT}), (",,", set())],
)
def test_a_table_of_arrivals_may_print_some_quantities_only(tmp_path: Path, cells: str, quantities: set[str]) -> None:
    row = f"vllm 0.11,llama-3.1-8b,h100-sxm5-80gb,1,bf16,50,512,64,2,{cells}\n"
    found, reasons = judged(tmp_path, ARRIVALS + row)
    assert found.keys() == quantities
    assert len(reasons) == (not quantities)


def test_a_run_of_arrivals_without_its_number_of_requests_is_left_out_with_the_reason(tmp_path: Path) -> None:
    row = "vllm 0.11,llama-3.1-8b,h100-sxm5-80gb,1,bf16,,512,64,2,50,20,400\n"
    found, (reason,) = judged(tmp_path, ARRIVALS + row)
    assert not found
    assert "requests is missing or not above 0" in reason
