//! Models to plan: random ones, and makers of small ones with chosen sizes. Never knows how they are planned.

use proptest::prelude::*;
use zero_plan::{
    Axis, Config, DeviceKind, Mesh, Offload, Often, OptimizerKind, Order, OrthogonalCost, PlanBuf, Precision,
    Recompute, Split, TierKind, TransportKind, Unit, UpdateTime, Width,
};

/// A model and a configuration of it.
#[derive(Clone, Debug)]
pub struct Model {
    pub config: Config,
    pub units: Vec<Unit>,
}

impl Model {
    /// A model whose units have `params`; the last shares the parameters of unit `tied` instead, if that is given. Its
    /// inputs are given in f32.
    pub fn new(config: Config, params: &[usize], tied: Option<usize>) -> Self {
        let mut units: Vec<Unit> = params.iter().enumerate().map(|(i, &params)| unit(i, params)).collect();
        if let Some(owner) = tied {
            tie_last(&mut units, owner, params[owner]);
        }
        if config.precision.compute.is_narrow() {
            units[0].given_bytes = 2 * units[0].input_bytes;
        }
        Self { config, units }
    }

    /// The same with layers that cache, so that it decodes: every second unit except the head, with caches that take
    /// more than activations.
    pub fn caching(mut self) -> Self {
        let head = self.units.len() - 1;
        self.units[..head].iter_mut().skip(1).step_by(2).for_each(|unit| unit.cache_bytes = 300 + unit.position);
        self
    }

    /// The same on devices whose ops have streams.
    pub fn on_gpus(mut self, transport: TransportKind) -> Self {
        (self.config.device, self.config.transport) = (DeviceKind::Cuda, transport);
        self
    }

    /// The same on processors of several hosts.
    pub fn on_hosts(mut self, nodes: usize) -> Self {
        self.config.mesh.nodes = nodes;
        self.config.transport = TransportKind::Cluster;
        self
    }

    /// The same with its optimizer states on disk, and with its sums and, if `all`, its parameters where specs may ask for it.
    pub fn on_disk(mut self, prefetch: usize, all: bool) -> Self {
        let last = self.units.len() - 1;
        self.config = Config {
            optimizer: OptimizerKind::AdamW,
            snapshot: false,
            offload: Offload { prefetch, ..ON_DISK },
            ..self.config
        };
        let is_tied = self.units[last].source != last;
        let sums = Config { offload: Offload { gradients: TierKind::Disk, ..self.config.offload }, ..self.config };
        if sums.can_offload() && !is_tied {
            self.config = sums;
        }
        let shards = Config { offload: Offload { parameters: TierKind::Disk, ..self.config.offload }, ..self.config };
        let is_mirrored = is_tied && shards.mesh.pipeline > 1;
        if all && shards.can_offload() && !is_mirrored {
            self.config = shards;
        }
        if all && self.config.chunks() == 1 && prefetch + 3 < self.units.len() {
            self.config.order = Order::OneFOneB;
            self.config.offload.activations = TierKind::Disk;
        }
        self
    }

    pub fn plan(&self) -> PlanBuf {
        PlanBuf::new("Random", self.config, &self.units)
    }
}

/// A unit with its own parameters. Its field says whether its number is even, so that one of the two fields can be
/// recomputed. All units except the first have matrices that Muon makes orthogonal.
fn unit(source: usize, params: usize) -> Unit {
    let field = ["even", "odd"][source % 2];
    Unit {
        field,
        position: source,
        params,
        takes: params,
        source,
        // Saved values of the first units fit one line, those of others take two.
        saved_bytes: 61 + source,
        workspace_bytes: source,
        input_bytes: 21,
        output_bytes: 21,
        targets_bytes: 25,
        operations: 7,
        matrices: if source > 0 { matrices(70 + source) } else { OrthogonalCost::NONE },
        ..Unit::NONE
    }
}

fn matrices(room_bytes: usize) -> OrthogonalCost {
    OrthogonalCost { room_bytes, operations: 9, operations_max: 5 }
}

fn tie_last(units: &mut [Unit], owner: usize, takes: usize) {
    let last = units.last_mut().expect("a model has units");
    *last = Unit { params: 0, takes, source: owner, ..*last };
}

