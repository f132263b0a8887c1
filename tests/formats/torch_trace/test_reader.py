"""Traces made by hand: links, windows, groups and the time line, each with its arithmetic."""

import gzip
import json

import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile, read_profiles
from perfmodel.profile.timeline import CopyDirection


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name, ts, dur, dims=(), types=(), values=(), tid=1, **args):
    shapes = {"Input Dims": list(dims), "Input type": list(types), "Concrete Inputs": list(values)} if dims else {}
    return event("cpu_op", name, ts, dur, tid, **shapes, **args)


def launch(ts, correlation, name="cudaLaunchKernel", tid=1):
    return event("cuda_runtime", name, ts, 1, tid, correlation=correlation)


def kernel(name, ts, dur, correlation=-1, stream=7, device=0, cat="kernel", **args):
    return event(cat, name, ts, dur, stream, correlation=correlation, stream=stream, device=device, **args)


@pytest.fixture
def read(tmp_path):
    def call(*events, header=None, packed=False, **options):
        path = tmp_path / "trace.bin"  # content decides, not the name
        data = json.dumps({"schemaVersion": 1, **(header or {}), "traceEvents": list(events)}).encode()
        path.write_bytes(gzip.compress(data) if packed else data)
        return read_profile(path, **options)

    return call


def one(profile):
    (entry,) = profile.entries
    return entry


MM = ([[4, 8], [8, 2]], ["c10::BFloat16"] * 2, ["", ""])


def test_a_kernel_belongs_to_the_operator_around_its_launch(read):
    # linear [0, 20] > mm [2, 8], launch at 3; two kernels of 5 and 7 us in two calls of the same shape
    entry = one(
        read(
            *(op("aten::linear", 0, 20, *MM), op("aten::mm", 2, 6, *MM), launch(3, 1), kernel("gemm_a", 30, 5, 1)),
            *(op("aten::mm", 10, 6, *MM), launch(11, 2), kernel("gemm_b", 40, 7, 2)),
        )
    )
    assert entry.name == "aten::mm(4x8, 8x2) bf16"
    assert entry.time_s == pytest.approx(12e-6)
    assert (entry.calls, entry.category, entry.launched_by) == (2, "kernel", "aten::mm")
    assert entry.kernels == ("gemm_b", "gemm_a")  # the longest first
    assert entry.op.flop() == 2 * 4 * 2 * 8


def test_memsets_of_an_operator_count_with_its_kernels(read):
    entry = one(
        read(
            op("aten::mm", 0, 9, *MM),
            *(launch(1, 1, "cudaMemsetAsync"), kernel("Memset (Device)", 20, 2, 1, cat="gpu_memset", bytes=64)),
            *(launch(3, 2), kernel("splitk", 23, 5, 2)),
        )
    )
    assert (entry.time_s, entry.category, entry.calls) == (pytest.approx(7e-6), "kernel", 1)


def test_work_that_names_no_gpu_ran_on_the_one_that_is_its_process(read):
    # the profiler writes the number of the GPU as the process of its work; 4321 is one of the host
    unnamed = [{**event("gpu_memset", "Memset (Device)", 20, 2), "pid": pid} for pid in (1, 4321)]
    gpu = read(kernel("k", 0, 5, device=1), *unnamed).timeline.gpu
    assert gpu.device.tolist() == [1, 1, -1]


def test_a_copy_between_gpus_has_no_operator_within_one(read):
    copy = kernel("Memcpy PtoP (Device -> Device)", 0, 5, cat="gpu_memcpy", bytes=4096)
    entry = one(read(copy))
    assert (entry.op, entry.category) == (None, EventKind.MEMCPY)
    assert "between GPUs" in entry.not_modelled


