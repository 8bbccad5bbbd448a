//! Specs: each file in `specs/` is valid, and sound for a model.

use std::path::Path;

use zero_plan::{PlanBuf, spec};
use zero_runtime::model::Model;
use zero_tests::tiny::{Tied, Untied};

#[test]
fn every_spec_is_valid_and_its_plans_are_sound() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let files =
        std::fs::read_dir(&directory).expect("a directory of specs").map(|entry| entry.expect("an entry").path());
    let specs: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "ron")).collect();
    assert!(specs.len() >= 4, "{specs:?}");
    for path in specs {
        let text = std::fs::read_to_string(&path).expect("a readable spec");
        let name = path.display().to_string();
        let spec = spec::parse(&text).unwrap_or_else(|errors| panic!("{}", errors[0].render(&name, &text)));
        assert!(spec.model.is_some(), "{name} names no model, so nobody can run it");
        for units in [Untied::PLAN.units, Tied::PLAN.units] {
            assert_eq!(PlanBuf::new(&name, spec.config(), units).as_plan().check(), Ok(()), "{name}");
        }
    }
}

/// What the compiler made of an attribute is what the planner makes of the same configuration at run time.
#[test]
fn compile_time_and_run_time_plans_are_equal() {
    for plan in [Untied::PLAN, Tied::PLAN] {
        assert_eq!(PlanBuf::new(plan.model, plan.config, plan.units).as_plan(), *plan);
        assert_eq!(PlanBuf::new(plan.model, plan.config, plan.units).as_plan().fingerprint(), plan.fingerprint());
    }
    assert_ne!(Untied::PLAN.fingerprint(), Tied::PLAN.fingerprint());
}
