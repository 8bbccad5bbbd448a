"""Runs that publish, as the tests of this folder start, watch and end them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# A learning rate that does not depend on --steps: then a step of one run has the bits of that step of any other.
ARGUMENTS = "--held-out 0 --sample 0 --log-every 1 --lr-schedule constant --warmup 2 --publish-every".split()


class Processes:
    """Processes, each with a group of its own, none of which is left when a `with` ends."""

    def __init__(self, folder):
        self.folder, self.all = Path(folder), []
        # What ends this script ends it by an exception, so that its processes end as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all:
            kill(process)

    def start(self, *command, **given):
        """Starts a command whose output goes to the file `.out`, and errors to `.err`."""
        of = self.folder / f"process-{len(self.all)}"
        with open(f"{of}.out", "wb") as out, open(f"{of}.err", "wb") as err:
            given.update(stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
            process = subprocess.Popen([str(part) for part in command], **given)
        process.out, process.err = Path(f"{of}.out"), Path(f"{of}.err")
        self.all.append(process)
        return process


def kill(process):
    """Kills a process with its group, if it is there."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def until(what, seconds, asked):
    """Waits until `asked` returns something true, and returns that; it is an error if that takes longer."""
    end = time.monotonic() + seconds
    while not (found := asked()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


class Run:
    """A run of a command that publishes; `more` are arguments."""

    def __init__(self, processes, program, *more, at="127.0.0.1:0", every=1, shown_within=60):
        self.metrics = processes.folder / f"metrics-{len(processes.all)}.json"
        arguments = [*ARGUMENTS, every, "--publish", at, "--metrics", self.metrics, *more]
        self.process = processes.start(*program, *arguments)
        if shown_within:
            self.url = until("the address of a run", shown_within, self._address)

    def _address(self):
        assert self.process.poll() is None, f"the run has ended:\n{self.printed()}"
        found = re.search(r"^publish: .* at (http://\S+:\d+), run (\w+)$", self.process.out.read_text(), re.MULTILINE)
        if found:
            self.name = found[2]
        return found and found[1]

    def printed(self):
        """All that the run has printed."""
        return self.process.out.read_text() + self.process.err.read_text()

    def lines(self, kind):
        """The whole lines of a kind in its metrics."""
        text = self.metrics.read_text() if self.metrics.exists() else ""
        return [it for it in map(json.loads, text[: text.rfind("\n") + 1].splitlines()) if it["kind"] == kind]

    def step(self):
        """The last step that is done."""
        return max((it["step"] for it in self.lines("step")), default=0)

    def ranks(self):
        """The ids of the processes of its ranks."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            except OSError:  # It has ended meanwhile.
                continue
            if int(parent) == self.process.pid and state != "Z":
                found.append(int(stat.parent.name))
        return sorted(found)

    def end(self, within):
        """Waits for the end, which must be a success without a panic."""
        code = self.process.wait(within)
        assert code == 0, f"the run ended with {code}:\n{self.printed()[-3000:]}"
        assert not re.search("panic|backtrace", self.printed(), re.IGNORECASE), self.printed()[-3000:]
