//! Expanded: what `cargo zero expand` writes is compiled here and run by a recorder for every rank. Its ops, places and bytes are
//! those of the plan, and rustfmt leaves it as it is. Never trains.
//!
//! `UPDATE_EXPECT=1 cargo test -p zero-tests --test ui expanded` writes `golden/expanded/` anew; read the difference before
//! keeping it.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use expect_test::expect_file;
use zero_plan::place::{Content, Place, Position, accesses};
use zero_plan::{
    Axis, Config, Kind, Offload, Op, Parcel, Pass, Piece, Plan, PlanBuf, Stream, TierBytes, TierKind, Traffic, Unit,
};
use zero_study::expand::Expanded;
use zero_study::expand::step::*;
use zero_tests::specs;

/// The goldens, and the functions of each of their pipeline stages: of a step, and of an evaluation.
macro_rules! goldens {
    ($($spec:ident: $($module:ident)*;)*) => {
        $(// Regions and lengths that no op names are there for a reader.
        #[allow(dead_code)]
        mod $spec {
            include!(concat!("../../golden/expanded/", stringify!($spec), ".rs"));
        })*

        /// Runs the function of a pass and a pipeline stage under a spec.
        fn run(spec: &str, pipeline: usize, pass: Pass, recorder: &mut Recorder) {
            match (spec, pass) {
                $((stringify!($spec), Pass::Train) => goldens!(@ $spec step pipeline recorder: $($module)*),)*
                $((stringify!($spec), Pass::Evaluate) => goldens!(@ $spec evaluation pipeline recorder: $($module)*),)*
                _ => panic!("{spec} has no golden"),
            }
        }

        const GOLDENS: &[&str] = &[$(stringify!($spec)),*];
    };
    (@ $spec:ident $function:ident $pipeline:ident $recorder:ident:) => { $spec::$function($recorder) };
    (@ $spec:ident $function:ident $pipeline:ident $recorder:ident: $first:ident $second:ident) => {
        match $pipeline {
            0 => $spec::$first::$function($recorder),
            _ => $spec::$second::$function($recorder),
        }
    };
}

goldens! {
    ddp:;
    zero2:;
    zero3:;
    hsdp:;
    hybrid: pipeline_stage_0 pipeline_stage_1;
    offloaded:;
}

/// `zero1` with its optimizer states on disk.
const OFFLOADED: &str = "offloaded";

/// An op as it was called, with the places that its arguments name.
#[derive(Debug)]
struct Call {
    op: Op,
    places: Vec<Place>,
    bytes: usize,
}

/// Notes calls, and remembers into which slot each unit was gathered, and its shard fetched.
#[derive(Default)]
struct Recorder {
    calls: Vec<Call>,
    units: HashMap<usize, UnitBuffers>,
    slots: HashMap<usize, SlotBuffer>,
    /// Shards that were fetched, and are not yet gathered.
    shards: HashMap<usize, Place>,
}

impl Recorder {
    fn note(&mut self, op: Op, unit: Option<UnitBuffers>, others: &[Place], bytes: usize) {
        let mut places = others.to_vec();
        if let Some(unit) = unit {
            self.units.insert(unit.number, unit);
            let UnitBuffers { number: _, parameters, converted, gradients, partial, reduced, .. } = unit;
            places.extend([parameters, converted, gradients, partial, reduced, unit.master, unit.first_moment]);
            places.extend([unit.second_moment, unit.sums, unit.saved, unit.output, unit.stored]);
            places.extend(self.slots.get(&unit.number).map(|slot| slot.place));
        }
        self.calls.push(Call { op, places, bytes });
    }
}

impl StepOps for Recorder {
    fn gather(&mut self, unit: UnitBuffers, slot: SlotBuffer, bytes: usize) {
        self.slots.insert(unit.number, slot);
        let shard: Vec<Place> = self.shards.remove(&unit.number).into_iter().collect();
        self.note(Op::Gather { unit: unit.number, slot: slot.number }, Some(unit), &shard, bytes);
    }

