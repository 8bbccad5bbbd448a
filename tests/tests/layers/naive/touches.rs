//! Touches: in each op, the engine makes a device read and write exactly the planned bytes. Otherwise a proof of the plan could be
//! about unused places.
#![expect(unsafe_code, reason = "a transport is unsafe to implement")]

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use zero_core::arena::Arena;
use zero_core::model::{Model, Program};
use zero_core::view::{View, ViewMut};
use zero_core::watchdog::Watchdog;
use zero_plan::place::{Access, Place, Position, accesses};
use zero_plan::{
    Class, Config, Kind, Moved, Offload, Op, OptimizerKind, Pass, Plan, PlanBuf, Stream, TierKind, TransportKind,
};
use zero_ranks::transport::{Crossed, Lost, Transport, local};
use zero_runtime::device::Device;
use zero_runtime::prelude::*;
use zero_tests::naive::{Touch, note_touches, take_touches};
use zero_tests::specs::{NAMES, naive_program};
use zero_tests::tiny::{CONTEXT, DIM, TinyBlock, VOCAB};
use zero_tests::training::{HYPER, Start, noise, train_rank};

/// Passes every call on, and compares the bytes that each op of a step has touched with its places.
struct Touching<T> {
    inner: T,
    /// The arenas of all ranks, after they have been found.
    arenas: OnceCell<Stretches>,
    /// The number of compared ops.
    compared: usize,
}

/// Ranges of addresses, in order, with gaps between them.
struct Stretches(Vec<[usize; 2]>);

impl Stretches {
    fn of(all: impl Iterator<Item = [usize; 2]>) -> Self {
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        let mut joined: Vec<[usize; 2]> = Vec::new();
        for [start, end] in all {
            match joined.last_mut().filter(|[_, last]| *last >= start) {
                Some([_, last]) => *last = end.max(*last),
                None => joined.push([start, end]),
            }
        }
        Self(joined)
    }

    /// A range of `self` that is not in `other`.
    fn beyond(&self, other: &Self) -> Option<[usize; 2]> {
        let is_in = |&[start, end]: &[usize; 2]| other.0.iter().any(|&[first, last]| first <= start && end <= last);
        self.0.iter().copied().find(|stretch| !is_in(stretch))
    }
}

/// Whether an op touches all of its places in the plan. Ops that move and sum bytes do; layers leave padding alone.
fn touches_all(op: Op) -> bool {
    let sums = matches!(op, Op::Settle { .. } | Op::Combine { .. } | Op::Fold { .. } | Op::Agree);
    let moves = op.class() == Class::Tier || matches!(op, Op::Convert { .. } | Op::Receive { .. });
    sums || moves
}

impl<T> Touching<T> {
    fn new(inner: T) -> Self {
        Self { inner, arenas: OnceCell::new(), compared: 0 }
    }

    /// The addresses of a place.
    fn stretch<'p, D: Device>(&self, rank: usize, place: Place) -> [usize; 2]
    where
        T: Transport<'p, D>,
    {
        // SAFETY: only the start of the view is used, and never its contents.
        let start = unsafe { self.inner.peer(rank, place) }.address().addr();
        [start, start + place.len_bytes]
    }

    /// The arenas of all ranks, as far as this rank can reach them.
    fn arenas<'p, D: Device>(&self) -> Stretches
    where
        T: Transport<'p, D>,
    {
        let plan = self.inner.arena().plan();
        let own = self.inner.arena().rank();
        let regions = (0..plan.config.mesh.ranks()).flat_map(|rank| {
            let places = plan.places(plan.config.mesh.coordinates(rank));
            Kind::ALL.into_iter().map(move |region| (rank, region, places))
        });
        Stretches::of(regions.filter_map(|(rank, region, places)| {
            let place = Place { region, offset_bytes: 0, len_bytes: places.region_bytes(region) };
            let is_private = places.memory.region(region).home.is_private();
            let is_seen = place.len_bytes > 0 && (rank == own || !is_private);
            is_seen.then(|| self.stretch(rank, place))
        }))
    }

    fn compare<'p, D: Device>(&self, op: Op, position: &Position, touches: &[Touch])
    where
        T: Transport<'p, D>,
    {
        let (plan, rank) = (self.inner.arena().plan(), self.inner.arena().rank());
        let mut planned: Vec<([usize; 2], bool)> = Vec::new();
        let mut visit = |access: Access| {
            planned.push((self.stretch(plan.config.mesh.rank(access.at), access.place), access.writes));
        };
        accesses(plan, Pass::Train, op, position, self.inner.arena().coordinates(), &mut visit);
        if op.traits().stream.is_of_tier() {
            // Whole blocks travel. The accesses name only their destination as a whole.
            let own = plan.places(self.inner.arena().coordinates());
            let from =
                own.trips(op).map(|(kept, window)| if op.traits().stream == Stream::Fetch { kept } else { window });
            planned.extend(from.map(|place| (self.stretch(rank, place), false)).collect::<Vec<_>>());
        }
        // The only other memory of a device is a step's words, which have no places.
        let arenas = self.arenas.get_or_init(|| self.arenas());
        let touched: Vec<([usize; 2], bool)> = touches
            .iter()
            .map(|touch| ([touch.start, touch.end], touch.writes))
            .filter(|(stretch, _)| Stretches(vec![*stretch]).beyond(arenas).is_none())
            .collect();
        let all = |of: &[([usize; 2], bool)]| Stretches::of(of.iter().map(|(stretch, _)| *stretch));
        let written = |of: &[([usize; 2], bool)]| {
            Stretches::of(of.iter().filter(|(_, writes)| *writes).map(|(stretch, _)| *stretch))
        };
        let told = |what: &str, stretch: Option<[usize; 2]>| {
            assert!(stretch.is_none(), "rank {rank}, {op:?} {what}: {stretch:x?} of {planned:x?} {:?}", plan.config);
        };
        told("reads what the plan does not say", all(&touched).beyond(&all(&planned)));
        told("writes what the plan does not say", written(&touched).beyond(&written(&planned)));
        // Bytes that are already at their destination are not touched.
        if touches_all(op) && !touched.is_empty() {
            told("does not read what the plan says", all(&planned).beyond(&all(&touched)));
            told("does not write what the plan says", written(&planned).beyond(&written(&touched)));
        }
    }
}

