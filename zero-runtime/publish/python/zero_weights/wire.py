"""Requests to a rank's server: every answer is bounded in size, and every wait in time."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Iterator, Optional
from urllib.parse import urlsplit

from blake3 import blake3

from .errors import Corrupt, GivenUp, Refused, Unreachable, WeightsError

JSON_LIMIT = 256 << 20  # Most bytes of a JSON body that are read.


def parse_object(body: bytes, what: str) -> dict:
    """The JSON object in `body`; raises `Corrupt`, naming `what`, if it holds none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{what} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Corrupt(f"{what} is not a JSON object")
    return parsed


def newest_in(answer: dict) -> Optional[str]:
    """The newest version as an answer tells it, or None; raises `Corrupt` if it is no string."""
    newest = answer.get("newest")
    if not isinstance(newest, (str, type(None))):
        raise Corrupt(f"{newest!r} is no version")
    return newest


def check_hash(body, expected: str, what: str, **place) -> None:
    """Raises `Corrupt`, naming `what` and its place, unless `expected` is the hex BLAKE3 of `body`."""
    found = blake3(body).hexdigest()
    if found != expected:
        raise Corrupt(f"{what}: BLAKE3 should be {expected}, is {found}", expected=expected, found=found, **place)


class Server:
    """The server of a rank; each wait for it lasts at most `timeout` seconds. Raises `ValueError` for a wrong URL."""

    def __init__(self, url: str, token: Optional[str], timeout: float):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"{url!r} is not a URL such as http://HOST:PORT")
        self.host, self.port, self.token, self.timeout = parts.hostname, parts.port or 80, token, timeout

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def sibling(self, url: Optional[str], port: int) -> Server:
        """The server at `url`, or on another port of this host if that is None."""
        here = f"{str(self).rpartition(':')[0]}:{port}"
        return Server(here if url is None else url, self.token, self.timeout)

    @contextmanager
    def open(self, method: str, path: str, body: Optional[dict] = None, wait: float = 0) -> Iterator[HTTPResponse]:
        """Sends a request, whose answer may take `wait` seconds more than others, on a connection of its own.

        Raises `GivenUp` for status 410, `Refused` for another error's, and `Unreachable` without an answer.
        """
        headers = {"Connection": "close", "Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = HTTPConnection(self.host, self.port, timeout=self.timeout + wait)
        try:
            with self._reaching():
                connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
                response = connection.getresponse()
            with response:
                if response.status >= 300:
                    self._refuse(f"{method} {self}{path}", response)
                yield response
        finally:
            connection.close()

    def get(self, path: str, limit: int = JSON_LIMIT) -> bytes:
        """The body at `path`; raises `Corrupt` if it has more than `limit` bytes."""
        with self.open("GET", path) as response:
            return self._read(response, limit)

    def call(self, method: str, path: str, body: Optional[dict] = None, wait: float = 0) -> dict:
        """The JSON object that answers a request; it is empty if the answer's body is."""
        with self.open(method, path, body, wait) as response:
            content = self._read(response, JSON_LIMIT)
        return parse_object(content, f"{self}{path}") if content else {}

    def fill(self, response: HTTPResponse, view: memoryview) -> int:
        """Reads into `view`; returns the number of bytes, fewer than its own if the connection was closed early."""
        filled = 0
        with self._reaching():
            while filled < len(view):
                try:
                    count = response.readinto(view[filled:])
                except ConnectionError:
                    count = 0  # A reset is a close too.
                if not count:
                    break
                filled += count
        return filled

    def _read(self, response: HTTPResponse, limit: int) -> bytes:
        length = response.length  # None if it was not announced.
        if (length or 0) <= limit:
            with self._reaching():
                # Reading to the end is an error if less comes than was announced.
                body = response.read(limit + 1) if length is None else response.read()
            if len(body) <= limit:
                return body
        raise Corrupt(f"{self} sends more than {limit} bytes")

    def _refuse(self, request: str, response: HTTPResponse) -> None:
        try:
            told = parse_object(self._read(response, 64 << 10), "the error")
            newest = newest_in(told)
        except WeightsError:
            told, newest = {}, None  # The status alone says enough.
        message = f"{request}: {response.status} {told.get('error', '')}"
        if response.status == 410:
            raise GivenUp(message, newest=newest)
        raise Refused(message, status=response.status)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{self}: {str(error) or type(error).__name__}") from error
