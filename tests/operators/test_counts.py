"""FLOP and bytes of every operator against a count by hand, and the rules that all operators share."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import operators, plugins
from perfmodel.errors import UsageError
from perfmodel.operators import Operator, class_names, load_operator, operator_names
from perfmodel.operators.elementwise import KINDS

# operator, dimensions, FLOP, bytes read, bytes written: each counted by hand in the comment
COUNTS: list[tuple[str, dict[str, Any], float, float, float]] = [
    # 2*2*3*4; (2*4 + 4*3)*2 B; 2*3*2 B
    ("gemm", {"m": 2, "n": 3, "k": 4, "dtype": "fp16"}, 48, 40, 12),
    # batch of 5
    ("gemm", {"m": 2, "n": 3, "k": 4, "batch": 5, "dtype": "fp16"}, 240, 200, 60),
    # + m n for the bias, + n elements read
    ("gemm", {"m": 2, "n": 3, "k": 4, "bias": True, "dtype": "fp16"}, 54, 46, 12),
    # + m n for relu
    ("gemm", {"m": 2, "n": 3, "k": 4, "activation": "relu", "dtype": "fp32"}, 54, 80, 24),
    # fp8 in, 16 bits out: 20 B in, 12 B out
    ("gemm", {"m": 2, "n": 3, "k": 4, "dtype": "fp8"}, 48, 20, 12),
    ("gemm", {"m": 2, "n": 3, "k": 4, "dtype": "fp8", "out_dtype": "fp32"}, 48, 20, 24),
    ("gemm", {"m": 2, "n": 3, "k": 4, "dtype": "tf32"}, 48, 80, 24),
    ("elementwise", {"numel": 10, "kind": "add"}, 10, 80, 40),
    ("elementwise", {"numel": 10, "kind": "add", "num_inputs": 1}, 10, 40, 40),
    ("elementwise", {"numel": 10, "kind": "silu_mul", "dtype": "bf16"}, 50, 40, 20),
    ("elementwise", {"numel": 10, "kind": "cast", "dtype": "fp32", "out_dtype": "fp16"}, 0, 40, 20),
    # dropout writes a mask of a byte an element
    ("elementwise", {"numel": 10, "kind": "dropout"}, 20, 40, 50),
    # 2*3 elements: 4 FLOP each; x 24 B, gamma and beta 12 B each; y 24 B
    ("layer_norm", {"rows": 2, "cols": 3}, 24, 48, 24),
    ("rms_norm", {"rows": 2, "cols": 3}, 24, 36, 24),
    ("softmax", {"rows": 2, "cols": 3}, 30, 24, 24),
    # two rows of three: two additions each
    ("reduction", {"rows": 2, "cols": 3}, 4, 24, 8),
    # q 1*2*4*8, k and v 1*1*4*8 (one kv head); 4 * 2 heads * 16 pairs * 8
    ("attention", {"heads": 2, "kv_heads": 1, "seq_q": 4, "head_dim": 8, "dtype": "fp16"}, 1024, 256, 128),
    # causal: 1 + 2 + 3 + 4 = 10 pairs
    ("attention", {"heads": 1, "seq_q": 4, "head_dim": 8, "causal": True, "dtype": "fp16"}, 320, 192, 64),
    # causal, 2 queries after 2 keys already there: 3 + 4 = 7 pairs
    ("attention", {"heads": 1, "seq_q": 2, "seq_kv": 4, "head_dim": 8, "causal": True}, 224, 320, 64),
    # decode: one query sees all 4 keys
    ("attention", {"heads": 1, "seq_q": 1, "seq_kv": 4, "head_dim": 8, "causal": True}, 128, 288, 32),
    # window of 2, 4 queries: 1 + 2 + 2 + 2 = 7 pairs
    ("attention", {"heads": 1, "seq_q": 4, "head_dim": 8, "causal": True, "window": 2}, 224, 384, 128),
    # decode with a window of 2: the last two keys only
    ("attention", {"heads": 1, "seq_q": 1, "seq_kv": 9, "head_dim": 8, "causal": True, "window": 2}, 64, 160, 32),
    # unfused: + scores and probabilities, 16 elements each, written and read; causal computes all and masks
    ("attention", {"heads": 1, "seq_q": 4, "head_dim": 8, "algorithm": "unfused", "causal": True}, 512, 512, 256),
    # fp8 keys under bf16 queries: q 64 B, k and v 32 B each
    ("attention", {"heads": 1, "seq_q": 4, "head_dim": 8, "dtype": "bf16", "kv_dtype": "fp8"}, 512, 128, 64),
    # values of 4 columns: 2 * 16 pairs * (8 + 4); q and k 32 elements each, v and o 16
    ("attention", {"heads": 1, "seq_q": 4, "head_dim": 8, "value_dim": 4}, 384, 128 * 2 + 64, 64),
    # 2 sequences, 3 heads, 5 keys: 2*2*3*5 * (8 + 2 + 8); q 2*3*10, the cache 2*5*10, o 2*3*8 elements of 2 B
    (
        "mla",
        {"batch": 2, "heads": 3, "seq_kv": 5, "latent": 8, "rope_dim": 2, "dtype": "bf16"},
        1080,
        120 + 200,
        96,
    ),
    # two queries at the end of four keys: 3 + 4 pairs of a head
    (
        "mla",
        {"heads": 1, "seq_q": 2, "seq_kv": 4, "latent": 8, "rope_dim": 2, "causal": True, "dtype": "bf16"},
        2 * 7 * 18,
        40 + 80,
        32,
    ),
    # an indexer leaves each of two queries two keys of nine: 4 pairs, 4 rows of the cache, in 8 bits
    (
        "mla",
        {
            "heads": 1,
            "seq_q": 2,
            "seq_kv": 9,
            "latent": 8,
            "rope_dim": 2,
            "chosen": 2,
            "causal": True,
            "dtype": "bf16",
            "kv_dtype": "fp8",
        },
        2 * 4 * 18,
        40 + 40,
        32,
    ),
    # 3 indices of 8 B, 3 rows of 5*4 B
    ("embedding", {"tokens": 3, "vocab": 100, "dim": 5}, 0, 84, 60),
    # 300 draws out of 100 rows hit 100 (1 - 0.99^300) = 95.1
    ("embedding", {"tokens": 300, "vocab": 100, "dim": 5}, 0, 2400 + 95 * 20, 6000),
    # out of 10 rows all of them
    ("embedding", {"tokens": 300, "vocab": 10, "dim": 5}, 0, 2400 + 200, 6000),
    # 300 tokens that are only 7 different ones
    ("embedding", {"tokens": 300, "vocab": 100, "dim": 5, "unique": 7}, 0, 2400 + 140, 6000),
    # q and k of 4 + 2 heads of 8: 96 elements read and written, cos and sin of 8 a token, positions of 8 B
    ("rope", {"tokens": 2, "dim": 48, "head_dim": 8, "dtype": "bf16"}, 288, 192 + 32 + 16, 192),
    ("rope", {"tokens": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "dtype": "bf16"}, 288, 240, 192),
    # half of each head is rotated: 48 elements, cos and sin of 4
    ("rope", {"tokens": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "rotary": 4, "dtype": "bf16"}, 144, 128, 96),
    ("rope", {"tokens": 2, "heads": 3, "head_dim": 8, "dtype": "bf16", "backward": True}, 288, 240, 192),
    # 3 rows of 5 logits: 60 B; targets of 8 B, losses of 4 B; 4 FLOP a logit, 2 a row
    ("cross_entropy", {"rows": 3, "vocab": 5, "algorithm": "loss"}, 66, 60 + 24, 12),
    ("cross_entropy", {"rows": 3, "vocab": 5, "algorithm": "fused"}, 66, 60 + 24, 12 + 60),
    # log_softmax is written, and one element a row read
    ("cross_entropy", {"rows": 3, "vocab": 5}, 66, 60 + 24 + 12, 12 + 60),
    # zeros written and read, log_softmax read, the gradient written; targets and gradients of the losses
    ("cross_entropy", {"rows": 3, "vocab": 5, "backward": True}, 45, 120 + 24 + 12, 120),
    ("cross_entropy", {"rows": 3, "vocab": 5, "algorithm": "fused", "backward": True}, 15, 60 + 12, 60),
    ("cross_entropy", {"rows": 3, "vocab": 5, "algorithm": "loss", "backward": True}, 60, 60 + 24 + 12, 60),
    # V / H = 5: chunks of 2 rows, 2 of them. x 4*1 and W 5*1 each twice, W for both chunks, logits 3 times, dW twice;
    # losses, logits twice, dx, dW twice. 6*4*1*5 + 4*4*5 + 2*4
    (
        "linear_cross_entropy",
        {"rows": 4, "hidden": 1, "vocab": 5, "chunk": 2},
        208,
        32 + 80 + 32 + 240 + 40,
        16 + 160 + 56,
    ),
    # the loss alone: x once, W for both chunks, logits written and read. 2*4*5 + 80 + 8
    (
        "linear_cross_entropy",
        {"rows": 4, "hidden": 1, "vocab": 5, "chunk": 2, "gradients": False},
        128,
        16 + 40 + 32 + 80,
        16 + 80,
    ),
    # 10 elements: two read, one written; backward three read, two written
    ("swiglu", {"rows": 2, "cols": 5, "dtype": "bf16"}, 50, 40, 20),
    ("swiglu", {"rows": 2, "cols": 5, "dtype": "bf16", "backward": True}, 120, 60, 40),
    ("geglu", {"rows": 2, "cols": 5, "dtype": "bf16"}, 60, 40, 20),
    ("geglu", {"rows": 2, "cols": 5, "dtype": "bf16", "gelu": "tanh"}, 100, 40, 20),
    ("geglu", {"rows": 2, "cols": 5, "dtype": "bf16", "backward": True}, 140, 60, 40),
    # x, residual, gamma; sum, y
    ("add_rms_norm", {"rows": 2, "cols": 4}, 40, 64 + 16, 64),
    ("add_rms_norm", {"rows": 2, "cols": 4, "backward": True}, 72, 64 + 16, 32 + 16),
    ("dropout", {"numel": 10, "dtype": "bf16"}, 20, 20, 20 + 10),
    ("dropout", {"numel": 10, "dtype": "bf16", "saves_mask": False}, 20, 20, 20),
    ("dropout", {"numel": 10, "dtype": "bf16", "backward": True}, 20, 20 + 10, 20),
    # 24 elements of 4 B, read for the statistics and again
    ("batch_norm", {"n": 2, "c": 3, "hw": 4}, 120, 192, 96),
    ("batch_norm", {"n": 2, "c": 3, "hw": 4, "training": False}, 48, 96, 96),
    ("batch_norm", {"n": 2, "c": 3, "hw": 4, "backward": True}, 216, 384, 96),
    # 2*4*3 elements, weights of 4 channels
    ("group_norm", {"n": 2, "groups": 2, "c": 4, "hw": 3}, 96, 96 + 32, 96),
    ("group_norm", {"n": 2, "groups": 2, "c": 4, "hw": 3, "backward": True}, 312, 192 + 16, 96 + 32),
    # 4 windows of 4: 3 comparisons each; 16 elements, 4 maxima with indices of 8 B
    ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 2}, 12, 64, 16 + 32),
    ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 2, "indices": False}, 12, 64, 16),
    ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 2, "kind": "mean"}, 16, 64, 16),
    ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 2, "backward": True}, 4, 16 + 32, 128),
    ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 2, "kind": "mean", "backward": True}, 20, 16, 64),
    # windows of 3 at steps of 2 with a border of 1: as in ResNet's stem, 4 x 4 become 2 x 2
    ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 3, "stride": 2, "padding": 1, "indices": False}, 32, 64, 16),
    # rounded up, 5 columns make 3 windows of 2
    ("pool2d", {"n": 1, "c": 1, "h": 5, "w": 5, "k": 2, "indices": False, "ceil_mode": True}, 27, 100, 36),
    # windows start at -1, 1 and 3, and no pixel is at 3
    (
        "pool2d",
        {"n": 1, "c": 1, "h": 3, "w": 3, "k": 2, "stride": 2, "padding": 1, "indices": False, "ceil_mode": True},
        12,
        36,
        16,
    ),
    # each element of 4 B costs a sector of 32 B
    ("gather", {"numel": 100}, 0, 800 + 3200, 400),
    # a table of 10 sectors
    ("gather", {"numel": 100, "table": 80}, 0, 800 + 320, 400),
    ("gather", {"numel": 100, "distribution": "same"}, 0, 800 + 32, 400),
    ("gather", {"numel": 100, "backward": True}, 100, 400 + 800 + 3200, 3200),
    # 5 columns of 4 B lie in a sector of 32 B
    ("index_select", {"rows": 3, "cols": 5}, 0, 24 + 96, 60),
    # two bags of three of many rows of 8 fp32: 2 2 8 additions; 6 indices, 6 rows of 32 B; two rows
    ("embedding_bag", {"bags": 2, "pooling": 3, "vocab": 10**6, "dim": 8}, 32, 48 + 192, 64),
    # all the same row, a sector and a quarter
    ("embedding_bag", {"bags": 2, "pooling": 3, "vocab": 9, "dim": 10, "distribution": "same"}, 40, 48 + 64, 80),
    ("index_select", {"rows": 300, "cols": 8, "table": 10}, 0, 2400 + 320, 9600),
    # zeros of the table; six rows of one sector are read and written again
    (
        "embedding_bag",
        {"bags": 2, "pooling": 3, "vocab": 10**6, "dim": 8, "backward": True},
        48,
        48 + 64 + 192,
        32 * 10**6 + 192,
    ),
    ("index_select", {"rows": 3, "cols": 5, "table": 10**6, "backward": True}, 15, 60 + 24 + 96, 2 * 10**7 + 96),
    # 100 elements into 7 sectors that are read and written
    ("scatter_add", {"rows": 100, "cols": 1, "table": 7}, 100, 400 + 800 + 224, 224),
    ("scatter_add", {"rows": 3, "cols": 16, "table": 9, "unique": 2}, 48, 192 + 24 + 128, 128),
    ("scatter_add", {"rows": 3, "cols": 16, "table": 9, "unique": 2, "backward": True}, 0, 24 + 128, 192),
    # keys and values of 2 * 4 * 8 elements, 2 slots of 8 B; 8-bit caches take a product and a clamp an element
    ("kv_write", {"tokens": 2, "kv_heads": 4, "head_dim": 8, "dtype": "bf16"}, 0, 256 + 16, 256),
    (
        "kv_write",
        {"tokens": 2, "kv_heads": 4, "head_dim": 8, "dtype": "bf16", "cache_dtype": "fp8"},
        256,
        256 + 16,
        128,
    ),
    # 512 elements of 2 B to 1 B; scales of 4 B: one a row, one a group of 128, one for all after a pass of its own
    ("quantize", {"rows": 4, "cols": 128}, 2560, 1024, 512 + 16),
    ("quantize", {"rows": 4, "cols": 128, "scale": "group:128"}, 2560, 1024, 512 + 16),
    ("quantize", {"rows": 4, "cols": 128, "scale": "group:32"}, 2560, 1024, 512 + 64),
    ("quantize", {"rows": 4, "cols": 128, "scale": "tensor"}, 2560, 2048, 512 + 4),
    ("dequantize", {"rows": 4, "cols": 128}, 1024, 512 + 16, 1024),
    ("dequantize", {"rows": 4, "cols": 128, "in_dtype": "fp4", "scale": "group:32"}, 1024, 256 + 64, 1024),
    # fp32: gradient, weight and two moments read, three written
    ("optimizer", {"parameters": 1000}, 15000, 16000, 12000),
    ("optimizer", {"parameters": 1000, "dtype": "bf16"}, 15000, 8000, 6000),
    ("optimizer_adamw", {"parameters": 1000}, 15000, 16000, 12000),
    # master weights: r 2+4+4+4, w 4+4+4+2
    ("optimizer", {"parameters": 1000, "dtype": "bf16", "master": True}, 15000, 14000, 14000),
    # 8 passes: 12 tensors read, 8 written
    ("optimizer", {"parameters": 1000, "algorithm": "foreach"}, 15000, 48000, 32000),
    ("optimizer", {"parameters": 1000, "kind": "sgd"}, 4000, 12000, 8000),
    ("optimizer", {"parameters": 1000, "kind": "sgd", "momentum": False}, 2000, 8000, 4000),
    # 3 passes: mul of the momentum, sum with the gradient, step
    ("optimizer", {"parameters": 1000, "kind": "sgd", "algorithm": "loop"}, 4000, 20000, 12000),
    # moments of a byte, a scale of 4 B for 2048 of them
    ("optimizer", {"parameters": 2048, "kind": "adam8bit"}, 19 * 2048, 10 * 2048 + 8, 6 * 2048 + 8),
    # 2 x 3: 5 (4*4*3 + 2*8 + 3*4 + 2*6) + 4*6; g, w, m of 4 B, x 6 and a 4 elements of 2 B
    ("muon", {"rows": 2, "cols": 3}, 5 * 88 + 24, 72 + 120 + 120, 48 + 60 + 80),
    # the shorter side is squared, whichever it is; each of two matrices costs as much
    ("muon", {"rows": 3, "cols": 2, "matrices": 2}, 2 * (5 * 88 + 24), 2 * (72 + 120 + 120), 2 * (48 + 60 + 80)),
    # 2 heads, 4 tokens, 8 x 8, chunks of 2: 4*64 + 2*2*16; q, k, v 64 elements each, decay of 4 B, 2 states a head
    ("linear_attention", {"heads": 2, "seq": 4, "head_dim": 8, "chunk": 2}, 8 * 320, 768 + 32 + 1024, 256 + 1024),
    ("linear_attention", {"heads": 2, "seq": 4, "head_dim": 8, "algorithm": "recurrent"}, 8 * 256, 768 + 32, 256),
    # both heads share q and k: 2 heads x (4*64 + 2*2*8) and once 2*2*8 a token; q and k are 32 elements each
    (
        "linear_attention",
        {"heads": 2, "key_heads": 1, "seq": 4, "head_dim": 8, "chunk": 2},
        4 * (2 * 288 + 32),
        512 + 32 + 1024,
        256 + 1024,
    ),
    # three states of three chunks, the last of one token; and one chunk of all three tokens
    ("linear_attention", {"heads": 1, "seq": 5, "head_dim": 8, "chunk": 2}, 5 * 320, 480 + 20 + 768, 160 + 768),
    ("linear_attention", {"heads": 1, "seq": 3, "head_dim": 8}, 3 * (256 + 96), 288 + 12 + 256, 96 + 256),
    (
        "linear_attention",
        {"heads": 2, "seq": 4, "head_dim": 8, "chunk": 2, "backward": True},
        20 * 320,
        768 + 32 + 256 + 1024,
        768 + 1024,
    ),
    # a step of a server: q, k, v 16 elements each, a decay a head; a state of 64 numbers a head is read and written
    (
        "linear_attention",
        {"heads": 2, "seq": 1, "head_dim": 8, "algorithm": "recurrent", "carried": True},
        2 * 256,
        192 + 8 + 512,
        64 + 512,
    ),
    # 2 heads, 4 tokens, 8 x 8, chunks of 2: 6*64 + 2*2*(24 + 16); q, k, v 64 elements each, decay and beta of 4 B;
    # T 16, W, U, V' 64 each and two states a head, which are written and read
    (
        "gated_delta",
        {"heads": 2, "seq": 4, "head_dim": 8, "chunk": 2},
        8 * 544,
        768 + 64 + 4 * (16 + 192 + 256),
        256 + 4 * (16 + 192 + 256),
    ),
    ("gated_delta", {"heads": 2, "seq": 4, "head_dim": 8, "algorithm": "recurrent"}, 8 * 384, 768 + 64, 256),
    # two heads share the 32 elements of q and of k; a state of 64 numbers a head is read and written
    (
        "gated_delta",
        {"heads": 2, "key_heads": 1, "seq": 4, "head_dim": 8, "algorithm": "recurrent", "carried": True},
        8 * 384,
        512 + 64 + 512,
        256 + 512,
    ),
    # 16*64 + 2*2*(72 + 40); T and W read twice, V' written twice and read three times by its gradient
    (
        "gated_delta",
        {"heads": 2, "seq": 4, "head_dim": 8, "chunk": 2, "backward": True},
        8 * 1472,
        768 + 64 + 256 + 4 * (2 * 16 + 2 * 64 + 64 + 64 + 256 + 256 + 3 * 64 + 64),
        768 + 64 + 4 * (64 + 64 + 64 + 256 + 256 + 2 * 64 + 64),
    ),
    # 2 tokens, 3 channels of 4 states: 7*4 + 3; x and dt 6, B and C 8 elements, A 12 and D 3
    ("ssm_scan", {"seq": 2, "channels": 3, "state": 4}, 186, 48 + 64 + 60, 24),
    ("ssm_scan", {"seq": 2, "channels": 3, "state": 4, "backward": True}, 558, 48 + 64 + 60 + 24, 48 + 64),
    ("ssm_scan", {"seq": 2, "channels": 3, "state": 4, "gated": True}, 216, 48 + 64 + 60 + 24, 24),
    (
        "ssm_scan",
        {"seq": 2, "channels": 3, "state": 4, "gated": True, "backward": True},
        648,
        48 + 64 + 60 + 24 + 24,
        48 + 64 + 24,
    ),
    ("ssm_scan", {"seq": 2, "channels": 3, "state": 4, "carried": True}, 186, 48 + 64 + 60 + 48, 24 + 48),
    (
        "ssm_scan",
        {"seq": 2, "channels": 3, "state": 4, "carried": True, "state_dtype": "bf16"},
        186,
        48 + 64 + 60 + 24,
        24 + 24,
    ),
    # backward of the norms: dy, x, gamma and the statistics of a row; dx and the gradients of the weights
    ("layer_norm", {"rows": 2, "cols": 3, "backward": True}, 78, 48 + 12 + 16, 24 + 24),
    ("rms_norm", {"rows": 2, "cols": 3, "backward": True}, 54, 48 + 12 + 8, 24 + 12),
    ("softmax", {"rows": 2, "cols": 3, "backward": True}, 24, 48, 24),
    ("reduction", {"rows": 2, "cols": 3, "backward": True}, 0, 8, 24),
    ("elementwise", {"numel": 10, "kind": "gelu", "backward": True}, 110, 80, 40),
    ("elementwise", {"numel": 10, "kind": "silu_mul", "dtype": "bf16", "backward": True}, 120, 60, 40),
    # a scalar factor: dy is scaled, and nothing else is read but x
    ("elementwise", {"numel": 10, "kind": "mul", "num_inputs": 1, "backward": True}, 20, 80, 40),
    ("elementwise", {"numel": 10, "kind": "dropout", "backward": True}, 20, 50, 40),
    ("elementwise", {"numel": 10, "kind": "fill"}, 0, 0, 40),
    # zeros of 100 rows, dy read, 3 rows read and written
    ("embedding", {"tokens": 3, "vocab": 100, "dim": 5, "backward": True}, 15, 24 + 60 + 60, 2000 + 60),
    # 2.5 times the FLOP; q, o, do, dq of 64 elements and k, v, dk, dv of 32
    (
        "attention",
        {"heads": 2, "kv_heads": 1, "seq_q": 4, "head_dim": 8, "dtype": "fp16", "backward": True},
        2560,
        128 * 3 + 64 * 2,
        128 + 64 * 2,
    ),
    # values of 4 columns: 2 * 16 pairs * (3 * 8 + 2 * 4); q, k, dq, dk of 32 elements, v, o, do, dv of 16
    (
        "attention",
        {"heads": 1, "seq_q": 4, "head_dim": 8, "value_dim": 4, "backward": True},
        1024,
        128 * 2 + 64 * 3,
        128 * 2 + 64,
    ),
    # unfused: twice the FLOP; do read twice, probabilities twice, their gradient once, that of the scores twice
    (
        "attention",
        {"heads": 1, "seq_q": 4, "head_dim": 8, "algorithm": "unfused", "backward": True},
        1024,
        128 * 3 + 256 + 64 * 5,
        64 * 2 + 128 * 3,
    ),
    # both gradients: each as many FLOP as the result; dy twice, x and the weights; their gradients
    (
        "conv2d",
        {"n": 1, "c": 2, "h": 4, "w": 5, "k": 3, "r": 3, "s": 3, "padding": 1, "backward": True},
        4320,
        480 + 376,
        376,
    ),
    (
        "conv2d",
        {"n": 1, "c": 2, "h": 4, "w": 5, "k": 3, "r": 3, "s": 3, "padding": 1, "backward": True, "gradient": "input"},
        2160,
        240 + 216,
        160,
    ),
    ("transpose", {"rows": 3, "cols": 5, "batch": 2}, 0, 120, 120),
    ("memcpy", {"bytes": 100, "direction": "h2d"}, 0, 0, 100),
    ("memcpy", {"bytes": 100, "direction": "d2h"}, 0, 100, 0),
    ("memcpy", {"bytes": 100, "direction": "d2d"}, 0, 100, 100),
    # 4 GPUs, 800 B = 400 fp16 elements; each adds 3 others' quarters of 100 elements: 3 * 100
    ("all_reduce", {"bytes": 800, "num_gpus": 4, "dtype": "fp16"}, 300, 800, 800),
    # it brings a quarter and ends with the whole
    ("all_gather", {"bytes": 800, "num_gpus": 4, "dtype": "fp16"}, 0, 200, 800),
    ("reduce_scatter", {"bytes": 800, "num_gpus": 4, "dtype": "fp16"}, 300, 800, 200),
    # the message is written by every rank but the first; a neighbour's message is written, an own one is read
    ("broadcast", {"bytes": 800, "num_gpus": 4, "dtype": "fp16"}, 0, 0, 800),
    ("send_recv", {"bytes": 800, "num_gpus": 4, "dtype": "fp16"}, 0, 800, 800),
    ("alltoall", {"bytes": 800, "num_gpus": 4, "dtype": "fp16"}, 0, 800, 800),
    # 2 * 3 channels out * 4 * 5 outputs * 2 in * 9 taps; (2 * 20 + 3 * 2 * 9) * 4 B; 3 * 20 * 4 B
    ("conv2d", {"n": 1, "c": 2, "h": 4, "w": 5, "k": 3, "r": 3, "s": 3, "padding": 1}, 2160, 376, 240),
]


@pytest.mark.parametrize(("op", "params", "flop", "read", "written"), COUNTS)
def test_counts_by_hand(op: str, params: dict[str, Any], flop: float, read: float, written: float) -> None:
    work = load_operator(op)(**params).work()
    assert (work.flop, work.bytes_read, work.bytes_written) == (flop, read, written)


def test_every_operator_is_counted_by_hand() -> None:
    """Here, or in a file of its own, as a new operator is."""
    own_files = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(own_operators()) <= {op for op, *_ in COUNTS} | own_files


def own_operators() -> list[str]:
    """The operators of perfmodel itself, without those of plugins that happen to be installed."""
    folder = Path(operators.__file__).parent
    return sorted(name for name in operator_names() if (folder / f"{name}.py").is_file())


def test_each_module_is_an_operator_or_a_helper() -> None:
    modules = {path.stem for path in Path(operators.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == {*own_operators(), *operators.HELPERS}
    for name in own_operators():
        kind = load_operator(name)
        assert (kind.op, kind.__module__) == (name, f"perfmodel.operators.{name}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_elementwise_kind_moves_its_inputs_and_one_output(kind: str) -> None:
    work = pm.Elementwise(numel=7, kind=kind, dtype="fp64").work()
    assert work.flop == 7 * KINDS[kind].flop
    assert work.bytes_read == 7 * 8 * KINDS[kind].inputs
    assert work.bytes_written == 7 * 8 + (7 if KINDS[kind].mask else 0)


@pytest.mark.parametrize("name", sorted(class_names()))
def test_class_names_are_the_operator_names_in_camel_case(name: str) -> None:
    assert getattr(pm, name).op == class_names()[name]


sizes = st.integers(1, 5000)


@given(st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=10), st.booleans())
def test_scalar_equals_array_for_gemm(shapes: list[tuple[int, int, int]], bias: bool) -> None:
    m, n, k = (np.array(axis) for axis in zip(*shapes, strict=True))
    together = pm.Gemm(m=m, n=n, k=k, bias=bias, dtype="fp16").work()
    for index, (m1, n1, k1) in enumerate(shapes):
        alone = pm.Gemm(m=m1, n=n1, k=k1, bias=bias, dtype="fp16").work()
        assert (together.flop[index], together.bytes[index]) == (alone.flop, alone.bytes)  # type: ignore[index]


@given(sizes, sizes, st.integers(0, 6000))
def test_attention_pairs_equal_a_count_one_by_one(seq_q: int, more: int, window: int) -> None:
    seq_q, seq_kv = seq_q % 60 + 1, seq_q % 60 + 1 + more % 60
    window %= 80
    op = pm.Attention(heads=1, seq_q=seq_q, seq_kv=seq_kv, head_dim=1, causal=True, window=window)
    # query i stands at place seq_kv - seq_q + i and sees the keys up to there, at most the last `window`
    places = (seq_kv - seq_q + i + 1 for i in range(seq_q))
    assert op.pairs() == sum(min(place, window) if window else place for place in places)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 64))
def test_the_keys_a_window_reads_are_counted_one_by_one(seq_q: int, more: int, window: int) -> None:
    seq_kv = seq_q + more
    op = pm.Attention(heads=1, seq_q=seq_q, seq_kv=seq_kv, head_dim=1, causal=True, window=window)
    seen: set[int] = set()
    for i in range(seq_q):
        place = seq_kv - seq_q + i
        seen |= set(range(max(0, place - window + 1) if window else 0, place + 1))
    assert op.keys() == len(seen)


def test_a_window_on_a_very_long_sequence_cancels_nothing() -> None:
    decode = pm.Attention(heads=1, seq_q=1, seq_kv=2**40, head_dim=1, causal=True, window=3)
    assert decode.pairs() == 3
    prefill = pm.Attention(heads=1, seq_q=2**30, head_dim=1, causal=True, window=3)
    assert prefill.pairs() == 3 * 2**30 - 3  # 1 + 2 + 3 + 3 + ...


def test_scalar_equals_array_for_attention() -> None:
    seq = np.array([1, 64, 100, 4096])
    window = np.array([0, 32, 200, 1024])
    together = pm.Attention(heads=8, seq_q=seq, head_dim=64, causal=True, window=window, dtype="fp16").work()
    for index in range(4):
        alone = pm.Attention(
            heads=8, seq_q=int(seq[index]), head_dim=64, causal=True, window=int(window[index]), dtype="fp16"
        ).work()
        assert (together.flop[index], together.bytes[index]) == (alone.flop, alone.bytes)  # type: ignore[index]


def test_causal_tends_to_half_and_decode_is_not_halved() -> None:
    full = pm.Attention(heads=32, seq_q=2048, head_dim=64).flop()
    assert pm.Attention(heads=32, seq_q=2048, head_dim=64, causal=True).flop() / full == pytest.approx(0.5, rel=1e-3)
    decode = {"heads": 32, "seq_q": 1, "seq_kv": 2048, "head_dim": 64}
    assert pm.Attention(**decode, causal=True).flop() == pm.Attention(**decode).flop()


def test_large_products_do_not_overflow() -> None:
    # 2 * (2^20)^3 = 2^61 fits int64; 2^40 cubed does not, and float64 holds it exactly (a power of two)
    assert pm.Gemm(m=2**40, n=2**40, k=2**40).flop() == 2.0**121
    assert pm.Gemm(m=np.array([2**40]), n=2**40, k=2**40).flop()[0] == 2.0**121  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (0, "below 1"),
        (-4, "below 1"),
        (1.5, "not a whole number"),
        (1e30, "above 2\\^53"),
        (10**400, "above 2\\^53"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        ("many", "not a whole number"),
        (True, "not a whole number"),
        (None, "not a whole number"),
        (np.array([64, 0]), "below 1"),
        (np.array([64, 1.5]), "not a whole number"),
        (np.array([64, np.nan]), "not finite"),
        (np.array([]), "no size"),
        (["x"], "not an array of whole numbers"),
        (np.array([True, False]), "not an array of whole numbers"),
        ([[1, 2], [3]], "not an array of whole numbers"),
        ([10**30], "above 2\\^53"),
        (range(0), "no size"),
    ],
)
def test_wrong_sizes_are_refused(value: Any, part: str) -> None:
    with pytest.raises(UsageError, match=f"gemm: m=.* {part}") as refused:
        pm.Gemm(m=value, n=4, k=4)
    assert "from 1 to 2^53" in refused.value.remedy


def test_the_message_on_a_huge_size_states_its_magnitude() -> None:
    with pytest.raises(UsageError, match=r"m=1\.23e30 is above 2\^53"):
        pm.Gemm(m=123 * 10**28, n=4, k=4)


class Column:
    """Numbers as another library holds them: a column of a table, a tensor."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.values, dtype)


