"""Files that people pass and perfmodel does not read: what they are, and what makes a readable file of them."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from perfmodel.storage.place import AnyPath, place_of, suffix_of
from perfmodel.storage.recoded import codec_of

#: first bytes -> the packer that wrote them (the formats' own specifications), and the command that unpacks it
_PACKED = {
    b"\xfd7zXZ\x00": ("xz", "unxz"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"),
    b"PK\x03\x04": ("zip", "unzip"),
}
#: mark and place of a tar archive (POSIX.1-1988)
_TAR, _TAR_AT = b"ustar", 257
#: sheets of a spreadsheet program, which are zip files as well
_SHEETS = (".xlsx", ".xlsm", ".ods", ".xls", ".numbers")
#: Nsight Systems' own files, and those of its releases before 2021.4; they have no public format
_NSYS = (".nsys-rep", ".qdrep")
#: Nsight Compute's own files by name and first bytes
_NCU, _NCU_MAGIC = ".ncu-rep", b"NVR\x00"
#: traces of AMD's profilers in forms other than CSV: what stands in the first bytes of each
_ROCPROF_JSON, _ROCPROF_EVENTS = b'"rocprofiler-sdk-tool"', (b'"traceEvents"', b'"BeginNs"', b'"EndNs"')
_PERFETTO = ".pftrace"
_AS_CSV = "Write CSV: rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --output-format csv -- PROGRAM"
#: so many bytes at the start tell that every second one is NUL, as in UTF-16 of Latin letters without a mark
_ALTERNATING = 16


class Foreign(NamedTuple):
    """What a file is, as the end of "FILE ...", and what to do about it."""

    what: str
    remedy: str


def foreign(path: AnyPath, head: bytes) -> Foreign | None:
    """Return what a file is if perfmodel reads no such files, None for others.

    Parameters
    ----------
    path : the file.
    head : its first bytes, some 512 or more, unpacked if it is gzip.
    """
    suffix = suffix_of(path)
    if suffix in _NSYS:
        return Foreign("is a report of Nsight Systems.", f"Export it first: nsys export --type sqlite {_quoted(path)}")
    if suffix == _NCU or head.startswith(_NCU_MAGIC):
        command = f"ncu --csv --page raw --import {_quoted(path)} > FILE.csv"
        return Foreign("is a report of Nsight Compute.", f"Export it first: {command}")
    if suffix == _PERFETTO:
        return Foreign("is a binary trace of Perfetto.", _AS_CSV)
    if _ROCPROF_JSON in head:
        return Foreign("is the JSON of rocprofv3.", _AS_CSV)
    if all(key in head for key in _ROCPROF_EVENTS):
        return Foreign("is the JSON of rocprof.", "Give results.csv or results.stats.csv, which stand beside it.")
    if suffix in _SHEETS and b"\0" in head:
        return Foreign("is a spreadsheet.", "Save it as CSV first.")
    for magic, (packer, command) in _PACKED.items():
        if head.startswith(magic):
            return Foreign(f"is packed with {packer}.", f"Unpack it first: {command} {_quoted(path)}")
    if head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        return Foreign("is a tar archive.", f"Unpack it first: tar xf {_quoted(path)}")
    encoding = _encoding(head)
    return Foreign(f"is {encoding} text.", "Save it as UTF-8.") if encoding else None


def _quoted(path: AnyPath) -> str:
    """Return the text of a place as a shell takes it."""
    return shlex.quote(place_of(path))


def _encoding(head: bytes) -> str:
    """Return the encoding of a text that is not UTF-8 by its mark or its zeros, "" for others."""
    if (codec := codec_of(head)) and b"\0" in head:
        return codec.upper()
    start = head[:_ALTERNATING]
    for zeros, letters in ((start[0::2], start[1::2]), (start[1::2], start[0::2])):
        if len(start) == _ALTERNATING and not any(zeros) and letters.isascii() and all(letters):
            return "UTF-16"
    return ""