def test_groupings(read):
    other = ([[4, 8], [8, 16]], ["c10::BFloat16"] * 2, ["", ""])
    events = (
        *(op("aten::mm", 0, 5, *MM), launch(1, 1), kernel("k", 20, 2, 1)),
        *(op("aten::mm", 6, 5, *other), launch(7, 2), kernel("k", 30, 4, 2)),
        *(launch(12, 3), kernel("lone", 40, 1, 3)),
    )
    by = {grouping: {e.name: e for e in read(*events, by=grouping).entries} for grouping in ("shape", "op", "kernel")}
    assert list(by["shape"]) == ["aten::mm(4x8, 8x16) bf16", "aten::mm(4x8, 8x2) bf16", "lone"]
    assert list(by["op"]) == ["aten::mm", "lone"]
    assert list(by["kernel"]) == ["k", "lone"]
    assert by["op"]["aten::mm"].calls == by["kernel"]["k"].calls == 2
    assert "2 different shapes" in by["op"]["aten::mm"].not_modelled
    assert by["kernel"]["k"].launched_by == "aten::mm"
    assert all(sum(e.time_s for e in made.values()) == pytest.approx(7e-6) for made in by.values())
    with pytest.raises(UsageError, match="Did you mean 'shape'"):
        read(*events, by="shapes")


def test_what_is_not_modelled_says_why_and_how_much(read):
    profile = read(
        *(op("aten::mm", 0, 5, *MM), launch(1, 1), kernel("k", 20, 3, 1)),
        *(op("aten::unique", 6, 5, [[9]], ["float"], [""]), launch(7, 2), kernel("s", 30, 1, 2)),
    )
    unique = next(e for e in profile.entries if e.launched_by == "aten::unique")
    assert (unique.op, unique.not_modelled) == (None, "the model has no operator for aten::unique")
    assert "Not modelled: 25 % of the work's time (1 us)." in profile.notes


def test_kernels_of_a_graph_share_their_launch_and_stand_by_name(read):
    profile = read(
        op("graph_replay", 0, 9),
        launch(1, 5, "cudaGraphLaunch"),
        *(kernel("a", 20 + 3 * i, 2, 5) for i in range(3)),
        kernel("b", 40, 1, 5),
    )
    assert {(e.name, e.calls, e.launched_by) for e in profile.entries} == {("a", 3, ""), ("b", 1, "")}
    assert all("graph" in e.not_modelled for e in profile.entries)
    assert profile.timeline.gpu.launch.tolist() == [0] * 4
    assert any(note.startswith("4 kernels were launched in graphs") for note in profile.notes)


def test_copies_are_told_apart_by_size_and_have_their_direction(read):
    profile = read(
        op("aten::copy_", 0, 50),
        *(launch(i, i, "cudaMemcpyAsync") for i in (1, 2, 3)),
        kernel("Memcpy HtoD (Pageable -> Device)", 10, 2, 1, cat="gpu_memcpy", bytes=4096),
        kernel("Memcpy HtoD (Pageable -> Device)", 20, 3, 2, cat="gpu_memcpy", bytes=4096),
        kernel("Memcpy DtoH (Device -> Pinned)", 30, 1, 3, cat="gpu_memcpy", bytes=8),
    )
    first, second = profile.entries
    assert (first.calls, first.op.bytes, first.op.direction, first.op.pinned) == (2, 4096, "h2d", False)
    assert (second.calls, second.op.bytes, second.op.direction, second.op.pinned) == (1, 8, "d2h", True)
    assert first.name == "Memcpy HtoD (Pageable -> Device) 4.096 kB by aten::copy_"
    assert profile.timeline.gpu.direction.tolist() == [0, 0, CopyDirection.DEVICE_TO_HOST]


def test_the_bytes_of_a_rocm_copy_stand_at_its_call_as_text(read):
    call = event("cuda_runtime", "hipMemcpyAsync", 1, 2, correlation=4, bytes="128", stream="0x7f")
    profile = read(call, kernel("Memcpy DtoD (Device -> Device)", 9, 4, 4, cat="gpu_memcpy"))
    assert one(profile).op.bytes == profile.timeline.gpu.bytes[0] == 128
    assert not profile.skipped


def test_collectives_have_their_message_and_ranks(read):
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 8}
    # NVIDIA says it at the kernel, ROCm at the operator
    at_kernel = read(kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9, 4, dtype="Float", **said))
    at_op = read(
        event("cpu_op", "record_param_comms", 0, 5, dtype="Float", **said),
        *(launch(1, 1), kernel("ncclDevKernel_Generic", 9, 4, 1)),
    )
    for profile in (at_kernel, at_op):
        entry = one(profile)
        assert (entry.category, entry.op.op, entry.op.bytes, entry.op.num_gpus) == (
            "communication",
            "all_reduce",
            4000,
            8,
        )
        assert profile.timeline.gpu.category.tolist() == [EventKind.COMMUNICATION.code]