    fn wait(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::Wait { unit: unit.number }, Some(unit), &[], bytes);
    }

    fn convert(&mut self, unit: UnitBuffers, slot: SlotBuffer, bytes: usize) {
        self.slots.insert(unit.number, slot);
        self.note(Op::Convert { unit: unit.number, slot: slot.number }, Some(unit), &[], bytes);
    }

    fn release(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::Release { unit: unit.number }, Some(unit), &[], bytes);
    }

    fn receive(&mut self, parcel: Parcel, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize) {
        let op = Op::Receive { parcel, unit: unit.number, micro_batch: batch.0, slot: slot.number };
        self.note(op, Some(unit), &[slot.place], bytes);
    }

    fn clear(&mut self, parcel: Parcel, bytes: usize) {
        self.note(Op::Clear { parcel }, None, &[], bytes);
    }

    fn send(&mut self, parcel: Parcel, unit: UnitBuffers, batch: MicroBatch, bytes: usize) {
        self.note(Op::Send { parcel, unit: unit.number, micro_batch: batch.0 }, Some(unit), &[], bytes);
    }

    fn forward(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize) {
        let op = Op::Forward { unit: unit.number, micro_batch: batch.0, slot: slot.number };
        self.note(op, Some(unit), &[slot.place], bytes);
    }

    fn recompute(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize) {
        let op = Op::Recompute { unit: unit.number, micro_batch: batch.0, slot: slot.number };
        self.note(op, Some(unit), &[slot.place], bytes);
    }

    fn backward(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize) {
        let op = Op::Backward { unit: unit.number, micro_batch: batch.0, slot: slot.number };
        self.note(op, Some(unit), &[slot.place], bytes);
    }

    fn claim(&mut self, bucket: BucketBuffer, bytes: usize) {
        self.note(Op::Claim { bucket: bucket.number }, None, &[bucket.gradients], bytes);
    }

    fn reduce_scatter(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize) {
        let op = Op::Reduce { bucket: bucket.number, round: reduction.0 };
        self.note(op, None, &[bucket.gradients], bytes);
    }

    fn subtotal(&mut self, bucket: BucketBuffer, reduction: Reduction, axis: Axis, bytes: usize) {
        let op = Op::Subtotal { bucket: bucket.number, round: reduction.0, axis };
        self.note(op, None, &[bucket.gradients], bytes);
    }

    fn settle(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize) {
        let op = Op::Settle { bucket: bucket.number, round: reduction.0 };
        self.note(op, None, &[bucket.gradients], bytes);
    }

    fn combine(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize) {
        let op = Op::Combine { bucket: bucket.number, round: reduction.0 };
        self.note(op, None, &[bucket.gradients], bytes);
    }

    fn fold(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::Fold { unit: unit.number }, Some(unit), &[], bytes);
    }

    fn spread(&mut self, bucket: BucketBuffer, axis: Axis, bytes: usize) {
        self.note(Op::Spread { bucket: bucket.number, axis }, None, &[bucket.gradients], bytes);
    }

    fn agree(&mut self, bytes: usize) {
        self.note(Op::Agree, None, &[], bytes);
    }

    fn momentum(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::Momentum { unit: unit.number }, Some(unit), &[], bytes);
    }

    fn update(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::Update { unit: unit.number, piece: None }, Some(unit), &[], bytes);
    }

    fn fetch_shard(&mut self, unit: UnitBuffers, slot: SlotBuffer, bytes: usize) {
        self.shards.insert(unit.number, slot.place);
        self.note(Op::FetchShard { unit: unit.number, slot: slot.number }, Some(unit), &[slot.place], bytes);
    }

    fn fetch_sums(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize) {
        self.note(Op::FetchSums { bucket: bucket.number, round: reduction.0 }, None, &[], bytes);
    }

    fn store_sums(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize) {
        self.note(Op::StoreSums { bucket: bucket.number, round: reduction.0 }, None, &[], bytes);
    }

    fn store_activations(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize) {
        let op = Op::StoreActivations { unit: unit.number, micro_batch: batch.0, slot: slot.number };
        self.note(op, Some(unit), &[slot.place], bytes);
    }

    fn fetch_activations(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize) {
        let op = Op::FetchActivations { unit: unit.number, micro_batch: batch.0, slot: slot.number };
        self.note(op, Some(unit), &[slot.place], bytes);
    }

    fn offer(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::Offer { unit: unit.number }, Some(unit), &[], bytes);
    }

    fn store_offered(&mut self, unit: UnitBuffers, bytes: usize) {
        self.note(Op::StoreOffered { unit: unit.number }, Some(unit), &[], bytes);
    }

    fn fetch(&mut self, unit: UnitBuffers, piece: UnitPiece, slot: WindowBuffer, bytes: usize) {
        self.note(Op::Fetch { unit: unit.number, piece: of(piece, slot) }, Some(unit), &states_in(slot), bytes);
    }

    fn update_piece(&mut self, unit: UnitBuffers, piece: UnitPiece, slot: WindowBuffer, bytes: usize) {
        let piece = Some(of(piece, slot));
        self.note(Op::Update { unit: unit.number, piece }, Some(unit), &states_in(slot), bytes);
    }

    fn store(&mut self, unit: UnitBuffers, piece: UnitPiece, slot: WindowBuffer, bytes: usize) {
        self.note(Op::Store { unit: unit.number, piece: of(piece, slot) }, Some(unit), &states_in(slot), bytes);
    }
}