/// Two ranks along `zero`, one micro-batch of six tokens, and every unit in its own bucket.
pub fn config(stage: u8) -> Config {
    Config {
        mesh: Mesh::of_zero(2),
        stage,
        prefetch: 1,
        bucket_bytes: 1,
        sequences: 2,
        length: 3,
        transport: TransportKind::Local,
        ..Config::PLAIN
    }
}

pub fn mesh(pipeline: usize, zero: usize, replica: usize) -> Mesh {
    Mesh { pipeline, replica, ..Mesh::of_zero(zero) }
}

/// Narrow parameters, gradients, or both.
pub fn precision(params: Width, reduce: Width) -> Precision {
    Precision { params, reduce, ..Precision::default() }
}

/// Small models that together have everything that schedules can have: every stage, transport, order and axis, buckets
/// of one and of several units, matrices that are made orthogonal, ties within a pipeline stage and across, units
/// without parameters at either end and in the middle, slots for all units or for few, gradients or parameters that are
/// held for a step, recomputed units, and narrow parameters or activations.
pub fn small_models() -> Vec<Model> {
    let mut models = Vec::new();
    for stage in 0..=3 {
        let base = config(stage);
        let mut add = |config: Config, params: &[usize], tied| models.push(Model::new(config, params, tied));
        let narrow = precision(Width::BF16, Width::F32);
        let computed = Precision { compute: Width::BF16, ..Precision::default() };
        let all_narrow = Precision { compute: Width::BF16, ..precision(Width::BF16, Width::BF16) };
        let interleaved = Order::Interleaved { chunks: 2 };
        add(base, &[40, 7, 90], None);
        add(Config { micro_batches: 2, prefetch: 0, bucket_bytes: 300, ..base }, &[9, 70, 20, 0], Some(1));
        add(Config { micro_batches: 2, prefetch: 2, transport: TransportKind::Shm, ..base }, &[0, 50, 0, 33, 0], None);
        add(Config { micro_batches: 3, prefetch: 7, ..base }, &[5, 6, 0], Some(1));
        add(Config { recompute: Recompute::Fields(&["odd"]), precision: narrow, ..base }, &[8, 9, 10], Some(0));
        add(Config { recompute: Recompute::Fields(&["odd"]), bucket_bytes: usize::MAX, ..base }, &[8, 9, 10], None);
        add(Config { micro_batches: 2, precision: computed, ..base }, &[8, 70, 0], Some(0));
        add(Config { transport: TransportKind::Shm, precision: computed, ..base }, &[8, 9, 10], None);
        add(Config { transport: TransportKind::Shm, precision: all_narrow, ..base }, &[8, 9, 0], Some(1));
        add(Config { mesh: mesh(1, 1, 1), order: Order::GPipe, micro_batches: 2, ..base }, &[8, 9, 0], Some(1));
        add(Config { mesh: mesh(1, 2, 2), micro_batches: 2, ..base }, &[7, 90, 40], None);
        add(Config { mesh: mesh(1, 1, 2), ..base }, &[40, 7, 0], Some(0));
        add(Config { micro_batches: 2, gather: Often::PerStep, reduce: Often::PerStep, ..base }, &[4, 7, 9], None);
        let piped = Config { mesh: mesh(2, 1, 1), micro_batches: 3, ..base };
        add(Config { order: Order::GPipe, ..piped }, &[4, 7, 0, 9], None);
        add(Config { recompute: Recompute::Every(1), ..piped }, &[4, 7, 9, 0], Some(0));
        add(Config { mesh: mesh(2, 2, 1), gather: Often::PerStep, ..piped }, &[4, 7, 0], Some(1));
        add(Config { mesh: mesh(2, 1, 2), micro_batches: 2, reduce: Often::PerStep, ..piped }, &[4, 7, 9], Some(0));
        add(Config { mesh: mesh(2, 1, 2), precision: narrow, ..piped }, &[4, 7, 9], None);
        add(Config { gather: Often::PerStep, precision: computed, ..piped }, &[4, 7, 0], Some(0));
        add(Config { order: interleaved, micro_batches: 2, ..piped }, &[4, 7, 9, 8], Some(0));
        let muon = Config { optimizer: OptimizerKind::Muon, ..base };
        add(muon, &[40, 7, 90, 12], None);
        add(Config { mesh: mesh(2, 2, 1), micro_batches: 2, precision: all_narrow, ..muon }, &[4, 7, 0, 9], Some(1));
        let held = Config { micro_batches: 2, reduce: Often::PerStep, bucket_bytes: 300, ..muon };
        add(Config { mesh: mesh(1, 2, 2), transport: TransportKind::Shm, ..held }, &[9, 70, 20, 30], None);
    }
    models
}

