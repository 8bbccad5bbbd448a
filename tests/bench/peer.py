#!/usr/bin/env python3
"""The peer to beat: this benchmark's models trained by PyTorch, on CPU ranks over gloo or on GPUs, and gloo's collectives alone.

Times whole training steps, collectives or matrix products, and prints JSON lines, from rank 0. It measures speed and
memory and nothing else: tokens are random, no loss is reported, nothing is written. Needs only `torch`. One thread a
rank:

    OMP_NUM_THREADS=1 python peer.py --mode single
    OMP_NUM_THREADS=1 python peer.py --mode single --precision bf16
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 peer.py --mode fsdp
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 peer.py --mode fsdp --dim 64 --heads 4 --layers 12 --seq 64
    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 peer.py --mode checkpoint --folder FOLDER

| mode        | what PyTorch does                                                  | is closest to |
|-------------|--------------------------------------------------------------------|---------------|
| single      | one process, no collectives                                        | one rank      |
| mapped      | the same, with AdamW's moments in files that are mapped to memory  | one rank with `offload: (optimizer: Disk)` |
| nvme        | the same under DeepSpeed, stage 3, with AdamW's states on a disk   | one rank with `offload: (optimizer: Disk)` |
| ddp         | DistributedDataParallel: bucketed all-reduce                       | stage 0       |
| zero1       | the same, with the optimizer's state sharded over the ranks        | stage 1       |
| fsdp2       | fully_shard, parameters kept gathered between forward and backward | stage 2       |
| fsdp        | fully_shard, one unit a block, released after use                  | stage 3       |
| collectives | gloo's collectives over buffers of two sizes, and no model         | transport     |
| checkpoint  | fsdp, whose states are saved and loaded by torch.distributed.checkpoint | a run with --checkpoint |
| product     | products of square matrices, in f32 and in bf16                    | gemm          |
| version     | nothing: tells the versions of torch and Python                    |               |

| precision | parameters and AdamW's moments | forward and backward                             | reduced gradients |
|-----------|--------------------------------|--------------------------------------------------|-------------------|
| f32       | f32                            | f32                                              | f32               |
| bf16      | f32                            | bf16: autocast, or fully_shard's mixed precision | f32               |
| bf16-pure | bf16                           | bf16                                             | bf16              |

The loss is computed in f32 from logits of any precision. Only modes that train heed `--precision`.

With `--device cuda` (single, fsdp2 and fsdp) the same on one GPU a rank, over NCCL; `--compile` lets torch.compile do its
work, as torchtitan does: a block at a time under fully_shard, the whole model and the loss otherwise. Compiling is not timed.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F

# The first steps allocate the optimizer's state and fill the allocator's pools, so they are not timed.
UNTIMED_STEPS = 2
# More steps where code is compiled and algorithms are chosen.
UNTIMED_COMPILED_STEPS = 8
LEARNING_RATE = 1e-3

# Modes that one process runs, and all modes: torchrun starts the others.
ALONE = ("single", "mapped", "nvme", "product", "version")
MODES = ALONE + ("ddp", "zero1", "fsdp2", "fsdp", "collectives", "checkpoint")

# Modes that a GPU runs, and that can be compiled.
COMPILED = ("single", "fsdp2", "fsdp")

PRECISIONS = ("f32", "bf16", "bf16-pure")

# Sizes of the buffer of each rank in a collective, in bytes of f32.
COLLECTIVE_BYTES = (16 << 10, 16 << 20)
# Times that a number of iterations of a collective is timed, after one that is not.
REPETITIONS = 7

# Base of the Llama's rotary positions.
ROTARY_BASE = 5e5

# Side of the square matrices of a product, and times that it is timed, after some that are not.
SIDE = 1024
PRODUCTS = 100


class Attention(nn.Module):
    """Causal self-attention with one projection for queries, keys and values."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        queries, keys, values = (
            third.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (sequences, heads, length, head_dim)
            for third in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """One pre-norm transformer block: two residual branches."""

    def __init__(self, dim, heads):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(dim), Attention(dim, heads))
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class GroupedAttention(nn.Module):
    """Causal self-attention with rotary positions, whose heads share keys and values by fours."""

    def __init__(self, dim, heads, length):
        super().__init__()
        self.heads, self.key_heads, width = heads, heads // 4, dim // heads
        self.q = nn.Linear(dim, heads * width, bias=False)
        self.k = nn.Linear(dim, self.key_heads * width, bias=False)
        self.v = nn.Linear(dim, self.key_heads * width, bias=False)
        self.out = nn.Linear(heads * width, dim, bias=False)
        turns = torch.outer(torch.arange(length), ROTARY_BASE ** (-torch.arange(0, width, 2) / width))
        self.register_buffer("cos", turns.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", turns.sin().repeat(1, 2), persistent=False)

    def rotate(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos.to(x.dtype) + torch.cat((-second, first), dim=-1) * self.sin.to(x.dtype)

    def forward(self, x):
        split = lambda y, heads: y.unflatten(-1, (heads, -1)).transpose(1, 2)
        queries, keys = self.rotate(split(self.q(x), self.heads)), self.rotate(split(self.k(x), self.key_heads))
        values = split(self.v(x), self.key_heads)
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class SwiGlu(nn.Module):
    """Three matrices: up, a gate for it, and down."""

    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 3 * dim, bias=False)
        self.up = nn.Linear(dim, 3 * dim, bias=False)
        self.down = nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    """One pre-norm block of a Llama."""

    def __init__(self, dim, heads, length):
        super().__init__()
        self.attention = nn.Sequential(nn.RMSNorm(dim, eps=1e-5), GroupedAttention(dim, heads, length))
        self.mlp = nn.Sequential(nn.RMSNorm(dim, eps=1e-5), SwiGlu(dim))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class Llama(nn.Module):
    """No positions but the rotary ones, a head of its own. Ids in, logits out."""

    def __init__(self, vocab, length, dim, heads, layers):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, length) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Gpt(nn.Module):
    """Learned positions, pre-norm blocks, a head of its own without bias. Ids in, logits out."""

    def __init__(self, vocab, context, dim, heads, layers, tied=False):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


