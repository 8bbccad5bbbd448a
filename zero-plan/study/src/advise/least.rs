//! Least: the least memory that a coarse layout needs, in its lightest settings. Never says how much memory there is.

use zero_plan::{Axis, Mesh, Often, TransportKind, Unit, Width};

use super::candidate::Candidate;
use super::fit::Demand;
use super::question::Question;

/// A width and the sequences of a micro-batch, with the units if they are known.
type KnownUnits = ((Width, usize), Option<Vec<Unit>>);

/// Units by width and sequences. Each shape is asked for once.
pub(super) struct UnitShapes<'q, 'a> {
    question: &'q Question<'a>,
    known: Vec<KnownUnits>,
}

impl<'q, 'a> UnitShapes<'q, 'a> {
    pub(super) fn new(question: &'q Question<'a>) -> Self {
        Self { question, known: Vec::new() }
    }

    pub(super) fn of(&mut self, candidate: &Candidate) -> Option<&[Unit]> {
        let shape = (candidate.precision.compute, candidate.sequences);
        if !self.known.iter().any(|(known, _)| *known == shape) {
            self.known.push((shape, (self.question.units)(shape.0, shape.1)));
        }
        self.known.iter().find(|(known, _)| *known == shape)?.1.as_deref()
    }
}

/// The fine settings of a coarse layout that may need the least memory: of each size of pieces on disk, one if it reduces in
/// every micro-batch, and one if it reduces once a step.
fn lightest(question: &Question, coarse: Candidate, units: &[Unit]) -> Vec<Candidate> {
    let (pins, given) = (&question.pins, &question.pins.spec.zero);
    let shares = coarse.stage == 3 && coarse.mesh.zero > 1;
    let prefetch = if shares { pins.numbers("zero.prefetch", &[0])[0] } else { 1 };
    let bucket = pins.or("zero.bucket", given.bucket, &[coarse.bucket])[0];
    let gather = if shares { pins.or("zero.gather", given.gather, &[Often::PerMicroBatch])[0] } else { coarse.gather };
    let reduce = if coarse.micro_batches > 1 { pins.often("zero.reduce") } else { vec![Often::PerMicroBatch] };
    let light = Candidate { prefetch: coarse.prefetch.map(|_| prefetch), bucket, gather, ..coarse };
    let offloads = question.offload_settings(coarse.offload);
    let of = |reduce| offloads.iter().map(move |&offload| Candidate { reduce, offload, ..light });
    reduce.into_iter().flat_map(of).filter(|light| light.can_offload(question, units)).collect()
}

/// The fewest bytes that coarse layouts need. If every rank can read every other rank's memory, numbering changes no size, so
/// neighbouring layouts that differ only in numbering share a result.
#[derive(Default)]
pub(super) struct LeastBytes {
    last: Option<(Candidate, Option<usize>)>,
}

impl LeastBytes {
    /// Those of a layout; none if it has no plan.
    pub(super) fn of(&mut self, question: &Question, coarse: Candidate, units: &[Unit]) -> Option<usize> {
        let alike = match coarse.config(question).transport {
            TransportKind::Cluster => coarse,
            _ => Candidate { mesh: Mesh { order: Axis::ALL, ..coarse.mesh }, within: &[], ..coarse },
        };
        let bytes = match self.last {
            Some((other, bytes)) if other == alike => bytes,
            _ => {
                let light = lightest(question, coarse, units).into_iter();
                light.filter_map(|light| Demand::of(&light.config(question), units)).map(|need| need.bytes).min()
            }
        };
        self.last = Some((alike, bytes));
        bytes
    }
}
