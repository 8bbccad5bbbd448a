//! Least: a lower bound of a step's time, computed from the sizes of units without a plan. It is never above what a
//! simulation returns. Never simulates, and knows no order of ops beyond what every plan of a configuration has.
//!
//! A step is at least as long as each of these chains on each pipeline stage, whose parts follow one another in every
//! plan: the work of the stages before it on the first micro-batch, all of its own work, and then either the last sums of
//! its gradients or the work of the stages before it on the last micro-batch; and everything that its busiest link
//! carries. After that all ranks agree, and update. Work that can overlap is counted in one chain only. Parameters are
//! counted without padding, and ties only where their owner lies.

use zero_plan::{Axis, Chunk, Config, Coordinates, Mesh, Split, Unit, fill_chunks};

use super::cost::Rates;
use super::links::{Route, Routes};
use super::timeline::LinkKind;
use crate::hardware::{Hardware, Processor};

/// What a unit costs, in seconds, and its parameters.
#[derive(Clone, Copy)]
struct UnitCost {
    forward_s: f64,
    /// A backward pass, with the forward pass that is repeated for it.
    backward_s: f64,
    params: f64,
}

/// A lower bound of the seconds that a simulated step of any plan of a configuration takes; None for hardware whose ranks
/// share processors or whose units were measured, and if there is no such plan. Prefetch and the size of buckets do not
/// change it.
pub fn least_s(config: &Config, units: &[Unit], hardware: &Hardware) -> Option<f64> {
    let is_split = config.split != Split::Even || units.len().is_multiple_of(config.chunks());
    if config.chunks() > units.len() || !is_split {
        return None;
    }
    Some(LeastStep::new(config, units, hardware)?.seconds(config))
}

/// The units of a model, with their costs.
struct LeastStep<'a> {
    hardware: &'a Hardware,
    units: &'a [Unit],
    costs: Vec<UnitCost>,
}

/// Seconds that transfers occupy the two kinds of links, those of the node and the network.
#[derive(Clone, Copy, Default)]
struct LinkSeconds([f64; 2]);

impl LinkSeconds {
    fn add(&mut self, route: &Route, bytes: f64) {
        match route.link {
            LinkKind::Memory | LinkKind::Disk | LinkKind::Host => {}
            LinkKind::Node => self.0[0] += bytes / route.bandwidth,
            LinkKind::Network => self.0[1] += bytes / route.bandwidth,
        }
    }

    fn most(self) -> f64 {
        self.0[0].max(self.0[1])
    }
}

/// The routes of a pipeline stage, and by which each exchange goes.
struct StageRoutes {
    /// The routes and the share of a buffer that a rank sends, for gathers and spreads along `zero`.
    gather: (Route, f64),
    /// The same for sums along `zero`.
    reduce: (Route, f64),
    /// For sums along `replica`, of a shard.
    combine: (Route, f64),
    /// For spreads along `replica`, of a shard.
    spread: (Route, f64),
}

impl StageRoutes {
    fn new(config: &Config, routes: &Routes, pipeline: usize) -> Self {
        let mesh = &config.mesh;
        let whole = |axis: Axis| {
            let ranks = mesh.len(axis) as f64;
            (routes.collective(axis, pipeline), (ranks - 1.0) / ranks)
        };
        if config.sends_messages() {
            // Hosts divide what they send in ways that depend on the axis. Such transfers are not counted.
            let none = (Route::MEMORY, 0.0);
            return Self { gather: none, reduce: none, combine: none, spread: none };
        }
        // Sums go to ranks of other hosts directly, if there are any.
        let sum = |axis: Axis| {
            let at = |i| Coordinates { zero: 0, replica: 0, pipeline }.with(axis, i);
            let ranks = mesh.len(axis);
            let node = |i| mesh.node(mesh.rank(at(i)));
            let far = (0..ranks).filter(|&i| node(i) != node(0)).count();
            if config.spans_hosts() && far > 0 {
                (routes.between_hosts(ranks), far as f64 / ranks as f64)
            } else {
                whole(axis)
            }
        };
        Self {
            gather: whole(Axis::Zero),
            reduce: sum(Axis::Zero),
            combine: sum(Axis::Replica),
            spread: whole(Axis::Replica),
        }
    }
}

/// Seconds of a transfer alone.
fn alone((route, share): &(Route, f64), bytes: f64) -> f64 {
    if *share > 0.0 && bytes > 0.0 { share * bytes / route.bandwidth + route.latency_s() } else { 0.0 }
}

