"""Writes a version into the parameters of a torch module."""

from __future__ import annotations

from .errors import Mismatch
from .version import Version


def copy_into(module, version: Version) -> None:
    """Copies each tensor into the module's parameter of its name; raises `Mismatch` before anything is written."""
    import torch

    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[version.dtype]
    # By modules, as a module itself lists a parameter that has two names under the first alone.
    parameters = {
        f"{prefix}.{name}" if prefix else name: parameter
        for prefix, child in module.named_modules(remove_duplicate=False)
        for name, parameter in child.named_parameters(recurse=False)
    }
    wrong, written = [], set()
    for entry in version.entries:
        parameter = parameters.get(entry.name)
        if parameter is None:
            wrong.append(f"{entry.name} is missing from the module")
        elif tuple(parameter.shape) != entry.shape or parameter.dtype != dtype:
            has = f"{tuple(parameter.shape)} of {parameter.dtype}"
            wrong.append(f"{entry.name} is {has} in the module, {entry.shape} of {dtype} in the version")
        else:
            written.add(_place(parameter))
    published = {entry.name for entry in version.entries}
    for name, parameter in parameters.items():
        # A tied parameter is written under its other name.
        if name not in published and _place(parameter) not in written:
            wrong.append(f"{name} is left over: the version has no such tensor")
    if wrong:
        raise Mismatch("; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else ""))
    with torch.no_grad():
        for tensor in version:
            values = torch.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape)
            parameters[tensor.name].copy_(values)


def _place(parameter) -> tuple:
    return parameter.device, parameter.data_ptr(), parameter.shape, parameter.stride()
