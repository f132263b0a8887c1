"""Number formats of weights and of keys and values: bytes of an element, and the dtype that products run in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError, unknown_name

SIXTEEN = ("bf16", "fp16")


@dataclass(frozen=True)
class Format:
    """How the matrices of a model are stored and multiplied.

    Attributes
    ----------
    name : as the command line and engines name it.
    bytes : of one weight, its share of the scales included [B].
    compute : dtype of the engine that multiplies.
    weights : dtype of the stored weights where it is not that of ``compute``.
    scale : how weights are scaled, as `perfmodel.operators.gemm.Gemm` names it.
    group : the rows of the weights have to be a multiple of it for that scale.
    experts_only : in a mixture of experts the matrices of attention and of shared experts have another format.
    beside : that format; "" for 16 bits.
    tables : format of the embedding and of the logits' matrix; "" for 16 bits.
    """

    name: str
    bytes: float
    compute: str
    weights: str = ""
    scale: str = ""
    group: int = 1
    experts_only: bool = False
    beside: str = ""
    tables: str = ""

    @property
    def weight_only(self) -> bool:
        """Whether activations stay in 16 bits."""
        return bool(self.weights)

    @property
    def table_bytes(self) -> float:
        """Bytes of a weight of the embedding and of the logits' matrix [B]."""
        return weight_format(self.tables).bytes if self.tables else 2.0

    def stored_as(self, tables: str, beside: str) -> Format:
        """Return the format with those of tables and of what is beside experts, where a file has them with it."""
        if not self.weight_only:
            return self
        own = self.beside or not self.experts_only
        return replace(self, tables=tables, beside=self.beside if own else beside)

    def options(self, k: int) -> dict[str, Any]:
        """Return the options of a product with ``k`` columns of activations, quantised in the kernel before it."""
        options: dict[str, Any] = {"dtype": self.compute}
        if self.weights:
            options["weight_dtype"] = self.weights
        if self.compute not in SIXTEEN:
            options["quantized"] = True
        if self.scale and k % self.group == 0:
            options["scale"] = self.scale
        return options


