#!/usr/bin/env python3
"""Kills, stops and starves readers and ranks of runs that publish. Nobody ever has half a version, or one of two runs mixed.

    PYTHONPATH=zero-runtime/publish/python tests/published/faults.py PROGRAM_1COPY PROGRAM_2COPIES ZERO [--seconds 60] [--seed 0] [--only PART ..]

Two programs of the same plan but for `publish: (copies: 1)` and `(copies: 2)`; ZERO is built with the feature `follow`. A step has the
same bits in every run, so whatever a reader has is compared with what all others have had of that step. Needs the wheel `blake3`.
"""

import argparse
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from running import Processes, Run, kill, until

SUBSCRIBERS, ROUNDS, STOPPED = 6, 8, 20
CALLS, CALLS_MAX = 12, 400
REFERENCE = 200  # Steps of which all digests are known from the beginning.


# Python subscribers: processes of this script.


def subscribe(url, name, patience, stops_at):
    """Prints a line of JSON for each version that it has, and each that it could not have. Stops in the middle of version `stops_at`."""
    from zero_weights import Subscriber, WeightsError, wire

    if stops_at:
        stop_in_the_middle(wire, stops_at)
    tell = lambda **what: print(json.dumps(what), flush=True)
    with Subscriber(url, name=name, timeout=10) as run:
        try:
            for version in run.versions(stop_after=patience):
                try:
                    fetched = run.fetch(version)
                    run.acknowledge(version)
                    tensors = {tensor.name: tensor.data for tensor in fetched}
                    tell(version=version, step=fetched.step, digest=digest(tensors))
                except WeightsError as error:
                    tell(failed=version, why=f"{type(error).__name__}: {error}")
        except WeightsError as error:
            tell(ended=f"{type(error).__name__}: {error}")


def stop_in_the_middle(wire, stops_at):
    class SmallWindow(http.client.HTTPConnection):
        def connect(self):
            # Otherwise the system takes all of a small version, for whoever does not read it.
            self.sock = socket.socket()
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.sock.settimeout(self.timeout)
            self.sock.connect((self.host, self.port))

    fill, pieces = wire.Server.fill, []

    def stopping(server, response, view):
        pieces.append(view)
        if len(pieces) == 4 * stops_at:  # A version has two pieces on each of two ranks.
            os.kill(os.getpid(), signal.SIGSTOP)
        return fill(server, response, view)

    wire.HTTPConnection, wire.Server.fill = SmallWindow, stopping


def digest(tensors):
    """Of all tensors, by name."""
    found = hashlib.sha256()
    for name, data in sorted(tensors.items()):
        found.update(name.encode() + b"\0")
        found.update(data)
    return found.hexdigest()[:16]


def python(processes, url, name, patience=5, stops_at=0):
    command = [sys.executable, __file__, "--subscribe", url, name, patience, stops_at]
    return processes.start(*command)


def told(process):
    """What a Python subscriber has printed so far."""
    text = process.out.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def versions(process):
    return [line for line in told(process) if "version" in line]


# Folders of `zero follow`.


def follow(processes, zero, url, out, patience=5):
    return processes.start(zero, "follow", url, "--out", out, "--name", Path(out).name, "--patience", patience)


def look(folder):
    """The version, step and digest in a folder, which must be whole; none if there is no folder."""
    while True:
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        try:
            names = ("published.json", "model.safetensors")
            files = [open(os.open(name, os.O_RDONLY, dir_fd=opened), "rb") for name in names]
        except FileNotFoundError:
            # A folder that has been replaced is removed; the one that has the name is whole.
            assert os.stat(folder).st_ino != os.fstat(opened).st_ino, f"{folder} has {os.listdir(opened)}"
            continue
        finally:
            os.close(opened)
        mark, weights = [file.read() for file in files]
        for file in files:
            file.close()
        mark = json.loads(mark)
        assert mark["version"] == f"{mark['step']}-{mark['run']}", f"{folder} has {mark}"
        return mark["version"], mark["step"], digest(parsed(weights))