fn of(piece: UnitPiece, slot: WindowBuffer) -> Piece {
    Piece { index: piece.0, slot: slot.number }
}

fn states_in(slot: WindowBuffer) -> [Place; 5] {
    [slot.parameters, slot.master, slot.first_moment, slot.second_moment, slot.sums]
}

/// Compares what was recorded of one rank with the plan.
fn compare(plan: &Plan, rank: usize, pass: Pass, recorder: &Recorder) -> Result<(), String> {
    let ops = plan.of_rank(rank).ops(pass);
    let called: Vec<Op> = recorder.calls.iter().map(|call| call.op).collect();
    if called != ops {
        return Err(format!("rank {rank} would run {called:?}"));
    }
    let at = plan.config.mesh.coordinates(rank);
    let mut position = Position::new(plan.units.len());
    for call in &recorder.calls {
        let mut named = call.places.clone();
        // A bucket names its gradients; the sums are those of its units. A tied unit computes on the slot of its owner, and is
        // added to its owner's sums.
        let bucket = call.op.traits().bucket.map(|bucket| &plan.buckets[bucket]);
        let units = bucket.map_or(0..0, |bucket| bucket.first..bucket.last + 1);
        let owner = call.op.traits().unit.map(|unit| plan.units[unit].source);
        let all = plan.units.iter().enumerate().map(|(unit, _)| unit).filter(|_| call.op == Op::Agree);
        for unit in units.chain(owner).chain(all) {
            named.extend(
                recorder.units.get(&unit).iter().flat_map(|unit| [unit.parameters, unit.partial, unit.reduced]),
            );
            named.extend(recorder.units.get(&unit).iter().flat_map(|unit| [unit.converted, unit.gradients, unit.sums]));
            named.extend(recorder.slots.get(&unit).map(|slot| slot.place));
        }
        let mut apart = None;
        accesses(plan, pass, call.op, &position, at, &mut |access| {
            // Regions of this kind have no buffers with names: units, parcels and hosts take turns with all of them.
            let is_passing = [Kind::ActivationGradients, Kind::Outgoing, Kind::Inbox, Kind::Subtotals];
            if access.at != at || access.content == Content::Nothing || is_passing.contains(&access.place.region) {
                return;
            }
            let holds = |place: &Place| {
                place.region == access.place.region
                    && place.offset_bytes <= access.place.offset_bytes
                    && access.place.end_bytes() <= place.end_bytes()
            };
            if !named.iter().any(holds) {
                apart = Some(access.place);
            }
        });
        if let Some(place) = apart {
            return Err(format!("rank {rank} touches {place:?} in {call:?}, which names {named:?}"));
        }
        position.pass(call.op);
    }
    compare_bytes(plan, rank, pass, recorder)
}

