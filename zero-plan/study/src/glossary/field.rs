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
        "Every rank gets the shards of all others, so that each has the whole. At stage 3 the flat buffer of a unit \
         is gathered before each use, or once a step. In a schedule it is two ops: `gather` begins, `wait` ends. A \
         ring of N ranks sends (N-1)/N of the buffer. Where ranks share memory nothing is copied: a gather waits for \
         the owners, and gives a view.",
    ),
    word(
        "all-reduce",
        &[],
        &["zero.stage", "mesh.replica"],
        "Every rank gets the sum of what all have: a reduce-scatter and then an all-gather. Gradients are \
         all-reduced at stage 0, and among replicas at every stage. In a schedule the second half is the op `spread`.",
    ),
    word(
        "arena",
        &[],
        &["memory"],
        "The one allocation that a rank makes. Parameters, gradients, optimizer state, activations and scratch lie \
         at constant offsets in it, so its length is known before a run, and a budget is checked by the compiler.",
    ),
    word(
        "axis",
        &["mesh"],
        &["mesh.zero", "mesh.replica", "mesh.pipeline"],
        "A direction in which ranks are arranged: along `zero` they share one copy of what is sharded, along \
         `replica` lie copies of it, along `pipeline` parts of the model. The product of all axes is the number of \
         ranks.",
    ),
    word(
        "bubble",
        &[],
        &["pipeline.schedule", "batch.micro_batches"],
        "Time in which a pipeline stage has nothing to do, while the pipeline fills and drains. With p pipeline \
         stages and m micro-batches it is (p-1)/m of the ideal time, or (p-1)/(m+p-1) of the whole, for GPipe and \
         1F1B alike; v chunks a rank divide the former by v.",
    ),
    word(
        "bucket",
        &[],
        &["zero.bucket"],
        "Consecutive units whose gradients travel in one collective. Larger ones mean fewer messages, and more \
         gradients that wait. Its size is in bytes, in the type that gradients travel in.",
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
        "Ranks have the same parameters and different sequences, and add up their gradients. Stage 0 is that and \
         nothing else; the other stages shard what ranks would hold more than once.",
    ),
    word(
        "flat buffer",
        &["flat parameter"],
        &[],
        "All parameters of a unit side by side, padded until they divide by the number of shards. It is what is \
         gathered, and whose gradients are reduced.",
    ),
    word(
        "gradient accumulation",
        &[],
        &["batch.micro_batches", "zero.reduce"],
        "Several micro-batches before an update. Their gradients are reduced in each, which lets stages 2 and 3 keep \
         only a shard, or are summed locally and reduced once a step, which sends less and holds all of them.",
    ),
    word(
        "master parameters",
        &["master weights", "fp32 copy"],
        &["precision.master", "precision.params"],
        "Parameters as the optimizer updates them. Where they are wider than those that are held for computation, \
         they are a copy of their own, which is sharded like the rest of the optimizer's state.",
    ),
    word(
        "micro-batch",
        &[],
        &["batch.micro_batches", "batch.sequences", "batch.length"],
        "What one forward pass works on: `sequences` x `length` tokens of one rank. A step has one or more, and one \
         update after them.",
    ),
    word(
        "Muon",
        &["momentum orthogonalized by Newton-Schulz"],
        &["optimizer"],
        "An optimizer for matrices of hidden layers. It makes their momentum orthogonal before it takes a step along it, which \
         needs whole matrices: at stages 1 to 3 they are gathered once more in a step. All else is AdamW's.",
    ),
    word(
        "node",
        &["host"],
        &["mesh.nodes", "mesh.ranks_per_node", "mesh.within_node"],
        "Ranks that lie close together, most often one machine. All nodes have equally many.",
    ),
    word(
        "parcel",
        &[],
        &["mesh.pipeline"],
        "What travels from one pipeline stage to another: activations forward, their gradients back, and tied parameters.",
    ),
    word(
        "pipeline parallel",
        &["pipeline", "pipeline stage", "PP"],
        &["mesh.pipeline", "pipeline.schedule", "pipeline.units"],
        "Ranks have different parts of the model, one after another, and hand on activations. Its parts are pipeline \
         stages, spelled out: `stage` alone is the ZeRO stage.",
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
        "All that is constant about a run: the spec, the layout, the places, the schedule of each pipeline stage, \
         the budget and the proofs. `cargo zero plan SPEC` prints it.",
    ),
    word(
        "prefetch",
        &[],
        &["zero.prefetch"],
        "How many units ahead of the computation parameters are gathered at stage 3. More hides more of the gathers, \
         and takes a slot more each where gathers copy.",
    ),
    word(
        "recompute",
        &["activation checkpointing", "gradient checkpointing", "checkpointing"],
        &["recompute"],
        "Units keep only their input for backward and run forward again before it: less memory for about a third \
         more operations if all do. A checkpoint is something else here: the states of a run on a disk.",
    ),
    word(
        "reduce-scatter",
        &["reduce"],
        &["zero.bucket", "zero.reduce", "precision.reduce"],
        "Each rank gets the sum of one shard of what all have. Gradients are reduced so along `zero`, bucket by \
         bucket: right after backward of a bucket's units, and once a step with `reduce: PerStep`. In a schedule it \
         is `claim` (the staging is free), `reduce` (begins) and `settle` (ends); between hosts, `subtotal` is the sum \
         over one host that goes to the others. A ring of N ranks sends (N-1)/N of the bucket.",
    ),
    word(
        "replica",
        &["HSDP", "hybrid sharding"],
        &["mesh.replica", "mesh.within_node"],
        "One of several copies of all that is sharded, each with data of its own. The ranks of a replica shard among \
         themselves; between replicas only shards of gradients travel. With `within_node: [Zero]` a replica stays on \
         a node.",
    ),
    word(
        "reshard",
        &["release"],
        &["zero.gather"],
        "Giving up a gathered flat buffer once it has been used, so that only the own shard remains: the op \
         `release`. Between checkpoints, it is the change from one layout to another, which happens whenever one is \
         taken up.",
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
        &["ZeRO stage", "ZeRO"],
        &["zero.stage"],
        "What ranks along `zero` shard: at 1 the optimizer's state, at 2 the gradients too, at 3 the parameters too; \
         at 0 nothing. In a step of one micro-batch, stages 0 to 2 send twice the parameters, stage 3 three times. It \
         changes no bit of a result.",
    ),
    word(
        "staging",
        &[],
        &["zero.bucket"],
        "Where the gradients of a bucket lie until they are reduced, if only a shard of them is kept.",
    ),
    word(
        "tensor parallel",
        &["TP", "tensor parallelism"],
        &[],
        "Ranks share the matrices of one layer. There is no such axis: ranks lie along `replica`, `pipeline` and `zero`.",
    ),
    word(
        "unit",
        &["FSDP unit"],
        &["pipeline.units", "recompute"],
        "One field of the struct under `#[zero]`, or one element of a field that is an array: what is gathered, \
         released, recomputed and placed on a pipeline stage as a whole.",
    ),
];
