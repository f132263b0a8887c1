"""Damages input files at random and counts what escapes the readers and the commands.

Every reader has to return a result or raise a `PerfModelError`, and no command may end in a fault of perfmodel itself
(exit code 70); anything else is an escape, warnings and inputs that take over ``--patience`` seconds included. Inputs
are small synthetic files, and real ones if ``PERFMODEL_DATA`` names their folder, each with bytes, tokens or values
changed. A seed gives the same inputs in every run. Escapes are printed, and their inputs are saved to ``--save``. The
exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import math
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzz_targets import Target, targets

from perfmodel.cli import app
from perfmodel.errors import PerfModelError

TOKENS = [
    *(b'"', b",", b"\n", b"\r", b"\t", b"|", b"  ", b"-", b"---  ---", b"%", b"(", b"[", b"{", b"]", b"}", b":", b"="),
    *(b"n/a", b"nan", b"NaN", b"inf", b"-inf", b"Infinity", b"1e999", b"-1", b"0", b"1e308", b"5e-324", b"1.234.567"),
    *(b"9" * 400, b"true", b"null", b"''", b'""', b"\xff", b"\0", b"\xc2\xa0", b"\xef\xbb\xbf", b"\x0c", b"#", b"&a"),
    *(b"*a", b"<<: ", b"us", b"ms", b"GB/s", b"TFLOP/s", b"gemm", b"fp16", b"Name", b"Self CPU", b"\n\n", b"[[x]]\n"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**53, 2**63, 10**400, 0.5, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324),
    *(
        "",
        "x",
        "nan",
        "1e999",
        "9" * 400,
        "gemm",
        "fp16",
        "12 ms",
        "50 %",
        "\x00",
        "\ud7ff",
        [],
        {},
        [[]],
        [1, 2],
        {"a": 1},
    ),
]


class TooSlow(BaseException):
    """An input that takes longer than the patience; no reader catches it."""


def undamaged(target: Target, patience: float) -> Target:
    """Return the reader with the files that it accepts; damage to others finds only their first fault."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"seed{target.suffix}"
        accepted = []
        for seed in target.seeds:
            path.write_bytes(seed)
            if outcome(target, path, patience)[0]:
                accepted.append(seed)
    return replace(target, seeds=tuple(accepted))


def damaged(seed: bytes, random_: random.Random) -> bytes:
    """Return a file with values of its document, or pieces of its text, changed."""
    if seed[:1] in (b"{", b"[") and random_.random() < 0.5:
        lines = seed.splitlines()
        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            return _changed_json(seed, random_)
        at = random_.randrange(len(lines))  # JSON lines
        return b"\n".join([*lines[:at], _changed_json(lines[at], random_), *lines[at + 1 :]])
    content = bytearray(seed)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 7))):
        at = random_.randrange(len(content) + 1)
        choice = random_.random()
        if choice < 0.6:
            content[at : at + random_.choice((0, 0, 1, 5, 40))] = random_.choice(TOKENS)
        elif choice < 0.8 and content:
            content[at % len(content)] = random_.randrange(256)
        else:
            other = random_.randrange(len(content) + 1)
            content[at:at] = content[other : other + random_.randrange(60)]
    return bytes(content[: random_.randrange(len(content) + 1)] if random_.random() < 0.1 else content)


def _changed_json(text: bytes, random_: random.Random) -> bytes:
    document = json.loads(text)
    for _ in range(random_.randrange(1, 4)):
        document = _changed(document, random_)
    return json.dumps(document).encode("utf-8", "replace")


def _changed(document: Any, random_: random.Random) -> Any:
    """Return a document with one value replaced, removed or renamed, anywhere in it."""
    if not isinstance(document, (dict, list)) or not document or random_.random() < 0.1:
        return copy.deepcopy(random_.choice(VALUES))
    key = random_.choice(list(document) if isinstance(document, dict) else range(len(document)))
    if random_.random() < 0.1:
        del document[key]
    elif isinstance(document, dict) and random_.random() < 0.05:
        document[str(random_.choice(VALUES))[:20]] = document.pop(key)
    else:
        document[key] = _changed(document[key], random_)
    return document


def outcome(target: Target, path: Path, patience: float) -> tuple[bool, str]:
    """Read a file; return whether that gave a result, and a description of what escaped."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.read(path)
    except PerfModelError as error:
        return False, "" if str(error) else f"{type(error).__name__} without a message"
    except TooSlow:
        return False, f"over {patience:g} s\n{traceback.format_exc()}"
    except Exception:  # noqa: BLE001 -- this is what is looked for
        return False, traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True, ""


@contextlib.contextmanager
def commands_built_once() -> Iterator[None]:
    """Keep the command line that is built first: building takes longer than most inputs."""
    build, find = app.build_app, typer.main.get_command
    app.build_app, typer.main.get_command = functools.cache(build), functools.cache(find)
    try:
        yield
    finally:
        app.build_app, typer.main.get_command = build, find


def fuzz(options: argparse.Namespace, every: list[Target]) -> Counter[str]:
    """Read damaged files until the count or the time is used up, or Ctrl-C; return the number of inputs and escapes."""
    random_, counts, known = random.Random(options.seed), Counter[str](), set[tuple[str, ...]]()
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        while counts["inputs"] < options.count and time.monotonic() < end:
            target = random_.choice(every)
            path = Path(folder) / f"input{target.suffix}"
            content = damaged(random_.choice(target.seeds), random_)
            path.write_bytes(content)
            counts["inputs"] += 1
            is_read, escape = outcome(target, path, options.patience)
            counts["read"] += is_read
            if not escape:
                continue
            counts["escapes"] += 1
            lines = escape.strip().splitlines()
            # the same fault at the same place is printed once
            fault = (target.name, lines[-1].partition(":")[0], *[line for line in lines if "perfmodel/" in line][-1:])
            if fault not in known:
                known.add(fault)
                counts["kinds"] += 1
                options.save.mkdir(parents=True, exist_ok=True)
                name = re.sub(r"\W+", "_", target.name)
                saved = options.save / f"{name}_{counts['inputs']}{target.suffix}"
                saved.write_bytes(content)
                print(f"{target.name}, input {counts['inputs']}, saved to {saved}\n{escape}", flush=True)
    return counts


def main() -> int:
    """Return 1 if anything escapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time")
    parser.add_argument("--count", type=float, default=math.inf, help="stop after this number of inputs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
    parser.add_argument("--patience", type=float, default=20.0, help="time allowed for one input [s]")
    parser.add_argument("--only", default="", help="only those whose name matches this pattern")
    parser.add_argument("--save", type=Path, default=Path("fuzz_escapes"), help="folder for inputs that escape")
    options = parser.parse_args()
    folder = Path(os.environ["PERFMODEL_DATA"]) if os.environ.get("PERFMODEL_DATA") else None
    with commands_built_once(), tempfile.TemporaryDirectory() as made:
        wanted = [target for target in targets(folder, Path(made)) if re.search(options.only, target.name)]
        every = [undamaged(target, options.patience) for target in wanted]
        if not every:
            parser.error(f"no reader is named like {options.only!r}")
        if idle := [target.name for target in every if not target.seeds]:
            parser.error(f"no file is accepted by: {', '.join(idle)}")
        counts = fuzz(options, every)
    numbers = f"{counts['inputs']:,} inputs, {counts['read']:,} of them read"
    print(f"{numbers}; {counts['escapes']:,} escapes of {counts['kinds']:,} kinds; seed {options.seed}")
    return int(counts["escapes"] > 0)


if __name__ == "__main__":
    sys.exit(main())
