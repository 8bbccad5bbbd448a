#!/usr/bin/env python3
"""Throws requests of all kinds at the ranks of a run that publishes, without a token and with one.

    tests/published/fuzz.py PROGRAM [--seconds 60] [--seed 0]     PROGRAM has `publish: (copies: 2)`

Each request must be answered, or its connection closed, within the bounds of docs/publish.md; nothing is read without the token; a rank
holds no more memory and descriptors than before; proper readers are served meanwhile; and the run trains on to its end. With one seed,
case N of worker W is always the same, but for the name of the run. Takes the standard library alone.
"""

import argparse
import http.client
import json
import os
import random
import re
import select
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from running import Processes, Run, until

HEAD_WITHIN, IDLE_MAX, WAIT_MAX, MARGIN = 10, 90, 60, 5
CONNECTIONS_MAX, FLOOD, JOINS = 128, 300, 3000
# A connection holds up to two frames of 64 KiB and a head of 16 KiB; the allocator may keep what many at once have taken.
MEMORY_MAX = 8 << 20
TOKEN = "correct horse battery staple"
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
QUICK, SLOW = 6, 6  # Workers.


class Wrong(AssertionError):
    """What a server did not do as it should, with the bytes that were sent."""


def request(method, path, *headers, body=b"", version=b"HTTP/1.1"):
    return b"\r\n".join([b"%s %s %s" % (method, path, version), b"Host: x", *headers, b"", body])


def sized(body):
    return b"Content-Length: %d" % len(body)


def noise(rng, most):
    return rng.randbytes(rng.randrange(most))


