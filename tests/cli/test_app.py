"""The program: help, version, exit codes, pipes and colours."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel import __version__, cli
from perfmodel.cli import _other_words, app

HELPERS = ("app", "extension")
COMMANDS = sorted(m.name for m in pkgutil.iter_modules(cli.__path__) if m.name[0] != "_" and m.name not in HELPERS)
ANALYZE = ["analyze", "gemm", "m=64..512+8", "n=64", "k=64", "dtype=fp16", "--on", "a100"]


def program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "perfmodel", *arguments], capture_output=True, text=True, check=False, **options
    )


def test_version(perfmodel):
    assert perfmodel("--version").out == f"perfmodel {__version__}\n"


def test_the_version_is_that_of_the_newest_entry_of_the_changelog():
    changelog = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## ([\d.]+)", changelog, re.MULTILINE).group(1) == __version__


def test_a_renamed_option_says_which_release_removes_it(perfmodel):
    ran = perfmodel("diagnose", "missing.json", "--all")
    major, minor, _ = __version__.split(".")
    assert f"--all is now --whole-trace; perfmodel {major}.{int(minor) + 1} removes the old spelling" in ran.err


def test_the_commands_of_the_contract_are_there():
    assert {"hardware", "analyze", "bench", "calibrate", "roi", "plot"} <= set(COMMANDS)


def test_help_lists_each_command(perfmodel):
    listing = perfmodel("--help").out
    assert [name for name in COMMANDS if name not in listing] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_purpose_and_an_example(perfmodel, name):
    ran = perfmodel(name, "--help")
    assert ran.code == 0
    module = importlib.import_module(f"perfmodel.cli.{name}")
    if not hasattr(module, "app"):
        assert "Example: perfmodel" in " ".join(ran.out.split())


def test_wrong_commands_and_no_command(perfmodel):
    ran = perfmodel("analyse")
    assert ran.code == 2
    assert "Did you mean 'analyze'?" in ran.err
    assert perfmodel().code == 2


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from perfmodel.cli.app import run; run(['--help']);"
        "heavy = {'torch', 'matplotlib', 'numpy', 'yaml', 'msgspec', 'concurrent.futures', 'tomllib'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_importing_perfmodel_loads_nothing_heavy():
    code = (
        "import sys; before = set(sys.modules); import perfmodel;"
        "heavy = {'torch', 'matplotlib', 'typer', 'numpy', 'typing'} & (set(sys.modules) - before);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_analyze_in_one_process_does_without_torch_matplotlib_and_multiprocessing():
    code = (
        f"import sys; from perfmodel.cli.app import run; run({ANALYZE!r});"
        "heavy = {'torch', 'matplotlib', 'multiprocessing', 'concurrent.futures'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_reader_that_leaves_early_is_no_error():
    run = f"{sys.executable} -m perfmodel {' '.join(ANALYZE)} --format json | head -1; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "{\n", "")


def test_a_full_device_is_one_message():
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "perfmodel", *ANALYZE], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 2
    assert "No space left" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_fault_shows_no_traceback_but_debug_does(perfmodel, monkeypatch, capsys):
    def broken(_only):
        raise RuntimeError("boom")

    monkeypatch.setattr(app, "build_app", broken)
    ran = perfmodel("hardware")
    assert (ran.code, "boom" in ran.err) == (app.EXIT_INTERNAL, True)
    assert app.run(["hardware", "--debug"]) == app.EXIT_INTERNAL
    assert "Traceback" in capsys.readouterr().err


SEARCHED = """
import gc, sys
from perfmodel.__main__ import main
searched = []
gc.callbacks.append(lambda phase, info: searched.append(len(gc.get_objects())) if phase == "stop" else None)
sys.argv = ["perfmodel", *{words!r}]
try:
    main()
finally:
    print(searched, gc.get_freeze_count() > 50_000, file=sys.stderr)
"""


def test_a_short_command_searches_for_no_garbage():
    program = SEARCHED.format(words=ANALYZE)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == "[] True\n"  # nor does the interpreter at its exit, which passes over what is frozen


def test_an_interrupt_exits_130(perfmodel, monkeypatch):
    def interrupted(_only):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "build_app", interrupted)
    assert perfmodel("hardware").code == 130


TABLE = "hardware,op,dtype,rows,cols,time_s,timing\na100-sxm4-40gb,layer_norm,fp16,4096,4096,1e-4,kernel\n"
#: the environment outside a job of ranks
ALONE = {key: value for key, value in os.environ.items() if key != "RANK" and not key.startswith("SLURM")}
TERMINATED = """
import os, signal
from perfmodel.api import judging
from perfmodel.cli import app

judge = judging._judge_file