/// A pipeline stage: what the chains add up.
#[derive(Clone, Copy, Default)]
struct StageSeconds {
    /// All forward and backward passes of a step, and the starts of its gathers.
    work_s: f64,
    /// The sums of gradients.
    sums_s: f64,
    /// Passes of its first chunk, for one micro-batch, and the gather that its first forward waits for.
    first_forward_s: f64,
    first_backward_s: f64,
    first_gather_s: f64,
    /// From its last backward to the end of the last sums of its gradients.
    last_sums_s: f64,
    /// Its links before the agreement, from the first possible transfer on.
    links_s: f64,
    /// Updates, and what gathers after them add.
    update_s: f64,
}

impl<'a> LeastStep<'a> {
    fn new(config: &Config, units: &'a [Unit], hardware: &'a Hardware) -> Option<Self> {
        if hardware.device.kind != Processor::Gpu || !hardware.measured.is_empty() {
            return None;
        }
        let rates = Rates { config, hardware, threads: 1 };
        let costs = units.iter().enumerate().map(|(i, unit)| {
            let forward_s = rates.forward_op(unit);
            let again_s = if config.recomputes(units, i) { forward_s } else { 0.0 };
            UnitCost { forward_s, backward_s: again_s + rates.backward_op(unit), params: unit.params as f64 }
        });
        Some(Self { hardware, units, costs: costs.collect() })
    }

    fn seconds(&self, config: &Config) -> f64 {
        let mut chunks = vec![Chunk { first: 0, end: 0 }; config.chunks()];
        fill_chunks(config, self.units, &mut chunks);
        let routes = Routes::new(self.hardware, &config.mesh);
        let stages: Vec<StageSeconds> =
            (0..config.mesh.pipeline).map(|pipeline| self.stage(config, &routes, &chunks, pipeline)).collect();
        let (mut fill_s, mut drain_s, mut before_s, mut after_s) = (0.0, 0.0, 0.0f64, 0.0f64);
        for (pipeline, stage) in stages.iter().enumerate() {
            let work_s = fill_s + stage.first_gather_s + stage.work_s;
            // The last transfer may hide the sum of the bucket before.
            before_s = before_s.max(work_s + stage.sums_s.max(stage.last_sums_s));
            before_s = before_s.max(work_s + drain_s + stages[0].last_sums_s);
            before_s = before_s.max(fill_s + stage.links_s);
            after_s = after_s.max(stage.update_s);
            if pipeline + 1 < stages.len() {
                let end = chunks[pipeline].end;
                let bytes = [self.units[end - 1].output_bytes, self.units[end].input_bytes];
                let [there, back] = [(pipeline, pipeline + 1, bytes[0]), (pipeline + 1, pipeline, bytes[1])].map(
                    |(from, to, bytes)| {
                        let route = routes.parcel(from, to);
                        route.busy_s(bytes) + route.latency_s()
                    },
                );
                fill_s += stage.first_gather_s + stage.first_forward_s + there;
                drain_s += stage.first_backward_s + back;
            }
        }
        before_s + self.hardware.device.op + routes.agreement().latency_s() + after_s
    }

