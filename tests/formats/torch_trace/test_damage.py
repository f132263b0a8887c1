"""Broken traces: one clear message each, and no traceback whatever the bytes or the fields are."""

import contextlib
import gzip
import json
import math
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats import read_profile
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.torch_trace import reader as torch_trace
from perfmodel.formats.torch_trace.call import shape_of


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


EVENTS = [
    event("user_annotation", "ProfilerStep#1", 0, 100),
    event(
        "cpu_op", "aten::mm", 1, 9, **{"External id": 5, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float"] * 2}
    ),
    event("cuda_runtime", "cudaLaunchKernel", 3, 2, correlation=7, **{"External id": 5}),
    event("kernel", "sgemm", 12, 4, tid=7, correlation=7, stream=7, device=0, **{"External id": 5}),
    event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 2, tid=7, stream=7, device=0, bytes=64),
]
TRACE = json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": EVENTS}).encode()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "trace.json"


@pytest.fixture
def fails(path):
    def call(data):
        path.write_bytes(data)
        with pytest.raises(InputFileError) as error:
            read_profile(path)
        assert str(path) in str(error.value)
        return str(error.value)

    return call


def test_the_trace_is_good(path):
    path.write_bytes(TRACE)
    profile = read_profile(path)
    assert profile.total_time_s == pytest.approx(6e-6)
    assert not profile.skipped


def test_work_without_time_is_refused_with_a_remedy_that_helps(fails):
    without_time = [event("kernel", "sgemm", 12, 0, tid=7, stream=7, device=0)]
    assert "--whole-trace" not in fails(json.dumps({"traceEvents": without_time}).encode())
    # only the work after the step takes time
    later = [EVENTS[0], *without_time, event("kernel", "sgemm", 500, 4, tid=7, stream=7, device=0)]
    assert "Count all steps (--whole-trace)" in fails(json.dumps({"traceEvents": later}).encode())


