//! Relayout: ranks of any plan can load the checkpoint that ranks of another plan of the same units have written, and
//! going there and back changes nothing. Elements are numbers here. Never reads a file.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use zero_plan::place::{Place, Places, State, Stretch};
use zero_plan::reshard::{Mismatch, RunSource, Wanted, intersection, prove};
use zero_plan::{Plan, Unit};

use crate::model::{pairs, small_models};
use crate::properties::cases;

/// Where the tensors of units lie in their flat buffers: unit, start, length.
#[derive(Clone, Debug)]
struct Tensors(Vec<(usize, usize, usize)>);

impl Tensors {
    /// Cuts the parameters of each unit at some of `cuts`.
    fn new(units: &[Unit], cuts: &[Index]) -> Self {
        let mut tensors = Vec::new();
        for (unit, &Unit { params, .. }) in units.iter().enumerate().filter(|(_, unit)| unit.params > 0) {
            let mut starts: Vec<usize> = cuts.iter().skip(unit % 2).map(|cut| cut.index(params)).collect();
            starts.extend([0, params]);
            starts.sort_unstable();
            starts.dedup();
            tensors.extend(starts.windows(2).map(|pair| (unit, pair[0], pair[1] - pair[0])));
        }
        Self(tensors)
    }

    fn lens(&self) -> Vec<usize> {
        self.0.iter().map(|tensor| tensor.2).collect()
    }

    /// The runs of tensors in a stretch of the flat buffer of a unit: the tensor, its first element, the length, and
    /// the place in the buffer. Padding has no runs.
    fn runs(&self, unit: usize, stretch: Stretch) -> Vec<[usize; 4]> {
        let tensors = self.0.iter().enumerate().filter(|(_, tensor)| tensor.0 == unit);
        let runs = tensors.filter_map(|(i, &(_, start, len))| {
            let (first, end) = (start.max(stretch.start), (start + len).min(stretch.start + stretch.len));
            (first < end).then(|| [i, first - start, end - first, first])
        });
        runs.collect()
    }

    /// The number that stands for an element of a tensor.
    fn number(&self, tensor: usize, element: usize) -> u64 {
        ((tensor as u64) << 32) + element as u64
    }
}

/// The elements of a state that each rank stores: unit and element of its flat buffer, and the number there.
type Stored = Vec<BTreeMap<(usize, usize), u64>>;

fn ranks<'a>(plan: &'a Plan) -> Vec<Places<'a>> {
    (0..plan.config.mesh.ranks()).map(|rank| plan.places(plan.config.mesh.coordinates(rank))).collect()
}

/// The stretches of a state that a rank stores or writes, unit by unit.
fn stretches<'a>(
    plan: &'a Plan,
    of: impl Fn(usize) -> Option<(Stretch, Place)> + 'a,
) -> impl Iterator<Item = (usize, Stretch)> + 'a {
    (0..plan.units.len()).filter_map(move |unit| of(unit).map(|(stretch, _)| (unit, stretch)))
}

/// The runs of a state that a rank stores. A mirror consists of its owner's tensors.
fn wanted(plan: &Plan, tensors: &Tensors, places: Places, state: State) -> Vec<Wanted> {
    let stored = stretches(plan, |unit| places.state(state, unit));
    let runs = stored.flat_map(|(unit, stretch)| {
        let runs = tensors.runs(plan.units[unit].source, stretch).into_iter();
        runs.map(move |[tensor, start, len, at]| Wanted { tensor, start, len, unit, at })
    });
    runs.collect()
}

/// The elements that are to be stored.
fn truth(plan: &Plan, tensors: &Tensors, state: State) -> Stored {
    let of_rank = |places: Places| {
        let runs = wanted(plan, tensors, places, state).into_iter();
        runs.flat_map(|w| (0..w.len).map(move |i| ((w.unit, w.at + i), tensors.number(w.tensor, w.start + i))))
            .collect()
    };
    ranks(plan).into_iter().map(of_rank).collect()
}

/// The files that ranks write, one for each rank, and the place of each run of a tensor in them.
fn save(plan: &Plan, tensors: &Tensors, state: State, stored: &Stored) -> (Vec<RunSource>, Vec<Vec<u64>>) {
    let mut sources = Vec::new();
    let files = ranks(plan).into_iter().enumerate().map(|(file, places)| {
        let mut written = Vec::new();
        for (unit, stretch) in stretches(plan, |unit| places.checkpointed(state, unit)) {
            for [tensor, start, len, at] in tensors.runs(unit, stretch) {
                sources.push(RunSource { tensor, start, len, file, offset_bytes: 8 * written.len() as u64 });
                written.extend((0..len).map(|i| stored[file][&(unit, at + i)]));
            }
        }
        written
    });
    let files = files.collect();
    (sources, files)
}

/// The elements that ranks of a plan store after they have read these files.
fn load(
    plan: &Plan,
    tensors: &Tensors,
    state: State,
    (sources, files): &(Vec<RunSource>, Vec<Vec<u64>>),
) -> Result<Stored, Mismatch> {
    let of_rank = |places: Places| {
        let wanted = wanted(plan, tensors, places, state);
        let moves = intersection(&tensors.lens(), sources, &wanted)?;
        prove(&tensors.lens(), sources, &wanted, &moves)?;
        let mut stored = BTreeMap::new();
        for moved in moves {
            let (from, to) = (sources[moved.source], wanted[moved.wanted]);
            let first = from.offset_bytes as usize / 8 + moved.from;
            for i in 0..moved.len {
                let last = stored.insert((to.unit, to.at + moved.to + i), files[from.file][first + i]);
                assert_eq!(last, None, "a place is filled twice");
            }
        }
        Ok(stored)
    };
    ranks(plan).into_iter().map(of_rank).collect()
}

/// The states that both plans have.
fn states(a: &Plan, b: &Plan) -> impl Iterator<Item = State> {
    let has_master = [a, b].iter().all(|plan| plan.config.precision.has_master_copy());
    State::ALL.into_iter().filter(move |&state| state != State::Master || has_master)
}

fn there_and_back(a: &Plan, b: &Plan, cuts: &[Index]) -> Result<(), Mismatch> {
    let tensors = Tensors::new(a.units, cuts);
    for state in states(a, b) {
        let stored = truth(a, &tensors, state);
        let there = load(b, &tensors, state, &save(a, &tensors, state, &stored))?;
        assert_eq!(there, truth(b, &tensors, state), "{state:?} of another plan");
        let back = load(a, &tensors, state, &save(b, &tensors, state, &there))?;
        assert_eq!(back, stored, "{state:?} there and back");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn states_of_any_plan_are_those_of_any_other((a, b) in pairs(12), cuts in vec(any::<Index>(), 0..4)) {
        a.plan().with(|a| b.plan().with(|b| there_and_back(a, b, &cuts)))?;
    }
}

#[test]
fn states_of_plans_with_every_axis_and_stage_move_both_ways() {
    let models = small_models();
    let mut moved = 0;
    for (i, a) in models.iter().enumerate() {
        for b in models.iter().skip(i % 7).step_by(7) {
            let same = |unit: &Unit| (unit.params, unit.source);
            if a.units.iter().map(same).eq(b.units.iter().map(same)) {
                a.plan().with(|a| b.plan().with(|b| there_and_back(a, b, &[]))).unwrap();
                moved += 1;
            }
        }
    }
    assert!(moved > models.len(), "{moved} pairs");
}