def terminated(task):
    if task.path.endswith("b.csv"):
        for _ in range(2):  # `timeout` sends it to the process and to its group
            os.kill(os.getpid(), signal.SIGTERM)
    return judge(task)

judging._judge_file = terminated
app.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM between processes")
@pytest.mark.waiting
def test_sigterm_ends_the_work_as_ctrl_c_does_with_the_code_of_shells(tmp_path):
    tables = [tmp_path / f"{name}.csv" for name in "ab"]
    for path in tables:
        path.write_text(TABLE)
    script = tmp_path / "terminated.py"
    script.write_text(TERMINATED)
    words = [str(script), "validate", *map(str, tables), "--format", "json"]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=ALONE)
    assert ran.returncode == app.TERMINATED == 143, ran.stderr
    assert ran.stderr == "interrupted: 1 of 2 files were read; the others are left out.\nperfmodel: interrupted.\n"
    assert json.loads(ran.stdout)["context"]["tables"] == [str(tables[0])]
    ignored = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh", sys.executable, *words]
    assert subprocess.run(ignored, capture_output=True, check=False, env=ALONE).returncode == 0
    rank = {**ALONE, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=rank)
    assert (ran.returncode, ran.stdout) == (-signal.SIGTERM, "")


def test_debug_shows_the_traceback_of_an_error():
    ran = program(*ANALYZE[:2], "--on", "a100", "--debug")
    assert "Traceback" in ran.stderr
    assert ran.returncode == 2


@pytest.mark.parametrize("arguments", ["--help", "analyze --help", "--version"])
def test_a_reader_of_help_that_leaves_early_is_no_error(arguments):
    run = f"{sys.executable} -m perfmodel {arguments} | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_closed_streams_are_no_fault(closed):
    run = f"{sys.executable} -m perfmodel analyze gem --on a100 {closed}"
    assert subprocess.run(["bash", "-c", run], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize(("arguments", "code"), [("analyze gem --on a100", 2), ("validate missing.csv", 3)])
def test_a_message_that_cannot_be_written_leaves_the_exit_code(arguments, code):
    run = f"{sys.executable} -m perfmodel {arguments} 2>/dev/full"
    assert subprocess.run(["bash", "-c", run], capture_output=True, check=False).returncode == code


@pytest.mark.parametrize("arguments", ["hardware list", "hardware list --format json", "--version", "analyze --help"])
@pytest.mark.parametrize(("target", "reason"), [(">&-", "stdout is closed"), (">/dev/full", "No space left")])
@pytest.mark.waiting
def test_a_result_that_cannot_be_printed_is_no_success(arguments, target, reason):
    run = f"{sys.executable} -m perfmodel {arguments} {target}"
    ran = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert reason in ran.stderr


def test_a_result_in_a_file_does_not_need_stdout(tmp_path):
    run = f"{sys.executable} -m perfmodel hardware list -o {tmp_path / 'list.json'} >&-"
    assert subprocess.run(["bash", "-c", run], capture_output=True, check=False).returncode == 0
    assert (tmp_path / "list.json").stat().st_size > 0


def test_a_name_that_stdout_cannot_encode_is_escaped():
    arguments = ("analyze", "gemm", "m=1", "n=1", "k=1", "name=\u77e9\u9635", "--on", "a100")
    ran = program(*arguments, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, "\\u77e9" in ran.stdout) == (0, True)


def test_json_is_json_where_stdout_cannot_encode_a_name():
    arguments = ("analyze", "gemm", "m=1", "n=1", "k=1", "name=\xe9\U0001f600", "--on", "a100", "-f", "json")
    ran = program(*arguments, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert json.loads(ran.stdout)["rows"][0]["name"] == "\xe9\U0001f600"


@pytest.mark.waiting
@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_pipes_and_no_color_are_plain(plain):
    ran = program(*ANALYZE, env={**os.environ, **plain})
    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout


def test_shell_completion_is_offered():
    # the shell is otherwise that of a parent process, which may be one that has no completion
    ran = program("--show-completion", "bash", env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert "perfmodel" in ran.stdout


@pytest.mark.parametrize(
    ("words", "option", "remedy"),
    [
        (("analyze", "gemm", "m=1"), "--hardware", "--on HW"),
        (("analyze", "gemm", "m=1"), "--json", "--format json"),
        (("analyze", "gemm", "m=1"), "--dtype", "as dtype=bf16"),
        (("train", "gpt2"), "--precision", "--dtype DTYPE"),
        (("train", "gpt2"), "--mbs", "--micro-batch N"),
        (("search", "serve", "gpt2"), "--concurrency", "--batch LIST, of users, beside --isl N"),
        (("train", "gpt2"), "--nnodes", "--gpus N, of all nodes"),
        (("serve", "gpt2"), "--tensor-parallel-size", "--tp N"),
        (("serve", "gpt2"), "--nnodes", "--tp N, of all nodes, with --gpus-per-node N"),
        (("serve", "gpt2"), "--network", "--nic RATE"),
        (("serve", "gpt2"), "--dtype", "--weights DTYPE"),
        (("serve", "gpt2"), "--model", "the first argument"),
        (("search", "serve", "gpt2"), "--random_input_len", "--isl N"),
    ],
)
def test_an_option_of_other_tools_is_told_ours(perfmodel, words, option, remedy):
    for given in ((option, "h100"), (f"{option}=h100",)):
        ran = perfmodel(*words, *given)
        assert ran.code == 2
        assert ran.err.startswith(f"perfmodel: No such option: {option}. ")
        assert remedy in ran.err
        assert "Possible options" not in ran.err
        assert len(ran.err.splitlines()) == 1


def test_an_option_that_means_something_else_here_is_not_told(perfmodel):
    # a training step has --batch, but no users
    ran = perfmodel("train", "gpt2", "--concurrency", "4")
    assert ran.code == 2
    assert "users" not in ran.err


@pytest.mark.waiting
def test_each_option_that_is_told_exists_and_only_where_a_command_has_it():
    commands = [["analyze"], ["train"], ["serve"], ["search", "serve"], ["search", "train"]]
    helps = [program(*command, "--help", env={**os.environ, "COLUMNS": "200"}).stdout for command in commands]
    for ours in _other_words.NAMES:
        option = re.escape(ours.split()[0])
        assert any(re.search(rf"{option}\b", text) for text in helps), ours
    assert _other_words.meant("--mbs", ["--on", "--batch"]) == ""


@pytest.mark.parametrize(
    ("words", "help_of"),
    [
        (("search", "train", "gpt2", "--top", "0"), "perfmodel search train"),
        (("hardware", "shw"), "perfmodel hardware"),
        (("analyse",), "perfmodel"),
        (("analyze",), "perfmodel analyze"),
        (("analyze", "gemm", "--on"), "perfmodel analyze"),
    ],
)
def test_wrong_usage_names_the_help_of_its_command(perfmodel, words, help_of):
    ran = perfmodel(*words)
    assert ran.code == 2
    assert ran.err.rstrip().endswith(f"See: {help_of} --help")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("search", "train", "gpt2", "--top", "0"), "--top: '0' is below 1."),
        (("search", "train", "gpt2", "--top", "few"), "--top: 'few' is not a whole number."),
        (("serve", "gpt2", "--seed", "1.5"), "--seed: '1.5' is not a whole number."),
        (("serve", "gpt2", "--isl", "4k"), "--isl: '4k' is not a number."),
    ],
)
def test_a_value_that_is_no_number_is_named_with_its_option(perfmodel, words, message):
    assert perfmodel(*words).err.startswith(f"perfmodel: {message} See: ")


