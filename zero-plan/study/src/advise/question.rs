//! Question: what is asked, and how candidates are judged. Never searches.

use core::fmt;

use zero_plan::bounds::MICRO_BATCHES_MAX;
use zero_plan::spec::{ModelSize, ModelSource, RANKS_MAX};
use zero_plan::{Config, DeviceKind, Offload, OptimizerKind, Plan, TierKind, Unit, UpdatePlace, Width};

use super::pins::Pins;
use super::space::{SEQUENCES, precisions};
use crate::hardware::{Hardware, Processor};
use crate::simulate::{least_s, simulate};

/// A question to the search.
pub struct Question<'a> {
    /// The model, as specs name it and the command line finds it.
    pub model: ModelSource,
    /// Its size, which specs say too.
    pub size: ModelSize,
    /// Its name in plans.
    pub name: &'a str,
    /// The machines.
    pub hardware: &'a Hardware,
    /// How many nodes there are.
    pub nodes: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Tokens in one step of all ranks. If `None`, the search chooses the tokens of each data-parallel rank.
    pub tokens_per_step: Option<usize>,
    /// The keys whose values are given.
    pub pins: Pins,
    /// Whether everything may be in bf16, including the optimizer's copy and moments.
    pub pure_bf16: bool,
    /// The limit on what is timed.
    pub effort: Effort,
    /// Whether states may be kept in a tier: on disk, or in the memory of a GPU's host.
    pub offload: OffloadUse,
    /// The units of the model for a width and the sequences of a micro-batch; `None` if they are not known.
    pub units: &'a dyn Fn(Width, usize) -> Option<Vec<Unit>>,
}

/// When layouts are tried that keep states in a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadUse {
    /// Where nothing fits without, if the machines can do it.
    #[default]
    IfNeeded,
    /// Beside the layouts without.
    Tried,
    /// In all layouts, with these settings.
    Given(Offload),
}

/// Settings of states in a tier: `prefetch`, and the bytes of a piece. Settings that are likely fastest come first; small
/// pieces need little memory, and large ones few ops.
const PIECES: [(usize, usize); 4] = [(1, 4 << 20), (1, 1 << 20), (0, 256 << 10), (1, 64 << 20)];

/// Whether optimizer state, gradients, parameters and activations are kept in a tier. Each level is tried if nothing fits in
/// those before.
const LEVELS: [&[[bool; 4]]; 3] = [
    &[[true, false, false, false], [false, false, false, true]],
    &[[true, false, false, true], [true, true, false, false]],
    &[[true, true, true, false], [true, true, true, true]],
];

/// What a device keeps in its tier, with the first settings.
fn kept_in(tier: TierKind, which: [bool; 4]) -> Offload {
    let in_tier = |is_kept: bool| if is_kept { tier } else { TierKind::Device };
    let [optimizer, gradients, parameters, activations] = which.map(in_tier);
    let (prefetch, piece_bytes) = PIECES[0];
    Offload { optimizer, gradients, parameters, activations, prefetch, piece_bytes, ..Offload::NONE }
}

/// The limit on timing before an answer is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The number of plans that are made and timed.
    pub plans: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { plans: 8000 }
    }
}

/// Predicts how long a step takes.
pub trait Judge {
    /// Seconds of a step; `None` where the plan cannot run.
    fn step_s(&self, plan: &Plan) -> Option<f64>;

    /// A lower bound, in seconds, for a step of any plan of this configuration, whatever its prefetch and buckets.
    fn least_s(&self, _config: &Config, _units: &[Unit]) -> f64 {
        0.0
    }
}

/// Judges by simulation.
pub struct Simulated<'a>(pub &'a Hardware);

impl Judge for Simulated<'_> {
    fn step_s(&self, plan: &Plan) -> Option<f64> {
        simulate(plan, self.0).ok().map(|timeline| timeline.step_s)
    }

    /// On GPUs, [`least_s`]. Otherwise the operations of all ranks, divided equally among all devices: no pipeline is
    /// balanced better. Measured times replace the operations of units, so there is no bound if the hardware has measured
    /// times.
    fn least_s(&self, config: &Config, units: &[Unit]) -> f64 {
        if !self.0.measured.is_empty() {
            return 0.0;
        }
        if let Some(least_s) = least_s(config, units, self.0) {
            return least_s;
        }
        let again = |i: usize| usize::from(config.recomputes(units, i)) * units[i].forward_passes();
        let passes = |unit: usize| (3 + again(unit)) as f64;
        let seconds =
            |unit: &Unit| self.0.computing_s(config.precision.compute, unit.operations as f64, unit.attending as f64);
        let seconds: f64 = units.iter().enumerate().map(|(i, unit)| passes(i) * seconds(unit)).sum();
        let devices = match self.0.device.kind {
            Processor::Gpu => config.mesh.pipeline,
            Processor::Cpu => (config.mesh.nodes * self.0.node.devices).div_ceil(config.mesh.data_ranks()),
        };
        seconds * config.micro_batches as f64 / devices as f64
    }
}

