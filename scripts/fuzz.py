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
import gzip
import io
import json
import math
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from perfmodel.cli import app
from perfmodel.errors import InputFileError, PerfModelError

ROOT = Path(__file__).resolve().parent.parent
#: larger real files make each input slow without adding kinds of content
LARGEST_SEED_BYTES = 60_000
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


@dataclass(frozen=True)
class Target:
    """One reader: its name, how it reads a path, and files to damage with the suffix that it expects."""

    name: str
    read: Callable[[Path], object]
    suffix: str
    seeds: tuple[bytes, ...]


class CommandFaultError(Exception):
    """A command ended in a fault of perfmodel itself."""


class TooSlow(BaseException):
    """An input that takes longer than the patience; no reader catches it."""


def _trace() -> bytes:
    def event(category: str, name: str, start: float, **arguments: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": 5, "args": arguments}

    shapes = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float"] * 2, "Concrete Inputs": ["", ""]}
    message = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "Group size": 2,
        "dtype": "Float",
    }
    events = [
        event("user_annotation", "ProfilerStep#1", 0),
        event("cpu_op", "aten::mm", 1, **{"External id": 5, **shapes}),
        event("cuda_runtime", "cudaLaunchKernel", 2, correlation=7),
        event("kernel", "sgemm", 9, correlation=7, stream=7, device=0),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, stream=7, device=0, bytes=64),
        event("kernel", "ncclDevKernel_AllReduce", 30, stream=8, device=0, **message),
        event("python_function", "train.py(3): main", 0),
        event("cuda_runtime", "cudaStreamSynchronize", 3, correlation=8),
    ]
    header = {"deviceProperties": [{"id": 0, "name": "GPU"}], "distributedInfo": {"rank": 0}}
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": events}).encode()


def _sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        base = sqlite3.connect(path)
        base.executescript(
            """
            CREATE TABLE StringIds (id, value);
            INSERT INTO StringIds VALUES (1, 'kernel'), (2, 'cudaLaunchKernel');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
                (start, end, deviceId, streamId, correlationId, globalPid, shortName);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 5000, 0, 7, 10, 117440512, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (500, 900, 117440517, 10, 2);
            CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid);
            INSERT INTO NVTX_EVENTS VALUES (400, 950, 59, 'aten::mm, op_id = 1', NULL, 117440517);
            """
        )
        base.commit()
        base.close()
        return path.read_bytes()


PROFILES = (
    b"name,time_ms,calls,%\na,1.5,3,60\nb,1,1,40\ntotal,2.5,4,100\n",
    b'{"rows": [{"name": "a", "time": "12 ms", "calls": 3}, {"name": "b", "time": "1 s", "calls": null}]}',
    b"Time (%),Total Time (ns),Instances,Name\n75.0,3000,3,f\n25.0,1000,1,[CUDA memcpy HtoD]\n",
    b"Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Device,Strm,Name\n1,5,1,1,,A (0),7,f\n9,2,2,,8.3,A (0),7,g\n",
    b'==1== NVPROF is profiling\n"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,ms,\n'
    b'"GPU activities",100,3.0,3,1000,900,1.1,"f"\n',
    b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","f","gpu__time_duration.sum","us","1,234.5"\n'
    b'"0","f","dram__bytes.sum","Kbyte","10"\n',
    b"------  ------  ------  ------\nName    Self CPU  Self CUDA  # of Calls\n------  ------  ------  ------\n"
    b"aten::mm  10.0us  50.0us  2\n------  ------  ------  ------\nSelf CPU time total: 10.0us\n",
    b'[{"key": "aten::mm", "count": 2, "self_cpu_time_total": 10.0, "self_device_time_total": 50.0, "flops": 1e9}]',
)


MODEL = (
    b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
    b' "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 99, "max_position_embeddings": 64}'
)


