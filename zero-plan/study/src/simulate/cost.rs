//! Cost: the seconds that the work of an op takes on one rank, by its operations and the bytes that it touches. Waiting
//! and transfers are not work. Never knows when an op runs.

use zero_plan::{Config, Coordinates, Op, Piece, Plan, Unit, Work};

use crate::hardware::{Hardware, MeasuredUnit, OpTime, Processor};

/// The number of kernels that a GPU runs for a pass of a unit, started one after another.
#[derive(Clone, Copy, Debug)]
pub struct PassKernels {
    /// For a forward pass.
    pub forward: usize,
    /// For a backward pass.
    pub backward: usize,
}

/// The kernels of a layer of a transformer, in which tokens attend to one another: as many as in GPT-2's layer.
pub const LAYER_KERNELS: PassKernels = PassKernels { forward: 8, backward: 24 };
/// The approximate kernels of any other unit: an embedding, a norm or a head.
pub const OTHER_KERNELS: PassKernels = PassKernels { forward: 3, backward: 8 };

/// The costs of work under a plan.
pub struct Costs<'a> {
    plan: &'a Plan<'a>,
    hardware: &'a Hardware,
    /// Threads of a rank; 1 if a rank has a device.
    pub threads: usize,
    /// The factor by which summing bytes takes longer than moving them.
    summing: f64,
    /// The measurement of each unit, if there is one.
    measured: Vec<Option<&'a MeasuredUnit>>,
    /// The same, measured with only as many ranks as can have a core for each thread.
    undisturbed: Vec<Option<&'a MeasuredUnit>>,
}

impl<'a> Costs<'a> {
    /// The costs of a plan on some hardware, with this many threads a rank.
    pub fn new(plan: &'a Plan<'a>, hardware: &'a Hardware, threads: usize) -> Self {
        let by = |ranks| plan.units.iter().map(|unit| find(plan, hardware, unit, threads, ranks)).collect();
        let (cores, ranks) = (hardware.node.devices, plan.config.mesh.ranks_per_node());
        let bandwidth = hardware.device.bandwidth;
        let summing = bandwidth / hardware.device.sums.unwrap_or(bandwidth);
        Self { plan, hardware, threads, summing, measured: by(ranks), undisturbed: by((cores / threads).max(1)) }
    }

    /// Whether the times of all units were measured, and none follows from rates.
    pub fn are_measured(&self) -> bool {
        self.measured.iter().all(Option::is_some)
    }

    /// Seconds of the work of an op of the rank at these coordinates.
    pub fn seconds(&self, at: Coordinates, op: Op) -> f64 {
        let start = self.hardware.device.op;
        match op {
            Op::Forward { unit, .. } | Op::Recompute { unit, .. } => {
                // A unit that leaves its forward to its backward starts no kernels here.
                let kernels = self.kernels(unit).forward * self.plan.units[unit].forward_passes();
                self.start(unit, kernels) + self.forward(unit)
            }
            Op::Backward { unit, .. } => self.start(unit, self.kernels(unit).backward) + self.backward(unit),
            Op::Update { unit, piece } => start + self.update(at, unit, piece).iter().sum::<f64>(),
            Op::Release { .. } | Op::Clear { .. } | Op::Claim { .. } => 0.0,
            _ if self.is_moved_by_link(op) => start,
            Op::Settle { .. } | Op::Combine { .. } | Op::Subtotal { .. } | Op::Fold { .. } => {
                start + self.moving(Work::of(self.plan, at, op).bytes) * self.summing
            }
            _ => start + self.moving(Work::of(self.plan, at, op).bytes),
        }
    }

    /// How many cores an op keeps busy on average: fewer than its threads if the threads wait for one another.
    pub fn cores(&self, at: Coordinates, op: Op) -> f64 {
        match op {
            Op::Forward { unit, .. } | Op::Recompute { unit, .. } => self.busy(unit, forward),
            Op::Backward { unit, .. } => self.busy(unit, backward),
            Op::Update { unit, piece } => {
                let [moving, computing] = self.update(at, unit, piece);
                let work = moving * self.busy(unit, update) + computing * self.threads as f64;
                if work > 0.0 { work / (moving + computing) } else { self.threads as f64 }
            }
            _ => self.threads as f64,
        }
    }

