//! Publications of GPUs: every event of theirs is needed, and no other pass may touch what goes on beside it.

use super::{PASSES, in_order, streams};
use crate::build::PlanBuf;
use crate::config::{Config, DeviceKind, Offload, Publish, TierKind, TransportKind, Width};
use crate::layout::Kind;
use crate::mesh::Mesh;

use crate::place::{Access, accesses};
use crate::plan::{PipelineStage, Plan};
use crate::schedule::Op;
use crate::streams::Queued;
use crate::unit::Unit;

const PUBLISH: Publish = Publish { dtype: Width::BF16, copies: 2 };
const DEVICE: DeviceKind = DeviceKind::Cuda;

fn plans(parameters: TierKind) -> Vec<PlanBuf> {
    let offload = Offload { parameters, piece_bytes: 8192, ..Offload::NONE };
    let plan = |transport: TransportKind| {
        let mesh = Mesh::of_zero(2);
        let config = Config { mesh, stage: 3, offload, device: DEVICE, transport, publish: PUBLISH, ..Config::PLAIN };
        let unit = |at| Unit { position: at, source: at, params: 900, takes: 900, output_bytes: 512, ..Unit::NONE };
        PlanBuf::new("Published", config, &(0..4).map(unit).collect::<Vec<_>>())
    };
    [TransportKind::Peer, TransportKind::Nccl].map(plan).into()
}

#[test]
fn every_event_of_a_publication_is_needed() {
    for (parameters, of_unit) in [(TierKind::Device, 1), (TierKind::Host, 3)] {
        for plan in plans(parameters) {
            plan.with(|plan: &Plan| {
                streams(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
                let stage = plan.pipeline_stages[0];
                let awaits = |at: &usize| stage.publication_queue[*at].waits_for().is_some();
                let events: Vec<usize> = (0..stage.publication_queue.len()).filter(awaits).collect();
                // Only the first fetch finds an empty slot.
                assert_eq!(events.len(), of_unit * plan.units.len() - usize::from(of_unit == 3));
                for at in events {
                    let mut queue = stage.publication_queue.to_vec();
                    queue[at] = Queued { after: None, ..queue[at] };
                    let without = [PipelineStage { publication_queue: &queue, ..stage }];
                    let flaw = streams(&Plan { pipeline_stages: &without, ..*plan });
                    assert!(flaw.is_err(), "without the event of {:?}", stage.publication[at]);
                }
            });
        }
    }
}

#[test]
fn a_step_that_touches_what_is_on_its_way_to_the_host_is_found() {
    for plan in plans(TierKind::Device) {
        plan.with(|plan| {
            for region in [Kind::PublishedWindow, Kind::Published] {
                let flaw = in_order(plan, &PASSES, &|plan, pass, op, position, at, visit| {
                    accesses(plan, pass, op, position, at, &mut |access: Access| {
                        let of_forward = matches!(op, Op::Forward { unit: 0, .. }) && access.writes;
                        visit(access);
                        if of_forward {
                            let own = plan.places(at);
                            let window = own.offered_to(3, 0);
                            let place = if region == window.region { window } else { own.published(3, 1) };
                            visit(Access { place, ..access });
                        }
                    });
                });
                let rule = flaw.expect_err("a forward that writes what goes on beside it").rule;
                assert!(
                    rule.starts_with(&format!("nothing orders two accesses to Place {{ region: {region:?},")),
                    "{rule}"
                );
            }
        });
    }
}