def targets(data: Path | None, folder: Path) -> list[Target]:
    """Return every reader and command with its files, given real ones and a folder for temporary ones."""
    from perfmodel.formats import read_profile
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.lint import lint_file
    from perfmodel.hardware_catalog.read import read_hardware
    from perfmodel.investment.plan import read_plan
    from perfmodel.investment.scenario import read_scenario
    from perfmodel.operators.parse import read_operators
    from perfmodel.records.measurements import read_measurements
    from perfmodel.records.runs import read_bench_run
    from perfmodel.serving.arrivals import read_requests
    from perfmodel.serving.case import read_case
    from perfmodel.workloads.config import read_model_config

    def files(folder: Path | None, pattern: str) -> tuple[bytes, ...]:
        found = sorted(folder.glob(pattern)) if folder else []
        return tuple(path.read_bytes() for path in found if path.stat().st_size <= LARGEST_SEED_BYTES)

    profiles: tuple[bytes, ...] = (*PROFILES, _trace(), _sqlite(), gzip.compress(_trace(), mtime=0))
    real = [data and data / name for name in ("traces", "nsys", "ncu", "torch_profiler", "profile_tables")]
    profiles = (*profiles, *(content for folder in real for content in files(folder, "*")))
    table = b"hardware,op,m,n,k,dtype,time_s\na100-sxm4-40gb,gemm,64,64,64,fp16,9.5e-6\n"
    examples, specs = ROOT / "examples", ROOT / "hardware_specs"
    grouped = [Target(f"profile by {by}", partial(read_profile, by=by), ".bin", profiles)
               for by in ("shape", "op", "kernel")]  # fmt: skip
    return [
        *grouped,
        Target("profile as JSON", read_profile, ".json", profiles),
        Target("profile in pieces", lambda path: read_profile(path, stream_above_bytes=0), ".json", (_trace(),)),
        Target("bench run", read_bench_run, ".json", (RUN, RECORD, *files(data and data / "benchmark_json", "*.json"))),
        Target("measurements", read_measurements, ".csv", (table, *files(data and data / "measurements", "*.csv"))),
        Target("plan", read_plan, ".toml", files(examples, "plan_*.toml")),
        Target("scenario", read_scenario, ".toml", files(examples, "*scenario*.toml") + files(examples, "*_path.toml")),
        Target("requests", read_requests, ".csv", (REQUESTS,)),
        Target("requests a line", read_requests, ".ndjson", (REQUEST_LINES,)),
        Target("deployment", partial(read_case, find=hardware), ".toml", files(examples, "deployment_*.toml")),
        Target("operators", read_operators, ".toml", files(examples, "transformer_block.toml")),
        Target("model config", read_model_config, ".json", (MODEL, *files(data and data / "hf_configs", "*.json"))),
        Target("hardware spec", read_hardware, ".toml", files(specs, "*.toml")),
        Target("hardware lint", lint_file, ".toml", files(specs, "*.toml")),
        *command_targets(profiles, folder),
    ]


REQUESTS = b"arrival_s,prompt,output,user\n0,100,20,a\n0.5,64,1,b\n1.25e1,2000,300,c\n"
REQUEST_LINES = b'{"timestamp_ms": 0, "input_length": 10, "output_length": 20}\n'
RUN = b'{"results": [{"command": "x", "median": 1.0, "times": [1.0, 1.1, 1.0]}]}'
_CALL = b'"op": "gemm", "hardware": "l4", "dtype": "fp16", "params": {"m": 64, "n": 64, "k": 64}, "kernel": "torch.mm"'
RECORD = (
    b'{"schema_version": 2, "command": "bench", "context": {"hardware": ["l4"], "device": {"kind": "cuda"}}, "rows": [{'
    + _CALL
    + b', "status": "ok", "measured_time_s": 1e-5, "time_s": {"median": 1e-5, "stdev": 1e-7, "samples": 9}, '
    b'"cache": "cold", "timing": "kernel", "arithmetic_intensity_flop_per_byte": 21.3, "achieved_flop_per_s": 5e10}]}'
)


SAMPLED = RECORD.replace(
    b'"cache"', b'"samples_s": [1e-5, 1.01e-5, 1.02e-5, 9.9e-6, 1e-5, 1.01e-5, 1e-5, 1.03e-5, 1e-5, 1e-5], "cache"'
).replace(b'"device"', b'"machine": {"cpu_count": 2, "load_average": 3.0}, "device"')
MOVE = b"""
[[steps]]
name = "another machine"
kind = "hardware"
hardware = "h100"
"""


def command(*arguments: str) -> Callable[[Path], object]:
    """Return what runs a command line in this process, with a path for the word INPUT."""

    def read(path: Path) -> None:
        words = [str(path) if word == "INPUT" else word for word in arguments]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = app.run(["--debug", *words])
        if code == app.EXIT_INTERNAL:
            raise CommandFaultError(said.getvalue())
        if code > 1:
            raise InputFileError(said.getvalue().strip().splitlines()[-1])

    return read


