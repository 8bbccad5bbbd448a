#!/usr/bin/env python3
"""Six readers of a run of each spec have the bytes of an export at each k-th step, tensor by tensor.

    PYTHONPATH=zero-runtime/publish/python tests/published/specs.py ZERO [SPEC ..]

ZERO is `cargo zero`, built. Without specs, all of specs/ are tried, in f32 and bf16 in turn. Needs the wheel `blake3`.
"""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from faults import digest, parsed, python, versions
from running import Processes, Run

ROOT = Path(__file__).resolve().parents[2]
READERS, STEPS, EVERY = 6, 6, 2


def build(zero, spec, dtype, folder):
    """The program of a spec that publishes."""
    text = re.sub(r"memory: \w+\(\d+\)", f"publish: (dtype: {dtype}, copies: 1)", spec.read_text())
    assert "publish:" in text, f"{spec} has no `memory`"
    changed = Path(folder) / spec.name
    changed.write_text(text)
    built = subprocess.run([zero, "build", changed], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return built.stdout.splitlines()[-1]


def post(url, document):
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(document).encode())) as answer:
        return json.load(answer)


def exported(zero, checkpoint, dtype, folder):
    done = subprocess.run([zero, "export", checkpoint, folder, "--dtype", dtype], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return digest(parsed((folder / "model.safetensors").read_bytes()))


def check(zero, spec, dtype, folder):
    program = build(zero, spec, dtype, folder)
    checkpoints = folder / "checkpoints"
    with Processes(folder) as processes:
        more = ["--steps", STEPS, "--checkpoint", checkpoints, "--every", EVERY, "--keep", STEPS]
        run = Run(processes, [program], *more, "--publish-timeout", "60s", every=EVERY)
        # The first publication after a step waits for this one, and it waits until the readers are there.
        holder = post(f"{run.url}/v1/subscribers", {"name": "holder"})
        readers = [python(processes, run.url, f"reader {number}", 2) for number in range(READERS)]
        for reader in readers:
            while not versions(reader):
                assert reader.poll() is None, reader.err.read_text()
        request = urllib.request.Request(f"{run.url}/v1/subscribers/{holder['id']}", method="DELETE")
        urllib.request.urlopen(request).close()
        run.end(120)
        for reader in readers:
            reader.wait(30)
        seen = [{line["step"]: line["digest"] for line in versions(reader)} for reader in readers]
    expected = {step: exported(zero, checkpoints / f"step-{step:09}", dtype.lower(), folder / str(step)) for step in range(EVERY, STEPS + 1, EVERY)}
    assert len(set(expected.values())) == len(expected), "steps change nothing"
    for number, steps in enumerate(seen):
        steps.pop(0, None)
        assert steps == expected, f"reader {number} of {spec.name} has {steps}, and exports are {expected}"
    return f"{READERS} readers have {len(expected)} exports in {dtype}"


def main():
    zero, *specs = sys.argv[1:]
    for number, spec in enumerate(map(Path, specs or sorted((ROOT / "specs").glob("*.ron")))):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{spec.name}: {check(zero, spec, ['BF16', 'F32'][number % 2], Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
