//! Candidate: one layout that may be chosen, as a small value, as the text of a spec and as a configuration. Never judges layouts.

use core::fmt::Write;

use serde::Serialize;
use zero_plan::spec::{Schedule, Size};
use zero_plan::{
    Axis, Config, DeviceKind, Mesh, Offload, Often, OptimizerKind, Precision, Recompute, Serve, Split, TierKind,
    TransportKind, Unit, Width, activations_stay, adds_to_kept_states,
};

use super::question::Question;

/// One layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Ranks and how they are numbered.
    pub mesh: Mesh,
    /// Axes that must lie within a node.
    pub within: &'static [Axis],
    /// ZeRO stage.
    pub stage: u8,
    /// Number of units gathered ahead; `None` below stage 3.
    pub prefetch: Option<usize>,
    /// The size of a gradient bucket.
    pub bucket: Size,
    /// How often parameters are gathered, at stage 3.
    pub gather: Often,
    /// How often gradients are reduced.
    pub reduce: Often,
    /// The order of a pipeline.
    pub schedule: Schedule,
    /// Whether chunks have equal numbers of units, instead of balanced costs.
    pub even: bool,
    /// One of this many units is recomputed in backward; `None` if all activations are kept.
    pub recompute: Option<usize>,
    /// The widths in which numbers are stored.
    pub precision: Precision,
    /// Sequences of a micro-batch.
    pub sequences: usize,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// What is kept in a tier.
    pub offload: Offload,
}

/// A choice that distinguishes layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Dimension {
    /// The lengths of the axes.
    Mesh,
    /// Which axes lie within nodes.
    Nodes,
    /// The ZeRO stage.
    Stage,
    /// Gathers ahead.
    Prefetch,
    /// Buckets of gradients.
    Bucket,
    /// How often parameters are gathered.
    Gather,
    /// How often gradients are reduced.
    Reduce,
    /// The order of a pipeline.
    Schedule,
    /// The split of a pipeline.
    Split,
    /// Which units are recomputed.
    Recompute,
    /// Sequences and number of micro-batches.
    MicroBatches,
    /// The widths in which numbers are stored.
    Widths,
    /// What is kept in a tier.
    Offload,
}

impl Dimension {
    /// All dimensions.
    pub const ALL: [Dimension; 13] = [
        Dimension::Mesh,
        Dimension::Nodes,
        Dimension::Stage,
        Dimension::Prefetch,
        Dimension::Bucket,
        Dimension::Gather,
        Dimension::Reduce,
        Dimension::Schedule,
        Dimension::Split,
        Dimension::Recompute,
        Dimension::MicroBatches,
        Dimension::Widths,
        Dimension::Offload,
    ];

    /// Whether it distinguishes coarse layouts, and not only their settings.
    pub(super) const fn is_coarse(self) -> bool {
        use Dimension::{Bucket, Gather, Prefetch, Reduce, Split};
        !matches!(self, Bucket | Gather | Prefetch | Reduce | Split)
    }
}

/// The usual name of these widths, with the bytes of a parameter, its gradient and its optimizer state.
pub(super) fn widths(precision: &Precision) -> String {
    let Precision { compute, params, reduce, .. } = precision;
    let name = match (compute, precision.master, precision.moments) {
        (Width::F32, ..) => "f32",
        (_, Width::F32, Width::F32) => "bf16 with f32 masters",
        _ => "pure bf16",
    };
    format!("{name} ({} + {} + {} bytes)", params.bytes(), reduce.bytes(), precision.optimizer_bytes())
}

impl Candidate {
    /// The layout's value along a dimension, in a few words; `None` if the dimension does not apply to the layout.
    pub fn value(&self, dimension: Dimension) -> Option<String> {
        let Mesh { zero, replica, pipeline, .. } = self.mesh;
        let (shards, piped) = (self.stage == 3 && zero > 1, pipeline > 1);
        Some(match dimension {
            Dimension::Mesh => format!("zero {zero} x replica {replica} x pipeline {pipeline}"),
            Dimension::Nodes if self.mesh.nodes == 1 => return None,
            Dimension::Nodes => format!("ranks numbered along {}", self.mesh.order.map(Axis::name).join(", ")),
            Dimension::Stage => format!("stage {}", self.stage),
            Dimension::Prefetch if shards => format!("prefetch {}", self.prefetch?),
            Dimension::Bucket if self.mesh.data_ranks() > 1 => format!("buckets of {:?}", self.bucket),
            Dimension::Gather if shards => format!("gather {:?}", self.gather),
            Dimension::Reduce if self.micro_batches > 1 => format!("reduce {:?}", self.reduce),
            Dimension::Schedule if piped => format!("{:?}", self.schedule),
            Dimension::Split if piped => if self.even { "an even split" } else { "a balanced split" }.to_owned(),
            Dimension::Recompute => {
                self.recompute.map_or("no recomputation".to_owned(), |k| format!("recompute Every({k})"))
            }
            Dimension::MicroBatches => format!("{} x {} sequences", self.micro_batches, self.sequences),
            Dimension::Widths => widths(&self.precision),
            Dimension::Offload if !self.offload.is_none() => self.kept_elsewhere(),
            _ => return None,
        })
    }

