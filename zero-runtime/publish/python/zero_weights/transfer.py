"""The bytes of all ranks: one request each, verified piece by piece."""

from __future__ import annotations

from contextlib import ExitStack
from typing import List
from urllib.parse import quote

from .errors import Corrupt
from .layout import Layout, Manifest, Rank
from .wire import check_hash


def read_ranks(manifest: Manifest, layout: Layout) -> List[memoryview]:
    """Each rank's bytes, verified; raises `Corrupt`, `GivenUp`, `Unreachable` or `Refused`."""
    ranks, size, path = layout.ranks, manifest.piece_bytes, f"/v1/versions/{quote(manifest.version, safe='')}"
    if len(manifest.roots) != len(ranks):
        raise Corrupt(f"the manifest has {len(manifest.roots)} roots, the layout {len(ranks)} ranks")

    def read_hashes(number: int, rank: Rank) -> List[str]:
        expected = 32 * -(-rank.bytes // size)
        hashes = rank.server.get(f"{path}/hashes", expected)
        check_hash(hashes, manifest.roots[number], f"the hashes of rank {number}", rank=number)
        return [hashes[at : at + 32].hex() for at in range(0, expected, 32)]

    hashes = [read_hashes(number, rank) for number, rank in enumerate(ranks)]
    with ExitStack() as stack:
        # A server keeps the version for those who read it: all requests are open before the first body is read.
        responses = [stack.enter_context(rank.server.open("GET", f"{path}/bytes")) for rank in ranks]
        for number, (rank, response) in enumerate(zip(ranks, responses)):
            if response.length != rank.bytes:
                message = f"rank {number} sends {response.length} bytes, not {rank.bytes} as in the layout"
                raise Corrupt(message, rank=number)
        buffers = [memoryview(bytearray(rank.bytes)) for rank in ranks]
        # A piece of each rank in turn, so that no server waits for a reader who is busy with the others.
        for piece, offset in enumerate(range(0, max(map(len, buffers)), size)):
            for number, (rank, response, buffer) in enumerate(zip(ranks, responses, buffers)):
                place = {"rank": number, "piece": piece, "offset": offset}
                view = buffer[offset : offset + size]
                got = rank.server.fill(response, view)
                if got < len(view):
                    read_hashes(number, rank)  # Raises if the version was given up, or the server is gone.
                    raise Corrupt(f"the bytes of rank {number} end early, at {offset + got}", **place)
                if got:
                    what = f"piece {piece} of rank {number}, from byte {offset}"
                    check_hash(view, hashes[number][piece], what, **place)
        return buffers
