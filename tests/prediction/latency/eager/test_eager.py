"""PyTorch's own kernels: what its sources say that they move and wait for, and what an H100 measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.measured import shape_hash
from perfmodel.operators import load_operator
from perfmodel.operators.optimizer import Optimizer
from perfmodel.operators.scan import Scan
from perfmodel.prediction.implementations import library_of
from perfmodel.prediction.latency.eager.lookups import missed
from perfmodel.prediction.latency.eager.selections import KERNELS
from perfmodel.prediction.latency.eager.steps import KERNELS as STEPS
from perfmodel.prediction.latency.machine import Machine
from perfmodel.records.calls import read_calls

RECORDS = Path(__file__).parents[4] / "examples" / "records"
#: operator, dimensions, the dimension that makes it larger, and sizes of it
CASES: list[tuple[str, dict[str, Any], str, tuple[int, int]]] = [
    ("sort", {}, "cols", (5000, 10**8)),
    ("sort", {"cols": 256}, "rows", (2, 10**6)),
    ("sort", {"cols": 50000, "dtype": "bf16"}, "rows", (2, 127)),
    ("topk", {"cols": 128, "k": 8}, "rows", (1, 10**6)),
    ("topk", {"rows": 1000, "k": 8}, "cols", (1000, 10**6)),
    ("scan", {}, "cols", (10, 10**9)),
    ("scan", {"cols": 1000}, "rows", (2, 10**6)),
    ("sampling", {"rows": 64}, "vocab", (100, 10**6)),
    ("sampling", {"vocab": 32000, "algorithm": "top_p"}, "rows", (2, 100)),
    ("gather", {"table": 10**8}, "numel", (1000, 10**8)),
    ("gather", {"table": 10**8, "backward": True}, "numel", (1000, 10**8)),
    ("index_select", {"cols": 64, "table": 10**5}, "rows", (100, 10**7)),
    ("index_select", {"cols": 64, "table": 10**5, "backward": True}, "rows", (100, 10**7)),
    ("scatter_add", {"cols": 64, "table": 10**5}, "rows", (100, 10**7)),
    ("kv_write", {"kv_heads": 8, "head_dim": 128, "dtype": "bf16"}, "tokens", (1, 10**6)),
    ("embedding", {"vocab": 32000, "dim": 512, "backward": True}, "tokens", (4000, 10**6)),
    ("embedding_bag", {"pooling": 20, "vocab": 10**6, "dim": 64}, "bags", (10, 10**6)),
    ("embedding_bag", {"bags": 4096, "vocab": 10**6, "dim": 64}, "pooling", (1, 500)),
    ("embedding_bag", {"pooling": 20, "vocab": 10**5, "dim": 64, "backward": True}, "bags", (200, 10**5)),
    ("pool2d", {"c": 64, "h": 56, "w": 56, "k": 3}, "n", (1, 1000)),
    ("pool3d", {"c": 16, "d": 16, "h": 56, "w": 56, "t": 2, "r": 2, "s": 2, "kind": "mean"}, "n", (1, 1000)),
    ("batch_norm", {"c": 64, "hw": 3136}, "n", (1, 1000)),
    ("batch_norm", {"n": 64, "c": 64, "backward": True}, "hw", (49, 10**5)),
    ("group_norm", {"groups": 32, "c": 256, "hw": 1024}, "n", (1, 1000)),
    ("layer_norm", {"cols": 1024, "backward": True}, "rows", (1, 10**6)),
    ("softmax", {"cols": 4096, "backward": True}, "rows", (1, 10**6)),
    ("dropout", {}, "numel", (1024, 10**9)),
    ("transpose", {"cols": 4096}, "rows", (32, 10**5)),
    ("optimizer", {"num_tensors": 128}, "parameters", (10**5, 10**9)),
    ("optimizer", {"algorithm": "foreach"}, "parameters", (1000, 10**9)),
    ("quantize", {"cols": 4096}, "rows", (1, 10**5)),
    ("dequantize", {"cols": 4096}, "rows", (1, 10**5)),
]


def time_s(op: str, on: str = "h100", library: str = "torch", **dimensions: Any) -> Any:
    return pm.predict(load_operator(op)(**dimensions), on, library=library).predicted_time_s


@pytest.mark.parametrize(("op", "fixed", "name", "sizes"), CASES)
def test_never_faster_than_the_bound_and_never_faster_for_more(
    op: str, fixed: dict[str, Any], name: str, sizes: tuple[int, int]
) -> None:
    column = np.unique(np.geomspace(*sizes, 40).round())
    for on in ("h100", "a100", "mi300x"):
        result = pm.predict(load_operator(op)(**fixed, **{name: column}), on, library="torch")
        times = np.asarray(result.predicted_time_s)
        assert np.all(times >= np.asarray(result.bound_time_s))
        assert np.all(np.diff(times) >= -1e-3 * times[1:]), (op, name, on)


@settings(max_examples=40, deadline=None)
@given(case=st.sampled_from(CASES), share=st.floats(0.0, 1.0), on=st.sampled_from(("h100", "v100", "l40s")))
def test_a_single_call_is_predicted_as_that_of_a_sweep(
    case: tuple[str, dict[str, Any], str, tuple[int, int]], share: float, on: str
) -> None:
    op, fixed, name, (first, last) = case
    size = round(first * (last / first) ** share)
    column = np.array([float(size), float(last)])
    assert float(time_s(op, on, **fixed, **{name: size})) == pytest.approx(
        float(time_s(op, on, **fixed, **{name: column})[0]), rel=1e-9
    )


@pytest.mark.parametrize(("op", "fixed", "name", "sizes"), CASES)
def test_other_libraries_keep_the_one_kernel(op: str, fixed: dict[str, Any], name: str, sizes: tuple[int, int]) -> None:
    known = load_operator(op)(**fixed, **{name: sizes[1]})
    families = {library: str(pm.predict(known, "h100", library=library).rows()[0]["family"])
                for library in ("", "vllm", "torch")}  # fmt: skip
    # gradients of no library are PyTorch's where their forward pass is
    unnamed = op in ("layer_norm", "softmax") and bool(fixed.get("backward"))
    assert [name.startswith("eager_") for name in families.values()] == [unnamed, False, True]


def test_bags_that_nobody_measured_are_known_to_a_factor_of_two() -> None:
    bags = pm.EmbeddingBag(bags=8192, pooling=20, vocab=10**6, dim=128)
    found = pm.predict(bags, "h100", library="torch")
    assert "kernel" in {str(source) for source in found.estimate.uncertainty}
    assert found.predicted_time_high_s / found.predicted_time_low_s > 4.0
    # bags of one row are look-ups, whose intervals are those of the rows measured
    alone = pm.predict(pm.IndexSelect(rows=8192, cols=128, table=10**6), "h100", library="torch")
    one = pm.predict(replace(bags, pooling=1), "h100", library="torch")
    assert one.predicted_time_s == pytest.approx(alone.predicted_time_s, rel=0.3)


def test_bags_wait_in_as_many_turns_as_the_sms_hold_warps() -> None:
    """40 SMs of a T4 hold 32 warps each: 1,280 bags of 32 columns walk at once, 8,192 in seven turns."""
    one, all_of = (
        time_s("embedding_bag", "t4", bags=bags, pooling=1000, vocab=100, dim=32, distribution="same")
        for bags in (1280, 8192)
    )
    assert all_of / one == pytest.approx(7.0, rel=0.1)


def test_a_sort_moves_its_indices() -> None:
    """A key of 4 B and its index cross memory 1 + 2 x 4 times: 108 B; one of 8 B takes twice the passes."""
    more = 2**28
    each = {size: float(time_s("sort", cols=2 * more, dtype=dtype) - time_s("sort", cols=more, dtype=dtype)) / more
            for size, dtype in ((4, "fp32"), (8, "fp64"))}  # fmt: skip
    assert 108 / each[4] < 3.35e12
    assert each[8] / each[4] == pytest.approx(2.2, abs=0.3)


def test_the_sort_of_a_row_by_one_block_waits_for_the_sm_with_the_most_rows() -> None:
    """On 132 SMs 300 rows are three rounds, as 390 are; 260 are two."""
    two, three, nearly_four = (float(time_s("sort", rows=rows, cols=20000)) for rows in (260, 300, 390))
    assert three == pytest.approx(1.5 * two, rel=0.1)
    assert nearly_four == pytest.approx(three, rel=0.1)


def test_a_scan_of_many_short_rows_wraps() -> None:
    """Unsigned numbers wrap where rows exceed 512 times the columns (ScanUtils.cuh): 1119 us on an H200."""
    before, after = (float(time_s("scan", "h200", rows=rows, cols=64)) for rows in (30000, 200000))
    assert after > 10.0 * before


def test_a_scan_waits_on_an_empty_sm_and_issues_on_a_full_one() -> None:
    # 64 rows of 2^17 columns are 64 blocks: one on an SM, which waits in each of 128 steps of 1024 columns,
    # in the first of them mostly while its kernel starts
    machine = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 1e7, np.inf)
    _, walked = KERNELS["scan"](Scan(rows=64, cols=2**17), 4.0, {"scan_step": 3000.0}, machine)
    assert walked.waited_s == pytest.approx((127 + 0.15) * 3e-6)
    # 16 warps of 60 instructions and 10 rounds of 21, of which 0.65 x 4 go out in a clock
    assert walked.cycles == pytest.approx(64 * 128 * 16 * 270 / 2.6)
    # 800 rows are 400 blocks of two rows and 256 threads each, in 9 rounds: the four of an SM issue 4 x 16 x 249 / 2.6
    # cycles a step, while each of them waits for 3000
    _, full = KERNELS["scan"](Scan(rows=800, cols=2**17), 4.0, {"scan_step": 3000.0}, machine)
    assert full.waited_s == pytest.approx((255 + 0.15) * 3e-6)
    assert full.cycles / machine.sm_count == pytest.approx(256 * 4 * 16 * 249 / 2.6)
    # a single row has no such blocks
    single, none = KERNELS["scan"](Scan(rows=1, cols=2**17), 4.0, {"scan_step": 3000.0}, machine)
    assert single.kernels == 2.0
    assert none.cycles == none.waited_s == 0.0


def test_short_rows_are_padded() -> None:
    """A block sorts 1024 keys at least (Sort.cu), so that 256 take as long but for their bytes."""
    short, long = (float(time_s("sort", rows=10**6, cols=cols)) for cols in (256, 1024))
    assert 0.6 < short / long <= 1.0


def test_a_selection_joins_its_threads_once_a_digit() -> None:
    # 18 steps of digits each; 1024 threads take a column each, and a second one for less than a first
    one, two, three = (time_s("topk", rows=64, cols=cols, k=8) for cols in (1024, 2048, 3072))
    assert two - one == pytest.approx(three - two)
    assert two - one < 0.5 * one


@pytest.mark.parametrize(("rows", "limit"), [(20, 20000), (40, 10000), (80, 8000), (199, 5000), (799, 3000)])
def test_one_block_and_several_select_alike_where_pytorch_changes(rows: int, limit: int) -> None:
    for on in ("a100", "h100"):
        one, several = (time_s("topk", on, rows=rows, cols=cols, k=8) for cols in (limit - 1, limit))
        assert 0.4 < one / several < 2.5


def test_a_draw_waits_for_the_host() -> None:
    one, gumbel = (float(time_s("sampling", rows=1, vocab=100, algorithm=name)) for name in ("multinomial", "gumbel"))
    assert one > gumbel + 30e-6


def test_random_places_cost_more_than_one_and_less_in_the_cache() -> None:
    random, near, same = (
        float(time_s("gather", numel=2**24, table=table, distribution=kind))
        for table, kind in ((2**28, "even"), (2**20, "even"), (2**28, "same"))
    )
    assert random > 3.0 * near > 3.0 * same


def test_what_misses() -> None:
    """Of a table that fits each place is fetched once, of a large one nearly every draw misses."""
    assert missed(1e6, 100.0, 64.0, "even", 1e6) == pytest.approx(100.0)
    assert missed(1e6, 1e9, 64.0, "even", 1e6) == pytest.approx(1e6, rel=1e-3)
    assert missed(1e6, 1e9, 64.0, "same", 1e6) == 1.0
    assert missed(1e6, 1e9, 64.0, "zipf", 1e6) < 0.6e6


def test_a_batch_norm_has_a_block_a_channel() -> None:
    """Fewer channels of the same size leave SMs idle: the gradient takes as long for 8 as for 64."""
    few, many = (float(time_s("batch_norm", n=64, c=c, hw=3136, backward=True)) for c in (8, 64))
    assert few == pytest.approx(many, rel=0.05)


def test_sums_into_one_row_follow_one_another() -> None:
    hot = float(time_s("scatter_add", rows=10**6, cols=8, table=1000, distribution="same"))
    spread = float(time_s("scatter_add", rows=10**6, cols=8, table=1000))
    assert hot > 10.0 * spread


def test_rows_of_whole_vectors_are_summed_in_bulk_by_the_release_that_does() -> None:
    """Only where the chip has bulk reductions, the release uses them, and vectors of 16 B fill the rows."""

    def sum_s(on: str, library: str, cols: int = 256) -> float:
        return float(time_s("scatter_add", on, library, rows=500000, cols=cols, table=100000, dtype="bf16"))

    assert sum_s("b200", "torch-2.12") > 4.0 * sum_s("b200", "torch-2.13")
    assert sum_s("b200", "torch-2.12", 252) == pytest.approx(sum_s("b200", "torch-2.13", 252))
    assert sum_s("a100", "torch-2.12") == pytest.approx(sum_s("a100", "torch-2.13"))
    # a row takes one reduction at least
    assert sum_s("b200", "torch-2.13", 8) == pytest.approx(sum_s("b200", "torch-2.13", 64), rel=0.1)
    rows = pm.ScatterAdd(rows=500000, cols=256, table=100000, dtype="bf16")
    before, since = (pm.predict(rows, "b200", library=f"torch-2.{minor}") for minor in (12, 13))
    widths = [one.predicted_time_high_s / one.predicted_time_low_s for one in (before, since)]
    assert widths[1] > widths[0]
    # gradients select rows, in every release
    before, since = (pm.predict(replace(rows, backward=True), "b200", library=f"torch-2.{minor}") for minor in (12, 13))
    assert before.predicted_time_s == since.predicted_time_s
    assert before.predicted_time_high_s == since.predicted_time_high_s


def test_a_pool_of_films_has_idle_threads_beyond_the_edges_of_a_picture() -> None:
    """Blocks of 32 x 8 threads cover 16 x 4 outputs, where a pool of images has a thread an output."""
    films = pm.Pool3d(n=32, c=256, d=16, h=4, w=16, t=2, r=1, s=1, dtype="fp16")
    images = pm.Pool3d(n=32, c=256, d=16, h=8, w=32, t=2, r=1, s=1, dtype="fp16")
    few, many = (float(pm.predict(op, "h200", library="torch").predicted_time_s) for op in (films, images))
    # a quarter of the outputs, in as many blocks
    assert few > 0.5 * many
    # one picture with square windows is a pool of images
    flat = pm.Pool3d(n=32, c=64, d=1, h=112, w=112, t=1, r=3, s=3, stride_h=2, stride_w=2, dtype="fp16")
    image = pm.Pool2d(n=32, c=64, h=112, w=112, k=3, stride=2, dtype="fp16")
    one, other = (pm.predict(op, "h200", library="torch") for op in (flat, image))
    assert one.predicted_time_s == pytest.approx(other.predicted_time_s, rel=1e-6)
    # nobody described its gradient
    gradient = pm.predict(replace(films, backward=True), "h200", library="torch")
    assert not str(gradient.rows()[0]["family"]).startswith("eager_")


def test_a_gated_activation_is_two_calls() -> None:
    op = pm.Swiglu(rows=4096, cols=4096, dtype="bf16")
    parts = op.composition_in("torch")
    assert [part.work().bytes for part in parts] == [2 * 4096 * 4096 * 2, 3 * 4096 * 4096 * 2]
    together = sum(float(pm.predict(part, "h100", library="torch").predicted_time_s) for part in parts)
    assert float(pm.predict(op, "h100", library="torch").predicted_time_s) == pytest.approx(together)
    assert op.composition_in("") == op.composition_in("vllm") == ()


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("library", ["torch", "torch-2.1"])
def test_a_norm_of_a_sum_is_two_calls(library: str, cache: str) -> None:
    rows = np.array([1.0, 64.0, 65536.0])
    op = pm.AddRmsNorm(rows=rows, cols=4096, dtype="bf16")
    parts = (
        pm.Elementwise(numel=rows * 4096, kind="add", dtype="bf16"),
        pm.RmsNorm(rows=rows, cols=4096, dtype="bf16"),
    )
    found, *alone = (pm.predict(one, "h100", library=library, cache=cache).predicted_time_s for one in (op, *parts))
    assert found == pytest.approx(sum(alone))
    # others have one kernel, which moves less than both
    for other in ("", "vllm", "sglang", "trtllm", "liger", "triton", "torch_compiled"):
        assert op.composition_in(other) == ()
        assert np.all(pm.predict(op, "h100", library=other, cache=cache).predicted_time_s < found)
    assert op.changed(backward=True).composition_in("torch") == ()


def test_what_torch_compiles_is_no_call_of_torch() -> None:
    assert library_of("torch-compiled") == "torch_compiled"
    assert library_of("torch-torch.sort") == "torch"


def test_the_record_of_an_h100_agrees() -> None:
    """Rows that were not fitted are within a fifth in the mean, and most lie in the interval."""
    errors, inside = [], []
    for path in sorted(RECORDS.glob("h100-*.json.gz")):
        for call in read_calls(path).calls:
            if call.library != "torch":
                continue
            result = pm.predict(call.op, call.hardware, cache=str(call.cache), library="torch")
            if str(result.rows()[0]["family"]).startswith("eager_"):
                judged = shape_hash(call.op, len(call)) >= 0.5
                predicted = np.broadcast_to(result.predicted_time_s, call.time_s.shape)
                errors += list(np.abs(predicted / call.time_s - 1.0)[judged])
                low, high = (np.broadcast_to(end, call.time_s.shape)
                             for end in (result.predicted_time_low_s, result.predicted_time_high_s))  # fmt: skip
                inside += list(((low <= call.time_s) & (call.time_s <= high))[judged])
    assert len(errors) > 30
    assert np.mean(errors) < 0.2
    assert np.mean(inside) > 0.7


#: own record of an H200 under torch 2.11.0, 2026-11-27, which was in view: operator, sizes, time [us]
DRAWN: list[tuple[str, dict[str, Any], float]] = [
    ("optimizer", {"parameters": 150661, "algorithm": "foreach"}, 134.4),
    ("optimizer", {"parameters": 120395, "algorithm": "foreach", "num_tensors": 16}, 36.6),
    ("dropout", {"numel": 5150284, "dtype": "fp16"}, 13.9),
    ("dropout", {"numel": 1676877, "dtype": "bf16"}, 9.4),
    ("dropout", {"numel": 1055, "dtype": "fp16"}, 2.9),
    ("transpose", {"rows": 8816, "cols": 1280, "dtype": "fp16"}, 79.8),
    ("transpose", {"rows": 1840, "cols": 752, "dtype": "fp32"}, 11.7),
    ("gather", {"numel": 1981, "table": 21163176, "dtype": "fp32"}, 9.9),
    ("layer_norm", {"rows": 187, "cols": 20907, "backward": True, "dtype": "fp32"}, 103.5),
    ("softmax", {"rows": 162, "cols": 576, "backward": True, "dtype": "bf16"}, 6.1),
    ("softmax", {"rows": 6759, "cols": 128, "backward": True, "dtype": "bf16"}, 7.7),
    ("batch_norm", {"n": 5, "c": 704, "hw": 196, "backward": True, "dtype": "bf16"}, 10.7),
]


@pytest.mark.parametrize(("op", "sizes", "measured_us"), DRAWN)
def test_sizes_that_nobody_chose(op: str, sizes: dict[str, Any], measured_us: float) -> None:
    predicted = pm.predict(load_operator(op)(**sizes), "h200", library="torch", timing="kernel").predicted_time_s
    assert predicted == pytest.approx(measured_us * 1e-6, rel=0.2)


def test_a_small_tensor_is_few_blocks_of_a_step() -> None:
    """A tensor of 65,536 weights is a block of 32 steps; in 32 tensors they are 32 blocks of one step."""
    one, many = (time_s("optimizer", parameters=65536, algorithm="foreach", num_tensors=count) for count in (1, 32))
    assert one > 3.0 * many


def test_a_fused_step_of_many_tensors_starts_a_kernel_for_36_of_them() -> None:
    few, more = (time_s("optimizer", parameters=10**5, num_tensors=count) for count in (36, 37))
    assert more - few > 2e-6


def test_blocks_of_a_fused_step_convert_each_weight_to_doubles() -> None:
    """AdamW takes 2600 cycles for a step of 2048 weights, 900 of them for its loads: three times a foreach pass."""
    machine = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 1e7, np.inf)
    constants = {"wait": 900.0, "arguments": 1e-6, "launch": 2e-6}
    count, fused = STEPS["optimizer"](Optimizer(parameters=65536), 4.0, constants, machine)
    assert fused.waited_s == pytest.approx(3e-6 + 32 * 2.6e-6)
    assert count.waited_s == 0.0
    several = STEPS["optimizer"](Optimizer(parameters=65536, algorithm="foreach"), 4.0, constants, machine)
    assert [float(one.waited_s) for one in several] == pytest.approx([32 * 0.9e-6] * len(several))


def test_few_lanes_for_doubles_take_the_time_of_a_fused_step() -> None:
    """Before release 2.11; each has 4 or 9 instructions an element, and its foreach passes have none."""

    def step_s(on: str, library: str, algorithm: str = "fused", momentum: bool = True) -> float:
        many: dict[str, Any] = {"parameters": 6553600, "num_tensors": 100, "kind": "sgd", "momentum": momentum}
        return float(time_s("optimizer", on, library, **many, algorithm=algorithm))

    assert step_s("rtx-3070", "torch-2.3") > 1.5 * step_s("rtx-3070", "torch")
    assert step_s("rtx-3070", "torch-2.3") > 1.5 * step_s("rtx-3070", "torch-2.3", momentum=False)
    # as measured, the one pass takes longer than the three
    assert step_s("rtx-3070", "torch-2.3") > step_s("rtx-3070", "torch-2.3", "foreach")
    assert step_s("rtx-3070", "torch-2.3", "foreach") == step_s("rtx-3070", "torch", "foreach")
    assert step_s("h200", "torch-2.3") == step_s("h200", "torch")


def test_releases_in_which_each_block_of_a_selection_adds_up_the_counts_of_all() -> None:
    """From 2.7 and before 2.10, with the square of the blocks that share a row; a row in one block has none."""

    def topk_s(minor: int, cols: int = 10**8, rows: int = 1) -> float:
        return float(time_s("topk", "h100", f"torch-2.{minor}", rows=rows, cols=cols, k=100))

    assert topk_s(6) == topk_s(10) == float(time_s("topk", "h100", cols=10**8, k=100))
    assert topk_s(7) == topk_s(9) > 4.0 * topk_s(6)
    ten_times = (topk_s(8, 10**9) - topk_s(6, 10**9)) / (topk_s(8) - topk_s(6))
    assert ten_times == pytest.approx(100.0, rel=0.15)
    assert topk_s(8, 128, 4096) == topk_s(6, 128, 4096)
    op = pm.Topk(rows=128, cols=8 * 10**6, k=1000, dtype="fp16")
    during, after = (pm.predict(op, "l20", library=f"torch-2.{minor}") for minor in (7, 10))
    assert during.predicted_time_high_s / during.predicted_time_low_s > (
        after.predicted_time_high_s / after.predicted_time_low_s
    )


def test_a_row_that_is_no_whole_vector_is_selected_by_elements() -> None:
    """25 columns in fp32 are no vectors of 16 B; rows of 28 take a block each, and longer where rows are many."""
    odd, even = (time_s("index_select", rows=100_000, cols=cols, table=5000) for cols in (25, 28))
    assert odd < 0.5 * even


def test_a_lone_block_sorts_as_long_as_one_on_each_sm() -> None:
    few, many, merged = (time_s("sort", rows=rows, cols=cols) for rows, cols in ((1, 1000), (100, 1000), (1, 100)))
    assert few == pytest.approx(many, rel=0.2)
    assert few > 9e-6
    assert merged < few  # a warp that merges 128 keys takes less time than a block that sorts 1024 by digits


def test_a_selection_of_many_by_one_block_adds_a_short_merge() -> None:
    # of 16 rows of 1643 elements an H200 selects 50 in 21.6 us (own record, torch 2.11.0), as long as a few
    few, many = (time_s("topk", rows=16, cols=1643, k=k, on="h200") for k in (5, 50))
    assert few < many < 1.15 * few
    assert many == pytest.approx(21.6e-6, rel=0.2)


def test_several_blocks_run_three_kernels_a_digit_and_seven_more() -> None:
    wide, narrow = (time_s("topk", rows=1, cols=20_000, k=5, dtype=dtype) for dtype in ("fp32", "bf16"))
    # 19 and 13 kernels of 2.5 us and more, and the sort of what was found
    assert wide > 20 * 2.5e-6
    assert wide / narrow == pytest.approx(20 / 14, rel=0.1)


def test_a_transposed_copy_reads_a_sector_for_an_element() -> None:
    """A block of 512 outputs finds the other elements of a sector again where the columns are short."""
    long, short = (time_s("transpose", rows=rows, cols=2**24 // rows, dtype="fp16") for rows in (4096, 16))
    assert long > 3.0 * short
    # in fp32 as many sectors as in fp16
    assert time_s("transpose", rows=4096, cols=4096, dtype="fp32") == pytest.approx(float(long), rel=0.15)


def test_the_gradient_of_softmax_multiplies_in_a_kernel_of_its_own() -> None:
    """Six times the tensor crosses memory, where the least is three times."""
    elements = 2.0**28
    predicted = pm.predict(pm.Softmax(rows=2**18, cols=1024, backward=True, dtype="bf16"), "h100", library="torch")
    assert predicted.predicted_time_s > 6.0 * 2.0 * elements / 3.35e12


def test_rows_of_no_whole_vectors_walk_by_single_elements_back() -> None:
    odd, even = (time_s("layer_norm", rows=100, cols=cols, backward=True, dtype="fp32") for cols in (20907, 20908))
    assert odd > 1.8 * even


def test_the_gradient_of_a_logarithm_of_softmax_is_one_kernel() -> None:
    """The softmax's multiplies y and dy before; both read a row again that shared memory has no room for."""
    long, short = (pm.Softmax(rows=4096, cols=cols, dtype="fp32", backward=True) for cols in (16384, 8192))
    times = {
        op.cols: [
            float(pm.predict(op.changed(log=log), "h200", library="torch").predicted_time_s) for log in (False, True)
        ]
        for op in (long, short)
    }
    assert times[8192][1] == pytest.approx(times[8192][0] / 2.0, rel=0.05)  # three tensors in place of six
    assert times[16384][1] == pytest.approx(times[16384][0] * 4.0 / 7.0, rel=0.05)  # four in place of seven
    assert times[16384][1] > 2.0 * times[8192][1]


