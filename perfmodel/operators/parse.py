"""Operators as text: on the command line, in files, with ranges.

    gemm m=4096 n=4096 k=4096 dtype=fp16 layer_norm rows=128 cols=4096
    m=64..8192        doubles from 64 to 8192
    m=64..512+64      steps by 64
    m=64/96/128       a list
    dtype=bf16/fp8    an operator for each; so of flags and other words

Several ranges in one operator span their product.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any

import numpy as np

from perfmodel import storage
from perfmodel.core.lists import list_items
from perfmodel.errors import InputFileError, PerfModelError, UsageError, expect, unknown_name
from perfmodel.files import DOCUMENT_SUFFIXES, read_document
from perfmodel.operators import load_operator, operator_classes, operator_names, spelled
from perfmodel.operators.base import Operator, wrong_dimensions
from perfmodel.operators.checks import LARGEST_SIZE, bytes_in

#: the most points that the ranges of one operator may span; with more, a typing error fills the memory
MOST_POINTS = 1_000_000
#: kinds of dimensions that an operator has one of, whatever its other sizes
_CHOSEN = ("dtype", "choice", "flag")
#: keys of a file under which its list of operators may stand
_LIST_KEYS = ("operators", "ops", "operator", "op")


def parse_operators(tokens: Sequence[str] | str) -> list[Operator]:
    """Return the operators in the words of a command line, or in a text of such words.

    A word is an operator's name, a ``dimension=value`` of the operator before it, or a file with a list of operators.
    An operator with ranges becomes one operator with array dimensions, one with a list of dtypes, flags or other
    choices (dtype=bf16/fp8) an operator for each.

    Raises
    ------
    UsageError
        When a word is none of these, a dimension is unknown, missing or given twice, or a value is wrong.
    InputFileError
        When a file cannot be read or its content is wrong.
    """
    if isinstance(tokens, str):
        tokens = tokens.split()
    remedy = "Write pm.parse_operators('gemm m=4096 n=4096 k=4096')."
    expect(tokens, list | tuple, "list of words", place="tokens", remedy=remedy)
    operators: list[Operator] = []
    name, values = "", dict[str, str]()
    for token in tokens:
        expect(token, str, "word", place="tokens", remedy=remedy)
        key, equals, value = token.partition("=")
        if equals and key.isidentifier():
            if not name:
                raise UsageError(f"no operator comes before {token!r}.", remedy="Write: gemm m=4096 n=4096 k=4096.")
            if key in values:
                raise UsageError(f"{key} is given twice.", place=name)
            values[key] = value
            continue
        # the word first: after `m= 4096` the mistake is 4096, and not that n and k are missing
        following = "" if _is_file(token) else _operator_name(token, after=name)
        if name:
            operators.extend(build_operator(name, chosen) for chosen in _each_choice(name, values))
        name, values = following, {}
        if not name:
            operators.extend(read_operators(token))
    if name:
        operators.extend(build_operator(name, chosen) for chosen in _each_choice(name, values))
    if not operators:
        raise UsageError("no operator is given.", remedy="Write: gemm m=4096 n=4096 k=4096 dtype=fp16, or name a file.")
    return operators


def _each_choice(name: str, values: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the dimensions of an operator, once for each of the words of a list that are no sizes: dtype=bf16/fp8."""
    dimensions = load_operator(name).dimensions()
    lists = {
        key: value.split("/")
        for key, value in values.items()
        if "/" in value and key in dimensions and dimensions[key]["kind"] in _CHOSEN
    }
    return [{**values, **dict(zip(lists, chosen, strict=True))} for chosen in itertools.product(*lists.values())]


def read_operators(path: str | os.PathLike[str]) -> list[Operator]:
    """Return the operators of a TOML, YAML or JSON file.

    The file is a list of ``{op = "gemm", m = 4096, ..., count = 1, name = "label"}``, or a table with that list as
    ``operators``. A table ``defaults`` beside it sets the dimensions that it names in every operator that has them.

    Raises
    ------
    InputFileError
        When the file cannot be read, or an entry is wrong; the message has the number of the entry.
    """
    document = read_document(path)
    place = os.fspath(path)
    entries, defaults = _entries(document, place)
    operators = []
    for number, entry in enumerate(entries, start=1):
        where = f"{place}: operator {number}"
        try:
            operators.append(_from_entry(entry, defaults, where))
        except InputFileError:
            raise
        except PerfModelError as error:
            inner = f" ({error.place})" if error.place else ""
            raise InputFileError(error.message, place=f"{where}{inner}", remedy=error.remedy) from None
    _check_defaults(defaults, operators, f"{place}: defaults")
    return operators


