"""Options without an effect: each is refused with one message, before any work, also where it has its default."""

from __future__ import annotations

import pytest

PUBLISHED = "examples/published/training.csv"
CHECK, RANKS = ("bench", "--check", "--device", "cpu"), ("bench", "all_reduce", "bytes=1KiB", "--num-gpus", "2")
CONTEST, ENGINE = ("bench", "--algorithms", "sort", "--device", "cpu"), ("calibrate", "--from", "a.csv", "--engine")


@pytest.mark.parametrize(
    ("command", "idle"),
    [
        *(((*CHECK, *words), words[0]) for words in (
            ("--algorithms",), ("--sustain", "1"), ("--samples",), ("--seed", "1"), ("--seed", "0"),
            ("--time-limit", "1"), ("--min-time", "1"), ("--error", "1%"), ("--cache", "cold"), ("--timing", "graph"),
            ("--op", "gemm"), ("--kernel", "naive"), ("--plot", "a.svg"), ("--overwrite",),
        )),
        *(((*RANKS, *words), words[0]) for words in (
            ("--cache", "warm"), ("--timing", "event"), ("--threads", "2"), ("--sustain", "1"), ("--plot", "a.svg"),
            ("--preset", "quick"), ("--kernel", "naive"),
        )),
        (("bench", "gemm", "m=8", "n=8", "k=8", "--rank-timeout", "120"), "--rank-timeout"),
        *(((*CONTEST, *words), words[0]) for words in (
            ("--op", "gemm"), ("--samples",), ("--sustain", "1"), ("--resume",),
        )),
        *(((*ENGINE, "vllm", *words), words[0]) for words in (
            ("--on", "h100"), ("--device", "cpu"), ("--threads", "2"),
        )),
        (("calibrate", "--links", "--num-gpus", "2", "--from", "a.csv"), "--from"),
        (("calibrate", "--links", "--num-gpus", "2", "--engine", "vllm"), "--engine"),
        (("validate", PUBLISHED, "--flagged"), "--flagged"),
        (("validate", PUBLISHED, "--plot", "a.svg"), "--plot"),
        *((("monitor", "--read", "run.jsonl", *words), words[0]) for words in (
            ("--interval", "1"), ("--duration", "2"), ("--pid", "1"), ("--record", "b.jsonl"),
        )),
        (("monitor", "--read", "run.jsonl", "--", "true"), "COMMAND"),
        (("analyze", "gemm", "m=8", "n=8", "k=8", "--on", "h100", "--measured", "1ms", "--workers", "2"), "--workers"),
        (("analyze", "sort", "--on", "h100", "--algorithms", "--timing", "kernel"), "--timing"),
        (("diagnose", "a.csv", "--against", "b.csv", "--annotate", "c.json"), "--annotate"),
        (("project", "a.csv", "--to", "h100", "--workers", "1"), "--workers"),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_one_message(perfmodel, command, idle):
    ran = perfmodel(*command)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"perfmodel: {idle} has no effect: ")
    assert ran.err.count("\n") == 1


def test_several_idle_options_are_named_together(perfmodel):
    ran = perfmodel(*CHECK, "--seed", "1", "--samples", "--sustain", "2")
    assert "--seed, --samples and --sustain have no effect: --check" in ran.err


def test_a_preset_of_a_contest_is_one_that_exists(perfmodel):
    ran = perfmodel(*CONTEST, "--preset", "fulll")
    assert (ran.code, ran.out) == (2, "")
    assert "unknown preset 'fulll'" in ran.err


def test_options_that_are_left_out_are_not_idle(perfmodel, tmp_path):
    # nothing but the missing file is wrong
    ran = perfmodel("monitor", "--read", tmp_path / "run.jsonl")
    assert "no effect" not in ran.err
    assert "run.jsonl" in ran.err