    /// What is kept in a tier, and where that is, in words.
    pub fn kept_elsewhere(&self) -> String {
        let words = |(key, _)| if key == "optimizer" { "optimizer state" } else { key };
        let in_tier = |tier: TierKind| {
            let kept = self.offload.states().into_iter().filter(|(_, kept)| *kept == tier).map(words);
            let kept = kept.collect::<Vec<_>>().join(", ");
            let kept = kept.rsplit_once(", ").map_or(kept.clone(), |(all, last)| format!("{all} and {last}"));
            let updates = tier == TierKind::Host && !self.offload.update_on.is_device();
            (!kept.is_empty())
                .then(|| format!("{kept} {}{}", tier.words(), if updates { ", which updates them" } else { "" }))
        };
        [TierKind::Host, TierKind::Disk].into_iter().filter_map(in_tier).collect::<Vec<_>>().join("; ")
    }

    /// Whether a model with these units can keep elsewhere what the layout says, with the other keys of its spec.
    pub(super) fn can_offload(&self, question: &Question, units: &[Unit]) -> bool {
        let config = self.config(question);
        config.can_offload() && !adds_to_kept_states(&config, units) && !activations_stay(&config, units)
    }

    /// The configuration that the layout's spec describes.
    pub fn config(&self, question: &Question) -> Config {
        Config {
            mesh: self.mesh,
            stage: self.stage,
            prefetch: self.prefetch.unwrap_or(usize::from(self.stage == 3)),
            bucket_bytes: self.bucket.bytes() as usize,
            gather: self.gather,
            reduce: self.reduce,
            order: self.schedule.order(),
            split: if self.even { Split::Even } else { Split::Balanced },
            recompute: self.recompute.map_or(Recompute::None, Recompute::Every),
            precision: self.precision,
            sequences: self.sequences,
            length: question.length,
            micro_batches: self.micro_batches,
            snapshot: question.pins.has("checkpoint.snapshot") && question.pins.spec.checkpoint.snapshot,
            device: question.device(),
            transport: transport(question),
            optimizer: question.pins.spec.optimizer,
            offload: self.offload,
            host_bytes: self.host_budget(question),
            disk_bytes: question.pins.spec.disk.map(|budget| budget.bytes() as usize),
            publish: question.pins.spec.publish.config(),
            serve: Serve::NONE,
            memory_bytes: Some(question.budget(self.mesh.ranks_per_node())),
        }
    }

