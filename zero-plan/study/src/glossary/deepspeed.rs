//! DeepSpeed: keys of its configuration with their counterparts here. Facts are from DeepSpeed's documentation and
//! sources; the words are our own.

use super::{Word, WordOrigin};

const fn word(
    name: &'static str,
    also: &'static [&'static str],
    keys: &'static [&'static str],
    meaning: &'static str,
) -> Word {
    Word { name, also, of: WordOrigin::DeepSpeed, meaning, keys }
}

/// Words that people look up first come first.
pub(super) const WORDS: &[Word] = &[
    word(
        "zero_optimization",
        &["zero_stage", "zero_optimization.stage"],
        &["zero.stage"],
        "Its `stage` is the same number here: 1 shards the optimizer's state, 2 also the gradients, 3 also the parameters.",
    ),
    word(
        "overlap_comm",
        &[],
        &["zero.bucket", "zero.prefetch"],
        "Whether gradients are sent while backward continues. Here they always are: the schedule has an op that begins \
         to send a bucket, and an op that waits for it.",
    ),
    word(
        "reduce_bucket_size",
        &[],
        &["zero.bucket"],
        "How many elements of gradients are sent at a time, 500 million by default. `bucket` is in bytes: the elements \
         times the bytes of `precision.reduce`. A bucket here consists of whole units.",
    ),
    word(
        "allgather_bucket_size",
        &["allgather_partitions", "reduce_scatter"],
        &[],
        "How many elements of updated parameters are gathered at a time at stages 1 and 2, and which collectives do \
         it. It has no counterpart: parameters are gathered unit by unit, and gradients always by a reduce-scatter.",
    ),
    word(
        "stage3_prefetch_bucket_size",
        &["prefetch_bucket_size"],
        &["zero.prefetch"],
        "How many elements may be gathered ahead of use at stage 3. `prefetch` counts units instead: divide by the \
         parameters of one unit.",
    ),
    word(
        "stage3_max_live_parameters",
        &["max_live_parameters"],
        &["zero.prefetch", "zero.gather"],
        "A limit on the gathered parameters that exist at once. Here their number is a constant: `prefetch` + 1 units, \
         or all of them with `gather: PerStep`.",
    ),
    word(
        "stage3_max_reuse_distance",
        &["max_reuse_distance"],
        &["zero.gather"],
        "Parameters that are needed again soon are not released. Here only the last unit of forward is kept for \
         backward, and all with `gather: PerStep`.",
    ),
    word(
        "stage3_param_persistence_threshold",
        &["param_persistence_threshold", "stage3_model_persistence_threshold"],
        &[],
        "Tensors below this size are not sharded. It has no counterpart: a unit is sharded as one flat buffer, so \
         small tensors need no messages of their own.",
    ),
    word(
        "offload_optimizer",
        &["cpu_offload", "ZeRO-Offload", "ZeRO-Infinity", "offload", "offloading", "nvme"],
        &["offload.optimizer", "offload.update_on", "disk"],
        "Keeps the optimizer's states in the host's memory or on a disk. `device: nvme` is `offload: (optimizer: Disk)`, \
         and its `nvme_path` the argument `--offload`. DeepSpeed keeps gradients there too, and updates on the host's \
         cores, as `gradients: Host` and `update_on: Host` do here, to the bits of a run without offload.",
    ),
    word(
        "offload_param",
        &["cpu_offload_param", "cpu_offload_params", "max_in_cpu"],
        &["offload.parameters", "disk"],
        "Keeps shards of parameters in the host's memory or on a disk, at stage 3. `device: cpu` is `offload: (parameters: \
         Host)` where ranks compute on GPUs, and `device: nvme` is `offload: (parameters: Disk)` where they compute on \
         processors.",
    ),
    word(
        "aio",
        &["buffer_count", "buffer_size", "pipeline_read", "pipeline_write", "pin_memory", "queue_depth"],
        &["offload.prefetch", "offload.piece"],
        "Sizes and numbers of the buffers and requests by which states travel, which are tuned by hand. Here they are \
         constants of the plan: `prefetch` pieces of `piece` bytes are fetched ahead.",
    ),
    word(
        "ZenFlow",
        &["super_offload", "delayed parameter update", "DPU"],
        &[],
        "Updates from gradients of earlier steps, or before the norm of all gradients is known. It has no counterpart, \
         because it gives other results.",
    ),
    word(
        "train_micro_batch_size_per_gpu",
        &["train_micro_batch_size"],
        &["batch.sequences"],
        "Samples in one forward pass of one rank: `sequences`. DeepSpeed's configuration has no length of a sequence; \
         here it is `length`.",
    ),
    word(
        "gradient_accumulation_steps",
        &[],
        &["batch.micro_batches", "zero.reduce"],
        "Micro-batches of a step. DeepSpeed reduces in each micro-batch at stages 2 and 3, and once a step at 0 and 1, \
         which is `reduce: PerStep`.",
    ),
    word(
        "train_batch_size",
        &[],
        &["batch.sequences", "batch.micro_batches", "mesh.zero"],
        "Samples of a step of all ranks: `sequences` x `micro_batches` x ranks along `zero` and `replica`.",
    ),
    word(
        "bf16",
        &["bfloat16"],
        &["precision.compute", "precision.params", "precision.reduce", "precision.master"],
        "With ZeRO: parameters and gradients are bf16, the optimizer's copy and moments f32: `precision: (compute: \
         BF16, params: BF16, reduce: BF16)`, which is 2 + 2 + 12 bytes a parameter.",
    ),
    word(
        "fp16",
        &["loss_scale"],
        &["precision.compute"],
        "Half precision with a scaled loss. It has no counterpart: `BF16` takes as many bytes, has the range of f32, \
         and needs no scaling.",
    ),
    word(
        "grad_accum_dtype",
        &["data_types", "communication_data_type"],
        &["precision.reduce"],
        "The types in which gradients are accumulated and sent. Here both are `precision.reduce`.",
    ),
    word(
        "zero_hpz_partition_size",
        &["hpZ", "ZeRO++"],
        &["mesh.replica", "mesh.within_node"],
        "In ZeRO++, a second copy of the parameters is sharded within a node, and backward gathers from that copy. It \
         has no counterpart. The nearest equivalent is replicas that each stay on a node: they also shard optimizer \
         state only within a node.",
    ),
    word(
        "zero_quantized_weights",
        &["qwZ", "qgZ", "zero_quantized_gradients"],
        &["precision.params", "precision.reduce"],
        "In ZeRO++, data is quantized before it is sent. It has no counterpart: the narrowest type is BF16.",
    ),
    word(
        "MiCS",
        &["mics_shard_size"],
        &["mesh.zero", "mesh.replica", "mesh.within_node"],
        "Stage 3 within groups of `mics_shard_size` ranks, and copies across groups: `zero` is that size, and \
         `replica` the number of groups.",
    ),
    word(
        "contiguous_gradients",
        &["round_robin_gradients"],
        &[],
        "Copies gradients into one buffer as they are computed. Here each is computed at its place in the arena.",
    ),
    word(
        "sub_group_size",
        &[],
        &[],
        "How many parameters the optimizer updates at a time. It has no counterpart: each unit is updated by one op.",
    ),
    word(
        "activation_checkpointing",
        &["partition_activations", "cpu_checkpointing", "contiguous_memory_optimization"],
        &["recompute", "offload.activations"],
        "Settings for models that call DeepSpeed's checkpointing; they do not turn it on. Here `recompute` turns it on, \
         for units of any model, and `offload: (activations: Host)` keeps in host memory what its units save.",
    ),
    word(
        "gradient_clipping",
        &["optimizer", "scheduler"],
        &["optimizer"],
        "Settings that affect neither memory nor order are not part of a spec: clipping, the learning rate and its schedule \
         are arguments of the binary, listed by `cargo zero run SPEC -- --help`. The optimizer is AdamW, or `optimizer: Muon`.",
    ),
    word(
        "zero3_init_flag",
        &["zero.Init", "stage3_gather_16bit_weights_on_model_save", "zero3_save_16bit_model"],
        &[],
        "How large models are created and saved without a whole copy. Here this needs no switch: a rank fills only the \
         states that it stores, and `cargo zero export` writes whole tensors.",
    ),
];
