"""What a run says of its versions before their bytes; checked here in full, so that nothing later need be."""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from operator import index
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from .errors import Corrupt
from .wire import Server, parse_object

ELEMENT_BYTES = {"bf16": 2, "f32": 4}


class Manifest(NamedTuple):
    """A version: the hex BLAKE3 of its layout, and as `roots` those of each rank's hashes of pieces."""

    version: str
    step: int
    layout: str
    piece_bytes: int
    roots: Tuple[str, ...]

    @classmethod
    def parse(cls, body: bytes, asked: Optional[str]) -> Manifest:
        """Parses the manifest of version `asked`, or of any if that is None; raises `Corrupt`."""
        with _checking("the manifest"):
            raw = parse_object(body, "the manifest")
            version, step, piece_bytes = raw["version"], index(raw["step"]), index(raw["piece_bytes"])
            if version != f"{step}-{raw['run']}" or asked not in (None, version) or piece_bytes < 1:
                raise ValueError(f"version {version}, step {step}, run {raw['run']}, pieces of {piece_bytes} bytes")
            return cls(version, step, raw["layout"], piece_bytes, tuple(raw["roots"]))


class Rank(NamedTuple):
    """A rank's server, and the number of bytes that it serves of each version."""

    server: Server
    bytes: int


class Part(NamedTuple):
    """`len` elements of a tensor from element `start`, which lie from byte `offset` of a rank's bytes."""

    rank: int
    offset: int
    start: int
    len: int


class Entry(NamedTuple):
    """A tensor: `shape` is as published; `parts`, in order, hold its transpose if `transposed`."""

    name: str
    shape: Tuple[int, ...]
    transposed: bool
    parts: Tuple[Part, ...]


class Layout(NamedTuple):
    """Where each tensor's numbers lie; `files` gives each name's number of bytes and hex BLAKE3."""

    dtype: str
    ranks: Tuple[Rank, ...]
    tensors: Tuple[Entry, ...]
    files: Dict[str, Tuple[int, str]]

    @classmethod
    def parse(cls, body: bytes, server: Server) -> Layout:
        """Parses the layout that `server` sent; raises `Corrupt` unless parts cover each element of a tensor once."""
        with _checking("the layout"):
            raw = parse_object(body, "the layout")
            element = ELEMENT_BYTES[raw["dtype"]]
            ranks = tuple(Rank(server.sibling(r["url"], index(r["port"])), _count(r["bytes"])) for r in raw["ranks"])
            tensors = tuple(_entry(tensor, ranks, element) for tensor in raw["tensors"])
            files = {_plain(file["name"]): (_count(file["bytes"]), file["blake3"]) for file in raw["files"]}
            if len({tensor.name for tensor in tensors}) < len(tensors) or not ranks:
                raise ValueError("there is no rank, or two tensors of one name")
            return cls(raw["dtype"], ranks, tensors, files)


def _entry(raw: dict, ranks: Tuple[Rank, ...], element: int) -> Entry:
    name, shape, transposed = raw["name"], tuple(map(index, raw["shape"])), raw["transposed"]
    if any(size < 1 for size in shape) or (transposed and len(shape) != 2):
        raise ValueError(f"{name} has shape {shape}, transposed: {transposed}")
    parts = sorted((Part(*(_count(p[f]) for f in Part._fields)) for p in raw["parts"]), key=lambda part: part.start)
    covered = 0
    for part in parts:
        room = ranks[part.rank].bytes if part.rank < len(ranks) else 0
        if part.start != covered or part.offset + part.len * element > room:
            raise ValueError(f"{name}: {part} leaves a hole, overlaps, or lies outside the {room} bytes of its rank")
        covered += part.len
    if covered != prod(shape):
        raise ValueError(f"{name}: its parts cover {covered} of {prod(shape)} elements")
    return Entry(name, shape, transposed, tuple(parts))


def _count(value: int) -> int:
    if index(value) < 0:
        raise ValueError(f"{value} is less than nothing")
    return value


def _plain(name: str) -> str:
    # A caller may write the file under its name, which must not lead out of a folder.
    if name in ("", ".", "..") or any(character in name for character in "/\\:\0"):
        raise ValueError(f"{name!r} is no name of a file")
    return name


@contextmanager
def _checking(what: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{what} is wrong: {type(error).__name__}: {error}") from error
