//! Space: all layouts that may be chosen, with one representative of each set that symmetry makes equal. Never judges
//! layouts.
//!
//! Three kinds of layouts are left out because they equal other layouts: stages above 0 with one rank along `zero`,
//! which has no rank to share with; orders of axes that number ranks alike, or all orders but one on a single node; and
//! buckets of the same units.

use zero_plan::bounds::MICRO_BATCHES_MAX;
use zero_plan::spec::{RecomputedUnits, Schedule, Size};
use zero_plan::{Axis, Config, Mesh, Offload, Often, Precision, Unit, Width};

use super::candidate::Candidate;
use super::fit::buckets;
use super::question::Question;

/// Sequences of a micro-batch.
pub(super) const SEQUENCES: [usize; 5] = [1, 2, 4, 8, 16];
const BUCKETS: [Size; 3] = [Size::MiB(25), Size::MiB(100), Size::MiB(400)];
/// Values that are likely fastest come first.
const PREFETCH: [usize; 4] = [2, 1, 4, 0];
const RECOMPUTE: [Option<usize>; 3] = [None, Some(2), Some(1)];
const SCHEDULES: [Schedule; 4] =
    [Schedule::OneFOneB, Schedule::GPipe, Schedule::Interleaved { chunks: 2 }, Schedule::Interleaved { chunks: 4 }];
/// The micro-batches of a pipeline if no number of tokens is asked for, in multiples of its number of pipeline stages.
const FILLS: [usize; 3] = [1, 2, 4];

use Axis::{Pipeline, Replica, Zero};

/// Values of `within_node`. Where several number ranks alike, the one with the most axes comes first and is used.
const WITHIN: [&[Axis]; 7] =
    [&[Zero, Replica], &[Zero, Pipeline], &[Replica, Pipeline], &[Zero], &[Replica], &[Pipeline], &[]];

const fn widths(compute: Width, reduce: Width, master: Width) -> Precision {
    Precision { compute, params: compute, reduce, master, moments: master }
}

/// Widths in which numbers may be stored.
pub(super) fn precisions(question: &Question) -> Vec<Precision> {
    use Width::{BF16, F32};
    let (pins, given) = (&question.pins, question.pins.spec.precision);
    let mut all = vec![widths(BF16, BF16, F32), widths(BF16, F32, F32), widths(F32, F32, F32)];
    if question.pure_bf16 {
        all.push(widths(BF16, BF16, BF16));
    }
    let mut found: Vec<Precision> = Vec::new();
    for mut precision in all {
        let fields = [
            ("precision.compute", &mut precision.compute, given.compute),
            ("precision.params", &mut precision.params, given.params),
            ("precision.reduce", &mut precision.reduce, given.reduce),
            ("precision.master", &mut precision.master, given.master),
            ("precision.moments", &mut precision.moments, given.moments),
        ];
        for (_, field, value) in fields.into_iter().filter(|(key, ..)| pins.has(key)) {
            *field = value;
        }
        // Specs whose master copy is narrower than the parameters are refused.
        if precision.master.bytes() >= precision.params.bytes() && !found.contains(&precision) {
            found.push(precision);
        }
    }
    found
}

fn divisors(of: usize) -> impl Iterator<Item = usize> {
    (1..=of).filter(move |divisor| of.is_multiple_of(*divisor))
}

