"""Subscribers against runs in this process: what they give, what they refuse, and how they follow."""

import contextlib
import io
import json
import pickle
import socket
import sys
import threading
import time
import unittest
from unittest import mock

from zero_weights import Corrupt, GivenUp, Mismatch, Refused, Subscriber, Unreachable, WeightsError, __main__
from zero_weights import subscriber as subscriber_module

from .fake_run import FILES, TENSORS, FakeRun

try:
    import torch
except ImportError:
    torch = None


class Case(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(subscriber_module, "_POLL", 0.2)
        patch.start()
        self.addCleanup(patch.stop)

    def start(self, *steps, **options):
        run = FakeRun(**options)
        self.addCleanup(run.stop)
        for step in steps:
            run.publish(step)
        return run

    def subscribe(self, run, **options):
        subscriber = Subscriber(run.url, name="test", **{"timeout": 2, **options})
        self.addCleanup(subscriber.close)
        return subscriber

    def assert_whole(self, version, run, name):
        found = {tensor.name: bytes(tensor.data) for tensor in version}
        self.assertEqual(found, run.expected(name))
        self.assertEqual(version.version, name)


class Fetching(Case):
    def test_a_version_comes_whole(self):
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype):
                run = self.start(3, 4, dtype=dtype)
                version = self.subscribe(run).fetch()
                self.assert_whole(version, run, run.newest)
                self.assertEqual((version.step, version.dtype, len(version)), (4, dtype, len(TENSORS)))
                self.assertEqual(version.nbytes, 48 * run.element)
                described = [(tensor.name, tensor.shape, tensor.dtype) for tensor in version]
                self.assertEqual(described, [(name, shape, dtype) for name, shape, _ in TENSORS])

    def test_pieces_may_be_of_any_size(self):
        for piece_bytes in (1, 7, 56, 1 << 20):
            with self.subTest(piece_bytes):
                run = self.start(1, piece_bytes=piece_bytes)
                self.assert_whole(self.subscribe(run).fetch(run.newest), run, run.newest)

    def test_each_rank_is_asked_once_and_all_before_any_is_read(self):
        run = self.start(1)
        run.gate = threading.Barrier(4)
        subscriber = self.subscribe(run)
        subscriber.fetch()
        self.assertFalse(run.gate.broken)
        subscriber.fetch()
        asked = [rank for rank, _, path in run.requests if path.endswith("/bytes")]
        self.assertEqual(sorted(asked), [0, 0, 1, 1, 2, 2, 3, 3])
        self.assertEqual(sum(path == "/v1/layout" for _, _, path in run.requests), 1)

    def test_files_are_fetched_when_asked_for(self):
        run = self.start(1)
        files = self.subscribe(run).fetch().files
        self.assertFalse(any("files" in path for _, _, path in run.requests))
        self.assertEqual(dict(files), FILES)
        self.assertRaises(KeyError, lambda: files["absent"])
        with mock.patch.dict(FILES, {"config.json": b"x" * len(FILES["config.json"])}):
            self.assertRaisesRegex(Corrupt, "config.json", lambda: files["config.json"])

    def test_nothing_or_another_version(self):
        run = self.start()
        subscriber = self.subscribe(run)
        for version in (None, "7-0123456789abcdef"):
            with self.assertRaises(Refused) as caught:
                subscriber.fetch(version)
            self.assertEqual(caught.exception.status, 404)
        self.assertEqual(run.acks, [])