// SAFETY: every call goes to the inner transport, and its caller keeps the promise.
unsafe impl<'p, D: Device, T: Transport<'p, D>> Transport<'p, D> for Touching<T> {
    fn arena(&self) -> &Arc<Arena<'p, D>> {
        self.inner.arena()
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }

    fn watchdog(&self) -> Arc<dyn Watchdog + 'p> {
        self.inner.watchdog()
    }

    unsafe fn begin(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost> {
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.begin(device, op, position) }?;
        note_touches();
        Ok(())
    }

    unsafe fn end(&mut self, device: &D, op: Op, position: &Position) {
        let touches = take_touches();
        if !touches.is_empty() {
            self.compare(op, position, &touches);
            self.compared += 1;
        }
        // SAFETY: as above.
        unsafe { self.inner.end(device, op, position) };
    }

    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, D, u8> {
        // SAFETY: as above.
        unsafe { self.inner.peer(rank, place) }
    }

    unsafe fn exchange(&mut self, device: &D, call: u64, mine: View<D, f64>, all: ViewMut<D, f64>) -> Result<(), Lost> {
        // SAFETY: as above.
        unsafe { self.inner.exchange(device, call, mine, all) }
    }

    fn await_device(&mut self, device: &D) -> Result<(), Lost> {
        self.inner.await_device(device)
    }

    fn moved(&self) -> Moved {
        self.inner.moved()
    }

    fn crossed(&self) -> Crossed {
        self.inner.crossed()
    }
}

impl<T> Drop for Touching<T> {
    fn drop(&mut self) {
        assert!(self.compared > 0 || std::thread::panicking(), "no op was compared");
    }
}

struct Touched(fn(Config) -> Config);

impl Touched {
    fn on<D: Device>(self, program: &'static Program<D>) {
        let config = self.0(program.plan.config);
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| touched(program, plan));
    }
}

fn touched<D: Device>(program: &'static Program<D>, plan: &Plan) {
    let batch = noise(plan.config);
    let ranks = local::run(plan, Result::is_err, |transport| {
        train_rank(program, Touching::new(transport), HYPER, 1, Start::Seed(7), &batch)
    });
    for rank in ranks.expect("the memory of a tiny model") {
        rank.expect("a run without faults");
    }
}

#[test]
fn ops_touch_the_places_that_the_plan_gives_them_and_no_others() {
    for &name in NAMES {
        Touched(|config| Config { transport: TransportKind::Shm, ..config }).on(naive_program(name));
        Touched(|config| Config { transport: TransportKind::Local, ..config }).on(naive_program(name));
    }
}

/// A head with parameters of its own, so that sums need not wait for others.
#[zero(stage = 3, ranks = 2, sequences = 2, length = 12, device = zero_tests::naive::Naive)]
struct Untied {
    embed: Embedding<VOCAB, CONTEXT, DIM>,
    blocks: [TinyBlock; 2],
    norm: LayerNorm<DIM>,
    head: LmHead<DIM, VOCAB>,
}

/// Pieces of states travel between the memory of the host and the window, shards of parameters to where they are gathered
/// from, and sums of buckets to and from where they are made.
#[test]
fn ops_of_a_tier_touch_their_whole_pieces() {
    let on_host = |config: Config| {
        let offload = Offload { optimizer: TierKind::Host, prefetch: 1, piece_bytes: 8192, ..Offload::NONE };
        let config = Config { offload, snapshot: false, optimizer: OptimizerKind::AdamW, ..config };
        let keeps_shards = config.shards_parameters() && !config.converts_gathers() && config.mesh.pipeline == 1;
        let parameters = if keeps_shards { TierKind::Host } else { TierKind::Device };
        Config { offload: Offload { parameters, ..offload }, ..config }
    };
    for name in ["ddp", "zero3", "mixed", "hybrid"] {
        Touched(on_host).on(naive_program(name));
    }
    let sums = |config: Config| {
        let host = TierKind::Host;
        let offload = Offload {
            optimizer: host,
            gradients: host,
            parameters: host,
            prefetch: 1,
            piece_bytes: 8192,
            ..Offload::NONE
        };
        Config { offload, micro_batches: 2, bucket_bytes: 1, ..config }
    };
    Touched(sums).on(Untied::PROGRAM);
}
