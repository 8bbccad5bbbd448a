//! Publish: copies of parameters for readers: what ranks offer, where it lies, and publications with one fault that are refused.

use zero_plan::place::{Access, Content, Position, State, accesses};
use zero_plan::{
    Config, DeviceKind, Home, Kind, Mesh, Offload, Op, Pass, Plan, Publish, TierKind, TransportKind, UpdateTime, Width,
    prove, prove_accesses, prove_ranks,
};

use crate::model::{
    Model, ON_DISK, at_use, config, mesh, models_with_offloaded_parameters, offloaded_models, precision, small_models,
};
use crate::mutants::Edit;
use crate::tiers::{edits, on_gpus};

/// Two copies in bf16.
pub const IN_BF16: Publish = Publish { dtype: Width::BF16, copies: 2 };

fn published(models: Vec<Model>, publish: Publish) -> Vec<Model> {
    let published = models.into_iter().map(|model| Model { config: Config { publish, ..model.config }, ..model });
    published.filter(|model| model.config.can_publish()).collect()
}

/// All kinds of plans that can publish.
fn models() -> Vec<Model> {
    let tiers = [offloaded_models(), models_with_offloaded_parameters()].concat();
    let transports = [TransportKind::Peer, TransportKind::Nccl];
    let of_gpus = [small_models(), tiers.clone()].concat().into_iter();
    let of_gpus = of_gpus.flat_map(|model| transports.map(|transport| on_gpus(model.clone(), transport)));
    let of_gpus = of_gpus.filter(|model| model.config.mesh.ranks() > 1);
    let all = [small_models(), tiers.clone(), at_use(tiers), of_gpus.collect()].concat();
    let in_f32 = Publish { dtype: Width::F32, copies: 1 };
    [published(all.clone(), IN_BF16), published(all, in_f32)].concat()
}

/// Every plan is proven, and ranks together offer every parameter once, from the state that has its bits.
#[test]
fn ranks_offer_every_parameter_once() {
    let (mut masters, mut fetched) = (0, 0);
    for model in models() {
        model.plan().with(|plan| {
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {:?}", plan.config));
            assert_eq!(plan.check(), Ok(()));
            let mesh = &plan.config.mesh;
            for (unit, placement) in plan.placements.iter().enumerate() {
                let mut offered = vec![0; placement.padded];
                for at in (0..mesh.ranks()).map(|rank| mesh.coordinates(rank)) {
                    let stretch = plan.places(at).offered(unit);
                    stretch.into_iter().for_each(|it| offered[it.elements()].iter_mut().for_each(|times| *times += 1));
                }
                let times = usize::from(plan.units[unit].params > 0);
                assert!(offered.iter().all(|&it| it == times), "{unit}: {:?}", plan.config);
            }
            for stage in plan.pipeline_stages {
                let is_offer = |op: &&Op| matches!(op, Op::Offer { .. });
                let held = (0..plan.units.len()).filter(|&unit| plan.units[unit].params > 0);
                let own = held
                    .filter(|&unit| core::ptr::eq(&plan.pipeline_stages[plan.placements[unit].pipeline_stage], stage));
                assert_eq!(stage.publication.iter().filter(is_offer).count(), own.count());
                fetched += stage.publication.iter().filter(|op| matches!(op, Op::FetchShard { .. })).count();
            }
            masters += usize::from(plan.places(mesh.coordinates(0)).published_state() == State::Master);
            // The copies are a rank's share of the parameters, in the type in which they are published.
            let region = plan.pipeline_stages[0].memory.region(Kind::Published);
            let owned: usize = (0..plan.units.len())
                .filter(|&unit| plan.units[unit].params > 0 && plan.placements[unit].pipeline_stage == 0)
                .map(|unit| plan.placements[unit].padded)
                .sum();
            let Publish { dtype, copies } = plan.config.publish;
            let line = plan.config.device.line_bytes();
            let copy = (owned / mesh.data_ranks() * dtype.bytes()).next_multiple_of(line);
            let window = plan.pipeline_stages[0].memory.region(Kind::PublishedWindow);
            if plan.config.device.has_streams() {
                assert_eq!((region.home, region.bytes), (Home::Host, copies * copy + line));
                assert_eq!((window.home, window.bytes), (Home::Private, copy));
            } else {
                assert_eq!((region.home, region.bytes, window.bytes), (Home::Private, copies * copy, 0));
            }
        });
    }
    assert!(masters > 0 && fetched > 0, "{masters}, {fetched}");
}

/// A plan that publishes nothing has no ops for it, and no room.
#[test]
fn a_plan_that_publishes_nothing_pays_nothing() {
    for model in small_models() {
        model.plan().with(|plan| {
            assert!(plan.pipeline_stages.iter().all(|stage| stage.publication.is_empty()));
            assert!(plan.pipeline_stages.iter().all(|stage| stage.memory.region(Kind::Published).bytes == 0));
            let text = serde_json::to_string(plan).expect("a plan");
            assert!(!text.contains("ublish") && !text.contains("publication"), "{text}");
        });
    }
}