@pytest.mark.waiting
@pytest.mark.parametrize("words", [("search", "train"), ("serve",), ("roi",), ("hardware", "show")])
def test_help_has_whole_names_of_options_in_lines_of_50_characters_and_more(perfmodel, monkeypatch, words):
    def names(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = perfmodel(*words, "--help").out
        assert max(map(len, text.splitlines())) <= columns
        assert "…" not in text
        return set(re.findall(r"^[│ ]*(?:-\w, )?(--[a-z-]*[a-z])", text, re.MULTILINE))

    wide = names(200)
    assert wide
    for columns in (100, 80, 60, 50):
        assert wide <= names(columns)


@pytest.mark.parametrize("words", [("train",), ("search", "train")])
def test_opposites_of_switches_leave_room_for_boxes_in_80_columns(perfmodel, monkeypatch, words):
    for columns, is_boxed in ((72, False), (74, True), (80, True)):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = perfmodel(*words, "--help").out
        assert ("╭─ Options" in text) is is_boxed
        assert re.search(r"--no-sequence-parallel(?![\w-])", text)
        assert re.search(r"--no-tp-overlap(?![\w-])", text)


@pytest.mark.parametrize("words", [("roi", "--help"), ("hardware", "lint", "--help"), ("operators", "gemm")])
@pytest.mark.waiting
def test_help_is_the_same_where_python_drops_docstrings(words):
    bare = subprocess.run(
        [sys.executable, "-OO", "-m", "perfmodel", *words], capture_output=True, text=True, check=True
    )
    assert bare.stdout == program(*words).stdout


def test_every_example_of_a_help_stands_alone(perfmodel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for words in (("hardware", "show"), ("bench",), ("diagnose",)):
        lines = [line for line in perfmodel(*words, "--help").out.splitlines() if "Example:" in line]
        assert len(lines) > 1
        assert all(line.count("Example:") == 1 for line in lines)