/// Keeps moments and master copies on disk, in pieces of one block of the narrowest numbers.
pub const ON_DISK: Offload = Offload { optimizer: TierKind::Disk, prefetch: 1, piece_bytes: 8192, ..Offload::NONE };

/// Small models whose optimizer states are on disk: units of several pieces and of one, with and without master copies,
/// wide and narrow moments, at every stage, along every axis, and with more slots than pieces.
pub fn offloaded_models() -> Vec<Model> {
    let mut models = Vec::new();
    for stage in 0..=3 {
        let base = Config { offload: ON_DISK, ..config(stage) };
        let ahead = |prefetch| Offload { prefetch, ..ON_DISK };
        let mut add = |config: Config, params: &[usize], tied| models.push(Model::new(config, params, tied));
        let copied = precision(Width::BF16, Width::F32);
        let narrow = Precision { master: Width::BF16, moments: Width::BF16, ..precision(Width::BF16, Width::BF16) };
        add(base, &[9000, 7, 5000], None);
        add(Config { offload: ahead(0), transport: TransportKind::Shm, ..base }, &[0, 9000, 40, 0], Some(1));
        add(Config { offload: ahead(16), micro_batches: 2, precision: copied, ..base }, &[4200, 70, 0], Some(0));
        add(Config { mesh: mesh(1, 1, 2), precision: narrow, ..base }, &[4200, 9000], None);
        let piped = Config { mesh: mesh(2, 2, 1), micro_batches: 2, bucket_bytes: usize::MAX, ..base };
        add(Config { precision: copied, ..piped }, &[9000, 5000, 7, 0], Some(0));
        add(Config { order: Order::Interleaved { chunks: 2 }, ..piped }, &[9000, 5000, 7, 4200, 90], None);
    }
    models
}

/// Small models whose shards of parameters are on disk, alone and beside other states.
pub fn models_with_offloaded_parameters() -> Vec<Model> {
    let mut models = Vec::new();
    for (optimizer, gradients) in
        [(TierKind::Device, TierKind::Device), (TierKind::Disk, TierKind::Device), (TierKind::Disk, TierKind::Disk)]
    {
        let offload = Offload { optimizer, gradients, parameters: TierKind::Disk, ..ON_DISK };
        let is_untied = gradients == TierKind::Disk;
        let base = Config { offload, bucket_bytes: 300, prefetch: 1, ..config(3) };
        let mut add = |config: Config, params: &[usize], tied: Option<usize>| {
            models.push(Model::new(config, params, tied.filter(|_| !is_untied)));
        };
        let narrow = Precision { compute: Width::BF16, moments: Width::BF16, ..precision(Width::BF16, Width::F32) };
        add(base, &[9000, 7, 5000, 0, 90], None);
        add(Config { prefetch: 0, transport: TransportKind::Shm, ..base }, &[0, 9000, 40, 70, 0], Some(1));
        add(Config { mesh: mesh(1, 1, 1), micro_batches: 2, ..base }, &[9000, 7], None);
        add(Config { prefetch: 3, micro_batches: 2, precision: narrow, ..base }, &[4200, 7, 90, 80, 70], None);
        add(
            Config { mesh: mesh(1, 2, 2), transport: TransportKind::Shm, micro_batches: 2, ..base },
            &[4200, 70, 80, 0],
            Some(0),
        );
        let piped = Config { mesh: mesh(2, 2, 1), micro_batches: 2, ..base };
        add(piped, &[9000, 5000, 7, 90], None);
        add(Config { order: Order::Interleaved { chunks: 2 }, ..piped }, &[9000, 5000, 7, 4200, 90], None);
        // Ranks along `zero` share a host.
        let hosts = Mesh { nodes: 2, order: [Axis::Zero, Axis::Pipeline, Axis::Replica], ..mesh(2, 2, 1) };
        add(Config { mesh: hosts, transport: TransportKind::Cluster, ..piped }, &[9000, 5000, 7, 90], None);
    }
    models
}

