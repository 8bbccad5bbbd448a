"""A version of the weights in memory, and its tensors as they are published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Iterator, List, NamedTuple, Tuple
from urllib.parse import quote

from .layout import ELEMENT_BYTES, Entry, Layout, Manifest
from .wire import Server, check_hash


class Tensor(NamedTuple):
    """A tensor of `dtype` "bf16" or "f32"; `data` holds its numbers, row-major by `shape`, as little-endian bytes.

    The data may be a view of the version's own memory: what is written to it is seen there.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    data: memoryview


class Files(Mapping):
    """The bytes of each file beside the tensors, by name; fetched and verified each time one is asked for.

    Asking raises `KeyError` for an unknown name, and `Corrupt`, `Unreachable` or `Refused`.
    """

    def __init__(self, server: Server, layout: Layout):
        self._server, self._files = server, layout.files

    def __getitem__(self, name: str) -> bytes:
        length, expected = self._files[name]
        content = self._server.get(f"/v1/files/{quote(name, safe='')}", length)
        check_hash(content, expected, name)
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class Version:
    """A whole version, verified: gives each `Tensor` when iterated, and their number as its length.

    `version` is its name, STEP-RUN; `step` counts steps of training; `dtype`, "bf16" or "f32", is that of all tensors;
    `nbytes` is the number of bytes of all ranks; `files` are those beside the tensors.
    """

    def __init__(self, manifest: Manifest, layout: Layout, ranks: List[memoryview], files: Files):
        self.version, self.step, self.dtype, self.files = manifest.version, manifest.step, layout.dtype, files
        self.nbytes, self.entries, self._ranks = sum(map(len, ranks)), layout.tensors, ranks

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Tensor]:
        # Each is put together when its turn comes, so that no more than one is in memory twice.
        return (Tensor(entry.name, self.dtype, entry.shape, self._data(entry)) for entry in self.entries)

    def _data(self, entry: Entry) -> memoryview:
        size = ELEMENT_BYTES[self.dtype]
        parts = [self._ranks[part.rank][part.offset : part.offset + part.len * size] for part in entry.parts]
        data = parts[0] if len(parts) == 1 else memoryview(bytearray().join(parts))
        return _transpose(data, size, *entry.shape) if entry.transposed else data


def _transpose(data: memoryview, size: int, rows: int, columns: int) -> memoryview:
    """A matrix of `rows` × `columns` elements of `size` bytes, from the bytes of its transpose."""
    code = {2: "H", 4: "I"}[size]  # Elements are moved and never computed with, so any type of their size will do.
    target = memoryview(bytearray(len(data)))
    source, elements = data.cast(code), target.cast(code)
    for row in range(rows):
        elements[row * columns : (row + 1) * columns] = source[row::rows]
    return target
