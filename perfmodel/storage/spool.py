"""Standard input, and pipes of the shell (``<(COMMAND)``), as files: they are copied once, since readers read twice.

The copy is removed when the process ends. Its name is ``stdin`` with the suffix that its content suggests, since
documents are told apart by their suffix.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import InputFileError
from perfmodel.storage import gzipped
from perfmodel.storage.place import AnyPath
from perfmodel.storage.recoded import in_utf8

if TYPE_CHECKING:
    import tempfile

#: what a command line calls standard input
STDIN = "-"
STEM = "stdin"
_OTHER_NAMES = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
#: pipes that the shell makes; a named pipe may have no writer, so that opening it never returns
_PIPES = re.compile(r"^(/dev/fd|/proc/self/fd)/\d+$")
#: more than this is no file, but a stream without an end [B]
MOST_BYTES = 20_000_000_000
_BLOCK_BYTES = 1 << 20
#: bytes that show what a text is
_HEAD_BYTES = 1 << 20
_SQLITE, _PARQUET = b"SQLite format 3\0", b"PAR1"
_TOML_TABLE = re.compile(rb"\[\[?\s*[A-Za-z_][\w.\"-]*\s*\]\]?\s*(#.*)?$")
_YAML = re.compile(rb"(---\s*$|- \S|[A-Za-z_][\w-]*:(\s|$))")

#: the name of a stream -> its copy
_copies: dict[str, str] = {}
#: the folder of the copies; removed with it when the process ends
_folders: list[tempfile.TemporaryDirectory[str]] = []


def is_stream(path: AnyPath) -> bool:
    """Whether a path is standard input, or a pipe of the shell."""
    if is_stdin(path):
        return True
    text = os.fspath(path)
    with contextlib.suppress(OSError):
        return bool(_PIPES.match(text)) and stat.S_ISFIFO(os.stat(text).st_mode)
    return False


def is_stdin(path: AnyPath) -> bool:
    """Whether a path is standard input, under any of its names."""
    text = os.fspath(path)
    return text == STDIN or text in _OTHER_NAMES


def is_copy(path: AnyPath) -> bool:
    """Whether a path is the copy of a stream."""
    return os.fspath(path) in _copies.values()


def copy_of(path: AnyPath) -> str:
    """Return the file with the content of a stream, which is read the first time.

    Raises
    ------
    InputFileError
        When standard input is closed or a terminal, or the stream cannot be read, or is too long.
    """
    text = STDIN if is_stdin(path) else os.fspath(path)
    if text not in _copies:
        import tempfile

        if not _folders:
            _folders.append(tempfile.TemporaryDirectory(prefix="perfmodel-"))
        _copies[text] = _copied(text, Path(_folders[0].name) / f"{STEM}{len(_copies) or ''}")
    return _copies[text]


def told(value: Any) -> Any:
    """Return a text, or what holds texts, with the names of streams in the place of those of their copies.

    Parameters
    ----------
    value : a text, a mapping or a list, or anything else, which stays as it is.
    """
    if not _copies:
        return value
    if isinstance(value, str):
        for stream, copy in _copies.items():
            value = value.replace(copy, stream)
        return value
    if isinstance(value, Mapping):
        return {key: told(inner) for key, inner in value.items()}
    return type(value)(map(told, value)) if type(value) in (list, tuple) else value


def _copied(text: str, target: Path) -> str:
    """Copy a stream to a file, and return its name with a suffix."""
    descriptor = 0 if text == STDIN else int(text.rpartition("/")[2])
    if text == STDIN and (sys.stdin is None or os.isatty(0)):
        what = "closed" if sys.stdin is None else "a terminal"
        raise InputFileError(f"standard input is {what}.", place=text, remedy="Write: COMMAND | perfmodel ...")
    try:
        size = 0
        with open(os.dup(descriptor), "rb") as stream, target.open("wb") as file:
            while block := stream.read(_BLOCK_BYTES):
                size += len(block)
                if size > MOST_BYTES:
                    raise InputFileError(f"has more than {MOST_BYTES / 1e9:g} GB.", place=text)
                file.write(block)
    except OSError as error:
        raise InputFileError(f"cannot be read: {error.strerror or error}.", place=text) from None
    named = target.with_name(target.name + _suffix(target))
    target.rename(named)
    return str(named)


def _suffix(file: Path) -> str:
    """Return the suffix for the content of a file."""
    with open(in_utf8(str(file)), "rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if not head.startswith(gzipped.MAGIC):
        return suffix_for(head)
    with contextlib.suppress(zlib.error):
        head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
    return f"{suffix_for(head)}.gz"


def suffix_for(head: bytes) -> str:
    r"""Return the suffix of a file with this beginning: of a document, of lines of JSON, else of a table.

    >>> suffix_for(b'{"a": 1}'), suffix_for(b'{"a": 1}\n{"a": 2}'), suffix_for(b"name,time_s"), suffix_for(b"a = 1")
    ('.json', '.jsonl', '.csv', '.toml')
    """
    if head.startswith(_SQLITE):
        return ".sqlite"
    if head.startswith(_PARQUET):
        return ".parquet"
    lines = [line.strip() for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()]
    lines = [line for line in lines if line and not line.startswith(b"#")]
    first = lines[0] if lines else b""
    if first.startswith(b"{"):
        several = len(lines) > 1 and first.endswith(b"}") and lines[1].startswith(b"{")
        return ".jsonl" if several else ".json"
    if _TOML_TABLE.match(first) or _is_toml(head):
        return ".toml"
    if first.startswith(b"["):
        return ".json"
    return ".yaml" if _YAML.match(first) else ".csv"


def _is_toml(head: bytes) -> bool:
    """Whether a text is TOML that has values; a table of a profiler is none."""
    import tomllib

    with contextlib.suppress(ValueError):
        return bool(tomllib.loads(head.decode("utf-8-sig")))
    return False