    /// The text of the layout's spec: the lines of `comment` as a comment, then only the keys that have an effect.
    pub fn text(&self, question: &Question, comment: &[String]) -> String {
        let Mesh { nodes, zero, replica, pipeline, .. } = self.mesh;
        let mut text = String::new();
        for line in comment {
            let _ = writeln!(text, "// {line}");
        }
        let mut mesh = Vec::new();
        if nodes > 1 {
            mesh.push(format!("nodes: {nodes}"));
        }
        let axes = [("replica", replica), ("pipeline", pipeline)].into_iter().filter(|(_, ranks)| *ranks > 1);
        mesh.extend(axes.map(|(axis, ranks)| format!("{axis}: {ranks}")));
        mesh.push(format!("zero: {zero}"));
        if !self.within.is_empty() {
            mesh.push(format!("within_node: {:?}", self.within));
        }
        let _ =
            writeln!(text, "(\n    model: {},\n    mesh: ({}),", question.size.entry(&question.model), mesh.join(", "));
        let _ = writeln!(text, "    zero: ({}),", self.zero_keys().join(", "));
        if pipeline > 1 {
            let units = if self.even { ", units: Even" } else { "" };
            let schedule = match self.schedule {
                Schedule::Interleaved { chunks } => format!("Interleaved(chunks: {chunks})"),
                other => format!("{other:?}"),
            };
            let _ = writeln!(text, "    pipeline: (schedule: {schedule}{units}),");
        }
        let (sequences, length, count) = (self.sequences, question.length, self.micro_batches);
        let _ = writeln!(text, "    batch: (sequences: {sequences}, length: {length}, micro_batches: {count}),");
        let Precision { compute, params, reduce, master, moments } = self.precision;
        if self.precision != Config::PLAIN.precision {
            let widths = format!("compute: {compute:?}, params: {params:?}, reduce: {reduce:?}, master: {master:?}");
            let _ = writeln!(text, "    precision: ({widths}, moments: {moments:?}),");
        }
        if let Some(k) = self.recompute {
            let _ = writeln!(text, "    recompute: Every({k}),");
        }
        let Config { snapshot, device, transport, optimizer, publish, .. } = self.config(question);
        if snapshot {
            text.push_str("    checkpoint: (snapshot: true),\n");
        }
        if device != DeviceKind::Cpu {
            let _ = writeln!(text, "    device: {device:?},");
        }
        if transport != device.transport() {
            let _ = writeln!(text, "    transport: {transport:?},");
        }
        if optimizer != OptimizerKind::AdamW {
            let _ = writeln!(text, "    optimizer: {optimizer:?},");
        }
        if !self.offload.is_none() {
            let Offload { prefetch, piece_bytes, update, update_on, .. } = self.offload;
            let kept = self.offload.states().into_iter().filter(|(_, tier)| *tier != TierKind::Device);
            let kept: String = kept.map(|(state, tier)| format!("{state}: {tier:?}, ")).collect();
            let piece = format!(", piece: {:?}", in_units(piece_bytes));
            let piece = if self.config(question).updates_in_pieces() { &piece } else { "" };
            let update = if update.is_after_step() { String::new() } else { format!(", update: {update:?}") };
            let update_on = if update_on.is_device() { String::new() } else { format!(", update_on: {update_on:?}") };
            let _ = writeln!(text, "    offload: ({kept}prefetch: {prefetch}{piece}{update}{update_on}),");
            let budgets = [("host", self.host_budget(question)), ("disk", self.config(question).disk_bytes)];
            for (key, bytes) in budgets.into_iter().filter_map(|(key, bytes)| Some((key, bytes?))) {
                let _ = writeln!(text, "    {key}: B({bytes}),");
            }
        }
        if !publish.is_none() {
            let _ = writeln!(text, "    publish: (dtype: {:?}, copies: {}),", publish.dtype, publish.copies);
        }
        let _ = writeln!(text, "    memory: B({}),\n)", question.budget(self.mesh.ranks_per_node()));
        text
    }

    /// The host memory that a rank may take, if it keeps states there.
    fn host_budget(&self, question: &Question) -> Option<usize> {
        let is_used = self.offload.uses(TierKind::Host);
        question.host_budget(self.mesh.ranks_per_node()).filter(|_| is_used)
    }

    fn zero_keys(&self) -> Vec<String> {
        let mut zero = vec![format!("stage: {}", self.stage)];
        zero.extend(self.prefetch.filter(|_| self.mesh.zero > 1).map(|units| format!("prefetch: {units}")));
        zero.push(format!("bucket: {:?}", self.bucket));
        if self.stage == 3 {
            zero.push(format!("gather: {:?}", self.gather));
        }
        if self.micro_batches > 1 {
            zero.push(format!("reduce: {:?}", self.reduce));
        }
        zero
    }
}

/// The pinned transport; otherwise the device's default. Between several nodes, MPI or NCCL carries the bytes.
fn transport(question: &Question) -> TransportKind {
    match question.device() {
        _ if question.pins.has("transport") => question.pins.spec.transport(),
        device => device.transport_of_hosts(question.nodes),
    }
}

/// A number of bytes as a size, in the largest unit that divides it.
fn in_units(bytes: usize) -> Size {
    let bytes = bytes as u64;
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => Size::MiB(bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => Size::KiB(bytes >> 10),
        _ => Size::B(bytes),
    }
}

/// A layout in one line.
pub(super) fn sketch(candidate: &Candidate) -> String {
    let words = Dimension::ALL.iter().filter_map(|&dimension| candidate.value(dimension));
    words.collect::<Vec<_>>().join(", ")
}
