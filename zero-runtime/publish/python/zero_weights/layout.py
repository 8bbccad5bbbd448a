"""What a server says of a version before its bytes: checked in full, so that the rest need not."""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from operator import index
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from .errors import Corrupt
from .wire import Address, parse_object

ELEMENT_BYTES = {"bf16": 2, "f32": 4}
"""Bytes of a number of each dtype."""


class Manifest(NamedTuple):
    """One version: `layout` is the hex BLAKE3 of its layout, and `roots` those of each rank's hashes of pieces."""

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
            if version != f"{step}-{raw['run']}" or asked not in (None, version):
                raise ValueError(f"it is of version {version}, not {asked or 'of its step and run'}")
            if piece_bytes < 1:
                raise ValueError(f"pieces of {piece_bytes} bytes")
            return cls(version, step, raw["layout"], piece_bytes, tuple(raw["roots"]))


class Rank(NamedTuple):
    """Where a rank serves `bytes` bytes; without an address, on `port` of the host that serves the layout."""

    address: Optional[Address]
    port: int
    bytes: int


class Part(NamedTuple):
    """Elements `start..start + len` of a tensor, which lie from byte `offset` of a rank's bytes."""

    rank: int
    offset: int
    start: int
    len: int


class Entry(NamedTuple):
    """A tensor of the layout: `shape` is as published; `parts`, in order, hold the transpose if `transposed`."""

    name: str
    shape: Tuple[int, ...]
    transposed: bool
    parts: Tuple[Part, ...]


class File(NamedTuple):
    """A file beside the tensors: its length in bytes and its hex BLAKE3."""

    bytes: int
    blake3: str


class Layout(NamedTuple):
    """Where each tensor's numbers lie in the bytes of the ranks; the same for all versions of a run."""

    dtype: str
    ranks: Tuple[Rank, ...]
    tensors: Tuple[Entry, ...]
    files: Dict[str, File]

    @classmethod
    def parse(cls, body: bytes) -> Layout:
        """Parses a layout whose parts cover each tensor once, within the ranks' bytes; raises `Corrupt`."""
        with _checking("the layout"):
            raw = parse_object(body, "the layout")
            ranks = tuple(
                Rank(None if r["url"] is None else Address.parse(r["url"]), index(r["port"]), index(r["bytes"]))
                for r in raw["ranks"]
            )
            if raw["dtype"] not in ELEMENT_BYTES or any(rank.bytes < 0 for rank in ranks):
                raise ValueError(f"dtype {raw['dtype']!r}, ranks {ranks}")
            tensors = tuple(_entry(tensor, ranks, ELEMENT_BYTES[raw["dtype"]]) for tensor in raw["tensors"])
            if len({entry.name for entry in tensors}) < len(tensors):
                raise ValueError("two tensors have the same name")
            files = {_file_name(f["name"]): File(index(f["bytes"]), f["blake3"]) for f in raw["files"]}
            return cls(raw["dtype"], ranks, tensors, files)


def _entry(raw: dict, ranks: Tuple[Rank, ...], element: int) -> Entry:
    name, shape, transposed = raw["name"], tuple(map(index, raw["shape"])), raw["transposed"]
    if any(size < 1 for size in shape) or (transposed and len(shape) != 2):
        raise ValueError(f"{name} has shape {shape}, transposed: {transposed}")
    parts = (Part(*(index(part[field]) for field in Part._fields)) for part in raw["parts"])
    parts = tuple(sorted(parts, key=lambda part: part.start))
    covered = 0
    for part in parts:
        if not 0 <= part.rank < len(ranks):
            raise ValueError(f"{name} has a part of rank {part.rank} of {len(ranks)}")
        if part.offset < 0 or part.len < 1 or part.offset + part.len * element > ranks[part.rank].bytes:
            raise ValueError(f"{name}: {part} lies outside the {ranks[part.rank].bytes} bytes of its rank")
        if part.start != covered:
            raise ValueError(f"{name}: a part begins at element {part.start}, and those before it end at {covered}")
        covered += part.len
    if covered != prod(shape):
        raise ValueError(f"{name}: its parts cover {covered} of {prod(shape)} elements")
    return Entry(name, shape, transposed, parts)


def _file_name(name: str) -> str:
    # A caller may write the file under this name: it must not lead out of a folder.
    if name in ("", ".", "..") or any(c in name for c in "/\\:\0"):
        raise ValueError(f"{name!r} is not the name of a file")
    return name


@contextmanager
def _checking(what: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{what} is wrong: {type(error).__name__}: {error}") from error