class Refusing(Case):
    def assert_corrupt(self, run, pattern):
        """A fetch fails as corrupt, and is acknowledged so; returns the error."""
        with self.assertRaisesRegex(Corrupt, pattern) as caught:
            self.subscribe(run).fetch()
        name, ack = run.acks.pop()
        self.assertEqual((name, ack), ("test", {"version": run.newest, "error": str(caught.exception)}))
        return caught.exception

    def test_a_flipped_bit(self):
        run = self.start(1)
        run.fault = "flip"
        error = self.assert_corrupt(run, "piece 2 of rank 1, from byte 32")
        self.assertEqual((error.rank, error.piece, error.offset), (1, 2, 32))
        self.assertEqual(error.expected, run.hashes(run.versions[run.newest][1])[64:96].hex())
        self.assertNotEqual(error.found, error.expected)
        self.assertEqual(vars(pickle.loads(pickle.dumps(error))), vars(error))
        run.fault = None
        run.publish(2)
        self.assert_whole(self.subscribe(run).fetch(), run, run.newest)

    def test_faults_of_a_server(self):
        faults = {"short": "rank 1 end early, at 40", "length": "rank 1 sends 57 bytes, not 56",
                  "hashes": "hashes of rank 1", "layout": "the layout: BLAKE3"}
        for fault, pattern in faults.items():
            with self.subTest(fault):
                run = self.start(1)
                run.fault = fault
                self.assert_corrupt(run, pattern)

    def test_wrong_layouts(self):
        def part(tensor, which, **fields):
            return lambda layout: layout["tensors"][tensor]["parts"][which].update(fields)

        def tensor(**fields):
            return lambda layout: layout["tensors"][0].update(fields)

        wrong = {
            "hole": part(0, 0, start=20),
            "overlap": part(0, 0, start=18),
            "end missing": part(2, 0, len=3),
            "past the end": part(2, 0, len=5),
            "wrong offset": part(0, 0, offset=56 - 32),
            "negative offset": part(0, 0, offset=-4),
            "unknown rank": part(0, 0, rank=4),
            "negative rank": part(0, 0, rank=-3),
            "fraction": part(2, 0, len=4.0),
            "twice": tensor(name="scale"),
            "wrong transposition": lambda layout: layout["tensors"][2].update(transposed=True),
            "shape": tensor(shape=[-7, -4]),
            "dtype": lambda layout: layout.update(dtype="f16"),
            "no ranks": lambda layout: layout.update(ranks=[]),
            "port": lambda layout: layout["ranks"][0].update(port=1 << 16),
            "url": lambda layout: layout["ranks"][0].update(url="file:///etc/passwd"),
            "file": lambda layout: layout["files"][0].update(name="../config.json"),
            "folder": lambda layout: layout["files"][0].update(name=".."),
            "field": lambda layout: layout.pop("files"),
        }
        run = self.start(1)
        right = run.layout_bytes()
        for name, change in wrong.items():
            with self.subTest(name):
                run.layout = json.loads(right)
                change(run.layout)
                self.assert_corrupt(run, "^the layout is wrong")
        self.assertFalse(any(path.endswith("/bytes") for _, _, path in run.requests))

    def test_wrong_manifests(self):
        run = self.start(1)
        right = run.manifest(run.newest)
        for change in ({"version": "2-" + run.run}, {"step": 2}, {"run": "f" * 16}, {"piece_bytes": 0}, {"roots": None},
                       {"roots": right["roots"][:-1]}, {"version": "2-" + run.run, "step": 2}, {"layout": None}):
            with self.subTest(**change), mock.patch.object(run, "manifest", lambda _: {**right, **change}):
                subscriber = self.subscribe(run)
                self.assertRaises(Corrupt, subscriber.fetch, run.newest)
                self.assertEqual(run.acks.pop()[1]["version"], run.newest)

    def test_bodies_of_another_length_than_they_should_have(self):
        run = self.start(1)
        wrong = {257 << 20: (Corrupt, "more than 268435456 bytes"), 999: (Unreachable, "Incomplete")}
        for run.announced, (error, pattern) in wrong.items():
            self.assertRaisesRegex(error, pattern, self.subscribe(run).fetch)

    def test_token(self):
        run = self.start(1, token="secret")
        for token in (None, "other"):
            with self.assertRaises(Refused) as caught:
                next(self.subscribe(run, token=token).versions())
            self.assertEqual(caught.exception.status, 401)
        subscriber = self.subscribe(run, token="secret")
        subscriber.fetch(next(subscriber.versions()))
        subscriber.acknowledge(run.newest)

    def test_no_server(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            subscriber = Subscriber(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
            self.assertRaisesRegex(Unreachable, "timed out", subscriber.fetch)
        begun = time.monotonic()
        with self.assertRaises(Unreachable):
            next(subscriber.versions(stop_after=0.3))
        self.assertTrue(0.3 <= time.monotonic() - begun < 2)
        for wrong in ("127.0.0.1:7000", "https://host", "http://", "http://host/path"):
            self.assertRaises(ValueError, Subscriber, wrong)


class Following(Case):
    def test_a_version_given_up_while_it_is_read(self):
        for fault in ("give up", "reset"):
            with self.subTest(fault):
                run = self.start(1)
                subscriber = self.subscribe(run)
                versions = subscriber.versions()
                first = next(versions)
                run.fault, run.gate = fault, threading.Barrier(4)
                with self.assertRaisesRegex(GivenUp, "/hashes: 410") as caught:
                    subscriber.fetch(first)
                self.assertEqual(caught.exception.newest, first)
                second = run.publish(2)
                with self.assertRaisesRegex(GivenUp, "/manifest: 410") as caught:
                    subscriber.fetch(first)
                self.assertEqual(caught.exception.newest, second)
                self.assertEqual(next(versions), second)
                self.assert_whole(subscriber.fetch(second), run, second)
                self.assertEqual(run.acks, [])

    def test_one_who_comes_late_gets_the_newest(self):
        run = self.start(1, 2, 3)
        versions = self.subscribe(run).versions()
        self.assertEqual(next(versions), run.newest)
        for step in (4, 5):
            run.publish(step)
        self.assertEqual(next(versions), run.newest)
        threading.Timer(0.3, run.publish, [6]).start()
        self.assertEqual(next(versions), f"6-{run.run}")

    def test_waiting_for_a_version_is_no_time_out(self):
        run = self.start(1)
        with mock.patch.object(subscriber_module, "_POLL", 3):
            versions = self.subscribe(run, timeout=1).versions(stop_after=0)
            next(versions)
            threading.Timer(1.3, run.publish, [2]).start()
            self.assertEqual(next(versions), f"2-{run.run}")

    def test_each_outage_counts_by_itself(self):
        subscriber, gone = self.subscribe(self.start()), Unreachable("gone")
        subscriber.join()
        with mock.patch.object(subscriber._server, "call", side_effect=[gone, {}, gone, {}, gone, {"newest": "1-a"}]):
            self.assertEqual(next(subscriber.versions(stop_after=0.15)), "1-a")

    def test_a_restarted_run(self):
        run = self.start(1)
        subscriber = self.subscribe(run)
        versions = subscriber.versions(stop_after=10)
        subscriber.acknowledge(subscriber.fetch(next(versions)).version)
        run.stop()
        restarted = []

        def restart():
            restarted.append(self.start(dtype="bf16", run="f" * 16, ports=run.ports))
            restarted[0].publish(1)

        threading.Timer(0.3, restart).start()
        version = next(versions)
        self.assertEqual(version, "1-" + "f" * 16)
        self.assertEqual(list(restarted[0].subscribers.values()), ["test"])
        self.assert_whole(subscriber.fetch(version), restarted[0], version)
        subscriber.acknowledge(version)
        self.assertEqual([ack["version"] for _, ack in restarted[0].acks], [version])

    def test_acknowledgements_of_one_who_was_forgotten(self):
        run = self.start(1)
        subscriber = self.subscribe(run)
        subscriber.join()
        run.subscribers.clear()
        subscriber.acknowledge(run.newest)
        self.assertEqual(run.acks, [("test", {"version": run.newest, "error": None})])
        subscriber.acknowledge(run.newest, "\N{CLOUD}" * 10000)  # More than a server would read.
        self.assertEqual(run.acks.pop()[1]["error"], "\N{CLOUD}" * 300)
        run.subscribers.clear()
        subscriber.acknowledge("1-" + "f" * 16)  # Of an earlier run: it joins, and has nothing to tell.
        self.assertEqual((len(run.acks), list(run.subscribers.values())), (1, ["test"]))

    def test_close_leaves_and_ends(self):
        run = self.start(1)
        with self.subscribe(run) as subscriber:
            versions = subscriber.versions()
            next(versions)
            self.assertEqual(list(run.subscribers.values()), ["test"])
            threading.Timer(0.3, subscriber.close).start()
            self.assertEqual(list(versions), [])
        self.assertEqual(run.subscribers, {})
        self.assertRaises(WeightsError, subscriber.join)
        subscriber = self.subscribe(run)
        with mock.patch.object(subscriber, "join", lambda: (subscriber.close(), Subscriber.join(subscriber))):
            self.assertEqual(list(subscriber.versions()), [])  # Closed just before it joins.

    def test_errors_of_a_server_end_it(self):
        run = self.start(1)
        run.fault = "500"
        self.assertRaisesRegex(Refused, "500 broken", lambda: next(self.subscribe(run).versions()))
        for run.fault in (b"[]", b"[" * 100000, b"{}", b'{"id": "a1", "newest": 7}'):
            self.assertRaises(Corrupt, lambda: next(self.subscribe(run).versions()))

    def test_the_command_prints_a_line(self):
        run = self.start(1)
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["zero_weights", run.url, "--once"]), contextlib.redirect_stdout(out):
            self.assertEqual(__main__.main(), 0)
        self.assertRegex(out.getvalue(), rf"^{run.newest}: 4 tensors, 0\.0 MiB, \d+\.\d\d s\n$")
        self.assertEqual(run.acks[0][1], {"version": run.newest, "error": None})


@unittest.skipIf(torch is None, "torch is not installed")
class Applying(Case):
    def module(self, dtype, width=3):
        """A module with the fake run's parameters, and "head.weight" tied to "embed.weight"."""
        module = torch.nn.Module()
        module.embed, module.proj = torch.nn.Embedding(7, 4), torch.nn.Linear(width, 5, bias=False)
        module.norm, module.scale = torch.nn.PReLU(4), torch.nn.Parameter(torch.zeros(()))
        module.head = torch.nn.Linear(4, 7, bias=False)
        module.head.weight = module.embed.weight
        return module.to(dtype)

    def test_weights_are_copied_and_acknowledged(self):
        for name, dtype, bits in (("f32", torch.float32, torch.int32), ("bf16", torch.bfloat16, torch.int16)):
            with self.subTest(name):
                run = self.start(1, dtype=name)
                module = self.module(dtype)
                self.subscribe(run).apply(module)
                for parameter, expected in run.expected(run.newest).items():
                    found = module.get_parameter(parameter).detach().view(-1).view(bits).numpy().tobytes()
                    self.assertEqual(found, expected, parameter)
                self.assertEqual([ack for _, ack in run.acks], [{"version": run.newest, "error": None}])

    def test_modules_that_differ(self):
        run = self.start(1)
        subscriber = self.subscribe(run)
        left, missing, copied = (self.module(torch.float32) for _ in range(3))
        left.more = torch.nn.Linear(2, 2, bias=False)
        del missing.norm
        copied.head.weight = torch.nn.Parameter(torch.zeros(7, 4))
        half, other = self.module(torch.bfloat16), self.module(torch.float32, width=4)
        for module, pattern in ((left, "more.weight: left over"), (missing, "norm.weight: .*missing"),
                                (copied, "head.weight: left over"), (half, "bfloat16"), (other, "proj.weight")):
            with self.subTest(pattern):
                before = module.embed.weight.clone()
                self.assertRaisesRegex(Mismatch, pattern, subscriber.apply, module)
                self.assertTrue(torch.equal(module.embed.weight, before))
                self.assertRegex(run.acks.pop()[1]["error"], pattern)

    def test_a_corrupt_version_leaves_the_module(self):
        run = self.start(1)
        subscriber, module = self.subscribe(run), self.module(torch.float32)
        subscriber.apply(module)
        before = module.embed.weight.clone()
        run.publish(2)
        run.fault = "flip"
        self.assertRaises(Corrupt, subscriber.apply, module)
        self.assertTrue(torch.equal(module.embed.weight, before))
        self.assertEqual([bool(ack["error"]) for _, ack in run.acks], [False, True])


if __name__ == "__main__":
    unittest.main()
