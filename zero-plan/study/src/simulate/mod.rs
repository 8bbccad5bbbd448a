//! Simulate: how long a step takes, in the unit of given costs, or in seconds on given hardware. Never measures.

mod cores;
mod cost;
mod critical;
mod least;
mod links;
mod offload;
mod parts;
mod prediction;
mod publication;
mod run;
mod shared;
mod text;
mod tier;
mod timeline;

use core::fmt;

use zero_plan::{Config, DeviceKind, Plan, TierKind, TransportKind};

use crate::hardware::{Hardware, Processor};

pub use cost::{Costs, LAYER_KERNELS, OTHER_KERNELS, PassKernels};
pub use critical::CriticalStretch;
pub use least::least_s;
pub use links::{MessageOrder, Route, Routes};
pub use offload::{TierPrediction, Wear};
pub use parts::{StepPart, StepParts};
pub(crate) use prediction::{BETTER, compute_faster};
pub use prediction::{
    Better, Critical, FlowPrediction, PathSegment, PeakPrediction, PipelineStagePrediction, Prediction,
};
pub use publication::PublicationPrediction;
pub(crate) use text::label;
pub use text::{PredictionText, ShownTime};
pub use timeline::{Cause, Flow, FlowBytes, Lane, LinkKind, OpSpan, Timeline, Transfer};

/// Why a plan cannot run on some hardware. Z0177.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// A node has more ranks than devices.
    Devices {
        /// Ranks of a node.
        ranks: usize,
        /// Devices of a node.
        devices: usize,
    },
    /// There are several nodes, and the hardware has no network.
    NoNetwork {
        /// Nodes of the plan.
        nodes: usize,
    },
    /// A node has several ranks with their own memory, and no links between them.
    NoLink {
        /// Ranks of a node.
        ranks: usize,
    },
    /// States are kept on disk, and its rates are not known.
    NoDirectRates,
    /// States are kept in host memory, and the rates of the links to it are not known.
    NoHostLink,
    /// The host updates parameters, and it is not known how fast it does.
    NoHostUpdates,
    /// States would be kept in host memory, where ranks on processors compute.
    HostOfProcessor,
    /// An update would need whole matrices whose shards lie on several hosts that MPI connects.
    Directions,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Devices { ranks, devices } => {
                write!(f, "a node of the mesh has {ranks} ranks, but a node of the hardware has {devices} devices")
            }
            Self::NoNetwork { nodes } => {
                write!(f, "the mesh has {nodes} nodes, but the hardware has no `network` between nodes")
            }
            Self::NoLink { ranks } => {
                write!(f, "a node of the mesh has {ranks} ranks, but the hardware has no `node.link` between devices")
            }
            Self::NoDirectRates => {
                f.write_str("the spec keeps states on disk, but the hardware has no `node.disk.direct`")
            }
            Self::NoHostLink => f.write_str(
                "states are kept in host memory, or pass through it, but the hardware has no `node.host_link`",
            ),
            Self::NoHostUpdates => {
                f.write_str("the spec has the host update parameters, but the hardware has no `node.host_updates`")
            }
            Self::HostOfProcessor => {
                f.write_str("the spec keeps states in host memory, which is where ranks on a processor compute")
            }
            Self::Directions => {
                write!(
                    f,
                    "Muon needs whole matrices, but their shards would lie on several hosts, and MPI cannot gather them there"
                )
            }
        }
    }
}

impl std::error::Error for Impossible {}

impl Impossible {
    /// How to make the run possible.
    pub const fn help(&self) -> &'static str {
        match self {
            Self::Devices { .. } => "raise `mesh.nodes`, lower an axis of the mesh, or take hardware with more devices",
            Self::NoNetwork { .. } => {
                "choose a network with `--network`, or add the key `network` to the hardware file"
            }
            Self::NoLink { .. } => "add the key `node.link` to the hardware file",
            Self::NoDirectRates => {
                "add the key `node.disk.direct` to the hardware file, such as `direct: (read: 7e9, write: 4e9)`; \
                 `cargo zero measure` measures it"
            }
            Self::NoHostLink => {
                "add the key `node.host_link` to the hardware file, such as `host_link: (read: 25e9, write: 25e9)`; \
                 `cargo zero measure` measures it"
            }
            Self::NoHostUpdates => {
                "add the key `node.host_updates` to the hardware file, such as `host_updates: 300e9`; `cargo zero measure` measures it"
            }
            Self::HostOfProcessor => "remove `offload` from the spec, or take hardware whose ranks compute on GPUs",
            Self::Directions => {
                "let `mesh.zero` lie within a node, with `mesh.replica` across nodes; choose stage 0; or take hardware with GPUs"
            }
        }
    }
}

