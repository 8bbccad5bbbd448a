//! Operations: a timeline for no particular machine. Computation takes as long as it has operations, and everything
//! else takes no time, so the timeline shows the order of a schedule, and its bubble. Never simulates by itself.

use zero_plan::Plan;
use zero_plan::spec::Size;

use crate::hardware::{
    DeviceFigures, DirectRates, DiskRates, Hardware, HostLink, Link, Network, Node, Processor, Rates,
};
use crate::simulate::{Impossible, Timeline, simulate_with};

/// The timeline of a training step, with an operation in place of each second.
///
/// # Errors
/// Never: this hardware has everything that a mesh can need.
pub fn operations(plan: &Plan) -> Result<Timeline, Impossible> {
    simulate_with(plan, &free(plan), 1)
}

/// Hardware on which an operation takes a second, and nothing else takes any time.
fn free(plan: &Plan) -> Hardware {
    let (bandwidth, latency) = (f64::INFINITY, 0.0);
    let direct = DirectRates { read: bandwidth, write: bandwidth, both: None, latency };
    let host_link = HostLink { read: bandwidth, write: bandwidth, both: None, latency, shared_by: 1 };
    Hardware {
        name: String::new(),
        device: DeviceFigures {
            name: String::new(),
            kind: Processor::Gpu,
            memory: Size::default(),
            reserved: Size::default(),
            matmul: Rates { f32: 1.0, bf16: 1.0 },
            achieved: 1.0,
            attention: None,
            bandwidth,
            sums: None,
            op: 0.0,
        },
        node: Node {
            devices: plan.config.mesh.ranks_per_node(),
            link: Some(Link { bandwidth, latency, shared_by: 1 }),
            memory: None,
            host_link: Some(host_link),
            host_updates: Some(bandwidth * plan.config.mesh.ranks_per_node() as f64),
            disk: Some(DiskRates { read: bandwidth, write: bandwidth, direct: Some(direct), endurance: None }),
            handover: None,
        },
        network: Some(Network { bandwidth, latency, links: 1 }),
        measured: Vec::new(),
    }
}