/// A mesh, and the axes that must lie within a node.
type PlacedMesh = (Mesh, &'static [Axis]);

/// All meshes, each in all placements on nodes.
pub(super) fn meshes(question: &Question) -> Vec<Vec<PlacedMesh>> {
    let mut found = Vec::new();
    let pins = &question.pins;
    for per_node in question.ranks_per_node() {
        let ranks = question.nodes * per_node;
        let all: Vec<usize> = divisors(ranks).collect();
        for zero in pins.numbers("mesh.zero", &all) {
            for replica in pins.numbers("mesh.replica", &all) {
                if !ranks.is_multiple_of(zero * replica) {
                    continue;
                }
                let pipeline = ranks / zero / replica;
                if pins.numbers("mesh.pipeline", &all).contains(&pipeline) {
                    let mesh = Mesh { nodes: question.nodes, zero, replica, pipeline, order: Axis::ALL };
                    found.push(placed(mesh, per_node));
                }
            }
        }
    }
    if pins.has("mesh.within_node") && question.nodes > 1 {
        let given = along(&pins.spec.mesh.grid());
        found.iter_mut().for_each(|ways| ways.retain(|(mesh, _)| along(mesh) == given));
        found.retain(|ways| !ways.is_empty());
    }
    found
}

/// The axes that have several ranks, in the order in which the mesh numbers ranks.
fn along(mesh: &Mesh) -> Vec<Axis> {
    mesh.order.into_iter().filter(|&axis| mesh.len(axis) > 1).collect()
}

/// All placements of a mesh on nodes.
fn placed(mesh: Mesh, per_node: usize) -> Vec<PlacedMesh> {
    if mesh.nodes == 1 {
        return vec![(mesh, &[])];
    }
    let mut found: Vec<PlacedMesh> = Vec::new();
    for within in WITHIN {
        let product: usize = within.iter().map(|&axis| mesh.len(axis)).product();
        if within.iter().any(|&axis| mesh.len(axis) == 1) || !per_node.is_multiple_of(product) {
            continue;
        }
        let mut order = Axis::ALL;
        order.sort_by_key(|axis| !within.contains(axis));
        let placed = Mesh { order, ..mesh };
        if found.iter().all(|(other, _)| along(other) != along(&placed)) {
            found.push((placed, within));
        }
    }
    found
}

/// Pairs of the sequences of a micro-batch and the micro-batches of a step.
fn batches(question: &Question, mesh: &Mesh) -> Vec<(usize, usize)> {
    let pins = &question.pins;
    let sequences = pins.numbers("batch.sequences", &SEQUENCES);
    let fits = |&(_, count): &(usize, usize)| (mesh.pipeline..=MICRO_BATCHES_MAX).contains(&count);
    let pairs: Vec<(usize, usize)> = match question.tokens_per_step {
        Some(tokens) => {
            let step = question.length * mesh.data_ranks();
            if !tokens.is_multiple_of(step) {
                return Vec::new();
            }
            let of_rank = tokens / step;
            let whole = sequences.into_iter().filter(|n| of_rank.is_multiple_of(*n));
            let pairs = whole.map(|n| (n, of_rank / n));
            pairs.filter(|&(_, count)| pins.numbers("batch.micro_batches", &[count]).contains(&count)).collect()
        }
        None => {
            let counts = FILLS.map(|fill| fill * mesh.pipeline);
            let counts = pins.numbers("batch.micro_batches", if mesh.pipeline == 1 { &counts[..1] } else { &counts });
            sequences.iter().flat_map(|&n| counts.iter().map(move |&count| (n, count))).collect()
        }
    };
    pairs.into_iter().filter(fits).collect()
}

fn schedules(question: &Question, mesh: &Mesh, count: usize) -> Vec<Schedule> {
    if mesh.pipeline == 1 {
        return vec![Schedule::OneFOneB];
    }
    let tried = question.pins.or("pipeline.schedule", question.pins.spec.pipeline.schedule, &SCHEDULES);
    let fits = |schedule: &Schedule| schedule.chunks() == 1 || count.is_multiple_of(mesh.pipeline);
    tried.into_iter().filter(fits).collect()
}

/// All coarse layouts that keep on disk what `offloads` say, each with its lightest fine settings. Layouts that differ only
/// in numbering ranks are neighbours.
pub(super) fn coarse(question: &Question, offloads: &[Offload]) -> Vec<Candidate> {
    let of = |&offload: &Offload| in_memory(question).into_iter().map(move |it| Candidate { offload, ..it });
    offloads.iter().flat_map(of).collect()
}

/// All coarse layouts that keep everything in memory.
fn in_memory(question: &Question) -> Vec<Candidate> {
    let pins = &question.pins;
    let given = match pins.spec.recompute {
        Some(RecomputedUnits::Every(k)) => Some(k as usize),
        _ => None,
    };
    let (recomputations, precisions) = (pins.or("recompute", given, &RECOMPUTE), precisions(question));
    let mut found = Vec::new();
    for placed in meshes(question) {
        let mesh = placed[0].0;
        let tried: &[u8] = if mesh.zero == 1 { &[0] } else { &[0, 1, 2, 3] };
        let stages = pins.or("zero.stage", pins.spec.zero.stage.get(), tried);
        let batches = batches(question, &mesh).into_iter();
        let turns = batches.flat_map(|(sequences, count)| {
            schedules(question, &mesh, count).into_iter().map(move |schedule| (sequences, count, schedule))
        });
        for (sequences, micro_batches, schedule) in turns {
            for (&stage, &recompute) in stages.iter().flat_map(|stage| recomputations.iter().map(move |k| (stage, k))) {
                for (&precision, &(mesh, within)) in
                    precisions.iter().flat_map(|p| placed.iter().map(move |at| (p, at)))
                {
                    let candidate = Candidate {
                        mesh,
                        within,
                        stage,
                        prefetch: (stage == 3).then_some(0),
                        bucket: BUCKETS[0],
                        gather: Often::PerMicroBatch,
                        reduce: Often::PerMicroBatch,
                        schedule,
                        even: false,
                        recompute,
                        precision,
                        sequences,
                        micro_batches,
                        offload: Offload::NONE,
                    };
                    // Such a spec would be refused.
                    if !candidate.config(question).sends_directions() {
                        found.push(candidate);
                    }
                }
            }
        }
    }
    found
}

/// All fine settings of a coarse layout. Settings that are likely fastest come first.
pub(super) fn fine(question: &Question, coarse: Candidate, units: &[Unit]) -> Vec<Candidate> {
    let (pins, mut found) = (&question.pins, Vec::new());
    let gathers = coarse.stage == 3 && coarse.mesh.zero > 1;
    let prefetch: Vec<Option<usize>> = match coarse.stage {
        3 if gathers => pins.numbers("zero.prefetch", &PREFETCH).into_iter().map(Some).collect(),
        3 => vec![Some(1)],
        _ => vec![None],
    };
    let gather = if gathers { pins.often("zero.gather") } else { vec![Often::PerMicroBatch] };
    let mut reduce = if coarse.micro_batches > 1 { pins.often("zero.reduce") } else { vec![Often::PerMicroBatch] };
    reduce.reverse();
    for even in if coarse.mesh.pipeline > 1 { &[false, true][..] } else { &[false] } {
        for bucket in distinct_buckets(question, Candidate { even: *even, ..coarse }, units) {
            for &gather in &gather {
                for &reduce in &reduce {
                    for offload in question.offload_settings(coarse.offload) {
                        let all = prefetch.iter();
                        found.extend(all.map(|&prefetch| Candidate {
                            even: *even,
                            bucket,
                            gather,
                            reduce,
                            prefetch,
                            offload,
                            ..coarse
                        }));
                    }
                }
            }
        }
    }
    found.retain(|it| it.can_offload(question, units));
    found
}

/// One setting of a coarse layout for each choice that changes the bound of its time; prefetch and buckets do not. The
/// even split is included only if there is one.
pub(super) fn bounded_alike(question: &Question, coarse: Candidate, units: &[Unit]) -> Vec<Candidate> {
    let pins = &question.pins;
    let gathers = coarse.stage == 3 && coarse.mesh.zero > 1;
    let gather = if gathers { pins.often("zero.gather") } else { vec![Often::PerMicroBatch] };
    let reduce = if coarse.micro_batches > 1 { pins.often("zero.reduce") } else { vec![Often::PerMicroBatch] };
    let is_even = coarse.mesh.pipeline > 1 && units.len().is_multiple_of(coarse.config(question).chunks());
    let mut found = Vec::new();
    for &even in if is_even { &[false, true][..] } else { &[false] } {
        for &gather in &gather {
            found.extend(reduce.iter().map(|&reduce| Candidate { even, gather, reduce, ..coarse }));
        }
    }
    found
}

/// The sizes of buckets, except those that form the same buckets as an earlier size.
fn distinct_buckets(question: &Question, coarse: Candidate, units: &[Unit]) -> Vec<Size> {
    let config = coarse.config(question);
    if config.chunks() > units.len() || coarse.even && !units.len().is_multiple_of(config.chunks()) {
        return Vec::new();
    }
    let tried = question.pins.or("zero.bucket", question.pins.spec.zero.bucket, &BUCKETS);
    let mut found: Vec<(Size, Vec<usize>)> = Vec::new();
    for bucket in tried {
        let held = buckets(&Config { bucket_bytes: bucket.bytes() as usize, ..config }, units);
        if found.iter().all(|(_, other)| *other != held) {
            found.push((bucket, held));
        }
    }
    found.into_iter().map(|(bucket, _)| bucket).collect()
}

/// The same question with more nodes. Tokens per step grow with the nodes, so that a rank's work stays the same.
pub(super) fn with_nodes<'a>(question: &Question<'a>, nodes: usize) -> Question<'a> {
    let tokens_per_step = question.tokens_per_step.map(|tokens| tokens.saturating_mul(nodes) / question.nodes);
    Question {
        nodes,
        tokens_per_step,
        model: question.model.clone(),
        size: question.size.clone(),
        pins: question.pins.clone(),
        ..*question
    }
}
