"""The parts of the documentation that perfmodel itself knows: MkDocs calls `on_page_markdown` for each page.

A page asks for a part with a comment on a line of its own, which is invisible where the page is read unbuilt:

    <!-- generated: options analyze -->

Options, commands, operators, machines, formats and public names are found by discovery, so that adding one of them
needs no edit of a page.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[1] / "docs"
_MARKER = re.compile(r"^<!-- generated: ([a-z ]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each marker of a page by what it asks for; MkDocs calls this before it turns a page into HTML."""
    return _MARKER.sub(lambda match: part(match.group(1)), markdown)


def part(request: str) -> str:
    """Return one generated part as Markdown.

    >>> part("terms").splitlines()[0]
    '| Term | Meaning |'
    """
    name, *words = request.split()
    return PARTS[name](*words)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar in a cell is escaped, but for one in code, where it needs no escape."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_escaped, row)) + " |" for row in lines)


def _escaped(cell: str) -> str:
    parts = cell.split("`")
    return "`".join(part if number % 2 else part.replace("|", "\\|") for number, part in enumerate(parts))


@functools.cache
def _program() -> Any:
    """Return the command line as typer's tree of commands."""
    import typer

    from perfmodel.cli.app import build_app

    return typer.main.get_command(build_app())


def command_names() -> list[str]:
    """Return the names of all commands, those of plugins among them."""
    return sorted(_program().commands)


def commands() -> str:
    """Return a table of the commands and what each does."""
    rows = [(_command(name), _paragraphs(_program().commands[name].help)[0]) for name in command_names()]
    return table(("Command", "What it does"), rows)


def _command(name: str) -> str:
    """Return the name of a command, as a link where it has a page: those of plugins have none."""
    return f"[`{name}`]({name}.md)" if (PAGES / "commands" / f"{name}.md").is_file() else f"`{name}`"


def _paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a help text, each on one line."""
    return [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")]


def options(*path: str) -> str:
    """Return the arguments and options of one command, as ``perfmodel COMMAND --help`` lists them."""
    import typer

    command = _program()
    for name in path:
        command = command.commands[name]
    context = typer.Context(command)
    rows = [_option(parameter, context) for parameter in command.params]
    return table(("Argument or option", "Meaning", "Default"), rows)


def _option(parameter: Any, context: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        required = "required" if parameter.required else ""
        return f"`{parameter.metavar or parameter.name.upper()}`", parameter.help, required
    value = "" if isinstance(parameter.default, bool) else f" {parameter.metavar or _value(parameter, context)}"
    names = ", ".join(f"`{option}{value}`" for option in sorted(parameter.opts, key=len, reverse=True))
    shown = parameter.show_default and not any(parameter.default is nothing for nothing in (None, False, ""))
    return names, parameter.help, f"`{parameter.default}`" if shown else "required" if parameter.required else ""


def _value(parameter: Any, context: Any) -> str:
    """Return the allowed words of an option, or what kind of value it takes."""
    words = str(parameter.display_type(context)).strip("<>[]")
    return words if "|" in words else {"str": "TEXT", "int": "N", "float": "X"}.get(words, words.upper())


def operators() -> str:
    """Return a section for each operator: what it computes and its dimensions."""
    from perfmodel.operators import load_operator, operator_names

    return "\n\n".join(_operator(name, load_operator(name)) for name in operator_names())


def _operator(name: str, kind: Any) -> str:
    """Return the section of one operator, from its docstring and the declarations of its dimensions."""
    text = _before_sections(kind.__doc__)
    common = {"dtype", "engine", "name", "count"}
    rows = [
        (f"`{key}`", str(rules["doc"]), _default(rules))
        for key, rules in kind.dimensions().items()
        if key not in common
    ]
    return f"### {name}\n\n{text}\n\n{table(('Dimension', 'Meaning', 'Default'), rows)}"


def _before_sections(docstring: str | None) -> str:
    """Return a docstring up to its first section of numpy's style, as Markdown."""
    import inspect

    text = re.split(r"^\w+\n-{3,}$", inspect.cleandoc(docstring or ""), maxsplit=1, flags=re.MULTILINE)[0]
    # a list right below a paragraph needs an empty line in Markdown
    return re.sub(r"^(?![- \n])(.*\S)\n(?=- )", r"\1\n\n", text.strip(), flags=re.MULTILINE)


