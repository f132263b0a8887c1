"""What needs a process of its own: the machine code of our kernels for compute capability 9.0, made without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.waiting  # they are compiled for seconds

_PROGRAM = r"""
import json, re, sys
from perfmodel.kernels.registry import find_kernels
names = [kernel.name for op in ("gemm", "attention", "softmax") for kernel in find_kernels(op)]
declaring_imports_triton = "triton" in sys.modules

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from perfmodel.kernels.triton import _bandwidth as b, _gemm

def machine_code(function, signature, constants, attributes=None, **options):
    place = function.arg_names.index
    source = ASTSource(
        function, {**signature, **dict.fromkeys(constants, "constexpr")},
        {(place(name),): value for name, value in constants.items()},
        {(place(name),): value for name, value in (attributes or {}).items()},
    )
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, **options}).asm["ptx"]

kinds = dict.fromkeys(("a_desc", "b_desc", "c_desc"), "tensordesc<bf16[64, 64]>")
kinds |= {"bias_ptr": "*bf16", "M": "i32", "N": "i32", "K": "i32"}
given = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "B_BY_COLUMNS": False, "HALVED": 256}
given |= {"HAS_BIAS": False, "ACTIVATION": "none", "UPCAST": False, "PRECISION": "ieee"}
product = machine_code(_gemm._by_descriptor.fn, kinds, given, num_stages=4)

wide = [["tt.divisibility", 16]]
read = machine_code(
    b._read, {"x": "*fp32", "out": "*fp32", **dict.fromkeys(("turns", "start", "step", "mask"), "i32")},
    {"CACHE": ".cg", "BLOCK": b._BLOCK, "UNROLL": b._UNROLL}, {"x": wide, "out": wide},
)

def loop(text):
    # from the label of a loop to the branch back to it
    return re.search(r"(\$L__BB\d+_\d+):((?:(?!\$L__BB)[\s\S])*?)bra(?:\.uni)?\s+\1;", text).group(2)

body, sizes = loop(read), {"BLOCK": b._BLOCK, "UNROLL": b._CHAIN_UNROLL}
scalars = {"factor": "fp32", "shift": "fp32", "turns": "i32"}
single = machine_code(b._chain, {"out": "*fp32", **scalars}, sizes, {"out": wide})
words = dict.fromkeys(("factor", "shift", "fraction", "half", "turns"), "i32")
code = b._PAIRED["bf16"][0]
paired = machine_code(b._paired_chain, {"out": "*i32", **words}, {**sizes, "CODE": code}, {"out": wide})
chains = (("fma.rn.f32", single), ("fma.rn.bf16x2", paired))
print(json.dumps({
    "names": names,
    "declaring_imports_triton": declaring_imports_triton,
    "product": "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" in product,
    "copy": "cp.async.bulk.tensor.2d" in product,
    "spills": ".local" in product,
    "multiply_adds": [len(re.findall(rf"{name}\s", loop(text))) for name, text in chains],
    "factors": [len(set(re.findall(rf"{name}\s+\S+\s+\S+\s+(\S+)\s+(\S+)", loop(text)))) for name, text in chains],
    "loads": len(re.findall(r"ld\.global\.cg\.v4", body)),
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return what one process found: Triton decides on import whether it compiles, and is not imported there yet."""
    cache = tmp_path_factory.mktemp("triton")
    env = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_declaring_kernels_imports_no_triton(found):
    assert "triton.gemm.tma" in found["names"]
    assert found["declaring_imports_triton"] is False


def test_the_product_uses_the_tensor_cores_and_the_copy_engine_of_hopper_and_spills_nothing(found):
    assert (found["product"], found["copy"], found["spills"]) == (True, True, False)


def test_no_load_leaves_its_loop(found):
    # 16 blocks of 1024 floats by 128 threads, 4 floats a load: 32 loads
    assert found["loads"] == 32


def test_chains_are_multiply_adds_alone_with_one_factor_and_one_shift(found):
    # 8 chains of a thread by 32 steps; three vector registers of its own would stall an instruction in 1 of 3 cycles
    assert found["multiply_adds"] == [256, 256]
    assert found["factors"] == [1, 1]
