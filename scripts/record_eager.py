"""Record eager attention modules with torch.profiler on the CPU, as traces of a GPU for the tests.

    python scripts/record_eager.py [FOLDER]

writes one small trace for each module into ``tests/diagnosis/eager``. The operators, their order, shapes, strides,
dtypes and arguments are those that PyTorch recorded. Each operator that computes then gets a launch and a kernel on an
H100, as long as perfmodel predicts it, and 10 us where it does not: so the tests know what they measure.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfmodel.formats.torch_trace.call import parse_call
from perfmodel.formats.torch_trace.operators.aten import operator_of
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.predict import predict

DEVICE, UNKNOWN_US, LAUNCH_US = "NVIDIA H100 80GB HBM3", 10.0, 4.0
#: operators that start no kernel: views and allocations
NO_KERNEL = (
    "view", "reshape", "transpose", "permute", "expand", "t", "unsqueeze", "squeeze", "as_strided", "slice", "select",
    "detach", "empty", "empty_like", "empty_strided", "_unsafe_view", "_reshape_alias", "alias", "result_type",
    "lift_fresh", "chunk", "split", "narrow", "unbind", "resolve_conj", "resolve_neg", "expand_as", "view_as", "item",
    "is_nonzero", "_local_scalar_dense", "unflatten", "swapaxes", "new_empty", "new_empty_strided", "resize_",
    "slice_backward", "_has_compatible_shallow_copy_type", "conj", "to", "_to_copy", "contiguous", "clone", "flatten",
    "numpy_T",
)  # fmt: skip
#: operators that are one kernel of a library on a GPU, whatever they are made of on a CPU
LIBRARY = ("aten::bmm", "aten::baddbmm", "aten::mm", "aten::addmm", "aten::_softmax", "aten::_softmax_backward_data")
Module = Callable[..., Tensor]


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Product, scale, softmax, product."""
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


def video(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Products in batches, with values that are copied into their order in between."""
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)) * q.shape[-1] ** -0.5
    values = v.transpose(1, 2).contiguous().transpose(1, 2).contiguous()
    return torch.bmm(torch.softmax(scores, dim=-1), values.flatten(0, 1))


def baddbmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A bias added by the product, a softmax in fp32, dropout, and a cast back."""
    bias = torch.zeros(q.shape[0] * q.shape[1], q.shape[2], k.shape[2], dtype=q.dtype)
    scores = torch.baddbmm(bias, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=0.125)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(torch.nn.functional.dropout(weights, 0.1), v.flatten(0, 1))


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Einstein sums, and a causal mask that is expanded over the heads."""
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.125
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1).expand(q.shape[0], 1, -1, -1)
    weights = scores.masked_fill(mask, -1e4).softmax(dim=-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Keys and values repeated for groups of heads, an additive mask, a softmax in fp32, dropout: a language model."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x[:, :, None].expand(-1, -1, groups, -1, -1).reshape(q.shape) for x in (k, v))
    scores = torch.matmul(q, k.transpose(2, 3)) * 0.125
    mask = torch.full((q.shape[2], q.shape[2]), -1e4, dtype=q.dtype).triu(1)
    weights = torch.softmax(scores + mask, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(torch.nn.functional.dropout(weights, 0.1), v).transpose(1, 2).contiguous()


def router(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """No attention: a softmax between two products that do not contract what it works along."""
    weights = torch.softmax(q.flatten(0, 2) @ k[0, 0, :16].T, dim=-1)
    return (weights @ v[0, 0, :16]) @ k[0, 0, :64]


#: name -> module, batch, heads, heads of keys, tokens, size of a head, whether its gradient is recorded too
CASES: dict[str, tuple[Module, int, int, int, int, int, bool]] = {
    "plain": (plain, 2, 8, 8, 1024, 64, False),
    "video": (video, 1, 4, 4, 3137, 64, False),
    "baddbmm": (baddbmm, 2, 8, 8, 1024, 64, False),
    "einsum": (einsum, 2, 8, 8, 1024, 64, False),
    "grouped": (grouped, 2, 8, 2, 1024, 64, True),
    "router": (router, 1, 4, 4, 1024, 64, False),
}


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the operators that one call of a module runs, as torch.profiler records them."""
    module, batch, heads, kv_heads, tokens, size, backward = CASES[name]
    q = torch.randn(batch, heads, tokens, size, dtype=torch.bfloat16, requires_grad=backward)
    k, v = (torch.randn(batch, kv_heads, tokens, size, dtype=torch.bfloat16, requires_grad=backward) for _ in range(2))
    with torch.profiler.profile(record_shapes=True) as profiler:
        result = module(q, k, v)
        if backward:
            result.sum().backward()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return sorted((e for e in events if e.get("cat") == "cpu_op" and e["ph"] == "X"), key=lambda e: e["ts"])


def duration_us(event: dict[str, Any]) -> float:
    """Return how long an operator's kernel runs on an H100 [us]."""
    arguments = event.get("args", {})
    keys = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
    texts = [json.dumps(arguments[key]).encode() if key in arguments else b"" for key in keys]
    op, _ = operator_of(parse_call(event["name"], texts))
    try:
        return 1e6 * float(predict(op, hardware("h100-sxm5-80gb")).predicted_time_s) if op else UNKNOWN_US
    except Exception:  # noqa: BLE001 -- a dtype without a peak
        return UNKNOWN_US


def on_gpu(operators: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a trace in which every operator that computes launches one kernel."""
    events, now, free = [], 0.0, 0.0
    for correlation, event in enumerate(_leaves(operators), start=1):
        name = event["name"]
        kernel_us = duration_us(event)
        start = max(now + LAUNCH_US, free)
        free = start + kernel_us
        api = {"correlation": correlation, "External id": correlation}
        kept = {k: v for k, v in event["args"].items() if k.startswith(("Input", "Concrete"))}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": now, "dur": 3.0,
             "args": {"External id": correlation, **kept}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": now + 1,
             "dur": 1.0, "args": api},
            {"ph": "X", "cat": "kernel", "name": f"kernel of {name}", "pid": 0, "tid": 7, "ts": start,
             "dur": kernel_us, "args": {**api, "device": 0, "stream": 7}},
        ]  # fmt: skip
        now += LAUNCH_US
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": DEVICE}], "traceEvents": events}


def _leaves(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the operators that start a kernel on a GPU: the innermost ones that compute, and products."""
    kept: list[dict[str, Any]] = []
    hidden_until = 0.0
    for place, event in enumerate(operators):
        end = event["ts"] + event["dur"]
        if not _computes(event) or event["ts"] < hidden_until:
            continue
        inner = (other for other in operators[place + 1 :] if other["ts"] < end)
        if event["name"] in LIBRARY:
            hidden_until = end
        elif any(map(_computes, inner)):
            continue
        kept.append(event)
    return kept


def _computes(event: dict[str, Any]) -> bool:
    """Whether an operator starts a kernel; numbers become tensors without one."""
    name = event["name"].removeprefix("aten::")
    has_tensor = any(event.get("args", {}).get("Input Dims", ()))
    return event["name"].startswith("aten::") and name not in NO_KERNEL and has_tensor


def main() -> int:
    """Write the traces."""
    default = Path(__file__).resolve().parent.parent / "tests" / "diagnosis" / "eager"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=default, help="where they go")
    folder: Path = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    for name in CASES:
        text = json.dumps(on_gpu(recorded(name)), separators=(",", ":"))
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