MODELS = {"gpt": Gpt, "llama": Llama}


def distribute(model, mode, precision, ranks, device, compiled):
    """The model as `mode` trains it."""
    if precision == "bf16-pure":
        model.bfloat16()
    if mode in ("ddp", "zero1"):
        return nn.parallel.DistributedDataParallel(model)
    if mode in ("fsdp2", "fsdp", "checkpoint"):
        options = dict(mesh=init_device_mesh(device, (ranks,)), reshard_after_forward=mode != "fsdp2")
        if precision == "bf16":
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            if compiled:
                block.compile(fullgraph=True)
            fully_shard(block, **options)
        fully_shard(model, **options)
    elif compiled:
        return torch.compile(model)
    return model


def loss_of(logits, targets):
    """Mean cross-entropy, in f32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def build_optimizer(model, mode):
    """The fused AdamW, sharded in mode `zero1`."""
    options = dict(lr=LEARNING_RATE, fused=True)
    if mode == "zero1":
        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, **options)
    return torch.optim.AdamW(model.parameters(), **options)


def map_moments(optimizer, folder):
    """Puts AdamW's moments into new files of zeros, each mapped to memory."""
    for group in optimizer.param_groups:
        for number, parameter in enumerate(group["params"]):
            state = {"step": torch.tensor(0.0)}
            for name in ("exp_avg", "exp_avg_sq"):
                path = os.path.join(folder, f"{name}-{number}")
                nbytes = parameter.numel() * parameter.element_size()
                with open(path, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, nbytes)
                storage = torch.UntypedStorage.from_file(path, shared=True, nbytes=nbytes)
                os.remove(path)  # Its memory stays mapped.
                state[name] = torch.tensor([], dtype=parameter.dtype).set_(storage, 0, parameter.shape)
            optimizer.state[parameter] = state


