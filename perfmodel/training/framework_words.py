"""Which described framework is nearest to one that nobody described, by the words of its name."""

from __future__ import annotations

import re

#: words in the name of an unknown framework -> the framework that is nearest
_NEAREST = (
    (r"^(?!.*(fsdp|titan|zero|deepspeed|megatron|torchtune)).*(compile|nanogpt|nanochat|llm\.c)", "ddp-compile"),
    (r"^(?=.*(fsdp2|titan))(?!.*compile).*eager", "fsdp2-eager"),
    (r"compile|fsdp2|titan|torchtune", "fsdp2-compile"),
    (r"deepspeed|zero", "deepspeed"),
    (r"bridge|maxtext", "megatron-bridge"),
    (r"megatron|nemo|transformer.?engine|\bte\b|nvidia|flash.?attn", "megatron-te"),
    (r"fsdp|composer|foundry|fms", "fsdp1-eager"),
    (r"hugging|\bhf\b|trainer|transformers|accelerate", "huggingface"),
    (r"ddp|eager|lightning|pytorch", "ddp-eager"),
)


def framework_by_words(name: str) -> str:
    """Return the name of the framework that the words of another name point to; "" where they say nothing.

    >>> framework_by_words("my own FSDP2 loop"), framework_by_words("jax")
    ('fsdp2-compile', '')
    """
    return next((near for words, near in _NEAREST if re.search(words, name.lower())), "")
