"""Time and memory for reading a trace, compared with parsing its JSON.

Traces of about ``--megabytes`` are repetitions of real ones with later times and new ids. Since machines are noisy,
each reading runs in its own process, alternating with `orjson.loads` of the same bytes. Memory is the peak of the
process above what it needs to start (Linux). Times are those of the processor: all ways use one core, and what else
runs on the machine does not count. ``--gigabytes 1`` adds a large trace; ijson, which parses piece by piece as
perfmodel does, parses it for comparison. Traces of about 1 MB and less are read as they are: linking events and naming
operators take some milliseconds however few these are, more than orjson takes for all of the text. They miss the
target, which is printed beside them, and do not fail the benchmark. What reading and decoding the text alone takes is
printed, too: it is less than orjson takes, since only the fields that are used are decoded.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

TRACES = (
    "hta_a100_2rank_nccl_resnet.json.gz",
    "kineto_resnet50_train_nw4_2021.pt.trace.json.gz",
    "tracelens_mi300_resnet_act_checkpoint_ddp.json.gz",
)
#: short traces, which are read as they are
SHORT = (
    "tracelens_torch_compile_triton_mi300.json.gz",
    "hta_alexnet_a100_big_gaps.json.gz",
    "tracelens_sglang_qwen3-8b_decode_cudagraph_mi300.json.gz",
    "tracelens_h100_bert-small.json.gz",
)
#: the targets: of the time and memory of `orjson.loads`, and of each byte of a large trace (1 GB: 15 s, 0.6 GB)
ALLOWED_TIME, ALLOWED_MEMORY, ALLOWED_LARGE_S, ALLOWED_LARGE = 1.0, 2.0, 15e-9, 0.6
REPEATS = 5
IDS = ("External id", "external id", "correlation", "Ev Idx", "Python id", "Python parent id")

CHILD = """
import sys, time
from pathlib import Path
how, path = sys.argv[1:]
if how == "orjson":
    import orjson
    act = lambda: orjson.loads(Path(path).read_bytes())
elif how == "ijson":
    import ijson
    act = lambda: sum(1 for _ in ijson.get_backend("yajl2_c").items(open(path, "rb"), "traceEvents.item"))
elif how == "text":
    from perfmodel.formats.detect import STREAM_ABOVE_BYTES
    from perfmodel.formats.torch_trace.file import Source
    act = lambda: Source(path, STREAM_ABOVE_BYTES).whole()
else:
    import perfmodel.formats.torch_trace
    from perfmodel.formats.detect import formats, read_profile
    formats()  # imports their modules
    act = lambda: read_profile(path)
