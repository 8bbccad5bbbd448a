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
from .wire import Address, Server, check_hash

_POLL = 5  # Seconds that one request waits for a version; `close` in another thread ends `versions` within them.
_LONGEST_BACK_OFF = 5.0


class Subscriber:
    """A subscriber of the run whose rank 0 serves at `url`, such as http://127.0.0.1:7000.

    `token` is the run's, if it has one; `name` shows who subscribes (by default, host and process); `timeout` bounds, in
    seconds, each wait for a server. Raises `ValueError` for another kind of URL. Every method that asks a server raises
    `Unreachable` or `Refused`. Use it in one thread; `close` alone may be called from another.
    """

    def __init__(self, url: str, *, token: Optional[str] = None, name: Optional[str] = None, timeout: float = 60.0):
        if not timeout > 0:
            raise ValueError(f"a timeout of {timeout} seconds")
        self._server = Server(Address.parse(url), token, timeout)
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._id: Optional[str] = None
        self._run: Optional[str] = None  # The run that gave the id, as far as it is known.
        self._lock, self._closed = Lock(), Event()
        self._layout: Optional[tuple] = None  # The last layout after its hash: all versions of a run share one.

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def join(self) -> None:
        """Makes the subscriber known to the run, if it is not yet; other methods do so when they need it.

        Raises `WeightsError` after `close`.
        """
        with self._lock:
            if self._closed.is_set():
                raise WeightsError("the subscriber is closed")
            if self._id is None:
                answer = self._server.call("POST", "/v1/subscribers", {"name": self._name}) or {}
                if not isinstance(answer.get("id"), str):
                    raise Corrupt(f"{self._server.address} gives no id to a subscriber")
                self._id, self._run = answer["id"], _run(_newest(answer))

    def close(self) -> None:
        """Leaves the run and ends `versions`; never raises, as a server that is gone need not be told."""
        with self._lock:
            self._closed.set()
            if self._id is not None:
                try:
                    self._server.call("DELETE", f"/v1/subscribers/{quote(self._id, safe='')}")
                except WeightsError:
                    pass
                self._id = None

    def versions(self, stop_after: Optional[float] = None) -> Iterator[str]:
        """Gives the newest version, then each time a newer one, skipping those missed meanwhile, until `close`.

        Goes on when the run is restarted. Raises `Unreachable` once no server has answered for `stop_after` seconds, or
        never if that is None.
        """
        seen, lost, delay = "", None, 0.1
        while not self._closed.is_set():
            try:
                self.join()
                path = f"/v1/wait?after={quote(seen, safe='')}&seconds={_POLL}"
                newest = _newest(self._server.call("GET", path, patience=_POLL))
            except WeightsError as error:
                if self._closed.is_set():
                    return
                if not isinstance(error, Unreachable):
                    raise
                now = time.monotonic()
                lost = lost or now
                left = delay if stop_after is None else lost + stop_after - now
                if left <= 0:
                    raise
                self._closed.wait(min(delay, left))
                delay = min(delay * 2, _LONGEST_BACK_OFF)
                continue
            lost, delay = None, 0.1
            if newest is None:
                continue
            if self._run not in (None, _run(newest)):
                self._id = None  # Another run does not know this subscriber: it joins before the next request.
            self._run = _run(newest)
            if newest != seen:
                seen = newest
                yield newest

    def fetch(self, version: Optional[str] = None) -> Version:
        """The whole of a version (by default the newest), verified, in memory.

        Raises `GivenUp` if the run has dropped it, and `Refused` with status 404 if it does not know it or has published
        none. Before raising `Corrupt`, acknowledges the version with that error.
        """
        refused = version
        try:
            path = "/v1/manifest" if version is None else f"/v1/versions/{quote(version, safe='')}/manifest"
            manifest = Manifest.parse(self._server.get(path), version)
            refused = manifest.version
            layout = self._layout_of(manifest)
            servers = [
                Server(rank.address or self._server.address._replace(port=rank.port), self._server.token, self._server.timeout)
                for rank in layout.ranks
            ]
            return Version(manifest, layout, read_ranks(servers, manifest, layout), Files(self._server, layout))
        except Corrupt as error:
            self._refuse(refused, error)
            raise

    def apply(self, module, version: Union[None, str, Version] = None) -> Version:
        """Copies a version (by default the newest, fetched or to be fetched) into a torch module; acknowledges it.

        Each tensor goes into the parameter of its name, whatever its device; tied parameters need one name. Raises what
        `fetch` and `acknowledge` raise, and `Mismatch` if a name, shape or dtype differs, which is acknowledged as an
        error. The module is unchanged after any error but one of the acknowledgement.
        """
        fetched = version if isinstance(version, Version) else self.fetch(version)
        from .module import copy_into

        try:
            copy_into(module, fetched)
        except Mismatch as error:
            self._refuse(fetched.version, error)
            raise
        self.acknowledge(fetched.version)
        return fetched

    def acknowledge(self, version: str, error: Optional[str] = None) -> None:
        """Tells the run that the version is in use, or by `error` why it was refused.

        If the run was restarted, joins the new one, to which an earlier run's version means nothing.
        """
        self.join()
        try:
            self._acknowledge(version, error)
        except Refused as refused:
            if refused.status != 404:
                raise
            self._id = None
            self.join()
            if self._run == _run(version):
                self._acknowledge(version, error)

    def _acknowledge(self, version: str, error: Optional[str]) -> None:
        path = f"/v1/subscribers/{quote(self._id, safe='')}/ack"
        self._server.call("POST", path, {"version": version, "error": error})

    def _refuse(self, version: Optional[str], error: WeightsError) -> None:
        if version is not None:
            try:
                self.acknowledge(version, str(error))
            except WeightsError:
                pass  # The error that is being told matters more.

    def _layout_of(self, manifest: Manifest) -> Layout:
        if self._layout is None or self._layout[0] != manifest.layout:
            body = self._server.get("/v1/layout")
            check_hash(body, manifest.layout, "the layout")
            self._layout = manifest.layout, Layout.parse(body)
        return self._layout[1]


def _newest(answer: Optional[dict]) -> Optional[str]:
    newest = (answer or {}).get("newest")
    if not isinstance(newest, (str, type(None))):
        raise Corrupt(f"a version is {newest!r}")
    return newest


def _run(version: Optional[str]) -> Optional[str]:
    return version and version.rpartition("-")[2]
