"""Writes a version into a torch module. Imported by those alone who ask for that, as it needs torch."""

import torch

from .errors import Mismatch
from .version import Version


def copy_into(module, version: Version) -> None:
    """Copies each tensor into the module's parameter of its name; raises `Mismatch` before anything is written."""
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[version.dtype]
    # By modules: the whole module's own list has a tied parameter under one of its names only.
    parameters = {
        f"{prefix}.{name}".lstrip("."): parameter
        for prefix, child in module.named_modules(remove_duplicate=False)
        for name, parameter in child.named_parameters(recurse=False)
    }
    published = {entry.name: (entry.shape, dtype) for entry in version.entries}
    found = {name: (tuple(parameter.shape), parameter.dtype) for name, parameter in parameters.items()}
    written = {_place(parameters[name]) for name in published.keys() & found.keys()}
    wrong = [f"{name}: published as {told}, in the module {found.get(name, 'missing')}"
             for name, told in published.items() if found.get(name) != told]
    wrong += [f"{name}: left over in the module"
              for name in parameters if name not in published and _place(parameters[name]) not in written]
    if wrong:
        raise Mismatch("; ".join(wrong[:8]) + ("; and others" if len(wrong) > 8 else ""))
    with torch.no_grad():
        for tensor in version:
            parameters[tensor.name].copy_(torch.frombuffer(tensor.data, dtype=dtype).reshape(tensor.shape))


def _place(parameter) -> tuple:
    """Where a parameter's numbers lie, which tied ones have in common."""
    return parameter.device, parameter.data_ptr(), parameter.shape, parameter.stride()