def test_the_gradient_of_cross_entropy_takes_what_was_measured() -> None:
    """111.7 us on an H200 and 1733 on an H100 (own records, torch 2.11.0); the softmax's takes 1.5 times as long."""
    drawn = pm.CrossEntropy(rows=6049, vocab=7680, dtype="bf16", backward=True)
    large = pm.CrossEntropy(rows=8192, vocab=64128, dtype="bf16", backward=True)
    for op, machine, measured in ((drawn, "h200", 111.7e-6), (large, "h100-sxm5-80gb", 1733e-6)):
        assert pm.predict(op, machine, library="torch").predicted_time_s == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("op", [pm.Sort(cols=1e7), pm.Gather(numel=1e7), pm.Dropout(numel=1e8)], ids=lambda op: op.op)
def test_releases_that_nobody_measured_are_less_sure_and_those_before_2_the_least(op: pm.Operator) -> None:
    widths = []
    for library in ("torch-2.11", "torch-2.9", "torch-1.1"):
        found = pm.predict(op, "p100", library=library)
        widths.append(float(found.predicted_time_high_s / found.predicted_time_low_s))
    assert widths[0] < widths[1]
    assert widths[2] > 1.5 * widths[1]
    times = {float(pm.predict(op, "p100", library=f"torch-{release}").predicted_time_s) for release in ("2.11", "1.1")}
    assert len(times) == 1


