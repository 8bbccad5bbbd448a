//! Footprint: the memory of a rank: the exact lengths of the mappings that hold the arenas, and a bound for everything
//! outside them, which on its host is the program, data, and the scratch of each thread. Never measures.

use crate::config::{Config, DeviceKind, TierKind, Width};
use crate::layout::{Home, Memory, Tables};
use crate::lines::{PAGE_BYTES, STEP_WORDS, round_up};
use crate::plan::Plan;

/// Room for the words in which a rank publishes its progress.
pub const CONTROL_BYTES: usize = 256;
/// The number of exchanges whose numbers are kept: the current one and the one before it.
pub const NUMBER_ROUNDS: usize = 2;

/// Code and constants of the program that are in use, its main thread's stack, and its allocations before the first
/// step. A tiny model uses 6 MiB of it, mostly for the C library and the allocator. Reading or writing parameters in
/// files takes 3 MiB, in pieces.
const PROGRAM_BYTES: usize = 16 << 20;
/// Data that is held in memory: the sources of a workspace, or the paths of the files of a directory. Files are read when
/// they are needed, into buffers of a few KiB, so their pages belong to the system's cache and not to a rank.
pub const DATA_BYTES: usize = 16 << 20;
/// Scratch of one thread outside the arena, if layers compute in this width.
pub const fn thread_bytes(compute: Width) -> usize {
    let kernels = match compute {
        Width::F32 => PACKED_BYTES + ATTENTION_BYTES,
        Width::BF16 => PACKED_BYTES + PRODUCT_BYTES + ATTENTION_BYTES + ATTENTION_SUMS_BYTES,
    };
    kernels + STACK_BYTES + HEAP_BYTES
}

/// The most rows that `gemm` gets at once; larger matrix products are cut.
pub const PACKED_ROWS: usize = 2048;
/// The most of the common dimension that `gemm` packs at a time (`kernel_params` in gemm-common 0.19), if the
/// first-level cache has at most 12 ways of 4 KiB, as on x86-64. If it packs more, the comparison at the end of a run
/// shows it.
const PACKED_DEPTH: usize = 512;
/// The most rows of one of its micro-kernels.
const KERNEL_ROWS: usize = 48;
/// `gemm` packs the whole of one operand and 16 micro-panels of the other. If the other has more, it packs them 8 at a
/// time into a buffer that the thread keeps.
pub const PACKED_BYTES: usize = PACKED_DEPTH * (PACKED_ROWS + (16 + 8) * KERNEL_ROWS) * size_of::<f32>();
/// Buffers of products in other widths: 256 rows of one operand and 512 columns of the other, each packed in cells of
/// 16 x 16 words, 64 along the common dimension, and f32 sums of 256 rows with 512 + 16 columns.
pub const PRODUCT_BYTES: usize = (64 * 16 * (256 + 512) + 256 * (512 + 16)) * size_of::<f32>();
/// One block of queries and one block of keys, in attention.
pub const ATTENTION_BYTES: usize = 272 << 10;
/// Values that attention holds in f32 until they are rounded: the sums of a block of queries, and of the keys and
/// values of a span; and rows that are widened.
pub const ATTENTION_SUMS_BYTES: usize = (128 + 512 + 32) << 10;
/// The used stack of a thread: one huge page, in case the system allocates stacks in huge pages.
const STACK_BYTES: usize = 2 << 20;
/// The memory that an allocator keeps for a thread, rounded up to a huge page.
const HEAP_BYTES: usize = 2 << 20;

/// The threads that carry bytes between a file and memory: one for each direction.
const TIER_THREADS: usize = 2;

/// The thread that serves published parameters: with 128 connections, each of which holds a frame of 64 KiB and as much again for its
/// requests and answers.
const SERVING_BYTES: usize = STACK_BYTES + HEAP_BYTES + 128 * (128 << 10);

/// A span of a profile: two times of 8 bytes.
const SPAN_BYTES: usize = 16;

/// The arguments of a run that affect its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSize {
    /// Threads of each rank.
    pub threads: usize,
    /// Number of steps that are profiled.
    pub profiled_steps: usize,
    /// Bytes that a user-defined dataset reports to hold.
    pub data_bytes: usize,
    /// Memory of its device in which a profile measures the speed of the machine, in bytes.
    pub measuring_bytes: usize,
}

impl RunSize {
    /// The smallest run, for which a build checks the budget.
    pub const LEAST: Self = Self { threads: 1, profiled_steps: 0, data_bytes: 0, measuring_bytes: 0 };
}

/// Length of the mapping that holds a rank's private part.
pub const fn private_mapping_bytes(device: DeviceKind, memory: &Memory) -> usize {
    let bytes = memory.bytes_of(Home::Private);
    let bytes = if bytes == 0 { 1 } else { bytes };
    round_up(bytes, device.page_bytes())
}