/// Small models whose activations are on disk, alone and beside all other states: units that are recomputed and not, of
/// one block and of two, several micro-batches, and one place more than units that travel.
pub fn models_with_offloaded_activations() -> Vec<Model> {
    let mut models = Vec::new();
    let alone = Offload { activations: TierKind::Disk, piece_bytes: 8192, ..Offload::NONE };
    for stage in 0..=3 {
        let sums = if stage >= 2 { TierKind::Disk } else { TierKind::Device };
        let shards = if stage == 3 { TierKind::Disk } else { TierKind::Device };
        let all = Offload { optimizer: TierKind::Disk, gradients: sums, parameters: shards, prefetch: 1, ..alone };
        let base = Config { offload: alone, bucket_bytes: 300, prefetch: usize::from(stage == 3), ..config(stage) };
        let mut add = |config: Config, params: &[usize], tied| models.push(Model::new(config, params, tied));
        let params = [40, 7, 0, 90, 60, 5, 30];
        add(base, &params, None);
        add(Config { micro_batches: 3, ..base }, &params, Some(0));
        add(Config { recompute: Recompute::Every(1), micro_batches: 2, ..base }, &params, Some(3));
        let ahead = |prefetch| Offload { prefetch, ..alone };
        add(Config { recompute: Recompute::Every(2), offload: ahead(3), ..base }, &params, None);
        add(Config { recompute: Recompute::Fields(&["odd"]), offload: ahead(1), ..base }, &params, None);
        let shared = Config { transport: TransportKind::Shm, mesh: mesh(1, 2, 2), offload: all, ..base };
        add(Config { micro_batches: 2, ..shared }, &params, None);
        add(Config { recompute: Recompute::Every(1), mesh: mesh(1, 1, 1), ..shared }, &params, None);
    }
    for model in &mut models {
        let first = model.units.iter_mut().step_by(2);
        first.for_each(|unit| unit.saved_bytes += 4096);
    }
    models
}

/// The same, with their sums of gradients on disk too, or only these: buckets of one unit and of several, more buckets than
/// slots and fewer, sums of several micro-batches, and all axes.
pub fn models_with_offloaded_sums() -> Vec<Model> {
    let mut models = Vec::new();
    for stage in [2, 3] {
        let both = Offload { gradients: TierKind::Disk, ..ON_DISK };
        let base = Config { offload: both, bucket_bytes: 300, ..config(stage) };
        let mut add = |config: Config, params: &[usize]| models.push(Model::new(config, params, None));
        let copied = precision(Width::BF16, Width::F32);
        let narrow = Precision { reduce: Width::BF16, moments: Width::BF16, ..copied };
        let sums = Offload { optimizer: TierKind::Device, prefetch: 0, ..both };
        add(base, &[9000, 7, 5000, 0, 90]);
        add(Config { offload: sums, micro_batches: 3, precision: copied, ..base }, &[4200, 7, 90, 80, 70, 60]);
        add(Config { micro_batches: 3, bucket_bytes: usize::MAX, ..base }, &[4200, 7, 90]);
        add(
            Config { mesh: mesh(1, 2, 2), transport: TransportKind::Shm, precision: narrow, ..base },
            &[4200, 7, 90, 80],
        );
        let many: Vec<usize> = (0..9).map(|unit| 60 + 500 * unit).collect();
        add(Config { mesh: mesh(1, 2, 2), micro_batches: 3, ..base }, &many);
        // Replicas share hosts.
        for (pipeline, zero, replica) in [(1, 4, 1), (1, 2, 2), (2, 2, 1), (2, 4, 1), (1, 4, 2)] {
            let order = [Axis::Replica, Axis::Zero, Axis::Pipeline];
            let mesh = Mesh { nodes: 2, order, ..mesh(pipeline, zero, replica) };
            add(Config { mesh, transport: TransportKind::Cluster, micro_batches: 2, ..base }, &many);
        }
        let piped = Config { mesh: mesh(2, 2, 1), micro_batches: 3, ..base };
        add(piped, &many);
        add(Config { mesh: mesh(2, 2, 2), ..piped }, &many);
        // A pipeline stage whose only bucket has several units, and no parameters.
        add(Config { mesh: mesh(3, 2, 1), split: Split::Units(&[1, 2, 1]), ..piped }, &[800, 0, 0, 1]);
        add(Config { order: Order::Interleaved { chunks: 2 }, micro_batches: 4, ..piped }, &many);
        add(
            Config { order: Order::Interleaved { chunks: 2 }, micro_batches: 4, bucket_bytes: usize::MAX, ..piped },
            &many,
        );
    }
    models
}