def _check_defaults(defaults: Mapping[str, Any], operators: Sequence[Operator], place: str) -> None:
    """Refuse a default that no operator has, in this file or elsewhere: nobody would see that it does not apply."""
    own = {key for op in operators for key in op.dimensions()}
    if set(defaults) <= own:  # importing all operators takes a while
        return
    known = own.union(*(kind.dimensions() for kind in operator_classes().values()))
    for key in defaults:
        if key not in known:
            raise unknown_name("dimension", str(key), own, place=place, kind=InputFileError)


def _entries(document: Any, place: str) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the list of operators in a document, and the defaults beside it."""
    defaults: Mapping[str, Any] = {}
    if isinstance(document, Mapping):
        defaults = document.get("defaults", {})
        keys = [key for key in _LIST_KEYS if isinstance(document.get(key), list)]
        extra = sorted(set(map(str, document)) - {"defaults", *keys})
        if not keys and "op" in document:
            return [document], {}
        if len(keys) != 1 or extra or not isinstance(defaults, Mapping):
            content = ", ".join(map(repr, extra or document)) or "an empty table"
            raise InputFileError(
                f"found {content} instead of a list of operators.",
                place=place,
                remedy="Write [[operators]] tables, each with op and its dimensions; [defaults] may stand beside them.",
            )
        document = document[keys[0]]
    if not isinstance(document, list) or not document:
        raise InputFileError(
            "contains no list of operators.", place=place, remedy='Write a list of {op = "gemm", m = 4096, ...}.'
        )
    return document, defaults


def _from_entry(entry: Any, defaults: Mapping[str, Any], where: str) -> Operator:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("op"), str):
        raise InputFileError("the key 'op' with the operator's name is missing.", place=where)
    name = _operator_name(entry["op"])
    dimensions = load_operator(name).dimensions()
    values = {key: value for key, value in defaults.items() if key in dimensions}
    return build_operator(name, {**values, **{str(k): v for k, v in entry.items() if k != "op"}})


def build_operator(name: str, values: Mapping[str, Any]) -> Operator:
    """Return an operator from its name and its dimensions as text or plain values.

    Raises
    ------
    UsageError
        When a dimension is unknown or missing, or a value is wrong.
    """
    kind = load_operator(name)
    dimensions = kind.dimensions()
    for key in values:
        if key not in dimensions:
            raise wrong_dimensions(kind, values)
    parsed = {key: _value(name, key, value, dimensions[key]["kind"]) for key, value in values.items()}
    return kind(**_spread(name, parsed))


def _value(op: str, key: str, value: Any, kind: str) -> Any:
    """Return a value as its kind of dimension needs it: texts are parsed, other values stay as they are."""
    if kind == "size":
        if isinstance(value, list):
            return [_size(op, key, item) for item in value]
        return _sizes(op, key, value) if isinstance(value, str) else value
    if not isinstance(value, str):
        return value
    if kind == "flag":
        lowered = value.lower()
        if lowered not in _FLAGS:
            raise UsageError(f"{key}={value} is neither true nor false.", place=op)
        return _FLAGS[lowered]
    if kind == "number":
        return _number(op, key, value)
    return _size(op, key, value) if kind == "count" else value


def _number(op: str, key: str, text: str) -> float:
    """Return the number in a text."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{key}={text!r} is not a number.", place=op, remedy=f"Write {key}=1.2.") from None


_FLAGS = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


def parse_sizes(text: str, *, place: str, key: str = "value", least: float = 1) -> list[float]:
    """Return the numbers of a text: one, a doubling range 1..512, a stepped one 64..512+64, or a list 1/2/4.

    Ranges start at ``least``, which is above 0, or later.

    Raises
    ------
    UsageError
        When the text is none of these, or the range does not rise.

    >>> parse_sizes("1..8", place="--tp"), parse_sizes("0.5/2", place="--qps")
    ([1, 2, 4, 8], [0.5, 2])
    """
    sizes = _sizes(place, key, text, least)
    return sizes if isinstance(sizes, list) else [sizes]


