"""Compiles programs that the pretend NVRTC has kept by the real one. See check.sh.

A program is a folder with a source, a folder `headers`, and `names`: a name expression a line. For each kernel a line says how
many registers and bytes of shared memory it takes on each architecture. Never runs a kernel.
"""

import ctypes
import re
import site
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURES = ["sm_80", "sm_90a", "sm_100a"]
# As `zero-runtime/src/device/cuda/module.rs` has them.
OPTIONS = ["--std=c++17", "--fmad=false", "--ptxas-options=-v"]


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


def compile_one(folder, architecture):
    """What the compiler says of a program, and whether it has compiled it."""
    headers = sorted((folder / "headers").iterdir())
    (source,) = [path for path in folder.iterdir() if path.is_file() and path.name != "names"]
    names = (folder / "names").read_text().splitlines()
    program = ctypes.c_void_p()
    text, included = source.read_text().encode(), [path.read_text() for path in headers]
    status = NVRTC.nvrtcCreateProgram(
        ctypes.byref(program), text, source.name.encode(), len(headers), texts(included), texts([h.name for h in headers])
    )
    for name in names:
        status = status or NVRTC.nvrtcAddNameExpression(program, name.encode())
    options = [*OPTIONS, f"--gpu-architecture={architecture}"]
    status = status or NVRTC.nvrtcCompileProgram(program, len(options), texts(options))
    size = ctypes.c_size_t()
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return source.name, names, architecture, status == 0, log.value.decode()


def judged(name, names, architecture, compiled, log):
    """A line for a program, and whether it is as it should be."""
    what = f"{name}: {', '.join(names)} for {architecture}"
    if not compiled:
        return f"{what}: DOES NOT COMPILE\n{log}", False
    used = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    shared = [int(found) for found in re.findall(r"(\d+) bytes smem", log)]
    spilt = [int(found) for found in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)]
    if not used or not spilt:
        return f"{what}: the compiler does not say what it takes\n{log}", False
    line = f"{what}: {max(used)} registers, {max(shared, default=0)} bytes shared"
    return (f"{line}, SPILLS {max(spilt)} bytes", False) if any(spilt) else (line, True)


def main():
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/names"))
    if not folders:
        sys.exit(f"no kernels in {sys.argv[1]}")
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(compile_one, folder, architecture) for folder in folders for architecture in ARCHITECTURES]
        results = [judged(*job.result()) for job in jobs]
    print("\n".join(sorted(line for line, _ in results)))
    bad = sum(not good for _, good in results)
    print(f"{len(folders)} programs for {len(ARCHITECTURES)} architectures, {bad} not as they should be")
    return 1 if bad else 0


sys.exit(main())
