//! FSDP: names of PyTorch's `FullyShardedDataParallel` and `fully_shard`, and of accelerate's settings for them, with
//! their counterparts here. Facts are from PyTorch's and accelerate's documentation; the words are our own.

use super::{Word, WordOrigin};

const fn word(
    name: &'static str,
    also: &'static [&'static str],
    keys: &'static [&'static str],
    meaning: &'static str,
) -> Word {
    Word { name, also, of: WordOrigin::Fsdp, meaning, keys }
}

/// Words that people look up first come first.
pub(super) const WORDS: &[Word] = &[
    word(
        "FULL_SHARD",
        &["FSDP", "FullyShardedDataParallel"],
        &["zero.stage", "zero.prefetch"],
        "Stage 3: parameters, gradients and optimizer state are sharded. A unit is gathered before forward, released \
         after it, and gathered again for backward. Here the last unit of forward is kept, because backward begins \
         with it.",
    ),
    word(
        "SHARD_GRAD_OP",
        &[],
        &["zero.stage", "zero.gather"],
        "Stage 2: gradients and optimizer state are sharded, and parameters are whole during a step. FSDP also \
         shards them between steps; `stage: 3, gather: PerStep` does exactly this: one all-gather a step, kept until \
         its end. Both send the same number of bytes.",
    ),
    word(
        "HYBRID_SHARD",
        &["fsdp hsdp"],
        &["mesh.replica", "mesh.within_node", "zero.stage"],
        "Stage 3 within a node, and copies of it across nodes: `mesh: (nodes: 2, replica: 2, zero: 8, within_node: \
         [Zero])` with `stage: 3`.",
    ),
    word(
        "_HYBRID_SHARD_ZERO2",
        &[],
        &["mesh.replica", "mesh.within_node", "zero.stage"],
        "SHARD_GRAD_OP within a node, and copies across nodes: the mesh of HYBRID_SHARD with `stage: 2`.",
    ),
    word(
        "NO_SHARD",
        &["DistributedDataParallel"],
        &["zero.stage"],
        "Stage 0: nothing is sharded, gradients are all-reduced.",
    ),
    word(
        "reshard_after_forward",
        &["fsdp_reshard_after_forward"],
        &["zero.gather", "zero.stage"],
        "In `fully_shard`, whether a unit is released after forward and gathered again for backward. True is \
         `gather: PerMicroBatch`, the default; false keeps it from forward to backward, which is `gather: PerStep`. A \
         number, the size of a smaller group to reshard to, has no counterpart.",
    ),
    word(
        "fully_shard",
        &["FSDP2"],
        &["zero.stage", "recompute"],
        "FSDP's second version: it is applied to modules, and each call makes a unit. Here each field of the struct, \
         and each element of an array field, is a unit without a call. It keeps parameters as DTensors; here a unit \
         is one flat buffer, as in the first version.",
    ),
    word(
        "BackwardPrefetch",
        &["BACKWARD_PRE", "BACKWARD_POST", "fsdp_backward_prefetch"],
        &["zero.prefetch"],
        "When the next all-gather of backward begins: before the current unit's gradients are computed \
         (BACKWARD_PRE, which is `prefetch: 1`), after that (BACKWARD_POST), or not ahead at all (None, `prefetch: \
         0`). Here `prefetch` is a number of units, for forward and backward alike. BACKWARD_POST has no counterpart \
         of its own: `prefetch: 0` is nearest.",
    ),
    word(
        "forward_prefetch",
        &["fsdp_forward_prefetch"],
        &["zero.prefetch"],
        "Whether the next all-gather of forward is issued before the current unit runs. Without it, FSDP follows the \
         order of calls from the host; here order is a constant, and `prefetch` applies to forward too.",
    ),
    word(
        "limit_all_gathers",
        &["rate limiter"],
        &["zero.prefetch"],
        "Makes the host wait so that not too many gathered units exist at once. Here their number is a constant, \
         `prefetch` + 1, with or without such a switch.",
    ),
    word(
        "MixedPrecision",
        &["MixedPrecisionPolicy"],
        &["precision.compute", "precision.params", "precision.reduce"],
        "Types of computation and communication: `param_dtype` is `compute` and `params`, `reduce_dtype` is \
         `reduce`. FSDP keeps the shards in the type they were created in, which is `master`. `buffer_dtype` has no \
         counterpart: there are no buffers.",
    ),
    word(
        "param_dtype",
        &[],
        &["precision.compute", "precision.params"],
        "The type that layers compute in and that all-gathers carry. FSDP converts its shards for each gather; here \
         shards are stored in `params`, beside a copy in `master` that the optimizer updates.",
    ),
    word(
        "reduce_dtype",
        &[],
        &["precision.reduce"],
        "The type in which gradients are sent. FSDP converts the sums back; here they are also stored in `reduce`. \
         The additions themselves are in f32.",
    ),
    word(
        "CPUOffload",
        &["CPUOffloadPolicy", "offload_params", "fsdp_offload_params", "OffloadPolicy"],
        &["offload.optimizer"],
        "Keeps shards of parameters and gradients in the host's memory while they are not used, and updates them there. \
         It has no counterpart: to the memory of a GPU's host, `offload` moves the optimizer's states alone.",
    ),
    word(
        "checkpoint_wrapper",
        &["apply_activation_checkpointing", "fsdp_activation_checkpointing"],
        &["recompute"],
        "Modules keep only their input for backward: `recompute: Every(1)`, or `recompute: Fields([\"blocks\"])` for \
         the units of one field.",
    ),
    word(
        "auto_wrap_policy",
        &[
            "transformer_auto_wrap_policy",
            "size_based_auto_wrap_policy",
            "TRANSFORMER_BASED_WRAP",
            "SIZE_BASED_WRAP",
            "NO_WRAP",
            "fsdp_auto_wrap_policy",
            "fsdp_transformer_layer_cls_to_wrap",
            "fsdp_min_num_params",
        ],
        &[],
        "The rule that makes modules units. Here each field of the struct, and each element of an array field, is a unit.",
    ),
    word(
        "no_sync",
        &["set_requires_gradient_sync"],
        &["zero.reduce", "batch.micro_batches"],
        "Micro-batches whose gradients are not reduced: `reduce: PerStep` sums them locally and reduces once a step.",
    ),
    word(
        "use_orig_params",
        &["sync_module_states", "fsdp_use_orig_params", "fsdp_sync_module_states", "fsdp_cpu_ram_efficient_loading"],
        &[],
        "How modules are wrapped and first filled. It has no counterpart: initial values follow from seed and place \
         alone, and `--init` reads published weights piece by piece.",
    ),
    word(
        "state_dict_type",
        &["FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT", "fsdp_state_dict_type"],
        &["checkpoint.snapshot"],
        "The contents of a saved file. Here each rank writes the states that it owns, and any layout reads them back; \
         `cargo zero export` writes whole tensors.",
    ),
    word(
        "device_mesh",
        &["dp_replicate_size", "dp_shard_size"],
        &["mesh.replica", "mesh.zero"],
        "How ranks are arranged: the dimension that shards is `zero`, the dimension that replicates is `replica`.",
    ),
];
