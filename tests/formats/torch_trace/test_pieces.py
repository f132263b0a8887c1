"""A trace that is decoded at once and one that is decoded piece by piece give one profile."""

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import PerfModelError
from perfmodel.formats import read_profile
from perfmodel.formats.torch_trace import blocks, file

#: real traces of CUDA and ROCm, with collectives, Python calls, graphs and profiler steps
TRACES = (
    "hta_a100_2rank_nccl_resnet",
    "hta_alexnet_a100_big_gaps",
    "kineto_resnet50_train_nw4_2021.pt.trace",
    "tracelens_h100_bert-small",
    "tracelens_mi300_resnet_act_checkpoint_ddp",
    "tracelens_sglang_qwen3-8b_decode_cudagraph_mi300",
    "tracelens_torch_compile_triton_mi300",
)
AT_ONCE = 1_000_000_000


def read(path, block_bytes):
    """Return a profile of a trace in blocks of some bytes, or the parts of the message about what is wrong with it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (blocks, file):
            patch.setattr(module, "BLOCK_BYTES", block_bytes)
        patch.setattr(file, "_HEAD_BYTES", min(1024, block_bytes))
        try:
            return read_profile(path)
        except PerfModelError as error:
            # reasons stand in the order in which they are met
            return sorted(
                str(error).partition("Profile with")[0].rstrip(". ").replace("; ", ": ").split(": ")[-1].split(", ")
            )


def facts(profile):
    """Return everything that a profile says, with texts for the numbers that are given as they are met."""
    if isinstance(profile, list):
        return profile
    line = profile.timeline
    columns = {}
    for part in ("gpu", "api", "ops", "annotations", "exchanges"):
        spans = getattr(line, part)
        for column in fields(spans):
            values = getattr(spans, column.name)
            if column.name in ("name", "group"):
                columns[part, column.name] = [line.names[number] if number >= 0 else "" for number in values.tolist()]
            elif column.name == "thread":
                columns[part, column.name] = values[:, None] == values if values.size < 2000 else None
            else:
                columns[part, column.name] = values
    rest = (profile.entries, sorted(profile.notes), dict(profile.skipped), profile.device, profile.rank, profile.groups)
    return columns, (*rest, line.window_s, line.origin_s, line.stacks, line.api_stacks)


def check_equal(one, other):
    one, other = facts(one), facts(other)
    if isinstance(one, list) or isinstance(other, list):
        assert one == other
        return
    assert one[1] == other[1]
    for column, values in one[0].items():
        np.testing.assert_array_equal(values, other[0][column], err_msg=str(column))


@pytest.mark.parametrize("name", TRACES)
def test_a_real_trace(data_dir, name):
    path = data_dir / "traces" / f"{name}.json.gz"
    check_equal(read(path, AT_ONCE), read(path, 70_000))


NAMES = ("aten::mm", "aten::add", "ProfilerStep#3", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "f")
SHAPES = ([[4, 8], [8, 2]], [[16], [16]], [[]], [])
IDS = st.integers(-1, 6)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "External id": IDS,
        "external id": IDS,
        "correlation": IDS,
        "stream": st.sampled_from([7, 20, "7", "0x55", None]),
        "device": st.sampled_from([0, 1, "1"]),
        "bytes": st.sampled_from([64, "4096", "many"]),
        "registers per thread": st.sampled_from([32, 255, "none"]),
        "Input Dims": st.sampled_from(SHAPES),
        "Input type": st.sampled_from([["float", "float"], ["c10::Half", "c10::Half"]]),
        "Collective name": st.sampled_from(["allreduce", None]),
        "In msg nelems": st.integers(0, 99),
        "Group size": st.sampled_from([2, 8]),
        "dtype": st.sampled_from(["Float", "BFloat16"]),
    },
)
GATHERED = ("kernel", "gpu_memcpy", "cpu_op", "cuda_runtime", "user_annotation", "python_function")
EVENT = st.fixed_dictionaries(
    {
        "cat": st.sampled_from([*GATHERED, "ac2g", None]),
        "ph": st.sampled_from(["X", "X", "X", "X", "X", "B", "E", "i"]),
        "dur": st.one_of(st.integers(0, 40), st.sampled_from([None, -1, 1e30])),
        "pid": st.sampled_from([0, 1, "host"]),
        "tid": st.sampled_from([1, 2]),
    },
    optional={"name": st.sampled_from([*NAMES, "ncclDevKernel_AllReduce(x)", "Memcpy HtoD (Pageable -> Device)"])},
)


@settings(max_examples=150, deadline=None)
@given(
    drawn=st.lists(st.tuples(EVENT, st.one_of(st.none(), ARGUMENTS)), min_size=1, max_size=40),
    apart=st.integers(1, 9),
    block_bytes=st.integers(200, 3000),
)
def test_any_trace(tmp_path_factory, drawn, apart, block_bytes):
    # no two events start together: the order of such a pair is the order in which its categories come in a piece
    # parts of events that no profile has are not even looked for, unless a piece has parts of others
    drawn = [(event | ({} if event["cat"] in GATHERED else {"ph": "X"}), arguments) for event, arguments in drawn]
    events = [
        {**event, "ts": apart * place, **({} if arguments is None else {"args": arguments})}
        for place, (event, arguments) in enumerate(drawn)
    ]
    path = tmp_path_factory.mktemp("pieces") / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, "deviceProperties": [{"id": 0, "name": "GPU"}]}))
    check_equal(read(path, AT_ONCE), read(path, block_bytes))