@pytest.mark.parametrize(
    ("name", "says", "exchanges"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", False, True),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", True, True),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(x)", False, True),
        ("void my_own::exchange<8>(x)", True, True),
        ("void my_own::exchange<8>(x)", False, False),
        ("void c10d::checkForNaN<float>(x)", True, False),
    ],
)
def test_what_takes_time_as_communication_is_what_the_ranks_exchange(read, name, says, exchanges):
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "Group size": 8, "Seq": 3} if says else {}
    timeline = read(launch(1, 1), kernel(name, 9, 4, 1, **said), kernel("gemm", 20, 5)).timeline
    communicates = timeline.gpu.are(EventKind.COMMUNICATION)
    assert communicates.tolist() == [exchanges, False]
    assert timeline.exchanges.start_s.tolist() == timeline.gpu.start_s[communicates].tolist()
    if exchanges and "my_own" not in name:
        assert timeline.names[timeline.exchanges.name[0]] == "all_reduce"


def test_a_message_says_which_rank_it_comes_from_or_goes_to(read):
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    exchanges = read(
        kernel(name, 9, 4, **{"Collective name": "send", "Dst Rank": 3}),
        kernel(name, 19, 4, **{"Collective name": "recv", "Src Rank": 1}),
        kernel(name, 29, 4, **{"Collective name": "recv", "Src Rank": "1"}),
    ).timeline.exchanges
    assert exchanges.receiver.tolist() == [3, -1, -1]
    assert exchanges.sender.tolist() == [-1, 1, -1]


@pytest.mark.parametrize(("written", "number"), [(7, 7), (-1, -1), (2**64 - 1, -1), (True, -1), ("7", -1), (None, -1)])
def test_a_sequence_number_that_is_none_is_unknown(read, written, number):
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    exchanges = read(kernel(name, 9, 4, **{"Collective name": "allreduce", "Seq": written})).timeline.exchanges
    assert exchanges.sequence.tolist() == [number]


STEPPED = (
    *(launch(5, 1), kernel("before", 10, 5, 1), launch(101, 2), kernel("inside", 110, 7, 2)),
    *(launch(195, 3), kernel("late", 210, 4, 3), launch(300, 4), kernel("after", 310, 9, 4)),
)
CPU_STEPS = (event("user_annotation", "ProfilerStep#3", 100, 60), event("user_annotation", "ProfilerStep#4", 160, 40))


def test_without_steps_everything_counts(read):
    profile = read(*STEPPED)
    assert profile.total_time_s == pytest.approx(25e-6)
    assert profile.timeline.window_s == pytest.approx((0, 314e-6))  # from 5 to 319


def test_steps_on_the_gpu_decide_what_counts(read):
    on_gpu = event("gpu_user_annotation", "ProfilerStep#3", 109, 50, tid=7)
    profile = read(*STEPPED, on_gpu)
    assert [e.name for e in profile.entries] == ["inside"]
    assert profile.timeline.window_s == pytest.approx((104e-6, 154e-6))
    assert profile.timeline.in_window().tolist() == [False, True, False, False]
    assert "Counted: 1 of 4" in profile.notes[0]
    assert read(*STEPPED, on_gpu, whole_trace=True).total_time_s == pytest.approx(25e-6)


def test_steps_on_the_gpu_last_until_what_the_steps_launched(read):
    # a range on the GPU that ends with the forward pass, as in traces of PyTorch 2.11: another thread launches the rest
    on_gpu = event("gpu_user_annotation", "ProfilerStep#3", 109, 50, tid=7)
    profile = read(*STEPPED, on_gpu, *CPU_STEPS)
    assert {e.name for e in profile.entries} == {"inside", "late"}
    assert profile.timeline.window_s == pytest.approx((104e-6, 209e-6))