    fn stage(&self, config: &Config, routes: &Routes, chunks: &[Chunk], pipeline: usize) -> StageSeconds {
        let by = StageRoutes::new(config, routes, pipeline);
        let own = || chunks.iter().skip(pipeline).step_by(config.mesh.pipeline);
        let each = |chunk: &Chunk| self.costs[chunk.first..chunk.end].iter();
        let units = || own().flat_map(each);
        let (count, reductions) = (config.micro_batches as f64, config.reductions() as f64);
        let (forward_s, backward_s) =
            units().fold((0.0, 0.0), |(f, b), unit| (f + unit.forward_s, b + unit.backward_s));
        let params: f64 = units().map(|unit| unit.params).sum();
        let op = self.hardware.device.op;
        let mut stage = StageSeconds {
            work_s: count * (forward_s + backward_s),
            sums_s: reductions * self.sums_s(config, params),
            first_forward_s: each(&chunks[pipeline]).map(|unit| unit.forward_s).sum(),
            first_backward_s: each(&chunks[pipeline]).map(|unit| unit.backward_s).sum(),
            ..StageSeconds::default()
        };
        let (p, g) = (config.precision.params.bytes() as f64, config.precision.reduce.bytes() as f64);
        let Mesh { zero, replica, .. } = config.mesh;
        let mut links = LinkSeconds::default();
        let first = self.costs[chunks[pipeline].first].params;
        if config.shards_parameters() {
            let gathers = own().map(|chunk| self.gathers(config, chunk));
            let (gathered, ops) = gathers.fold((0.0, 0.0), |(a, b), (params, ops)| (a + params, b + ops));
            stage.first_gather_s = alone(&by.gather, first * p);
            links.add(&by.gather.0, by.gather.1 * gathered * p);
            stage.work_s += ops * 2.0 * op;
        }
        links.add(&by.reduce.0, reductions * by.reduce.1 * params * g);
        stage.last_sums_s = alone(&by.reduce, first * g);
        if replica > 1 {
            let shard = g / zero as f64;
            links.add(&by.combine.0, reductions * by.combine.1 * params * shard);
            links.add(&by.spread.0, by.spread.1 * params * shard);
            stage.last_sums_s += alone(&by.combine, first * shard) + alone(&by.spread, first * shard);
        }
        if !config.shards_optimizer() {
            links.add(&by.gather.0, by.gather.1 * params * g);
            stage.last_sums_s += alone(&by.gather, first * g);
        }
        // Without gathers, links are idle until the first micro-batch, or the last, is backward.
        let idle_s = match () {
            () if config.shards_parameters() => 0.0,
            () if config.holds_gradients() && config.chunks_per_rank() == 1 => {
                count * forward_s + (count - 1.0) * backward_s
            }
            () => stage.first_forward_s,
        };
        stage.links_s = idle_s + links.most();
        stage.update_s = self.update_s(config, units(), &by.gather);
        stage
    }

    /// Seconds of the ops that sum gradients of this many parameters once.
    fn sums_s(&self, config: &Config, params: f64) -> f64 {
        let Mesh { zero, replica, .. } = config.mesh;
        let device = &self.hardware.device;
        let g = config.precision.reduce.bytes() as f64;
        let sum = |ranks: usize| if ranks == 1 && config.reduces_in_place() { 0.0 } else { (ranks + 1) as f64 * g };
        if config.sends_messages() {
            return 0.0;
        }
        let mut bytes = params / zero as f64 * sum(zero);
        if replica > 1 {
            bytes += params / config.mesh.data_ranks() as f64 * sum(replica);
        }
        bytes / device.sums.unwrap_or(device.bandwidth)
    }

    /// The parameters that gathers of a chunk make whole in a step, and the number of gathers. A use of a unit at the end
    /// of a turn may be the first of the next turn too.
    fn gathers(&self, config: &Config, chunk: &Chunk) -> (f64, f64) {
        let mut held = (chunk.first..chunk.end).filter(|&i| self.costs[i].params > 0.0 && self.units[i].source == i);
        let count = config.micro_batches as f64;
        let (params, units) =
            held.clone().fold((0.0, 0.0), |(params, units), i| (params + self.costs[i].params, units + 1.0));
        let Some(first) = held.next() else { return (0.0, 0.0) };
        let last = held.next_back().unwrap_or(first);
        if config.holds_parameters() {
            return (params, units);
        }
        let ends = self.costs[first].params + self.costs[last].params;
        ((count * (2.0 * params - ends)).max(params), (count * (2.0 * units - 2.0)).max(units))
    }

    /// Seconds of updates on a pipeline stage, and of the gathers after them.
    fn update_s<'c>(&self, config: &Config, units: impl Iterator<Item = &'c UnitCost>, gather: &(Route, f64)) -> f64 {
        let precision = &config.precision;
        let (p, g, m) = (precision.params.bytes(), precision.reduce.bytes(), precision.moments.bytes());
        let stored = if precision.has_master_copy() { p + 2 * precision.master.bytes() } else { 2 * p };
        let share = if config.shards_optimizer() { config.mesh.zero as f64 } else { 1.0 };
        let device = &self.hardware.device;
        let (mut params, mut ops, mut last) = (0.0, 0.0, 0.0);
        for unit in units.filter(|unit| unit.params > 0.0) {
            (params, ops, last) = (params + unit.params, ops + device.op, unit.params);
        }
        let work_s = ops + params / share * (g + 4 * m + stored) as f64 / device.bandwidth;
        if !config.shards_optimizer() || config.shards_parameters() {
            return work_s;
        }
        (work_s + alone(gather, last * p as f64)).max(alone(gather, params * p as f64))
    }
}
