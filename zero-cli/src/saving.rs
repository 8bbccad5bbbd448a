//! Saving: how long a checkpoint takes at the rates of each node's disk. Never measures, and ignores what training does
//! meanwhile.

use std::fmt;

use zero_plan::{Bytes, Plan};
use zero_study::hardware::DiskRates;
use zero_study::simulate::ShownTime;

/// Times of a checkpoint of a plan on a disk.
#[derive(Debug, PartialEq)]
pub struct CheckpointTimes {
    /// Bytes written by the node that writes most.
    bytes: usize,
    disk: DiskRates,
}

impl CheckpointTimes {
    /// The times for a plan, whose ranks each write and read their own part.
    pub fn of(plan: &Plan, disk: DiskRates) -> Self {
        let mesh = &plan.config.mesh;
        let of_node = |node: usize| {
            let ranks = node * mesh.ranks_per_node()..(node + 1) * mesh.ranks_per_node();
            ranks.map(|rank| plan.places(mesh.coordinates(rank)).checkpoint_bytes()).sum()
        };
        Self { bytes: (0..mesh.nodes).map(of_node).max().unwrap_or(0), disk }
    }
}

impl fmt::Display for CheckpointTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, disk: DiskRates { read, write, .. } } = *self;
        let time = |rate: f64| ShownTime(bytes as f64 / rate);
        write!(
            f,
            "checkpoint: at the rates of its disk, a node writes {} in {}, and reads it in {}",
            Bytes(bytes),
            time(write),
            time(read)
        )
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::{Config, Mesh, PlanBuf, Unit};

    use super::*;

    #[test]
    fn nodes_write_all_states_once_and_together() {
        let units = [Unit { params: 1024, takes: 1024, ..Unit::NONE }];
        let disk = DiskRates { read: 4e3, write: 2e3, direct: None, endurance: None };
        let bytes = |mesh| {
            let config = Config { mesh, stage: 2, ..Config::PLAIN };
            PlanBuf::new("One", config, &units).with(|plan| CheckpointTimes::of(plan, disk)).bytes
        };
        // Parameters and two moments in f32.
        let all = 3 * 4 * 1024;
        assert_eq!(bytes(Mesh::of_zero(1)), all);
        assert_eq!(bytes(Mesh { replica: 2, ..Mesh::of_zero(2) }), all);
        assert_eq!(bytes(Mesh { nodes: 2, ..Mesh::of_zero(4) }), all / 2);
        let saving = CheckpointTimes { bytes: all, disk }.to_string();
        assert_eq!(
            saving,
            "checkpoint: at the rates of its disk, a node writes 12.0 KiB in 6.14 s, and reads it in 3.07 s"
        );
    }
}