def peak():
    # the peak that getrusage gives is inherited from the parent process
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
idle = peak()
begin = time.process_time()
kept = act()
print(time.process_time() - begin, 1024 * (peak() - idle))
"""


def repeated(source: Path, target: Path, size: float) -> None:
    """Write a trace of at least ``size`` bytes that repeats the events of another one, each time later."""
    with gzip.open(source) as packed:
        document: dict[str, Any] = orjson.loads(packed.read())
    events = document.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X"]
    span = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed) + 1.0
    apart = 1 + max(value for event in timed for key in IDS if isinstance(value := event.get("args", {}).get(key), int))
    with target.open("wb") as stream:
        stream.write(orjson.dumps(document)[:-1] + b', "traceEvents": [\n')
        number = 0
        while stream.tell() < size:
            for event in events:
                line = orjson.dumps(_moved(event, number, span, apart), option=orjson.OPT_INDENT_2)
                stream.write(line if event is events[0] and number == 0 else b",\n" + line)
            number += 1
        stream.write(b"\n]}")


def _moved(event: dict[str, Any], number: int, span: float, apart: int) -> dict[str, Any]:
    """Return an event of the repetition with a number."""
    arguments = event.get("args", {})
    ids = {key: arguments[key] + number * apart for key in IDS if isinstance(arguments.get(key), int)}
    moved = {**event, "args": {**arguments, **ids}}
    return {**moved, "ts": event["ts"] + number * span} if "ts" in event else moved


def measure(path: Path, ways: tuple[str, ...], repeats: int) -> dict[str, tuple[float, float]]:
    """Return the median processor time [s] and the peak memory [B] of each way of reading."""
    samples: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    # threads of numpy's BLAS, which reading does not use, wait busily for a tenth of a second after their start
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    for _ in range(repeats):
        for way in ways:
            command = [sys.executable, "-c", CHILD, way, str(path)]
            ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            time_s, memory = ran.stdout.split()
            samples[way].append((float(time_s), float(memory)))
    return {
        way: (statistics.median(time_s for time_s, _ in pairs), max(memory for _, memory in pairs))
        for way, pairs in samples.items()
    }


def compare(path: Path, name: str) -> bool:
    """Print the ratios for one trace; return whether time and memory are within the limits."""
    size = path.stat().st_size
    measured = measure(path, ("orjson", "perfmodel"), REPEATS)
    base = measured["orjson"][0]
    print(f"{name} repeated to {size / 1e6:.0f} MB")
    for way, (time_s, memory) in measured.items():
        ratios = f"ratio {time_s / base:4.2f}, memory {memory / size:4.1f} x the file"
        print(f"  {way:<9} {1e3 * time_s:7.0f} ms  {ratios}")
    time_s, memory = measured["perfmodel"]
    return time_s <= ALLOWED_TIME * base and memory <= ALLOWED_MEMORY * size


def short(path: Path, name: str) -> None:
    """Print the times for a trace that is read in milliseconds."""
    measured = {way: time_s for way, (time_s, _) in measure(path, ("orjson", "text", "perfmodel"), REPEATS).items()}
    base, own = measured["orjson"], measured["perfmodel"]
    print(
        f"{name}, {path.stat().st_size / 1e6:.2f} MB: {1e3 * own:.1f} ms, {1e3 * measured['text']:.1f} of them for "
        f"the text, orjson {1e3 * base:.1f} ms, ratio {own / base:.2f} (aim {ALLOWED_TIME})"
    )


def large(path: Path) -> bool:
    """Print time and memory for a large trace; return whether both are within the limits."""
    size = path.stat().st_size
    measured = measure(path, ("perfmodel", "ijson"), 1)
    for way, (time_s, memory) in measured.items():
        name = "ijson, events only" if way == "ijson" else way
        print(f"  {name:<19} {time_s:6.1f} s  {size / 1e6 / time_s:5.0f} MB/s  memory {memory / 1e9:.2f} GB")
    time_s, memory = measured["perfmodel"]
    return time_s <= ALLOWED_LARGE_S * size and memory <= ALLOWED_LARGE * size


def main() -> int:
    """Return 1 when a ratio is above the allowed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=50.0, help="size of the generated traces")
    parser.add_argument("--gigabytes", type=float, default=0.0, help="size of another trace")
    options = parser.parse_args()
    folder = Path(os.environ.get("PERFMODEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "traces"
    if not folder.is_dir():
        print(f"no traces: set PERFMODEL_DATA (looked in {folder})")
        return 0
    print(f"allowed: {ALLOWED_TIME} x the time of orjson, memory {ALLOWED_MEMORY} x the file; 1 GB in 15 s and 0.6 GB")
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trace.json"
        for name in SHORT:
            path.write_bytes(gzip.decompress((folder / name).read_bytes()))
            short(path, name)
        for name in TRACES:
            repeated(folder / name, path, 1e6 * options.megabytes)
            good &= compare(path, name)
        if options.gigabytes:
            repeated(folder / TRACES[0], path, 1e9 * options.gigabytes)
            print(f"{TRACES[0]} repeated to {path.stat().st_size / 1e9:.2f} GB")
            good &= large(path)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
