"""A run of several ranks in this process, whose servers speak the wire and can be told to misbehave."""

import hashlib
import json
import math
import os
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from blake3 import blake3

# Name, published shape, whether the ranks hold the transpose.
TENSORS = [
    ("embed.weight", (7, 4), False), ("proj.weight", (5, 3), True), ("norm.weight", (4,), False), ("scale", (), False)
]
FILES = {"config.json": b'{"model_type": "gpt"}', "tokenizer.json": b"{}" * 50}


class FakeRun:
    """Rank 0 serves at `url`; `fault` names what is wrong: see `Handler`. `acks` are (subscriber's name, ack)."""

    def __init__(self, dtype="f32", run="0123456789abcdef", ports=(0, 0, 0, 0), token=None, piece_bytes=16):
        self.dtype, self.run, self.token, self.piece_bytes = dtype, run, token, piece_bytes
        self.element = {"f32": 4, "bf16": 2}[dtype]
        self.versions, self.newest, self.subscribers, self.acks, self.requests = {}, None, {}, [], []
        self.fault = self.announced = self.gate = None
        self.stopped, self.changed = False, threading.Condition()
        self.servers = []
        for rank, port in enumerate(ports):
            handler = type("RankHandler", (Handler,), {"run": self, "rank": rank})
            server = ThreadingHTTPServer(("127.0.0.1", port), handler)
            server.daemon_threads, server.block_on_close = True, False
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self.servers.append(server)
        self.ports = [server.server_port for server in self.servers]
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self.layout = self._layout()

    def _layout(self):
        # All elements in one row, cut within the first and the second tensor; the last rank has none.
        cuts, begin, tensors = [(0, 19), (19, 33), (33, 48), (48, 48)], 0, []
        for name, shape, transposed in TENSORS:
            parts, count = [], math.prod(shape)
            for rank, (low, high) in enumerate(cuts):
                first, last = max(begin, low), min(begin + count, high)
                if first < last:
                    offset = (first - low) * self.element
                    parts.append({"rank": rank, "offset": offset, "start": first - begin, "len": last - first})
            # The order of parts means nothing.
            tensors.append({"name": name, "shape": shape, "transposed": transposed, "parts": parts[::-1]})
            begin += count
        sizes = [(high - low) * self.element for low, high in cuts]
        urls = [None, f"http://127.0.0.1:{self.ports[1]}", None, None]
        ranks = [{"url": u, "port": p, "bytes": b} for u, p, b in zip(urls, self.ports, sizes)]
        files = [{"name": n, "bytes": len(b), "blake3": blake3(b).hexdigest()} for n, b in FILES.items()]
        return {"model": "gpt", "dtype": self.dtype, "ranks": ranks, "tensors": tensors, "files": files}

    def layout_bytes(self):
        return json.dumps(self.layout).encode()

    def hashes(self, body):
        pieces = range(0, len(body), self.piece_bytes)
        return b"".join(blake3(body[at : at + self.piece_bytes]).digest() for at in pieces)

    def publish(self, step):
        """Publishes bytes that only the step decides; returns the version."""
        version = f"{step}-{self.run}"
        sizes = [rank["bytes"] for rank in self.layout["ranks"]]
        row = hashlib.shake_256(str(step).encode()).digest(sum(sizes))
        with self.changed:
            self.versions[version] = [row[sum(sizes[:r]) : sum(sizes[: r + 1])] for r in range(len(sizes))]
            self.newest = version
            self.changed.notify_all()
        return version

    def expected(self, version):
        """The published bytes of each tensor, element by element."""
        row, begin, size, tensors = b"".join(self.versions[version]), 0, self.element, {}
        for name, shape, transposed in TENSORS:
            count = math.prod(shape)
            places = range(count)
            if transposed:
                rows, columns = shape
                places = [c * rows + r for r in range(rows) for c in range(columns)]
            tensors[name] = b"".join(row[(begin + i) * size : (begin + i + 1) * size] for i in places)
            begin += count
        return tensors

    def give_up(self, version):
        self.versions[version] = None

    def manifest(self, version):
        roots = [blake3(self.hashes(body)).hexdigest() for body in self.versions[version]]
        layout = blake3(self.layout_bytes()).hexdigest()
        step = int(version.split("-")[0])
        return {"version": version, "step": step, "run": self.run, "layout": layout,
                "piece_bytes": self.piece_bytes, "roots": roots}

    def stop(self):
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for server in self.servers:
            server.shutdown()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One rank's server, which misbehaves by `run.fault`.

    Of rank 1's bytes, "flip" flips a bit of piece 2, "short" ends after 40, "give up" does too and drops the version,
    "reset" resets the connection besides, and "length" announces one more; "hashes" swaps its hashes. "layout" sends
    other bytes than were hashed, and "500" fails. Bytes are the answer to everything. A manifest is said to have
    `run.announced` bytes, if that is not None.
    """

    protocol_version = "HTTP/1.1"
    run = rank = None

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", length=None):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status, error="no"):
        self.reply(status, {"error": error, "newest": self.run.newest})

    def handle_request(self):
        run, url = self.run, urlsplit(self.path)
        run.requests.append((self.rank, self.command, url.path))
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        path = url.path.split("/")[2:]
        if run.token and self.headers.get("Authorization") != f"Bearer {run.token}":
            self.fail(401)
        elif length > 4 << 10:
            self.fail(400, "a long body")
        elif run.fault == "500":
            self.fail(500, "broken")
        elif isinstance(run.fault, bytes):
            self.reply(200, run.fault)
        elif path[0] == "versions":
            self.version(path[1], path[2])
        elif path == ["manifest"]:
            self.version(run.newest, "manifest")
        elif path == ["layout"]:
            self.reply(200, run.layout_bytes() + b" " * (run.fault == "layout"))
        elif path[0] == "files":
            self.reply(200, FILES[path[1]])
        elif path == ["wait"]:
            self.wait(parse_qs(url.query, keep_blank_values=True))
        elif path == ["subscribers"]:
            member = f"{run.run[:4]}{len(run.requests):x}"
            run.subscribers[member] = body["name"]
            self.reply(201, {"id": member, "newest": run.newest})
        elif path[1] not in run.subscribers:
            self.fail(404)
        elif self.command == "DELETE":
            del run.subscribers[path[1]]
            self.reply(204)
        else:
            run.acks.append((run.subscribers[path[1]], body))
            self.reply(200, {"newest": run.newest})

    do_GET = do_POST = do_DELETE = handle_request

    def wait(self, query):
        run, end = self.run, time.monotonic() + float(query["seconds"][0])
        with run.changed:
            while run.newest in (None, query["after"][0]) and time.monotonic() < end and not run.stopped:
                run.changed.wait(end - time.monotonic())
        if run.stopped:
            self.close_connection = True
        elif run.newest in (None, query["after"][0]):
            self.reply(204)
        else:
            self.reply(200, {"newest": run.newest})

    def version(self, version, what):
        run, wrong = self.run, self.run.fault if self.rank == 1 else None
        if version not in run.versions:
            return self.fail(404)
        if run.versions[version] is None:
            return self.fail(410)
        if what == "manifest":
            return self.reply(200, run.manifest(version), run.announced)
        body = run.versions[version][self.rank]
        if what == "hashes":
            hashes = run.hashes(body)
            return self.reply(200, hashes[32:] + hashes[:32] if wrong == "hashes" else hashes)
        length, body = len(body) + (wrong == "length"), bytearray(body)
        if wrong == "flip":
            body[2 * run.piece_bytes + 5] ^= 8
        if wrong in ("short", "give up", "reset"):
            del body[40:]
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if run.gate:
            run.gate.wait(2)
        if wrong in ("give up", "reset"):
            run.give_up(version)
            run.fault = None
        self.wfile.write(body)
        if wrong == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            os.close(self.connection.detach())
        self.close_connection = True
