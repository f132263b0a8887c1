"""What `scripts/fuzz.py` damages: every reader and command that takes a file, with files that it accepts."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perfmodel.cli import app
from perfmodel.errors import InputFileError

ROOT = Path(__file__).resolve().parent.parent
#: larger real files make each input slow without adding kinds of content
LARGEST_SEED_BYTES = 60_000


@dataclass(frozen=True)
class Target:
    """One reader: its name, how it reads a path, and files to damage with the suffix that it expects."""

    name: str
    read: Callable[[Path], object]
    suffix: str
    seeds: tuple[bytes, ...]


class CommandFaultError(Exception):
    """A command ended in a fault of perfmodel itself."""


def _trace(rank: int = 0) -> bytes:
    def event(category: str, name: str, start: float, dur: float = 5, **arguments: Any) -> dict[str, Any]:
        where = {"pid": 1, "tid": 1, "ts": start, "dur": dur}
        return {"ph": "X", "cat": category, "name": name, **where, "args": arguments}

    shapes = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float"] * 2, "Concrete Inputs": ["", ""]}
    message = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "Group size": 2,
        "dtype": "Float",
    }
    events = [
        event("user_annotation", "ProfilerStep#1", 0, dur=40),
        event("cpu_op", "aten::mm", 1, **{"External id": 5, **shapes}),
        event("cuda_runtime", "cudaLaunchKernel", 2, correlation=7),
        event("kernel", "sgemm", 9, correlation=7, stream=7, device=0),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, stream=7, device=0, bytes=64),
        event("kernel", "ncclDevKernel_AllReduce", 30, stream=8, device=0, **message),
        event("python_function", "train.py(3): main", 0),
        event("cuda_runtime", "cudaStreamSynchronize", 3, correlation=8),
    ]
    header = {"deviceProperties": [{"id": 0, "name": "GPU"}], "distributedInfo": {"rank": rank}}
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


def _rocpd() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        base = sqlite3.connect(path)
        base.executescript(
            """
            CREATE TABLE rocpd_string_00 (id, string);
            INSERT INTO rocpd_string_00 VALUES (1, 'HIP_RUNTIME_API'), (2, 'hipLaunchKernel');
            CREATE TABLE rocpd_event_00 (id, category_id, stack_id);
            INSERT INTO rocpd_event_00 VALUES (1, 1, 9), (2, 1, 9);
            CREATE TABLE rocpd_info_kernel_symbol_00 (id, kernel_name, display_name);
            INSERT INTO rocpd_info_kernel_symbol_00 VALUES (1, 'f.kd', 'f');
            CREATE TABLE rocpd_region_00 (start, end, tid, name_id, event_id);
            INSERT INTO rocpd_region_00 VALUES (500, 900, 1, 2, 1);
            CREATE TABLE rocpd_kernel_dispatch_00 (start, end, agent_id, kernel_id, queue_id, event_id);
            INSERT INTO rocpd_kernel_dispatch_00 VALUES (2000, 5000, 1, 1, 1, 2);
            """
        )
        base.commit()
        base.close()
        return path.read_bytes()


PROFILES = (
    b"name,time_ms,calls,%\na,1.5,3,60\nb,1,1,40\ntotal,2.5,4,100\n",
    b'{"rows": [{"name": "a", "time": "12 ms", "calls": 3}, {"name": "b", "time": "1 s", "calls": null}]}',
    b"Time (%),Total Time (ns),Instances,Name\n75.0,3000,3,f\n25.0,1000,1,[CUDA memcpy HtoD]\n",
    b'[{"Time (%)": 75.0, "Total Time (ns)": 3000, "Instances": 3, "Name": "f"}]',
    b"Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Device,Strm,Name\n1,5,1,1,,A (0),7,f\n9,2,2,,8.3,A (0),7,g\n",
    b'==1== NVPROF is profiling\n"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,ms,\n'
    b'"GPU activities",100,3.0,3,1000,900,1.1,"f"\n',
    b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    b'"KERNEL_DISPATCH","Agent 2",1,"f",7,1000,5000\n"KERNEL_DISPATCH","Agent 2",1,"g",8,6000,9000\n'
    b'"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    b'"HIP_RUNTIME_API","hipLaunchKernel",3,3,7,500,900\n',
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

    profiles: tuple[bytes, ...] = (*PROFILES, _trace(), _sqlite(), _rocpd(), gzip.compress(_trace(), mtime=0))
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
        *model_targets(data, folder),
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
    return [*_targets(lines), measured]


#: one published run each, in the columns of their tables
TRAINING_RUN = (
    b"id,table,model,hidden,layers,heads,kv_heads,head_dim,ffn,gated,norm,vocab,tied,rotary,hardware,num_gpus,"
    b"gpus_per_node,nic_gbps_per_gpu,tp,sp,pp,vp,dp,cp,ep,zero,recompute,mbs,gbs,seq,dtype,attention,framework,"
    b"cp_balanced,tp_overlap,grad_bytes,moe,measured_quantity,measured_value,flop_convention,step_time_s,memory_gib\n"
    b"r-1,r,gpt,2304,24,24,24,96,9216,0,ln,51200,1,0,a100-sxm4-80gb,32,8,200,1,0,1,1,32,1,1,0,full,16,512,2048,fp16,"
    b"unfused,megatron-2021,1,0,2,,tflops_per_gpu_incl_recompute,137,,3.5,40\n"
)
SERVING_RUN = (
    b"source,version,model,hardware,tp,pp,ep,wdtype,kvdtype,isl,osl,value,unit,engine\n"
    b"t,0.17,llama-3.1-8b,h100-sxm5-80gb,1,1,1,fp8,fp8,128,2048,21109.38,output tok/s of the whole system,"
    b"TensorRT-LLM 0.17\n"
)
SHORT_REQUESTS = b"arrival_s,prompt,output\n0,10,20\n0.5,6,1\n1.25e1,20,30\n"
READINGS = b"".join(
    b'{"time": %d, "metric": "host_memory_used_bytes", "of": "host", "value": %d, "finding": ""}\n' % (k, 10**9 + k)
    for k in range(12)
)


def model_targets(data: Path | None, folder: Path) -> list[Target]:
    """Return the commands about models: configs, engines, machines, published runs, monitor's records and pages."""
    (folder / "config.json").write_bytes(MODEL)
    (folder / "rank0.json").write_bytes(_rank(0))
    (folder / "gpu_rank0.json").write_bytes(_trace(0))
    config, page = str(folder / "config.json"), str(folder / "page.html")
    trained = ("--on", "h100", "--gpus", "4", "--seq", "64", "--batch", "8")
    served = ("--on", "h100", "--isl", "16", "--osl", "8", "--concurrency", "2")
    sizes = {"train": trained, "serve": served}
    results = [RECORD, SAMPLED, *(_result(name, config, *words) for name, words in sizes.items())]
    machine = ((ROOT / "hardware_specs" / "l4.toml").read_bytes(),)
    published = (data / "e2e_training", data / "e2e_serving") if data else ()
    tables = [path.read_bytes() for place in published for path in sorted(place.glob("*.csv"))]
    lines: list[tuple[tuple[str, ...], str, tuple[bytes, ...]]] = [
        *(((name, "INPUT", *words), ".json", (MODEL,)) for name, words in sizes.items()),
        *(((name, config, *words, "--on", "INPUT"), ".toml", machine) for name, words in sizes.items()),
        *(
            ((name, config, *sizes[name], option, "INPUT"), ".toml", _engines(ROOT / "engine_specs" / room))
            for name, option, room in (("train", "--framework", "training"), ("serve", "--engine", "serving"))
        ),
        (("serve", config, "--on", "h100", "--requests", "INPUT"), ".csv", (SHORT_REQUESTS,)),
        (("validate", "INPUT"), ".csv", (TRAINING_RUN, SERVING_RUN, *(t for t in tables if len(t) < 3000))),
        (("monitor", "--read", "INPUT"), ".jsonl", (READINGS,)),
        (("report", "INPUT", "-o", page), ".json", tuple(results)),
        (("report", str(folder / "record.json"), "INPUT", "-o", page), ".json", (SAMPLED,)),
        *(
            ((command, str(folder / "rank0.json"), "INPUT"), ".json", (_rank(1), _trace(1)))
            for command in ("diagnose", "roi")
        ),
        (
            ("project", str(folder / "gpu_rank0.json"), "INPUT", "--from", "a100", "--to", "h100"),
            ".json",
            (_trace(1),),
        ),
    ]
    return _targets(lines)