/// Bytes of the shards that a rank fetches in an evaluation, in whole blocks: one for each gather.
fn shards_of_evaluation(plan: &Plan, rank: usize) -> usize {
    let own = plan.places(plan.config.mesh.coordinates(rank));
    let gathers = plan.of_rank(rank).evaluation.iter().filter(|op| matches!(op, Op::Gather { .. }));
    let shards = gathers.filter_map(|op| op.unit()).map(|unit| own.shard(unit).len_bytes.next_multiple_of(4096));
    if plan.config.offloads_parameters() { shards.sum() } else { 0 }
}

/// Compares the bytes that were recorded with those that the rank sends, as `traffic` counts them.
fn compare_bytes(plan: &Plan, rank: usize, pass: Pass, recorder: &Recorder) -> Result<(), String> {
    let sent = Traffic::of(plan, rank, plan.of_rank(rank).ops(pass));
    let tier = match pass {
        Pass::Train => TierBytes::of(plan, rank),
        Pass::Evaluate => TierBytes { read: shards_of_evaluation(plan, rank), written: 0 },
        Pass::Publish => unreachable!("no golden publishes"),
    };
    let mesh = &plan.config.mesh;
    let sum = |which: &dyn Fn(Op) -> bool| -> usize {
        recorder.calls.iter().filter(|call| which(call.op)).map(|call| call.bytes).sum()
    };
    // A ring sends all of a buffer but one rank's share (ZeRO paper, section 7).
    let ring = |bytes: usize, ranks: usize| bytes / ranks * (ranks - 1);
    let parcels = |parcel: Parcel| sum(&|op| matches!(op, Op::Send { parcel: sent, .. } if sent == parcel));
    let pairs = [
        ("gather", ring(sum(&|op| matches!(op, Op::Gather { .. })), mesh.zero), sent.gather_bytes),
        ("reduce_scatter", ring(sum(&|op| matches!(op, Op::Reduce { .. })), mesh.zero), sent.reduce_bytes),
        ("settle", sum(&|op| matches!(op, Op::Settle { .. })) * (mesh.zero - 1), sent.reduce_bytes),
        ("spread", ring(sum(&|op| matches!(op, Op::Spread { axis: Axis::Zero, .. })), mesh.zero), sent.spread_bytes),
        (
            "spread along replica",
            ring(sum(&|op| matches!(op, Op::Spread { axis: Axis::Replica, .. })), mesh.replica),
            sent.replica_spread_bytes,
        ),
        ("combine", sum(&|op| matches!(op, Op::Combine { .. })) * (mesh.replica - 1), sent.replica_reduce_bytes),
        ("activations", parcels(Parcel::Activations), sent.activation_bytes),
        ("gradients", parcels(Parcel::Gradients), sent.gradient_bytes),
        ("ties", parcels(Parcel::TiedGradients) + parcels(Parcel::TiedParameters), sent.tied_bytes),
        ("agree", sum(&|op| op == Op::Agree) * (mesh.ranks() - 1), sent.agree_bytes),
        ("fetch", sum(&|op| op.traits().stream == Stream::Fetch), tier.read),
        ("store", sum(&|op| op.traits().stream == Stream::Store), tier.written),
    ];
    match pairs.iter().find(|(_, expanded, sent)| expanded != sent) {
        Some((what, expanded, sent)) => {
            Err(format!("rank {rank} sends {sent} bytes of {what}, expanded are {expanded}"))
        }
        None => Ok(()),
    }
}

fn plan_of(spec: &str) -> &'static Plan<'static> {
    if spec == OFFLOADED { offloaded_plan() } else { specs::program(spec).plan }
}

fn offloaded_plan() -> &'static Plan<'static> {
    static PLAN: LazyLock<Plan> = LazyLock::new(|| {
        let plan = specs::program("zero3").plan;
        let disk = TierKind::Disk;
        let offload =
            Offload { optimizer: disk, parameters: disk, prefetch: 1, piece_bytes: 512 << 10, ..Offload::NONE };
        // As long as the test, like the plan of a program.
        let made = Box::leak(Box::new(PlanBuf::new(plan.model, Config { offload, ..plan.config }, plan.units)));
        made.as_plan(made.pipeline_stages().leak())
    });
    &PLAN
}