/// The shapes whose units a question may ask for: width, sequences of a micro-batch, and length.
pub fn probes(question: &Question) -> Vec<(Width, usize, usize)> {
    let mut widths: Vec<Width> = precisions(question).iter().map(|precision| precision.compute).collect();
    widths.dedup();
    let sequences = question.pins.numbers("batch.sequences", &SEQUENCES);
    let shapes = widths.iter().flat_map(|&width| sequences.iter().map(move |&n| (width, n)));
    shapes.map(|(width, n)| (width, n, question.length)).collect()
}

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq)]
pub enum NoAdvice {
    /// More ranks than a mesh may have, or machines without a connection. Z0161.
    Machines {
        /// The problem.
        what: String,
        /// How to fix it.
        help: &'static str,
    },
    /// Nothing fits. Z0162.
    NothingFits {
        /// The layout that needs the least memory, how much it needs, and how much there is.
        least: String,
        /// What would make a layout fit.
        would: Vec<String>,
    },
    /// The tokens of a step cannot be shared out. Z0163.
    TokensPerStep {
        /// The tokens that were asked for.
        asked: usize,
        /// Tokens of a sequence.
        length: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// No layout has the given values, or the sizes are not known. Z0164.
    Nothing(String),
}

impl NoAdvice {
    /// The error's code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Machines { .. } => "Z0161",
            Self::NothingFits { .. } => "Z0162",
            Self::TokensPerStep { .. } => "Z0163",
            Self::Nothing(_) => "Z0164",
        }
    }

    /// The problem, and how to fix it.
    pub fn told(&self) -> (String, String) {
        match self {
            Self::Machines { what, help } => (what.clone(), (*help).to_owned()),
            Self::NothingFits { least, would } => (format!("no layout fits: {least}"), would.join("\n          ")),
            Self::TokensPerStep { asked, length, ranks } => {
                let step = length * ranks;
                let most = step.saturating_mul(MICRO_BATCHES_MAX).saturating_mul(SEQUENCES[SEQUENCES.len() - 1]);
                let near = asked.div_ceil(step).saturating_mul(step).clamp(step, most);
                let what =
                    format!("{asked} tokens a step cannot be shared out in sequences of {length} on {ranks} ranks");
                (
                    what,
                    format!(
                        "ask for a multiple of {length}, at most {most}, such as {near}, which every mesh can share"
                    ),
                )
            }
            Self::Nothing(what) => (what.clone(), "remove a `--pin`, or change its value".to_owned()),
        }
    }
}

impl fmt::Display for NoAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, help) = self.told();
        write!(f, "error[{}]: {what}\n  = help: {help}", self.code())
    }
}

impl std::error::Error for NoAdvice {}