def _rank(rank: int) -> bytes:
    """Return the exchanges, the steps and some operators of one recorded rank."""
    job = ROOT / "tests" / "diagnosis" / "ranks" / "traces" / "ddp_2_even"
    trace = json.loads(gzip.decompress((job / f"rank{rank}.json.gz").read_bytes()))
    operators = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"][:60]
    kept = [*operators, *(event for event in trace["traceEvents"] if event.get("cat") == "user_annotation")]
    return json.dumps(trace | {"traceEvents": kept}).encode()


def _engines(folder: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(folder.glob("*.toml")))


def _result(*words: str) -> bytes:
    """Return what a command prints as JSON."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app.run([*words, "--format", "json"])
    return printed.getvalue().encode()


def _targets(lines: list[tuple[tuple[str, ...], str, tuple[bytes, ...]]]) -> list[Target]:
    """Return a target for each command line, named by its words that are no paths."""
    return [
        Target(" ".join(["command", *(word for word in words if "/" not in word)]), command(*words), suffix, seeds)
        for words, suffix, seeds in lines
    ]


def _measured(path: Path) -> object:
    """Judge what somebody measured, with the damaged text as its value."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\0", "")
    return command("analyze", "gemm", "m=64", "n=64", "k=64", "--on", "l4", f"--measured={text}")(path)