def test_a_trace_of_another_program_hears_which_events_it_has(fails):
    events = [{"ph": "X", "name": "fusion.3", "pid": 1, "tid": 2, "ts": 1, "dur": 5}] * 2
    events.append({"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 5})
    message = fails(json.dumps({"traceEvents": events}).encode())
    assert "left out: 2 events without a category, 1 event of the category 'blink'." in message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\t", "the file is empty"),
        (b"\0" * 5000, "NUL bytes"),
        (TRACE[:-1], "is cut off"),
        (TRACE[: len(TRACE) // 2], "is cut off"),
        (TRACE.replace(b'"traceEvents"', b'"events"'), 'has no list "traceEvents"'),
        (b'{"schemaVersion": 1, "traceEvents": null}', 'has no list "traceEvents"'),
        (b'{"schemaVersion": 1, "traceEvents": {"a": 1}}', 'has no list "traceEvents"'),
        (b'{"schemaVersion": 1, "traceEvents": []}', "neither GPU work nor operators"),
        (TRACE.replace(b": 9", b": nine"), "is not valid JSON"),
        (TRACE.replace(b"sgemm", b"\xff\xfe"), "is not valid JSON"),
        (TRACE[:200] + b"\0" * 400, "is not valid JSON"),
        (gzip.compress(TRACE, mtime=0)[:-20], "is not a whole gzip file"),
        (gzip.compress(TRACE, mtime=0)[:30], "is not a whole gzip file"),
        (gzip.compress(TRACE, mtime=0)[:-8] + b"\0" * 8, "is not a whole gzip file"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (TRACE.replace(b'"dur"', b'"dauer"'), "left out: 5 x event without a duration"),
        (TRACE.replace(b'"dur": ', b'"dur": -'), "left out: 5 x event with a negative time"),
        (b'{"schemaVersion": 1, "traceEvents": ' + b"[" * 50_000, "JSON|nested|cut off"),
    ],
)
def test_one_message_for_each_defect(fails, data, said):
    message = fails(data)
    assert any(part in message for part in said.split("|"))
    assert "\n" not in message


def test_a_json_that_is_no_trace_is_not_taken_for_one(fails):
    assert "no list of rows" in fails(b'{"hello": {"world": 1}}')
    assert not torch_trace.sniff(b'[{"name": "aten::mm", "cpu_time": 5}]')
    assert torch_trace.sniff(b' [\n{"ph": "X", "ts": 5}')


@pytest.mark.parametrize("data", [TRACE[:-1], TRACE.replace(b": 9", b": nine"), b"\0" * 5000, b"", TRACE[:300]])
def test_piece_by_piece_the_messages_are_as_clear(path, data):
    path.write_bytes(data)
    with pytest.raises(InputFileError):
        torch_trace.read(path, ReadOptions(stream_above_bytes=0))


def test_a_missing_file_and_a_directory(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_profile(tmp_path / "nowhere.json")
    with pytest.raises(InputFileError, match="directory"):
        read_profile(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputFileError, match="is a pipe or a device"):
        read_profile(tmp_path / "pipe")


@pytest.mark.parametrize("value", [[0], {"a": 1}, [[1], [2]]], ids=str)
@pytest.mark.parametrize("field", ["pid", "tid", "device", "stream", "correlation", "External id"])
def test_a_list_or_an_object_where_an_id_belongs_is_no_fault(path, field, value):
    kernel = EVENTS[3]
    odd = (
        {**kernel, "args": {**kernel.get("args", {}), field: value}}
        if field not in kernel
        else {**kernel, field: value}
    )
    header = {"deviceProperties": [{"id": value, "name": "GPU"}], "distributedInfo": {"rank": value}}
    for more in ({}, header):
        path.write_text(json.dumps({**more, "traceEvents": [*EVENTS, odd]}))
        for by in ("shape", "op", "kernel"):
            profile = read_profile(path, by=by)
            skipped = profile.skipped.get("event with a field of the wrong type", 0)
            # an id that nothing needs may be ignored; the event itself is then right
            assert profile.total_time_s == pytest.approx(6e-6 if skipped else 6e-6 + kernel["dur"] * 1e-6)


def test_events_with_odd_fields_are_counted_and_the_rest_is_read(path):
    odd = [
        {**EVENTS[3], "ts": "soon"},
        {**EVENTS[3], "name": 5},
        {**EVENTS[3], "args": [1, 2]},
        {**EVENTS[3], "args": {"correlation": "seven"}},
        {**EVENTS[3], "dur": None},
        {**EVENTS[3], "ph": "i"},
        {**EVENTS[3], "ts": -4},
        {**EVENTS[3], "dur": 1e17},
        {"cat": "kernel", "ph": "X"},
    ]
    path.write_text(json.dumps({"traceEvents": [*EVENTS, *odd]}))
    profile = read_profile(path)
    assert profile.total_time_s == pytest.approx(6e-6)
    assert profile.skipped == {
        "event with a field of the wrong type": 4,
        "event without a duration": 1,
        "event that is not complete (ph is not X)": 1,
        "event with a negative time": 1,
        "event with an impossible time": 1,
        "event without a start": 1,
    }
    assert any("Left out: 4 x event with a field of the wrong type" in note for note in profile.notes)


def test_nan_and_infinity_of_the_profiler_are_read_as_nothing(path):
    data = TRACE.replace(b'"bytes": 64', b'"bytes": 64, "memory bandwidth (GB/s)": inf, "x": -nan, "y": [NaN, 1]')
    path.write_bytes(data)
    assert read_profile(path).total_time_s == pytest.approx(6e-6)
    assert torch_trace.read(path, ReadOptions(stream_above_bytes=0)).total_time_s == pytest.approx(6e-6)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-5, 5),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, 10**400, "", "9" * 400]),
    st.text(max_size=8),
)
NESTED = st.recursive(JUNK, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
KEYS = ("External id", "correlation", "stream", "device", "bytes", "Input Dims", "Input type", "Input Strides")
NAMES = (
    "aten::mm",
    "aten::conv2d",
    "aten::copy_",
    "aten::cat",
    "aten::_softmax",
    "triton_poi_x",
    "k",
    "cudaGraphLaunch",
)
CATEGORIES = ("kernel", "Kernel", "cpu_op", "gpu_memcpy", "cuda_runtime", "user_annotation", "gpu_user_annotation")
ANY_EVENT = st.fixed_dictionaries(
    {"cat": st.sampled_from(CATEGORIES), "name": st.sampled_from(NAMES), "ph": st.just("X")},
    optional={
        "ts": JUNK | st.integers(0, 9),
        "dur": JUNK | st.integers(0, 9),
        "pid": JUNK,
        "tid": JUNK,
        "args": st.dictionaries(
            st.sampled_from((*KEYS, "Concrete Inputs", "Collective name", "In msg nelems", "Group size", "dtype")),
            NESTED | st.integers(0, 3) | st.lists(st.lists(st.integers(-1, 9), max_size=5), max_size=4),
            max_size=8,
        ),
    },
)


@settings(max_examples=30)
@given(events=st.lists(ANY_EVENT, max_size=6), limit=st.sampled_from([0, 10**9]), by=st.sampled_from(["shape", "op"]))
@example(events=[], limit=0, by="shape")
@example(events=[{**EVENTS[3], "ts": math.nan}, {**EVENTS[3], "dur": math.inf}], limit=10**9, by="shape")
@example(events=[event("gpu_memcpy", "Memcpy HtoD", 3, 1, bytes="9" * 400)], limit=10**9, by="shape")
@example(events=[event("gpu_memcpy", "Memcpy HtoD", 3, 1, bytes=1e308)], limit=10**9, by="shape")
@example(events=[event("kernel", "", 3, 1)], limit=0, by="op")
def test_no_traceback_for_any_fields(path, events, limit, by):
    path.write_text(json.dumps({"traceEvents": [*EVENTS, *events]}))
    with contextlib.suppress(PerfModelError):
        profile = torch_trace.read(path, ReadOptions(by, stream_above_bytes=limit))
        assert profile.total_time_s >= 0


@settings(max_examples=60)
@given(data=st.data())
def test_no_traceback_for_any_bytes(path, data):
    broken = bytearray(gzip.compress(TRACE, mtime=0) if data.draw(st.booleans()) else TRACE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(broken) - 1))
        broken[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(bytes(broken))
    with contextlib.suppress(PerfModelError):
        profile = torch_trace.read(path, ReadOptions(stream_above_bytes=data.draw(st.sampled_from([0, 10**9]))))
        assert profile.total_time_s >= 0


@pytest.mark.parametrize(
    "listed", [[{"id": [1], "name": "A"}], [{"id": {}, "name": "A"}], [{"name": "A"}], {"id": 0}, 3]
)
def test_devices_with_odd_ids_name_no_gpu(path, listed):
    # a list is not hashable, so that it cannot be looked up
    path.write_text(json.dumps({"deviceProperties": listed, "traceEvents": EVENTS}))
    assert read_profile(path).device == ""


def test_a_rank_that_is_no_number_is_unknown(path):
    for rank in ("0", True, -1, [0], None):
        path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": EVENTS}))
        assert read_profile(path).rank is None


@pytest.mark.parametrize(
    ("dims", "strides", "dense"),
    [
        ([4, 8], [8, 1], True),
        ([4, 8], [1, 4], True),
        ([4, 1, 8], [8, 99, 1], True),  # an axis of one element has no neighbours
        ([4, 8], [16, 1], False),
        ([4, 8], [0, 1], False),
    ],
)
def test_a_tensor_is_dense_in_some_order_of_its_axes(dims, strides, dense):
    assert shape_of(dims, strides, "float").dense is dense


@pytest.mark.parametrize("strides", [[{}, 1], [None, 1], ["8", "1"], [8], 8, None])
def test_strides_that_are_no_numbers_are_none(strides):
    found = shape_of([4, 8], strides, "float")
    assert (found.inner, found.dense, found.distinct) == (None, True, 32)


@pytest.mark.parametrize("stream_above_bytes", [0, 10**9])
def test_two_lists_of_events_are_refused_and_the_word_in_a_name_is_not(path, stream_above_bytes):
    again = TRACE[:-1] + b', "traceEvents" :[' + json.dumps(EVENTS[3]).encode() + b"]}"
    path.write_bytes(again)
    with pytest.raises(InputFileError, match='the key "traceEvents" several times'):
        read_profile(path, stream_above_bytes=stream_above_bytes)
    named = [*EVENTS, event("python_function", 'json.py(3): {"traceEvents": []}', 0, 2)]
    path.write_bytes(json.dumps({"traceEvents": named}).encode())
    assert read_profile(path, stream_above_bytes=stream_above_bytes).total_time_s == pytest.approx(6e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b'{"deviceProperties": [{"id": 0}], ',
            b', "log": ["a", "b"], "more": [{"ph": 1}]}',
        ),  # the last list is another
        (b'{"note": "\\"traceEvents\\": [", ', b"}"),  # the first key is text
        (b'{"inner": {"traceEvents": []}, ', b"}"),
        (b"{", b', "traceName": "x]"}'),
        (b"{", b"  }\n"),
    ],
)
def test_whatever_is_around_the_list_of_events_it_is_read(path, before, after):
    path.write_bytes(before + b'"traceEvents": ' + json.dumps(EVENTS).encode() + after)
    assert read_profile(path).total_time_s == pytest.approx(6e-6)