/// Length of the mapping that a rank shares with all ranks that it reaches. It holds the control blocks of all ranks,
/// the numbers that they agree on, the common memory of ranks along `zero`, and the shared part of each rank that it
/// reaches.
pub const fn segment_mapping_bytes(plan: &Plan, rank: usize) -> usize {
    let (mesh, page) = (&plan.config.mesh, plan.config.device.page_bytes());
    let mut bytes = pages(mesh.ranks() * CONTROL_BYTES) + pages(mesh.ranks() * numbers_bytes(plan.agreed_values()));
    let (mut other, end) = plan.config.sharing(rank);
    while other < end {
        let memory = &plan.of_rank(other).memory;
        bytes += round_up(memory.bytes_of(Home::Shared), page);
        if mesh.coordinates(other).zero % plan.config.in_common() == 0 {
            bytes += round_up(memory.bytes_of(Home::Common), page);
        }
        other += 1;
    }
    bytes
}

/// The most device memory that a rank with `threads` threads uses outside its arena. On a GPU this excludes the memory
/// of its driver and libraries, which no plan knows: descriptions of hardware reserve it.
pub const fn outside_bytes(tables: &Tables, threads: usize) -> usize {
    let (config, agreed) = (tables.config, 1 + tables.units.len());
    if config.device.is_host() {
        host_bytes(config, agreed, threads)
    } else {
        // The words of a step, and rounding of its private part, its shared part and these words.
        words_bytes(agreed, config.mesh.ranks()) + 3 * config.device.page_bytes()
    }
}

/// The most host memory that it uses outside its arena.
const fn host_bytes(config: &Config, agreed: usize, threads: usize) -> usize {
    let tiers = if config.offload.uses(TierKind::Disk) { TIER_THREADS * (STACK_BYTES + HEAP_BYTES) } else { 0 };
    let working = threads * thread_bytes(config.precision.compute) + tiers;
    let serving = if config.publishes() { SERVING_BYTES } else { 0 };
    PROGRAM_BYTES + DATA_BYTES + working + serving + exchange_bytes(config, agreed)
}

/// The most device memory that a rank with this arena uses in the smallest run, inside and outside the arena.
pub const fn rank_bytes(tables: &Tables, memory: &Memory) -> usize {
    memory.bytes_per_rank() + outside_bytes(tables, RunSize::LEAST.threads)
}

impl Plan<'_> {
    /// The most device memory that a rank uses outside its arena.
    pub const fn outside_bytes(&self, run: &RunSize) -> usize {
        if self.config.device.is_host() {
            self.host_bytes(run)
        } else {
            outside_bytes(&self.tables(), run.threads) + run.measuring_bytes
        }
    }

    /// The most host memory that a rank uses outside its arena, without the libraries of a GPU.
    pub const fn host_bytes(&self, run: &RunSize) -> usize {
        let size = host_bytes(&self.config, self.agreed_values(), run.threads);
        let measuring = if self.config.device.is_host() { run.measuring_bytes } else { 0 };
        size + run.data_bytes + measuring + profile_bytes(self, run.profiled_steps)
    }

    /// Scratch of each thread, in bytes, as far as it is in memory that a spec's budget limits.
    pub const fn thread_bytes(&self) -> usize {
        if self.config.device.is_host() { thread_bytes(self.config.precision.compute) } else { 0 }
    }

    /// The most device memory that a rank of any pipeline stage uses, in bytes. The budget of a spec limits this.
    pub const fn total_bytes_max(&self, run: &RunSize) -> usize {
        self.bytes_per_rank_max() + self.outside_bytes(run)
    }
}

/// A rank's numbers and control block, the words of a step on its device and on their way to the others, and the
/// rounding of its parts: a page each for the control blocks and the numbers of all ranks, its private, common and
/// shared parts, and these words.
const fn exchange_bytes(config: &Config, agreed: usize) -> usize {
    let numbers = numbers_bytes(agreed) + words_bytes(agreed, config.mesh.ranks()) + agreed * size_of::<f64>();
    CONTROL_BYTES + numbers + 2 * PAGE_BYTES + 4 * config.device.page_bytes()
}

/// Words of a step on a rank's device, outside the arena, in bytes: the hyperparameters and the report, the numbers
/// that this rank sends the others, and those of all ranks.
pub const fn words_bytes(agreed: usize, ranks: usize) -> usize {
    (STEP_WORDS + (1 + ranks) * agreed) * size_of::<f64>()
}

const fn numbers_bytes(agreed: usize) -> usize {
    NUMBER_ROUNDS * exchanged_bytes(agreed)
}

/// Bytes that a rank sends the others in one exchange: a word for the purpose of the exchange, and the numbers.
pub const fn exchanged_bytes(agreed: usize) -> usize {
    size_of::<u64>() + agreed * size_of::<f64>()
}

/// A rank's own record and two copies of it during the exchange, and the records of all ranks three times: as numbers,
/// as spans, and cut into steps and ops.
const fn profile_bytes(plan: &Plan, steps: usize) -> usize {
    let (mut ops, mut pipeline) = (0, 0);
    while pipeline < plan.pipeline_stages.len() {
        let of_pipeline_stage = plan.pipeline_stages[pipeline].step.len();
        ops = if of_pipeline_stage > ops { of_pipeline_stage } else { ops };
        pipeline += 1;
    }
    SPAN_BYTES * steps * (1 + ops) * (3 + 3 * plan.config.mesh.ranks())
}