class Target:
    """A run that is attacked."""

    def __init__(self, run, token):
        self.run, self.token = run, token
        host, port = run.url.removeprefix("http://").rsplit(":", 1)
        self.addresses = [(host, int(port))]
        self.newest = b"0-" + run.name.encode()
        self.layout = json.loads(until("a layout", 30, lambda: self.get(0, "/v1/layout", True)))
        self.addresses = [(host, rank["port"]) for rank in self.layout["ranks"]]

    def get(self, rank, path, is_fresh=False, **headers):
        """The body at a path; none if the server is full, or the version was given up."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(*self.addresses[rank], timeout=20)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except (http.client.HTTPException, ConnectionError):
            return None
        finally:
            connection.close()
        assert answer.status in (200, 206, 410, 404 if is_fresh else 200), f"{path}: {answer.status} {body[:200]}"
        return body if answer.status < 300 else None

    def read(self):
        """Reads a version as a proper reader does, and returns its step; none if it was given up meanwhile."""
        manifest = self.get(0, "/v1/manifest", True)
        if manifest is None:
            return None
        manifest = json.loads(manifest)
        of_version = f"/v1/versions/{manifest['version']}"
        for rank, of_rank in enumerate(self.layout["ranks"]):
            size = of_rank["bytes"]
            hashes, whole = [self.get(rank, f"{of_version}/{what}") for what in ("hashes", "bytes")]
            middle = self.get(rank, f"{of_version}/bytes", Range=f"bytes={size // 3}-{size // 2}")
            end = self.get(rank, f"{of_version}/bytes", Range="bytes=-1000")
            if None in (hashes, whole, middle, end):
                return None
            assert len(hashes) == 32 * -(-size // manifest["piece_bytes"]) and len(whole) == size, "a wrong length"
            assert middle == whole[size // 3 : size // 2 + 1] and end == whole[-1000:], "other bytes in a range"
        self.newest = manifest["version"].encode()
        return manifest["step"]

    def read_newer(self, than):
        """Reads a version that is newer than a step; whoever attacks must not keep a proper reader from it for long."""
        found = until(f"a version after step {than} is read", 30, lambda: (self.read() or -1) > than and self.newest)
        return int(found.split(b"-")[0])

    def valid(self, rng):
        """A request as readers and ranks make them."""
        of, run = b"/v1/versions/" + self.newest, self.newest.split(b"-")[1]
        name, ack = b'{"name": "fuzz"}', b'{"version": "%s", "error": null}' % self.newest
        first = rng.randrange(2_000_000)
        return rng.choice([
            request(b"GET", b"/v1/manifest"),
            request(b"GET", b"/v1/layout"),
            request(b"GET", b"/v1/files/config.json"),
            request(b"GET", of + b"/manifest"),
            request(b"GET", of + b"/hashes"),
            request(b"GET", of + b"/bytes", b"Range: bytes=%d-%d" % (first, first + rng.randrange(5000))),
            request(b"GET", b"/v1/wait?after=%s&seconds=1" % self.newest),
            request(b"POST", b"/v1/subscribers", sized(name), body=name),
            request(b"POST", b"/v1/subscribers/%s/ack" % run, sized(ack), body=ack),
            request(b"DELETE", b"/v1/subscribers/" + run),
            request(b"POST", b"/v1/ranks/1/7", sized(b"0" * 64), body=b"0" * 64),
        ])


# Each kind makes the bytes of a case.


def random_bytes(rng, target):
    return noise(rng, 3000) + rng.choice([b"", b"\r\n\r\n", b"\n\n", b"\0" * 100])


def bad_line(rng, target):
    method = rng.choice([b"GET", b"get", b"HEAD", b"CONNECT", b"OPTIONS", b"TRACE", b"G\0T", b"", b"X" * 5000, b"PRI"])
    path = rng.choice([b"/v1/layout", b"*", b"", b"x:1", b"http://x/v1/layout", b"//v1/layout", b"/v1 /layout", b"/\xff", b"?"])
    version = rng.choice([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"http/1.1", b"", noise(rng, 20)])
    return request(method, path, version=version)


def bad_headers(rng, target):
    lines = [
        b"no colon", b": no name", b"a b: c", b"A: \0", b"A: \x7f", b" folded", b"A" * 300 + b": b", b"A: " + noise(rng, 90),
        b"Content-Length: -1", b"Content-Length: 1\r\nContent-Length: 2", b"Content-Length: 0x10", b"Expect: 100-continue",
        b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Upgrade: h2c\r\nConnection: Upgrade",
        b"Host: y", b"Connection: close, keep-alive, x", b"Range: bytes=0-1\r\nRange: bytes=5-6", b"A: b\nC: d", b"A: b\rC: d",
    ]
    return request(rng.choice([b"GET", b"POST"]), b"/v1/layout", *rng.sample(lines, rng.randrange(1, 4)))


def mutated(rng, target):
    data = bytearray(target.valid(rng))
    for _ in range(rng.randrange(1, 6)):
        at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : min(to, at + 20)]
            case 2:
                data[at:at] = data[at:to]
            case 3:
                data[at:at] = noise(rng, 20)
            case 4:
                data[at:at] = rng.choice([b"\r\n", b"\r\n\r\n", b" ", b":", b"/", b"%00", b"9" * 40, b"-", b"\xff"])
        data = data or bytearray(b" ")
    return bytes(data)


def long_head(rng, target):
    size = rng.choice([16_300, 16_400, 17_000, 65_536, 1_000_000])
    return rng.choice([
        request(b"GET", b"/" + b"a" * size),
        request(b"GET", b"/v1/layout", b"A: " + b"b" * size),
        request(b"GET", b"/v1/layout", *[b"A: b"] * (size // 50)),
        b"A" * size,
    ])


def bodies(rng, target):
    """Long ones, and those that are shorter or longer than they say, some of them in chunks."""
    body = rng.choice([b'{"name": "%s"}' % (b"n" * rng.choice([10, 4000, 4096, 100_000])), noise(rng, 5000), b"[" * 4000, b""])
    lengths = [0, 1, len(body) - 1, len(body), len(body) + 1, 4096, 4097, 1 << 31, 1 << 63, 1 << 64, 10**30]
    chunk = b"%x\r\n" % rng.choice([len(body), len(body) + 5, 1, 1 << 40, (1 << 64) - 1])
    chunks = rng.choice([chunk, b"-1\r\n", b"z\r\n", b"f" * 17 + b"\r\n", b"5;" + b"e" * 9000 + b"\r\n"]) + body
    chunked = chunks + rng.choice([b"", b"\r\n0\r\n\r\n", b"\r\n0\r\nA: b\r\n\r\n", b"\r\n0\r\n" + b"A: b\r\n" * 900])
    length = b"Content-Length: %d" % max(0, rng.choice(lengths))
    header, body = rng.choice([(length, body), (b"Transfer-Encoding: chunked", chunked)])
    path = rng.choice([b"/v1/subscribers", b"/v1/subscribers/x/ack", b"/v1/ranks/1/5", b"/v1/layout", b"/none"])
    return request(rng.choice([b"POST", b"POST", b"GET"]), path, header, body=body)


def odd_json(rng, target):
    body = rng.choice([
        b"{}", b"null", b'{"name": 5}', b'{"name": "\xff"}', b'{"name": "\\u0000\\u001b[2J"}', b'{"name": "x", "name": "y"}',
        b'{"version": "5", "error": 5}', b'{"version": "99999999999999999999-x", "error": "\\n\\u202e"}',
        b'{"version": "18446744073709551615-%s", "error": null}' % target.newest.split(b"-")[1], b'{"name": 1e999}',
    ])
    return request(b"POST", b"/v1/subscribers" + rng.choice([b"", b"/x/ack"]), sized(body), body=body)


def odd_range(rng, target):
    ends = [b"", b"0", b"1", b"-1", b"+1", b"1e3", b"99999999", b"1927295", b"1927296", b"1927297", b"%d" % (2**64 - 1), b"9" * 99]
    kind = rng.choice([b"bytes", b"bytes", b"items", b"", b"BYTES "])
    one = lambda: rng.choice(ends) + rng.choice([b"-", b"-", b"", b"--"]) + rng.choice(ends)
    ranges = b",".join(one() for _ in range(rng.choice([1, 1, 1, 2, 500])))
    return request(b"GET", b"/v1/versions/%s/bytes" % target.newest, b"Range: %s=%s" % (kind, ranges))


def odd_path(rng, target):
    run = target.newest.split(b"-")[1]
    steps = [b"0", b"-1", b"+5", b"1e3", b"%d" % 2**63, b"%d" % (2**64 - 1), b"%d" % 2**64, b"", b"9" * 500, b"%30"]
    version = rng.choice(steps) + rng.choice([b"-", b"--", b"", b"%2d"]) + rng.choice([run, run.upper(), run[:-1], b""])
    names = [
        b"..", b"../../etc/passwd", b"..%2f..%2fetc%2fpasswd", b"%2e%2e/config.json", b"config.json%00", b"./config.json", b"%",
        b"%zz", b"", b"/etc/passwd", b"C:\\x", b"config.json/", b"\xc3\xa9", b"a" * 2000, b"config.json?x#y", b"..;/x",
    ]
    path = rng.choice([
        b"/v1/versions/%s/%s" % (version, rng.choice([b"bytes", b"hashes", b"manifest", b"", b"bytes/", b"other"])),
        b"/v1/files/" + rng.choice(names),
        b"/" + rng.choice(names) + b"/v1/layout",
        b"/v1/subscribers/%s/ack" % rng.choice(names),
        b"/v1/ranks/%s/%s" % (rng.choice(steps), rng.choice(steps)),
        b"/v1/wait?after=%s&seconds=%s" % (version, rng.choice([b"0", b"-1", b"1e9", b"", b"9" * 30, b"1&seconds=x"])),
    ])
    return request(rng.choice([b"GET", b"GET", b"POST", b"DELETE"]), path, b"Connection: close")


def pipelined(rng, target):
    return b"".join(target.valid(rng) for _ in range(rng.randrange(2, 60)))


KINDS = [random_bytes, bad_line, bad_headers, mutated, long_head, bodies, odd_json, odd_range, odd_path, pipelined]


def authorized(rng, data, token):
    """The request with a header that should help, or should not; and whether it has the right token."""
    others = [token[:-1], token + "x", token.upper(), "", " ", "x" * 8000, "\xff", "Bearer " + token]
    wrong = rng.choice(["Bearer", "Basic", "bearer", ""]), rng.choice(others)
    scheme, given = ("Bearer", token) if rng.random() < 0.4 else wrong
    # Spaces before a value are no part of it.
    right = f"{scheme} {given}".strip() == f"Bearer {token}"
    header = f"\r\nAuthorization: {scheme} {given}\r\n".encode("latin1")
    return data.replace(b"\r\n", header, 1) if rng.random() < 0.8 else data, right


def exchange(address, data, ending, within):
    """Sends bytes and reads meanwhile, until the server closes, or is silent after an answer. Returns what came."""
    began, got, heard = time.monotonic(), b"", None
    with socket.create_connection(address, within) as stream:
        stream.setblocking(False)
        left = memoryview(data)
        while True:
            now = time.monotonic()
            if heard and now - heard > 0.1 and (STATUS.match(got) or len(got) > 20):
                return got
            if now - began > within:
                raise Wrong(f"neither an answer nor a close within {within} s; {len(left)} bytes were not taken")
            readable, writable, _ = select.select([stream], [stream] if left else [], [], 0.05)
            try:
                if readable:
                    if not (some := stream.recv(1 << 16)):
                        return got
                    got, heard = got + some, now
                if writable:
                    left = left[stream.send(left) :]
                    if not left and ending == "half-closed":
                        stream.shutdown(socket.SHUT_WR)
                if ending == "reset" and (not left or got):
                    reset(stream)
                    return got
            except BlockingIOError:
                pass
            except OSError:
                return got


def reset(stream):
    """Closes by a reset, instead of an orderly end."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def trickle(stream, data, what):
    """Sends a byte a second until the server answers or closes."""
    began = time.monotonic()
    for byte in data:
        try:
            stream.send(bytes([byte]))
            stream.settimeout(1)
            return stream.recv(1 << 16)
        except TimeoutError:
            pass
        except ConnectionError:
            return b""
        if time.monotonic() - began > HEAD_WITHIN + MARGIN:
            raise Wrong(f"{what} of a byte a second is read for ever")
    return b""