def _default(rules: Any) -> str:
    import dataclasses

    default = rules["default"]
    if default is dataclasses.MISSING:
        return "required"
    if default in (None, ""):
        return "derived"
    allowed = ", ".join(f"`{word}`" for word in rules.get("allowed", ()) if word != default)
    return f"`{str(default).lower()}`{f' (or {allowed})' if allowed else ''}"


def machines() -> str:
    """Return a table of the machines in the catalog."""
    from perfmodel.core.units import format_binary, format_si
    from perfmodel.hardware_catalog import load_all

    rows = []
    for machine in load_all():
        memory = machine.main_memory
        rows.append((
            f"`{machine.name}`", machine.title, machine.architecture,
            format_binary(memory.capacity_bytes) if memory.capacity_bytes else "",
            format_si(memory.bandwidth_bytes_per_s, "B/s", 4) if memory.bandwidth_bytes_per_s else "",
            ", ".join(f"`{alias}`" for alias in machine.aliases),
        ))  # fmt: skip
    return table(("Name", "Product", "Architecture", "Memory", "Bandwidth", "Aliases"), rows)


def terms(of: str = "operators") -> str:
    """Return a table of the terms that predictions of operators, or of steps of "training" or "serving", sum up."""
    from importlib import import_module

    from perfmodel.prediction.latency.families import known_terms

    if of != "operators":
        meanings = import_module(f"perfmodel.{of}.meanings").MEANINGS
        return table(("Term", "Is"), ((f"`{term}`", meaning) for term, meaning in meanings.items()))

    rows = [(f"`{name}`", f"`{term.limiter}`", term.meaning) for name, term in known_terms().items()]
    return table(("Term", "Limiter", "Meaning"), rows)


def constants() -> str:
    """Return a section for each latency family: what it serves, and its constants."""
    from perfmodel.prediction.latency.families import family, family_names

    return "\n\n".join(_family(family(name)) for name in family_names())


def _family(family: Any) -> str:
    from perfmodel.core.units import format_si

    rows = [
        (f"`{constant.name}`", constant.meaning, " to ".join(format_si(end, constant.unit) for end in ends))
        for constant in family.all_constants
        if (ends := (constant.low, constant.high))
    ]
    return f"#### {family.name}\n\n{table(('Constant', 'Meaning', 'Allowed'), rows)}"


#: sections of the reference: title -> packages of perfmodel whose public names it holds
ROOMS = {
    "Main functions": ("api",),
    "Operators": ("operators",),
    "Machines": ("core.hardware", "hardware_catalog"),
    "Bounds and predictions": ("core.roofline", "prediction", "workloads"),
    "Profiles": ("profile", "formats"),
    "Diagnosis": ("diagnosis",),
    "What is worth doing": ("investment",),
    "Reports and plots": ("core.report", "render"),
    "Errors": ("errors",),
}


def api() -> str:
    """Return a reference of every public name, for mkdocstrings to fill in; operators have a page of their own."""
    from perfmodel.operators import load_operator, operator_names

    classes = {load_operator(name).__name__: name for name in operator_names()}
    sections: dict[str, list[str]] = {title: [] for title in (*ROOMS, "More")}
    links = ", ".join(f"[`{kind}`](operators.md#{name})" for kind, name in classes.items())
    sections["Operators"].append(f"The page of each operator lists its dimensions: {links}.")
    for name, path in public_names():
        if name not in classes:
            module = path.removeprefix("perfmodel.")
            title = next((title for title, rooms in ROOMS.items() if module.startswith(rooms)), "More")
            sections[title].append(f"::: {path}")
    return "\n\n".join("\n\n".join((f"## {title}", *parts)) for title, parts in sections.items() if parts)


def public_names() -> list[tuple[str, str]]:
    """Return each public name of `perfmodel` with the path of the object in its module."""
    import perfmodel

    names = [name for name in dir(perfmodel) if not name.startswith("_")]
    objects = ((name, getattr(perfmodel, name)) for name in names)
    return [(name, f"{value.__module__}.{value.__qualname__}") for name, value in objects]


PARTS: dict[str, Callable[..., str]] = {
    "api": api,
    "commands": commands,
    "constants": constants,
    "machines": machines,
    "operators": operators,
    "options": options,
    "terms": terms,
}