def _sizes(op: str, key: str, text: str, least: float = 1) -> Any:
    """Return one size, or the list of sizes in a range or in a list."""
    if "/" in text:
        return [_size(op, key, part) for part in list_items(text, "/", place=op)]
    if ".." not in text:
        return _size(op, key, text)
    first_text, _, rest = text.partition("..")
    last_text, plus, step_text = rest.partition("+")
    for end, size in (("first size", first_text), ("last size", last_text), *([("step", step_text)] if plus else [])):
        if not size.strip():
            remedy = f"Write {op} 1..8, say." if op.startswith("--") else f"Write it as {key}=64..8192 or 64..512+64."
            raise UsageError(f"{key}={text} has no {end}.", place=op, remedy=remedy)
    first, last = _size(op, key, first_text), _size(op, key, last_text)
    if not least <= first <= last <= LARGEST_SIZE:
        raise UsageError(
            f"{key}={text} is not a rising range within {least:g} to 2^53.",
            place=op,
            remedy=f"Write {op} 1..8, say." if op.startswith("--") else f"Write it as {key}=64..8192.",
        )
    if plus:
        step = _size(op, key, step_text)
        if not step >= least:
            raise UsageError(
                f"{key}={text} has a step below {least:g}.",
                place=op,
                remedy=f"Write {key}={first_text}..{last_text}+{first_text}, say.",
            )
        whole = all(isinstance(size, int) for size in (first, last, step))
        # ten steps of 0.1 are not quite 1 in binary
        steps = (last - first) // step if whole else math.floor((last - first) / step + 1e-9)
        _limit_points(op, steps + 1)
        return [round(first + index * step, 9) for index in range(int(steps) + 1)]
    doubled = itertools.takewhile(lambda size: size <= last, (first * 2**power for power in itertools.count()))
    return list(doubled)


def _size(op: str, key: str, value: Any) -> Any:
    """Return the number in a text: plain, with an exponent, or, for the dimension bytes, with a unit."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        pass
    if "," in text:
        listed = "/".join(part.strip() for part in text.split(",") if part.strip())
        raise UsageError(
            f"{key}={text!r} has a comma.",
            place=op,
            remedy=f"Write a list as {key}={listed}, and a number without commas.",
        )
    if key == "bytes" and any(map(str.isdigit, text)):
        return bytes_in(op, text)
    # how often an operator is called is no size that a sweep goes through
    remedy = "Write one, as count=48." if key == "count" else "Write 4096, 4096..8192, 64..512+64 or 64/96/128."
    raise UsageError(f"{key}={text!r} is not a whole number.", place=op, remedy=remedy)


def _spread(op: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the dimensions with lists replaced by flat arrays that span the product of the lists."""
    axes = {key: value for key, value in values.items() if isinstance(value, list)}
    if not axes:
        return values
    points = 1
    for value in axes.values():
        points *= len(value)
    _limit_points(op, points)
    try:
        grids = np.meshgrid(*(np.asarray(value, dtype=np.float64) for value in axes.values()), indexing="ij")
    except (TypeError, ValueError, OverflowError):
        raise UsageError("a list of sizes contains a value that is not a number.", place=op) from None
    return {**values, **{key: grid.ravel() for key, grid in zip(axes, grids, strict=True)}}


def _limit_points(op: str, points: float) -> None:
    if points > MOST_POINTS:
        raise UsageError(
            f"the ranges span {points:.3g} points; at most {MOST_POINTS} are allowed.",
            place=op,
            remedy="Use larger steps, or call perfmodel.sweep with arrays.",
        )


def _operator_name(word: str, after: str = "") -> str:
    """Return the operator that a word names; ``after`` is the operator that the words before it describe, if any."""
    name = spelled(word)
    if name in operator_names():
        return name
    dimensions = load_operator(after).dimensions() if after else {}
    if dimensions and (word in dimensions or not word.isidentifier()):
        required = [key for key, rules in dimensions.items() if rules["default"] is MISSING]
        keys = [word] if word in dimensions else required
        raise UsageError(
            f"{word!r} is no dimension with its value.",
            place=after,
            remedy=f"Write {' '.join(f'{key}=VALUE' for key in keys)}, without spaces around '='.",
        )
    first, _, others = word.partition(" ")
    if others and spelled(first) in operator_names():
        raise UsageError(
            f"{word!r} is one word, with spaces in it.",
            place=spelled(first),
            remedy=f"Write operator and dimensions without quotes around all of them: {word}.",
        )
    raise unknown_name("operator", word, operator_names())


def _is_file(token: str) -> bool:
    """Return whether a word is a file: by its suffix, its folders, or because it exists and names no operator."""
    if storage.suffix_of(token) in DOCUMENT_SUFFIXES or os.sep in token:
        return True
    return os.path.exists(token) and spelled(token) not in operator_names()