class OnDisk:
    """A model and its optimizer under DeepSpeed, which keeps the optimizer's states in files of a folder."""

    def __init__(self, model, folder, batch):
        os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        # It compiles its reads and writes of disks with a `ninja` that lies beside Python.
        os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
        import deepspeed  # Only this mode needs it.

        self.engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
            "train_micro_batch_size_per_gpu": batch,
            "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE}},
            "zero_optimization": {
                "stage": 3,
                "offload_optimizer": {"device": "nvme", "nvme_path": folder, "pipeline_read": True, "pipeline_write": True},
            },
            "aio": {"block_size": 1 << 20, "queue_depth": 8, "overlap_events": True},
        })

    def backward(self, loss):
        self.engine.backward(loss)

    def step(self):
        self.engine.step()

    def zero_grad(self):
        pass  # A step of the engine does it.


def time_steps(model, optimizer, ids, targets, steps, autocast, loss_of=loss_of, untimed=UNTIMED_STEPS):
    """Seconds of each timed step. All ranks start a step together, so that none is charged for another's lateness."""
    seconds = []
    on_gpu = ids.device.type == "cuda"
    for _ in range(untimed + steps):
        if dist.is_initialized():
            dist.barrier()
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
            logits = model(ids)
        loss = loss_of(logits, targets)
        if isinstance(optimizer, OnDisk):
            optimizer.backward(loss)
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[untimed:]


def timed(act):
    """Seconds that all ranks take for something, and what it gives."""
    dist.barrier()
    start = time.perf_counter()
    given = act()
    dist.barrier()
    return time.perf_counter() - start, given


def time_checkpoints(model, optimizer, ids, targets, steps, folder, rank):
    """Prints what saving and loading the states of a model that is being trained take. All files are flushed."""
    step_s = statistics.median(time_steps(model, optimizer, ids, targets, steps, autocast=False))
    states = lambda: dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    place = lambda name: os.path.join(folder, name)
    # A group of its own, because saving beside training has collectives, too.
    group = dist.new_group(backend="gloo")
    save_s, _ = timed(lambda: dcp.save(states(), checkpoint_id=place("waiting")))
    # The first one sets up what later ones use again, so only the second counts.
    for name in ("first", "second"):
        start = time.perf_counter()
        stall_s, future = timed(lambda: dcp.async_save(states(), checkpoint_id=place(name), process_group=group))
        beside_s = time_steps(model, optimizer, ids, targets, 1, autocast=False)
        future.result()
        dist.barrier()
        whole_s = time.perf_counter() - start
    loaded = states()
    load_s, _ = timed(lambda: dcp.load(loaded, checkpoint_id=place("second")))
    if rank == 0:
        of_folder = lambda name: sum(entry.stat().st_size for entry in os.scandir(place(name)))
        print(json.dumps({
            "checkpoint_bytes": of_folder("second"),
            "step_s": step_s,
            "save_s": save_s,
            "async_stall_s": stall_s,
            "async_whole_s": whole_s,
            "step_beside_s": statistics.median(beside_s),
            "load_s": load_s,
        }))
        for name in ("waiting", "first", "second"):
            shutil.rmtree(place(name))


def collectives(elements, ranks):
    """Each collective by name, as a call on buffers of its own. All are touched, so that none is one page of zeros."""
    whole, shard = torch.ones(elements), torch.ones(elements // ranks)
    summed = torch.zeros(elements)
    return {
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, shard),
        "all_reduce": lambda: dist.all_reduce(summed),
    }


