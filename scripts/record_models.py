"""Measure whole models in plain PyTorch with Hugging Face transformers on this machine's GPU, as JSON lines.

    python scripts/record_models.py OUT.jsonl [--device cpu --tiny] [--trace FOLDER] [--seed N]

Needs transformers. Weights are random; the optimizer is AdamW in fp32, products run under autocast to bf16. Training
lines hold the median time of a step [s] and the peak of allocated memory [B], serving lines the time of a prefill and
of a decoding step. ``--trace`` also writes a profile of two training steps and of decoding, for `perfmodel diagnose`.
``--seed`` draws models, batches and lengths at random in place of the usual ones, for a record that nobody chose.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

LLAMA_1B = {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256}
LLAMA_8B = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256}
TINY = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 512}


#: attention, batch and length of the usual training steps, of a model of 1 B; batch and context of those of serving
TRAININGS = (("sdpa", 4, 2048), ("sdpa", 1, 2048), ("sdpa", 2, 4096), ("eager", 2, 2048))
SERVINGS = ((1, 512), (1, 4096), (8, 1024), (32, 1024))
#: drawn models of each kind; bytes of a weight in training and in serving; most bytes, and most logits at once
DRAWN = 5
TRAINED_BYTES, SERVED_BYTES, MOST_BYTES, MOST_LOGITS = 16.0, 2.0, 30e9, 1.1e9

#: sizes of a model, attention, batch and length of its prompts
Case = tuple[dict[str, int], str, int, int]


def drawn(dice: random.Random, weight_bytes: float, *, training: bool) -> Case:
    """Return a random model that fits, with a batch and a length."""
    while True:
        head_dim, kv_heads = dice.choice((64, 128)), dice.choice((2, 4, 8, 16))
        heads = kv_heads * dice.choice((1, 2, 4))
        hidden = heads * head_dim
        shape = {"layers": dice.randint(2, 28), "hidden": hidden, "heads": heads, "kv_heads": kv_heads,
                 "ffn": 128 * round(hidden * dice.uniform(2.0, 4.0) / 128),
                 "vocab": dice.choice((32_000, 50_304, 128_256, 151_936))}  # fmt: skip
        batch, seq = dice.choice((1, 2, 4, 8, 16, 32)), 64 * round(2 ** dice.uniform(7, 13) / 64)
        layer = hidden * (2 * hidden + 2 * kv_heads * head_dim + 3 * shape["ffn"])
        parameters = shape["layers"] * layer + 2 * hidden * shape["vocab"]
        tokens = batch * seq
        logits = tokens * shape["vocab"] if training else 0
        if parameters * weight_bytes < MOST_BYTES and logits < MOST_LOGITS and 512 <= tokens <= 32768:
            return shape, "sdpa", batch, seq


def model_of(shape: dict[str, int], attention: str, device: str, dtype: torch.dtype) -> torch.nn.Module:
    """Return a Llama of a shape with random weights."""
    transformers = importlib.import_module("transformers")
    config = transformers.LlamaConfig(
        num_hidden_layers=shape["layers"],
        hidden_size=shape["hidden"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        intermediate_size=shape["ffn"],
        vocab_size=shape["vocab"],
        max_position_embeddings=8192,
        attn_implementation=attention,
    )
    with torch.device(device):
        model: torch.nn.Module = transformers.LlamaForCausalLM(config).to(dtype)
    return model


def timed(call: Callable[[], Any], device: str, warm: int, count: int) -> list[float]:
    """Return the wall time of each of some calls, the device idle before and after [s]."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(warm):
        call()
    found = []
    for _ in range(count):
        wait()
        start = time.perf_counter()
        call()
        wait()
        found.append(time.perf_counter() - start)
    return found


def traced(call: Callable[[], Any], path: Path, steps: int) -> None:
    """Write a profile of some calls, each marked as a step of the profiler."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1)

    def save(profiler: torch.profiler.profile) -> None:
        profiler.export_chrome_trace(str(path))

    with torch.profiler.profile(schedule=schedule, on_trace_ready=save, record_shapes=True) as profiler:
        for _ in range(steps + 1):
            call()
            profiler.step()


def trainings(cases: Iterable[Case], device: str, tiny: bool, traces: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the time of a training step of each model."""
    for shape, attention, batch, seq in cases:
        if tiny:
            seq //= 64
        model = model_of(shape, attention, device, torch.float32)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        tokens = torch.randint(shape["vocab"], (batch, seq), device=device)

        def step(model: Any = model, optimizer: Any = optimizer, tokens: Any = tokens) -> None:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            loss.backward()
            optimizer.step()

        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        times = timed(step, device, 2, 5)
        peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
        if traces is not None and batch == 4:
            traced(step, traces / "train.json", 2)
        yield {
            "what": "train",
            "model": shape,
            "attention": attention,
            "batch": batch,
            "seq": seq,
            "step_s": statistics.median(times),
            "steps_s": times,
            "peak_bytes": peak,
        }
        del model, optimizer, step
        if device == "cuda":
            torch.cuda.empty_cache()


def servings(cases: Iterable[Case], device: str, tiny: bool, traces: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the times of a prefill and of a decoding step in bf16, of each model and batch.

    cuDNN builds a plan for each new length of the keys, so that decoding is measured with it and without.
    """
    model: Any = None
    built: dict[str, int] = {}
    for (shape, attention, batch, context), cudnn in itertools.product(cases, (False, True)):
        if shape != built:
            model, built = model_of(shape, attention, device, torch.bfloat16).eval(), shape
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        if tiny:
            context //= 64
        tokens = torch.randint(shape["vocab"], (batch, context), device=device)
        held: dict[str, Any] = {}
        with torch.inference_mode():

            def prefill(model: Any = model, tokens: Any = tokens, held: dict[str, Any] = held) -> None:
                held["cache"] = model(input_ids=tokens, use_cache=True, logits_to_keep=1).past_key_values

            first = timed(prefill, device, 1, 3)
            one = tokens[:, :1].contiguous()

            def decode(model: Any = model, one: Any = one, held: dict[str, Any] = held) -> None:
                held["cache"] = model(input_ids=one, past_key_values=held["cache"], use_cache=True).past_key_values

            each = timed(decode, device, 3, 20)
            if traces is not None and batch == 8 and not cudnn:
                traced(decode, traces / "decode.json", 2)
        yield {
            "what": "serve",
            "model": shape,
            "batch": batch,
            "context": context,
            "cudnn": cudnn,
            "prefill_s": statistics.median(first),
            "decode_s": statistics.median(each),
            "decodes_s": each,
        }


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write a line for each measurement as soon as it is made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args(arguments)
    version = importlib.metadata.version("transformers")
    facts = {"torch": torch.__version__, "transformers": version, "device": given.device}
    if given.device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    small, large = (TINY, TINY) if given.tiny else (LLAMA_1B, LLAMA_8B)
    trained: list[Case] = [(small, *rest) for rest in TRAININGS]
    served: list[Case] = [(large, "sdpa", *rest) for rest in SERVINGS]
    if given.seed is not None:
        dice = random.Random(given.seed)
        trained = [drawn(dice, TRAINED_BYTES, training=True) for _ in range(DRAWN)]
        served = [drawn(dice, SERVED_BYTES, training=False) for _ in range(DRAWN)]
    with given.out.open("w", encoding="utf-8") as stream:
        for rows in (
            trainings(trained, given.device, given.tiny, given.trace),
            servings(served, given.device, given.tiny, given.trace),
        ):
            for row in rows:
                line = json.dumps({**facts, **row})
                print(line, flush=True)
                stream.write(line + "\n")
                stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
