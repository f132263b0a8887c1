"""The command `report`: one self-contained HTML page of a profile, a record or a result."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel import storage
from perfmodel.cli._options import AssumeOption, ProfiledMachineOption, option
from perfmodel.cli._output import check_writable, context, wrote
from perfmodel.errors import InputFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: inputs that a page shows side by side
_MOST = 2
#: what makes a page of the traces of a job's ranks
_OF_A_JOB = "The ranks of a job: perfmodel diagnose FILE... -o page.html"


def command(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="A trace or another profile, a record of analyze, bench or monitor, or JSON of any command. Two files "
            "are shown side by side: before and after. Also addresses and patterns.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Write the page to FILE (.html).")],
    on: ProfiledMachineOption = None,
    assume: AssumeOption = False,
    title: Annotated[str, option("--title", "Heading of the page.", "TEXT")] = "",
) -> None:
    """Write one HTML page that opens offline: roofline, time line, tables, and what-if with sliders.

    Example: perfmodel report trace.json.gz --on h100 -o report.html

    Example: perfmodel report before.json after.json -o compare.html
    """
    from perfmodel.api import html_report
    from perfmodel.core.report import Report
    from perfmodel.files import write_atomic

    check_writable(output, ".html", ".htm")
    inputs = storage.expand(inputs)
    if len(inputs) > _MOST:
        remedy = f"Give one file, or two to compare. {_OF_A_JOB}."
        raise UsageError(f"{len(inputs)} files are given.", place="FILE", remedy=remedy)
    results = [_result(path, on, assume) for path in inputs]
    _refuse_ranks(results)
    if (on or assume) and not any(hasattr(result, "profile") for result in results):
        raise UsageError(
            f"nothing would use it beside {' and '.join(inputs)}.",
            place="--on" if on else "--assume",
            remedy="Leave it out: the rows of a result name their machines.",
        )
    with _refused([path for path, result in zip(inputs, results, strict=True) if isinstance(result, Report)]):
        page = html_report(*results, title=title)
    write_atomic(output, page)
    wrote(output)


def _refuse_ranks(results: Sequence[Any]) -> None:
    """Refuse two ranks, of which neither is the run before a change and neither the one after it."""
    ranks = [getattr(getattr(result, "profile", None), "rank", None) for result in results]
    if None not in ranks and len(set(ranks)) > 1:
        named = " and ".join(str(rank) for rank in ranks)
        raise UsageError(f"these are ranks {named}, not before and after.", place="FILE", remedy=f"{_OF_A_JOB}.")


@contextlib.contextmanager
def _refused(documents: Sequence[str]) -> Iterator[None]:
    """Say that a document is damaged where no page can be made of it: its keys may hold values of any kind."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if not documents:
            raise
        raise InputFileError(
            f"No page can be made of it: a value is not what perfmodel writes there ({error}).",
            place=" or ".join(documents),
            remedy="Write it again with --format json.",
        ) from error


def _result(path: str, on: Sequence[str] | None, assume: bool) -> Any:
    """Return a diagnosis of a profile, or the report of a result in JSON."""
    from perfmodel.cli._profile import profiled_machine
    from perfmodel.diagnosis.diagnose import diagnose
    from perfmodel.formats import read_profile
    from perfmodel.measure.monitor.record import is_monitored, read_recorded

    if is_monitored(path):
        return read_recorded(path)
    document = _own_json(path)
    if document is not None:
        return _document_report(document, path)
    profile = read_profile(path)
    machine, _ = profiled_machine(profile, on, assume=assume)
    return diagnose(profile, machine)


def _own_json(path: str) -> dict[str, Any] | None:
    """Return a document of perfmodel's JSON output, plain or gzip, None for any other file."""
    from perfmodel.files import read_document
    from perfmodel.formats.detect import read_head

    packed = storage.suffix_of(path) == ".gz"
    if storage.suffix_of(storage.name_of(path).removesuffix(".gz")) != ".json" or not storage.is_file(path):
        return None
    if packed and b'"schema_version"' not in read_head(path):
        return None  # a trace, which is not unpacked twice
    document = read_document(path)
    own = isinstance(document, dict) and {"schema_version", "command", "rows"} <= document.keys()
    return document if own else None


def _document_report(document: dict[str, Any], path: str) -> Any:
    import dataclasses

    from perfmodel.core.report import report
    from perfmodel.records.record import COMMANDS, parse_record
    from perfmodel.render.html.inputs import json_report

    if document["command"] in COMMANDS:
        record = parse_record(document, path)
        return report(dataclasses.replace(record, title=f"{record.command}: {storage.name_of(path)}"))
    document_report = json_report(document, storage.name_of(path))
    return dataclasses.replace(document_report, context={**context(), **document_report.context})
