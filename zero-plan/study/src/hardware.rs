//! Hardware: the description of a cluster's nodes and their connections in a file: capacities, rates and latencies, all
//! for one device or one link. Never measures, and never knows a plan.
//!
//! Its files are RON:
//!
//! ```
//! let text = r#"(
//!     name: "2 x Example, PCIe",
//!     device: (
//!         name: "Example",
//!         kind: Gpu,
//!         memory: GB(24),
//!         matmul: (f32: 30e12, bf16: 120e12),
//!         achieved: 0.7,
//!         bandwidth: 600e9,
//!     ),
//!     node: (devices: 2, link: (bandwidth: 25e9, latency: 5e-6)),
//! )"#;
//! let hardware = zero_study::hardware::Hardware::parse(text).unwrap();
//! assert_eq!(hardware.node.devices, 2);
//! assert_eq!(hardware.network, None);
//! ```

mod check;
mod disk;
mod host_link;
mod measured;

pub use disk::{DirectRates, DiskRates};
pub use host_link::HostLink;
pub use measured::{MeasuredOp, measured_units, median, rounded};

use serde::{Deserialize, Serialize};
use zero_plan::diagnostic::{Diagnostic, offset};
use zero_plan::spec::{Size, ron_options};
use zero_plan::{GpuFigures, TierKind, Width};

/// A cluster of equal nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Its usual name.
    pub name: String,
    /// The device on which ranks compute.
    pub device: DeviceFigures,
    /// The contents of each node.
    pub node: Node,
    /// The network between nodes; `None` if there is only one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Measured times of units of models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredUnit>,
}

/// A device on which a rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processor {
    /// A device with its own memory. Each rank has one.
    Gpu,
    /// The processor. Ranks of a node share its memory, and take turns on its cores if there are more ranks than cores.
    Cpu,
}

/// One device, or one core of a processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceFigures {
    /// Its usual name.
    pub name: String,
    /// How ranks use it.
    pub kind: Processor,
    /// Memory of one device; for a processor, of its whole node.
    pub memory: Size,
    /// The part of `memory` that a rank's plan cannot use: the device's context, libraries, and losses of an
    /// allocator.
    #[serde(default)]
    pub reserved: Size,
    /// Operations per second of matrix products, as published or measured; a multiply-add counts 2.
    pub matmul: Rates,
    /// Share of `matmul` that large products reach, above 0 and at most 1.
    #[serde(default = "one")]
    pub achieved: f64,
    /// Share of the rate in bf16 at which attention computes its operations, above 0; by default, and in f32, `achieved`. It
    /// may exceed 1, because operations on scores hidden by a causal mask are counted but not computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<f64>,
    /// Bytes that the device reads and writes in its memory per second.
    pub bandwidth: f64,
    /// Bytes that a core reads and writes per second while it sums terms of the ranks of its node; by default
    /// `bandwidth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<f64>,
    /// Seconds to start an op; on a GPU, to start each kernel of an op.
    #[serde(default)]
    pub op: f64,
}

/// Operations per second, by the width of the factors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// For f32, with f32 products.
    pub f32: f64,
    /// For bf16, summed in f32.
    pub bf16: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Devices, or cores of its processor.
    pub devices: usize,
    /// The link from a device to the other devices of its node. Processes of a processor share memory and have no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Memory of its processor: `device.memory` if ranks compute there. With GPUs, states may be kept there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// The link of each GPU to that memory, for states that are kept there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_link: Option<HostLink>,
    /// Bytes per second that the cores of the host read and write while they update parameters that it keeps, for all ranks of
    /// the node together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_updates: Option<f64>,
    /// The disk to which checkpoints are written, and on which states are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskRates>,
    /// How soon a rank of a processor continues after waiting for another rank; `None` counts no time for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// A link in one direction; both directions at once are as fast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Seconds until the first byte of a message arrives.
    pub latency: f64,
    /// Devices that share the link when all send at once.
    #[serde(default = "one_device")]
    pub shared_by: usize,
}

/// The connection of a node to all other nodes. Its links are used together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Bytes per second of one link in one direction.
    pub bandwidth: f64,
    /// Seconds until the first byte of a message arrives.
    pub latency: f64,
    /// Links of a node.
    #[serde(default = "one_device")]
    pub links: usize,
}

impl Network {
    /// Reads and checks the text of a file that describes only a network, with the keys of `network`.
    ///
    /// # Errors
    /// Z0175 at the first place that cannot be read. Z0176 for each impossible figure.
    pub fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let network = read(text)?;
        let problems = check::network_problems(&network, text);
        if problems.is_empty() { Ok(network) } else { Err(problems) }
    }
}

/// Seconds from a rank's signal until the signalled rank, which sleeps on the same node, continues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// If each rank has its own core, and the sleeping rank's core is idle.
    pub apart: f64,
    /// If the ranks take turns on one core.
    pub turns: f64,
}

/// The times of one unit of a field in one micro-batch, on a machine whose ranks were all computing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredUnit {
    /// Name of the model.
    pub model: String,
    /// Name of the field.
    pub field: String,
    /// [`Unit::position`](zero_plan::Unit::position), which distinguishes layers that alternate in a field.
    pub position: usize,
    /// The unit's number of parameters, which distinguishes the sizes of one model.
    pub params: usize,
    /// The width in which the unit computed.
    pub compute: Width,
    /// Tokens of the micro-batch.
    pub tokens: usize,
    /// Threads of a rank.
    pub threads: usize,
    /// Ranks that computed at once. They took turns if they had more threads than there were cores.
    pub ranks: usize,
    /// A forward pass.
    pub forward: OpTime,
    /// A backward pass.
    pub backward: OpTime,
    /// An update of all its parameters by one rank.
    pub update: OpTime,
}

