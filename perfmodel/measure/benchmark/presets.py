"""The presets of `perfmodel bench`: which operators, which sizes, how long. Data, written as on the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.errors import unknown_name


@dataclass(frozen=True)
class Part:
    """Operators that are measured alike.

    Attributes
    ----------
    operators : as on the command line; ``{beyond}`` is a number of elements beyond every cache.
    library_only : whether of each point only the first kernel runs that can, the library's call: many sizes for
        `calibrate --from`, and no kernel that is tuned for each of them.
    """

    operators: str
    library_only: bool = False


@dataclass(frozen=True)
class Preset:
    """A named set of operators.

    Attributes
    ----------
    parts : what is measured, the most wanted first: a run that is cut short has that.
    time_limit_s : time limit of one kernel [s].
    min_time_s : shortest time of one kernel's samples [s].
    beyond_caches : how many times the last-level cache an fp32 addition of ``{beyond}`` elements moves at least.
    """

    parts: tuple[Part, ...]
    time_limit_s: float
    min_time_s: float
    beyond_caches: float

    def tokens(self, cache_bytes: float) -> list[str]:
        """Return the words of the command line, for a device with a last-level cache of some size [B]."""
        return [word for part in self.parts for word in self.words(part, cache_bytes)]

    def words(self, part: Part, cache_bytes: float) -> list[str]:
        """Return the words of one part."""
        return part.operators.format(beyond=elements_beyond(cache_bytes, self.beyond_caches)).split()


_CPU_QUICK = """
    elementwise kind=add numel=16384/1048576/{beyond}
    elementwise kind=gelu numel=1048576/{beyond}
    elementwise kind=silu_mul numel=1048576
    gemm m=64/256/1024 n=64 k=64
    gemm m=256 n=256 k=256
    gemm m=512 n=512 k=512 bias=true activation=gelu
    gemm m=1024 n=1024 k=1024
    layer_norm rows=256 cols=1024
    layer_norm rows=8192 cols=4096
    rms_norm rows=8192 cols=1024 softmax rows=2048 cols=4096 reduction rows=2048 cols=4096
    attention heads=8 seq_q=512 head_dim=64 causal=true
    attention heads=16 kv_heads=4 seq_q=1 seq_kv=4096 head_dim=64 causal=true
"""
_CPU_FULL = """
    elementwise kind=add numel=1024..16777216 elementwise kind=add numel={beyond}
    elementwise kind=add numel=16777216 dtype=fp64 elementwise kind=add numel=16777216 dtype=bf16
    elementwise kind=copy numel=1048576/{beyond}
    elementwise kind=gelu numel=16384/1048576/{beyond}
    elementwise kind=silu numel=1048576/{beyond}
    elementwise kind=silu_mul numel=1048576/{beyond} elementwise kind=silu_mul numel=1048576/{beyond} dtype=bf16
    elementwise kind=chain4 numel=1048576/{beyond}
    gemm m=64 n=64 k=64 gemm m=128 n=128 k=128 gemm m=256 n=256 k=256 gemm m=512 n=512 k=512
    gemm m=1024 n=1024 k=1024 gemm m=2048 n=2048 k=2048 gemm m=1024 n=1024 k=1024 dtype=fp64
    gemm m=512 n=512 k=512 dtype=bf16 gemm m=1 n=4096 k=4096 gemm m=128 n=128 k=64 batch=64
    gemm m=512 n=2048 k=512 bias=true activation=gelu gemm m=512 n=2048 k=512 bias=true activation=relu
    layer_norm rows=64..16384 cols=1024 layer_norm rows=8192 cols=4096
    layer_norm rows=2048 cols=1024 dtype=bf16 layer_norm rows=2048 cols=1024 dtype=fp64
    rms_norm rows=64..16384 cols=1024 rms_norm rows=2048 cols=1024 dtype=bf16
    softmax rows=64..16384 cols=1024 softmax rows=2048 cols=1024 dtype=bf16
    reduction rows=64..16384 cols=1024
    attention heads=8 seq_q=128/512/1024 head_dim=64 causal=true attention heads=8 seq_q=512 head_dim=64
    attention heads=8 seq_q=512 head_dim=64 causal=true dtype=bf16
    attention heads=8 kv_heads=2 seq_q=256 seq_kv=1024 head_dim=64 causal=true
    attention heads=8 seq_q=1024 head_dim=64 causal=true window=128
    attention heads=16 kv_heads=4 seq_q=1 seq_kv=4096 head_dim=64 causal=true
"""
_CUDA_QUICK = """
    elementwise kind=add numel=1048576/16777216/{beyond} dtype=bf16
    elementwise kind=gelu numel={beyond} dtype=bf16
    elementwise kind=silu_mul numel=67108864 dtype=bf16 elementwise kind=chain4 numel=67108864 dtype=bf16
    gemm m=512 n=512 k=512 dtype=bf16 gemm m=4096 n=4096 k=4096 dtype=bf16
    gemm m=4096 n=4096 k=4096 dtype=fp32 gemm m=4096 n=4096 k=4096 dtype=tf32
    gemm m=16 n=8192 k=8192 dtype=bf16
    gemm m=4096 n=4096 k=1024 bias=true activation=gelu dtype=bf16
    layer_norm rows=4096 cols=4096 dtype=bf16 layer_norm rows=65536 cols=4096 dtype=bf16
    rms_norm rows=65536 cols=4096 dtype=bf16 softmax rows=65536 cols=4096 dtype=bf16
    reduction rows=65536 cols=4096 dtype=fp32
    attention heads=32 seq_q=2048 head_dim=128 causal=true dtype=bf16
    attention batch=16 heads=32 kv_heads=8 seq_q=1 seq_kv=8192 head_dim=128 causal=true dtype=bf16
