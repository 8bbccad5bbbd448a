//! What a device asks of a plan: where places may begin, how long mappings are, whether its ops run in streams. Never
//! decides an order.

use super::{Config, DeviceKind};
use crate::lines::{ALIGNMENT, LINE_BYTES, PAGE_BYTES, round_up};

/// The largest alignment that loads of a GPU and its libraries ask for, in bytes.
const SEGMENT_BYTES: usize = 256;
/// Elements of the narrowest width that fill such a stretch.
const SEGMENT_ELEMENTS: usize = SEGMENT_BYTES / 2;
/// Memory of a GPU is mapped in whole multiples of this.
const GRANULE_BYTES: usize = 2 << 20;
/// Room in which a library of matrix products may split sums, in bytes.
const PRODUCT_BYTES: usize = 32 << 20;

impl DeviceKind {
    /// Bytes of which every place and region begins at a multiple.
    pub const fn line_bytes(self) -> usize {
        match self {
            DeviceKind::Cpu => LINE_BYTES,
            DeviceKind::Cuda => SEGMENT_BYTES,
        }
    }

    /// Elements of which the parts of a flat buffer are whole multiples.
    pub const fn alignment(self) -> usize {
        match self {
            DeviceKind::Cpu => ALIGNMENT,
            DeviceKind::Cuda => SEGMENT_ELEMENTS,
        }
    }

    /// Bytes of which the mappings of its memory are whole multiples.
    pub const fn page_bytes(self) -> usize {
        match self {
            DeviceKind::Cpu => PAGE_BYTES,
            DeviceKind::Cuda => GRANULE_BYTES,
        }
    }

    /// Bytes in which its library of matrix products works, besides the workspace of a layer.
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

    /// Whether it does the ops of a rank behind the host's back, in [streams](crate::Stream).
    pub const fn has_streams(self) -> bool {
        matches!(self, DeviceKind::Cuda)
    }
}

impl Config {
    /// So many bytes, and the rest of the last line.
    pub const fn whole_lines(&self, bytes: usize) -> usize {
        round_up(bytes, self.device.line_bytes())
    }

    /// Whether ops have streams. There a gather copies as soon as its slot is free, and a wait only makes layers wait for that;
    /// without streams, a wait is what copies.
    pub const fn has_streams(&self) -> bool {
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

    /// Sizes that are no multiple of anything, numbers of two bytes, and every axis.
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
