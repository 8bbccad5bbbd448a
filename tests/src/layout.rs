//! Layout: changes to a spec, in a few words, so that a test and the processes that it starts train the same plan.

use zero_plan::{Config, DeviceKind, Mesh, Precision, TierKind, TransportKind, Width};

use crate::specs::program;
use crate::tiers::{offloaded, offloaded_shards, offloaded_sums};
use crate::training::mesh;

/// The word for GPUs, whose models are those of [`crate::specs::cuda_program`].
pub const CUDA: &str = "cuda";
/// The word for NCCL between GPUs, after [`CUDA`].
pub const NCCL: &str = "nccl";

/// A spec with changes in words: `cuda` sets its device, `nccl` the transport between such devices, `mesh=1x2x2` the lengths of
/// pipeline, replica and zero, `hosts=2` the number of hosts, which MPI or NCCL then connects, `reduce=bf16` the width in which
/// gradients are sent, and `stage`, `prefetch`, `bucket` and `micro_batches` set numbers. `offload=optimizer` keeps the optimizer's
/// states in a tier, `offload=sums` the sums of gradients too, and `offload=shards` the shards of parameters instead. `as=hybrid`, before the others, takes everything from another spec
/// except the widths and the shape of a micro-batch, which belong to the model's type.
///
/// # Panics
/// If a word is none of these.
pub fn changed(config: Config, words: &[impl AsRef<str>]) -> Config {
    words.iter().fold(config, |config, word| change(config, word.as_ref()))
}

fn change(config: Config, word: &str) -> Config {
    if word == CUDA {
        return Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, memory_bytes: None, ..config };
    }
    if word == NCCL {
        return Config { transport: TransportKind::Nccl, ..config };
    }
    let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("what is {word}?"));
    let number = |value: &str| value.parse::<usize>().unwrap_or_else(|_| panic!("{value} is no number, in {word}"));
    match key {
        "mesh" => {
            let lengths: Vec<usize> = value.split('x').map(number).collect();
            let [pipeline, replica, zero] = lengths[..] else { panic!("a mesh has three lengths, not {value}") };
            Config { mesh: mesh(pipeline, replica, zero), ..config }
        }
        "as" => {
            let other = program(value).plan.config;
            let Config { precision, sequences, length, .. } = config;
            Config { precision, sequences, length, ..other }
        }
        "hosts" => {
            let mesh = Mesh { nodes: number(value), ..config.mesh };
            let transport = if config.device.is_host() { TransportKind::Cluster } else { TransportKind::Nccl };
            Config { transport, mesh, memory_bytes: None, ..config }
        }
        "stage" => config.at_stage(number(value) as u8),
        "prefetch" => Config { prefetch: number(value), ..config },
        "bucket" => Config { bucket_bytes: number(value), ..config },
        "reduce" => {
            let reduce = match value {
                "bf16" => Width::BF16,
                "f32" => Width::F32,
                _ => panic!("{value} is no width, in {word}"),
            };
            Config { precision: Precision { reduce, ..config.precision }, ..config }
        }
        "offload" => match value {
            "optimizer" => offloaded(config, 1),
            "sums" => offloaded_sums(config, 1, TierKind::Disk),
            "shards" => offloaded_shards(config, 1, [TierKind::Disk, TierKind::Device]),
            _ => panic!("what is {value} in {word}?"),
        },
        "micro_batches" => Config { micro_batches: number(value), ..config },
        other => panic!("what is {other}?"),
    }
}
