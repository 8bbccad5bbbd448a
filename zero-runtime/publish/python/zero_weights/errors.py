"""Errors of a subscriber; all are kinds of `WeightsError`."""

from __future__ import annotations

from typing import Optional


class WeightsError(Exception):
    """Base of this package's errors."""


class GivenUp(WeightsError):
    """The run no longer serves the version: it has gone on to a newer one.

    `newest` is the newest version as the server told it, or None.
    """

    def __init__(self, message: str, newest: Optional[str] = None):
        super().__init__(message)
        self.newest = newest


class Corrupt(WeightsError):
    """What a server sent is not what was announced; nothing of it is used.

    For a piece of a rank's bytes, `rank` and `piece` count from 0, `offset` is the piece's first byte within the rank's
    bytes, and `expected` and `found` are hex BLAKE3. Whatever does not apply is None.
    """

    def __init__(
        self,
        message: str,
        rank: Optional[int] = None,
        piece: Optional[int] = None,
        offset: Optional[int] = None,
        expected: Optional[str] = None,
        found: Optional[str] = None,
    ):
        super().__init__(message)
        self.rank, self.piece, self.offset, self.expected, self.found = rank, piece, offset, expected, found


class Unreachable(WeightsError):
    """A server does not answer in time, or the connection to it failed."""


class Refused(WeightsError):
    """A server refused a request: `status` is that of HTTP, such as 401 without the right token."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class Mismatch(WeightsError):
    """A module's parameters differ from the version's tensors by name, shape or dtype; none was written."""
