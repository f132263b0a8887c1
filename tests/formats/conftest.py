"""Damage to files, for the fuzz tests of the readers."""

import math
import random

import pytest

from perfmodel.errors import PerfModelError

PIECES = [
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\t",
    b"|",
    b"  ",
    b"-",
    b"---  ---",
    b"%",
    b"(",
    b"n/a",
    b"nan",
    b"1e999",
    b"\xff",
]
PIECES += [
    b"\0",
    b"[",
    b"{",
    b"9" * 400,
    b"-1",
    b"1.234.567",
    b"\xc2\xa0",
    b"\x0c",
    b"Name",
    b"Self CPU",
    b"us",
    b"Inf",
]


@pytest.fixture(scope="session")
def survives(tmp_path_factory):
    """Check that a reader makes a profile of a file or complains of it: ``survives(reader, data)``."""
    path = tmp_path_factory.mktemp("fuzz") / "x.txt"

    def check(reader, data):
        path.write_bytes(data)
        assert isinstance(reader.sniff(data[:65536]), bool)
        complaint = ""
        try:
            profile = reader.read(path)
        except PerfModelError as error:
            complaint = str(error)
        if complaint:
            assert complaint.startswith(str(path))
            return
        assert profile.total_time_s > 0
        assert all(math.isfinite(entry.time_s) and entry.time_s >= 0 for entry in profile.entries)

    return check


@pytest.fixture(scope="session")
def damaged():
    """Return one of some texts with pieces of it replaced, removed or cut off: ``damaged(texts, seed)``."""

    def damage(texts, seed):
        random_ = random.Random(seed)
        data = bytearray(random_.choice(texts).encode())
        for _ in range(random_.randrange(1, 8)):
            at = random_.randrange(len(data) + 1)
            data[at : at + random_.choice((0, 1, 5, 40))] = random_.choice(PIECES)
        return bytes(data[: random_.randrange(len(data) + 1)] if random_.random() < 0.2 else data)

    return damage