"""
#: what the kernel targets of `scripts/kernel_targets.py` are about: tensors of 256 MiB and more in bf16
_CUDA_TARGETS = """
    elementwise kind=copy numel=268435456 dtype=bf16
    gemm m=8192 n=8192 k=8192 dtype=bf16
    attention batch=2 heads=32 seq_q=8192 head_dim=128 causal=true dtype=bf16
    elementwise kind=add numel=134217728 dtype=bf16 elementwise kind=gelu numel=134217728 dtype=bf16
    elementwise kind=silu_mul numel=134217728 dtype=bf16 elementwise kind=chain4 numel=134217728 dtype=bf16
    layer_norm rows=32768 cols=8192 dtype=bf16 rms_norm rows=32768 cols=8192 dtype=bf16
    softmax rows=32768 cols=8192 dtype=bf16 reduction rows=32768 cols=8192 dtype=bf16
"""
#: more than 20 points of each latency family, which `calibrate --from` asks for
_CUDA_SWEEP = """
    gemm m=1..512 n=8192 k=8192 dtype=bf16 gemm m=128/1024/4096 n=1024/4096 k=1024/4096 dtype=bf16
    gemm m=16..512 n=8192 k=8192 dtype=fp8 gemm m=128/512/1024/4096 n=1024/4096 k=1024/4096 dtype=fp8
    elementwise kind=add numel=4096..268435456 dtype=bf16 elementwise kind=gelu numel=65536..67108864 dtype=bf16
    elementwise kind=add numel=4096..268435456 dtype=fp32 elementwise kind=copy numel=1048576..134217728 dtype=fp32
    layer_norm rows=256..16384 cols=1024/4096/8192 dtype=bf16 rms_norm rows=1024/8192 cols=4096 dtype=bf16
    softmax rows=256..16384 cols=1024/4096/8192 dtype=bf16
    reduction rows=256..16384 cols=1024/4096/8192 dtype=fp32
    attention batch=1/4 heads=32 seq_q=256..8192 head_dim=128 causal=true dtype=bf16
    attention heads=32 kv_heads=8 seq_q=256..8192 head_dim=128 causal=true dtype=bf16
    attention batch=4 heads=16 seq_q=512..4096 head_dim=64 dtype=bf16
    attention batch=1..64 heads=32 kv_heads=8 seq_q=1 seq_kv=1024/4096/16384 head_dim=128 causal=true dtype=bf16
"""
_CUDA_MORE = """
    elementwise kind=add numel=1048576/{beyond} dtype=fp32 elementwise kind=silu_mul numel=4194304 dtype=bf16
    gemm m=512 n=512 k=512 dtype=bf16 gemm m=2048 n=2048 k=2048 dtype=bf16 gemm m=16 n=8192 k=8192 dtype=bf16
    gemm m=8192 n=8192 k=8192 dtype=fp8 gemm m=8192 n=8192 k=2048 bias=true activation=gelu dtype=bf16
    gemm m=4096 n=4096 k=4096 dtype=fp16 gemm m=4096 n=4096 k=4096 dtype=tf32
    gemm m=4096 n=4096 k=4096 dtype=fp32 gemm m=4096 n=4096 k=4096 dtype=fp64
    layer_norm rows=4096 cols=4096 dtype=fp32 rms_norm rows=4096 cols=4096 dtype=bf16
    softmax rows=4096 cols=4096 dtype=bf16
    attention heads=32 seq_q=4096 head_dim=128 dtype=fp16 attention heads=32 seq_q=2048 head_dim=64 dtype=fp32
    attention heads=32 kv_heads=8 seq_q=512 seq_kv=4096 head_dim=128 causal=true dtype=bf16
    attention batch=16 heads=32 kv_heads=8 seq_q=1 seq_kv=8192 head_dim=128 causal=true dtype=bf16
"""
#: name -> kind of device -> preset
PRESETS = {
    "quick": {
        "cpu": Preset((Part(_CPU_QUICK),), 0.5, 0.02, 4),
        "cuda": Preset((Part(_CUDA_QUICK),), 0.5, 0.02, 64),
    },
    "full": {
        "cpu": Preset((Part(_CPU_FULL),), 5.0, 0.1, 4),
        "cuda": Preset((Part(_CUDA_TARGETS), Part(_CUDA_SWEEP, library_only=True), Part(_CUDA_MORE)), 0.3, 0.02, 64),
    },
}


def preset(name: str, device_kind: str) -> Preset:
    """Return a preset for a kind of device.

    Raises
    ------
    UsageError
        When there is no such preset.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS, place="--preset")
    return PRESETS[name][device_kind]


def elements_beyond(cache_bytes: float, times: float) -> int:
    """Return the least power of two of elements of which an fp32 addition moves ``times`` the cache or more.

    An addition moves 12 B an element: two inputs and an output.

    >>> elements_beyond(36 * 2**20, 4)
    16777216
    """
    return int(2 ** math.ceil(math.log2(max(times * cache_bytes / 12, 1.0))))
