//! Names: of constants, so that no two have the same and each is read as what it is. Never knows places.

use std::collections::HashSet;

use zero_plan::{Home, Kind, Op, Plan};

/// The constants of the units that a pipeline stage has, or names in its ops.
pub(super) struct Names(Vec<Option<String>>);

impl Names {
    pub(super) fn of(plan: &Plan, pipeline: usize) -> Self {
        let stage = &plan.pipeline_stages[pipeline];
        let ops = || stage.step.iter().chain(stage.evaluation);
        let named: HashSet<usize> = ops().filter_map(|op: &Op| op.traits().unit).collect();
        let mut taken: HashSet<String> = Kind::ALL.map(of_region).into_iter().chain(Home::ALL.map(of_home)).collect();
        let name = |unit: usize| {
            let is_here = plan.placements[unit].pipeline_stage == pipeline || named.contains(&unit);
            is_here.then(|| {
                let mut name = constant(&plan.units[unit].to_string());
                // A field may have the name of a slot or a bucket, of a region, or of an element of another field.
                if ["SLOT_", "SHARD_", "ACTIVATIONS_", "BUCKET_", "WINDOW_"].iter().any(|other| name.starts_with(other))
                {
                    name.push_str("_UNIT");
                }
                while !taken.insert(name.clone()) {
                    name.push('_');
                }
                name
            })
        };
        Self((0..plan.units.len()).map(name).collect())
    }

    /// The units that have one.
    pub(super) fn units(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|&unit| self.0[unit].is_some())
    }

    /// The constant of a unit.
    pub(super) fn unit(&self, unit: usize) -> &str {
        self.0[unit].as_deref().expect("a unit of this pipeline stage")
    }
}

/// The constant with the bytes of a home.
pub(super) fn of_home(home: Home) -> String {
    format!("{}_BYTES", home.name().to_uppercase())
}

/// The constant of a region.
pub(super) fn of_region(kind: Kind) -> String {
    let name = format!("{kind:?}");
    let word =
        |(at, letter): (usize, char)| if at > 0 && letter.is_uppercase() { vec!['_', letter] } else { vec![letter] };
    name.chars().enumerate().flat_map(word).collect::<String>().to_uppercase()
}

/// `BLOCKS_3` for `blocks[3]`.
fn constant(unit: &str) -> String {
    unit.replace('[', "_").replace(']', "").replace("r#", "").to_uppercase()
}
