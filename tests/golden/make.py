#!/usr/bin/env python3
"""Golden files: a tiny GPT, trained by PyTorch in float64, untied and tied, exactly and with all that is bf16 rounded.

Writes gpt_{untied,tied}.safetensors and gpt_{untied,tied}_bf16.safetensors beside itself; the same torch writes the
same bytes on the same machine (torch 2.15.0 and safetensors 0.8.0 wrote these), and on another all but last bits. It
shares no code with the crates, and needs `torch` and `safetensors`:

    python make.py

The exact files, of five steps, hold

    metadata `settings`       shapes and hyperparameters: name=value, separated by spaces
    ids, targets       i32    (steps, ranks, micro_batches, sequences, length)
    initial.<name>     f32    the weights before step 0; exact, for the run starts from the rounded values
    gradient.<name>    f32    of step 0: the mean over all ranks and micro-batches, before clipping
    final.<name>       f32    the weights after the last step
    losses, norms      f64    (steps): mean loss in nats before the update; gradient norm before clipping

It also prints how far a float32 run of the same steps strays from these: what a float32 implementation may be held to.

The files in bf16 are of 20 steps from the same initial weights, with the five batches over and over: step i has batch i
modulo 5. They hold `gradient.<name>`, `losses`, `norms` and `settings` as above, and nothing that the exact files have.

What is bf16 there is rounded to nearest even, once by each op, and float64 in between:

    parameters      for use only: masters, their gradients and AdamW are not rounded
    embedding       the sum of the two rows
    linear          the result with its bias, before anything else is done to it
    layer norm      the result; statistics are not rounded
    attention       the result; scores and their softmax are not rounded
    gelu, residual  the result, of operands that are rounded
    head            the logits; log-sum-exp and loss are not rounded
    gradients       of each of these results, and of what a norm takes: once before the residual's is added, once after

Gradients of parameters are not rounded. The gradient of attention reads the rounded result, as that of a kernel that
keeps no weights does. An implementation may have masters and AdamW in float32: the column `orders` below has.

What these may be held to: a distance is the norm of a difference divided by the norm of what it is a difference from.
An op in float32 that is off by 1e-7 turns a rounding to bf16 here and there, which moves other roundings in turn. Runs
in float32 with all sums in random orders, and runs in float64 with every op off at random by 1e-7 (or by 1e-6, as a
cheap exponential is), are at most so far from the files, and a test that allows the last column tells most mistakes:

                                   orders   1e-7     1e-6     a mistake         allow
    step 0: all gradients          4.3e-4   1.4e-3   3.6e-3   1.8e-3 to 1.6e-2  2e-3
    step 0: the gradient of one    8.7e-4   4.9e-3   1.4e-2   3.6e-3 to 2.7e-2  6e-3
    step 0: the loss               4.1e-8   3.1e-5   1.1e-4   0 to 1.4e-3       1e-4
    step 0: the gradients' norm    6.0e-5   1.1e-4   6.1e-4   1e-5 to 9e-3      5e-4
    20 steps: a loss               5.6e-4            1.1e-3                     2e-3
    20 steps: a norm               5.2e-3            1.1e-2                     2e-2

Mistakes are one result or gradient of the last block, norm or head that is not rounded, attention whose gradient reads
what was not rounded or whose weights are rounded, a norm's gradient that is rounded only with the residual's, and
truncation. In early layers a gradient that is not rounded shows less: 4e-4 at the embedding. Over 20 steps, an exact
run is as far from the files as these runs are: the losses tell that it trains, not that it rounds.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

SHAPE = dict(vocab=29, context=12, dim=24, heads=3, layers=2)
BATCH = dict(steps=5, ranks=2, micro_batches=2, sequences=2, length=11)
ADAMW = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=0.5)
BF16_STEPS = 20
SEED = 20
# Large enough that attention is far from uniform, and that every bias and gain has a gradient to get wrong.
INITIAL_STD = 0.2


class Narrow(torch.autograd.Function):
    """Rounds to bf16 a value, the gradient by it, or both; the type stays."""

    @staticmethod
    def forward(ctx, x, value, gradient):
        ctx.gradient = gradient
        return x.bfloat16().to(x.dtype) if value else x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.bfloat16().to(gradient.dtype) if ctx.gradient else gradient, None, None


class Attention(torch.autograd.Function):
    """Causal attention whose gradient reads the rounded result, the only one that is kept."""

    @staticmethod
    def forward(ctx, q, k, v):
        scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=3)
        result = (weights @ v).bfloat16().to(v.dtype)
        ctx.save_for_backward(q, k, v, weights, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, weights, result = ctx.saved_tensors
        mean = (gradient * result).sum(dim=3, keepdim=True)  # of the weights' gradients, by the weights
        d_scores = weights * (gradient @ v.transpose(2, 3) - mean) * q.shape[3] ** -0.5
        return d_scores @ k, d_scores.transpose(2, 3) @ q, weights.transpose(2, 3) @ gradient


class Rounding(NamedTuple):
    """What is done to a parameter where it is used, to the result of an op, and to what a residual branch takes."""

    parameter: Callable
    result: Callable
    branch: Callable
    attention: Callable


EXACT = Rounding(
    parameter=lambda x: x,
    result=lambda x: x,
    branch=lambda x: x,
    attention=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
)
BF16 = Rounding(
    parameter=lambda x: Narrow.apply(x, True, False),
    result=lambda x: Narrow.apply(x, True, True),
    branch=lambda x: Narrow.apply(x, False, True),
    attention=Attention.apply,
)


class Block(nn.Module):
    """Parameters of one pre-norm block, in the flat order."""

    def __init__(self, dim, heads, rounding):
        super().__init__()
        self.heads = heads
        self.rounding = rounding
        self.ln1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ln2 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 4 * dim)
        self.proj = nn.Linear(4 * dim, dim)

    def forward(self, x):
        _, result, branch, attention = self.rounding
        sequences, length, dim = x.shape
        qkv = result(self.qkv(result(self.ln1(branch(x)))))
        q, k, v = (
            third.view(sequences, length, self.heads, dim // self.heads).transpose(1, 2)
            for third in qkv.split(dim, dim=2)
        )
        attended = result(attention(q, k, v))
        x = result(x + result(self.out(attended.transpose(1, 2).reshape(sequences, length, dim))))
        wide = result(self.fc(result(self.ln2(branch(x)))))
        return result(x + result(self.proj(result(F.gelu(wide, approximate="tanh")))))


class Gpt(nn.Module):
    def __init__(self, vocab, context, dim, heads, layers, tied, rounding):
        super().__init__()
        self.rounding = rounding
        self.table = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, rounding) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids):
        result = self.rounding.result
        x = result(self.table(ids) + self.positions(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return result(self.head(result(self.norm(x))))

    def loss(self, ids, targets):
        """Mean cross-entropy, by the parameters as they are used."""
        used = {name: self.rounding.parameter(parameter) for name, parameter in self.named_parameters()}
        logits = torch.func.functional_call(self, used, ids)
        # Only autocast gives logits that are narrower than parameters.
        return F.cross_entropy(logits.to(self.head.weight.dtype).flatten(0, 1), targets.flatten())


def project_name(name):
    """The project's name of PyTorch's parameter `name`."""
    name = name.replace("table.weight", "embed.table").replace("positions.weight", "embed.positions")
    if name.startswith("blocks."):
        _, index, layer, kind = name.split(".")
        place = {"ln1": "attention.0", "qkv": "attention.1.qkv", "out": "attention.1.out",
                 "ln2": "mlp.0", "fc": "mlp.1", "proj": "mlp.3"}[layer]
        name = f"blocks[{index}].{place}.{kind}"
    if ".0." in name or name.startswith("norm."):
        name = name.replace(".weight", ".gain")
    return name


def initialise(model):
    """Normals for every parameter, gains around one, rounded to f32."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if project_name(name).endswith(".gain") else 0.0
            values = mean + INITIAL_STD * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(values.float())