    fn busy(&self, unit: usize, time: TimeEach) -> f64 {
        let threads = self.threads as f64;
        match self.undisturbed[unit].map(time) {
            Some(OpTime { seconds, core_seconds }) if seconds > 0.0 => (core_seconds / seconds).clamp(1.0, threads),
            _ => threads,
        }
    }

    /// The measured time of a unit. If its threads took turns with other threads on the cores, the core time of the
    /// unit, divided by the number of cores that it keeps busy when undisturbed.
    fn measured(&self, unit: usize, time: TimeEach) -> Option<f64> {
        let measured = self.measured[unit]?;
        let took_turns = measured.ranks * measured.threads > self.hardware.node.devices;
        let OpTime { seconds, core_seconds } = time(measured);
        Some(if took_turns { core_seconds / self.busy(unit, time) } else { seconds })
    }

    /// Whether a link itself writes the bytes that the op would copy if memory were shared.
    fn is_moved_by_link(&self, op: Op) -> bool {
        let config = &self.plan.config;
        let is_converted = config.precision.params.bytes() != config.precision.compute.bytes();
        match (self.hardware.device.kind, op) {
            (Processor::Cpu, _) => false,
            (Processor::Gpu, Op::Wait { .. }) => !is_converted,
            (Processor::Gpu, op) => matches!(op, Op::Receive { .. } | Op::Spread { .. }),
        }
    }

    fn kernels(&self, unit: usize) -> PassKernels {
        kernels(&self.plan.units[unit])
    }

    fn rates(&self) -> Rates<'a> {
        Rates { config: &self.plan.config, hardware: self.hardware, threads: self.threads }
    }

    /// Seconds to start an op of a unit: on a GPU, to start each of its kernels, unless its time was measured.
    fn start(&self, unit: usize, kernels: usize) -> f64 {
        let device = &self.hardware.device;
        match device.kind {
            Processor::Gpu if self.measured[unit].is_none() => device.op * kernels as f64,
            _ => device.op,
        }
    }

    fn moving(&self, bytes: usize) -> f64 {
        self.rates().moving(bytes)
    }

    fn forward(&self, unit: usize) -> f64 {
        if let Some(measured) = self.measured(unit, forward) {
            return measured * self.plan.config.tokens() as f64;
        }
        self.rates().forward(&self.plan.units[unit])
    }

    fn backward(&self, unit: usize) -> f64 {
        if let Some(measured) = self.measured(unit, backward) {
            return measured * self.plan.config.tokens() as f64;
        }
        self.rates().backward(&self.plan.units[unit])
    }

    /// The measured time is AdamW's pass over memory. Products that make matrices orthogonal are added to it, on all
    /// threads.
    fn update(&self, at: Coordinates, unit: usize, piece: Option<Piece>) -> [f64; 2] {
        let Work { operations, bytes } = Work::of(self.plan, at, Op::Update { unit, piece });
        if self.plan.config.updates_on_host() {
            let rate = self.hardware.host_updates_of(self.plan.config.mesh.ranks_per_node());
            let rate = rate.expect("a rate, without which nothing is simulated");
            return [bytes as f64 / rate, 0.0];
        }
        let moving = match self.measured(unit, update).filter(|&measured| measured > 0.0) {
            Some(measured) => {
                let places = self.plan.places(at);
                let len = piece.map_or(places.owned(unit).len, |piece| places.piece(unit, piece.index).len);
                measured * len.min(self.plan.units[unit].params) as f64
            }
            None => self.moving(bytes),
        };
        [moving, self.rates().computing(operations, 0)]
    }
}

