"""Work that is shared out: what is kept when it is ended, the bar of progress, and the same output in any case."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from perfmodel import workers
from perfmodel.cli._progress import counted
from perfmodel.cli._sharing import Sharing, end_code
from perfmodel.diagnosis.ranks import job as job_module
from perfmodel.serving import evaluations
from perfmodel.training import search as training_search
from perfmodel.training import search_job
from perfmodel.workers.lost import WorkersLostError

MODEL = "layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=4096"
SMALL = (MODEL, "--on", "h100", "--tp", "1/2", "--isl", "128", "--osl", "32", "--num-requests", "20", "-f", "json")
RANKS = sorted((Path(__file__).parents[1] / "diagnosis" / "ranks" / "traces" / "ddp_4_slow_rank").glob("*.gz"))
GONE = WorkersLostError("the scheduler no longer answers.", place="scheduler tcp://head:8786")


class Ended(Executor):
    """Does each task at once but one, which waits until something ends the work."""

    def __init__(self, unfinished: int, end: BaseException) -> None:
        self.tasks, self.unfinished, self.end = 0, unfinished, end

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.tasks == self.unfinished:
            future.set_exception(self.end)
        else:
            future.set_result(function(*arguments))
        self.tasks += 1
        return future


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted."),
        (GONE, 4, "scheduler tcp://head:8786: the scheduler no longer answers."),
    ],
)
def test_loads_of_few_deployments_are_kept_when_the_work_ends(
    perfmodel: Any, monkeypatch: pytest.MonkeyPatch, end: BaseException, code: int, message: str
) -> None:
    command = ("serve", *SMALL, "--concurrency", "1/2/4")
    whole = perfmodel(*command)
    monkeypatch.setattr(evaluations, "executor", lambda *_: contextlib.nullcontext(Ended(2, end)))
    ran = perfmodel(*command)
    assert (ran.code, ran.err) == (code, f"perfmodel: {message}\n")
    assert ran.json["rows"] == [row for place, row in enumerate(whole.json["rows"]) if place != 2]


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (GONE, 4)])
def test_work_that_ends_before_any_load_is_known_is_one_message(
    perfmodel: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, end: BaseException, code: int
) -> None:
    big = "layers=80 hidden=8192 heads=64 kv_heads=8 ffn=28672 vocab=128256"  # 141 GB: one H100 cannot hold it
    plot = tmp_path / "load.png"
    command = ("serve", big, "--on", "h100", "--tp", "1/4", "--concurrency", "4", "--plot", plot, "--timeline", plot)
    monkeypatch.setattr(evaluations, "executor", lambda *_: contextlib.nullcontext(Ended(1, end)))
    ran = perfmodel(*command)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("perfmodel: ")
    assert "fault in perfmodel" not in ran.err
    assert not plot.exists()


@pytest.mark.parametrize("command", ["train", "search train", "serve", "roi"])
def test_a_price_is_refused_before_any_work(perfmodel: Any, command: str) -> None:
    ran = perfmodel(*command.split(), MODEL, "--on", "h100", "--price-per-gpu-hour", "-1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "perfmodel: --price-per-gpu-hour: a price of -1 is not above 0. Write 2.5.\n"


def test_deployments_that_are_known_are_ranked_when_the_workers_are_lost(
    perfmodel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("search", "serve", *SMALL, "--batch", "1..4", "--weights", "bf16", "--kv", "bf16")
    command = (*command, "--slo", "ttft=1s,tpot=1s")
    monkeypatch.setattr(evaluations, "executor", lambda *_: contextlib.nullcontext(Ended(0, GONE)))
    ran = perfmodel(*command)
    assert ran.code == 4
    assert [row["plan"]["tp"] for row in ran.json["rows"]] == [2]
    assert any("Interrupted: 1 of 2 deployments" in note for note in ran.json["notes"])
    monkeypatch.setattr(evaluations, "executor", lambda *_: contextlib.nullcontext(Ended(0, KeyboardInterrupt())))
    assert perfmodel(*command).code == 130


def test_set_ups_that_were_tried_are_ranked_when_the_workers_are_lost(
    perfmodel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(job: search_job.Job, *_: Any) -> Iterator[search_job.Part]:
        yield job.part(job.tasks()[0])
        raise GONE

    command = ("search", "train", MODEL, "--on", "h100", "--gpus", 8, "--batch", "32/64/128", "-f", "json")
    monkeypatch.setattr(training_search, "run", lose)
    ran = perfmodel(*command)
    assert (ran.code, ran.err) == (4, "perfmodel: scheduler tcp://head:8786: the scheduler no longer answers.\n")
    assert ran.json["rows"][0]["rank"] == 1
    assert any(note.startswith("Interrupted: ") for note in ran.json["notes"])


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, BaseException], None]:
    """Return a function after which something ends shared work while one task is not done."""
    return lambda unfinished, end: monkeypatch.setattr(
        workers, "executor", lambda *_: contextlib.nullcontext(Ended(unfinished, end))
    )


def test_files_that_were_read_are_kept_when_the_workers_are_lost(ended: Any) -> None:
    ended(2, GONE)
    sharing = Sharing()
    assert sharing.mapped(len, ["a", "bc", "def"], keep=True) == {0: 1, 1: 2}
    with pytest.raises(WorkersLostError, match="no longer answers"):
        end_code(sharing.ended)
    ended(2, GONE)
    with pytest.raises(WorkersLostError):
        Sharing().mapped(len, ["a", "bc", "def"])
    ended(2, KeyboardInterrupt())
    assert Sharing().mapped(len, ["a"], keep=True) == {0: 1}
    assert end_code(Sharing().ended) == 0
    assert end_code(KeyboardInterrupt()) == 130


@pytest.mark.parametrize("end", [KeyboardInterrupt(), GONE])
def test_files_behind_one_that_is_not_done_are_kept_in_the_order_of_the_input(
    ended: Any, end: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(0, end)
    sharing = Sharing()
    assert list(sharing.mapped(len, ["a", "bc", "def"], keep=True).items()) == [(1, 2), (2, 3)]
    assert sharing.ended is end
    assert capsys.readouterr().err == "interrupted: 2 of 3 files were read; the others are left out.\n"
    ended(0, end)
    with pytest.raises(type(end)):
        Sharing().mapped(len, ["a"], keep=True)


TABLE = "hardware,op,dtype,rows,cols,time_s,timing\na100-sxm4-40gb,layer_norm,fp16,4096,4096,1e-4,kernel\n"


def test_validate_names_the_tables_that_were_judged_and_no_others(perfmodel: Any, ended: Any, tmp_path: Any) -> None:
    tables = [tmp_path / f"{name}.csv" for name in "abc"]
    for table in tables:
        table.write_text(TABLE)
    ended(0, KeyboardInterrupt())
    ran = perfmodel("validate", *tables, "-f", "json")
    assert ran.code == 130
    assert "2 of 3 files were read" in ran.err
    assert [path.rpartition("/")[2] for path in ran.json["context"]["tables"]] == ["b.csv", "c.csv"]


def test_diagnose_keeps_the_ranks_behind_one_that_was_not_read(perfmodel: Any, ended: Any) -> None:
    ended(0, KeyboardInterrupt())
    ran = perfmodel("diagnose", *RANKS, "-f", "json")
    assert ran.code == 130
    assert "3 of 4 files were read" in ran.err
    assert ran.json["context"]["missing_ranks"] == [0]


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_ranks_are_joined_keeps_them_unless_it_comes_again(
    perfmodel: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """To read hundreds of traces takes minutes, and to join them a second."""
    whole = perfmodel("diagnose", *RANKS, "-f", "json")
    join = job_module.join

    def joined(*arguments: Any) -> Any:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.15)
        return join(*arguments)

    monkeypatch.setattr(job_module, "join", joined)
    ran = perfmodel("diagnose", *RANKS, "-f", "json")
    assert ran.code == 130
    assert ("interrupted: all 4 files were read.\n" in ran.err) is (times == 1)
    assert (ran.json["rows"] == whole.json["rows"]) if times == 1 else not ran.out


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (GONE, 4)])
def test_a_projection_keeps_the_ranks_that_are_done(
    perfmodel: Any, monkeypatch: pytest.MonkeyPatch, cpu_spec: Path, end: BaseException, code: int
) -> None:
    command = ("project", *RANKS, "--from", cpu_spec, "--to", cpu_spec, "-f", "json")
    whole = perfmodel(*command)

    def run(*ended: tuple[int, BaseException]) -> Any:
        pools: Iterator[Executor | None] = iter([None, *(Ended(*one) for one in ended)])  # the first reads the traces
        monkeypatch.setattr(workers, "executor", lambda *_: contextlib.nullcontext(next(pools)))
        return perfmodel(*command)

    ran = run((1, end))
    assert ran.code == code
    assert "interrupted: 3 of 4 ranks were projected" in ran.err
    assert ran.json["rows"] == [row for place, row in enumerate(whole.json["rows"]) if place != 1]
    assert ran.json["context"]["missing_ranks"] == [1]
    assert any("1 ranks, since the run was interrupted" in note for note in ran.json["notes"])


def test_the_address_of_a_scheduler_may_stand_for_its_workers(perfmodel: Any) -> None:
    for words in (("--workers", "tcp://head:nn"), ("--workers=tcp://head:nn",)):
        ran = perfmodel("search", "train", "gpt2", "--on", "h100", "--batch", "8", *words)
        named = perfmodel("search", "train", "gpt2", "--on", "h100", "--batch", "8", "--scheduler", "tcp://head:nn")
        assert (ran.code, ran.err) == (named.code, named.err)
        assert "--scheduler" in ran.err
    assert "--scheduler" not in perfmodel("validate", "table.csv", "--workers", "many").err


def test_the_bar_of_progress_has_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with counted(2000) as advance:
        for done in (500, 1000, 1500):
            time.sleep(0.02)
            advance(done)
    assert "k/s" in terminal.getvalue()


def test_a_search_says_nothing_of_its_workers(perfmodel: Any) -> None:
    words = (
        "search",
        "train",
        MODEL,
        "--on",
        "h100",
        "--gpus",
        "1",
        "--batch",
        "8",
        "--seq",
        "128",
        "--micro-batch",
        "1",
    )
    ran = perfmodel(*words, "--recompute", "none", "-f", "json")
    assert ran.code == 0
    assert "workers" not in ran.json["context"]


def test_a_file_that_is_lost_with_the_process_is_said_to(perfmodel: Any) -> None:
    words = ("analyze", "gemm", "m=64", "n=64", "k=64", "dtype=fp16", "--on", "h100", "-o")
    ran = perfmodel(*words, "memory://lost/gemm.json")
    assert ran.err == ("wrote memory://lost/gemm.json, which is lost when this process ends: name a file to keep it\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "100000"), "perfmodel: --workers: 100000 workers are impossible. Give 1 to"),
        (("--workers=0",), "perfmodel: --workers: 0 workers are impossible."),
        (("--workers", "2", "--scheduler", "tcp://a:1"), "perfmodel: --workers: 2 has no effect beside a scheduler"),
        (("--scheduler", "head"), "perfmodel: --scheduler: 'head' is no address."),
    ],
)
def test_what_python_calls_a_parameter_is_an_option_here(
    perfmodel: Any, options: tuple[str, ...], message: str
) -> None:
    """The number is the one that was written, not the fewer for which a search has work."""
    ran = perfmodel("search", "train", MODEL, "--on", "h100", "--gpus", 8, "--batch", 8, "--seq", 128, *options)
    assert ran.code == 2
    assert ran.err.startswith(message)
