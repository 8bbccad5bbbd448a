//! Golden: the runtime against PyTorch and against the plain reference, at every stage. `golden/make.py` made the
//! golden files, and says how close to them an implementation can be.

use zero_core::layer::Tensors;
use zero_core::model::{Model, Program};
use zero_engine::Hyper;
use zero_plan::{Config, Mesh, TransportKind};
use zero_runtime::device::Device;
use zero_tests::reference::golden::{Golden, Rounded};
use zero_tests::reference::{Gpt, optimizer};
use zero_tests::tiny::{Tied, Untied, narrow};
use zero_tests::training::{CONFIG, HYPER, Outcome, Start, noise, train};

mod muon;

/// The flat buffers of the units, cut from a reference's tensors in order.
fn flat<D: Device>(program: &'static Program<D>, gpt: &Gpt) -> Vec<Vec<f32>> {
    let mut tensors = gpt.tensors.iter();
    let mut flat_of = |params: usize| {
        let mut flat = Vec::new();
        while flat.len() < params {
            flat.extend(tensors.next().expect("a tensor").data.iter().map(|&value| value as f32));
        }
        assert_eq!(flat.len(), params, "tensors end where units do");
        flat
    };
    program.plan.units.iter().map(|unit| flat_of(unit.params)).collect()
}

/// Largest distance between the runtime's flat buffers, scaled, and a reference's tensors. Can skip the biases of keys: their
/// gradient is zero except for rounding, and AdamW turns even the smallest gradient into a full step.
fn distance(flat: &[Vec<f32>], scale: f64, names: &Gpt, tensors: &[Vec<f64>], skip_keys: bool) -> f64 {
    let mut values = flat.iter().flatten();
    let mut largest = 0.0_f64;
    for (tensor, data) in names.tensors.iter().zip(tensors) {
        for (i, expected) in data.iter().enumerate() {
            let found = f64::from(*values.next().expect("as many values")) * scale;
            let is_key = tensor.name.ends_with("qkv.bias") && (data.len() / 3..2 * data.len() / 3).contains(&i);
            if !(is_key && skip_keys) {
                largest = largest.max((found - expected).abs());
            }
        }
    }
    assert!(values.next().is_none(), "as many values");
    largest
}

/// Gradients without the padding of their flat buffers.
fn unpadded<D: Device>(program: &'static Program<D>, outcome: &Outcome) -> Vec<Vec<f32>> {
    let gradients = outcome.gradients.iter().zip(program.plan.units);
    gradients.map(|(gradients, unit)| gradients[..unit.params].to_vec()).collect()
}

fn hyper(golden: &Golden) -> Hyper {
    Hyper {
        lr: golden.lr,
        beta1: golden.beta1,
        beta2: golden.beta2,
        momentum: 0.95,
        epsilon: golden.eps,
        weight_decay: golden.weight_decay,
        clip: Some(golden.clip),
    }
}

fn agrees_with_pytorch<D: Device>(program: &'static Program<D>, variant: &str) {
    let golden = Golden::read(variant);
    let hyper = hyper(&golden);
    let initial = flat(program, &golden.initial);
    let last: Vec<Vec<f64>> = golden.last.tensors.iter().map(|tensor| tensor.data.clone()).collect();
    let batch = |step: u64, rank: usize, part: usize, ids: &mut [u32], targets: &mut [u32]| {
        let (golden_ids, golden_targets) = golden.micro_batch(step as usize, rank, part);
        ids.copy_from_slice(golden_ids);
        targets.copy_from_slice(golden_targets);
    };
    for stage in 0..4 {
        for transport in [TransportKind::Local, TransportKind::Shm] {
            let config = Config {
                mesh: Mesh::of_zero(golden.ranks),
                micro_batches: golden.micro_batches,
                sequences: golden.sequences,
                length: golden.length,
                transport,
                ..CONFIG.at_stage(stage)
            };
            let outcome = train(program, config, hyper, golden.steps as u64, Start::Flat(&initial), &batch);
            for (found, expected) in outcome.losses.iter().zip(&golden.losses) {
                assert!((found / expected - 1.0).abs() < 1e-6, "stage {stage}: loss {found}, PyTorch {expected}");
            }
            for (found, expected) in outcome.norms.iter().zip(&golden.norms) {
                assert!((found / expected - 1.0).abs() < 2e-6, "stage {stage}: norm {found}, PyTorch {expected}");
            }
            let mean = 1.0 / (golden.ranks * golden.micro_batches) as f64;
            let gradients = distance(&unpadded(program, &outcome), mean, &golden.initial, &golden.gradients, false);
            assert!(gradients < 1e-6, "stage {stage}: a gradient is off by {gradients}");
            let parameters = distance(&outcome.parameters, 1.0, &golden.initial, &last, true);
            assert!(parameters < 1e-4, "stage {stage}: a parameter is off by {parameters}");
        }
    }
}

#[test]
fn agrees_with_pytorch_untied() {
    agrees_with_pytorch(Untied::PROGRAM, "untied");
}

#[test]
fn agrees_with_pytorch_tied() {
    agrees_with_pytorch(Tied::PROGRAM, "tied");
}

