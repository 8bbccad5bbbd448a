#!/usr/bin/env python3
"""Golden files: tiny random models of published architectures, as `transformers` writes, runs and trains them.

Writes a folder for each model beside itself: `config.json` and `model.safetensors`, as `save_pretrained` leaves them, and
`golden.safetensors`. It shares no code with the crates, and needs `torch`, `transformers` and `safetensors` (torch 2.15.0,
transformers 5.23.0 and safetensors 0.8.0 wrote these):

    python make.py

Sizes are those of the examples' tiny models: numbers of heads that are not powers of two, three heads of keys or one, a
window that is shorter than the sequences. Weights are large enough that attention is far from uniform, and are stored in
f32, bf16 or f16; everything below starts from what is stored.

    ids          i32  (steps, sequences, length + 1)   inputs, and one further: targets are the next ids
    logits       f32  (length, vocabulary)             of the first sequence of step 0
    gradient.*   f32                                   of step 0, before clipping, by published names
    losses       f64  (steps)                          mean loss in nats before the update
    norms        f64  (steps)                          of the gradients before clipping
    prompt       i32  (PROMPT)
    greedy       i32  (GREEDY)                         what greedy decoding says after the prompt

All of it is computed in float64, but for what `transformers` keeps in float32 whatever it is told: angles of rotary
positions, and RMS norms. `metadata` holds how far `transformers` strays from these numbers in float32 and in bfloat16, as
norms of differences divided by norms: what an implementation may be held to.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Olmo3Config, Qwen3Config
from torch.nn import functional as F

STEPS, SEQUENCES, LENGTH = 5, 4, 31
PROMPT, GREEDY = 7, 24
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY, CLIP = 0.1, 0.5
COMMON = dict(vocab_size=320, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def llama(**sizes):
    factor, original = sizes.pop("factor"), sizes.pop("original")
    scaling = dict(
        rope_type="llama3",
        rope_theta=5e5,
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=original,
    )
    return LlamaConfig(**COMMON, **sizes, rms_norm_eps=1e-5, rope_parameters=scaling, max_position_embeddings=64)


def qwen3(**sizes):
    plain = dict(rope_type="default", rope_theta=1e6)
    return Qwen3Config(**COMMON, **sizes, rms_norm_eps=1e-6, rope_parameters=plain, max_position_embeddings=64)


def olmo3(**sizes):
    yarn = dict(
        rope_type="yarn",
        rope_theta=5e5,
        factor=8.0,
        original_max_position_embeddings=8,
        attention_factor=1.2079441541679836,
        beta_fast=32.0,
        beta_slow=1.0,
    )
    plain = dict(rope_type="default", rope_theta=5e5)
    rotary = dict(full_attention=yarn, sliding_attention=plain)
    return Olmo3Config(**COMMON, **sizes, rms_norm_eps=1e-6, rope_parameters=rotary, max_position_embeddings=64)


def gpt2(**sizes):
    dropout = dict(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    return GPT2Config(**COMMON, **sizes, **dropout)


def sized(layers, dim, heads, key_heads, hidden, **more):
    return dict(
        num_hidden_layers=layers,
        hidden_size=dim,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        intermediate_size=hidden,
        **more,
    )


MODELS = {
    "gpt2-tiny": (gpt2(n_positions=64, n_layer=2, n_embd=36, n_head=3), torch.float16),
    "llama-tiny": (llama(**sized(2, 48, 6, 3, 88), factor=8.0, original=16, tie_word_embeddings=False), torch.float32),
    "llama-tiny-tied": (llama(**sized(2, 36, 3, 1, 100), factor=4.0, original=8, tie_word_embeddings=True), torch.bfloat16),
    "qwen3-tiny": (qwen3(**sized(2, 40, 6, 3, 88), head_dim=8, tie_word_embeddings=True), torch.bfloat16),
    "qwen3-tiny-untied": (qwen3(**sized(3, 40, 3, 1, 88), head_dim=16, tie_word_embeddings=False), torch.float32),
    "olmo3-tiny": (olmo3(**sized(8, 36, 6, 3, 40), sliding_window=5), torch.float32),
}


def randomize(model, generator):
    """Values that leave no part of the model without an effect."""
    for name, parameter in sorted(model.named_parameters()):
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        if parameter.ndim > 1:
            parameter.data = 0.25 * values
        else:
            parameter.data = 0.2 * values + (1.0 if name.endswith("norm.weight") or ".ln_" in name and "weight" in name else 0.0)


def loss_of(model, ids):
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).to(torch.float64), ids[:, 1:].flatten())


def run(folder, dtype, ids):
    """Logits, gradients, losses and norms of a few steps, computed in a type."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").train()
    with torch.no_grad():
        logits = model(input_ids=ids[0, :1, :-1]).logits[0].double()
    groups = [[p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim == 1]]
    groups = [dict(params=groups[0], weight_decay=WEIGHT_DECAY), dict(params=groups[1], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses, norms, gradients = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, ids[step])
        loss.backward()
        if step == 0:
            gradients = {name: p.grad.double().clone() for name, p in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).double())
        losses.append(loss.detach())
        optimizer.step()
    return logits, gradients, torch.stack(losses), torch.stack(norms)


def distance(found, expected):
    found, expected = [torch.cat([tensor.flatten() for tensor in each]) for each in (found, expected)]
    return float((found - expected).norm() / expected.norm())


def greedy(folder, prompt):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    said = model.generate(prompt[None], do_sample=False, max_new_tokens=GREEDY, min_new_tokens=GREEDY)[0]
    with torch.no_grad():
        best = model(input_ids=said[None]).logits[0, PROMPT - 1 : -1].topk(2).values
    return said[PROMPT:], float((best[:, 0] - best[:, 1]).min())


def make(name, config, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    folder = Path(__file__).parent / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(config)
    randomize(model, generator)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(0, COMMON["vocab_size"], (STEPS, SEQUENCES, LENGTH + 1), generator=generator)
    exact = run(folder, torch.float64, ids)
    logits, gradients, losses, norms = exact
    said, margin = greedy(folder, ids[0, 0, :PROMPT])
    notes = dict(margin=margin)
    for width, title in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        found = run(folder, width, ids)
        notes[f"{title}_logits"] = distance([found[0]], [logits])
        notes[f"{title}_gradients"] = distance(found[1].values(), gradients.values())
        notes[f"{title}_losses"] = float(((found[2] - losses) / losses).abs().max())
    print(name, {key: f"{value:.2e}" for key, value in notes.items()}, [f"{loss:.4f}" for loss in losses])
    tensors = dict(
        ids=ids.int(),
        logits=logits.float(),
        losses=losses,
        norms=norms,
        prompt=ids[0, 0, :PROMPT].int(),
        greedy=said.int(),
        **{f"gradient.{key}": value.float() for key, value in gradients.items()},
    )
    tensors = {key: value.contiguous() for key, value in tensors.items()}
    save_file(tensors, folder / "golden.safetensors", metadata={key: repr(value) for key, value in notes.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed, (name, (config, dtype)) in enumerate(MODELS.items()):
        make(name, config, dtype, seed)
