//! Resume: a run that continues from a checkpoint equals an uninterrupted run, under the layout of the checkpoint and under others.

use std::path::{Path, PathBuf};

use zero_core::model::{Model, Program};
use zero_engine::Engine;
use zero_plan::place::State;
use zero_plan::{Config, OptimizerKind, Order, PlanBuf, Precision, Width};
use zero_ranks::transport::{Transport, local};
use zero_runtime::device::Device;
use zero_tests::saved::{bits, resume, save};
use zero_tests::specs::{NAMES, program};
use zero_tests::tiny::{InBothWidths, Tied};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

use super::WIDTHS;

/// The results of a part of a run: bits of its losses and norms, and its checkpoint at the end.
#[derive(Debug)]
struct Part {
    numbers: Vec<u64>,
    saved: PathBuf,
}

/// Steps of a run that begins, or continues from a checkpoint, and is then saved.
fn part<D: Device>(
    program: &'static Program<D>,
    config: Config,
    from: Option<&Path>,
    steps: u64,
    folder: &Path,
) -> Part {
    PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        assert_eq!(plan.check(), Ok(()), "{config:?}");
        let mut ranks = local::run(
            plan,
            |_| false,
            |transport| {
                let mut engine = Engine::new(program, transport);
                match from {
                    Some(path) => resume(&mut engine, path),
                    None => engine.initialize(7),
                }
                Part { numbers: train(&mut engine, config, steps), saved: save(&mut engine, folder) }
            },
        )
        .expect("the memory of a tiny model");
        ranks.pop().expect("a rank")
    })
}

fn train<'p, D: Device, T: Transport<'p, D>>(engine: &mut Engine<'p, D, T>, config: Config, steps: u64) -> Vec<u64> {
    let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
    let first = engine.steps_done();
    let reports = (first..first + steps)
        .map(|step| engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets)).expect("a step"));
    reports.flat_map(|report| [report.loss, report.gradient_norm].map(f64::to_bits)).collect()
}

/// Panics unless two checkpoints have the same bits in every state that they share.
fn assert_equal(one: &Path, other: &Path, what: &str) {
    for state in State::ALL {
        if let (Some(one), Some(other)) = (bits(one, state), bits(other, state)) {
            assert!(one == other, "{what}: {state:?} differs");
        }
    }
}

/// Four steps, and two with two more from a checkpoint of them.
fn assert_goes_on<D: Device>(program: &'static Program<D>, config: Config, what: &str) {
    let root = tempfile::tempdir().expect("a directory");
    let folder = |name: &str| root.path().join(name);
    let whole = part(program, config, None, 4, &folder("whole"));
    let first = part(program, config, None, 2, &folder("first"));
    let second = part(program, config, Some(&first.saved), 2, &folder("second"));
    assert_eq!([first.numbers, second.numbers].concat(), whole.numbers, "{what}: other losses or norms");
    assert_equal(&second.saved, &whole.saved, what);
}

fn for_each_width(config: Config) {
    let what = format!("{config:?}");
    match config.precision.compute {
        Width::F32 => assert_goes_on(Tied::PROGRAM, config, &what),
        Width::BF16 => assert_goes_on(<Tied as InBothWidths>::Narrow::PROGRAM, config, &what),
    }
}

#[test]
fn a_run_goes_on_at_every_stage_in_every_width_with_and_without_a_copy() {
    let narrow = Precision { params: Width::BF16, moments: Width::BF16, reduce: Width::BF16, ..WIDTHS[1] };
    for stage in 0..4 {
        for (precision, micro_batches) in [(WIDTHS[0], 1), (WIDTHS[0], 3), (WIDTHS[1], 2), (narrow, 2)] {
            for snapshot in [false, true] {
                let mesh = mesh(1, 1, 2);
                for_each_width(Config { mesh, precision, micro_batches, snapshot, ..CONFIG.at_stage(stage) });
            }
        }
    }
}