@pytest.mark.parametrize("values", [[64, 128, 192], (64, 128, 192), range(64, 256, 64), Column([64, 128, 192])])
def test_sizes_are_whatever_numpy_makes_an_array_of(values: Any) -> None:
    assert pm.Gemm(m=values, n=4, k=4) == pm.Gemm(m=np.array([64.0, 128.0, 192.0]), n=4, k=4)


@pytest.mark.parametrize("value", [np.array(64), np.int64(64), np.float32(64), Column(64), 64.0])
def test_a_number_without_axes_is_a_single_size(value: Any) -> None:
    op = pm.Gemm(m=value, n=4, k=4)
    assert op == pm.Gemm(m=64, n=4, k=4)
    assert type(op.m) is int
    assert type(pm.predict(op, "a100-sxm4-40gb").bound_time_s) is float


def test_bytes_take_a_unit_in_python_as_in_files() -> None:
    assert pm.Memcpy(bytes="1MiB") == pm.Memcpy(bytes=2**20) == pm.parse_operators("memcpy bytes=1MiB")[0]
    with pytest.raises(UsageError, match=r"bytes='8Mb' is in bits.*'1MB'"):
        pm.Memcpy(bytes="8Mb")
    with pytest.raises(UsageError, match="m='1MiB' is not a whole number"):
        pm.Gemm(m="1MiB", n=4, k=4)