def fill(path):
    """Writes a file until its disk is full."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            pass


def parsed(file):
    """The tensors of a file, which they fill."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header.pop("__metadata__", None)
    spans = sorted(entry["data_offsets"] for entry in header.values())
    ends = [0, *(end for _, end in spans)]
    assert [start for start, _ in spans] == ends[:-1] and 8 + length + ends[-1] == len(file), "holes in model.safetensors"
    return {name: file[8 + length + it["data_offsets"][0] : 8 + length + it["data_offsets"][1]] for name, it in header.items()}


def free_port():
    """A port that is free, as are the one before and the two after it: runs of two ranks use ports one after another. It is none of those
    that the system hands out, so that nobody gets it meanwhile."""
    while True:
        port = random.randrange(10_000, 30_000)
        try:
            for of_rank in range(port - 1, port + 3):
                socket.create_server(("127.0.0.1", of_rank)).close()
        except OSError:
            continue
        return port


class Truth:
    """The digest of each step, as everyone must have it."""

    def __init__(self):
        self.digests, self.compared = {}, 0

    def check(self, step, found, who):
        if step in self.digests:
            expected, first = self.digests[step]
            assert found == expected, f"{who} has {found} of step {step}, and {first} has {expected}"
            self.compared += 1
        self.digests.setdefault(step, (found, who))

    def look(self, folder, runs):
        """Checks a folder, whose version must be one of these runs; returns the version."""
        found = look(folder)
        if found is None:
            return None
        version, step, of_step = found
        assert version.split("-")[1] in runs, f"{folder} has {version}, which none of {runs} has published"
        self.check(step, of_step, f"{folder} with {version}")
        return version

    def read(self, process, runs):
        """Checks what a Python subscriber has had."""
        for line in versions(process):
            assert line["version"] in {f"{line['step']}-{run}" for run in runs}, line
            self.check(line["step"], line["digest"], f"a Python subscriber with {line['version']}")
        assert not re.search("Traceback|Corrupt", process.err.read_text() + process.out.read_text()), (
            process.err.read_text() + process.out.read_text()
        )