/// A publication without an op, with one more, with another in its place, or with two exchanged. Accepted are exchanges that leave
/// every unit its update before its fetch and its offer, and every slot its shards.
#[test]
fn a_fault_in_a_publication_is_found() {
    let (mut refused, mut accepted) = (0, 0);
    let shards = Offload { parameters: TierKind::Disk, piece_bytes: 8192, ..Offload::NONE };
    let later = |parameters| Offload { parameters, update: UpdateTime::AtUse, prefetch: 0, ..ON_DISK };
    let on_processors = [Offload::NONE, shards, later(TierKind::Device), later(TierKind::Disk)];
    let on_processors = on_processors.map(|offload| (DeviceKind::Cpu, TransportKind::Shm, offload));
    let shards = Offload { parameters: TierKind::Host, ..shards };
    let on_gpus = [Offload::NONE, shards].map(|offload| (DeviceKind::Cuda, TransportKind::Peer, offload));
    for (device, transport, offload) in on_processors.into_iter().chain(on_gpus) {
        let mesh = mesh(1, 1, 1);
        let config = Config { device, transport, mesh, offload, prefetch: 1, publish: IN_BF16, ..config(3) };
        Model::new(config, &[9000, 7, 0, 70], None).plan().with(|plan| {
            let ops = plan.pipeline_stages[0].publication;
            let all = edits(plan, ops, |op| op.class() == Op::Offer { unit: 0 }.class() || op.traits().piece.is_some());
            let offers = (0..plan.units.len()).flat_map(|unit| {
                [Op::Offer { unit }, Op::StoreOffered { unit }].into_iter().flat_map(|op| {
                    (0..=ops.len()).flat_map(move |at| [Edit::Insert(at, op), Edit::Replace(at.min(ops.len() - 1), op)])
                })
            });
            for edit in all.into_iter().chain(offers).filter(|edit| edit.apply(ops) != ops) {
                let edited = edit.apply(ops);
                if prove_ranks(plan, Pass::Publish, &[&edited]).is_err() {
                    refused += 1;
                    continue;
                }
                accepted += 1;
                assert!(matches!(edit, Edit::Swap(..)), "{edit:?}: {ops:?}");
                let at = |op: Op| edited.iter().rposition(|&other| other == op);
                for unit in (0..plan.units.len()).filter(|&unit| plan.units[unit].params > 0) {
                    let updated =
                        edited.iter().rposition(|op| matches!(op, Op::Update { unit: of, .. } if *of == unit));
                    let fetched =
                        edited.iter().position(|op| matches!(op, Op::FetchShard { unit: of, .. } if *of == unit));
                    let offered = at(Op::Offer { unit });
                    let stored = at(Op::StoreOffered { unit });
                    assert!(stored.is_some() == (device == DeviceKind::Cuda) && (stored.is_none() || offered < stored));
                    assert!(
                        updated < offered && fetched < offered && (fetched.is_none() || updated < fetched),
                        "{edited:?}"
                    );
                }
            }
        });
    }
    assert!(refused > 500 && accepted < 100, "{refused}, {accepted}");
}

/// Calls back with the accesses of a plan in which those of offers are changed.
fn changed(
    change: impl Fn(&mut Access),
) -> impl Fn(&Plan, Pass, Op, &Position, zero_plan::Coordinates, &mut dyn FnMut(Access)) {
    move |plan, pass, op, position, at, visit| {
        accesses(plan, pass, op, position, at, &mut |mut access| {
            if let Op::Offer { .. } = op {
                change(&mut access);
            }
            visit(access);
        });
    }
}

/// An offer that reads other bytes, the parameters of before the step, or writes another place than its own is refused.
#[test]
fn an_offer_of_other_bytes_is_found() {
    let config =
        Config { mesh: Mesh::of_zero(2), publish: IN_BF16, precision: precision(Width::F32, Width::F32), ..config(3) };
    Model::new(config, &[90, 70, 80], None).plan().with(|plan| {
        assert_eq!(prove_accesses(plan, &changed(|_| {})), Ok(()));
        let is_copy = |access: &Access| matches!(access.content, Content::Published { .. });
        let moved = |bytes: usize, of_copy: bool| {
            changed(move |access: &mut Access| {
                if is_copy(access) == of_copy {
                    access.place.offset_bytes += bytes;
                }
            })
        };
        for of_copy in [false, true] {
            assert!(prove_accesses(plan, &moved(64, of_copy)).is_err(), "{of_copy}");
        }
        let stale = changed(|access| {
            if let Content::Parameters { is_updated, .. } = &mut access.content {
                *is_updated = false;
            }
        });
        assert!(prove_accesses(plan, &stale).is_err());
        // Every unit over the first.
        let into_other = changed(move |access| {
            if is_copy(access) {
                access.place.offset_bytes = 0;
            }
        });
        assert!(prove_accesses(plan, &into_other).is_err());
    });
}
