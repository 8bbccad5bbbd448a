"""A subscriber: follows a run's versions, fetches and applies them, and tells the run what became of each."""

from __future__ import annotations

import os
import socket
import time
from threading import Event, Lock
from typing import Iterator, Optional, Union
from urllib.parse import quote

from .errors import Corrupt, Mismatch, Refused, Unreachable, WeightsError
from .layout import Layout, Manifest
from .transfer import read_ranks
from .version import Files, Version
from .wire import Server, check_hash, newest_in

_POLL = 5  # Seconds that one request waits for a version, and the longest pause between tries to reach a server.
_SENTENCE_MAX = 300  # Letters of an error that the run is told; servers bound the bodies of requests.


class Subscriber:
    """A subscriber of the run whose rank 0 serves at `url`, such as http://127.0.0.1:7000.

    `token` is the run's, if it has one; `name` is shown there (by default: host and process); each wait for a server
    lasts at most `timeout` seconds. Raises `ValueError` for another kind of URL or timeout. Methods that ask a server
    raise `Unreachable`, `Refused`, or `Corrupt` for an answer that makes no sense. Belongs to one thread; only `close`
    may be called by others.
    """

    def __init__(self, url: str, *, token: Optional[str] = None, name: Optional[str] = None, timeout: float = 60.0):
        if not timeout > 0:
            raise ValueError(f"a timeout of {timeout} seconds")
        self._server, self._name = Server(url, token, timeout), name or f"{socket.gethostname()}-{os.getpid()}"
        self._path: Optional[str] = None  # Of this subscriber at the server, once it has joined.
        self._run: Optional[str] = None  # The run that was joined; None while it has published nothing.
        self._lock, self._closed = Lock(), Event()
        self._layout: Optional[tuple] = None  # A layout after its hash: versions of a run have the same.

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def join(self) -> None:
        """Makes the subscriber known to the run, as other methods do when needed; `WeightsError` after `close`."""
        with self._lock:
            if self._closed.is_set():
                raise WeightsError("the subscriber is closed")
            if self._path is None:
                answer = self._server.call("POST", "/v1/subscribers", {"name": self._name})
                if not isinstance(answer.get("id"), str):
                    raise Corrupt(f"{self._server} gives no id to a subscriber")
                self._path, self._run = f"/v1/subscribers/{quote(answer['id'], safe='')}", _run(newest_in(answer))

    def close(self) -> None:
        """Leaves the run and ends `versions`, within seconds; a server that is gone is not an error."""
        with self._lock:
            self._closed.set()
            if self._path is not None:
                try:
                    self._server.call("DELETE", self._path)
                except WeightsError:
                    pass
                self._path = None

    def versions(self, stop_after: Optional[float] = None) -> Iterator[str]:
        """Gives the newest version, then newer ones as they come (not those missed meanwhile), until `close`.

        Goes on when the run is restarted. Raises `Unreachable` when no server was there for `stop_after` seconds.
        """
        seen, lost, pause = "", None, 0.1
        while not self._closed.is_set():
            try:
                self.join()
                path = f"/v1/wait?after={quote(seen, safe='')}&seconds={_POLL}"
                newest = newest_in(self._server.call("GET", path, wait=_POLL))
            except WeightsError as error:
                if self._closed.is_set():
                    return
                now = time.monotonic()
                lost = lost or now
                left = pause if stop_after is None else lost + stop_after - now
                if left <= 0 or not isinstance(error, Unreachable):
                    raise
                self._closed.wait(min(pause, left))
                pause = min(pause * 2, _POLL)
                continue
            lost, pause = None, 0.1
            if newest is not None and self._run not in (None, _run(newest)):
                self._path = None  # A run that was restarted does not know this subscriber.
            elif newest not in (None, seen):
                self._run, seen = _run(newest), newest
                yield newest

    def fetch(self, version: Optional[str] = None) -> Version:
        """A whole version (by default the newest), verified, in memory.

        Raises `GivenUp` if the run has dropped it; `Refused`, with status 404, if it does not know it or has published
        none; `Corrupt` after acknowledging the version with that error.
        """
        refused = version
        try:
            path = "/v1/manifest" if version is None else f"/v1/versions/{quote(version, safe='')}/manifest"
            manifest = Manifest.parse(self._server.get(path), version)
            refused = manifest.version
            layout = self._layout_of(manifest)
            return Version(manifest, layout, read_ranks(manifest, layout), Files(self._server, layout))
        except Corrupt as error:
            self._refuse(refused, error)
            raise

    def apply(self, module, version: Union[None, str, Version] = None) -> Version:
        """Copies a version (by default the newest) into the parameters of a torch module, and acknowledges it.

        A parameter has its tensor's name, shape and dtype, on any device; tied ones need be published once. Raises
        what `fetch` does, and `Mismatch` after acknowledging the version with that error: the module is as it was.
        Any other error is of the acknowledgement: the module has the version.
        """
        from .module import copy_into

        fetched = version if isinstance(version, Version) else self.fetch(version)
        try:
            copy_into(module, fetched)
        except Mismatch as error:
            self._refuse(fetched.version, error)
            raise
        self.acknowledge(fetched.version)
        return fetched

    def acknowledge(self, version: str, error: Optional[str] = None) -> None:
        """Tells the run that the version is in use, or by `error` why it is not.

        Joins again if the run was restarted, to which versions of an earlier run mean nothing. Only the first 300
        letters of an error are told.
        """
        self.join()
        body = {"version": version, "error": error and error[:_SENTENCE_MAX]}
        try:
            self._server.call("POST", f"{self._path}/ack", body)
        except Refused as refused:
            if refused.status != 404:
                raise
            self._path = None
            self.join()
            if self._run == _run(version):
                self._server.call("POST", f"{self._path}/ack", body)

    def _refuse(self, version: Optional[str], error: WeightsError) -> None:
        try:
            if version is not None:
                self.acknowledge(version, str(error))
        except WeightsError:
            pass  # The error that was to be told matters more.

    def _layout_of(self, manifest: Manifest) -> Layout:
        if self._layout is None or self._layout[0] != manifest.layout:
            body = self._server.get("/v1/layout")
            check_hash(body, manifest.layout, "the layout")
            self._layout = manifest.layout, Layout.parse(body, self._server)
        return self._layout[1]


def _run(version: Optional[str]) -> Optional[str]:
    return version and version.rpartition("-")[2]
