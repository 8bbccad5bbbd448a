"""A version of the weights in memory, and its tensors in published order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Iterator, List, NamedTuple, Tuple
from urllib.parse import quote

from .layout import ELEMENT_BYTES, Entry, Layout, Manifest
from .wire import Server, check_hash


class Tensor(NamedTuple):
    """A published tensor.

    `dtype` is "bf16" or "f32", and `data` holds the numbers in row-major order of `shape`, as little-endian bytes. It may
    be a view of the version's own memory, and is written to at the caller's risk.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    data: memoryview


class Files(Mapping):
    """Files beside the tensors, such as config.json: each name's bytes, fetched and verified whenever asked for.

    Asking raises `KeyError` for an unknown name, `Corrupt`, `Unreachable` or `Refused`.
    """

    def __init__(self, server: Server, layout: Layout):
        self._server, self._files = server, layout.files

    def __getitem__(self, name: str) -> bytes:
        file = self._files[name]
        content = self._server.get(f"/v1/files/{quote(name, safe='')}", file.bytes)
        check_hash(content, file.blake3, name)
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class Version:
    """A whole version, verified: iterating gives each `Tensor`, and `len` their number.

    `version` is its name, STEP-RUN; `step` counts the steps of training; `dtype` is "bf16" or "f32", the same for all
    tensors; `nbytes` is the number of bytes fetched; `files` are those beside the tensors.
    """

    def __init__(self, manifest: Manifest, layout: Layout, ranks: List[memoryview], files: Files):
        self.version, self.step, self.dtype = manifest.version, manifest.step, layout.dtype
        self.nbytes, self.files = sum(map(len, ranks)), files
        self.entries, self._ranks = layout.tensors, ranks

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Tensor]:
        # Put together one by one, so that no more than one tensor is held twice.
        for entry in self.entries:
            yield Tensor(entry.name, self.dtype, entry.shape, self._data(entry))

    def _data(self, entry: Entry) -> memoryview:
        size = ELEMENT_BYTES[self.dtype]
        parts = [self._ranks[part.rank][part.offset :][: part.len * size] for part in entry.parts]
        data = parts[0] if len(parts) == 1 else memoryview(bytearray().join(parts))
        return _transposed(data, size, *entry.shape) if entry.transposed else data


def _transposed(data: memoryview, size: int, rows: int, columns: int) -> memoryview:
    """The `rows` × `columns` matrix whose transpose, of elements of `size` bytes, is `data`."""
    code = {2: "H", 4: "I"}[size]  # Numbers are moved, never read: their order of bytes does not matter.
    target = memoryview(bytearray(len(data)))
    try:
        import numpy
    except ImportError:
        source, elements = data.cast(code), target.cast(code)
        for row in range(rows):
            elements[row * columns : (row + 1) * columns] = source[row::rows]
    else:
        source = numpy.frombuffer(data, code).reshape(columns, rows)
        numpy.frombuffer(target, code).reshape(rows, columns)[:] = source.T
    return target
