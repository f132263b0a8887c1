"""Reading structured documents (TOML, YAML, JSON) and writing files atomically.

perfmodel reads a user's documents through `read_document` and `read_text`, so that a missing file, a directory, an
empty file and a syntax error get the same kind of message everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from perfmodel import storage
from perfmodel.errors import InputFileError, UsageError
from perfmodel.storage import gzipped
from perfmodel.storage.foreign import foreign
from perfmodel.storage.spool import is_copy

#: what is wrong where one of two values would be lost
_TWICE = "the key {!r} stands twice"
_PACKAGE = Path(__file__).resolve().parent
DOCUMENT_SUFFIXES = (".toml", ".yaml", ".yml", ".json")
#: first bytes that tell what a file is
_HEAD_BYTES = 1024
#: JSON above this size is a trace, no deployment or plan
_LARGEST_PLAN_BYTES = 100_000
#: larger texts are refused: their readers hold them in memory several times over, and tables of profilers have a few MB
LARGEST_TEXT_BYTES = 1_000_000_000


@functools.cache
def shipped_folder(name: str = "hardware_specs") -> Path:
    """Return a folder of spec files that comes with perfmodel: in the package, or in the checkout.

    Parameters
    ----------
    name : "hardware_specs" for machines, "engine_specs" for training frameworks and serving engines, "model_specs" for
        models.
    """
    packaged = _PACKAGE / f"_{name}"
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, plain or gzip, without a byte order mark: in UTF-8, or in UTF-16 with a mark.

    Raises
    ------
    InputFileError
        When the file is missing, a directory, a pipe or a device, unreadable, empty, a damaged gzip file, larger than
        `LARGEST_TEXT_BYTES`, of a kind that perfmodel does not read, or no such text.
    """
    place = storage.one(path)
    check_regular(place)
    try:
        with open(storage.local(place), "rb") as stream:
            data = stream.read(LARGEST_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise InputFileError(storage.NO_FILE, place=place, remedy="Check the path.") from None
    except IsADirectoryError:
        raise InputFileError(
            "this is a directory; a file is needed.", place=place, remedy="Name a file in it."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputFileError(f"cannot be read: {reason}.", place=place) from None
    if data.startswith(gzipped.MAGIC):
        data = _unpacked(data, place)
    refuse_foreign(place, data[:_HEAD_BYTES])
    check_text_size(len(data), place)
    if not data.strip():
        raise InputFileError("the file is empty.", place=place, remedy="Check the path.")
    if b"\0" in data:
        raise InputFileError("contains NUL bytes: it is not a text file.", place=place)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputFileError(f"line {line} is not UTF-8 text.", place=place, remedy="Save the file as UTF-8.") from None


def opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading, unpacked if it is gzip.

    Raises
    ------
    OSError
        When the file cannot be opened.
    """
    file = storage.local(path)
    with contextlib.ExitStack() as closing:
        stream = closing.enter_context(open(file, "rb"))
        if not stream.peek(len(gzipped.MAGIC)).startswith(gzipped.MAGIC):
            closing.pop_all()
            return stream
    import gzip

    return cast(IO[bytes], gzip.open(file))


def refuse_foreign(path: str | os.PathLike[str], head: bytes) -> None:
    """Refuse a file that has to be exported, unpacked or saved in another way first, by its name and first bytes.

    Raises
    ------
    InputFileError
        When it is one (`perfmodel.storage.foreign`), with what makes a readable file of it.
    """
    found = foreign(path, head)
    if found is not None:
        raise InputFileError(found.what, place=os.fspath(path), remedy=found.remedy)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse pipes and devices: some never end, and a file is first recognised by its beginning, then read again.

    Raises
    ------
    InputFileError
        When the file is there, and neither a regular file nor a directory.
    """
    if storage.is_remote(path):
        return
    try:
        mode = os.stat(storage.one(path)).st_mode
    except (OSError, ValueError):
        return  # reading the file raises a better message
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputFileError(
            "is a pipe or a device, which cannot be read twice.",
            place=os.fspath(path),
            remedy="Write it to a file first: COMMAND > FILE.",
        )


def check_text_size(size: int, place: str, most: int | None = None) -> None:
    """Refuse a text that is too large to be held in memory, as a small gzip file may be once it is unpacked.

    Raises
    ------
    InputFileError
        When it is larger than ``most``, by default `LARGEST_TEXT_BYTES` [B].
    """
    most = LARGEST_TEXT_BYTES if most is None else most
    if size > most:
        raise InputFileError(
            f"is larger than {most / 1e6:.4g} MB, unpacked.",
            place=place,
            remedy="Export a summary, or a shorter run.",
        )


def _unpacked(data: bytes, place: str) -> bytes:
    """Return the content of a gzip file."""
    try:
        if len(data) * gzipped.LARGEST_RATIO > LARGEST_TEXT_BYTES:
            check_text_size(gzipped.unpacked_size(data, LARGEST_TEXT_BYTES), place)
        content = gzipped.unpacked(data, LARGEST_TEXT_BYTES)
    except (EOFError, OSError, zlib.error) as error:
        raise InputFileError(
            f"is not a whole gzip file: {str(error).rstrip('.')}.",
            place=place,
            remedy="Copy it again; it may be cut off.",
        ) from None
    assert content is not None
    return content


def read_document(
    path: str | os.PathLike[str], suffixes: Sequence[str] = DOCUMENT_SUFFIXES, *, remedy: str = ""
) -> Any:
    """Parse a TOML, YAML or JSON file into plain Python data; the suffix chooses the format, ``.gz`` behind it aside.

    Parameters
    ----------
    path : the file.
    suffixes : those that a document of this kind may have.
    remedy : what to do about a file with another suffix, in place of a list of them.

    Raises
    ------
    InputFileError
        When the file cannot be read, has another suffix, or its syntax is wrong (with the line).
    """
    place = storage.one(path)
    text = read_text(place)
    suffix = storage.suffix_of(storage.name_of(place).removesuffix(".gz"))
    if suffix not in suffixes:
        if is_copy(place):  # its suffix is what its content looks like
            formats = " or ".join(dict.fromkeys(map(_format_name, suffixes)))
            raise InputFileError(f"does not look like {formats}.", place=place, remedy=remedy)
        what = f"has the unknown suffix {suffix!r}" if suffix else "has no suffix"
        raise InputFileError(f"{what}.", place=place, remedy=remedy or f"Allowed: {', '.join(suffixes)}.")
    try:
        return _PARSERS[suffix](text)
    except RecursionError:
        raise InputFileError("is nested too deeply to be read.", place=place) from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputFileError(f"is not valid {_format_name(suffix)}: {reason}.", place=place) from None


def _format_name(suffix: str) -> str:
    return suffix[1:].upper().replace("YML", "YAML")


def holds_keys(path: str | os.PathLike[str], keys: frozenset[str]) -> bool:
    """Return whether a file is a small document whose top level has some keys; a broken or missing one has none.

    Raises
    ------
    InputFileError
        When a pattern matches no file, or more than one.
    """
    path = storage.one(path)
    suffix = storage.suffix_of(path)
    if suffix not in DOCUMENT_SUFFIXES or not storage.is_file(path):
        return False
    if suffix == ".json" and storage.size(path) > _LARGEST_PLAN_BYTES:
        return False
    try:
        document = read_document(path)
    except InputFileError:
        return False
    return isinstance(document, dict) and keys <= set(document)


def _parse_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _parse_yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads plain data; a key that stands twice in one mapping is an error, as in TOML."""

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
                if name in seen:
                    raise yaml.MarkedYAMLError(problem=_TWICE.format(key.value), problem_mark=key.start_mark)
                seen.add(name or key)
            return node

    try:
        return yaml.load(text, Loader)  # noqa: S506 -- a safe one
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _parse_json(text: str) -> Any:
    import json

    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; a key that stands twice in it is an error, unless both have one value."""
    document = dict(pairs)
    if len(document) < len(pairs):
        for key, value in pairs:
            if value != document[key]:
                raise ValueError(_TWICE.format(key))
    return document


_PARSERS = {".toml": _parse_toml, ".yaml": _parse_yaml, ".yml": _parse_yaml, ".json": _parse_json}


def toml_string(value: str) -> str:
    """Return a text as a TOML basic string: JSON's escapes are TOML's, but for DEL, which JSON leaves as it is."""
    import json

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_atomic(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file so that a killed process leaves the old file or the new one, never a part of one.

    ``-`` writes to standard output. A pipe or a device is written in place, since it cannot be replaced. A file of a
    remote store is put there in one step.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    # A name from the command line may contain bytes that are not UTF-8; they are written as escapes.
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if os.fspath(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with written_atomic(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def written_atomic(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield what takes the content of a file, a piece at a time, as `write_atomic` writes it.

    Where the block raises, the old file stays. What goes to a remote store, a pipe or a device is held in memory until
    it is whole.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    if not os.fspath(path):
        raise UsageError("the name of the file is empty.", place="output")
    held = io.BytesIO()
    if storage.is_remote(path):
        yield held
        storage.write(path, held.getvalue())
        return
    begun = False
    try:
        target = Path(storage.place_of(path))
        in_place = target.exists() and not target.is_file() and not target.is_dir()
        with contextlib.nullcontext(held) if in_place else _replacing(target) as stream:
            begun = True
            yield stream
        if in_place:
            target.write_bytes(held.getvalue())
    except (OSError, ValueError) as error:
        if begun and isinstance(error, ValueError):  # of the block
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot be written: {reason}.",
            place=os.fspath(path),
            remedy="Choose a file in a folder that exists and is writable.",
        ) from None


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """Let a file beside ``target`` be written, flush it to the disk, then rename over it (through a link, not over it).

    Raises
    ------
    OSError
        When that is impossible.
    """
    if target.is_dir():
        raise IsADirectoryError(21, "it is a directory")
    target = Path(os.path.realpath(target))
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    import tempfile

    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    """Return the process umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