/// The time of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpTime {
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// Seconds that cores worked for it, all threads of the rank together: fewer if other programs had the cores in
    /// between, and more if several threads worked at once.
    pub core_seconds: f64,
}

const fn one() -> f64 {
    1.0
}

const fn one_device() -> usize {
    1
}

impl Rates {
    /// The rate for a width.
    pub const fn of(&self, width: Width) -> f64 {
        match width {
            Width::F32 => self.f32,
            Width::BF16 => self.bf16,
        }
    }
}

/// Parses a value from its text.
fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Vec<Diagnostic>> {
    ron_options().from_str(text).map_err(|error| {
        let at = offset(text, error.span.end.line, error.span.end.col);
        let width = text[at..].chars().next().map_or(0, char::len_utf8);
        let message = format!("this is not a description of hardware: {}", error.code);
        let help = "the rustdoc of `zero_study::hardware` lists the keys; each is in the files of `hardware/`";
        vec![Diagnostic::new("Z0175", "", message).at(at..at + width, "reading stops here").help(help)]
    })
}

impl Hardware {
    /// Reads and checks a file's text.
    ///
    /// # Errors
    /// Z0175 at the first place that cannot be read. Z0176 for each impossible figure.
    pub fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let hardware = read(text)?;
        let problems = check::problems(&hardware, text);
        if problems.is_empty() { Ok(hardware) } else { Err(problems) }
    }

    /// The GPUs of a machine as a program has measured them; `memory` is the machine's own memory, and `host_updates` how fast
    /// its cores update, as in [`Node::host_updates`].
    pub fn of_gpus(gpus: &GpuFigures, memory: Option<Size>, host_updates: Option<f64>) -> Self {
        let [f32, bf16] = gpus.multiplied_per_s;
        let device = DeviceFigures {
            name: gpus.name.clone(),
            kind: Processor::Gpu,
            memory: Size::MiB((gpus.memory_bytes >> 20) as u64),
            reserved: Size::MiB(gpus.taken_bytes.div_ceil(1 << 20) as u64),
            matmul: Rates { f32: rounded(f32), bf16: rounded(bf16) },
            achieved: 1.0,
            attention: Some(rounded(gpus.attended_per_s / bf16)),
            bandwidth: rounded(gpus.copied_per_s),
            sums: None,
            op: rounded(gpus.op_s),
        };
        let link = gpus.link.as_ref().and_then(|link| link.as_ref().ok()).map(|&[latency, bandwidth]| Link {
            bandwidth: rounded(bandwidth),
            latency: rounded(latency),
            shared_by: 1,
        });
        // Noise may make both ways at once seem faster than each alone.
        let [read, write, both, latency] = gpus.host_link.map(rounded);
        let both = Some(rounded(both.min(read + write)));
        let host_link = Some(HostLink { read, write, both, latency, shared_by: 1 });
        Self {
            name: format!("this machine, {} x {}", gpus.devices, gpus.name),
            device,
            node: Node {
                devices: gpus.devices,
                link,
                memory,
                host_link,
                host_updates: host_updates.map(rounded),
                disk: None,
                handover: None,
            },
            network: None,
            measured: Vec::new(),
        }
    }

    /// The rates at which states travel that are kept in a tier, if they are known: of a disk, for all ranks of a node together,
    /// and of a link to the host, for each device.
    pub fn rates_of(&self, tier: TierKind) -> Option<DirectRates> {
        match tier {
            TierKind::Device => None,
            TierKind::Host => self.node.host_link.map(|link| link.of_device()),
            TierKind::Disk => self.node.disk.and_then(|disk| disk.direct),
        }
    }

    /// Bytes per second of a rank's share of the host's cores, while those of all of its `ranks` update.
    pub fn host_updates_of(&self, ranks: usize) -> Option<f64> {
        self.node.host_updates.map(|rate| rate / ranks as f64)
    }

    /// Makes the disk, or the links of devices to the host, this many times as fast.
    pub(crate) fn make_tier_faster(&mut self, tier: TierKind, times: f64) {
        match tier {
            TierKind::Device => {}
            TierKind::Host => self.node.host_link = self.node.host_link.map(|link| link.faster(times)),
            TierKind::Disk => {
                if let Some(direct) = self.node.disk.as_mut().and_then(|disk| disk.direct.as_mut()) {
                    *direct = direct.faster(times);
                }
            }
        }
    }

    /// Memory that a rank's plan may take, in bytes, if a node has this many ranks.
    pub fn budget_bytes(&self, ranks_per_node: usize) -> u64 {
        let memory = self.device.memory.bytes();
        let of_rank = match self.device.kind {
            Processor::Gpu => memory,
            Processor::Cpu => memory / ranks_per_node.max(1) as u64,
        };
        of_rank.saturating_sub(self.device.reserved.bytes())
    }

    /// Seconds of one device for these operations, `attending` of which are attention's.
    pub fn computing_s(&self, width: Width, operations: f64, attending: f64) -> f64 {
        let DeviceFigures { achieved, attention, .. } = self.device;
        let attention = attention.filter(|_| width == Width::BF16).unwrap_or(achieved);
        let products = (operations - attending).max(0.0);
        (products / achieved + attending / attention) / self.device.matmul.of(width)
    }
}