/// Those of these models whose ranks may update parameters at their use, which they do here.
pub fn at_use(models: impl IntoIterator<Item = Model>) -> Vec<Model> {
    let may = |model: &Model| {
        let config = &model.config;
        let is_alone = config.mesh.pipeline == 1 && config.mesh.nodes == 1 && config.device == DeviceKind::Cpu;
        config.stage == 3 && !config.holds_parameters() && is_alone
    };
    let mut models: Vec<Model> = models.into_iter().filter(may).collect();
    models.iter_mut().for_each(|model| model.config.offload.update = UpdateTime::AtUse);
    models
}

/// Any model of at most `ranks_max` ranks, under any configuration.
pub fn models(ranks_max: usize) -> impl Strategy<Value = Model> {
    configs(ranks_max).prop_flat_map(|config| {
        let chunks = config.chunks();
        let tied = prop::option::of((any::<prop::sample::Index>(), 0..=100_usize));
        let given = prop_oneof![Just(0), 1..=400_usize];
        (Just(config), prop::collection::vec(sizes(), chunks..=chunks + 6), given, tied, splits()).prop_map(
            |(config, sizes, given, tied, split)| {
                let mut units = chain(&sizes, tied);
                units[0].given_bytes = given;
                let split = split.of(units.len(), config.chunks());
                Model { config: Config { split, ..config }, units }
            },
        )
    })
}

/// Any model, and the same units under any other configuration.
pub fn pairs(ranks_max: usize) -> impl Strategy<Value = (Model, Model)> {
    (models(ranks_max), configs(ranks_max), splits()).prop_map(|(model, mut config, split)| {
        if config.chunks() > model.units.len() {
            config = Config { mesh: Mesh { pipeline: 1, ..config.mesh }, order: Order::OneFOneB, ..config };
        }
        let config = Config { split: split.of(model.units.len(), config.chunks()), ..config };
        let units = model.units.clone();
        (model, Model { config, units })
    })
}

const AXES: [[Axis; 3]; 3] =
    [Axis::ALL, [Axis::Pipeline, Axis::Zero, Axis::Replica], [Axis::Replica, Axis::Pipeline, Axis::Zero]];

const ORDERS: [Order; 4] =
    [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 2 }, Order::Interleaved { chunks: 3 }];

const RECOMPUTES: [Recompute; 5] =
    [Recompute::None, Recompute::Every(1), Recompute::Every(2), Recompute::Every(3), Recompute::Fields(&["odd"])];

fn meshes(ranks_max: usize) -> impl Strategy<Value = Mesh> {
    let any = (1..=4_usize, 1..=4_usize, 1..=3_usize, prop::sample::select(&AXES[..]));
    any.prop_map(move |(pipeline, zero, replica, order)| {
        let mut mesh = Mesh { order, ..mesh(pipeline, zero, replica) };
        while mesh.ranks() > ranks_max {
            let longest = if mesh.zero >= mesh.pipeline { &mut mesh.zero } else { &mut mesh.pipeline };
            *if *longest > 1 { longest } else { &mut mesh.replica } -= 1;
        }
        mesh
    })
}