def test_steps_on_the_gpu_begin_with_what_the_steps_launched(read):
    # the range begins with the first kernel of its own stream, after an exchange on the stream of NCCL
    on_gpu = event("gpu_user_annotation", "ProfilerStep#3", 109, 50, tid=7)
    gather = kernel("ncclDevKernel_AllGather_RING_LL", 104, 5, 9, stream=21)
    profile = read(*STEPPED, launch(100, 9), gather, on_gpu, *CPU_STEPS)
    assert {e.name for e in profile.entries} == {"ncclDevKernel_AllGather_RING_LL", "inside", "late"}
    assert profile.timeline.window_s == pytest.approx((99e-6, 209e-6))  # from 104 to 214


def behind(steps=2, length=100, late=0):
    """Return steps on the CPU, each of which launches one kernel of its length, and what the GPU does before these."""
    found = [launch(-60, 90), kernel("older", -50, 50 + late, 90)]
    for step in range(steps):
        begin = step * length
        found += [event("user_annotation", f"ProfilerStep#{step}", begin, length), launch(begin + 5, step)]
        found.append(kernel("work", max(begin + 10, late + begin), length - 20, step))
    return [{**one, "ts": one["ts"] + 1000} for one in found]


def test_a_gpu_that_runs_a_step_behind_the_host_has_the_work_of_the_steps_alone(read):
    # the host does both steps in 200 us; the GPU ends what came before at 150, and these steps at 330
    late = read(*behind(late=150))
    low, high = late.timeline.window_s
    assert high - low == pytest.approx((330 - 130) * 1e-6), "the start moves by as much as the end"
    assert late.timeline.in_window().tolist() == [False, True, True]
    assert late.timeline.count_steps() == 2
    on_time = read(*behind())
    assert on_time.timeline.window_s[1] - on_time.timeline.window_s[0] == pytest.approx(200e-6)
    assert on_time.timeline.count_steps() == 2


def test_steps_on_the_cpu_last_until_what_they_launched(read):
    # the steps end at 200; "late" was launched at 195 and ends at 214
    profile = read(*STEPPED, *CPU_STEPS)
    assert {e.name for e in profile.entries} == {"inside", "late"}
    assert profile.timeline.window_s == pytest.approx((95e-6, 209e-6))


def test_steps_of_rocm_that_cover_next_to_nothing_are_not_believed(read):
    cut = event("gpu_user_annotation", "ProfilerStep#3", 109, 2, tid=7)
    assert {e.name for e in read(*STEPPED, *CPU_STEPS, cut).entries} == {"inside", "late"}


def test_work_inside_other_work_of_its_stream_counts_once(read):
    # streams 7 and 8 overlap, as they may; on stream 7 the second lies inside the first, and the third overlaps its end
    profile = read(kernel("a", 0, 50), kernel("b", 10, 20), kernel("c", 48, 10), kernel("d", 5, 10, stream=8))
    assert {e.name for e in profile.entries} == {"a", "c", "d"}
    assert profile.skipped == {"piece of GPU work inside another one of its stream": 1}


def test_a_run_on_the_cpu_has_operators_by_their_own_time(read):
    profile = read(op("aten::linear", 0, 20, *MM), op("aten::t", 1, 2), op("aten::mm", 5, 12, *MM))
    assert {(e.name, round(1e6 * e.time_s)) for e in profile.entries} == {
        *(("aten::linear(4x8, 8x2) bf16", 6), ("aten::t", 2), ("aten::mm(4x8, 8x2) bf16", 12))
    }
    assert {e.category for e in profile.entries} == {"host"}
    assert any("no GPU work" in note for note in profile.notes)
    stepped = read(op("aten::add", 0, 5), op("aten::mul", 150, 7), *CPU_STEPS)
    assert [e.name for e in stepped.entries] == ["aten::mul"]
    assert stepped.notes[0].startswith("Counted: operators that start within")


