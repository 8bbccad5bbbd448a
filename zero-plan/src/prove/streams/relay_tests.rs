//! The two directions of a relay have parts of their own: with those of the other one, nothing orders their accesses.

use super::{PASSES, in_order};
use crate::build::PlanBuf;
use crate::config::{Config, DeviceKind, Offload, TierKind, TransportKind};
use crate::layout::Kind;
use crate::lines::BLOCK_BYTES;
use crate::mesh::Mesh;
use crate::place::{Access, Place, accesses};
use crate::unit::Unit;

#[test]
fn parts_of_a_relay_that_both_directions_use_are_found() {
    let disk = TierKind::Disk;
    let kept = |gradients, activations| Offload { optimizer: disk, gradients, activations, ..Offload::NONE };
    for offload in [kept(TierKind::Device, TierKind::Host), kept(disk, TierKind::Device), kept(disk, disk)] {
        let offload = Offload { piece_bytes: 8192, ..offload };
        let (device, transport) = (DeviceKind::Cuda, TransportKind::Peer);
        let config = Config { mesh: Mesh::of_zero(2), stage: 3, offload, device, transport, ..Config::PLAIN };
        let unit = |at| Unit { position: at, source: at, params: 9000, takes: 9000, output_bytes: 512, ..Unit::NONE };
        let units: Vec<Unit> = (0..6).map(unit).collect();
        PlanBuf::new("Relayed", config, &units).with(|plan| {
            in_order(plan, &PASSES, &accesses).unwrap_or_else(|flaw| panic!("{flaw}"));
            let flaw = in_order(plan, &PASSES, &|plan, pass, op, position, at, visit| {
                accesses(plan, pass, op, position, at, &mut |access: Access| {
                    let place = access.place;
                    let start = (place.offset_bytes.wrapping_sub(BLOCK_BYTES)) % (2 * 8192) + BLOCK_BYTES;
                    let of_fetches = Place { offset_bytes: start, ..place };
                    visit(if place.region == Kind::Relay { Access { place: of_fetches, ..access } } else { access });
                });
            });
            let rule = flaw.expect_err("both directions in the same parts").rule;
            assert!(rule.starts_with("nothing orders two accesses to Place { region: Relay"), "{rule}");
        });
    }
}
