//! Properties: what holds of the plan of every model.

use proptest::prelude::*;

use crate::layout;
use crate::model::models;
use crate::simulator::{Pace, simulate};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn every_plan_passes_its_check(model in models(12)) {
        prop_assert_eq!(model.plan().as_plan().check(), Ok(()));
    }

    #[test]
    fn every_layout_covers_parameters_and_keeps_regions_apart(model in models(12)) {
        layout::assert_sound(&model.plan().as_plan());
    }

    #[test]
    fn memory_does_not_grow_with_the_stage(model in models(12)) {
        layout::assert_stages_compare(&model);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn every_step_updates_each_parameter_once_from_all_gradients(model in models(12)) {
        let plan = model.plan();
        for pace in Pace::ALL {
            prop_assert_eq!(simulate(&plan.as_plan(), pace), Ok(()));
        }
    }
}