class Parts:
    """The parts of this test."""

    def __init__(self, processes, options):
        self.processes, self.options, self.rng, self.truth = processes, options, random.Random(options.seed), Truth()
        self.folder = processes.folder

    def run(self, copies, *more, under=(), **given):
        program = self.options.program_1copy if copies == 1 else self.options.program_2copies
        return Run(self.processes, [*under, program], *more, **given)

    def reference(self):
        """A run of one copy waits for its reader, which so has every version."""
        run = self.run(1, "--steps", REFERENCE)
        reader = python(self.processes, run.url, "reference", 1)
        run.end(120)
        reader.wait(20)
        self.truth.read(reader, [run.name])
        steps = [line["step"] for line in versions(reader)]
        assert len(steps) >= REFERENCE - 20 and steps == list(range(steps[0], REFERENCE + 1)), steps
        self.step_s = sorted(line["step_s"] for line in run.lines("step"))[REFERENCE // 2]
        return f"{len(steps)} versions one after another"

    def killed_subscribers(self):
        steps = int(self.options.seconds / 3 / self.step_s) + 60
        exported = self.folder / "exported"
        export = ["--export", exported, "--export-dtype", "bf16"]
        run = self.run(2, "--steps", steps, "--publish-timeout", "10s", *export)
        steady = python(self.processes, run.url, "steady")
        folders = [self.folder / f"killed-{number}" for number in range(SUBSCRIBERS // 2)]

        def start(number):
            if number < len(folders):
                return follow(self.processes, self.options.zero, run.url, folders[number])
            return python(self.processes, run.url, f"killed-{number}")

        subscribers, ended, kills, looks, seen = [start(number) for number in range(SUBSCRIBERS)], [], 0, 0, {}
        while run.step() < steps - 40:
            time.sleep(self.rng.uniform(0, 0.8))
            number = self.rng.randrange(SUBSCRIBERS)
            assert subscribers[number].poll() is None, f"a subscriber has ended: {subscribers[number].err.read_text()}"
            kill(subscribers[number])
            ended.append(subscribers[number])
            for folder in folders:
                found = self.truth.look(folder, [run.name])
                assert found or folder not in seen, f"{folder} is gone"
                if found:
                    looks, seen[folder] = looks + 1, found
            subscribers[number], kills = start(number), kills + 1
        run.end(60)
        last = f"{steps}-{run.name}"
        for process in subscribers + [steady]:
            assert process.wait(30) == 0, f"a subscriber ended with {process.returncode}: {process.err.read_text()}"
        for process in ended + subscribers[len(folders) :] + [steady]:
            if process.args[0] == sys.executable:
                self.truth.read(process, [run.name])
        file = (exported / "model.safetensors").read_bytes()
        self.truth.check(steps, digest(parsed(file)), "the export")
        for folder in folders:
            assert self.truth.look(folder, [run.name]) == last, f"{folder} has {look(folder)}, and the last is {last}"
            assert (folder / "model.safetensors").read_bytes() == file, f"{folder} has other bytes than the export"
            left = list(self.folder.glob(f"{folder.name}.*"))
            assert not left, f"{left} is left beside {folder}"
        for process in subscribers[len(folders) :] + [steady]:
            assert versions(process)[-1]["version"] == last, f"{told(process)[-3:]}, and the last is {last}"
        return f"{kills} kills, {looks} looks at folders, {len(versions(steady))} versions for the steady one of {steps}"

    def killed_learners(self):
        folder, runs, ends, seen = self.folder / "learners", [], [], None
        for number in range(ROUNDS):
            run = self.run(self.rng.choice([1, 2]), "--steps", 5000)
            runs.append(run.name)
            readers = [follow(self.processes, self.options.zero, run.url, folder, 2), python(self.processes, run.url, "python", 2)]
            time.sleep(self.rng.uniform(0, 3))
            ranks = run.ranks()
            assert len(ranks) == 2, f"ranks {ranks}: {run.printed()}"
            os.kill(self.rng.choice(ranks), signal.SIGKILL)
            killed = time.monotonic()
            code = run.process.wait(20)
            assert code not in (0, None) and "panic" not in run.printed(), f"{code}: {run.printed()}"
            until("no rank is left", 5, lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks))
            for process in readers:
                process.wait(20)
            ends.append(time.monotonic() - killed)
            self.truth.read(readers[1], runs[-1:])
            assert readers[1].returncode == 0 and "ended" in told(readers[1])[-1], readers[1].err.read_text()
            assert readers[0].returncode == 0 or "Z0138" in readers[0].err.read_text(), readers[0].err.read_text()
            found = self.truth.look(folder, runs)
            assert found or not seen, f"{folder} is gone"
            seen = found
        return f"{ROUNDS} runs lost a rank; all had ended within {max(ends):.1f} s; the folder has {seen}"

    def killed_at_calls(self):
        if not shutil.which("strace"):
            return "skipped: there is no strace"
        folder, runs, seen, calls = self.folder / "calls", [], None, []
        for _ in range(CALLS):
            # Of each thread: that which serves makes most of them, when it binds, is asked, answers and tells rank 0.
            calls.append(self.rng.randrange(1, CALLS_MAX))
            inject = f"inject=%network,writev:signal=KILL:when={calls[-1]}"
            under = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject]
            run = self.run(self.rng.choice([1, 2]), "--steps", 5000, under=under, shown_within=0)
            is_there = lambda: re.search(r"^publish: .* at (http://\S+:\d+), run (\w+)$", run.printed(), re.MULTILINE)
            until("the run serves, or is killed", 60, lambda: is_there() or run.process.poll() is not None)
            readers = []
            if found := is_there():
                runs.append(found[2])
                readers = [follow(self.processes, self.options.zero, found[1], folder, 2), python(self.processes, found[1], "python", 2)]
            code = run.process.wait(60)
            assert code and "panic" not in run.printed(), f"{calls[-1]}: {code}: {run.printed()}"
            for process in readers:
                process.wait(20)
            if readers:
                self.truth.read(readers[1], runs[-1:])
            found = self.truth.look(folder, runs)
            assert found or not seen, f"{folder} is gone"
            seen = found
        return f"{CALLS} runs were killed at calls {sorted(calls)} of a thread, {len(runs)} of them while they served; the folder has {seen}"

    def stopped_subscriber(self, copies, timeout):
        """A reader stops in the middle of a version; returns what the run, and another reader, have seen of it."""
        run = self.run(copies, "--steps", 100_000, "--publish-timeout", f"{timeout}s", every=10)
        other = python(self.processes, run.url, "other")
        stopped = python(self.processes, run.url, "stopped", 10, stops_at=3)
        state = lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0]
        until("the reader has stopped", 60, lambda: state() == "T")
        first, began = run.step(), time.monotonic()
        time.sleep(STOPPED)
        last, published = run.step(), [line["step"] for line in run.lines("publication")]
        had = len(told(stopped))
        stopped.send_signal(signal.SIGCONT)
        until("the stopped reader has a newer version", 20, lambda: (versions(stopped) or [{"step": 0}])[-1]["step"] >= last)
        after = told(stopped)[had]
        times = [line["time_s"] for line in run.lines("step")]
        gaps = sorted((after - before for before, after in zip(times[2:], times[3:])), reverse=True)
        kill(run.process)
        other.wait(20)
        # The other one misses nothing: every tenth step leaves it the time for each version.
        steps = [line["step"] for line in versions(other)]
        missed = [step for step in published if step >= steps[0] and step not in steps]
        assert not missed, f"the other reader misses {missed} of {published}: {told(other)}"
        for process in (other, stopped):
            self.truth.read(process, [run.name])
        during = len([step for step in published if first < step <= last])
        assert during >= 5, f"{during} versions in {STOPPED} s, from step {first} to {last}"
        what = "it was told that its version is gone" if "failed" in after else f"it had step {after['step']} whole"
        notes = re.findall(r"^note: the version of step \d+ is .*", run.printed(), re.MULTILINE)
        return gaps, notes, f"{during} versions in {STOPPED} s, the longest step took {gaps[0]:.2f} s; {what}"

    def stopped_with_two_copies(self):
        gaps, notes, what = self.stopped_subscriber(2, 5)
        assert gaps[0] < 2 and not notes, f"a step took {gaps[0]} s; {notes}"
        return what

    def stopped_with_one_copy(self):
        gaps, notes, what = self.stopped_subscriber(1, 5)
        assert 4 < gaps[0] < 7 and gaps[1] < 2, f"steps took {gaps[:3]} s"
        assert len(notes) == 1 and "not read by stopped within 5 s" in notes[0], notes
        return f"{what}; {notes[0]}"

    def full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        # Room for two versions, and not for two and a half. Nobody else sees what is mounted.
        mount = f"mount -t tmpfs -o size=9m none {disk} && echo mounted && exec sleep 600"
        user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        holder = self.processes.start("unshare", *user, "--mount", "sh", "-c", mount)
        try:
            until("a disk is mounted", 5, lambda: "mounted" in holder.out.read_text())
        except AssertionError:
            return f"skipped: no disk can be mounted here: {holder.err.read_text().strip()}"
        inside = Path(f"/proc/{holder.pid}/root{disk}")
        run = self.run(2, "--steps", 100_000, every=10)
        enter = ["nsenter", "--target", holder.pid, "--mount", *(["--user", "--preserve-credentials"] if user else [])]
        command = [*enter, self.options.zero, "follow", run.url, "--out", disk / "followed", "--patience", 3]
        follower = self.processes.start(*command)
        folder, filler, sorts = inside / "followed", inside / "filler", {}
        look_at = lambda: self.truth.look(folder, [run.name])
        until("a version", 30, look_at)
        for number in range(20):
            # In turn in the middle of a version, and while none is written.
            is_written = lambda: list(inside.glob("followed.next*"))
            until("a version is begun, or none is", 20, is_written if number % 2 else lambda: not is_written())
            known = len(follower.err.read_text())
            fill(filler)
            told_why = lambda: follower.err.read_text()[known:]
            until("an error by name", 20, lambda: "is refused" in told_why() or follower.poll() is not None)
            stays = look_at()
            time.sleep(0.5)
            assert stays and look_at() == stays, f"{folder} has {look(folder)} on a full disk, and had {stays}"
            for line in re.findall("^note: .*", told_why(), re.MULTILINE):
                why = re.sub(r"version \S+ is refused: |`\S*/followed\S*` ?|[\d.]+ [KM]iB|\d{4,}", "", line)
                sorts[why] = sorts.get(why, 0) + 1
            filler.unlink()
            until("a version once there is room", 20, lambda: look_at() != stays)
        kill(run.process)
        assert follower.wait(20) == 0, follower.err.read_text()
        return f"{sorts}; versions came again each time"

    def resumed_run(self):
        at = f"127.0.0.1:{free_port()}"
        checkpoints = self.folder / "checkpoints"
        save = ["--checkpoint", checkpoints, "--every", 20]
        run = self.run(2, "--steps", 100_000, *save, at=at, every=5)
        folder = self.folder / "resumed"
        readers = [follow(self.processes, self.options.zero, run.url, folder, 30), python(self.processes, run.url, "python", 30)]
        until("a checkpoint", 60, lambda: run.step() >= 50 and list(checkpoints.glob("step-*")))
        before = until("a version", 20, lambda: self.truth.look(folder, [run.name]))
        until("a version", 20, lambda: versions(readers[1]))
        kill(run.process)
        time.sleep(self.rng.uniform(0, 3))
        assert self.truth.look(folder, [run.name]).endswith(run.name)
        again = self.run(2, "--steps", 100_000, *save, "--resume", at=at, every=5)
        assert again.name != run.name and again.url == run.url
        names, began = [run.name, again.name], time.monotonic()
        is_new = lambda: self.truth.look(folder, names).endswith(again.name)
        until("the folder has the resumed run", 30, is_new)
        took = time.monotonic() - began
        until("the Python subscriber has the resumed run", 30, lambda: versions(readers[1])[-1]["version"].endswith(again.name))
        until("more versions", 30, lambda: int(self.truth.look(folder, names).split("-")[0]) >= 100)
        self.truth.read(readers[1], names)
        order = [line["version"].split("-")[1] for line in versions(readers[1])]
        assert order == sorted(order, key=names.index), order
        found = look(folder)[0]
        first = next(line["step"] for line in versions(readers[1]) if line["version"].endswith(again.name))
        for process in readers:
            assert process.poll() is None, process.err.read_text()
            kill(process)
        kill(again.process)
        return f"{before}, then {found}; the folder had the resumed run after {took:.1f} s, Python from step {first} on"

    def second_run(self):
        port = free_port()
        run = self.run(2, "--steps", 100_000, at=f"127.0.0.1:{port}")
        errors = []
        # The same address, and ones of which a port of another rank is taken.
        for of_second in (port, port + 1, port - 1):
            before = run.step()
            second = self.run(2, "--steps", 100, at=f"127.0.0.1:{of_second}", shown_within=0)
            code = second.process.wait(20)
            found = re.search(r"error\[(Z0338)\]: (.*)", second.printed())
            assert code != 0 and found, f"{code}: {second.printed()}"
            errors.append(f"{code} {found[1]}: {found[2]}")
            until("the first one trains on", 10, lambda: run.step() > before)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/v1/manifest")
            assert json.loads(connection.getresponse().read())["run"] == run.name
            connection.close()
        assert len(run.ranks()) == 2 and not run.process.err.read_text(), run.printed()
        kill(run.process)
        return "; ".join(errors)


def main():
    if sys.argv[1:2] == ["--subscribe"]:
        url, name, patience, stops_at = sys.argv[2:]
        return subscribe(url, name, float(patience), int(stops_at))
    parser = argparse.ArgumentParser()
    parser.add_argument("program_1copy")
    parser.add_argument("program_2copies")
    parser.add_argument("zero")
    parser.add_argument("--seconds", type=float, default=60, help="for which subscribers are killed, about")
    parser.add_argument("--seed", type=int, default=0)
    parts = ["killed_subscribers", "killed_learners", "killed_at_calls", "stopped_with_two_copies", "stopped_with_one_copy", "full_disk"]
    parts += ["resumed_run", "second_run"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    options = parser.parse_args()
    # What enters another mount namespace has another working directory.
    options.zero = Path(options.zero).resolve()
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        of = Parts(processes, options)
        for part in ["reference", *options.only]:
            began = time.monotonic()
            try:
                found = getattr(of, part)()
            except BaseException:
                print(f"{part}: failed with the seed {options.seed}", file=sys.stderr)
                raise
            print(f"{part}: {found} ({time.monotonic() - began:.0f} s)", flush=True)
        print(f"{of.truth.compared} versions were compared with others of the same step")


if __name__ == "__main__":
    main()
