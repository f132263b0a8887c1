"""Real traces, against figures that other tools and their publishers give for them."""

import csv
import math
from ast import literal_eval
from itertools import pairwise

import numpy as np
import pytest

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import EventKind
from perfmodel.formats import read_profile
from perfmodel.formats.torch_trace import reader as torch_trace

MIB = 2**20
BERT = ("tracelens_h100_bert-small", "h100_bert-small")
QWEN = ("tracelens_h100_qwen1.5-0.5b_prefill", "h100_qwen1.5-0.5b")


@pytest.fixture(scope="module")
def trace(data_dir):
    known = {}

    def call(name, **options):
        key = (name, *options.items())
        if key not in known:
            known[key] = read_profile(data_dir / "traces" / f"{name}.json.gz", **options)
        return known[key]

    return call


@pytest.fixture(scope="module")
def report(data_dir):
    def call(name, table):
        with (data_dir / "trace_reference_reports" / name / f"{table}.csv").open(encoding="utf-8-sig") as stream:
            return list(csv.DictReader(stream))

    return call


def busy_s(start, end):
    """Return the time in which at least one of some events runs."""
    order = np.argsort(start)
    until = np.maximum.accumulate(end[order])
    gaps = np.maximum(start[order][1:] - until[:-1], 0.0)
    return until[-1] - start.min() - gaps.sum()