def draw_tokens():
    """Ids and targets of every step, rank and micro-batch."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return torch.randint(SHAPE["vocab"], (2, *BATCH.values()), generator=generator)


def build_optimizer(model):
    """AdamW that decays matrices and tables only."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [dict(params=decayed, weight_decay=ADAMW["weight_decay"]), dict(params=plain, weight_decay=0.0)],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"], foreach=False,
    )


def snapshot(prefix, model, gradient=False):
    return {
        f"{prefix}.{project_name(name)}": (p.grad if gradient else p.detach()).float().clone()
        for name, p in model.named_parameters()
    }


def train(tied, dtype, rounding=EXACT, steps=BATCH["steps"]):
    """All that a golden file holds, and more, from a run in `dtype`."""
    model = Gpt(**SHAPE, tied=tied, rounding=rounding).to(dtype)
    initialise(model)
    optimizer = build_optimizer(model)
    ids, targets = draw_tokens()
    golden = dict(ids=ids.int(), targets=targets.int(), **snapshot("initial", model))
    losses, norms = [], []
    batches = BATCH["ranks"] * BATCH["micro_batches"]
    for step in range(steps):
        batch = step % BATCH["steps"]
        optimizer.zero_grad()
        total = 0.0
        for x, y in zip(ids[batch].flatten(0, 1), targets[batch].flatten(0, 1)):
            loss = model.loss(x, y) / batches
            loss.backward()
            total += loss.item()
        if step == 0:
            golden |= snapshot("gradient", model, gradient=True)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), ADAMW["clip"]).item())
        losses.append(total)
        optimizer.step()
    golden |= dict(
        losses=torch.tensor(losses, dtype=torch.float64),
        norms=torch.tensor(norms, dtype=torch.float64),
        **snapshot("final", model),
    )
    return golden


