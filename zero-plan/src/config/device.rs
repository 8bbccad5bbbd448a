//! What a device requires of a plan: where places may begin, how long mappings are, and whether its ops run in streams.
//! Never decides an order.

use super::{Config, DeviceKind};
use crate::lines::{ALIGNMENT, LINE_BYTES, PAGE_BYTES, round_up};

/// The largest alignment that a GPU's loads and libraries need, in bytes.
const SEGMENT_BYTES: usize = 256;
/// The number of elements of the narrowest width in such a segment.
const SEGMENT_ELEMENTS: usize = SEGMENT_BYTES / 2;
/// GPU memory is mapped in multiples of this.
const GRANULE_BYTES: usize = 2 << 20;
/// Workspace in which a library of matrix products may split sums, in bytes.
const PRODUCT_BYTES: usize = 32 << 20;

impl DeviceKind {
    /// Every place and region begins at a multiple of this many bytes.
    pub const fn line_bytes(self) -> usize {
        match self {
            DeviceKind::Cpu => LINE_BYTES,
            DeviceKind::Cuda => SEGMENT_BYTES,
        }
    }

    /// The parts of a flat buffer are multiples of this many elements.
    pub const fn alignment(self) -> usize {
        match self {
            DeviceKind::Cpu => ALIGNMENT,
            DeviceKind::Cuda => SEGMENT_ELEMENTS,
        }
    }

    /// Mappings of its memory are multiples of this many bytes.
    pub const fn page_bytes(self) -> usize {
        match self {
            DeviceKind::Cpu => PAGE_BYTES,
            DeviceKind::Cuda => GRANULE_BYTES,
        }
    }

    /// Workspace of its library of matrix products, in bytes, in addition to that of a layer.
    pub const fn product_bytes(self) -> usize {
        match self {
            DeviceKind::Cpu => 0,
            DeviceKind::Cuda => PRODUCT_BYTES,
        }
    }

    /// Whether its memory is that of its host.
    pub const fn is_host(self) -> bool {
        matches!(self, DeviceKind::Cpu)
    }

    /// Whether it runs the ops of a rank asynchronously, in [streams](crate::Stream).
    pub const fn has_streams(self) -> bool {
        matches!(self, DeviceKind::Cuda)
    }
}

impl Config {
    /// This many bytes, rounded up to whole lines.
    pub const fn whole_lines(&self, bytes: usize) -> usize {
        round_up(bytes, self.device.line_bytes())
    }

    /// Whether the plan has queues: some ops run while a rank goes on with the next ones.
    pub const fn has_queues(&self) -> bool {
        self.device.has_streams() || self.offloads()
    }

    /// Whether a gather copies as soon as its slot is free, and a wait only makes layers wait for that copy. Otherwise
    /// the wait copies.
    pub const fn gathers_early(&self) -> bool {
        self.device.has_streams()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::{Precision, Recompute, TransportKind, Width};
    use crate::layout::Home;
    use crate::mesh::Mesh;
    use crate::pipeline::Pass;
    use crate::place::{Position, accesses};
    use crate::unit::Unit;

    /// Odd sizes, numbers of two bytes, and every axis.
    #[test]
    fn whatever_a_gpu_touches_begins_on_one_of_its_lines() {
        let mesh = Mesh { pipeline: 2, replica: 3, ..Mesh::of_zero(2) };
        let narrow =
            Precision { compute: Width::BF16, params: Width::BF16, reduce: Width::BF16, ..Precision::default() };
        let cuda = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..Config::PLAIN };
        let config = Config { mesh, micro_batches: 3, snapshot: true, bucket_bytes: 1, precision: narrow, ..cuda };
        let unit =
            Unit { takes: 77, saved_bytes: 61, workspace_bytes: 5, input_bytes: 21, output_bytes: 21, ..Unit::NONE };
        let units: [Unit; 5] = [0, 1, 2, 3, 4].map(|source| Unit { source, params: 77 + source, ..unit });
        let transports = [TransportKind::Peer, TransportKind::Nccl];
        for (stage, transport) in (0..=3).flat_map(|stage| transports.map(|transport| (stage, transport))) {
            let config = Config { recompute: Recompute::Every(2), prefetch: 1, transport, ..config.at_stage(stage) };
            PlanBuf::new("Odd", config, &units).with(|plan| {
                for rank in 0..mesh.ranks() {
                    let (pipeline_stage, mut position) = (plan.of_rank(rank), Position::new(units.len()));
                    for &op in pipeline_stage.step {
                        accesses(plan, Pass::Train, op, &position, mesh.coordinates(rank), &mut |access| {
                            assert_eq!(access.place.offset_bytes % 256, 0, "{op:?}: {access:?}");
                        });
                        position.pass(op);
                    }
                    for region in pipeline_stage.memory.regions {
                        assert_eq!(region.offset_bytes % 256, 0, "{region:?}");
                        assert_ne!(region.home, Home::Common);
                    }
                    let products = plan.places(mesh.coordinates(rank)).product_workspace();
                    assert_eq!((products.len_bytes, products.offset_bytes % 256), (32 << 20, 0));
                }
                let on_cpu = Config { device: DeviceKind::Cpu, transport: TransportKind::Local, ..config };
                let product_bytes = PlanBuf::new("Odd", on_cpu, &units)
                    .with(|plan| plan.places(mesh.coordinates(0)).product_workspace().len_bytes);
                assert_eq!(product_bytes, 0);
            });
        }
    }
}
