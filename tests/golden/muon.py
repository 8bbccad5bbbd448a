#!/usr/bin/env python3
"""Golden files: some steps of PyTorch's Muon, in float64, and as it comes.

Writes muon.safetensors beside itself; the same torch writes the same bytes on the same machine (torch 2.15.0 and
safetensors 0.8.0 wrote this), and on another all but last bits. It shares no code with the crates, and needs `torch` and
`safetensors`:

    python muon.py

`torch.optim.Muon` does all of a step but one thing in the width of the parameters: whatever that is, it orthogonalizes in
bf16, and no argument says otherwise. So here one of its functions is replaced, for the exact run alone, by the same
iterations in float64, written from the formula in Jordan's article. The other run is PyTorch's own, function and all:
how far it is from the exact one is what an implementation in bf16 may be held to.

The file holds

    metadata `settings`          hyperparameters: name=value, separated by spaces
    initial.<name>          f32  the matrices before step 0; exact, for the runs start from the rounded values
    gradient.<step>.<name>  f32  their gradients, exact as well
    exact.<step>.<name>     f32  the matrices after a step, of the run in float64
    momentum.<name>         f32  its momentum after the last step
    bf16.<name>             f32  the matrices after the last step, of PyTorch's own run

Matrices are named by their sizes. It also prints how far a run in float32 strays from the exact one.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.optim import _muon

SHAPES = [(5, 7), (24, 9), (17, 32)]
SETTINGS = dict(steps=4, lr=2e-2, momentum=0.95, weight_decay=0.1)
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
SEED = 21


def orthogonalized(matrix, *_):
    """U p(p(p(p(p(S))))) V^T by singular values, with p(s) = a s + b s^3 + c s^5: no product of the iterations is formed."""
    u, s, v = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ v


def run(initial, gradients, dtype, exact):
    """The matrices after each step, and their momentum after the last."""
    own = _muon._zeropower_via_newtonschulz
    if exact:
        _muon._zeropower_via_newtonschulz = orthogonalized
    try:
        parameters = {name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in initial.items()}
        options = {key: value for key, value in SETTINGS.items() if key != "steps"}
        optimizer = torch.optim.Muon(parameters.values(), adjust_lr_fn="match_rms_adamw", nesterov=True, **options)
        after = []
        for gradient in gradients:
            for name, parameter in parameters.items():
                parameter.grad = gradient[name].to(dtype)
            optimizer.step()
            after.append({name: parameter.detach().clone() for name, parameter in parameters.items()})
        return after, {name: optimizer.state[value]["momentum_buffer"] for name, value in parameters.items()}
    finally:
        _muon._zeropower_via_newtonschulz = own


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    draw = lambda: {f"{m}x{n}": torch.randn(m, n, generator=generator) for m, n in SHAPES}
    initial = {name: 0.2 * value for name, value in draw().items()}
    # Of steps that differ in length, so that momentum is no mean of directions.
    gradients = [{name: value * 0.1 * 2.0 ** -step for name, value in draw().items()} for step in range(SETTINGS["steps"])]
    exact, momentum = run(initial, gradients, torch.float64, exact=True)
    single, _ = run(initial, gradients, torch.float32, exact=True)
    own, _ = run(initial, gradients, torch.float64, exact=False)
    golden = {f"initial.{name}": value for name, value in initial.items()}
    golden |= {f"momentum.{name}": value.float() for name, value in momentum.items()}
    golden |= {f"bf16.{name}": value.float() for name, value in own[-1].items()}
    for step, (gradient, after) in enumerate(zip(gradients, exact)):
        golden |= {f"gradient.{step}.{name}": value for name, value in gradient.items()}
        golden |= {f"exact.{step}.{name}": value.float() for name, value in after.items()}
    path = Path(__file__).parent / "muon.safetensors"
    save_file(golden, path, dict(settings=" ".join(f"{key}={value}" for key, value in SETTINGS.items())))
    print(f"{path.name}: {path.stat().st_size} bytes")
    for name, last in exact[-1].items():
        way = (last - initial[name].double()).norm()
        distances = [((other[-1][name].double() - last).norm() / way).item() for other in (single, own)]
        print(f"  {name}: of the way from the first to the last, float32 is {distances[0]:.1e} off, bf16 {distances[1]:.1e}")


if __name__ == "__main__":
    main()