const fn pages(bytes: usize) -> usize {
    round_up(bytes, PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::TransportKind;
    use crate::mesh::Mesh;
    use crate::unit::Unit;

    const UNIT: Unit =
        Unit { params: 100, takes: 100, saved_bytes: 128, input_bytes: 128, output_bytes: 128, ..Unit::NONE };

    fn with_plan(check: impl Fn(&Plan)) {
        let mesh = Mesh { replica: 2, ..Mesh::of_zero(3) };
        let config = Config { mesh, stage: 3, ..Config::PLAIN };
        PlanBuf::new("Tiny", config, &[UNIT, Unit { source: 1, position: 1, ..UNIT }]).with(check);
    }

    /// Six ranks have 1536 bytes of control blocks and 384 of numbers, a page each. The common part of each replica and
    /// the shared part of each rank also fit a page each.
    #[test]
    fn mappings_are_as_long_as_worked_out_by_hand() {
        with_plan(|plan| {
            assert_eq!(segment_mapping_bytes(plan, 0), 4096 * (1 + 1 + 2 + 6));
            assert_eq!(private_mapping_bytes(DeviceKind::Cpu, &plan.pipeline_stages[0].memory), 4096);
        });
    }

    /// On the host, two ranks have 512 bytes of control blocks and 2 x 2 x 32 of numbers. On the devices, each has one
    /// granule for the few KiB that it shares. Its private part is the workspace of the library of products, and one
    /// granule.
    #[test]
    fn mappings_of_a_gpu_are_whole_granules() {
        let config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..Config::PLAIN };
        let config = Config { mesh: Mesh::of_zero(2), stage: 3, ..config };
        PlanBuf::new("Tiny", config, &[UNIT, Unit { source: 1, position: 1, ..UNIT }]).with(|plan| {
            assert_eq!(segment_mapping_bytes(plan, 0), 2 * 4096 + 2 * (2 << 20));
            assert_eq!(
                private_mapping_bytes(DeviceKind::Cuda, &plan.pipeline_stages[0].memory),
                (32 << 20) + (2 << 20)
            );
        });
    }

    /// Threads, data and profiles lie on the host. On the device are thirteen words of a step, three numbers of each of
    /// two ranks and three that the rank sends, and the rounding of three mappings.
    #[test]
    fn outside_arenas_of_a_gpu_are_its_own_words() {
        let config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..Config::PLAIN };
        let config = Config { mesh: Mesh::of_zero(2), ..config };
        PlanBuf::new("Tiny", config, &[UNIT, Unit { source: 1, position: 1, ..UNIT }]).with(|plan| {
            let run = RunSize { threads: 7, profiled_steps: 3, data_bytes: 1 << 30, measuring_bytes: 0 };
            let outside = (13 + 3 * 3) * 8 + 3 * (2 << 20);
            assert_eq!([plan.outside_bytes(&RunSize::LEAST), plan.outside_bytes(&run)], [outside; 2]);
            let measuring = RunSize { measuring_bytes: 5, ..run };
            assert_eq!(plan.outside_bytes(&measuring), outside + 5);
            assert_eq!(plan.host_bytes(&measuring), plan.host_bytes(&run));
            assert_eq!((plan.total_bytes_max(&run), plan.thread_bytes()), (plan.bytes_per_rank_max() + outside, 0));
            assert!(plan.host_bytes(&run) > (1 << 30) + 7 * thread_bytes(Width::F32));
        });
    }

    #[test]
    fn what_arguments_ask_for_is_added() {
        with_plan(|plan| {
            let least = plan.outside_bytes(&RunSize::LEAST);
            assert_eq!(least, outside_bytes(&plan.tables(), 1));
            // A control block; two exchanges of a word and three numbers; on the device nine hyperparameters, a report of
            // four words, and the numbers of the rank and of all six; the rank's numbers on their way; and six pages.
            let exchange = 256 + 2 * (8 + 3 * 8) + (9 + 4 + 7 * 3) * 8 + 3 * 8 + 6 * 4096;
            assert_eq!(least, PROGRAM_BYTES + DATA_BYTES + thread_bytes(Width::F32) + exchange);
            let of = |run: RunSize| plan.outside_bytes(&run) - least;
            assert_eq!(of(RunSize { threads: 3, ..RunSize::LEAST }), 2 * thread_bytes(Width::F32));
            assert_eq!(of(RunSize { data_bytes: 7, ..RunSize::LEAST }), 7);
            assert_eq!(of(RunSize { measuring_bytes: 5, ..RunSize::LEAST }), 5);
            let ops = plan.pipeline_stages[0].step.len();
            assert_eq!(of(RunSize { profiled_steps: 2, ..RunSize::LEAST }), 2 * (1 + ops) * 16 * 21);
            assert_eq!(plan.total_bytes_max(&RunSize::LEAST), plan.bytes_per_rank_max() + least);
        });
    }
}