def test_a_dtype_is_a_name_or_what_numpy_has_for_it() -> None:
    for dtype in ("float16", "half", np.float16, np.dtype("float16"), "torch.float16"):
        assert pm.Gemm(m=4, n=4, k=4, dtype=dtype).dtype == "fp16"
    with pytest.raises(UsageError, match="unknown dtype \"<class 'float'>\""):  # 32 bits in torch, 64 in NumPy
        pm.Gemm(m=4, n=4, k=4, dtype=float)


@pytest.mark.parametrize(
    ("op", "params", "part"),
    [
        ("gemm", {"m": 1, "n": 1, "k": 1, "dtype": "fp17"}, "unknown dtype 'fp17'.*fp16"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "activation": "rleu"}, "unknown activation 'rleu'.*relu"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "bias": "yes"}, "neither true nor false"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "engine": "quantum"}, "unknown engine"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "count": 0}, "count=0 is below 1"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "count": [1, 2]}, "must be a single number"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "name": 3}, "not text"),
        ("gemm", {"m": [1, 2, 3], "n": [1, 2], "k": 1}, r"cannot be broadcast together: m \(3,\), n \(2,\)"),
        ("embedding", {"tokens": 3, "vocab": 9, "dim": 1, "unique": 4}, "more than min"),
        ("attention", {"heads": 6, "kv_heads": 4, "seq_q": 1, "head_dim": 8}, "multiple of kv_heads"),
        ("attention", {"heads": 1, "seq_q": 8, "seq_kv": 4, "head_dim": 8, "causal": True}, "below seq_q"),
        ("attention", {"heads": 1, "seq_q": 8, "head_dim": 8, "window": 4}, "window needs causal"),
        ("attention", {"heads": 1, "seq_q": 8, "head_dim": 8, "algorithm": "flsh"}, "Did you mean 'flash'"),
        ("elementwise", {"numel": 1, "kind": "gleu"}, "Did you mean 'gelu'"),
        ("elementwise", {"numel": 1, "kind": np.array(["add"])}, "unknown kind .*add"),
        ("elementwise", {"numel": 1, "kind": np.array(["add", "mul"])}, "unknown kind .*add"),
    ],
)
def test_wrong_parameters_are_refused(op: str, params: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        load_operator(op)(**params)


def test_torch_names_of_dtypes_are_understood() -> None:
    assert pm.Gemm(m=1, n=1, k=1, dtype="torch.bfloat16").dtype == "bf16"
    assert pm.Gemm(m=1, n=1, k=1, dtype="float8_e4m3fn").dtype == "fp8"


def test_gemm_and_attention_agree_with_torch() -> None:
    """torch.utils.flop_counter counts matrix products only, and does not halve causal attention."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    def counted(function: Any) -> int:
        with FlopCounterMode(display=False) as counter:
            function()
        return counter.get_total_flops()

    meta = {"device": "meta"}
    a, b = torch.empty(64, 48, **meta), torch.empty(48, 32, **meta)
    assert counted(lambda: a @ b) == pm.Gemm(m=64, n=32, k=48).flop()
    batched = torch.empty(7, 64, 48, **meta), torch.empty(7, 48, 32, **meta)
    assert counted(lambda: torch.bmm(*batched)) == pm.Gemm(m=64, n=32, k=48, batch=7).flop()
    q, k = torch.empty(2, 8, 40, 16, **meta), torch.empty(2, 8, 56, 16, **meta)

    def attend() -> None:
        scores = q @ k.transpose(-1, -2)
        _ = torch.softmax(scores, -1) @ k

    attention = pm.Attention(batch=2, heads=8, seq_q=40, seq_kv=56, head_dim=16)
    assert counted(attend) == attention.flop()
    assert counted(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, k)) == attention.flop()


def test_the_largest_size_is_the_last_that_float64_counts() -> None:
    assert float(2**53) + 1.0 == float(2**53), "from here on whole numbers are left out"
    assert pm.Reduction(rows=2**53, cols=1).params()["rows"] == 2**53
    assert pm.Reduction(rows=np.array([1.0, 2.0**53]), cols=1).params()["rows"].max() == 2**53
    for rows in (2**53 + 1, np.array([2.0**53 + 2])):
        with pytest.raises(UsageError, match="above 2"):
            pm.Reduction(rows=rows, cols=1)
    with pytest.raises(UsageError, match=r"rows=0\.0 is below 1"):
        pm.Reduction(rows=np.array([2.0**53, 0.0]), cols=1)


@pytest.mark.parametrize(
    ("kinds", "inputs", "flop"),
    [
        (("add", "sub", "mul", "div", "pow", "maximum", "minimum"), 2, 1),  # one operation on two operands
        (("relu", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "square"), 1, 1),  # one function
        (("copy", "cast"), 1, 0),  # moves only
        (("sigmoid", "silu"), 1, 4),  # negate, exp, add, divide; silu divides x itself
        (("silu_mul",), 2, 5),  # silu, and a product
        (("gelu",), 1, 5),  # divide by sqrt 2, erf, add 1, two products
        (("chain4",), 3, 1 + 5 + 1 + 4),  # silu(gelu(x + y) z)
        (("dropout",), 1, 2),  # compare with the random number, scale
        (("fma",), 3, 2),
        (("where",), 3, 1),  # condition and two values
    ],
)
def test_elementwise_kinds_count_their_operations(kinds: tuple[str, ...], inputs: int, flop: int) -> None:
    for kind in kinds:
        op = pm.Elementwise(numel=7, kind=kind)
        assert (op.params()["num_inputs"], op.flop()) == (inputs, 7 * flop), kind


def test_tables_show_the_parameters_that_differ_from_their_defaults() -> None:
    assert pm.Gemm(m=1, n=2, k=3).given() == ("m", "n", "k")
    assert pm.Gemm(m=1, n=2, k=3, bias=True, batch=2).given() == ("m", "n", "k", "batch", "bias")
    assert pm.Gemm(m=1, n=2, k=3, batch=np.array([1, 1])).given() == ("m", "n", "k", "batch")
    # the number of kv heads and keys follows from others, and the batch is 1 by default
    assert pm.Attention(heads=8, seq_q=5, head_dim=4, causal=True).given() == ("heads", "seq_q", "head_dim", "causal")


@pytest.mark.parametrize("name", own_operators())
def test_dimensions_are_given_by_name_only(name: str) -> None:
    """The order of the dimensions is no part of the interface: m, n, k in another order is another product."""
    with pytest.raises(TypeError, match=f"^{name}: (.* missing\\. Add |dimensions are given by name)"):
        load_operator(name)(1)  # type: ignore[misc]


@pytest.mark.parametrize("name", own_operators())
def test_a_wrong_dimension_is_one_message_and_a_type_error_too(name: str) -> None:
    kind = load_operator(name)
    with pytest.raises(pm.UsageError, match=f"^{name}: unknown dimension 'dtyp'. Did you mean 'dtype'\\?") as caught:
        kind(dtyp="fp16")  # type: ignore[call-arg]
    assert isinstance(caught.value, TypeError)
    needed = [key for key, rules in kind.dimensions().items() if rules["default"] is dataclasses.MISSING]
    if needed:
        with pytest.raises(pm.UsageError, match=rf"^{name}: {', '.join(needed)} (is|are) missing\. Add {needed[0]}="):
            kind()


def test_a_misspelt_dimension_of_a_product_names_the_nearest() -> None:
    with pytest.raises(pm.UsageError, match=r"^gemm: unknown dimension 'kk'\. Did you mean 'k'\?"):
        pm.Gemm(m=1, n=1, kk=3)


def test_an_unfused_attention_is_three_kernels_that_do_its_work() -> None:
    sizes: dict[str, Any] = {"batch": 2, "heads": 3, "seq_q": 4, "seq_kv": 5, "head_dim": 8, "dtype": "bf16"}
    unfused = pm.Attention(**sizes, algorithm="unfused")
    scores, softmax, output = parts = unfused.composition()
    assert [part.op for part in parts] == ["gemm", "softmax", "gemm"]
    # the convention counts the two products; exponentials and sums come on top
    assert scores.flop() + output.flop() == unfused.flop()
    # what one kernel writes the next one reads: the bytes of the three are those of the whole
    assert sum(part.work().bytes for part in parts) == unfused.work().bytes
    assert softmax.params() == {"rows": 2 * 3 * 4, "cols": 5}
    assert pm.Attention(**sizes).composition() == ()


@pytest.mark.parametrize("name", own_operators())
def test_operators_are_compared_by_the_base_class(name: str) -> None:
    """Dimensions may be arrays, which have neither a truth value nor a hash: those of a dataclass would not do."""
    kind = load_operator(name)
    assert (kind.__eq__, kind.__hash__) == (Operator.__eq__, Operator.__hash__)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An empty module that an entry point names as the operator ``two_words``."""
    module = ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    monkeypatch.setattr(operators, "_modules", lambda: {"two_words": "elsewhere"})
    forget = (operators.operator_names, operators._load, operators.class_names, plugins._import_plugin)
    for function in forget:
        function.cache_clear()
    yield module
    monkeypatch.undo()
    for function in (*forget, plugins.warn_once):
        function.cache_clear()


@pytest.mark.parametrize("kind", [3, dict, pm.Gemm], ids=["no class", "another class", "another operator"])
def test_a_plugin_without_the_operator_of_its_name_is_skipped(
    elsewhere: ModuleType, kind: object, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.TwoWords = kind  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="unknown operator 'two_words'"):
        load_operator("two_words")
    with pytest.raises(KeyError):
        operators.load_class("TwoWords")
    assert "TwoWords is not an Operator with op = 'two_words'" in capsys.readouterr().err