@pytest.mark.parametrize("on", ["h100", "rtx-3090", "b200"])
@pytest.mark.parametrize(
    "op",
    [
        pm.RmsNorm(rows=4096, cols=4096, dtype="bf16"),
        pm.RmsNorm(rows=16, cols=16384, dtype="fp16"),  # PyTorch's takes twelve times as long as kernels of vectors
        pm.Rope(tokens=4096, heads=32, head_dim=128, dtype="fp16"),
        pm.Embedding(tokens=4096, dim=4096, vocab=32000, dtype="bf16"),
    ],
)  # fmt: skip
def test_calls_of_no_library_reach_every_measured_library_and_pytorch(op: pm.Operator, on: str) -> None:
    found = pm.predict(op, on).estimate
    for library in ("torch", "vllm", "vidur"):
        other = pm.predict(op, on, library=library).estimate
        assert found.low_s <= other.time_s * (1 + 1e-9)
        assert other.time_s <= found.high_s * (1 + 1e-9)


@pytest.mark.parametrize("on", ["h100", "rtx-4090", "v100", "mi300x"])
@pytest.mark.parametrize(
    "op",
    [
        pm.Attention(heads=32, kv_heads=8, seq_q=1, seq_kv=2048, head_dim=128, dtype="fp32"),
        pm.Attention(heads=16, seq_q=4096, head_dim=128, causal=True, window=256, dtype="fp16"),
        pm.AddRmsNorm(rows=1, cols=4096, dtype="fp16"),  # two calls of PyTorch
        pm.Swiglu(rows=64, cols=4096, dtype="fp16"),
        pm.Reduction(rows=16, cols=4096),
    ],
)  # fmt: skip
def test_calls_of_no_library_reach_pytorch_where_its_kernels_are_others(op: pm.Operator, on: str) -> None:
    found, torch = pm.predict(op, on).estimate, pm.predict(op, on, library="torch").estimate
    assert found.low_s <= torch.time_s * (1 + 1e-9)
    assert torch.time_s <= found.high_s * (1 + 1e-9)


@pytest.mark.parametrize("op", ["layer_norm", "softmax"])
def test_gradients_of_no_library_are_by_whoever_wrote_the_forward_pass(op: str) -> None:
    for machine in ("v100", "h100", "b200"):
        for rows in (1, 4096, 131072):
            sizes = {"rows": rows, "cols": 4096, "dtype": "fp16"}
            forward, backward = time_s(op, machine, "", **sizes), time_s(op, machine, "", backward=True, **sizes)
            assert backward == time_s(op, machine, "torch", backward=True, **sizes)
            assert backward > 0.45 * forward


def test_calls_of_a_library_reach_no_other() -> None:
    op = pm.RmsNorm(rows=16, cols=16384, dtype="fp16")
    assert (
        pm.predict(op, "h100", library="vllm").estimate.high_s < pm.predict(op, "h100", library="torch").estimate.low_s
    )
