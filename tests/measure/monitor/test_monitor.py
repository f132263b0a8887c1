"""The monitor: its record, its live values for Prometheus, a watched job with a planted leak and one without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError, UnavailableError, UsageError
from perfmodel.measure.monitor import session as session_module
from perfmodel.measure.monitor.expectation import Expectation
from perfmodel.measure.monitor.findings import Finding, slow_steps
from perfmodel.measure.monitor.gpu import GpuSource, gpu_source
from perfmodel.measure.monitor.record import Recorder, read_series
from perfmodel.measure.monitor.series import Series
from perfmodel.measure.monitor.session import Session
from perfmodel.measure.monitor.sources import ProcessSource, Readings, Sample

pytest.importorskip("psutil")

LEAK = "import time; x = []\nfor _ in range({steps}): x.append(bytearray({size})); time.sleep(0.02)\n"


def test_a_record_reads_back_and_is_rotated(tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, rotate_bytes=2000) as record:
        for second in range(200):
            record.write(float(second), [Sample("host_cpu_ratio", "host", second / 60)])
        record.write(60.0, [], [Finding("swapping", "host", "it swaps.", "Stop.")])
    assert len(list(tmp_path.iterdir())) == 4, "the newest and three older ones"
    assert path.stat().st_size <= 2200
    with path.open("a") as file:
        file.write('{"time": 1.0, "metr')  # a killed process
    times, values = read_series(path).get("host_cpu_ratio", "host")
    assert (values == times / 60).all()
    assert (np.diff(times) == 1).all(), "the files that it was rotated into are read, oldest first"
    assert times.size > read_series(f"{path}.1").get("host_cpu_ratio", "host")[0].size
    with Recorder(path) as record:
        record.write(99.0, [Sample("host_cpu_ratio", "host", 0.5)])
    assert read_series(path).get("host_cpu_ratio", "host")[0][-1] == 99.0, "continued after the last whole line"
    path.write_text(path.read_text() + "damage\n" + path.read_text())
    with pytest.raises(InputFileError, match="no reading of a monitor"):
        read_series(path)


@pytest.mark.parametrize("time_s", ["-1", "1e12", "NaN"])
def test_a_time_outside_the_calendar_is_named_with_its_line(tmp_path, time_s):
    path = tmp_path / "run.jsonl"
    line = '{"time": %s, "metric": "host_cpu_ratio", "of": "host", "value": 0.5}\n'
    path.write_text(line % 1 + line % time_s + line % 1)
    with pytest.raises(InputFileError, match=r"run\.jsonl:2: is no reading of a monitor"):
        read_series(path)


@pytest.mark.parametrize("value", ["-Infinity", "NaN", "1e300", "1" + "0" * 400, '"x"'])
def test_a_reading_that_is_no_number_is_named_with_its_line(tmp_path, value):
    path = tmp_path / "run.jsonl"
    line = '{"time": 1, "metric": "host_cpu_ratio", "of": "host", "value": %s}\n'
    path.write_text(line % 0.5 + line % value + line % 0.5)
    with pytest.raises(InputFileError, match=r"run\.jsonl:2: is no reading of a monitor"):
        read_series(path)


def test_wrong_records_are_one_message(perfmodel, tmp_path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("hello\nworld\n")
    ran = perfmodel("monitor", "--read", path)
    assert (ran.code, ran.out) == (3, "")
    path.write_text("")
    assert perfmodel("monitor", "--read", path).code == 3
    for words in (("--interval", 0), ("--pid", 2**22 + 1), ("--pid", 1, "--", "true"), ("--prometheus", "nowhere")):
        assert perfmodel("monitor", "--duration", 0.1, *words).code == 2
    assert perfmodel("monitor", "--", "no-such-command-at-all").code == 2


def trained(path, expected):
    """Watch ten steps and return the monitor, and what the last step logged."""
    with pm.monitor(interval_s=0.05, record=path, expected=expected) as watched:
        for _ in range(10):
            time.sleep(0.01)
            values = watched.step(tokens=1000, flop=1e9, peak_flop_per_s=1e12)
    return watched, values


def test_this_process_is_watched_from_python(tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    expected = SimpleNamespace(high_s=1e-6)
    with pytest.warns(UserWarning, match="slow end"):
        watched, values = trained(path, expected)
    assert values["training_tokens_per_second"] == pytest.approx(1000 / values["training_step_seconds"])
    assert values["training_mfu_ratio"] == pytest.approx(1e-3 / values["training_step_seconds"])
    assert "training_mfu_ratio" in watched._repr_html_()
    assert "Training: time of a step" in pm.html_report(watched)
    recorded = read_series(path)
    metrics = {metric for metric, _ in recorded.names()}
    assert {"host_memory_used_bytes", "process_memory_resident_bytes", "training_mfu_ratio"} <= metrics
    with pytest.raises(UsageError):
        pm.monitor(interval_s=0)


def test_the_monitor_itself_is_not_watched(perfmodel, tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    assert perfmodel("monitor", "--interval", 0.05, "--duration", 0.2, "--record", path).code == 0
    owners = {of for _, of in read_series(path).names()}
    assert "host" in owners
    assert not any(of.startswith("process") for of in owners)


@pytest.mark.parametrize(("words", "code"), [(("--duration", 60), 130), (("--pid", os.getpid()), 130), ((), 0)])
def test_ctrl_c_is_an_interruption_where_something_else_would_end_the_watch(perfmodel, monkeypatch, words, code):
    taken = Session.take

    def interrupted(session):
        taken(session)
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "take", interrupted)
    ran = perfmodel("monitor", "--format", "json", *words)
    assert ran.code == code
    assert json.loads(ran.out)["rows"], "the summary so far"


@pytest.mark.waiting
@pytest.mark.slow
@pytest.mark.parametrize(("size", "leaks"), [(300_000, True), (0, False)])
def test_a_job_is_run_and_its_leak_is_found(perfmodel, tmp_path, size, leaks) -> None:
    path = tmp_path / "run.jsonl"
    script = LEAK.format(steps=130, size=size) + "raise SystemExit(3)"
    ran = perfmodel(
        "monitor", "--interval", 0.05, "--record", path, "--format", "json", "--", sys.executable, "-c", script
    )
    assert ran.code == 3, "that of the command"
    findings = json.loads(ran.out)["context"]["findings"]
    assert [one["kind"] for one in findings if one["of"].startswith("process")] == ["memory leak"] * leaks
    again = perfmodel("monitor", "--read", path, "--format", "json").json["rows"]
    assert {"time", "metric", "value", "finding"} <= set(again[0])


def test_prometheus_reads_the_latest_values() -> None:
    pytest.importorskip("prometheus_client")
    from perfmodel.measure.monitor.prometheus import Exporter

    exporter = Exporter("127.0.0.1:0")
    try:
        ended = Sample("gpu_process_memory_bytes", "gpu 0 process 7", 1.0)
        exporter.show([Sample("gpu_power_watts", "gpu 0", 312.0), ended])
        exporter.show([Sample("gpu_power_watts", "gpu 0", 313.0), Sample("gpu_uncorrected_memory_errors", "gpu 0", 2)])
        text = urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics").read().decode()
        assert 'perfmodel_gpu_power_watts{of="gpu 0"} 313.0' in text
        assert "# TYPE perfmodel_gpu_power_watts gauge" in text
        assert "# TYPE perfmodel_gpu_uncorrected_memory_errors_total counter" in text
        assert 'perfmodel_gpu_uncorrected_memory_errors_total{of="gpu 0"} 2.0' in text
        assert "process 7" not in text, "what has ended is no longer served"
        with pytest.raises(UsageError, match="cannot serve"):
            Exporter(f"127.0.0.1:{exporter.port}")
    finally:
        exporter.close()


def test_a_loop_is_judged_by_what_the_model_expects() -> None:
    step = SimpleNamespace(
        time_s=0.5, high_s=0.6, tokens=1000, flop=1e12, peak_flop_per_s=1e12, cluster=SimpleNamespace(gpus=8)
    )
    values = Expectation.of(step).judged(1.0, None, None, None)
    assert values["training_tokens_per_second"] == 1000
    assert values["training_expected_tokens_per_second"] == 2000
    assert values["training_mfu_ratio"] == 1 / 8, "of the peak of all GPUs"
    assert values["training_speed_ratio"] == 0.5
    assert Expectation.of(None).judged(1.0, None, None, None) == {"training_step_seconds": 1.0}
    made = Series()
    for number, time_s in enumerate([9.0] * 5 + [0.5] * 20 + [0.7] * 6):
        made.add(float(number), [Sample("training_step_seconds", "training", time_s)])
        made.add(float(number), [Sample("training_expected_high_seconds", "training", 0.6)])
        slow = bool(list(slow_steps(made)))
        assert slow == (number == 30), "the first five are warm-up; six of the last ten are slow at the end"


def test_a_loop_adds_steps_while_a_thread_reads_and_another_looks() -> None:
    session = Session(Readings([]))
    adding = threading.Thread(
        target=lambda: [session.add([Sample("training_step_seconds", "training", 1.0)]) for _ in range(3000)]
    )
    adding.start()
    while adding.is_alive():
        assert session.found() == []
        session.take()
    assert session.series.get("training_step_seconds", "training")[1].size == 3000


class RefusedError(Exception):
    """What NVML raises for what a driver refuses."""


def nvml() -> SimpleNamespace:
    """Return an NVML with one GPU, which refuses its temperature."""
    counters = ("NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_PCIE_UTIL_TX_BYTES", "NVML_PCIE_UTIL_RX_BYTES")
    return SimpleNamespace(
        **dict.fromkeys(counters, 0),
        NVMLError=RefusedError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetPowerUsage=lambda handle: 650_000,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=97),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x8,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=10, total=80),
        nvmlDeviceGetPcieThroughput=lambda handle, counter: 5,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=7, usedGpuMemory=10)],
        NVML_SUCCESS=0,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=138,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX=139,
        nvmlDeviceGetFieldValues=NvLinks(),
    )


class NvLinks:
    """Counters of all links in KiB: 1000 more are sent in each call, and nothing is known of what is received."""

    sent_kib = 5000

    def __call__(self, handle, fields):
        ((field, links),) = fields
        assert links == 0xFFFFFFFF, "all links"
        self.sent_kib += 1000 * (field == 138)
        value = SimpleNamespace(ullVal=self.sent_kib)
        return [SimpleNamespace(nvmlReturn=0 if field == 138 else 3, value=value)]


def test_a_gpu_has_readings_with_units(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    source = gpu_source()
    assert isinstance(source, GpuSource)
    values = {sample.metric: sample.value for sample in source.read(1.0)}
    assert values["gpu_power_watts"] == 650
    assert values["gpu_sm_clock_hertz"] == 1.98e9
    assert values["gpu_utilization_ratio"] == pytest.approx(0.97)
    assert values["gpu_throttled_hardware_slowdown"] == 1.0
    assert values["gpu_throttled_software_power_cap"] == 0.0
    assert values["gpu_pcie_sent_bytes_per_second"] == 5000
    assert "gpu_temperature_celsius" not in values, "refused"
    assert "gpu_nvlink_sent_bytes_per_second" not in values, "a rate has two readings"
    samples = list(source.read(0.5))
    values = {sample.metric: sample.value for sample in samples}
    assert values["gpu_nvlink_sent_bytes_per_second"] == 1000 * 1024 / 0.5
    assert "gpu_nvlink_received_bytes_per_second" not in values, "refused"
    assert ("gpu_process_memory_bytes", "gpu 0 process 7", 10.0) in samples


def test_rates_begin_with_the_second_reading() -> None:
    class Counter:
        def read(self, elapsed_s):
            yield Sample("elapsed", "x", elapsed_s)

    clock = iter([10.0, 12.5])
    readings = Readings([Counter()], lambda: next(clock))
    assert [sample.value for _ in range(2) for sample in readings.read()[1]] == [0.0, 2.5]


def test_old_samples_are_dropped() -> None:
    from perfmodel.measure.monitor import series as module

    series = Series()
    for second in range(30):
        series.add(second, [Sample("x", "y", second)])
    assert module.MOST_SAMPLES > 10_000
    assert series.get("x", "y")[1].size == 30


def test_a_process_that_has_ended_has_no_readings() -> None:
    """Until its parent asks for its exit code it has a number, and no memory: 0 B is no reading."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    source = ProcessSource(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert not list(source.read(0.0))
    finally:
        child.wait()


def test_no_process_has_a_negative_number(perfmodel):
    assert perfmodel("monitor", "--pid", "-1").code == 2


def test_what_is_no_record_names_the_option_that_writes_one(perfmodel, tmp_path):
    (tmp_path / "r.jsonl").write_text('{"prompt": 1}\n')
    ran = perfmodel("monitor", "--read", tmp_path / "r.jsonl")
    assert ran.code == 3
    assert "perfmodel monitor --record FILE.jsonl" in ran.err


def test_no_process_is_left_behind_an_error(perfmodel, monkeypatch):
    started = []

    def fail(pid):
        started.append(pid)
        raise UnavailableError("monitoring needs psutil, which is not installed.")

    monkeypatch.setattr(session_module, "sources_of", fail)
    ran = perfmodel("monitor", "--", sys.executable, "-c", "import time; time.sleep(60)")
    assert (ran.code, ran.err) == (4, "perfmodel: monitoring needs psutil, which is not installed.\n")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
