"""Checks hardware specification files: arithmetic, plausibility, and common mistakes.

`lint_file` returns the findings in one file. The shipped catalog is the table of known products. A file that claims to
be one of them (by name, alias or device name) is compared with it; any other is checked by arithmetic, against machines
of the same compute capability, and for plausibility. `CODES` explains the code of each finding.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel import storage
from perfmodel.core.report import Reportable
from perfmodel.errors import InputFileError
from perfmodel.files import read_document, read_text, shipped_folder
from perfmodel.hardware_catalog.lint import chip, design, form, links, measured, memory, peaks, plausible
from perfmodel.hardware_catalog.lint._codes import CODES
from perfmodel.hardware_catalog.lint._draft import Draft, Finding, find_twin, key_lines, values_of
from perfmodel.hardware_catalog.lint._shape import shape_of, text_of
from perfmodel.hardware_catalog.read import read_spec
from perfmodel.hardware_catalog.spec_folders import spec_files

__all__ = ["CODES", "RULES", "Finding", "LintResult", "lint_catalog", "lint_file", "lint_files"]

RULES = (
    form.check_sources,
    form.check_assumptions,
    form.check_names,
    form.check_bandwidth_given,
    form.check_figures_given,
    design.check_design,
    chip.check_sm_count,
    chip.check_clocks,
    chip.check_power,
    chip.check_facts,
    memory.check_bandwidths,
    memory.check_capacities,
    peaks.check_peaks,
    peaks.check_engines,
    links.check_links,
    links.check_network,
    plausible.check_ranges,
    plausible.check_capability,
    plausible.check_process,
    plausible.check_sparse,
    measured.check_launch,
    measured.check_sustained,
)
_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class LintResult(Reportable):
    """The findings in some specification files."""

    files: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def num_errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.severity == "error" for finding in self.findings)


def lint_files(paths: Iterable[str | os.PathLike[str]]) -> LintResult:
    """Return the findings in several specification files.

    Raises
    ------
    InputFileError
        When a file does not exist, or is a directory.
    """
    files = tuple(os.fspath(path) for path in paths)
    return LintResult(files, tuple(finding for file in files for finding in lint_file(file)))


def lint_catalog() -> LintResult:
    """Return the findings in all specification files of the catalog; one that cannot be read is a finding."""
    files = tuple(str(path) for _, path in sorted(spec_files().items()))
    findings: list[Finding] = []
    for file in files:
        try:
            findings += lint_file(file)
        except InputFileError as error:
            findings.append(_syntax(file, error))
    return LintResult(files, tuple(findings))


def lint_file(path: str | os.PathLike[str]) -> list[Finding]:
    """Return the findings in a specification file: first what the reader refuses, then others in the order of lines.

    A file that cannot be parsed gives one finding, with the line of the error. Any other gives all of its errors, each
    with its key, what was found and what is allowed.

    Raises
    ------
    InputFileError
        When the file does not exist, or is a directory.
    """
    file = os.fspath(path)
    if not storage.is_file(file):
        read_text(file)
    try:
        document = read_document(file)
    except InputFileError as error:
        return [_syntax(file, error)]
    lines = key_lines(read_text(file)) if file.lower().endswith(".toml") else {}
    shape = shape_of(document, file, lines)
    refused, findings = shape.findings, []
    if shape.spec is not None:
        values, _ = values_of(shape.spec)
        catalog = known_products()
        draft = Draft(file, shape.spec, values, lines, find_twin(shape.spec, catalog), catalog)
        findings = [finding for rule in RULES for finding in rule(draft) if not shape.explains(finding)]
    return [found for part in (refused, findings) for found in sorted(part, key=_place)]


def _place(finding: Finding) -> tuple[int, int]:
    """Return what findings are sorted by: line and severity."""
    return finding.line or 0, _ORDER[finding.severity]


@functools.cache
def known_products() -> tuple[Draft, ...]:
    """Return the shipped specifications: the table of known products."""
    drafts = []
    for path in sorted(shipped_folder().glob("*.toml")):
        spec = read_spec(path)
        drafts.append(Draft(os.fspath(path), spec, values_of(spec)[0]))
    return tuple(drafts)


def _syntax(file: str, error: InputFileError) -> Finding:
    """Return the finding for a file that cannot be parsed, with the line of the error."""
    line = re.search(r"\bline (\d+)", error.message)
    return Finding(file, int(line.group(1)) if line else 1, "", "error", "syntax", text_of(error))
