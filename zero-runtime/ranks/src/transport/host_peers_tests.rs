//! Tests which ranks an op waits for if a rank receives data of other hosts for all ranks of its host.

use std::sync::Arc;
use std::time::Duration;

use zero_plan::{Axis, Config, Mesh, PlanBuf, TransportKind, Unit};

use super::*;
use crate::transport::control::sleeps_of;
use zero_core::arena::{Arena, segment_bytes};
use zero_core::device::Segment;
use zero_cpu::Cpu;

/// Parts of a sum arrive at a rank's host peer as well as at the rank itself: the part from its own counterpart is not
/// enough to read on.
#[test]
fn a_sum_is_whole_only_once_all_of_other_hosts_have_joined() {
    let mesh = Mesh { nodes: 2, zero: 1, replica: 4, ..Mesh::of_zero(1) };
    let config = Config { mesh, transport: TransportKind::Cluster, prefetch: 1, ..Config::PLAIN };
    let unit = Unit { field: "only", params: 64, takes: 64, input_bytes: 16, output_bytes: 16, ..Unit::NONE };
    PlanBuf::new("One", config, &[unit]).with(|plan| {
        let segment = Arc::new(Segment::private(segment_bytes(plan, 0)).expect("memory"));
        let arena = Arena::new(plan, 0, segment, Cpu::ONE_THREAD, None).expect("an arena");
        let mut transport = Shared::new(arena);
        Arc::make_mut(&mut transport.watchdog).sleeps_max = sleeps_of(Duration::from_millis(1));
        for rank in [1, 2] {
            transport.control(rank).signal(Count::Joined).raise();
        }
        let lost = transport.join(&Cpu::ONE_THREAD, Axis::Replica).expect_err("rank 3 has not joined");
        assert!(matches!(&lost, Lost::Silent(silent) if silent.rank == 3), "{lost:?}");
    });
}
