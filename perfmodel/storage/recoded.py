"""Texts in UTF-16 or UTF-32, as PowerShell's ``>`` and spreadsheets write them: they are read from a copy in UTF-8.

A text is recognised by its byte order mark. The copies are removed when the process ends.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tempfile

#: byte order mark -> codec that takes it off; UTF-32's begins with that of UTF-16
_CODECS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_MARK_BYTES = max(map(len, _CODECS))
_BLOCK_CHARACTERS = 1 << 20

#: name, time of the last change [ns] and size [B] of a text -> its copy
_copies: dict[tuple[str, int, int], str] = {}
#: the folder of the copies
_folders: list[tempfile.TemporaryDirectory[str]] = []


def codec_of(head: bytes) -> str:
    """Return the codec of a text by its first bytes, "" for one without such a mark."""
    return next((codec for mark, codec in _CODECS.items() if head.startswith(mark)), "")


def in_utf8(file: str) -> str:
    """Return a file of this machine, or its copy in UTF-8 where it is text in UTF-16 or UTF-32.

    What has no such mark, cannot be read, or is no text behind its mark, is returned as it is; so is a pipe, of which
    what is read is gone.
    """
    try:
        state = os.stat(file)
        version = (file, state.st_mtime_ns, state.st_size)
        codec = _codec_at(*version) if stat.S_ISREG(state.st_mode) else ""
    except (OSError, ValueError):
        return file
    if not codec:
        return file
    with contextlib.suppress(UnicodeDecodeError):
        if version not in _copies:
            _copies[version] = _copied(file, codec)
        return _copies[version]
    return file


@functools.lru_cache(64)
def _codec_at(file: str, changed_ns: int, size: int) -> str:
    """Return the codec of a version of a file, which whoever reads a profile asks for several times.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    with open(file, "rb") as stream:
        return codec_of(stream.read(_MARK_BYTES))


def _copied(file: str, codec: str) -> str:
    import tempfile

    if not _folders:
        _folders.append(tempfile.TemporaryDirectory(prefix="perfmodel-"))
    # the suffix stays, since documents are told apart by it
    copy = Path(_folders[0].name) / f"{len(_copies)}{''.join(Path(file).suffixes[-2:])}"
    with open(file, encoding=codec, newline="") as text, open(copy, "w", encoding="utf-8", newline="") as written:
        while block := text.read(_BLOCK_CHARACTERS):
            written.write(block)
    return str(copy)
