//! Relay: plans of GPUs that keep states on a disk, which bytes reach and leave through the memory of the host.

use zero_plan::lines::BLOCK_BYTES;
use zero_plan::{Home, Kind, PipelineStage, Plan, Stream, TierKind, TransportKind};

use crate::model::{
    Model, models_with_offloaded_activations, models_with_offloaded_parameters, models_with_offloaded_sums,
    offloaded_models,
};
use crate::tiers::assert_proven;

/// Models on GPUs that keep on a disk what processors keep there. Every third of them has every second of these states in the
/// memory of the host.
fn models() -> Vec<Model> {
    let all = [
        offloaded_models(),
        models_with_offloaded_sums(),
        models_with_offloaded_parameters(),
        models_with_offloaded_activations(),
    ];
    let on_gpus = |(at, model): (usize, Model)| {
        let mut model = model.on_gpus([TransportKind::Peer, TransportKind::Nccl][at % 2]);
        let offload = &mut model.config.offload;
        let states =
            [&mut offload.optimizer, &mut offload.gradients, &mut offload.parameters, &mut offload.activations];
        for (which, state) in states.into_iter().enumerate().filter(|_| at % 3 == 0) {
            *state = if *state == TierKind::Disk && which % 2 == at % 2 { TierKind::Host } else { *state };
        }
        model
    };
    all.concat().into_iter().enumerate().map(on_gpus).collect()
}

#[test]
fn plans_of_gpus_with_states_on_disk_are_proven() {
    let models = models();
    let tiers = [TierKind::Host, TierKind::Disk];
    let mixed = models.iter().filter(|model| tiers.iter().all(|&tier| model.config.offload.uses(tier)));
    assert!(mixed.count() > 3);
    assert_proven(models);
}

/// Parts of a trip follow one another from its start to its end, on both sides, and none is longer than a part of the relay.
#[test]
fn the_parts_of_a_trip_are_all_of_it() {
    let mut cut = 0;
    for model in models() {
        model.plan().with(|plan| {
            for stage in plan.pipeline_stages {
                let own = plan.places(plan.config.mesh.coordinates(0));
                for &op in stage.step {
                    let trips = || own.trips(op).filter(|(kept, _)| own.is_relayed(*kept));
                    for trip in trips() {
                        let (mut ends, parts) = ([trip.0.offset_bytes, trip.1.offset_bytes], own.relayed(trip));
                        for (number, part) in parts.enumerate() {
                            assert_eq!([part.0.offset_bytes, part.1.offset_bytes], ends);
                            let len = part.1.len_bytes;
                            assert!(part.0.len_bytes == len && len <= own.relay(Stream::Fetch, number).len_bytes);
                            assert!(len > 0 && len.is_multiple_of(BLOCK_BYTES));
                            ends = ends.map(|end| end + len);
                            cut += usize::from(number > 0);
                        }
                        assert_eq!(ends, [trip.0.end_bytes(), trip.1.end_bytes()]);
                    }
                    assert_eq!(
                        own.relayed_by(op).count(),
                        trips().map(|trip| own.relayed(trip).count()).sum::<usize>()
                    );
                }
            }
        });
    }
    assert!(cut > 10, "{cut} trips of several parts");
}

/// A block of counts, and two parts of a piece for each direction, in host memory; nothing on processors, or without a disk.
#[test]
fn a_relay_lies_in_host_memory() {
    let [on_disk, elsewhere] = [models(), models_with_offloaded_sums()];
    for model in on_disk.into_iter().chain(elsewhere) {
        model.plan().with(|plan| {
            let region = plan.pipeline_stages[0].memory.region(Kind::Relay);
            let has_one = plan.config.device.has_streams() && plan.config.offload.uses(TierKind::Disk);
            assert_eq!(region.bytes, if has_one { 4096 + 4 * 8192 } else { 0 });
            assert!(region.home == Home::Host || !has_one);
        });
    }
}

/// The plan with a relay that is a block shorter, or lies on the device.
#[test]
fn a_relay_without_room_is_refused() {
    let model = models().pop().expect("a model");
    model.plan().with(|plan| {
        let with = |change: fn(&mut zero_plan::Region)| {
            let mut stages: Vec<PipelineStage> = plan.pipeline_stages.to_vec();
            change(&mut stages[0].memory.regions[Kind::Relay as usize]);
            Plan { pipeline_stages: &stages, ..*plan }.check().expect_err("a relay in the wrong place").rule
        };
        let short = with(|region| region.bytes -= BLOCK_BYTES);
        assert_eq!(short, "parts of the relay that overlap, or lie beyond its room");
        let elsewhere = with(|region| (region.home, region.offset_bytes) = (Home::Private, 1 << 30));
        assert_eq!(elsewhere, "a region in a home that its readers cannot reach, or do not need");
    });
}