fn expanded(spec: &str) -> String {
    let name = if spec == OFFLOADED { "specs/zero3.ron with states on disk" } else { &format!("specs/{spec}.ron") };
    Expanded { plan: plan_of(spec), spec: name }.to_string()
}

#[test]
fn a_change_of_schedule_changes_what_is_expanded() {
    for spec in GOLDENS {
        expect_file![format!("{}/golden/expanded/{spec}.rs", env!("CARGO_MANIFEST_DIR"))].assert_eq(&expanded(spec));
    }
}

/// Calls `each` for every rank and pass of every golden, with what was recorded.
fn for_each(mut each: impl FnMut(&str, &Plan, usize, Pass, Recorder)) {
    for spec in GOLDENS {
        let plan = plan_of(spec);
        for rank in 0..plan.config.mesh.ranks() {
            for pass in [Pass::Train, Pass::Evaluate] {
                let mut recorder = Recorder::default();
                run(spec, plan.config.mesh.coordinates(rank).pipeline, pass, &mut recorder);
                each(spec, plan, rank, pass, recorder);
            }
        }
    }
}

#[test]
fn every_rank_would_run_the_ops_of_its_plan_at_their_places_with_their_bytes() {
    for_each(|spec, plan, rank, pass, recorder| {
        compare(plan, rank, pass, &recorder).unwrap_or_else(|fault| panic!("{spec}: {fault}"));
    });
}

#[test]
fn another_op_place_or_length_is_noticed() {
    for_each(|spec, plan, rank, pass, mut recorder| {
        let Some(at) = recorder.calls.iter().position(|call| matches!(call.op, Op::Wait { .. } | Op::Update { .. }))
        else {
            return;
        };
        let removed = recorder.calls.remove(at);
        assert!(compare(plan, rank, pass, &recorder).is_err(), "{spec}: rank {rank} without {removed:?}");
        recorder.calls.insert(at, removed);
        if let Some(call) = recorder.calls.iter_mut().find(|call| matches!(call.op, Op::Reduce { .. } | Op::Agree)) {
            call.bytes += 8;
            assert!(compare(plan, rank, pass, &recorder).is_err(), "{spec}: rank {rank} with 8 bytes more");
            recorder.calls.iter_mut().find(|call| matches!(call.op, Op::Reduce { .. } | Op::Agree)).unwrap().bytes -= 8;
        }
        // Its moments have no other name.
        let is_update = |call: &&mut Call| matches!(call.op, Op::Update { .. });
        if let Some(call) = recorder.calls.iter_mut().find(is_update) {
            call.places.iter_mut().for_each(|place| place.offset_bytes += 64);
            assert!(compare(plan, rank, pass, &recorder).is_err(), "{spec}: rank {rank} with a moved place");
        }
    });
}

#[test]
fn rustfmt_changes_nothing() {
    for spec in specs::NAMES.iter().copied().chain([OFFLOADED]) {
        let plan = plan_of(spec);
        // With a name so long that calls do not fit a line.
        let long = Unit { field: "a_field_with_a_name_that_nobody_would_want_to_read", ..plan.units[1] };
        let units: Vec<Unit> = plan.units.iter().map(|&unit| if unit.index == Some(0) { long } else { unit }).collect();
        for text in [expanded(spec), Expanded { plan: &Plan { units: &units, ..*plan }, spec }.to_string()] {
            let mut rustfmt = Command::new("rustfmt");
            rustfmt
                .args(["--edition", "2024", "--config-path", "/dev/null"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut child = rustfmt.spawn().expect("rustfmt, as `cargo fmt` needs it");
            child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
            let output = child.wait_with_output().expect("an end");
            assert!(output.status.success(), "{spec}");
            let formatted = String::from_utf8(output.stdout).expect("text");
            let differs = text.lines().zip(formatted.lines()).find(|(ours, theirs)| ours != theirs);
            assert!(formatted == text, "{spec}: {differs:?}");
        }
    }
}
