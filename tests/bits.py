#!/usr/bin/env python3
"""Trains every spec of specs/ for 10 steps on one fixed text, in both widths, with 1 and 2 threads a rank.

    tests/bits.py [SPEC ..]            prints a line for each run: the plan's fingerprint, a hash of the parameters and moments in
                                       the checkpoint, losses and norms in full. Two commits on one machine must print the same.
    tests/bits.py --check [SPEC ..]    compares with tests/golden/specs.txt: fingerprints exactly; losses and norms to a tolerance,
                                       as another kind of processor rounds in another way
    tests/bits.py --write              writes that file anew

In each mode, runs with 1 and 2 threads must agree to the bit. Never changes a file of specs/, or looks at a time.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/specs.txt"
STEPS = 10
# Relative to a loss, and to a norm: products of bf16 are summed in another order on processors with a matrix unit.
TOLERANCES = {"losses": 5e-3, "norms": 5e-2}


def text():
    """256 KiB of letters, some of them more frequent than others, in lines of 64."""
    state, letters = 0, bytearray()
    for i in range(1 << 18):
        state = (state * 1103515245 + 12345) % (1 << 31)
        place = (state >> 16) % 27
        letters += b" etaoinshrdlucmfwypvbgkjqxz"[place * place // 27 :][:1]
        if i % 64 == 63:
            letters += b"\n"
    return bytes(letters)


def in_other_width(spec):
    """The spec in bf16 if it is in f32, and the reverse. It may take more memory, which changes no result."""
    lines = [line for line in spec.splitlines() if not line.strip().startswith(("precision:", "memory:"))]
    end = lines.index(")")
    precision = [] if "compute: BF16" in spec else ["    precision: (compute: BF16),"]
    return "\n".join(lines[:end] + precision + ["    memory: GiB(1),"] + lines[end:]) + "\n"


def build(spec):
    """The binary of a spec."""
    command = ["cargo", "zero", "build", str(spec)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def train(binary, data, threads):
    """The fingerprint of the plan, the hash of all states at the end, losses (the last is the held-out one) and norms."""
    with tempfile.TemporaryDirectory() as folder:
        metrics, saved = f"{folder}/metrics", f"{folder}/saved"
        command = [binary, "--steps", str(STEPS), "--threads", str(threads), "--data", data, "--held-out", "8", "--sample", "0"]
        command += ["--metrics", metrics, "--checkpoint", saved]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        header, *lines = map(json.loads, Path(metrics).read_text().splitlines())
        states = hashlib.sha256()
        for file in sorted(Path(saved, f"step-{STEPS:09}").glob("*.safetensors")):
            content = file.read_bytes()
            # The length of the header, the header, and the bytes of all tensors.
            states.update(content[8 + int.from_bytes(content[:8], "little") :])
        losses = [line["loss"] for line in lines if line["kind"] == "step"]
        held_out = [line["held_out_loss"] for line in lines if "held_out_loss" in line]
        norms = [line["gradient_norm"] for line in lines if line["kind"] == "step"]
        assert len(losses) == STEPS and len(held_out) == 1, lines
        return {"plan": header["plan"], "states": states.hexdigest()[:16], "losses": losses + held_out, "norms": norms}


def runs(names):
    """The name and the outcome of each spec in each width."""
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/text.txt"
        Path(data).write_bytes(text())
        for spec in sorted(ROOT.glob("specs/*.ron")):
            if names and spec.stem not in names:
                continue
            for width in "own", "other":
                path = Path(folder, f"{spec.stem}-{width}.ron")
                path.write_text(spec.read_text() if width == "own" else in_other_width(spec.read_text()))
                binary = build(path)
                one, two = (train(binary, data, threads) for threads in (1, 2))
                os.remove(binary)
                if one != two:
                    sys.exit(f"{path.stem}: 2 threads give other bits than 1\n{one}\n{two}")
                yield path.stem, one


def shown(name, run, digits):
    numbers = [" ".join(f"{number:.{digits}g}" for number in run[key]) for key in TOLERANCES]
    return f"{name} | {run['plan']} | {' | '.join(numbers)}"


def read(line):
    name, plan, *numbers = re.split(r" \| ", line.strip())
    return name, {"plan": plan} | dict(zip(TOLERANCES, ([float(number) for number in part.split()] for part in numbers)))


def differences(run, golden):
    """What of a run is not as in the golden file."""
    if run["plan"] != golden["plan"]:
        yield f"the plan's fingerprint is {run['plan']}, expected {golden['plan']}"
    for key, tolerance in TOLERANCES.items():
        for step, (is_, expected) in enumerate(zip(run[key], golden[key], strict=True), 1):
            if not abs(is_ - expected) <= tolerance * abs(expected):
                yield f"{key}, step {step}: {is_:.7g}, expected {expected:.7g} within {tolerance:.1%}"


def main(mode, names):
    if mode == "--write":
        GOLDEN.write_text("".join(shown(name, run, 7) + "\n" for name, run in runs(names)))
    elif mode == "--check":
        golden, failed = dict(map(read, GOLDEN.read_text().splitlines())), False
        for name, run in runs(names):
            found = list(differences(run, golden[name]))
            print(name, "differs:" if found else "is as expected", *found, sep="\n  " if found else " ", flush=True)
            failed |= bool(found)
        sys.exit(failed)
    else:
        for name, run in runs(names):
            print(f"{shown(name, run, 17)} | {run['states']}", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    mode = arguments.pop(0) if arguments and arguments[0].startswith("--") else ""
    if mode not in ("", "--check", "--write"):
        sys.exit(f"unknown mode {mode}\n{__doc__}")
    main(mode, arguments)
