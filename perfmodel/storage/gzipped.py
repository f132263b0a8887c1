"""Content of gzip files, with a limit to what is unpacked: a small file may hold more than the memory does."""

from __future__ import annotations

import zlib

#: first bytes of every gzip file (RFC 1952)
MAGIC = b"\x1f\x8b"
#: deflate packs at most 258 bytes into two bits: a gzip file never unpacks to more than so many times its size
LARGEST_RATIO = 1032
_BLOCK_BYTES = 1 << 20


def unpacked(data: bytes, limit: int) -> bytes | None:
    """Return the content of a gzip file with one or more members, None if it is more than a limit [B].

    Raises
    ------
    EOFError, zlib.error
        When the file is cut off, or damaged.
    """
    parts: list[bytes] = []
    size = 0
    while data:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        parts.append(member.decompress(data, limit + 1 - size))
        size += len(parts[-1])
        if size > limit:
            return None
        if not member.eof:
            raise EOFError("it is cut off")
        data = member.unused_data.lstrip(b"\0")
    return b"".join(parts) if len(parts) > 1 else parts[0]


def unpacked_size(data: bytes, limit: int) -> int:
    """Return the size of the content of a gzip file [B], which is not kept; what is beyond a limit is not read."""
    import gzip
    import io

    size = 0
    with gzip.open(io.BytesIO(data)) as stream:
        while size <= limit and (block := stream.read(_BLOCK_BYTES)):
            size += len(block)
    return size
