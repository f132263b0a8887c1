"""Products by narrow weights: of few rows by matrix-vector kernels, of more in 8-bit integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import Engine, find_engine
from perfmodel.serving.precision import weight_format
from perfmodel.serving.products import Products
from perfmodel.workloads.catalog import find_model

RTX, V100 = pm.hardware("rtx-3090"), pm.hardware("v100-pcie-16gb")
LLAMA_CPP, Q4 = find_engine("llama.cpp"), weight_format("q4_k_m")


def _time(engine: Engine, rows: float, n: int, k: int, machine: pm.Hardware = RTX, form: str = "q4_k_m") -> float:
    products = Products(engine, machine, "fp16")
    return float(products.time(np.array([rows]), n, k, weight_format(form, machine))[0][0])


@pytest.mark.parametrize(("n", "k"), [(256, 2560), (2560, 256), (2048, 2560), (20480, 2560)])
def test_one_row_is_a_read_of_the_weights(n: int, k: int) -> None:
    """Not faster than the bandwidth, and within some microseconds of it: no tiles, no parts of k that are summed."""
    read_s = n * k * Q4.bytes / RTX.main_memory.bandwidth_bytes_per_s
    assert read_s < _time(LLAMA_CPP, 1, n, k) < 1.5 * read_s + 10e-6
    tiled = _time(replace(LLAMA_CPP, vectors=0, integers=""), 1, n, k)
    assert _time(LLAMA_CPP, 1, n, k) < (tiled if n < 20480 else 1.1 * tiled)


def test_each_row_computes_on_the_vector_units() -> None:
    times = [_time(LLAMA_CPP, rows, 4096, 4096) for rows in (1, 2, 4, 8)]
    assert np.all(np.diff(times) > 0)
    flop = 2.0 * 4096 * 4096
    peak = RTX.find_peak("fp32", "vector")
    assert peak is not None
    assert (times[3] - times[0]) / 7 > flop / peak.flop_per_s


def test_more_rows_run_in_integers_where_the_machine_has_them() -> None:
    sixteen = replace(LLAMA_CPP, integers="")
    assert _time(LLAMA_CPP, 512, 8192, 8192) < _time(sixteen, 512, 8192, 8192)
    assert V100.find_peak("int8", "tensor") is None
    assert _time(LLAMA_CPP, 512, 8192, 8192, V100) == _time(sixteen, 512, 8192, 8192, V100)
    slower = replace(LLAMA_CPP, integers_slower=2.0 * LLAMA_CPP.integers_slower)
    assert _time(slower, 512, 8192, 8192) == pytest.approx(2.0 * _time(LLAMA_CPP, 512, 8192, 8192))


def test_releases_before_widen_the_weights_of_prompts_only() -> None:
    old = find_engine("llama.cpp", "b2843")
    assert old.name == "llama.cpp-2024"
    assert find_engine("llama.cpp", "b10970") is find_engine("llama.cpp")
    plain = _time(replace(old, widens=""), 512, 8192, 8192)
    assert _time(old, 512, 8192, 8192) > plain
    assert _time(old, 1, 8192, 8192) == _time(LLAMA_CPP, 1, 8192, 8192)


def test_files_have_tables_and_other_matrices_in_few_bits() -> None:
    """Gemma 4 E4B in Q4_K_M is a file of 5 GB, most of it tables; gpt-oss-20b has attention in 8 bits beside MXFP4."""
    e4b = Deployment(find_model("gemma-4-e4b"), RTX, engine="llama.cpp", weights="q4_k_m")
    assert e4b.memory().weights_bytes == pytest.approx(5.0e9, rel=0.05)
    sixteen = Deployment(find_model("gemma-4-e4b"), RTX, engine="llama.cpp", weights="fp16")
    assert sixteen.memory().weights_bytes == pytest.approx(2.0 * find_model("gemma-4-e4b").parameters, rel=0.01)
    gpt = find_model("gpt-oss-20b")
    own, other = (Deployment(gpt, RTX, engine=name, weights="mxfp4").memory() for name in ("llama.cpp", "vllm"))
    assert own.weights_bytes < other.weights_bytes
    assert weight_format("fp4_experts").stored_as("q6_k", "q8_0").beside == "fp8_block"


def test_experts_of_few_tokens_pad_no_rows() -> None:
    config = find_model("lfm2-8b-a1b")
    deployed = Deployment(config, RTX, engine="llama.cpp", weights="q4_k_m", kv="fp16")
    tiled = replace(LLAMA_CPP, vectors=0)
    padded = Deployment(config, RTX, engine=tiled, weights="q4_k_m", kv="fp16")
    experts, before = (one.step(decode=1, context=100).terms_s["experts"] for one in (deployed, padded))
    assert experts < before


def test_a_profile_with_an_unknown_format_of_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\nvectors = "eight"\n')
    with pytest.raises(InputFileError, match="'eight' is no int"):
        find_engine(str(path))
    path.write_text('name = "own"\nhead = "q7"\n')
    with pytest.raises(UsageError, match="q7"):
        Deployment(find_model("llama-3.1-8b"), RTX, engine=str(path), weights="q4_k_m").memory()


#: bytes of the blocks of ggml-common.h (sizeof block_*), and weights of each
BLOCKS = {
    "q2_k": (84, 256), "q3_k": (110, 256), "q4_k": (144, 256), "q5_k": (176, 256), "q6_k": (210, 256),
    "q4_0": (18, 32), "q4_1": (20, 32), "q5_0": (22, 32), "q5_1": (24, 32), "q8_0": (34, 32), "iq4_nl": (18, 32),
    "iq4_xs": (136, 256),
}  # fmt: skip


def test_blocks_of_llama_cpp_have_their_bytes_and_are_read_once_for_one_row() -> None:
    times = {}
    for name, (size, weights) in BLOCKS.items():
        assert weight_format(name).bytes == size / weights
        assert name in LLAMA_CPP.integers.split(",")
        times[size / weights] = _time(LLAMA_CPP, 1, 14336, 4096, form=name)
    assert [times[size] for size in sorted(times)] == sorted(times.values())
