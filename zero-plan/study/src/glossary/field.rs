//! Field: words of sharded training, as this project uses them.

use super::{Word, WordOrigin};

const fn word(
    name: &'static str,
    also: &'static [&'static str],
    keys: &'static [&'static str],
    meaning: &'static str,
) -> Word {
    Word { name, also, of: WordOrigin::Field, meaning, keys }
}

/// In alphabetical order.
pub(super) const WORDS: &[Word] = &[
    word(
        "all-gather",
        &["gather"],
        &["zero.gather", "zero.prefetch"],
        "Every rank receives the shards of all other ranks, so that each has the whole buffer. At stage 3 the flat \
         buffer of a unit is gathered before each use, or once a step. In a schedule it is two ops: `gather` begins, \
         `wait` ends. A ring of N ranks sends (N-1)/N of the buffer. Where ranks share memory nothing is copied: a \
         gather waits for the owners and returns a view.",
    ),
    word(
        "all-reduce",
        &[],
        &["zero.stage", "mesh.replica"],
        "Every rank receives the sum over all ranks: a reduce-scatter and then an all-gather. Gradients are \
         all-reduced at stage 0, and among replicas at every stage. In a schedule the second half is the op `spread`.",
    ),
    word(
        "arena",
        &[],
        &["memory"],
        "A rank's only allocation. Parameters, gradients, optimizer state, activations and scratch lie at constant \
         offsets in it, so its length is known before a run, and the compiler checks it against a budget.",
    ),
    word(
        "axis",
        &["mesh"],
        &["mesh.zero", "mesh.replica", "mesh.pipeline"],
        "A direction in which ranks are arranged: ranks along `zero` share one copy of the sharded states, ranks along \
         `replica` have copies of them, and ranks along `pipeline` have parts of the model. The product of all axes is \
         the number of ranks.",
    ),
    word(
        "bubble",
        &[],
        &["pipeline.schedule", "batch.micro_batches"],
        "Time in which a pipeline stage has nothing to do, while the pipeline fills and drains. With p pipeline \
         stages and m micro-batches it is (p-1)/m of the ideal time, or (p-1)/(m+p-1) of the whole, for GPipe and \
         1F1B alike; with v chunks a rank, the first ratio is divided by v.",
    ),
    word(
        "bucket",
        &[],
        &["zero.bucket"],
        "Consecutive units whose gradients are reduced in one collective. Larger buckets mean fewer messages, and more \
         gradients that wait. The size is in bytes, in the type in which gradients are sent.",
    ),
    word(
        "chunk",
        &["virtual pipeline stage"],
        &["pipeline.schedule", "pipeline.units"],
        "Consecutive units that lie on one pipeline stage. A rank has one, or several with the schedule `Interleaved`.",
    ),
    word(
        "data parallel",
        &["DDP", "data parallelism", "DP"],
        &["zero.stage", "mesh.zero"],
        "Ranks have the same parameters and different sequences, and add up their gradients. Stage 0 is plain data \
         parallelism; the other stages shard the states of which several ranks would otherwise store a copy.",
    ),
    word(
        "flat buffer",
        &["flat parameter"],
        &[],
        "All parameters of a unit side by side, padded until they divide by the number of shards. Parameters are \
         gathered, and their gradients reduced, as flat buffers.",
    ),
    word(
        "gradient accumulation",
        &[],
        &["batch.micro_batches", "zero.reduce"],
        "Several micro-batches before an update. Gradients are reduced in each micro-batch, so that stages 2 and 3 keep \
         only a shard; or they are summed locally and reduced once a step, which sends less and stores all gradients.",
    ),
    word(
        "master parameters",
        &["master weights", "fp32 copy"],
        &["precision.master", "precision.params"],
        "Parameters as the optimizer updates them. If they are wider than the parameters that layers read, they are a \
         separate copy, which is sharded like the rest of the optimizer's state.",
    ),
    word(
        "micro-batch",
        &[],
        &["batch.micro_batches", "batch.sequences", "batch.length"],
        "The input of one forward pass: `sequences` x `length` tokens of one rank. A step has one or more micro-batches, \
         and one update after them.",
    ),
    word(
        "Muon",
        &["momentum orthogonalized by Newton-Schulz"],
        &["optimizer"],
        "An optimizer for matrices of hidden layers. It makes their momentum orthogonal before the update, which needs whole \
         matrices: at stages 1 to 3 these are gathered once more in a step. AdamW updates all other parameters.",
    ),
    word(
        "node",
        &["host"],
        &["mesh.nodes", "mesh.ranks_per_node", "mesh.within_node"],
        "Ranks that lie close together, usually one machine. All nodes have the same number of ranks.",
    ),
    word(
        "offload",
        &[
            "offloading",
            "tier",
            "optimizer-cpu-offload",
            "HybridDeviceOptimizer",
            "optimizer-offload-fraction",
            "CPUAdam",
            "DeepSpeedCPUAdam",
        ],
        &["offload.optimizer", "offload.update_on", "offload.prefetch", "offload.piece", "disk"],
        "A state is kept outside the memory of the device, and comes to it piece by piece to be worked on: `fetch` brings \
         a piece to a window, and `store` takes it back. With `update_on: Host`, the cores of the host update what it keeps, as \
         DeepSpeed's CPUAdam and Megatron's `--optimizer-cpu-offload` do; Megatron's fraction has no counterpart, because a \
         state is kept in one place as a whole.",
    ),
    word(
        "parcel",
        &[],
        &["mesh.pipeline"],
        "Data sent from one pipeline stage to another: activations forward, their gradients back, and tied parameters.",
    ),
    word(
        "pipeline parallel",
        &["pipeline", "pipeline stage", "PP"],
        &["mesh.pipeline", "pipeline.schedule", "pipeline.units"],
        "Ranks have different, consecutive parts of the model, and pass on activations. The parts are always called \
         pipeline stages, because `stage` alone is the ZeRO stage.",
    ),
    word(
        "place",
        &[],
        &[],
        "Where the bytes of an op lie: a region of the arena, an offset and a length, constant for each op and rank.",
    ),
    word(
        "plan",
        &[],
        &[],
        "Everything that is constant in a run: the spec, the layout, the places, the schedule of each pipeline stage, \
         the budget and the proofs. `cargo zero plan SPEC` prints it.",
    ),
    word(
        "prefetch",
        &[],
        &["zero.prefetch"],
        "How many units ahead of the computation parameters are gathered at stage 3. A larger number hides more of the \
         gathers; where gathers copy, each unit ahead takes one more slot.",
    ),
    word(
        "recompute",
        &["activation checkpointing", "gradient checkpointing", "checkpointing"],
        &["recompute"],
        "Units keep only their input for backward and run forward again before it: less memory for about a third \
         more operations if all units do. A checkpoint here is something else: the states of a run on a disk.",
    ),
    word(
        "reduce-scatter",
        &["reduce"],
        &["zero.bucket", "zero.reduce", "precision.reduce"],
        "Each rank receives one shard of the sum over all ranks. Gradients are reduced this way along `zero`, bucket by \
         bucket: right after backward of a bucket's units, or once a step with `reduce: PerStep`. In a schedule it \
         is `claim` (the staging is free), `reduce` (begins) and `settle` (ends); between hosts, `subtotal` is the sum \
         over one host, which is sent to the other hosts. A ring of N ranks sends (N-1)/N of the bucket.",
    ),
    word(
        "replica",
        &["HSDP", "hybrid sharding"],
        &["mesh.replica", "mesh.within_node"],
        "One of several copies of the sharded states, each with its own data. The ranks of a replica shard among \
         themselves; replicas only send shards of gradients to one another. With `within_node: [Zero]` a replica stays \
         on a node.",
    ),
    word(
        "reshard",
        &["release"],
        &["zero.gather"],
        "Releasing a gathered flat buffer after its use, so that only the rank's own shard remains: the op `release`. \
         For checkpoints, it is the change from one layout to another, which happens whenever a run continues from a \
         checkpoint.",
    ),
    word(
        "schedule",
        &[],
        &["pipeline.schedule"],
        "The ordered ops of one rank's step, a constant table: the same for all ranks of a pipeline stage. `cargo \
         zero plan SPEC --schedule` prints it.",
    ),
    word(
        "shard",
        &["partition"],
        &["zero.stage", "mesh.zero"],
        "One rank's 1/N of a flat buffer, where N ranks lie along `zero`.",
    ),
    word(
        "slot",
        &[],
        &["zero.prefetch"],
        "One place in a ring of buffers: for gathered parameters, for the activations of a micro-batch in flight, or \
         for a parcel that leaves.",
    ),
    word(
        "stage",
        &["ZeRO stage", "ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3", "stage 3"],
        &["zero.stage"],
        "The states that ranks along `zero` shard: at 1 the optimizer's state, at 2 also the gradients, at 3 also the \
         parameters; at 0 nothing. In a step of one micro-batch, stages 0 to 2 send twice the parameters, stage 3 three \
         times. The stage changes no bit of a result.",
    ),
    word(
        "staging",
        &[],
        &["zero.bucket"],
        "The buffer for the gradients of a bucket until they are reduced, if only a shard of them is kept.",
    ),
    word(
        "tensor parallel",
        &["TP", "tensor parallelism", "Megatron"],
        &[],
        "Ranks share the matrices of one layer. There is no such axis: ranks lie along `replica`, `pipeline` and `zero`.",
    ),
    word(
        "unit",
        &["FSDP unit"],
        &["pipeline.units", "recompute"],
        "One field of the struct under `#[zero]`, or one element of a field that is an array. A unit is gathered, \
         released, recomputed and placed on a pipeline stage as a whole.",
    ),
];
