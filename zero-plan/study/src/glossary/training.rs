//! Training: words of training itself, which a spec says nothing about, and what has no counterpart here.

use super::{Word, WordOrigin};

const fn word(name: &'static str, also: &'static [&'static str], meaning: &'static str) -> Word {
    Word { name, also, of: WordOrigin::Training, keys: &[], meaning }
}

/// In alphabetical order.
pub(super) const WORDS: &[Word] = &[
    word(
        "AdamW",
        &["Adam", "betas", "weight decay"],
        "The optimizer of all parameters, unless `optimizer: Muon` is in the spec, which updates the matrices of hidden \
         layers. Arguments of the binary set it: `--beta1`, `--beta2`, `--epsilon`, `--weight-decay`.",
    ),
    word(
        "checkpoint",
        &["save", "resume"],
        "`--checkpoint FOLDER` writes the states of all ranks every `--every` steps, and `--resume FOLDER` goes on from \
         them under any layout. For the activations that a backward pass computes again, see `recompute`.",
    ),
    word(
        "dataset",
        &["dataloader", "shuffle"],
        "`--data PATH` is a text, a folder or token files; `cargo zero tokenize` makes the latter. Each step draws its \
         sequences at random, by seed and step alone, so nothing has to be shuffled. Your own data implements `Dataset`.",
    ),
    word(
        "dropout",
        &["label smoothing"],
        "It has no counterpart: no layer here is random, so that a step computed again has the same bits.",
    ),
    word(
        "epoch",
        &["num_train_epochs"],
        "It has no counterpart: a run has `--steps`, and each step draws its sequences at random, with replacement. The \
         line about the data says how many tokens there are; a step takes as many as the plan prints.",
    ),
    word(
        "FlashAttention",
        &["fused attention", "attention implementation", "sdpa"],
        "Attention never holds the scores of a whole sequence: they exist for blocks of queries and keys, and the \
         backward computes them again from one number a row. There is nothing to turn on.",
    ),
    word(
        "gradient clipping",
        &["clip", "max_grad_norm"],
        "`--clip NORM`, an argument of the binary: the norm of the whole gradient, over all ranks, is scaled down to it. \
         By default 1; 0 turns it off.",
    ),
    word(
        "inference",
        &["generate", "KV cache", "serving"],
        "`cargo zero sample SPEC` generates text, with a cache of keys and values that the plan counts, and `evaluate` \
         prints the loss of a text. To serve a model, export it: `--export FOLDER` writes what Hugging Face's libraries read.",
    ),
    word(
        "learning rate",
        &["lr", "scheduler", "cosine", "lr schedule"],
        "`--lr`, with `--lr-schedule`, `--lr-min-ratio` and `--warmup`: arguments of the binary. They are no keys of the \
         spec, because they shape neither memory nor order, and can be changed without a build.",
    ),
    word(
        "LoRA",
        &["QLoRA", "PEFT", "adapter", "fine-tuning", "SFT"],
        "Adapters have no counterpart: all parameters are trained. `--init FOLDER` begins from published weights, which is \
         fine-tuning of the whole model.",
    ),
    word(
        "mixed precision",
        &["AMP", "autocast", "bfloat16", "half precision"],
        "`precision` in the spec: widths of computation, parameters, gradients, the optimizer's state and reductions, each \
         f32 or bf16. Nothing is converted silently, and no loss is scaled, because bf16 has the range of f32.",
    ),
    word(
        "MoE",
        &["mixture of experts", "expert parallel", "EP"],
        "It has no counterpart: every token goes through all layers, and no axis of the mesh is for experts.",
    ),
    word(
        "NCCL",
        &["RCCL", "Gloo", "MPI", "backend"],
        "How ranks exchange bytes is `transport` in the spec: `Shm` and `Local` between processors of one host, `Cluster` by \
         MPI between hosts, `Peer` between GPUs of one host, `Nccl` between GPUs of several. NCCL's own variables apply.",
    ),
    word(
        "quantization",
        &["int8", "fp8", "int4", "8-bit optimizer"],
        "It has no counterpart: numbers are f32 or bf16.",
    ),
    word(
        "RLHF",
        &["DPO", "GRPO", "PPO", "reinforcement learning"],
        "It has no counterpart yet: a run learns to predict the data that it is given.",
    ),
    word(
        "sequence parallel",
        &["context parallel", "SP", "CP", "ring attention", "Ulysses"],
        "It has no counterpart: a sequence lies on one rank. `recompute` makes room for longer ones.",
    ),
    word(
        "torchrun",
        &["launcher", "srun", "mpirun", "torch.distributed"],
        "A binary that is started alone starts its own ranks. Started by torchrun, srun or mpirun, it is one rank; `cargo zero \
         launch SPEC --hosts a,b` starts ranks on several hosts, and `--slurm FILE` writes a job.",
    ),
    word(
        "warmup",
        &["warmup_steps", "warmup_ratio"],
        "`--warmup N`, an argument of the binary: the steps in which the learning rate rises to `--lr`, in a straight line.",
    ),
];