/// The norm of the difference of all pairs, relative to the norm of the expected numbers.
fn relative(pairs: &[(f64, f64)]) -> f64 {
    let norm = |term: fn(&(f64, f64)) -> f64| pairs.iter().map(|pair| term(pair).powi(2)).sum::<f64>().sqrt();
    norm(|(found, expected)| found - expected) / norm(|(_, expected)| *expected)
}

/// Every result is rounded to bf16 once, at the places that `golden/make.py` lists, within the tolerances of its table. The
/// gradient of the biases of keys is zero except for rounding, and is left out.
fn agrees_with_pytorch_in_bf16<D: Device>(program: &'static Program<D>, variant: &str) {
    let (golden, rounded) = (Golden::read(variant), Rounded::read(variant));
    let batch = |step: u64, rank: usize, part: usize, ids: &mut [u32], targets: &mut [u32]| {
        let (golden_ids, golden_targets) = golden.micro_batch(step as usize % golden.steps, rank, part);
        ids.copy_from_slice(golden_ids);
        targets.copy_from_slice(golden_targets);
    };
    let config = Config {
        mesh: Mesh::of_zero(golden.ranks),
        micro_batches: golden.micro_batches,
        sequences: golden.sequences,
        length: golden.length,
        precision: program.plan.config.precision,
        ..CONFIG.at_stage(3)
    };
    let initial = flat(program, &golden.initial);
    let outcome = train(program, config, hyper(&golden), rounded.losses.len() as u64, Start::Flat(&initial), &batch);
    let gradients = unpadded(program, &outcome).concat();
    let mean = 1.0 / (golden.ranks * golden.micro_batches) as f64;
    let (mut found, mut all) = (gradients.iter().map(|&sum| f64::from(sum) * mean), Vec::new());
    for tensor in &rounded.gradients.tensors {
        let mut pairs: Vec<_> = tensor.data.iter().map(|&x| (found.next().expect("as many gradients"), x)).collect();
        if tensor.name.ends_with("qkv.bias") {
            let third = pairs.len() / 3;
            pairs.drain(third..2 * third);
        }
        let distance = relative(&pairs);
        assert!(distance < 6e-3, "gradient of `{}` is off by {distance}", tensor.name);
        all.extend(pairs);
    }
    assert!(found.next().is_none(), "as many gradients");
    let distance = relative(&all);
    assert!(distance < 2e-3, "gradients are off by {distance}");
    for (what, found, expected, first, later) in
        [("loss", &outcome.losses, &rounded.losses, 1e-4, 2e-3), ("norm", &outcome.norms, &rounded.norms, 5e-4, 2e-2)]
    {
        assert_eq!(found.len(), expected.len());
        for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
            let admitted = if step == 0 { first } else { later };
            let is_near = (found / expected - 1.0).abs() < admitted;
            assert!(is_near, "{what} of step {step} is {found}, PyTorch has {expected}");
        }
    }
}

#[test]
fn agrees_with_pytorch_in_bf16_untied() {
    agrees_with_pytorch_in_bf16(narrow::Untied::PROGRAM, "untied");
}

#[test]
fn agrees_with_pytorch_in_bf16_tied() {
    agrees_with_pytorch_in_bf16(narrow::Tied::PROGRAM, "tied");
}

#[test]
fn names_and_shapes_are_those_of_the_reference() {
    let golden = Golden::read("untied");
    let mut found = Vec::new();
    for unit in Untied::PLAN.units {
        let mut tensors = Tensors::default();
        Untied::PROGRAM.code[unit.position].tensors(&mut tensors);
        found.extend(tensors.into_list().into_iter().map(|tensor| (format!("{unit}.{}", tensor.name), tensor.shape)));
    }
    let expected = golden.initial.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone()));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

/// Twenty steps against the plain reference: unsharded, in f64, written the obvious way.
#[test]
fn agrees_with_the_plain_reference_over_20_steps() {
    let golden = Golden::read("untied");
    let config = Config { mesh: Mesh::of_zero(3), ..CONFIG.at_stage(3) };
    let batch = noise(config);
    let initial = flat(Untied::PROGRAM, &golden.initial);
    let outcome = train(Untied::PROGRAM, config, HYPER, 20, Start::Flat(&initial), &batch);

    let mut gpt = golden.initial.clone();
    let mut adamw = optimizer::AdamW::new(HYPER.beta1, HYPER.beta2, HYPER.epsilon, HYPER.weight_decay, &gpt.tensors);
    for (step, (found_loss, found_norm)) in outcome.losses.iter().zip(&outcome.norms).enumerate() {
        // The whole batch at once: the sequences of all ranks, one after another.
        let tokens = config.tokens();
        let (mut ids, mut targets) = (vec![0; 3 * tokens], vec![0; 3 * tokens]);
        for rank in 0..3 {
            let part = rank * tokens..(rank + 1) * tokens;
            batch(step as u64, rank, 0, &mut ids[part.clone()], &mut targets[part]);
        }
        let (loss, mut gradients) = gpt.loss_and_gradients(&ids, &targets, 3 * config.sequences, config.length);
        let norm = optimizer::clip(&mut gradients, HYPER.clip.expect("the tests clip"));
        assert!((found_loss - loss).abs() < 2e-5, "step {step}: loss {found_loss}, reference {loss}");
        assert!((found_norm / norm - 1.0).abs() < 2e-4, "step {step}: norm {found_norm}, reference {norm}");
        adamw.step(&mut gpt.tensors, &gradients, HYPER.lr);
    }
}
