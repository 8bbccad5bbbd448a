"""Requests to the server of one rank: every answer is bounded in size, and every wait in time."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Iterator, NamedTuple, NoReturn, Optional
from urllib.parse import urlsplit

from blake3 import blake3

from .errors import Corrupt, GivenUp, Refused, Unreachable

JSON_LIMIT = 256 << 20
"""Most bytes of a JSON body that are read."""

_CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}


def parse_object(body: bytes, what: str) -> dict:
    """The JSON object in `body`; raises `Corrupt`, naming `what`, if there is none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{what} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Corrupt(f"{what} is not a JSON object")
    return parsed


def check_hash(body: bytes, expected: str, what: str, rank: Optional[int] = None) -> None:
    """Raises `Corrupt`, naming `what`, unless `expected` is the hex BLAKE3 of `body`."""
    found = blake3(body).hexdigest()
    if found != expected:
        raise Corrupt(f"{what}: BLAKE3 should be {expected}, is {found}", rank, expected=expected, found=found)


class Address(NamedTuple):
    """Where a server listens."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in a URL such as http://127.0.0.1:7000; raises `ValueError` for any other kind."""
        parts = urlsplit(url)
        if parts.scheme not in _CONNECTIONS or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"{url!r} is not a URL such as http://HOST:PORT")
        return cls(parts.scheme, parts.hostname, parts.port or _CONNECTIONS[parts.scheme].default_port)

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@contextmanager
def _reaching(address: Address) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{address}: {error or type(error).__name__}") from error


class Reply:
    """An answer whose body is still to be read; `length` is its announced length in bytes, or None."""

    def __init__(self, address: Address, response: HTTPResponse):
        self.address, self.status, self.length, self._response = address, response.status, response.length, response

    def read_into(self, view: memoryview) -> int:
        """Fills `view`, and returns how many bytes came: fewer than its length if the connection was closed early."""
        filled = 0
        with _reaching(self.address):
            while filled < len(view):
                try:
                    count = self._response.readinto(view[filled:])
                except ConnectionError:
                    break  # A reset is a close too: what was sent before it may be lost.
                if not count:
                    break
                filled += count
        return filled

    def read(self, limit: int) -> bytes:
        """The whole body; raises `Corrupt` if it is longer than `limit` bytes, `Unreachable` if it ends early."""
        body = bytearray()
        with _reaching(self.address):
            if (self.length or 0) <= limit:
                while chunk := self._response.read(64 << 10):
                    body += chunk
                    if len(body) > limit:
                        break
        if max(len(body), self.length or 0) > limit:
            raise Corrupt(f"{self.address} sends more than {limit} bytes")
        if self.length is not None and len(body) < self.length:
            raise Unreachable(f"{self.address} closed the connection after {len(body)} of {self.length} bytes")
        return bytes(body)


class Server:
    """The server of one rank; `timeout` bounds, in seconds, each wait for it."""

    def __init__(self, address: Address, token: Optional[str], timeout: float):
        self.address, self.token, self.timeout = address, token, timeout

    @contextmanager
    def open(self, method: str, path: str, body: Optional[dict] = None, patience: float = 0.0) -> Iterator[Reply]:
        """Sends a request whose answer may take `patience` seconds more than others, on a connection of its own.

        Raises `GivenUp` for status 410, `Refused` for any other error's, `Unreachable` without an answer.
        """
        headers = {"Connection": "close"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = None if body is None else json.dumps(body).encode()
        address, timeout = self.address, self.timeout + patience
        connection = _CONNECTIONS[address.scheme](address.host, address.port, timeout=timeout)
        try:
            with _reaching(address):
                connection.request(method, path, content, headers)
                response = connection.getresponse()
            with response:
                reply = Reply(address, response)
                if not 200 <= reply.status < 300:
                    _refuse(reply, f"{method} {address}{path}")
                yield reply
        finally:
            connection.close()

    def get(self, path: str, limit: int = JSON_LIMIT) -> bytes:
        """The body at `path`, of at most `limit` bytes."""
        with self.open("GET", path) as reply:
            return reply.read(limit)

    def call(self, method: str, path: str, body: Optional[dict] = None, patience: float = 0.0) -> Optional[dict]:
        """The JSON object that answers a request, or None if the answer has no body."""
        with self.open(method, path, body, patience) as reply:
            content = reply.read(JSON_LIMIT)
        return parse_object(content, f"{self.address}{path}") if content else None


def _refuse(reply: Reply, request: str) -> NoReturn:
    try:
        told = parse_object(reply.read(64 << 10), "the error")
    except Corrupt:
        told = {}  # The status alone says enough.
    newest = told.get("newest")
    message = f"{request}: {reply.status} {told.get('error', '')}".rstrip()
    if reply.status == 410:
        raise GivenUp(message, newest if isinstance(newest, str) else None)
    raise Refused(message, reply.status)
