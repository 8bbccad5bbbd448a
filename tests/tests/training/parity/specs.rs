//! Specs: each file of `specs/`, trained as processes at a tiny size, equals plain data parallelism over the same
//! micro-batches and replicas to the bit.

use std::path::Path;
use std::process::Command;

use zero_core::model::Program;
use zero_plan::{Config, Mesh, Precision, TransportKind, Width};
use zero_runtime::device::Device;
use zero_tests::specs::{NAMES, program};
use zero_tests::tiny::Deep;
use zero_tests::training::{HYPER, Outcome, STEPS, Start, Told, noise, train};

use super::run;

/// Plain data parallelism with the batch and the data ranks of a model's spec: stage 0 on one axis, on threads.
struct Plain;

impl Plain {
    fn on<D: Device>(self, program: &'static Program<D>) -> (usize, Outcome) {
        let spec = &program.plan.config;
        let config = Config {
            mesh: Mesh::of_zero(spec.mesh.data_ranks()),
            reduce: spec.reduce,
            optimizer: spec.optimizer,
            precision: spec.precision,
            sequences: spec.sequences,
            length: spec.length,
            micro_batches: spec.micro_batches,
            transport: TransportKind::Local,
            ..Config::PLAIN
        };
        (spec.mesh.ranks(), train(program, config, HYPER, STEPS, Start::Seed(7), &noise(config)))
    }
}

#[test]
fn every_spec_trains_as_plain_data_parallelism_does() {
    for &name in NAMES {
        let output = Command::new(env!("CARGO_BIN_EXE_spec")).arg(name).output().expect("the binary");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let (ranks, plain) = Plain.on(program(name));
        let expected = Told::of(&plain);
        let found: Vec<Told> = String::from_utf8_lossy(&output.stdout).lines().map(Told::read).collect();
        assert_eq!(found.len(), ranks, "{name}: a rank has told nothing");
        for told in &found {
            assert_eq!(told.numbers, expected.numbers, "{name}: other losses or norms");
            for (unit, (found, expected)) in told.units.iter().zip(&expected.units).enumerate() {
                assert!(found.is_none() || found == expected, "{name}: unit {unit} differs");
            }
        }
        for (unit, expected) in expected.units.iter().enumerate() {
            assert!(expected.is_none() || found.iter().any(|told| told.units[unit].is_some()), "{name}: unit {unit}");
        }
    }
}

/// The same layouts in bf16, on threads.
#[test]
fn every_layout_trains_as_plain_data_parallelism_does_in_bf16() {
    for &name in NAMES {
        let spec = program(name).plan.config;
        let precision = Precision { compute: Width::BF16, ..spec.precision };
        // As many tokens as the tiny model was built for.
        let spec = Config { precision, sequences: 1, length: 128, memory_bytes: None, ..spec };
        let plain = Config {
            mesh: Mesh::of_zero(spec.mesh.data_ranks()),
            reduce: spec.reduce,
            optimizer: spec.optimizer,
            micro_batches: spec.micro_batches,
            sequences: 1,
            length: 128,
            precision,
            transport: TransportKind::Local,
            ..Config::PLAIN
        };
        assert!(run::<Deep>(spec, STEPS).bits() == run::<Deep>(plain, STEPS).bits(), "{name}");
    }
}

#[test]
fn no_spec_is_left_out() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let files =
        std::fs::read_dir(&directory).expect("a directory of specs").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<String> = files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    let mut known: Vec<&str> = NAMES.to_vec();
    found.sort();
    known.sort();
    assert_eq!(found, known, "tests/src/specs.rs lists the files of specs/");
}
