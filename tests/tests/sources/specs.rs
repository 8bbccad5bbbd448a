//! Specs: each file in `specs/` is valid, sound for a model, and proven over all ranks; and its plan is the golden one.
//!
//! `UPDATE_EXPECT=1 cargo test -p zero-tests --test sources` renews the golden plans; read the diff.

use std::path::Path;

use zero_plan::{PlanBuf, Report, ScheduleText, prove, spec};
use zero_tests::specs::{NAMES, program};

/// The compiler's plan for a spec equals the plan that the planner makes from the same text at run time, and is sound.
#[test]
fn every_spec_is_valid_and_compiles_to_what_the_planner_makes_of_it() {
    for name in NAMES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../specs/{name}.ron"));
        let text = std::fs::read_to_string(&path).expect("a readable spec");
        let spec = spec::parse(&text).unwrap_or_else(|errors| panic!("{}", errors[0].render(name, &text)));
        assert!(spec.model.is_some(), "{name} names no model, so nobody can run it");
        let compiled = program(name).plan;
        PlanBuf::new(compiled.model, spec.config(), compiled.units).with(|planned| {
            assert_eq!(planned.check(), Ok(()), "{name}");
            assert_eq!(planned, compiled, "{name}");
            assert_eq!(planned.fingerprint(), compiled.fingerprint(), "{name}");
        });
    }
}

/// A user's own spec is proven when it is built; here every spec of `specs/` is proven.
#[test]
fn every_spec_is_proven_over_all_ranks() {
    for name in NAMES {
        let plan = program(name).plan;
        let proof = prove(plan).unwrap_or_else(|flaw| panic!("{name}: {flaw}"));
        assert_eq!(proof.ranks, plan.config.mesh.ranks(), "{name}");
    }
}

/// Layout, schedule and bytes of every spec, as a text that can be reviewed as a diff.
#[test]
fn plans_are_golden() {
    for &name in NAMES {
        let plan = program(name).plan;
        let golden = format!("{}/plans/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        expect_test::expect_file![golden].assert_eq(&format!("{}\n\n{}\n", Report(plan), ScheduleText(plan)));
    }
}

#[test]
fn plans_of_different_specs_have_different_fingerprints() {
    let mut fingerprints: Vec<_> = NAMES.iter().map(|name| program(name).plan.fingerprint()).collect();
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), NAMES.len());
}
