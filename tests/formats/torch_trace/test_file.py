"""Traces in blocks: blocks end between events, stay small, and an endless event is refused."""

import gzip
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.formats.detect import STREAM_ABOVE_BYTES, read_profile
from perfmodel.formats.torch_trace import blocks, file
from perfmodel.formats.torch_trace.file import Source


def kernel(number, **arguments):
    return {"ph": "X", "cat": "kernel", "name": "k", "ts": number, "dur": 1, "args": {"stream": 7, **arguments}}


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    """Return the number of events in each piece of a trace: ``pieces(events, block_bytes)``."""

    def call(events, block_bytes):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(file, "_HEAD_BYTES", 64)
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
        return [len(piece) for piece in Source(path, 0).blocks()]

    return call


@pytest.mark.parametrize("block_bytes", [500, 1000, 70_000])
def test_pieces_end_between_events(pieces, block_bytes):
    counts = pieces((kernel(i, note="}, {") for i in range(2000)), block_bytes)
    assert sum(counts) == 2000
    # an event has 100 bytes: a piece is at most the block and what was left of the last one
    assert max(counts) <= 2 * block_bytes // 100


def test_commas_inside_an_event_are_not_taken_for_its_end(pieces):
    # 50 dictionaries in one event: the last 50 commas between braces may all be inside it
    nested = [{"a": i} for i in range(50)]
    counts = pieces((kernel(i, rows=nested) for i in range(400)), 20_000)
    assert sum(counts) == 400
    # 630 bytes an event: 31 in a block, and at most another block of what was left
    assert max(counts) <= 64


def test_events_of_30_kb_still_end_within_reach(pieces):
    # the longest events of real traces hold lists of hundreds of shapes
    counts = pieces((kernel(i, text="x" * 30_000) for i in range(40)), 100_000)
    assert sum(counts) == 40
    assert max(counts) <= 6


def test_one_event_may_be_longer_than_a_block(pieces):
    assert sum(pieces([kernel(0), kernel(1, text="x" * 5000), kernel(2)], 500)) == 3


class Endless:
    """A stream that starts as a trace does, and then never ends."""

    def __init__(self):
        self.read_bytes = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def read(self, size):
        start = b'{"traceEvents": [{"name": "' if not self.read_bytes else b""
        self.read_bytes += size
        return start + b"x" * (size - len(start))

    def readinto(self, buffer):
        buffer[:] = b"x" * len(buffer)
        self.read_bytes += len(buffer)
        return len(buffer)


@pytest.mark.waiting
def test_an_event_that_never_ends_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.json").write_text("{}")
    stream = Endless()
    monkeypatch.setattr(Source, "_open", lambda self: stream)
    with pytest.raises(InputFileError, match="has an event that does not end"):
        list(Source(tmp_path / "x.json", 0).blocks())
    # events have a few kB; a name of 160 MB is damage
    assert stream.read_bytes <= 300e6


@pytest.mark.waiting
def test_a_trace_of_over_a_gigabyte_is_read_in_pieces(tmp_path):
    # whole, it would take eight times its size: a hole of a gigabyte behind the start, which takes no disk
    path = tmp_path / "large.json"
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [{"name": "')
    with path.open("r+b") as stream:
        stream.truncate(1_000_000_001)
    assert path.stat().st_size > STREAM_ABOVE_BYTES
    with pytest.raises(InputFileError, match="has an event that does not end"):
        read_profile(path)


def test_the_limit_is_that_of_the_unpacked_size(tmp_path):
    text = json.dumps({"traceEvents": [kernel(i) for i in range(500)]}).encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text[:20_000]) + gzip.compress(text[20_000:]))
    assert path.stat().st_size < 10_000 < len(text)
    for limit, is_whole in ((len(text), True), (len(text) - 1, False), (10_000, False)):
        events = Source(path, limit).whole()
        assert (events is not None and len(events) == 500) == is_whole


@pytest.mark.parametrize("order", list(itertools.permutations(("schemaVersion", "traceEvents", "distributedInfo"))))
def test_keys_may_stand_before_or_after_the_events(tmp_path, order):
    document = {
        "schemaVersion": 1,
        "traceEvents": [kernel(i) for i in range(3)],
        "distributedInfo": {"rank": 2, "world_size": 4},
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({key: document[key] for key in order}))
    for limit in (0, 10**9):
        profile = read_profile(path, stream_above_bytes=limit)
        assert (profile.rank, profile.entries[0].calls) == (2, 3)


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    # 20,000 equal events shrink to a 300th; events of real traces differ, and shrink to a tenth or a twentieth
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100_000)
    event = json.dumps(kernel(1))
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(f'{{"traceEvents": [{",".join([event] * 20_000)}]}}'.encode()))
    assert 20_000 * len(event) > 250 * path.stat().st_size
    with pytest.raises(InputFileError, match="unpacks to over 200 times its size"):
        read_profile(path, stream_above_bytes=1000)
    # what fits into memory is read all the same
    assert read_profile(path).entries[0].calls >= 1


def test_a_trace_that_shrinks_to_a_fiftieth_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100_000)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [kernel(i) for i in range(5000)]}).encode()))
    assert read_profile(path, stream_above_bytes=1000).entries[0].calls == 5000


def test_what_stands_in_the_buffer_is_valid_until_the_next_block(tmp_path, monkeypatch):
    # the sizes are not decoded: they stand in the bytes that the next block is read into
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(file, "_HEAD_BYTES", 64)
    events = [kernel(i, **{"Input Dims": [[i]]}) for i in range(200)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    sizes = []
    for block in Source(path, 0).blocks():
        sizes += [bytes(event.args.dims) for event in block]
    assert sizes == [b"[[%d]]" % i for i in range(200)]


def test_a_file_that_cannot_be_read_in_blocks_is_read_at_once(tmp_path):
    # a nested key of the same name: the blocks begin at the wrong place
    document = {"metadata": {"traceEvents": [kernel(0)]}, "traceEvents": [kernel(i) for i in range(7)]}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert read_profile(path).entries[0].calls == 7
    with pytest.raises(InputFileError):
        read_profile(path, stream_above_bytes=10)


@given(
    texts=st.lists(st.text(alphabet='{}[],":\\ x\n', max_size=40), min_size=1, max_size=30),
    block=st.integers(50, 900),
    indent=st.sampled_from([None, 1, 2]),
)
def test_any_text_in_blocks_is_what_it_is_at_once(tmp_path_factory, texts, block, indent):
    path = tmp_path_factory.mktemp("blocks") / "trace.json"
    events = [kernel(i, note=text, rows=[{"a": text}, {"b": i}]) | {"name": text} for i, text in enumerate(texts)]
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 1}}, indent=indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block)
        patch.setattr(file, "_HEAD_BYTES", 32)
        source = Source(path, 0)
        names = [event.name for piece in source.blocks() for event in list(piece)]
    assert names == texts
    assert source.header.distributedInfo == {"rank": 1}