def print_float32_distance(golden, rough):
    """Largest differences between the float64 run and a float32 run."""
    for key in ("losses", "norms"):
        print(f"  {key} {[round(value, 6) for value in golden[key].tolist()]}")
        print(f"  {key} relative {((rough[key] - golden[key]).abs() / golden[key]).max():.1e}")
    for prefix in ("gradient.", "final."):
        distance = {key: (rough[key] - golden[key]).abs() for key in golden if key.startswith(prefix)}
        # A key's bias moves all scores of a query alike, so its gradient is zero, and what float32 has there is noise
        # that AdamW blows up to the size of a step. Nothing depends on it; it is left out of the comparison.
        dim = SHAPE["dim"]
        key_bias = max(d[dim : 2 * dim].max().item() for key, d in distance.items() if key.endswith("qkv.bias"))
        for key in distance:
            if key.endswith("qkv.bias"):
                distance[key][dim : 2 * dim] = 0.0
        worst = max(distance, key=lambda key: distance[key].max())
        print(f"  {worst} {distance[worst].max():.1e} (keys' biases {key_bias:.1e})")


def print_bf16_distances(golden, others):
    """How far runs are from the file: the norm of a difference by the norm of what it is a difference from."""
    for key in ("losses", "norms"):
        print(f"  {key} {[round(value, 4) for value in golden[key].tolist()]}")
    gradients = [key for key in golden if key.startswith("gradient.")]
    length = {key: golden[key].double().norm() for key in gradients}
    away = {}
    for name, other in others.items():
        loss, norm = ((other[key] / golden[key] - 1).abs() for key in ("losses", "norms"))
        away[name] = {key: (other[key].double() - golden[key].double()).norm() for key in gradients}
        total = torch.stack(list(away[name].values())).norm() / torch.stack(list(length.values())).norm()
        print(f"  {name}: step 0: gradients {total:.1e}, loss {loss[0]:.1e}, norm {norm[0]:.1e}; all steps: at most "
              f"loss {loss.max():.1e}, norm {norm.max():.1e}")
    print(f"  {'gradient of step 0':<34}" + "".join(f"{name:>10}" for name in others))
    for key in gradients:
        print(f"  {key.removeprefix('gradient.'):<34}"
              + "".join(f"{away[name][key] / length[key]:>10.1e}" for name in others))


def write(name, tied, steps, golden):
    """Writes a golden file, with the settings it comes from."""
    scalars = SHAPE | BATCH | ADAMW | dict(tied=int(tied), steps=steps)
    # One entry, for safetensors writes several in no fixed order.
    metadata = dict(settings=" ".join(f"{key}={value}" for key, value in scalars.items()))
    path = Path(__file__).parent / f"gpt_{name}.safetensors"
    save_file(golden, path, metadata)
    print(f"{path.name}: {path.stat().st_size} bytes")


def main():
    torch.set_num_threads(1)
    for variant, tied in (("untied", False), ("tied", True)):
        golden = train(tied, torch.float64)
        write(variant, tied, BATCH["steps"], golden)
        print("  float32 differs from it by at most")
        print_float32_distance(golden, train(tied, torch.float32))

        golden = train(tied, torch.float64, BF16, BF16_STEPS)
        golden = {key: value for key, value in golden.items() if key.startswith(("gradient.", "losses", "norms"))}
        write(f"{variant}_bf16", tied, BF16_STEPS, golden)
        # Without its cache, in which parameters would stay as they were before the first step.
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            autocast = train(tied, torch.float32, steps=BF16_STEPS)
        print_bf16_distances(golden, {
            "float32": train(tied, torch.float32, BF16, BF16_STEPS),
            "autocast": autocast,
            "exact": train(tied, torch.float64, steps=BF16_STEPS),
        })


if __name__ == "__main__":
    main()
