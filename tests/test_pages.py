"""The pages are true: their commands and Python lines give what stands below them, their tables name what there is."""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

from perfmodel.core import vocabulary

ROOT = Path(__file__).resolve().parent.parent


def script(name):
    """Import a script of the checkout."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


pages = script("pages")
hooks = script("docs_hooks")
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages.pages()}
WITH_COMMANDS = [name for name, text in TEXTS.items() if list(pages.examples(text))]
WITH_DOCTESTS = [name for name, text in TEXTS.items() if ">>> " in text]


def data_folder():
    folder = Path(os.environ.get("PERFMODEL_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.mark.parametrize("name", WITH_DOCTESTS)
def test_the_python_lines_give_what_the_page_says(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXTS[name], re.MULTILINE | re.DOTALL)
    code = "".join(block for block in blocks if ">>> " in block)
    test = doctest.DocTestParser().get_doctest(code, {}, name, name, 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=pages.FLAGS).run(test, out=report.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("name", WITH_COMMANDS)
@pytest.mark.waiting
def test_the_commands_print_what_the_page_says(name):
    data = data_folder()
    if pages.files(TEXTS[name]) and data is None:
        pytest.skip("no measurement data: set PERFMODEL_DATA")
    wrong = [
        f"{name}:{example.line}: $ {example.command}\nprints\n{printed}"
        for example, printed in pages.outputs(TEXTS[name], data)
        if not example.matches(printed)
    ]
    assert not wrong, "\n".join([*wrong, "`make pages` writes the outputs that stand whole."])


def test_the_front_page_and_the_guide_show_commands():
    assert "README.md" in WITH_COMMANDS
    assert len(WITH_COMMANDS) > 8


def keys_of(text):
    """Return the keys that the tables of a page list in their first column."""
    cells = re.findall(r"^\| (`[^|]*?) \|", text, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`([a-z0-9_]+)`", cell)}


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "<!-- keys: " in text])
def test_the_json_keys_of_a_command_are_those_on_its_page(name):
    (command,) = re.findall(r"^<!-- keys: (.*) -->$", TEXTS[name], re.MULTILINE)
    section = TEXTS[name].split("## JSON", 1)[1].split("\n## ", 1)[0]
    needed, data = pages.files(TEXTS[name]), data_folder()
    if needed and data is None:
        pytest.skip("no measurement data: set PERFMODEL_DATA")
    with pages.workplace(needed, data):
        printed, _ = pages.printed(f"{command} --format json")
    row = json.loads(printed)["rows"][0]
    assert keys_of(section) == set(row)


@pytest.mark.parametrize("kind", [vocabulary.Limiter, vocabulary.CacheState, vocabulary.Timing, vocabulary.Calibration])
def test_the_concepts_define_every_word_of_a_vocabulary(kind):
    defined = re.findall(r"^\| (`[^|]*?) \|", TEXTS["docs/concepts.md"], re.MULTILINE)
    words = {word for cell in defined for word in re.findall(r"`([^`]+)`", cell)}
    assert {str(member) for member in kind} <= words


def test_every_field_of_a_spec_file_is_on_the_page():
    from perfmodel.hardware_catalog import schema
    from perfmodel.prediction.latency.tables import LatencySpec

    page = TEXTS["docs/machines.md"]
    structs = [value for name, value in vars(schema).items() if name.endswith("Spec")]
    fields = {field for struct in (*structs, LatencySpec) for field in struct.__struct_fields__}
    assert len(fields) > 40
    missing = [field for field in fields if not re.search(rf"[`\[ .]{field}[`\].]", page)]
    assert missing == []


def test_the_page_of_a_command_lists_its_options_and_exit_codes():
    named = [Path(name).stem for name in TEXTS if name.startswith("docs/commands/") and not name.endswith("index.md")]
    assert len(named) > 8
    assert set(named) <= set(hooks.command_names())
    for name in named:
        page = TEXTS[f"docs/commands/{name}.md"]
        assert re.search(rf"^<!-- generated: options {name}", page, re.MULTILINE), name
        assert "## Exit codes" in page, name


def test_every_generated_part_of_the_pages_can_be_made():
    requests = {request for text in TEXTS.values() for request in re.findall(r"<!-- generated: (.*?) -->", text)}
    assert {"api", "commands", "machines", "operators", "terms"} < requests
    for request in requests:
        assert len(hooks.part(request).splitlines()) > 2, request


def test_a_generated_part_stands_where_the_page_asks_for_it():
    page = hooks.on_page_markdown("# Commands\n\n<!-- generated: commands -->\n\nThe end.\n")
    assert page.startswith("# Commands\n\n| Command |")
    assert "[`analyze`](analyze.md)" in page
    assert page.endswith("|\n\nThe end.\n")


def test_the_reference_has_every_public_name_and_nothing_else():
    import perfmodel

    reference = hooks.part("api")
    paths = re.findall(r"^::: (\S+)", reference, re.MULTILINE)
    linked = re.findall(r"\[`(\w+)`\]\(operators\.md#\w+\)", reference)
    found = [path.rpartition(".")[2] for path in paths] + linked
    assert sorted(found) == sorted(name for name in dir(perfmodel) if not name.startswith("_"))


def test_the_readme_quotes_the_accuracy_that_its_page_states(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    accuracy = script("accuracy")
    summary = TEXTS["docs/accuracy.md"].split("| family |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in summary]
    quoted = TEXTS["README.md"].split(accuracy.BEGIN, 1)[1].split(accuracy.END, 1)[0]
    assert len(rows) == len(accuracy.SUMMARY)
    table, sentence, other = quoted.strip().split("\n\n")
    assert table == accuracy.headline(rows)
    last = TEXTS["docs/accuracy.md"].split("now: MAPE", 1)[1].split("\n\n", 1)[0].splitlines()[-1]
    _, _, number, mean, inside, width, *_, roofline = (cell.strip() for cell in last.strip("|").split("|"))
    assert all(figure in " ".join(sentence.split()) for figure in (number, mean, inside, width, roofline))
    of_torch = TEXTS["docs/accuracy.md"].split("| all | torch | all |", 1)[1].splitlines()[0]
    number, error, _, inside, *_ = (cell.strip() for cell in of_torch.split("|"))
    assert all(
        figure in " ".join(other.split()) for figure in (f"{number} kernels", f"{error} off", f"{inside} in the")
    )


def test_an_output_that_stands_whole_is_written_anew_and_an_abridged_one_is_only_checked(tmp_path):
    page = "```console\n$ perfmodel --version\nold\n$ perfmodel --version\nperfmodel 9 ...\n$ echo $?\n7\n```\n"
    text, stale = pages.refreshed(page, None)
    version = pages.printed("perfmodel --version")[0].strip()
    assert text == page.replace("old", version).replace("7", "0")
    assert [example.output for example in stale] == ["perfmodel 9 ...\n"]


@pytest.mark.parametrize(
    ("output", "renewed"),
    [
        ("old\n", "title\na b\n\nnote\n"),
        ("old title\nold row\n...\n", "title\na b\n...\n"),
        ("old title\n...\nrow\n...\n", None),
        ("title\n\nold note\n...\n", None),
        ("title ...\n", None),
    ],
)
def test_the_first_paragraph_of_an_output_that_ends_in_dots_is_written_anew(output, renewed):
    example = pages.Example("perfmodel --version", output, 0, len(output), 1)
    assert example.renewed("title\na b\n\nnote\n") == renewed


def test_docstrings_become_what_the_reader_of_numpys_style_expects():
    pytest.importorskip("griffe")
    rewritten = script("docs_docstrings").rewritten
    text = "Add.\n\nParameters\n----------\na, b : what is added,\n    both.\n\nRaises\n------\nError\n    a : kept."
    assert rewritten(text) == text.replace("a, b : what is added,\n", "a, b\n    what is added,\n")
    assert rewritten("One.\n\n>>> 1 + 1\n2\n\nTwo.") == "One.\n\nExamples\n--------\n>>> 1 + 1\n2\n\nTwo."
    assert rewritten("Either:\n- this\n- that") == "Either:\n\n- this\n- that"


def test_bench_runs_what_its_page_says():
    """docs/commands/bench.md: every operator but memcpy, and collectives among ranks."""
    pytest.importorskip("torch")
    from perfmodel.core.machine_parts import COLLECTIVES
    from perfmodel.kernels.registry import operators_with_kernels
    from perfmodel.operators import operator_names

    assert set(operator_names()) - set(operators_with_kernels()) == {"memcpy", *COLLECTIVES}