def time_collectives(rank, ranks):
    """Prints the time of each collective of each size: from a barrier on, many in a row, the median of several times."""
    for size in COLLECTIVE_BYTES:
        iterations = min((256 << 20) // size, 300)
        for name, run in collectives(size // 4, ranks).items():
            seconds = []
            for _ in range(1 + REPETITIONS):
                dist.barrier()
                start = time.perf_counter()
                for _ in range(iterations):
                    run()
                seconds.append((time.perf_counter() - start) / iterations)
            if rank == 0:
                print(json.dumps({"collective": name, "bytes": size, "seconds": statistics.median(seconds[1:])}))


def time_products():
    """Prints the time of a product of matrices of each type."""
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = torch.randn(2, SIDE, SIDE).to(dtype)
        out = torch.zeros(SIDE, SIDE, dtype=dtype)
        seconds = []
        for _ in range(UNTIMED_STEPS + PRODUCTS):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            seconds.append(time.perf_counter() - start)
        timed = seconds[UNTIMED_STEPS:]
        line = {"product": name, "side": SIDE, "seconds_min": min(timed), "seconds": statistics.median(timed)}
        print(json.dumps(line))


def peak_rss_bytes():
    """This process's largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def version():
    return f"torch {torch.__version__}, Python {platform.python_version()}"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="single")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32")
    parser.add_argument("--model", choices=MODELS, default="gpt")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--seq", type=int, default=256, help="tokens a sequence; also the context")
    parser.add_argument("--tied", action="store_true", help="the GPT's head is its table of tokens")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--batch", type=int, default=4, help="sequences a rank a step")
    parser.add_argument("--folder", default="/tmp/peer-checkpoints", help="where checkpoints or mapped files are written, and removed")
    parser.add_argument("--steps", type=int, default=10, help=f"timed steps, after {UNTIMED_STEPS} untimed ones")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error("--steps must be at least 1")
    if (arguments.mode in ALONE) == ("WORLD_SIZE" in os.environ):
        parser.error(f"mode {arguments.mode}: start {' and '.join(ALONE)} without torchrun, and the others with it")
    if (arguments.device == "cuda" or arguments.compile) and arguments.mode not in COMPILED:
        parser.error(f"--device cuda and --compile are for {', '.join(COMPILED)}")
    return arguments


def main():
    options = parse_arguments()
    if options.mode == "version":
        print(version())
        return
    threads = int(os.environ.get("OMP_NUM_THREADS", 1))
    torch.set_num_threads(threads)
    if options.mode == "product":
        time_products()
        return
    if options.mode not in ALONE:
        if options.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if options.mode == "collectives":
        time_collectives(rank, ranks)
    else:
        train(options, rank, ranks, threads)
    if dist.is_initialized():
        dist.destroy_process_group()


def train(options, rank, ranks, threads):
    """Trains, and prints what the steps took and what the process held."""
    # The memory that importing torch takes. It differs between builds of torch by hundreds of MiB.
    import_rss_bytes = peak_rss_bytes()
    torch.manual_seed(0)  # The same weights on every rank: nothing broadcasts them under fully_shard.
    tied = {"tied": True} if options.tied else {}
    with torch.device(options.device):
        model = MODELS[options.model](options.vocab, options.seq, options.dim, options.heads, options.layers, **tied)
    params = sum(parameter.numel() for parameter in model.parameters())
    model = distribute(model, options.mode, options.precision, ranks, options.device, options.compile)
    if options.mode == "nvme":
        optimizer = OnDisk(model, options.folder, options.batch)
        model = optimizer.engine
    else:
        optimizer = build_optimizer(model, options.mode)
    if options.mode == "mapped":
        map_moments(optimizer, options.folder)
    torch.manual_seed(1 + rank)
    ids, targets = torch.randint(options.vocab, (2, options.batch, options.seq)).to(options.device)
    # fully_shard has its own mixed precision.
    autocast = options.precision == "bf16" and options.mode in ("single", "ddp", "zero1")
    if options.mode == "checkpoint":
        time_checkpoints(model, optimizer, ids, targets, options.steps, options.folder, rank)
        return
    compiled = (torch.compile(loss_of), UNTIMED_COMPILED_STEPS) if options.compile else ()
    seconds = time_steps(model, optimizer, ids, targets, options.steps, autocast, *compiled)

    step_s_median = statistics.median(seconds)
    if rank == 0:
        print(json.dumps({
            "peer": version(),
            "mode": options.mode,
            "precision": options.precision,
            "ranks": ranks,
            "threads_per_rank": threads,
            "params": params,
            "tokens_per_step_rank": ids.numel(),
            "steps": options.steps,
            "step_s_min": round(min(seconds), 4),
            "step_s_median": round(step_s_median, 4),
            "tokens_per_s_rank": round(ids.numel() / step_s_median, 1),
            "import_rss_bytes": import_rss_bytes,
            "peak_rss_bytes": peak_rss_bytes(),
        }))


if __name__ == "__main__":
    main()
