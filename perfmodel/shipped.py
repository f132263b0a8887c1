"""Files of constants that come with perfmodel, read as the types that describe them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from perfmodel.errors import InputFileError
from perfmodel.files import read_document, shipped_folder

_Kind = TypeVar("_Kind")


def read_shipped(name: str, kind: type[_Kind]) -> _Kind:
    """Return what a file says, as a type of msgspec.

    Parameters
    ----------
    name : folder of `shipped_folder` and path in it, as "engine_specs/serving/defaults/releases.toml".
    kind : the type, whose fields are the keys of the file.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key is unknown, missing or of the wrong type.
    """
    folder, _, inside = name.partition("/")
    path = shipped_folder(folder) / inside
    try:
        return msgspec.convert(read_document(path), kind)
    except msgspec.ValidationError as error:
        raise InputFileError(f"{error}.", place=str(path)) from None