class Attack:
    """Workers that attack a target until they are told to stop."""

    def __init__(self, target, seed):
        self.target, self.seed, self.counts, self.wrong = target, seed, {}, []
        self.stop, self.lock = threading.Event(), threading.Lock()
        works = [(self.quick, f"{number}") for number in range(QUICK)] + [(self.slow, f"slow {number}") for number in range(SLOW)]
        works += [(self.floods, "floods"), (self.joins, "joins")]
        self.threads = [threading.Thread(target=self.guarded, args=work, daemon=True) for work in works]
        for thread in self.threads:
            thread.start()

    def guarded(self, work, name):
        number, self_sent = 0, b""
        try:
            while not self.stop.is_set():
                rng = random.Random(f"{self.seed} {name} {number}")
                number += 1
                for sent in work(rng):
                    self_sent = sent
        except Exception as error:
            what = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            self.wrong.append(f"seed {self.seed}, worker {name}, case {number - 1}: {what}\nsent: {self_sent!r}")
            self.stop.set()

    def count(self, kind):
        with self.lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def check(self, data, got, may_read):
        statuses = [int(status) for status in STATUS.findall(got)]
        if got and not STATUS.match(got):
            raise Wrong(f"no status line: {got[:200]!r}")
        if any(status == 500 or status > 503 for status in statuses):
            raise Wrong(f"an error of the server: {got[:300]!r}")
        if not may_read and any(200 <= status < 300 for status in statuses):
            raise Wrong(f"an answer without the token: {got[:300]!r}")
        if got.startswith(b"HTTP/1.1 206"):
            span = re.search(rb"content-range: bytes (\d+)-(\d+)/(\d+)\r\n", got, re.IGNORECASE)
            length = int(re.search(rb"content-length: (\d+)\r\n", got, re.IGNORECASE)[1])
            first, last, size = map(int, span.groups())
            if not (first + length == last + 1 <= size):
                raise Wrong(f"a wrong range: {got[:300]!r}")

    def quick(self, rng):
        target, kind, rank = self.target, rng.choice(KINDS), rng.randrange(len(self.target.addresses))
        data, may_read = kind(rng, target), not target.token
        if target.token and kind is not random_bytes:
            data, may_read = authorized(rng, data, target.token)
        # What only ranks may say, what leads out of the files, and a head that is too long, is refused to everyone.
        is_barred = kind is odd_path and re.match(rb"\S+ (\S*\.\.|/v1/ranks)", data)
        may_read = may_read and not is_barred and not (kind is long_head and len(data) > 17_000)
        ending = rng.choice(["", "", "", "half-closed", "reset"])
        yield data
        waits = WAIT_MAX if b"wait" in data else 0
        got = exchange(target.addresses[rank], data, ending, waits + HEAD_WITHIN + MARGIN)
        self.check(data, got, may_read)
        self.count(kind.__name__)

    def slow(self, rng):
        target, address = self.target, rng.choice(self.target.addresses)
        body = b'{"name": "slow"}'
        post = request(b"POST", b"/v1/subscribers", b"Content-Length: 99", body=body[: rng.randrange(len(body))])
        head = target.valid(rng)
        head = head[: rng.randrange(head.index(b"\r\n\r\n"))]
        kind = rng.choice(["byte a second", "byte a second", "body a byte a second", "half a head", "half a body", "reset in a body"])
        whole = request(b"GET", b"/v1/versions/%s/bytes" % target.newest)
        data = {"half a head": head, "half a body": post, "reset in a body": whole}.get(kind, head + b"x" * 99)
        yield data
        if kind == "byte a second":
            with socket.create_connection(address) as stream:
                got = trickle(stream, data, "a head")
        elif kind == "body a byte a second":
            data = request(b"POST", b"/v1/subscribers", b"Content-Length: 99")
            with socket.create_connection(address) as stream:
                stream.sendall(data)
                got = trickle(stream, b" " * 60, "a body")
        else:
            got = exchange(address, data, "reset" if kind == "reset in a body" else "", HEAD_WITHIN + MARGIN)
        self.check(data, got, not target.token and kind == "reset in a body")
        self.count(kind)

    def floods(self, rng):
        """More connections at once than a rank has room for."""
        address, streams, closed = rng.choice(self.target.addresses), [], 0
        data = request(b"GET", b"/v1/manifest")
        yield data
        try:
            for _ in range(FLOOD):
                streams.append(socket.create_connection(address, 10))
            for stream in streams:
                if rng.random() < 0.3:
                    try:
                        stream.sendall(data)
                    except ConnectionError:
                        pass
            time.sleep(1)
            for stream in streams:
                stream.settimeout(0)
                try:
                    # What was answered may be closed since.
                    while got := stream.recv(4096):
                        self.check(data, got, not self.target.token)
                    closed += 1
                except BlockingIOError:
                    pass
                except ConnectionError:
                    closed += 1
        finally:
            for stream in streams:
                stream.close()
        if closed < FLOOD - CONNECTIONS_MAX:
            raise Wrong(f"{FLOOD - closed} connections at once")
        self.count("floods")
        self.stop.wait(rng.uniform(3, 8))

    def joins(self, rng):
        """Thousands of readers that join and say nothing more."""
        body = b'{"name": "%s"}' % (b"j" * 60)
        data = request(b"POST", b"/v1/subscribers", sized(body), body=body) * 50
        yield data
        for _ in range(JOINS // 50):
            got = exchange(self.target.addresses[0], data, "", HEAD_WITHIN + MARGIN)
            self.check(data, got, not self.target.token)
            if bad := set(STATUS.findall(got)) - {b"401" if self.target.token else b"201", b"503"}:
                raise Wrong(f"joins are answered by {bad}")
        self.count(f"{JOINS} joins")
        self.stop.wait(30)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(WAIT_MAX + HEAD_WITHIN + 2 * MARGIN)
            if thread.is_alive():
                self.wrong.append(f"seed {self.seed}: a worker does not end")
        if self.wrong:
            sys.exit("\n\n".join(self.wrong))


def idle_connections(target):
    """Connections that do nothing any more: after nothing at all, after an answer, and in the middle of one."""
    streams = []
    for address in target.addresses:
        for data in (b"", request(b"GET", b"/v1/layout"), request(b"GET", b"/v1/versions/%s/bytes" % target.newest) * 50):
            stream = socket.socket()
            # Otherwise the system takes the whole answer, for whoever does not read it.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stream.connect(address)
            stream.sendall(data)
            streams.append(stream)
    return streams


def held(ranks):
    """Private memory and descriptors of each process."""
    memory = [re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{rank}/status").read_text())[1] for rank in ranks]
    return [int(kib) << 10 for kib in memory], [len(os.listdir(f"/proc/{rank}/fd")) for rank in ranks]


def attack(processes, program, steps, seconds, seed, token):
    """Attacks one run for some seconds."""
    more = ["--steps", steps, "--publish-timeout", "3s"]
    if token:
        path = processes.folder / "token"
        path.write_text(token + "\n")
        more += ["--publish-token", path]
    run = Run(processes, [program], *more)
    target = Target(run, token)
    until("20 steps", 60, lambda: run.step() >= 20)
    step, ranks = target.read_newer(-1), run.ranks()
    assert len(ranks) == len(target.addresses), f"ranks {ranks}"
    (memory, descriptors), most = held(ranks), 0
    idle, began = idle_connections(target), time.monotonic()
    attacking = Attack(target, seed)
    reads = 0
    while time.monotonic() - began < seconds and not attacking.stop.is_set():
        trained = run.step()
        step, reads = target.read_newer(step), reads + 1
        until(f"a step after {trained}", 30, lambda: run.step() > trained)
        most = max(most, *(now - before for now, before in zip(held(ranks)[0], memory)))
        time.sleep(0.5)
    attacking.end()
    assert run.process.poll() is None, f"the run has ended:\n{run.printed()[-3000:]}"
    step = target.read_newer(step)
    time.sleep(max(0, began + IDLE_MAX + MARGIN - time.monotonic()) if not token else 0)
    grown = [now - before for now, before in zip(held(ranks)[0], memory)]
    # Those that are idle are still open here; only a run that is over has closed them in its own way.
    if not token:
        until(f"idle connections are closed: {descriptors} descriptors before", 5, lambda: held(ranks)[1] <= descriptors)
    for stream in idle:
        stream.close()
    assert max(grown) <= MEMORY_MAX, f"seed {seed}: the private memory of ranks has grown by {grown} bytes"
    run.end(steps)
    notes = len(re.findall("^note", run.printed(), re.MULTILINE))
    print(f"{'with a token' if token else 'without a token'}: {sum(attacking.counts.values())} cases, {reads} proper reads up "
          f"to step {step} of {steps}, memory + {max(grown) >> 10} KiB (at most {most >> 10}), {notes} notes: {attacking.counts}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60, help="of attacks, on both runs together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        trial = Run(processes, [options.program], "--steps", 40)
        trial.end(60)
        step_s = min(line["step_s"] for line in trial.lines("step"))
        for token in (None, TOKEN):
            # No run is faster than one that is left alone, so this one is still there when the attack ends.
            seconds = options.seconds / 2
            lasts = max(seconds, 0 if token else IDLE_MAX) + 4 * MARGIN
            attack(processes, options.program, int(lasts / step_s), seconds, f"{options.seed} {bool(token)}", token)


if __name__ == "__main__":
    main()
