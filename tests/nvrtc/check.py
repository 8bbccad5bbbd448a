"""Compiles programs that the pretend NVRTC has kept by the real one. See check.sh.

A program is a folder with a source, a folder `headers`, and `names`: a name expression a line. Kernels of one source are compiled
together, some at a time, as most of the time goes into reading it. For each kernel a line says how many registers and bytes of
shared memory it takes on each architecture. With `--in-turn`, the kernels of a source are dealt out to the architectures, so that
every architecture compiles some of each source. Never runs a kernel.
"""

import ctypes
import re
import site
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURES = ["sm_80", "sm_90a", "sm_100a"]
# The options of `zero-runtime/cuda/src/module.rs`.
OPTIONS = ["--std=c++17", "--fmad=false", "--ptxas-options=-v"]
# How many kernels are compiled at a time: more would leave processors idle at the end.
TOGETHER = 12


def library():
    """NVRTC of the package index, whose second half must be open before it is asked for."""
    for packages in site.getsitepackages():
        found = sorted(Path(packages, "nvidia").rglob("libnvrtc*.so*"), key=lambda path: "builtins" not in path.name)
        opened = [ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in found if "alt" not in path.name]
        if opened:
            return opened[-1]
    sys.exit("no NVRTC in this Python's packages")


NVRTC = library()


def texts(items):
    return (ctypes.c_char_p * len(items))(*[item.encode() for item in items])


def programs(kept):
    """Each source with its headers, by name and text, and name expressions of kernels of it, of which no two are the same."""
    found = defaultdict(set)
    for names in Path(kept).glob("*/names"):
        files = [path for path in names.parent.iterdir() if path.is_file() and path != names]
        (source, *headers) = [(path.name, path.read_text()) for path in [*files, *sorted((names.parent / "headers").iterdir())]]
        found[source, tuple(headers)] |= set(names.read_text().splitlines())
    return [(source, headers, sorted(names)) for (source, headers), names in found.items()]


def dealt(kept, in_turn):
    """What is compiled at a time: a source, some of its kernels, an architecture."""
    for source, headers, names in kept:
        for number, architecture in enumerate(ARCHITECTURES):
            # A source with fewer kernels is compiled for every architecture, as otherwise one of them would miss it.
            some = names[number :: len(ARCHITECTURES)] if in_turn and len(names) >= len(ARCHITECTURES) else names
            for start in range(0, len(some), TOGETHER):
                yield source, headers, some[start : start + TOGETHER], architecture


def compile_some(source, headers, names, architecture):
    """What the compiler says of each kernel, by its name; of none of them where it does not compile all."""
    program = ctypes.c_void_p()
    status = NVRTC.nvrtcCreateProgram(
        ctypes.byref(program), source[1].encode(), source[0].encode(), len(headers),
        texts([text for _, text in headers]), texts([name for name, _ in headers]),
    )
    for name in names:
        status = status or NVRTC.nvrtcAddNameExpression(program, name.encode())
    options = [*OPTIONS, f"--gpu-architecture={architecture}"]
    status = status or NVRTC.nvrtcCompileProgram(program, len(options), texts(options))
    size = ctypes.c_size_t()
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    said = dict(re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry function|\Z)", log.value.decode(), re.S))
    result = {name: said.get(symbol(program, name)) for name in names if status == 0}
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return [judged(f"{source[0]}: {name} for {architecture}", said) for name, said in result.items()] or [
        (f"{source[0]}: {', '.join(names)} for {architecture}: DOES NOT COMPILE\n{log.value.decode()}", False)
    ]


def symbol(program, name):
    """What the compiler calls a kernel."""
    lowered = ctypes.c_char_p()
    NVRTC.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered))
    return lowered.value.decode()


def judged(what, said):
    """A line for a kernel, and whether it is as it should be."""
    used = re.search(r"Used (\d+) registers", said or "")
    spilt = [int(found) for found in re.findall(r"(\d+) bytes spill (?:stores|loads)", said or "")]
    if not used or not spilt:
        return f"{what}: the compiler does not say what it takes\n{said}", False
    shared = re.search(r"(\d+) bytes smem", said)
    line = f"{what}: {used[1]} registers, {shared[1] if shared else 0} bytes shared"
    return (f"{line}, SPILLS {max(spilt)} bytes", False) if any(spilt) else (line, True)


def main():
    folder, *options = sys.argv[1:]
    if options not in ([], ["--in-turn"]):
        sys.exit(f"{options}: `--in-turn` is the only option")
    kept = programs(folder)
    if not kept:
        sys.exit(f"no kernels in {folder}")
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(compile_some, *some) for some in dealt(kept, options == ["--in-turn"])]
        results = [result for job in jobs for result in job.result()]
    print("\n".join(sorted(line for line, _ in results)))
    bad = sum(not good for _, good in results)
    kernels = sum(len(names) for _, _, names in kept)
    print(f"{kernels} kernels, {len(results)} compiled for {len(ARCHITECTURES)} architectures, {bad} not as they should be")
    return 1 if bad else 0


sys.exit(main())