# events of the GPU, kernels with collectives, span and sum of durations in ms: as read from the files with a JSON
# parser; kernels are those of the data's README, where it counts them
COUNTS = {
    "hta_a100_2rank_nccl_resnet": (3774, 2700, 660.551, 165.1858),
    "hta_alexnet_a100_big_gaps": (98, 79, 12920.244, 66.203),
    "kineto_resnet50_train_nw0_2021.pt.trace": (10015, 9564, 927.973, 653.527),
    "kineto_resnet50_train_nw4_2021.pt.trace": (9819, 9456, 747.14, 669.88),
    BERT[0]: (61, 60, 3.907825, 0.309437),
    QWEN[0]: (1707, 1465, 49.652832, 45.6473),
    "tracelens_mi300_resnet_act_checkpoint_ddp": (3653, 2995, 86.567708, 100.230072),
    "tracelens_sglang_qwen3-8b_decode_cudagraph_mi300": (558, 555, 473.749944, 9.778614),
    "tracelens_torch_compile_triton_mi300": (12, 12, 12.549032, 12.549021),
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_trace_reads_with_its_counts(trace, name):
    profile = trace(name)
    gpu = profile.timeline.gpu
    events, kernels, span_ms, sum_ms = COUNTS[name]
    assert len(gpu) == events
    assert np.isin(gpu.category, (EventKind.KERNEL.code, EventKind.COMMUNICATION.code)).sum() == kernels
    assert 1e3 * (gpu.end_s.max() - gpu.start_s.min()) == pytest.approx(span_ms, abs=1e-3)
    assert 1e3 * gpu.duration_s.sum() == pytest.approx(sum_ms, abs=1e-3)
    counted = gpu.duration_s[profile.timeline.in_window()].sum()
    assert profile.total_time_s == pytest.approx(counted, rel=1e-9)
    assert not profile.skipped


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_busy_idle_and_total_are_those_of_tracelens(trace, report, name, reference):
    profile = trace(name)
    gpu, counted = profile.timeline.gpu, profile.timeline.in_window()
    said = {row["type"]: float(row["time ms"]) for row in report(reference, "gpu_timeline")}
    start, end = gpu.start_s[counted], gpu.end_s[counted]
    kernels = gpu.category[counted] == EventKind.KERNEL.code
    assert 1e3 * busy_s(start, end) == pytest.approx(said["busy_time"], abs=1e-3)
    assert 1e3 * (end.max() - start.min()) == pytest.approx(said["total_time"], abs=1e-3)
    # theirs counts memsets as computation
    sets = end[gpu.category[counted] == 2] - start[gpu.category[counted] == 2]
    computing = busy_s(start[kernels], end[kernels]) + sets.sum()
    assert 1e3 * computing == pytest.approx(said["computation_time"], abs=1e-3)


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_time_and_calls_of_every_operator_are_those_of_tracelens(trace, report, name, reference):
    mine = {entry.name: entry for entry in trace(name, by="op").entries}
    rows = report(reference, "ops_summary")
    assert set(mine) == {row["name"] for row in rows}
    for row in rows:
        entry = mine[row["name"]]
        assert 1e3 * entry.time_s == pytest.approx(float(row["total_direct_kernel_time_ms"]), abs=1e-3)
        assert entry.calls == int(row["Count"])


@pytest.mark.parametrize("by", ["op", "kernel"])
def test_a_grouping_that_loses_sizes_says_so_and_does_lose_them(trace, by):
    name, _ = QWEN
    lost, kept = trace(name, by=by), trace(name, by="shape")
    (note,) = (note for note in lost.notes if note.startswith(f"Grouped by {by}: "))
    assert "--by shape" in note
    assert not any(note.startswith("Grouped by") for note in kept.notes)
    known_s = [math.fsum(entry.time_s for entry in one.entries if entry.op is not None) for one in (lost, kept)]
    assert known_s[0] < 0.5 * known_s[1]  # of the same time
    assert lost.total_time_s == pytest.approx(kept.total_time_s)


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_time_of_every_kernel_is_that_of_tracelens(trace, report, name, reference):
    # this table of theirs is of the whole trace, unlike the others
    mine = {entry.name: entry for entry in trace(name, by="kernel", whole_trace=True).entries}
    theirs = {}
    for row in report(reference, "kernel_summary"):
        time_us, count = theirs.get(row["Kernel name"], (0.0, 0))
        time_us += float(row["Kernel duration (µs)_sum"])
        theirs[row["Kernel name"]] = (time_us, count + int(row["Kernel duration (µs)_count"]))
    for kernel, (time_us, count) in theirs.items():
        assert 1e6 * mine[kernel].time_s == pytest.approx(time_us, abs=1.0)
        assert mine[kernel].calls == count


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_products_have_the_flop_bytes_and_times_of_tracelens(trace, report, name, reference):
    mine = {
        (e.launched_by, *(e.op.params()[d] for d in ("batch", "m", "n", "k"))): e
        for e in trace(name).entries
        if e.op is not None and e.op.op == "gemm"
    }
    rows = report(reference, "GEMM")
    assert len(mine) == len(rows)
    for row in rows:
        entry = mine[(row["name"], *(int(row[f"param: {d}"]) for d in "BMNK"))]
        work = entry.op.work()
        assert work.flop == round(1e9 * float(row["GFLOPS_first"])), "both count m n for the bias"
        assert work.bytes_read + work.bytes_written == round(MIB * float(row["Data Moved (MB)_first"]))
        assert entry.calls == int(row["name_count"])
        assert 1e6 * entry.time_s == pytest.approx(float(row["Kernel Time (µs)_sum"]), abs=1.0)


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_attention_against_tracelens(trace, report, name, reference):
    entry = next(e for e in trace(name).entries if e.op is not None and e.op.op == "attention")
    (row,) = report(reference, "SDPA_fwd")
    shape = [int(row[f"param: {key}"]) for key in ("B", "N_Q", "H_Q", "N_KV", "H_KV", "d_h_qk")]
    op = entry.op
    assert [op.batch, op.seq_q, op.heads, op.seq_kv, op.kv_heads, op.head_dim] == shape
    assert op.causal == (row["param: causal"] == "True")
    assert 1e6 * entry.time_s == pytest.approx(float(row["Kernel Time (µs)_sum"]), abs=1.0)
    theirs = 1e9 * float(row["GFLOPS_first"])
    # causal: they halve 4 b h s^2 d; a query sees itself too, so that the pairs are s (s + 1) / 2 and not s^2 / 2
    assert op.flop() == pytest.approx(theirs * ((op.seq_q + 1) / op.seq_q if op.causal else 1), rel=1e-12)
    work = op.work()
    assert work.bytes_read + work.bytes_written == round(MIB * float(row["Data Moved (MB)_first"]))


def test_layer_norm_against_tracelens(trace, report):
    entry = next(e for e in trace(BERT[0]).entries if e.op is not None and e.op.op == "layer_norm")
    row = next(row for row in report(BERT[1], "Normalization") if row["name"] == "aten::native_layer_norm")
    assert 1e6 * entry.time_s == pytest.approx(float(row["Kernel Time (µs)_sum"]), abs=1.0)
    work, rows, cols = entry.op.work(), entry.op.rows, entry.op.cols
    assert (rows, cols) == (141, 512)
    # 4 FLOP an element here; they have 5, and 6 more for each of the 512 columns: 5 x 72192 + 6 x 512 = 364032
    assert work.flop == 4 * rows * cols
    assert 5 * rows * cols + 6 * cols == round(1e9 * float(row["GFLOPS_first"]))
    # x, y, gamma and beta here; they add 4096 B of running statistics, 2 x 512 fp32, which a layer norm has none of
    assert work.bytes_read + work.bytes_written == 2 * (2 * rows * cols + 2 * cols)
    assert work.bytes_read + work.bytes_written + 4096 == round(MIB * float(row["Data Moved (MB)_first"]))


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_elementwise_bytes_are_those_of_tracelens_without_the_small_inputs(trace, report, name, reference):
    theirs = {}
    for row in report(reference, "unified_perf_summary"):
        if row["op category"] == "elementwise" and row["Data Moved (MB)"]:
            dims = tuple(d for d in literal_eval(row["Input Dims"]) if d)
            theirs.setdefault((row["name"], dims), set()).add(round(MIB * float(row["Data Moved (MB)"])))
    checked = 0
    for entry in trace(name).entries:
        op = entry.op
        if op is None or op.op != "elementwise" or "[" in entry.name:
            continue
        inside = entry.name[entry.name.index("(") + 1 : entry.name.rindex(")")]
        dims = tuple(tuple(map(int, shape.split("x"))) for shape in inside.split(", "))
        if (entry.launched_by, dims) not in theirs:
            continue
        moved = op.work().bytes_read + op.work().bytes_written
        # inputs that broadcast are left out here, and scalars, 8 B there; comparisons write bools here, and as large
        # elements as they read there
        small = sum(math.prod(d) for d in dims if math.prod(d) < op.numel) * dtype_bytes(op.dtype)
        bools = op.numel * (dtype_bytes(op.dtype) - 1) if entry.launched_by == "aten::eq" else 0
        assert any(abs(moved + small + bools - said) <= 8 for said in theirs[(entry.launched_by, dims)]), entry.name
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize(("name", "reference"), [BERT, QWEN])
def test_nearly_all_of_the_reference_traces_is_modelled(trace, name, reference):
    profile = trace(name)
    lost = sum(entry.time_s for entry in profile.entries if entry.op is None)
    assert lost <= 1e-4 * profile.total_time_s


def test_kernels_that_compute_addresses_take_two_fifths_of_a_transformer_in_pytorch(trace):
    # rope on views of heads, and norms with their weights broadcast; counted in the file by the kernels' names
    entries = [entry for entry in trace(QWEN[0]).entries if getattr(entry.op, "strided", False)]
    assert sum(entry.calls for entry in entries) == 435
    assert sum(entry.time_s for entry in entries) == pytest.approx(12.565e-3, rel=1e-3)
    assert not any("vectorized" in kernel for entry in entries for kernel in entry.kernels)


def test_the_gap_of_ten_seconds_is_there(trace):
    gpu = trace("hta_alexnet_a100_big_gaps").timeline.gpu
    kernels = gpu.category == EventKind.KERNEL.code
    gaps = [after - before for before, after in pairwise(np.sort(gpu.start_s[kernels]))]
    assert max(gaps) == pytest.approx(10.9, abs=0.1)
    assert busy_s(gpu.start_s[kernels], gpu.end_s[kernels]) < 2e-3 * 12.8


def test_loader_workers_fill_the_gaps(trace):
    # README: idle 31 % without workers of the data loader, busy 87 % with four
    shares = []
    for workers in (0, 4):
        profile = trace(f"kineto_resnet50_train_nw{workers}_2021.pt.trace")
        begin, end = profile.timeline.window_s
        shares.append(busy_s(profile.timeline.gpu.start_s, profile.timeline.gpu.end_s) / (end - begin))
    assert shares[0] == pytest.approx(0.69, abs=0.03)
    assert shares[1] == pytest.approx(0.87, abs=0.02)


def test_a_training_without_values_tells_its_batch_norms_by_their_kernels(trace):
    norms = [
        e for e in trace("kineto_resnet50_train_nw0_2021.pt.trace").entries if getattr(e.op, "op", "") == "batch_norm"
    ]
    assert len(norms) == 24  # 12 shapes of ResNet-50, forward and backward
    assert all(entry.op.training for entry in norms)


def test_generated_kernels_that_write_in_place_move_one_more_tensor(trace):
    # 8 x 4096 rows: silu(x) y of 8192 columns reads both and writes x; the residual of 2048 reads three and writes one;
    # the norm of the sum of two tensors has its output behind them
    numel, moved = 8 * 4096 * 2048, {}
    for entry in trace("tracelens_torch_compile_triton_mi300").entries:
        if entry.name.startswith("triton"):
            moved[entry.name.partition("(")[0]] = entry.op.work().bytes / (2 * numel)
    assert moved["triton_poi_fused__unsafe_view_mul_silu_2"] == 3 * 4
    assert moved["triton_poi_fused__unsafe_view_add_3"] == 4
    assert moved["triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1"] == 3


def test_overlapping_streams_graph_launches_and_rocm(trace):
    resnet = trace("tracelens_mi300_resnet_act_checkpoint_ddp")
    gpu = resnet.timeline.gpu
    assert busy_s(gpu.start_s, gpu.end_s) < gpu.duration_s.sum()  # communication beside computation
    assert (resnet.device, resnet.rank) == ("AMD Instinct MI300X", 0)
    reduced = {e.op.bytes for e in resnet.entries if e.op is not None and e.op.op == "all_reduce"}
    assert 2 * 2873320 in reduced  # bf16
    assert any(e.op is not None and e.op.op == "conv2d" for e in resnet.entries)
    graph = trace("tracelens_sglang_qwen3-8b_decode_cudagraph_mi300")
    assert sum("graph" in e.not_modelled for e in graph.entries) > 10
    assert any("544 kernels were launched in graphs" in note for note in graph.notes)


def test_other_formats_are_not_taken_for_traces(data_dir):
    others = ["nsys/yashlabs_qwen_decode_cuda_gpu_kern_sum.csv", "benchmark_json/pytest_benchmark_0001.json"]
    for name in (*others, "torch_profiler/ao_sdpa_key_averages.txt", "hf_configs/Qwen__Qwen3-0.6B.json"):
        assert not torch_trace.sniff((data_dir / name).read_bytes()[:65536])