def command_targets(profiles: tuple[bytes, ...], folder: Path) -> list[Target]:
    """Return the commands that read files; undamaged ones that they need beside the damaged one lie in a folder."""
    profile, scenario, plan = (
        ROOT / "examples" / name for name in ("profile_gpt2.csv", "gpt2_scenario.toml", "plan_gpt2.toml")
    )
    (folder / "run.json").write_bytes(RUN)
    (folder / "record.json").write_bytes(SAMPLED)
    (folder / "trace.json").write_bytes(_trace())
    (folder / "move.toml").write_bytes(MOVE)
    traces = (_trace(), *(seed for seed in profiles if b"traceEvents" in seed[:4000]))
    on = ("--on", "l4")
    table = b"hardware,op,m,n,k,dtype,time_s\nl4,gemm,64,64,64,fp16,9.5e-6\n"
    lines = [
        (("diagnose", "INPUT", *on, "--assume"), ".json", profiles),
        (("diagnose", "INPUT", *on, "--assume", "--format", "csv"), ".json", profiles),
        (("diagnose", "INPUT", "--annotate", str(folder / "noted.json.gz")), ".json", traces),
        (("diagnose", str(folder / "trace.json"), "--against", "INPUT"), ".json", traces),
        (("project", "INPUT", "--from", "l4", "--to", "h100", "--assume"), ".json", profiles),
        (("roi", "INPUT", *on, "--assume", "--to", "mi300x"), ".json", profiles),
        (("whatif", "INPUT", str(folder / "move.toml"), *on, "--assume"), ".json", profiles),
        (("whatif", str(profile), "INPUT", *on), ".toml", (MOVE,)),
        (("roi", "INPUT", "--plan", str(plan)), ".csv", (profile.read_bytes(), *PROFILES)),
        (("roi", str(profile), "--plan", "INPUT"), ".toml", (plan.read_bytes(),)),
        (("whatif", str(profile), "INPUT"), ".toml", (scenario.read_bytes(),)),
        (("compare", str(folder / "run.json"), "INPUT"), ".json", (RUN,)),
        (("compare", str(folder / "record.json"), "INPUT", "--fail-on", "5%"), ".json", (SAMPLED,)),
        (("show", "INPUT"), ".json", (RECORD,)),
        (("validate", "INPUT"), ".json", (RECORD,)),
        (("validate", "INPUT"), ".csv", (table,)),
        (("analyze", "INPUT", *on), ".toml", ((ROOT / "examples" / "transformer_block.toml").read_bytes(),)),
        (("hardware", "show", "INPUT"), ".toml", ((ROOT / "hardware_specs" / "l4.toml").read_bytes(),)),
        (
            ("analyze", "gemm", "m=64", "n=64", "k=64", "--on", "INPUT"),
            ".toml",
            ((ROOT / "hardware_specs" / "l4.toml").read_bytes(),),
        ),
    ]  # fmt: skip
    measured = Target("analyze --measured", _measured, ".txt", (b"14.5ms", b"38TFLOP/s", b"1.2TB/s", b"300 us"))
    return [
        *(
            Target(" ".join(["command", *(word for word in words if "/" not in word)]), command(*words), suffix, seeds)
            for words, suffix, seeds in lines
        ),
        measured,
    ]


def _measured(path: Path) -> object:
    """Judge what somebody measured, with the damaged text as its value."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\0", "")
    return command("analyze", "gemm", "m=64", "n=64", "k=64", "--on", "l4", f"--measured={text}")(path)


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
        document = json.loads(seed)
        for _ in range(random_.randrange(1, 4)):
            document = _changed(document, random_)
        return json.dumps(document).encode("utf-8", "replace")
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
        return False, "" if str(error) and "\n" not in str(error) else f"message of several lines: {error!s:.200}"
    except TooSlow:
        return False, f"over {patience:g} s\n{traceback.format_exc()}"
    except Exception:  # noqa: BLE001 -- this is what is looked for
        return False, traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True, ""


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
    # a command is built once: building takes longer than most inputs
    app.build_app = functools.cache(app.build_app)
    typer.main.get_command = functools.cache(typer.main.get_command)
    folder = Path(os.environ["PERFMODEL_DATA"]) if os.environ.get("PERFMODEL_DATA") else None
    with tempfile.TemporaryDirectory() as made:
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