/// The costs of units that follow from rates alone, without a plan.
#[derive(Clone, Copy)]
pub(super) struct Rates<'a> {
    pub config: &'a Config,
    pub hardware: &'a Hardware,
    /// Threads of a rank.
    pub threads: usize,
}

impl Rates<'_> {
    /// Seconds of moving bytes. A GPU's bandwidth is that of its whole memory; a processor's is a core's share.
    pub fn moving(&self, bytes: usize) -> f64 {
        bytes as f64 / (self.hardware.device.bandwidth * self.threads as f64)
    }

    fn computing(&self, operations: usize, attending: usize) -> f64 {
        let compute = self.config.precision.compute;
        self.hardware.computing_s(compute, operations as f64, attending as f64) / self.threads as f64
    }

    /// Seconds of this many passes through the operations of a unit.
    fn passes(&self, unit: &Unit, passes: usize) -> f64 {
        self.computing(passes * unit.operations, passes * unit.attending)
    }

    /// Matrix products, and the bytes between them that a unit reads, saves and outputs.
    pub fn forward(&self, unit: &Unit) -> f64 {
        let bytes = if unit.losses_in_backward { 0 } else { touched(self.config, unit) };
        self.passes(unit, unit.forward_passes()) + self.moving(bytes)
    }

    /// The products, twice the bytes of a forward pass, and the gradients, which are summed in f32.
    pub fn backward(&self, unit: &Unit) -> f64 {
        let bytes = 2 * touched(self.config, unit) + unit.takes * size_of::<f32>();
        self.passes(unit, unit.backward_passes()) + self.moving(bytes)
    }

    /// Seconds that a forward op of a GPU takes, with the start of its kernels.
    pub fn forward_op(&self, unit: &Unit) -> f64 {
        let kernels = kernels(unit).forward * unit.forward_passes();
        self.hardware.device.op * kernels as f64 + self.forward(unit)
    }

    /// The same for a backward op.
    pub fn backward_op(&self, unit: &Unit) -> f64 {
        self.hardware.device.op * kernels(unit).backward as f64 + self.backward(unit)
    }
}

fn kernels(unit: &Unit) -> PassKernels {
    if unit.attending > 0 { LAYER_KERNELS } else { OTHER_KERNELS }
}

/// The time for each token of a micro-batch, because measured times are assumed to be proportional to tokens; or for
/// each parameter of an update.
type TimeEach = fn(&MeasuredUnit) -> OpTime;

fn forward(measured: &MeasuredUnit) -> OpTime {
    each(measured.forward, measured.tokens)
}

fn backward(measured: &MeasuredUnit) -> OpTime {
    each(measured.backward, measured.tokens)
}

fn update(measured: &MeasuredUnit) -> OpTime {
    each(measured.update, measured.params.max(1))
}

fn each(time: OpTime, number: usize) -> OpTime {
    let number = number as f64;
    OpTime { seconds: time.seconds / number, core_seconds: time.core_seconds / number }
}

/// Bytes that a forward pass touches: parameters and input once; saved values and output twice, as they are written
/// once and read once.
fn touched(config: &Config, unit: &Unit) -> usize {
    unit.takes * config.precision.compute.bytes() + unit.input_bytes + 2 * (unit.saved_bytes + unit.output_bytes)
}

/// The measurement of a unit; if there are several, that with the nearest number of ranks, and then of tokens.
fn find<'a>(
    plan: &Plan,
    hardware: &'a Hardware,
    unit: &Unit,
    threads: usize,
    ranks: usize,
) -> Option<&'a MeasuredUnit> {
    let tokens = plan.config.tokens();
    let of_unit = hardware.measured.iter().filter(|it| {
        let of_model = it.model == plan.model && it.field == unit.field && it.position == unit.position;
        of_model && it.params == unit.params && it.compute == plan.config.precision.compute && it.threads == threads
    });
    of_unit.min_by_key(|it| (it.ranks.abs_diff(ranks), it.tokens.abs_diff(tokens)))
}