def test_a_null_in_place_of_the_list_is_no_list_though_a_list_comes_before(path):
    path.write_bytes(TRACE[:-1] + b', "traceEvents": null}')
    with pytest.raises(InputFileError, match=r"no list|several"):
        read_profile(path)


def test_numbers_written_as_text_are_numbers(path):
    def as_text(value):
        if isinstance(value, dict):
            return {key: item if key.startswith("Input") else as_text(item) for key, item in value.items()}
        return str(value) if isinstance(value, int) else value

    path.write_bytes(TRACE)
    good = read_profile(path)
    path.write_bytes(json.dumps({"traceEvents": [as_text(one) for one in EVENTS]}).encode())
    read = read_profile(path)
    assert (read.entries, read.skipped) == (good.entries, {})
    gpu, same = read.timeline.gpu, good.timeline.gpu
    assert (gpu.stream.tolist(), gpu.device.tolist()) == (same.stream.tolist(), same.device.tolist())
    path.write_bytes(json.dumps({"traceEvents": [*EVENTS, EVENTS[3] | {"ts": "soon"}]}).encode())
    assert read_profile(path).skipped == {"event with a field of the wrong type": 1}


@pytest.mark.parametrize("stream_above_bytes", [0, 10**9])
def test_a_trace_merged_with_itself_counts_once(path, stream_above_bytes):
    allreduce = {"Collective name": "allreduce", "In msg nelems": 8, "Group size": 2, "dtype": "Float"}
    events = [*EVENTS, event("kernel", "ncclDevKernel_AllReduce", 30, 5, tid=8, stream=8, device=0, **allreduce)]
    # the same name at the same moment on another stream, and for another time, is other work
    events.append(event("kernel", "sgemm", 12, 4, tid=9, correlation=8, stream=9, device=0))
    events.append(event("kernel", "sgemm", 12, 3, tid=9, correlation=9, stream=9, device=0))
    for copies in (1, 2, 3):
        path.write_bytes(json.dumps({"traceEvents": events * copies}).encode())
        profile = read_profile(path, stream_above_bytes=stream_above_bytes)
        assert profile.total_time_s == pytest.approx(18e-6)
        assert (len(profile.timeline.gpu), len(profile.timeline.exchanges)) == (5, 1)
        reason = "event of the GPU that the trace lists twice"
        assert profile.skipped == ({reason: 5 * (copies - 1)} if copies > 1 else {})


def test_steps_that_are_counted_are_told_once_and_from_the_gpu_where_the_host_has_none(path):
    def counted(events):
        path.write_bytes(json.dumps({"traceEvents": events}).encode())
        return next(note for note in read_profile(path).notes if note.startswith("Counted"))

    step, *others = EVENTS
    assert "(1 step, " in counted(EVENTS)
    # a second process of one file has the steps, too
    assert "(1 step, " in counted([step, step | {"pid": 10}, *others])
    assert "on the GPU (1 step, " in counted([step | {"cat": "gpu_user_annotation"}, *others])
