"""The bytes of all ranks, in one request each, verified piece by piece."""

from __future__ import annotations

from contextlib import ExitStack
from typing import List
from urllib.parse import quote

from blake3 import blake3

from .errors import Corrupt
from .layout import Layout, Manifest
from .wire import Server, check_hash

_HASH_BYTES = 32


def read_ranks(servers: List[Server], manifest: Manifest, layout: Layout) -> List[memoryview]:
    """Each rank's bytes, verified. Raises `Corrupt`, `GivenUp`, `Unreachable` or `Refused`."""
    path, size = f"/v1/versions/{quote(manifest.version, safe='')}", manifest.piece_bytes
    if len(manifest.roots) != len(servers):
        raise Corrupt(f"the manifest has {len(manifest.roots)} roots, the layout {len(servers)} ranks")

    def read_hashes(rank: int) -> bytes:
        expected = -(-layout.ranks[rank].bytes // size) * _HASH_BYTES
        hashes = servers[rank].get(f"{path}/hashes", expected)
        check_hash(hashes, manifest.roots[rank], f"the hashes of rank {rank}", rank)
        if len(hashes) != expected:
            raise Corrupt(f"rank {rank} has {len(hashes)} bytes of hashes, not {expected}", rank)
        return hashes

    hashes = [read_hashes(rank) for rank in range(len(servers))]
    with ExitStack() as stack:
        # A server keeps the version for those who read it: all requests are open before the first body is read.
        replies = [stack.enter_context(server.open("GET", f"{path}/bytes")) for server in servers]
        for rank, reply in enumerate(replies):
            if reply.length != layout.ranks[rank].bytes:
                length = layout.ranks[rank].bytes
                raise Corrupt(f"rank {rank} announces {reply.length} bytes, and has {length} by the layout", rank)
        buffers = [memoryview(bytearray(rank.bytes)) for rank in layout.ranks]
        # Piece by piece of all ranks in turn, so that none waits for the others until it gives up on the reader.
        for offset in range(0, max(map(len, buffers), default=0), size):
            for rank, (reply, buffer) in enumerate(zip(replies, buffers)):
                piece, number = buffer[offset : offset + size], offset // size
                got = reply.read_into(piece)
                if got < len(piece):
                    read_hashes(rank)  # Raises if the version was given up, or the server is gone.
                    raise Corrupt(f"the bytes of rank {rank} end after {offset + got}", rank, number, offset)
                if piece:
                    expected = hashes[number * _HASH_BYTES :][:_HASH_BYTES].hex()
                    found = blake3(piece).hexdigest()
                    if found != expected:
                        where = f"piece {number} of rank {rank}, at byte {offset}"
                        message = f"{where}: BLAKE3 should be {expected}, is {found}"
                        raise Corrupt(message, rank, number, offset, expected, found)
        return buffers
