"""Errors of a subscriber."""

from typing import Optional


class WeightsError(Exception):
    """Base of this package's errors; `facts` become its attributes."""

    def __init__(self, message: str, **facts):
        super().__init__(message)
        self.__dict__.update(facts)


class GivenUp(WeightsError):
    """The run no longer serves the version; `newest` is the one that it told instead, or None."""

    newest: Optional[str] = None


class Corrupt(WeightsError):
    """What a server sent is not what was announced; none of it is used.

    If one piece of a rank's bytes is wrong, `rank` and `piece` count from 0, and `offset` is its first byte within
    them; `expected` and `found` are hex BLAKE3. What does not apply is None.
    """

    rank: Optional[int] = None
    piece: Optional[int] = None
    offset: Optional[int] = None
    expected: Optional[str] = None
    found: Optional[str] = None


class Unreachable(WeightsError):
    """A server did not answer in time, or the connection to it failed."""


class Refused(WeightsError):
    """A server refused a request; `status` is HTTP's, such as 401 without the right token."""

    status: int = 0


class Mismatch(WeightsError):
    """A module's parameters differ from a version's tensors by name, shape or dtype; none was written."""
