//! Draft: the parts of a spec that a configuration sets, and the spec's text without keys that have no effect. Never
//! reads a configuration.

use core::fmt;

use zero_plan::spec::ModelSource;
use zero_plan::{DeviceKind, OptimizerKind, Precision, TierKind, Width};

use super::settings::Settings;
use super::{ImportOptions, SettingFate};

/// Parts of a spec that a configuration may set.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub model: Option<ModelSource>,
    pub nodes: u32,
    pub zero: u32,
    pub replica: u32,
    /// Whether ranks along `zero` must lie on one node.
    pub within_node: bool,
    pub stage: u8,
    pub prefetch: u32,
    /// Whether gathered parameters are kept until the end of a step.
    pub gathers_once: bool,
    pub bucket_bytes: u64,
    /// Whether gradients are summed locally and reduced once a step.
    pub reduces_once: bool,
    pub sequences: Option<u32>,
    pub length: Option<u32>,
    pub micro_batches: u32,
    pub precision: Precision,
    pub recompute: bool,
    pub optimizer: OptimizerKind,
    /// Where the optimizer's states are kept, and where parameters are.
    pub kept: [TierKind; 2],
    pub device: DeviceKind,
}

impl Draft {
    /// Data parallelism at `stage` over `zero` ranks, with defaults for everything else.
    pub fn new(stage: u8, zero: u32, nodes: u32, options: &ImportOptions) -> Self {
        Self {
            model: options.model.clone(),
            nodes,
            zero,
            replica: 1,
            within_node: false,
            stage,
            prefetch: 1,
            gathers_once: false,
            bucket_bytes: 25 << 20,
            reduces_once: false,
            sequences: None,
            length: options.length,
            micro_batches: 1,
            precision: Precision::default(),
            recompute: false,
            optimizer: OptimizerKind::AdamW,
            kept: [TierKind::Device; 2],
            device: DeviceKind::Cuda,
        }
    }

    /// Notes the values that are neither in the file nor in the options.
    pub fn note_missing(&mut self, settings: &mut Settings) {
        // Only Accelerate has a setting for the device.
        if settings.is_set("use_cpu") || settings.word("distributed_type").is_some_and(|(kind, _)| kind == "MULTI_CPU")
        {
            self.device = DeviceKind::Cpu;
        } else {
            let reason = "`Cuda`, as these frameworks train on GPUs; remove `device` and `transport` to train on CPUs";
            settings.note(SettingFate::Missing, "device", reason);
        }
        let mut missing = |is_missing, key, reason| {
            if is_missing {
                settings.note(SettingFate::Missing, key, reason);
            }
        };
        missing(self.model.is_none(), "model", "the file has none, and `cargo zero` builds a model: `--model EXAMPLE`");
        missing(
            self.sequences.is_none(),
            "batch.sequences",
            "a micro-batch has 4 sequences by default: `--sequences N`",
        );
        missing(self.length.is_none(), "batch.length", "a sequence has 256 tokens by default: `--length N`");
    }
}

/// The spec, in RON.
impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "(")?;
        match &self.model {
            Some(ModelSource::Example(name)) => writeln!(f, "    model: Example({name:?}),")?,
            Some(ModelSource::Package(name)) => writeln!(f, "    model: Package({name:?}),")?,
            None => {}
        }
        writeln!(f, "    mesh: ({}),", self.mesh())?;
        writeln!(f, "    zero: ({}),", self.zero())?;
        writeln!(f, "    batch: ({}),", self.batch())?;
        if self.precision != Precision::default() {
            writeln!(f, "    precision: ({}),", self.widths())?;
        }
        if self.recompute {
            writeln!(f, "    recompute: Every(1),")?;
        }
        if self.optimizer != OptimizerKind::AdamW {
            writeln!(f, "    optimizer: {:?},", self.optimizer)?;
        }
        if self.kept != [TierKind::Device; 2] {
            let [optimizer, parameters] = self.kept;
            let kept = [("optimizer", optimizer), ("parameters", parameters)];
            let kept = kept.map(|(key, tier)| (tier != TierKind::Device).then(|| format!("{key}: {tier:?}")));
            writeln!(f, "    offload: ({}),", joined(kept))?;
        }
        if self.device != DeviceKind::default() {
            writeln!(f, "    device: {:?},", self.device)?;
        }
        if self.nodes > 1 {
            writeln!(f, "    transport: {:?},", self.device.transport_of_hosts(self.nodes as usize))?;
        }
        writeln!(f, ")")
    }
}

impl Draft {
    fn mesh(&self) -> String {
        let nodes = (self.nodes > 1).then(|| format!("nodes: {}", self.nodes));
        let replica = (self.replica > 1).then(|| format!("replica: {}", self.replica));
        let within = (self.within_node && self.nodes > 1).then(|| "within_node: [Zero]".to_owned());
        joined([nodes, replica, Some(format!("zero: {}", self.zero)), within])
    }

    fn zero(&self) -> String {
        let prefetch = (self.stage == 3 && self.zero > 1).then(|| format!("prefetch: {}", self.prefetch));
        let gather = (self.stage == 3 && self.gathers_once).then(|| "gather: PerStep".to_owned());
        let reduce = (self.reduces_once && self.micro_batches > 1).then(|| "reduce: PerStep".to_owned());
        let bucket = Some(format!("bucket: {}", size(self.bucket_bytes)));
        joined([Some(format!("stage: {}", self.stage)), prefetch, bucket, gather, reduce])
    }

    fn batch(&self) -> String {
        let of = |number: Option<u32>, key| number.map(|number| format!("{key}: {number}"));
        let micro_batches = Some(self.micro_batches);
        joined([of(self.sequences, "sequences"), of(self.length, "length"), of(micro_batches, "micro_batches")])
    }

    fn widths(&self) -> String {
        let Precision { compute, params, reduce, master, moments } = self.precision;
        let of = |key, width| (width != Width::default()).then(|| format!("{key}: {}", written(width)));
        joined([
            of("compute", compute),
            of("params", params),
            of("reduce", reduce),
            of("master", master),
            of("moments", moments),
        ])
    }
}

const fn written(width: Width) -> &'static str {
    match width {
        Width::F32 => "F32",
        Width::BF16 => "BF16",
    }
}

fn joined<const N: usize>(keys: [Option<String>; N]) -> String {
    keys.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    let units =
        [("GiB", 1 << 30), ("GB", 1_000_000_000), ("MiB", 1 << 20), ("MB", 1_000_000), ("KiB", 1 << 10), ("KB", 1000)];
    let fits = units.into_iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
    let (name, unit) = fits.unwrap_or(("B", 1));
    format!("{name}({})", bytes / unit)
}
