"""Which events of a trace are exchanges between ranks, and what they say about themselves.

NCCL and RCCL exchange in kernels, whose arguments name collective, message, process group and, in recent versions of
PyTorch, the sequence number. gloo exchanges on threads of its own, in ranges such as "gloo:all_reduce", whose
arguments hold the tensors of the message only.
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

import msgspec

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import PerfModelError
from perfmodel.formats.exchange_names import operation, recorded_operation
from perfmodel.formats.kernel_names import event_kind
from perfmodel.formats.torch_trace.events import Arguments, Event

#: kinds of `perfmodel.formats.torch_trace.gather` that may be exchanges
EXCHANGE_KINDS = ("gpu", "annotations")
#: ranges of backends that exchange on the CPU
_ON_CPU = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
#: kernel of PyTorch that looks for NaN in what a collective sends, with the collective's arguments
_CHECK = "checkForNaN"
_TYPES = {
    "float": "fp32", "double": "fp64", "bfloat16": "bf16", "c10::bfloat16": "bf16", "half": "fp16",
    "c10::half": "fp16", "char": "int8", "byte": "int8", "signed char": "int8", "unsigned char": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
#: bytes of types that the model has no operator for
_OTHER_BYTES = {"int": 4, "long": 8, "long int": 8, "bool": 1}


class ExchangeFacts(NamedTuple):
    """What one event says: operation, process group ("" if unknown), number in it or -1, message, ranks, where.

    A message between two ranks has the number of the rank that it comes from or goes to, the other one is -1.
    """

    operation: str
    group: str
    sequence: int
    bytes: float
    ranks: int
    on_gpu: int
    sender: int
    receiver: int


def names_collective(event: Event) -> bool:
    """Return whether the arguments of an event name a collective."""
    return event.args is not None and event.args.collective is not None


@functools.lru_cache(4096)
def gpu_kind(category: str, name: str, *, collective: bool) -> EventKind:
    """Return the kind of a piece of GPU work: a kernel whose arguments name a collective exchanges, by any name.

    Parameters
    ----------
    category, name : of the event.
    collective : whether its arguments name a collective.
    """
    kind = event_kind(name, category.lower())
    if collective and kind is EventKind.KERNEL and _CHECK not in name:
        return EventKind.COMMUNICATION
    return kind


def is_exchange(category: str | None, name: str | None, *, collective: bool = False) -> bool:
    """Return whether an event is work that ranks do together: on the GPU what counts there as communication.

    Parameters
    ----------
    category, name, collective : as of `gpu_kind`.
    """
    if (category or "").lower() == "user_annotation":
        return _ON_CPU.match(name or "") is not None
    return gpu_kind(category or "", name or "", collective=collective) is EventKind.COMMUNICATION


def exchange_facts(event: Event) -> ExchangeFacts:
    """Return what an exchange says about itself."""
    arguments = event.args or Arguments()
    name = event.name or ""
    on_cpu = _ON_CPU.match(name)
    group = arguments.group if isinstance(arguments.group, str) else ""
    size = _from_tensors(arguments) if on_cpu else _from_elements(arguments)
    ranks = arguments.group_size
    known = ranks is not None and 0 < ranks < 2**31
    return ExchangeFacts(
        operation(on_cpu[1]) if on_cpu else recorded_operation(arguments.collective or "", name),
        group,
        _number(arguments.sequence, 2**63),
        size,
        int(ranks) if known and ranks else 0,
        int(not on_cpu),
        _number(arguments.sender, 2**31),
        _number(arguments.receiver, 2**31),
    )


def _number(value: object, limit: int) -> int:
    """Return a number from 0 to below a limit, or -1."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else -1


def _from_elements(arguments: Arguments) -> float:
    """Return the larger of the messages that NCCL's arguments name [B]."""
    elements = max((float(value) for value in (arguments.elements_in, arguments.elements_out) if value), default=0.0)
    width = _width(bytes(arguments.dtype).decode(errors="replace").strip('"'))
    return elements * width if elements > 0 and width else math.nan


def _from_tensors(arguments: Arguments) -> float:
    """Return the bytes of the tensors that a range of gloo lists, which are those that the rank sends [B].

    They are the larger side of every collective but the all-gather, whose message is that times the ranks of the group;
    the range does not name it (`perfmodel.diagnosis.ranks.matching`).
    """
    try:
        dims = msgspec.json.decode(bytes(arguments.dims or arguments.old_dims) or b"[]")
        types = msgspec.json.decode(bytes(arguments.types) or b"[]")
        return (
            float(sum(_elements(shape) * _width(str(kind)) for shape, kind in zip(dims, types, strict=True)))
            or math.nan
        )
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError):
        return math.nan


def _elements(shape: object) -> float:
    """Return the elements of a tensor, or of a list of tensors."""
    if not isinstance(shape, list) or not shape:
        return 0.0
    if isinstance(shape[0], list):
        return sum(_elements(inner) for inner in shape)
    return math.prod(float(size) for size in shape)


def _width(written: str) -> float:
    """Return the bytes of an element, 0 if the type is unknown."""
    key = written.lower()
    try:
        return dtype_bytes(_TYPES[key]) if key in _TYPES else float(_OTHER_BYTES.get(key, 0))
    except PerfModelError:
        return 0.0