def test_calls_of_one_shape_and_different_parameters_stay_apart(read):
    def conv(ts, stride, correlation):
        values = ["", "", "", f"[{stride}, {stride}]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
        dims = [[1, 8, 16, 16], [8, 8, 3, 3], [], [], [], [], [], [], []]
        types = ["float", "float", *["ScalarList"] * 7]
        return op("aten::convolution", ts, 5, dims, types, values), launch(ts + 1, correlation)

    profile = read(*conv(0, 1, 1), kernel("k", 20, 3, 1), *conv(10, 2, 2), kernel("k", 30, 1, 2))
    strides = {e.op.stride: e.name for e in profile.entries}
    assert set(strides) == {1, 2}
    assert "stride=2" in strides[2]


def test_parts_of_a_convolution_take_the_tensors_of_the_operator_around_them(read):
    # 2021: backward_weight lists grad_output and input; cudnn_convolution_backward around it lists the weight too
    whole, part = [[2, 8, 6, 6], [2, 4, 6, 6], [4, 8, 3, 3]], [[], [2, 4, 6, 6], [2, 8, 6, 6]]
    entry = one(
        read(
            op("aten::cudnn_convolution_backward", 0, 20, whole, ["float"] * 3),
            op("aten::cudnn_convolution_backward_weight", 2, 6, part, ["", "float", "float"]),
            *(launch(3, 1), kernel("wgrad", 30, 5, 1)),
        )
    )
    assert entry.name == "aten::cudnn_convolution_backward_weight(2x8x6x6, 2x4x6x6, 4x8x3x3) fp32"
    assert entry.op.flop() == 2 * 2 * 4 * 6 * 6 * 8 * 9


def test_the_registers_of_kernels_are_kept_as_their_mean(read):
    registers = [{"registers per thread": count} for count in (20, 40, 90)]
    profile = read(
        *(op("aten::mm", 0, 5, *MM), launch(1, 1), kernel("k", 20, 2, 1, **registers[0])),
        *(op("aten::mm", 6, 5, *MM), launch(7, 2), kernel("k", 30, 4, 2, **registers[1])),
        *(launch(12, 3), kernel("lone", 40, 1, 3, **registers[2]), launch(14, 4), kernel("silent", 50, 1, 4)),
    )
    kept = {entry.launched_by or entry.name: entry.metrics.get("registers_per_thread") for entry in profile.entries}
    assert kept == {"aten::mm": 30, "lone": 90, "silent": None}


def test_calls_that_wait_keep_the_python_calls_around_them(read):
    profile = read(
        *(event("python_function", "train.py(3): main", 0, 90), event("python_function", "train.py(9): loss", 10, 40)),
        *(op("aten::item", 12, 30), op("aten::_local_scalar_dense", 13, 28)),
        event("cuda_runtime", "cudaStreamSynchronize", 20, 9, correlation=1),
        kernel("k", 60, 1),
    )
    stack = ("train.py(3): main", "train.py(9): loss")
    assert profile.timeline.api_stacks == {0: stack}
    assert profile.timeline.stacks == {1: stack}
    assert profile.timeline.api.op.tolist() == [1]


def test_old_names_of_categories_and_keys(read):
    # PyTorch 1.8 (2021): capitals, "external id" on calls, no dtypes, steps among the operators
    old = {"Input dims": [[4, 8], [8, 2]], "Input type": [], "External id": 3}
    profile = read(
        event("Operator", "ProfilerStep#1", 0, 50, tid="12"),
        event("Operator", "aten::mm", 1, 9, tid="12", **old),
        event("Runtime", "cudaLaunchKernel", 3, 2, tid="12", correlation=7, **{"external id": 3}),
        event("Kernel", "volta_sgemm_128x64_nn", 12, 4, tid="stream 7", stream=7, device=0, correlation=7),
        event("mtia_ccp_events", "chip", 20, 1, stream=7, device=0),
    )
    gemm = next(e for e in profile.entries if e.op is not None)
    assert (gemm.name, gemm.op.dtype, gemm.time_s) == ("aten::mm(4x8, 8x2) fp32", "fp32", pytest.approx(4e-6))
    assert len(profile.timeline.ops) == 1
    assert len(profile.timeline.annotations) == 1


def test_header_streams_devices_and_ranks(read, tmp_path):
    listed = [{"id": 0, "name": "GPU A"}, {"id": 1, "name": "GPU B"}]
    header = {"deviceProperties": listed, "distributedInfo": {"rank": 3, "world_size": 4}}
    profile = read(kernel("a", 0, 1, stream=7, device=1), kernel("b", 1, 1, stream=20, device=1), header=header)
    assert (profile.device, profile.rank, profile.format) == ("GPU B", 3, "torch trace")
    assert profile.timeline.gpu.stream.tolist() == [7, 20]
    first, second = read_profiles([tmp_path / "trace.bin"] * 2)
    assert first.entries == second.entries == profile.entries
    with pytest.raises(UsageError):
        read_profiles([], workers=0)


def test_a_bare_list_and_gzip_are_the_same_trace(tmp_path, read):
    (tmp_path / "list.json").write_text(json.dumps([kernel("a", 0, 5)]))
    whole = read_profile(tmp_path / "list.json")
    pieces = read_profile(tmp_path / "list.json", stream_above_bytes=0)
    assert whole.entries == pieces.entries == read(kernel("a", 0, 5), packed=True).entries


def test_a_byte_order_mark_is_no_defect(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"traceEvents": [kernel("a", 0, 5)]}).encode())
    for limit in (0, 10**9):
        assert read_profile(path, stream_above_bytes=limit).total_time_s == pytest.approx(5e-6)