impl Question<'_> {
    /// The memory that a rank may take, in bytes, with this many ranks per node.
    pub fn budget(&self, ranks_per_node: usize) -> usize {
        self.hardware.budget_bytes(ranks_per_node) as usize
    }

    /// The numbers of ranks that a node can have: one rank for each GPU, or any divisor of the number of cores.
    pub fn ranks_per_node(&self) -> Vec<usize> {
        let devices = self.hardware.node.devices;
        match self.hardware.device.kind {
            Processor::Gpu => vec![devices],
            Processor::Cpu => (1..=devices).filter(|ranks| devices.is_multiple_of(*ranks)).collect(),
        }
    }

    /// The pinned device; otherwise the device of the machines.
    pub(super) fn device(&self) -> DeviceKind {
        match self.hardware.device.kind {
            _ if self.pins.has("device") => self.pins.spec.device,
            Processor::Gpu => DeviceKind::Cuda,
            Processor::Cpu => DeviceKind::Cpu,
        }
    }

    /// The tier in which the device can keep states.
    fn tier(&self) -> TierKind {
        if self.device().is_host() { TierKind::Disk } else { TierKind::Host }
    }

    /// The memory of its host that a rank may take for states, in bytes, if that is known.
    pub(super) fn host_budget(&self, ranks_per_node: usize) -> Option<usize> {
        let given = self.pins.spec.host.map(|budget| budget.bytes());
        let shared = || Some(self.hardware.node.memory?.bytes() / ranks_per_node.max(1) as u64);
        given.or_else(shared).map(|bytes| bytes as usize)
    }

    /// Why nothing can be kept in a tier, and how to change that; none if it can.
    fn no_tier(&self) -> Option<(String, &'static str)> {
        let spec = &self.pins.spec;
        if spec.optimizer != OptimizerKind::AdamW {
            return Some((format!("`optimizer` {:?} cannot do that", spec.optimizer), "leave out `--offload`"));
        }
        if self.pins.has("checkpoint.snapshot") && spec.checkpoint.snapshot {
            return Some(("`checkpoint.snapshot` contradicts it".to_owned(), "leave out `--offload`"));
        }
        let (tier, name) = (self.tier(), &self.hardware.name);
        let [key, help] = match tier {
            TierKind::Disk => [
                "node.disk.direct",
                "add the key `node.disk.direct` to the hardware file; `cargo zero measure` measures it",
            ],
            _ => [
                "node.host_link",
                "add the key `node.host_link` to the hardware file; `cargo zero measure` measures it",
            ],
        };
        let told = || (format!("`{name}` has no `{key}`, so it is not known how long that takes"), help);
        self.hardware.rates_of(tier).is_none().then(told)
    }

    /// What is kept in a tier in the coarse layouts that are tried: in each entry, what is tried if nothing of those before
    /// fits.
    pub(super) fn offloads(&self) -> Vec<Vec<Offload>> {
        let in_tier = |tier| LEVELS.map(|level| level.iter().map(|&which| kept_in(tier, which)).collect::<Vec<_>>());
        let mut levels = vec![vec![Offload::NONE]];
        levels.extend(in_tier(self.tier()));
        // What does not fit into the memory of its host, a GPU can have on a disk whose rates are known.
        let has_disk = self.tier() == TierKind::Host && self.hardware.rates_of(TierKind::Disk).is_some();
        let on_disk = has_disk.then(|| in_tier(TierKind::Disk)).into_iter().flatten();
        match self.offload {
            OffloadUse::Given(offload) => vec![vec![offload]],
            OffloadUse::Tried => core::iter::once(levels.concat()).chain(on_disk).collect(),
            OffloadUse::IfNeeded if self.no_tier().is_none() => levels.into_iter().chain(on_disk).collect(),
            OffloadUse::IfNeeded => vec![vec![Offload::NONE]],
        }
    }

    /// The settings of what a coarse layout keeps in a tier.
    pub(super) fn offload_settings(&self, offload: Offload) -> Vec<Offload> {
        if offload.is_none() || matches!(self.offload, OffloadUse::Given(_)) {
            return vec![offload];
        }
        let settings = PIECES.map(|(prefetch, piece_bytes)| Offload { prefetch, piece_bytes, ..offload });
        let config = Config { offload, ..Config::PLAIN };
        // Activations travel whole.
        if config.updates_in_pieces() {
            let can_be_there = offload.optimizer == TierKind::Host && self.hardware.node.host_updates.is_some();
            let on_host = |it: Offload| Offload { update_on: UpdatePlace::Host, ..it };
            let there = settings.map(on_host).into_iter().filter(|_| can_be_there);
            settings.into_iter().chain(there).collect()
        } else {
            [1, 0].map(|prefetch| Offload { prefetch, ..offload }).to_vec()
        }
    }

    /// Checks the question before the search starts.
    ///
    /// # Errors
    /// Z0161, Z0163.
    pub fn require_machines(&self) -> Result<(), NoAdvice> {
        let (nodes, devices) = (self.nodes, self.hardware.node.devices);
        let ranks = nodes.saturating_mul(devices);
        if ranks == 0 || ranks > RANKS_MAX as usize {
            let what = format!("{nodes} nodes of {devices} devices are not 1 to {RANKS_MAX} ranks");
            return Err(NoAdvice::Machines { what, help: "change `--nodes`" });
        }
        let Hardware { name, node, network, device, .. } = self.hardware;
        if nodes > 1 && network.is_none() {
            let what = format!("{nodes} nodes need a network, and `{name}` has none");
            return Err(NoAdvice::Machines { what, help: "lower `--nodes`, or name a network by `--network`" });
        }
        if device.kind == Processor::Gpu && devices > 1 && node.link.is_none() {
            let what = format!("{devices} devices need links, and `{name}` has no `node.link` between them");
            return Err(NoAdvice::Machines { what, help: "add the key `node.link` to the hardware file" });
        }
        if let (OffloadUse::Tried, Some((what, help))) = (self.offload, self.no_tier()) {
            let place = self.tier().words();
            return Err(NoAdvice::Machines { what: format!("nothing can be kept {place}: {what}"), help });
        }
        match self.tokens_per_step {
            Some(asked) if asked == 0 || !asked.is_multiple_of(self.length) => {
                Err(NoAdvice::TokensPerStep { asked, length: self.length, ranks })
            }
            _ => Ok(()),
        }
    }
}