/// The default number of threads of a rank: 1 if a rank has its own device, and otherwise its share of the cores, at
/// least 1.
pub fn threads_of_rank(plan: &Plan, hardware: &Hardware) -> usize {
    match hardware.device.kind {
        Processor::Gpu => 1,
        Processor::Cpu => (hardware.node.devices / plan.config.mesh.ranks_per_node()).max(1),
    }
}

/// A configuration changed for some hardware: it uses the hardware's kind of device, with its places and streams, and
/// each node is a host. A configuration with NCCL also keeps NCCL within a host.
///
/// # Errors
/// [`Impossible::Directions`], [`Impossible::HostOfProcessor`].
pub fn on_hardware(config: Config, hardware: &Hardware) -> Result<Config, Impossible> {
    let device = match hardware.device.kind {
        Processor::Gpu => DeviceKind::Cuda,
        Processor::Cpu => DeviceKind::Cpu,
    };
    let transport = match config.transport {
        TransportKind::Nccl if device.has(TransportKind::Nccl) => TransportKind::Nccl,
        _ => device.transport_of_hosts(config.mesh.nodes),
    };
    let config = Config { device, transport, ..config };
    match config {
        config if config.sends_directions() => Err(Impossible::Directions),
        config if config.offload.uses(TierKind::Host) && device.is_host() => Err(Impossible::HostOfProcessor),
        config => Ok(config),
    }
}

/// Runs a training step of a plan, which must be provable, on some hardware. Each rank has [`threads_of_rank`]
/// threads.
///
/// ```
/// use zero_study::hardware::Hardware;
/// use zero_study::simulate::simulate;
/// use zero_plan::{Config, Mesh, PlanBuf, TransportKind, Unit};
///
/// let text = r#"(name: "2 x Example", device: (name: "Example", kind: Gpu, memory: GB(24), matmul: (f32: 1e12, bf16: 4e12),
///     bandwidth: 1e12), node: (devices: 2, link: (bandwidth: 1e9, latency: 0.0)))"#;
/// let hardware = Hardware::parse(text).unwrap();
/// // A thousand parameters gathered for the forward and for the backward pass: half of 4096 bytes over a link of 1 GB/s.
/// let unit = Unit { params: 1024, takes: 1024, operations: 1_000_000, ..Unit::NONE };
/// let config = Config { mesh: Mesh::of_zero(2), stage: 3, transport: TransportKind::Local, ..Config::PLAIN };
/// let timeline = PlanBuf::new("One", config, &[unit]).with(|plan| simulate(plan, &hardware)).unwrap();
/// assert_eq!(timeline.lanes[0].transfers[0].bytes, 2048);
/// assert!(timeline.step_s > 3e-6 && timeline.step_s < 1e-5);
/// ```
///
/// # Errors
/// If the hardware lacks something that the mesh needs.
pub fn simulate(plan: &Plan, hardware: &Hardware) -> Result<Timeline, Impossible> {
    simulate_with(plan, hardware, threads_of_rank(plan, hardware))
}

/// [`simulate`], with this many threads a rank.
///
/// # Errors
/// The errors of [`simulate`].
pub fn simulate_with(plan: &Plan, hardware: &Hardware, threads: usize) -> Result<Timeline, Impossible> {
    let (mesh, node) = (&plan.config.mesh, &hardware.node);
    let ranks = mesh.ranks_per_node();
    if hardware.device.kind == Processor::Gpu && ranks > node.devices {
        return Err(Impossible::Devices { ranks, devices: node.devices });
    }
    if hardware.device.kind == Processor::Gpu && ranks > 1 && node.link.is_none() {
        return Err(Impossible::NoLink { ranks });
    }
    if mesh.nodes > 1 && hardware.network.is_none() {
        return Err(Impossible::NoNetwork { nodes: mesh.nodes });
    }
    let config = &plan.config;
    if config.offload.uses(TierKind::Disk) && hardware.rates_of(TierKind::Disk).is_none() {
        return Err(Impossible::NoDirectRates);
    }
    let needs_link = config.offload.uses(TierKind::Host) || config.relays();
    if needs_link && hardware.rates_of(TierKind::Host).is_none() {
        return Err(Impossible::NoHostLink);
    }
    if config.updates_on_host() && node.host_updates.is_none() {
        return Err(Impossible::NoHostUpdates);
    }
    let costs = Costs::new(plan, hardware, threads);
    Ok(run::SimulatedRun::new(plan, hardware, &costs).end())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transfers;