fn configs(ranks_max: usize) -> impl Strategy<Value = Config> {
    let often = || prop::sample::select(&[Often::PerMicroBatch, Often::PerStep][..]);
    let width = || prop::sample::select(&[Width::F32, Width::BF16][..]);
    let bucket_bytes = prop_oneof![1..=200_usize, 1..=60_000_usize, Just(usize::MAX)];
    let order = (meshes(ranks_max), prop::sample::select(&ORDERS[..]), 1..=6_usize);
    let sharding =
        (0..=3_u8, 0..=15_usize, bucket_bytes, prop::sample::select(&[TransportKind::Local, TransportKind::Shm][..]));
    let optimizer = prop::sample::select(&[OptimizerKind::AdamW, OptimizerKind::Muon][..]);
    let widths = [width(), width(), width(), width(), width()];
    let rest = (often(), often(), prop::sample::select(&RECOMPUTES[..]), widths, optimizer);
    (order, sharding, rest, 1..=3_usize, 1..=7_usize).prop_map(|(order, sharding, rest, sequences, length)| {
        let (mesh, order, micro_batches) = order;
        let (stage, prefetch, bucket_bytes, transport) = sharding;
        let (gather, reduce, recompute, [compute, params, grads, master, moments], optimizer) = rest;
        // Interleaved pipeline stages work on as many micro-batches at a time as there are pipeline stages.
        let is_interleaved = matches!(order, Order::Interleaved { .. });
        let micro_batches = if is_interleaved { micro_batches.div_ceil(2) * mesh.pipeline } else { micro_batches };
        let precision = Precision { compute, params, reduce: grads, master, moments };
        Config {
            mesh,
            stage,
            prefetch,
            bucket_bytes,
            gather,
            reduce,
            order,
            recompute,
            precision,
            sequences,
            length,
            micro_batches,
            transport,
            optimizer,
            ..Config::PLAIN
        }
    })
}

/// How units are placed, before their number is known.
#[derive(Clone, Copy, Debug)]
enum Placing {
    Balanced,
    /// Evenly, if that is possible.
    Even,
    /// One unit for each chunk, and the rest for this one.
    Lopsided(prop::sample::Index),
}

fn splits() -> impl Strategy<Value = Placing> {
    prop_oneof![Just(Placing::Balanced), Just(Placing::Even), any::<prop::sample::Index>().prop_map(Placing::Lopsided),]
}

impl Placing {
    fn of(self, units: usize, chunks: usize) -> Split {
        match self {
            Self::Even if units.is_multiple_of(chunks) => Split::Even,
            Self::Lopsided(chunk) => {
                let mut counts = vec![1; chunks];
                counts[chunk.index(chunks)] += units - chunks;
                // A spec's split lives in the binary; the few of a test live until it ends.
                Split::Units(counts.leak())
            }
            Self::Balanced | Self::Even => Split::Balanced,
        }
    }
}

/// Parameters, operations, and bytes of saved values, scratch and output of a unit. Many units have few parameters or
/// none, because these are the special cases.
fn sizes() -> impl Strategy<Value = [usize; 5]> {
    let params = prop_oneof![2 => Just(0_usize), 2 => 1..=40_usize, 4 => 1..=5_000_usize];
    (params, 0..=1000_usize, 0..=360_usize, 0..=360_usize, 1..=360_usize).prop_map(<[usize; 5]>::from)
}

/// Units of which each takes the output of the one before. `tied` picks the owner of the last unit's parameters, and
/// how many percent of them the last unit takes.
fn chain(sizes: &[[usize; 5]], tied: Option<(prop::sample::Index, usize)>) -> Vec<Unit> {
    let mut input_bytes = 45;
    let mut units = Vec::new();
    for (i, &[params, operations, saved_bytes, workspace_bytes, output_bytes]) in sizes.iter().enumerate() {
        let targets_bytes = 1 + operations % 200;
        let cache_bytes = (operations % 4).saturating_sub(2) * 700;
        let activations = Unit { saved_bytes, input_bytes, output_bytes, targets_bytes, ..unit(i, params) };
        let matrices = if operations % 3 > 0 { matrices(1 + operations) } else { OrthogonalCost::NONE };
        units.push(Unit { workspace_bytes, operations, cache_bytes, matrices, ..activations });
        input_bytes = output_bytes;
    }
    // While a sequence is decoded, a head does not run, but is asked for its prediction.
    units.last_mut().expect("a unit").cache_bytes = 0;
    if let (Some((owner, percent)), [_, _, ..]) = (tied, units.as_slice()) {
        let owner = owner.index(units.len() - 1);
        let takes = units[owner].params * percent / 100;
        tie_last(&mut units, owner, takes);
    }
    units
}
