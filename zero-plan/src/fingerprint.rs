//! Fingerprint: a short hash that is the same in every build, with every compiler and on every machine. Never depends
//! on the layout of a value in memory: values are hashed as JSON.

use serde::Serialize;

/// A fingerprint of a sequence of bytes: the first 8 bytes of their BLAKE3 hash.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// The fingerprint of a value. Different values have different fingerprints.
    ///
    /// # Panics
    /// If the value cannot be written as JSON, such as a map whose keys are not text.
    pub fn of(value: &impl Serialize) -> u64 {
        let mut all = Self::default();
        serde_json::to_writer(&mut all.0, value).expect("a value that JSON can hold");
        all.finish()
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The fingerprint of all bytes so far.
    pub fn finish(&self) -> u64 {
        let mut first = [0; 8];
        self.0.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::{Config, OptimizerKind};
    use crate::mesh::Mesh;
    use crate::unit::{OrthogonalCost, Unit};

    /// The fingerprints were computed once. If a change that should not affect plans makes this fail, checkpoints of a
    /// plan would be taken for those of another.
    #[test]
    fn a_plan_keeps_its_fingerprint() {
        assert_eq!(Fingerprint::of(&("zero", 3, [0.5])), 2438068349046133480);
        let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN.at_stage(3) };
        let unit = Unit { field: "only", params: 8, takes: 8, input_bytes: 16, output_bytes: 16, ..Unit::NONE };
        let plan = PlanBuf::new("Tiny", config, &[unit, Unit { source: 1, position: 1, ..unit }]);
        assert_eq!(plan.with(|plan| plan.fingerprint()), 10259427721849902999);
        // Matrices have no effect if AdamW updates them.
        let unit = Unit { matrices: OrthogonalCost { room_bytes: 64, operations: 9, operations_max: 9 }, ..unit };
        let of = |config| {
            let plan = PlanBuf::new("Tiny", config, &[unit, Unit { source: 1, position: 1, ..unit }]);
            plan.with(|plan| plan.fingerprint())
        };
        assert_eq!(of(config), 10259427721849902999);
        assert_ne!(of(Config { optimizer: OptimizerKind::Muon, ..config }), 10259427721849902999);
    }

    #[test]
    fn pieces_do_not_matter() {
        let (mut one, mut two) = (Fingerprint::default(), Fingerprint::default());
        one.add(b"abc");
        two.add(b"a");
        assert_ne!(one.finish(), two.finish());
        two.add(b"bc");
        assert_eq!(one.finish(), two.finish());
    }
}
