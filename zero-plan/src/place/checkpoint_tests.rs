//! Tests of the stretches that ranks write to a checkpoint, and of their copies, over meshes, stages and widths.

use super::*;
use crate::build::PlanBuf;
use crate::config::{Config, Precision, Width};
use crate::mesh::Mesh;

const WIDTHS: [Precision; 3] = [
    Config::PLAIN.precision,
    Precision { params: Width::BF16, moments: Width::BF16, ..Config::PLAIN.precision },
    Precision { params: Width::BF16, master: Width::BF16, moments: Width::BF16, ..Config::PLAIN.precision },
];

/// Plans of three units, and of a fourth that is tied to the first and lies on the last pipeline stage.
fn for_each_plan(check: impl Fn(&Plan)) {
    let unit = |source, params| Unit { source, params, takes: 9, input_bytes: 4, output_bytes: 4, ..Unit::NONE };
    let units = [unit(0, 9), unit(1, 40), unit(2, 7), unit(0, 0)];
    for (zero, replica, pipeline) in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 3, 1), (2, 2, 2), (3, 2, 1), (1, 1, 2)] {
        for (stage, precision) in (0..4).flat_map(|stage| WIDTHS.map(|precision| (stage, precision))) {
            let mesh = Mesh { replica, pipeline, ..Mesh::of_zero(zero) };
            let config = Config { mesh, micro_batches: 2, precision, snapshot: true, ..Config::PLAIN.at_stage(stage) };
            PlanBuf::new("Tied", config, &units).with(&check);
        }
    }
}

fn ranks<'a>(plan: &'a Plan) -> impl Iterator<Item = Places<'a>> {
    (0..plan.config.mesh.ranks()).map(|rank| plan.places(plan.config.mesh.coordinates(rank)))
}

#[test]
fn all_ranks_together_write_every_element_of_every_state_once() {
    for_each_plan(|plan| {
        for state in State::ALL {
            let exists = state != State::Master || plan.config.precision.has_master_copy();
            for unit in 0..plan.units.len() {
                let padded = if plan.units[unit].params > 0 && exists { plan.placements[unit].padded } else { 0 };
                let mut written = vec![0; padded];
                for (stretch, _) in ranks(plan).filter_map(|places| places.checkpointed(state, unit)) {
                    written[stretch.elements()].iter_mut().for_each(|times| *times += 1);
                }
                assert_eq!(written, vec![1; padded], "{state:?} of unit {unit} under {:?}", plan.config);
            }
        }
    });
}

#[test]
fn what_a_rank_writes_lies_in_what_it_stores() {
    for_each_plan(|plan| {
        for (places, state, unit) in all(plan) {
            let Some((stretch, place)) = places.checkpointed(state, unit) else { continue };
            let (stored, of_stored) = places.state(state, unit).expect("a state that is stored");
            let element = of_stored.len_bytes / stored.len;
            assert!(stored.start <= stretch.start && stretch.start + stretch.len <= stored.start + stored.len);
            assert_eq!(place, of_stored.cut((stretch.start - stored.start) * element, stretch.len * element));
        }
    });
}

#[test]
fn copies_lie_apart_in_their_region_and_fill_it() {
    for_each_plan(|plan| {
        for own in ranks(plan) {
            let pairs = State::ALL.into_iter().flat_map(|state| (0..plan.units.len()).map(move |unit| (state, unit)));
            let mut copies: Vec<Place> = pairs.filter_map(|(state, unit)| own.snapshot(state, unit)).collect();
            copies.sort_by_key(|copy| copy.offset_bytes);
            assert!(copies.windows(2).all(|pair| pair[0].end_bytes() <= pair[1].offset_bytes), "{copies:?}");
            let (bytes, sum) =
                (own.memory.region(Kind::Snapshot).bytes, copies.iter().map(|copy| copy.len_bytes).sum());
            assert!(copies.last().is_none_or(|last| last.end_bytes() <= bytes), "{copies:?} in {bytes} bytes");
            assert_eq!(plan.config.whole_lines(sum), bytes, "{copies:?}");
        }
    });
}

fn all<'a>(plan: &'a Plan) -> impl Iterator<Item = (Places<'a>, State, usize)> {
    let pairs = State::ALL.into_iter().flat_map(|state| (0..plan.units.len()).map(move |unit| (state, unit)));
    ranks(plan).flat_map(move |places| pairs.clone().map(move |(state, unit)| (places, state, unit)))
}
