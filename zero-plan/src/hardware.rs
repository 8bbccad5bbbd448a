//! Hardware: what a node of a cluster has, and how its nodes are connected, as a file says it: capacities, rates and latencies,
//! all for one device or one link. Never measures, and never knows a plan.
//!
//! A file of it is RON:
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
//! let hardware = zero_plan::hardware::Hardware::parse(text).unwrap();
//! assert_eq!(hardware.node.devices, 2);
//! assert_eq!(hardware.network, None);
//! ```

mod check;
mod measured;

pub use measured::{measured_units, median, rounded};

use serde::{Deserialize, Serialize};

use crate::config::Width;
use crate::diagnostic::{Diagnostic, offset};
use crate::spec::{Size, ron_options};

/// A cluster of equal nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What people call it.
    pub name: String,
    /// The device on which ranks compute.
    pub device: DeviceFigures,
    /// What each node has.
    pub node: Node,
    /// What connects nodes; none where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// What units of models took on it, where that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredUnit>,
}

/// A device on which a rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processor {
    /// A device with memory of its own, of which each rank has one.
    Gpu,
    /// The processor: ranks of a node share its memory, and take turns on its cores where they are more.
    Cpu,
}

/// One device, or one core of a processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceFigures {
    /// What people call it.
    pub name: String,
    /// How ranks use it.
    pub kind: Processor,
    /// Memory of one device; of a processor, that of its whole node.
    pub memory: Size,
    /// What a rank has in that memory beside its plan: the device's context, libraries, and what an allocator cannot use.
    #[serde(default)]
    pub reserved: Size,
    /// Operations of matrix products a second, as published or measured; a multiply-add counts 2.
    pub matmul: Rates,
    /// Share of these that large products reach, above 0 and at most 1.
    #[serde(default = "one")]
    pub achieved: f64,
    /// Bytes of its memory that it reads and writes in a second.
    pub bandwidth: f64,
    /// Bytes that a core reads and writes in a second while it adds up what ranks of its node have; without it, `bandwidth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<f64>,
    /// Seconds until an op has begun.
    #[serde(default)]
    pub op: f64,
}

/// Operations a second, by what is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Of f32, with f32 products.
    pub f32: f64,
    /// Of bf16, summed in f32.
    pub bf16: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Devices, or cores of its processor.
    pub devices: usize,
    /// The link by which a device reaches the others of its node. Processes of a processor share memory, and have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Memory of its processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// The disk to which checkpoints are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskRates>,
    /// How soon ranks of a processor go on that waited for one another; none to take no time for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// A link in one direction; both directions at once are as fast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes a second.
    pub bandwidth: f64,
    /// Seconds until the first byte of a message is there.
    pub latency: f64,
    /// Devices that share it when all send at once.
    #[serde(default = "one_device")]
    pub shared_by: usize,
}

/// What connects a node with all others. Its links are used together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Bytes a second of one link in one direction.
    pub bandwidth: f64,
    /// Seconds until the first byte of a message is there.
    pub latency: f64,
    /// Links of a node.
    #[serde(default = "one_device")]
    pub links: usize,
}

impl Network {
    /// Reads and checks a file's text that describes a network alone: what is between the parentheses of `network`.
    ///
    /// # Errors
    /// Z0175 where it is not understood: the first such place. Z0176 for each figure that cannot be.
    pub fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let network = read(text)?;
        let problems = check::network_problems(&network, text);
        if problems.is_empty() { Ok(network) } else { Err(problems) }
    }
}

/// A disk, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRates {
    /// Read in a second.
    pub read: f64,
    /// Written in a second, flushed.
    pub write: f64,
}

/// Seconds from when a rank tells another one of the same node what that sleeps for until that one goes on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    /// Each has a core, and that of the one that sleeps is idle.
    pub apart: f64,
    /// They take turns with a core.
    pub turns: f64,
}

/// What one unit of a field took in one micro-batch, on a machine whose ranks were all computing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredUnit {
    /// Name of the model.
    pub model: String,
    /// Name of the field.
    pub field: String,
    /// [`Unit::position`](crate::Unit::position), which tells layers apart that alternate in a field.
    pub position: usize,
    /// Its parameters, by which sizes of one model differ.
    pub params: usize,
    /// The width in which it computed.
    pub compute: Width,
    /// Tokens of the micro-batch.
    pub tokens: usize,
    /// Threads of a rank.
    pub threads: usize,
    /// Ranks that computed at once. They took turns if there were more threads of them than cores.
    pub ranks: usize,
    /// Seconds of a forward pass.
    pub forward: f64,
    /// Seconds of a backward pass.
    pub backward: f64,
    /// Seconds of an update of all its parameters by one rank.
    pub update: f64,
}

const fn one() -> f64 {
    1.0
}

const fn one_device() -> usize {
    1
}

impl Rates {
    /// Those of a width.
    pub const fn of(&self, width: Width) -> f64 {
        match width {
            Width::F32 => self.f32,
            Width::BF16 => self.bf16,
        }
    }
}

/// What a text says, if it is understood.
fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Vec<Diagnostic>> {
    ron_options().from_str(text).map_err(|error| {
        let at = offset(text, error.span.end.line, error.span.end.col);
        let width = text[at..].chars().next().map_or(0, char::len_utf8);
        let message = format!("this is no description of hardware: {}", error.code);
        let help = "the rustdoc of `zero_plan::hardware` lists the keys; each is in the files of `hardware/`";
        vec![Diagnostic::new("Z0175", "", message).at(at..at + width, "reading stops here").help(help)]
    })
}

impl Hardware {
    /// Reads and checks a file's text.
    ///
    /// # Errors
    /// Z0175 where it is not understood: the first such place. Z0176 for each figure that cannot be.
    pub fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let hardware = read(text)?;
        let problems = check::problems(&hardware, text);
        if problems.is_empty() { Ok(hardware) } else { Err(problems) }
    }

    /// Memory that a rank's plan may take, in bytes, where a node has so many ranks.
    pub fn budget_bytes(&self, ranks_per_node: usize) -> u64 {
        let memory = self.device.memory.bytes();
        let of_rank = match self.device.kind {
            Processor::Gpu => memory,
            Processor::Cpu => memory / ranks_per_node.max(1) as u64,
        };
        of_rank.saturating_sub(self.device.reserved.bytes())
    }

    /// Operations a second that large products reach on one device.
    pub fn product_rate(&self, width: Width) -> f64 {
        self.device.matmul.of(width) * self.device.achieved
    }
}
