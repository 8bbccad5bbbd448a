#!/usr/bin/env python3
"""`transformers` opens a folder that `cargo zero follow` has made, and has its tensors, bit for bit.

    tests/published/opens.py FOLDER       of a run of specs/gpt2.ron, llama.ron, qwen3.ron or olmo3.ron with `publish`

Needs torch and transformers: for a developer, because they take 5 GB.
"""

import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

folder = sys.argv[1]
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
state, file = model.state_dict(), load_file(f"{folder}/model.safetensors")
for name, tensor in file.items():
    assert torch.equal(state[name], tensor), f"{name} has other bits"
with torch.no_grad():
    assert model(torch.arange(8)[None]).logits.isfinite().all()
print(f"{type(model).__name__} has all {len(file)} tensors of {folder}")
