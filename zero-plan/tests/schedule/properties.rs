//! Properties: what is true of the plan of every model.

use proptest::prelude::*;
use zero_plan::{TransportKind, prove};

use crate::model::models;
use crate::simulator::{Pace, simulate};

pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn every_plan_passes_its_check(model in models(48)) {
        prop_assert_eq!(model.plan().with(|plan| plan.check()), Ok(()));
    }

    #[test]
    fn every_plan_is_proven(model in models(48)) {
        model.plan().with(prove).map_err(|flaw| TestCaseError::fail(flaw.to_string()))?;
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// With the places of GPUs, and ops in streams, all accesses to one byte are in order.
    #[test]
    fn every_plan_of_gpus_is_proven(model in models(12)) {
        for transport in [TransportKind::Peer, TransportKind::Nccl] {
            let plan = model.clone().on_gpus(transport).plan();
            plan.with(prove).map_err(|flaw| TestCaseError::fail(flaw.to_string()))?;
        }
    }
}

proptest! {
    #![proptest_config(cases(100))]

    /// Ranks of one host, and of several, whose states are on disk.
    #[test]
    fn every_plan_with_tiers_is_proven(model in models(12), prefetch in 0..4_usize, all in any::<bool>()) {
        for nodes in (1..=model.config.mesh.ranks()).filter(|nodes| model.config.mesh.ranks().is_multiple_of(*nodes)) {
            let model = if nodes > 1 { model.clone().on_hosts(nodes) } else { model.clone() };
            let plan = model.on_disk(prefetch, all).plan();
            prop_assert_eq!(plan.with(|plan| plan.check()), Ok(()));
            plan.with(prove).map_err(|flaw| TestCaseError::fail(flaw.to_string()))?;
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// However hosts cut the axes, arriving bytes lie where the op looks for them.
    #[test]
    fn every_plan_of_several_hosts_is_proven(model in models(12)) {
        for nodes in (2..=model.config.mesh.ranks()).filter(|nodes| model.config.mesh.ranks().is_multiple_of(*nodes)) {
            let model = model.clone().on_hosts(nodes);
            if model.config.sends_directions() {
                // Such a spec is refused.
                continue;
            }
            let plan = model.plan();
            prop_assert_eq!(plan.with(|plan| plan.check()), Ok(()));
            plan.with(prove).map_err(|flaw| TestCaseError::fail(flaw.to_string()))?;
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn every_step_updates_each_parameter_once_from_all_gradients(model in models(12)) {
        for pace in Pace::ALL {
            prop_assert_eq!(model.plan().with(|plan| simulate(plan, pace)), Ok(()));
        }
    }
}
