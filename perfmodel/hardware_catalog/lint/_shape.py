"""All errors in the shape of a specification, not the first alone: what is wrong is taken out, and the rest read again.

The reader stops at its first error. To find the next one the linter takes the wrong entry out of a copy of the
document, gives a number its most likely unit, or puts a stand-in where a required entry is missing, until the reader
accepts what is left. The rules then check that; what they say of an entry that was taken out is no finding.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from perfmodel import storage
from perfmodel.errors import InputFileError, PerfModelError, nearest
from perfmodel.hardware_catalog import schema
from perfmodel.hardware_catalog.explain import find, found_and_allowed
from perfmodel.hardware_catalog.lint._draft import Finding, line_of, quantities, values_of
from perfmodel.hardware_catalog.parts import likely_quantity
from perfmodel.hardware_catalog.read import parse_spec, to_hardware

#: what stands in for required keys of the file, so that the rest of it can be read
_STAND_INS: Mapping[str, Any] = MappingProxyType(
    {
        "vendor": "unknown",
        "architecture": "unknown",
        "memory": {"hbm": {}},
        "peak": {"vector": {"fp32": {"rate": "1 TFLOP/s"}}},
    }
)


@dataclass
class Shape:
    """A specification without its wrong entries.

    Attributes
    ----------
    spec : what is left; None where nothing can be read.
    findings : the errors.
    doubtful : keys that were taken out or stood in for.
    """

    spec: schema.HardwareSpec | None = None
    findings: list[Finding] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)

    def explains(self, finding: Finding) -> bool:
        """Whether a finding of a rule only follows from what was taken out."""
        # a table without its misspelt source has no source, and a chip without its misspelt SMs has none
        within, lacks = finding.key, ""
        if finding.code == "missing-figure":
            within, _, lacks = finding.key.rpartition(".")
        elif finding.code.startswith("missing-"):
            lacks = finding.code.removeprefix("missing-")
        for key in self.doubtful:
            if finding.key == key or finding.key.startswith(f"{key}."):
                return True
            table, _, name = key.rpartition(".")
            if lacks and table == within and (name == lacks or nearest(name, [lacks])):
                return True
        return False


def shape_of(document: Any, file: str, lines: Mapping[str, int]) -> Shape:
    """Return a parsed document as a specification, with every error in it."""
    return _Mending(copy.deepcopy(document), file, lines).run()


class _Mending:
    """Takes wrong entries out of a document until the reader accepts it."""

    def __init__(self, document: Any, file: str, lines: Mapping[str, int]) -> None:
        self.document = document
        self.file = file
        self.lines = lines
        self.shape = Shape()

    def run(self) -> Shape:
        """Return what is left and what was wrong."""
        while True:
            try:
                spec = parse_spec(self.document, self.file)
                wrong = self._wrong_quantities(spec)
                if not wrong:
                    to_hardware(spec, self.file)
                    self.shape.spec = spec
                    return self.shape
                changed = [self._with_unit(spec, key) or self._take_out_quantity(key) for key in wrong]
            except InputFileError as error:
                changed = [self._mended(error)]
            if not any(changed):
                return self.shape

    def _add(self, key: str, exact: str, code: str, message: str) -> None:
        line = line_of(exact.partition("[")[0], self.lines)
        self.shape.findings.append(Finding(self.file, line, key, "error", code, message))

    def _wrong_quantities(self, spec: schema.HardwareSpec) -> list[str]:
        """Note the quantities that the reader refuses; return their keys."""
        _, errors = values_of(spec)
        for key, error in errors.items():
            code = "bits-for-bytes" if "is in bits" in error.message else "bad-quantity"
            self._add(key, key, code, text_of(error))
        return list(errors)

    def _with_unit(self, spec: schema.HardwareSpec, key: str) -> bool:
        """Read a number without a unit as it is most likely meant, so that the rules judge it; return whether it is."""
        quantity = quantities(spec)[key]
        meant = likely_quantity(quantity.text, quantity.unit)
        if meant is None:
            return False
        parent, name = find(self.document, key)
        if isinstance(parent[name], dict):  # a peak that has more than its rate
            parent, name = parent[name], "rate"
        parent[name] = f"{meant!r} {quantity.unit}"
        return True

    def _take_out_quantity(self, key: str) -> bool:
        """Take a quantity out, and with it the peak or link that is none without its rate."""
        return self._take_out(key) or self._take_out(key.rpartition(".")[0])

    def _mended(self, error: InputFileError) -> bool:
        """Note an error of the reader and take out what is wrong; return whether the document has changed."""
        place = error.place.removeprefix(self.file).lstrip(": ")
        missing = re.search(r"the key '(.*?)' is missing", error.message)
        if missing and not place:
            self._add("", missing.group(1), "schema", text_of(error))
            return self._stand_in(missing.group(1))
        unknown = re.search(r"unknown [\w ]+ '(.*?)'", error.message)
        container, inside, _ = place.partition("[")
        culprits = list(self._culprits(container)) if inside else []
        if culprits:
            for key in culprits:
                self._note(key, key, error)
            for key in reversed(culprits):  # the last of a list first, which leaves the numbers of the others
                self._take_out(key)
            return True
        named = unknown or re.match(r"(\w+) = ", error.message)
        exact = ".".join(part for part in (container, named.group(1) if named else "") if part)
        # the file may lack a memory or a peak because that was misspelt and taken out
        if exact not in _STAND_INS or not any(key.startswith(f"{exact}.") for key in self.shape.doubtful):
            self._note(place, exact, error)
        return self._stand_in(exact) or self._take_out(exact)

    def _note(self, key: str, exact: str, error: InputFileError) -> None:
        """Note an error of the reader, with what was found and what is allowed there."""
        details = found_and_allowed(self.document, key if "unknown key" in error.message else exact, error.message)
        message = f"{error.message} {details or error.remedy}".strip()
        self._add(key, exact, "schema", message)

    def _culprits(self, key: str) -> Iterator[str]:
        """Yield the entries of a table, or items of a list, that the reader refuses: alone in it, each is refused."""
        try:
            parent, name = find(self.document, key)
        except KeyError:
            return
        whole = parent[name]
        entries = list(whole.items()) if isinstance(whole, dict) else list(enumerate(whole))
        for entry, value in entries:
            parent[name] = {entry: value} if isinstance(whole, dict) else [value]
            try:
                parse_spec(self.document, self.file)
            except InputFileError as error:
                if error.place.startswith(f"{self.file}: {key}["):
                    yield f"{key}.{entry}" if isinstance(whole, dict) else f"{key}[{entry}]"
            finally:
                parent[name] = whole

    def _take_out(self, key: str) -> bool:
        """Take an entry out; return whether it was there."""
        try:
            parent, name = find(self.document, key)
        except KeyError:
            return False
        del parent[name]
        self.shape.doubtful.add(key)
        return True

    def _stand_in(self, key: str) -> bool:
        """Put something in the place of a required key of the file; return whether there is something to put."""
        stand_ins = {**_STAND_INS, "name": storage.stem_of(self.file)}
        if not isinstance(self.document, dict) or key not in stand_ins or key in self.shape.doubtful:
            return False
        given, stand_in = self.document.get(key), copy.deepcopy(stand_ins[key])
        if isinstance(given, dict) and isinstance(stand_in, dict):
            stand_in = {**given, **stand_in}
        self.document[key] = stand_in
        self.shape.doubtful.add(key)
        return True


def text_of(error: PerfModelError) -> str:
    """Return an error without its place."""
    return f"{error.message} {error.remedy}".strip()