#: bytes of a weight: 4 bits with an fp8 scale for 16 weights (NVFP4) or an 8-bit exponent for 32 (MXFP4, OCP MX
#: specification v1.0); int4 with an fp16 scale for 128 (GPTQ, AWQ); fp8 with an fp32 scale for 128 x 128 (DeepSeek-V3)
FORMATS = MappingProxyType(
    {
        known.name: known
        for known in (
            Format("bf16", 2.0, "bf16"),
            Format("fp16", 2.0, "fp16"),
            Format("fp8", 1.0, "fp8"),
            Format("fp8_block", 1.0 + 4.0 / 128**2, "fp8", scale="block:128x128", group=128),
            Format("int8", 1.0, "int8", scale="column"),
            Format("w8a16", 1.0, "fp16", weights="int8"),
            Format("int4", 0.5 + 2.0 / 128, "fp16", weights="int4", scale="group:128", group=128),
            # as Moonshot released Kimi-K2-Thinking: routed experts alone, with a 16-bit scale for 32 weights
            Format("int4_experts", 0.5 + 2.0 / 32, "fp16", "int4", "group:32", 32, experts_only=True),
            # llama.cpp's blocks of 32 weights with an fp16 scale, and of 256 with two levels of scales (ggml-common.h)
            Format("q2_k", 84.0 / 256, "fp16", weights="int4", scale="group:32", group=32),
            Format("q3_k", 110.0 / 256, "fp16", weights="int4", scale="group:32", group=32),
            Format("q4_0", 0.5 + 2.0 / 32, "fp16", weights="int4", scale="group:32", group=32),
            Format("q4_1", 0.5 + 4.0 / 32, "fp16", weights="int4", scale="group:32", group=32),
            Format("q4_k", 0.5 + 16.0 / 256, "fp16", weights="int4", scale="group:32", group=32),
            Format("iq4_nl", 0.5 + 2.0 / 32, "fp16", weights="int4", scale="group:32", group=32),
            Format("iq4_xs", 0.5 + 8.0 / 256, "fp16", weights="int4", scale="group:32", group=32),
            Format("q5_0", 0.625 + 2.0 / 32, "fp16", weights="int8", scale="column"),
            Format("q5_1", 0.625 + 4.0 / 32, "fp16", weights="int8", scale="column"),
            Format("q5_k", 176.0 / 256, "fp16", weights="int8", scale="column"),
            Format("q6_k", 210.0 / 256, "fp16", weights="int8", scale="column"),
            Format("q8_0", 1.0 + 2.0 / 32, "fp16", weights="int8", scale="group:32", group=32),
            Format("nvfp4", 0.5 + 1.0 / 16, "fp4"),
            # weights alone, widened in registers: W8A16 of llm-compressor in fp8, NVFP4A16 and MXFP4A16
            Format("fp8_a16", 1.0, "bf16", weights="fp8"),
            Format("nvfp4_a16", 0.5 + 1.0 / 16, "bf16", weights="fp4", scale="group:16", group=16),
            Format("mxfp4_a16", 0.5 + 1.0 / 32, "bf16", weights="fp4", scale="group:32", group=32),
            # activations in fp4, too, as AMD releases models for the MI350 series (quark)
            Format("mxfp4_a4", 0.5 + 1.0 / 32, "fp4"),
            # as NVIDIA released DeepSeek-R1: the same of routed experts alone
            Format("nvfp4_experts", 0.5 + 1.0 / 16, "fp4", experts_only=True),
            # as OpenAI released gpt-oss: experts alone, multiplied with 8-bit activations where the machine can
            Format("mxfp4", 0.5 + 1.0 / 32, "fp8", "fp4", "group:32", 32, experts_only=True),
            # as DeepSeek released V4: the same, and the other matrices as those of DeepSeek-V3
            Format("fp4_experts", 0.5 + 1.0 / 32, "fp8", "fp4", "group:32", 32, experts_only=True, beside="fp8_block"),
        )
    }
)
#: other spellings
ALIASES = MappingProxyType(
    {
        "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp4": "nvfp4", "w4a16": "int4", "awq": "int4",
        "gptq": "int4", "int4_wo": "int4", "w8a8": "int8", "sq": "int8", "int8_wo": "w8a16",
        "q2_k_s": "q2_k", "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k", "q4_k_m": "q4_k", "q4_k_s": "q4_k",
        "q5_k_m": "q5_k", "q5_k_s": "q5_k", "w4": "int4", "int4_awq": "int4", "w4a16_awq": "int4",
        "f16": "fp16", "fp8_wo": "fp8_a16", "w8a16_fp8": "fp8_a16", "nvfp4a16": "nvfp4_a16", "w4a16_nvfp4": "nvfp4_a16",
        "mxfp4a16": "mxfp4_a16",
    }
)  # fmt: skip
#: bytes of an element of keys and values
KV_BYTES = MappingProxyType({"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0})


def weight_format(name: str, hardware: Hardware | None = None) -> Format:
    """Return the format of a name; on a machine without its dtype the weights alone are narrow.

    Raises
    ------
    UsageError
        When the name is unknown, or the machine cannot multiply 8-bit activations that the format asks for.
    """
    lower = name.strip().lower()
    known = FORMATS.get(ALIASES.get(lower, lower))
    if known is None:
        raise unknown_name("weight format", name, FORMATS, place="weights")
    if hardware is None or _multiplies(hardware, known.compute, known.weights if known.weights == "fp4" else ""):
        return known
    sixteen = next((dtype for dtype in SIXTEEN if dtype in hardware.dtypes()), "")
    if sixteen and known.compute in ("fp4", "fp8"):  # kernels that widen the weights in registers, as Marlin's
        return replace(known, compute=sixteen, weights=known.weights or known.compute)
    if sixteen and known.compute in SIXTEEN:
        return replace(known, compute=sixteen)
    raise UsageError(
        f"{hardware.name} has no {known.compute}, which weights={name!r} needs.",
        place="weights",
        remedy=f"It has: {', '.join(hardware.dtypes())}.",
    )


def _multiplies(hardware: Hardware, compute: str, stored: str) -> bool:
    """Return whether a machine multiplies a dtype: narrow ones on its matrix engine alone; and has that of weights."""
    if stored and not hardware.find_peak(stored, "tensor"):
        return False
    return compute in hardware.dtypes() if compute in SIXTEEN else hardware.find_peak(compute, "tensor") is not None


def beside_experts(weights: Format, sixteen: str, hardware: Hardware | None = None) -> Format:
    """Return the format of a mixture's matrices that are no experts, as a machine multiplies it."""
    if not weights.experts_only:
        return weights
    return weight_format(weights.beside, hardware) if weights.beside else FORMATS[sixteen]


def kv_bytes(name: str) -> float:
    """Return the bytes of an element of keys and values.

    Raises
    ------
    UsageError
        When the name is unknown.
    """
    lower = name.strip().lower()
    if lower not in KV_BYTES:
        raise unknown_name("format of keys and values", name, KV_BYTES, place="kv")
    return KV_BYTES[lower]