/// A spec's layout, on threads.
struct GoesOn(&'static str);

impl GoesOn {
    fn on<D: Device>(self, program: &'static Program<D>) {
        let config = Config { transport: CONFIG.transport, memory_bytes: None, ..program.plan.config };
        assert_goes_on(program, config, self.0);
    }
}

#[test]
fn a_run_goes_on_under_every_spec() {
    NAMES.iter().for_each(|&name| GoesOn(name).on(program(name)));
}

/// Layouts between which checkpoints are moved, with the micro-batches of each rank.
fn layouts() -> Vec<(&'static str, Config)> {
    let of = |stage, pipeline, replica, zero| Config {
        mesh: mesh(pipeline, replica, zero),
        micro_batches: 4,
        ..CONFIG.at_stage(stage)
    };
    let interleaved = Config { order: Order::Interleaved { chunks: 2 }, ..of(1, 2, 1, 2) };
    vec![
        ("ddp x2", of(0, 1, 2, 1)),
        ("zero1 x2", of(1, 1, 1, 2)),
        ("zero2 x4", of(2, 1, 1, 4)),
        ("zero3 x2", of(3, 1, 1, 2)),
        ("zero3 x3", of(3, 1, 1, 3)),
        ("hsdp 2x2", of(3, 1, 2, 2)),
        ("1f1b", of(0, 2, 1, 1)),
        ("interleaved", interleaved),
        ("hybrid x8", of(3, 2, 1, 4)),
    ]
}

#[test]
fn a_checkpoint_goes_from_any_layout_to_any_other_and_back() {
    goes_from_any_to_any_other_and_back(&layouts());
}

/// Momentum is a state of its owner, wherever matrices are orthogonalized.
#[test]
fn a_checkpoint_of_muon_goes_from_any_layout_to_any_other_and_back() {
    let muon = |(name, config)| (name, Config { optimizer: OptimizerKind::Muon, ..config });
    goes_from_any_to_any_other_and_back(&layouts().into_iter().map(muon).collect::<Vec<_>>());
}

fn goes_from_any_to_any_other_and_back(layouts: &[(&str, Config)]) {
    let root = tempfile::tempdir().expect("a directory");
    for &(a, from) in layouts {
        let folder = |name: &str| root.path().join(format!("{a}-{name}"));
        let first = part(Tied::PROGRAM, from, None, 2, &folder("first"));
        let second = part(Tied::PROGRAM, from, Some(&first.saved), 1, &folder("second"));
        for &(b, to) in layouts {
            let what = format!("{a} to {b}");
            let there = part(Tied::PROGRAM, to, Some(&first.saved), 0, &folder(&format!("{b}-there")));
            let back = part(Tied::PROGRAM, from, Some(&there.saved), 0, &folder(&format!("{b}-back")));
            assert_equal(&first.saved, &there.saved, &what);
            assert_equal(&first.saved, &back.saved, &what);
            if to.mesh.data_ranks() == from.mesh.data_ranks() {
                let on = part(Tied::PROGRAM, to, Some(&first.saved), 1, &folder(&format!("{b}-on")));
                assert_eq!(on.numbers, second.numbers, "{what}: the loss goes on otherwise");
                assert_equal(&on.saved, &second.saved, &what);
            }
        }
    }
}

#[test]
fn a_wider_copy_is_what_narrow_parameters_are_read_from() {
    let root = tempfile::tempdir().expect("a directory");
    let folder = |name: &str| root.path().join(name);
    let wide = Config { mesh: mesh(1, 1, 2), ..CONFIG.at_stage(3) };
    let narrow = Config { precision: Precision { params: Width::BF16, ..wide.precision }, ..wide };
    let first = part(Tied::PROGRAM, wide, None, 2, &folder("first"));
    let there = part(Tied::PROGRAM, narrow, Some(&first.saved), 0, &folder("there"));
    let back = part(Tied::PROGRAM, wide, Some(&there.saved), 0, &folder("back"));
    assert_eq!(bits(&there.saved, State::Master), bits(&first.saved, State::Parameters), "the copy is what there was");
    assert_ne!(bits(&there.saved, State::Parameters), bits(&first.saved, State::Parameters), "these are rounded");
    assert_equal(&back.saved, &first.saved, "f32 to bf16 and back");
}
