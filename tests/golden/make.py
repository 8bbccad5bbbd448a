#!/usr/bin/env python3
"""Golden files: five steps of a tiny GPT, trained by PyTorch in float64, untied and tied.

Writes gpt_untied.safetensors and gpt_tied.safetensors beside itself; the same torch writes the same bytes (torch
2.15.0 and safetensors 0.8.0 wrote these). It shares no code with the crates, and needs `torch` and `safetensors`:

    python make.py

Each file holds

    metadata `settings`       shapes and hyperparameters: name=value, separated by spaces
    ids, targets       i32    (steps, ranks, micro_batches, sequences, length)
    initial.<name>     f32    the weights before step 0; exact, for the run starts from the rounded values
    gradient.<name>    f32    of step 0: the mean over all ranks and micro-batches, before clipping
    final.<name>       f32    the weights after the last step
    losses, norms      f64    (steps): mean loss in nats before the update; gradient norm before clipping

It also prints how far a float32 run of the same steps strays from these: what a float32 implementation may be held to.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

SHAPE = dict(vocab=29, context=12, dim=24, heads=3, layers=2)
BATCH = dict(steps=5, ranks=2, micro_batches=2, sequences=2, length=11)
ADAMW = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=0.5)
SEED = 20
# Large enough that attention is far from uniform, and that every bias and gain has a gradient to get wrong.
INITIAL_STD = 0.2


class Block(nn.Module):
    """Parameters of one pre-norm block, in the flat order."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ln2 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 4 * dim)
        self.proj = nn.Linear(4 * dim, dim)

    def forward(self, x):
        sequences, length, dim = x.shape
        q, k, v = (
            third.view(sequences, length, self.heads, dim // self.heads).transpose(1, 2)
            for third in self.qkv(self.ln1(x)).split(dim, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(sequences, length, dim))
        return x + self.proj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab, context, dim, heads, layers, tied):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


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


def train(tied, dtype):
    """All that a golden file holds, from a run in `dtype`."""
    model = Gpt(**SHAPE, tied=tied).to(dtype)
    initialise(model)
    optimizer = build_optimizer(model)
    ids, targets = draw_tokens()
    golden = dict(ids=ids.int(), targets=targets.int(), **snapshot("initial", model))
    losses, norms = [], []
    batches = BATCH["ranks"] * BATCH["micro_batches"]
    for step in range(BATCH["steps"]):
        optimizer.zero_grad()
        total = 0.0
        for x, y in zip(ids[step].flatten(0, 1), targets[step].flatten(0, 1)):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / batches
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


def main():
    torch.set_num_threads(1)
    for variant, tied in (("untied", False), ("tied", True)):
        golden = train(tied, torch.float64)
        scalars = SHAPE | BATCH | ADAMW | dict(tied=int(tied))
        # One entry, for safetensors writes several in no fixed order.
        metadata = dict(settings=" ".join(f"{key}={value}" for key, value in scalars.items()))
        path = Path(__file__).parent / f"gpt_{variant}.safetensors"
        save_file(golden, path, metadata)
        print(f"{path.name}: {path.stat().st_size} bytes; float32 differs from it by at most")
        print_float32_distance(golden, train(tied, torch.float32))


if __name__ == "__main__":
    main()
