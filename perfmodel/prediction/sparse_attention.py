"""Rates of attention to keys that are chosen or compressed, whose kernels no table of measurements has."""

from __future__ import annotations

from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.latency.constants import NEW_KERNEL

#: share of the 16-bit peak that latent attention reaches over chosen keys, of prompts and in decode: FlashMLA states
#: 640 and 410 of 989 TFLOP/s on H800, 1450 of 2250 on B200 for prompts (github.com/deepseek-ai/FlashMLA)
SPARSE_SHARE, SPARSE_DECODE_SHARE = 0.64, 0.41
#: standard deviation of ln(measured / predicted) of attention to a window and compressed keys, of which no kernel was
#: measured: that of large calls of any kernel that no table has, 0.53
COMPRESSED_DEVIATION = NEW_KERNEL[ErrorSource.KERNEL][-1]
#: bytes of a score of an indexer: written in fp32, and read by the kernel that chooses the largest
SCORE_BYTES = 8.0