def test_several_processes_read_the_same(tmp_path):
    paths = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    for rank, path in enumerate(paths):
        path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": [kernel("a", 0, 5 + rank)]}))
    one_by_one, side_by_side = read_profiles(paths), read_profiles(paths, workers=2)
    assert [profile.rank for profile in side_by_side] == [0, 1]
    assert [p.entries for p in side_by_side] == [p.entries for p in one_by_one]


@pytest.mark.parametrize(
    ("after", "stride", "padding"),
    [([2, 32, 28, 28], 1, 1), ([2, 32, 14, 14], 2, 1), ([2, 32, 26, 26], 1, 0)],
)
def test_the_strides_of_a_convolution_without_values_follow_from_the_next_operator(read, after, stride, padding):
    sizes = [[2, 16, 28, 28], [32, 16, 3, 3]]
    entry = one(
        read(
            *(op("aten::cudnn_convolution", 0, 5, sizes, ["float"] * 2), launch(1, 1), kernel("conv", 20, 3, 1)),
            # the counter of the batch norm is no image
            *(op("aten::add_", 6, 1, [[], []], ["long int"] * 2), op("aten::batch_norm", 8, 5, [after], ["float"])),
        )
    )
    assert (entry.op.stride, entry.op.padding, entry.op.p) == (stride, padding, after[2])
    assert entry.name == "aten::cudnn_convolution(2x16x28x28, 32x16x3x3) fp32"


@pytest.mark.parametrize("after", [[2, 31, 28, 28], [1, 32, 28, 28]])
def test_images_of_another_size_are_no_result_of_a_convolution(read, after):
    sizes = [[2, 16, 28, 28], [32, 16, 3, 3]]
    entry = one(
        read(
            *(op("aten::cudnn_convolution", 0, 5, sizes, ["float"] * 2), launch(1, 1), kernel("conv", 20, 3, 1)),
            op("aten::relu", 8, 5, [after], ["float"]),
        )
    )
    assert (entry.op, "no values" in entry.not_modelled) == (None, True)


def test_a_run_before_the_trace_counts_for_the_operators_that_come_again(read):
    """Two steps of 80 kernels, of the first of which the trace has no launches."""
    names = [f"k{7 * place % 31}" for place in range(80)]
    before = [kernel(name, 10 * place, 5) for place, name in enumerate(names)]
    later = []
    for place, name in enumerate(names):
        start = 1000 + 10 * place
        later += [op("aten::mm", start, 5, *MM), launch(start + 1, place + 1), kernel(name, start + 2, 5, place + 1)]
    profile = read(*before, *later)
    entry = one(profile)
    assert (entry.launched_by, entry.calls, entry.op.op) == ("aten::mm", 160, "gemm")
    assert entry.time_s == pytest.approx(160 * 5e-6)
    assert any("80 pieces of GPU work were launched before the trace" in note for note in profile.notes)


@pytest.mark.parametrize(
    "name", ["kineto_resnet50_train_nw4_2021.pt.trace", "tracelens_mi300_resnet_act_checkpoint_ddp"]
)
def test_of_training_less_than_a_tenth_is_not_modelled(data_dir, name):
    profile = read_profile(data_dir / "traces" / f"{name}.json.gz")
    without = sum(entry.time_s for entry in profile.entries if entry.op is None)
    assert without < 0.1 * sum(entry.time_s for entry in profile.entries)
