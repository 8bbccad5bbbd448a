//! Muon: stages, meshes, schedules, transports and threads change no bit of its results, because each matrix is orthogonalized as a
//! whole on every rank that updates some of it.

use zero_core::model::Model;
use zero_plan::{Config, Mesh, Often, OptimizerKind, Precision, TransportKind, Width};
use zero_tests::tiny::{Tall, Tied, Untied, Wide};
use zero_tests::training::{CONFIG, HYPER, Start, mesh, noise, train};

use super::meshes::{equals_plain, pipelines, stages};
use super::stages::{assert_close, moved_bytes_and_mappings_are_planned};
use super::threads::threads_agree;
use super::{WIDTHS, run};

const MUON: Config = Config { optimizer: OptimizerKind::Muon, ..CONFIG };

#[test]
fn stages_and_replicas_agree_bit_for_bit() {
    for (replica, zero) in [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 3)] {
        for (micro_batches, reduce) in [(1, Often::PerMicroBatch), (3, Often::PerMicroBatch), (3, Often::PerStep)] {
            for precision in WIDTHS {
                let config = Config { mesh: mesh(1, replica, zero), micro_batches, reduce, precision, ..MUON };
                equals_plain::<Untied>(&stages(config));
            }
        }
    }
}

#[test]
fn narrow_states_agree_bit_for_bit() {
    use Width::{BF16, F32};
    for (params, reduce, master, moments) in [(BF16, BF16, F32, F32), (F32, BF16, F32, BF16), (BF16, F32, BF16, BF16)] {
        let precision = Precision { compute: BF16, params, reduce, master, moments };
        // Sums over a replica are rounded to bf16, so plain data parallelism has replicas as well.
        for (replica, zero) in [(1, 4), (2, 3)] {
            let config = Config { mesh: mesh(1, replica, zero), micro_batches: 2, precision, ..MUON };
            equals_plain::<Tied>(&stages(config));
        }
    }
}

#[test]
fn pipelines_agree_bit_for_bit() {
    for config in pipelines() {
        let config = Config { optimizer: OptimizerKind::Muon, ..config };
        equals_plain::<Tied>(&stages(config).into_iter().step_by(2).collect::<Vec<_>>());
    }
}

#[test]
fn threads_agree_bit_for_bit() {
    for stage in 0..4 {
        threads_agree::<Untied>(Config { mesh: mesh(1, 1, 2), transport: TransportKind::Shm, ..MUON.at_stage(stage) });
    }
    threads_agree::<Tall>(Config { sequences: 40, ..MUON.at_stage(3) });
}

/// Directions are taken from other ranks as often as planned.
#[test]
fn moved_bytes_and_mappings_are_those_of_the_plan() {
    for (pipeline, replica, zero) in [(1, 1, 2), (1, 2, 3), (2, 2, 2)] {
        for config in stages(Config { mesh: mesh(pipeline, replica, zero), micro_batches: 2, ..MUON }) {
            moved_bytes_and_mappings_are_planned::<Tied>(config);
        }
    }
}

/// The same batch on one rank and on two differs only in the order of sums. The iterations amplify small singular values, and with
/// them their rounding errors, so the distance is larger than AdamW's.
#[test]
fn ranks_and_one_rank_agree_to_rounding() {
    let alone = Config { mesh: Mesh::of_zero(1), sequences: 4, ..MUON };
    let one = train(Wide::PROGRAM, alone, HYPER, 5, Start::Seed(7), &noise(alone));
    for stage in 0..4 {
        let config = Config { mesh: Mesh::of_zero(2), ..MUON.at_stage(stage) };
        assert_close(&one, &run::<Untied>(config, 5), 1e-4);
    }
}

/// Otherwise all of the above could be AdamW.
#[test]
fn muon_updates_hidden_matrices_and_nothing_else() {
    let [before, adamw, muon] = [(MUON, 0), (CONFIG, 1), (MUON, 1)]
        .map(|(config, steps)| run::<Untied>(Config { mesh: Mesh::of_zero(2), ..config.at_stage(3) }, steps));
    // Embedding, blocks, norm and head: the first step of both begins with the same gradients.
    for (unit, same) in [(0, true), (1, false), (2, false), (3, true), (4, true)] {
        assert_eq!(adamw.parameters[unit] == muon.parameters[unit], same, "unit {unit}");
    }
    // Gain and bias of a norm, then the projections (3 x 24, 24) with their bias, and so on.
    let (adamw, muon, before) = (&adamw.parameters[1], &muon.parameters[1], &before.parameters[1]);
    assert_eq!(adamw[..48], muon[..48]);
    assert_eq!(adamw[48 + 3 * 576..][..72], muon[48 + 3 * 576..][..72]);
    // A matrix of 24 x 24 steps by lr 0.2 sqrt(24) along singular values near 1: its norm is about sqrt(24) times that.
    for matrix in 0..3 {
        let at = 48 + matrix * 576;
        let decayed = |x: f32| f64::from(x) * (1.0 - HYPER.lr * HYPER.weight_decay);
        let squares =
            muon[at..at + 576].iter().zip(&before[at..]).map(|(to, from)| (f64::from(*to) - decayed(*from)).powi(2));
        let norm = squares.sum::<f64>().sqrt() / (HYPER.lr * 0.2 * 24.0);
        assert!((0.6..1.2).contains(&norm), "matrix {matrix} steps by {norm}");
    }
}

/// One batch, which a model should memorize. The next token depends on two tokens, so the embedding and the head alone cannot predict it.
#[test]
fn muon_learns_what_hidden_layers_have_to_learn_as_adamw_does() {
    let loss = |optimizer| {
        let config = Config { optimizer, mesh: Mesh::of_zero(2), micro_batches: 2, ..CONFIG.at_stage(2) };
        let data = noise(config);
        let outcome =
            train(Untied::PROGRAM, config, HYPER, 40, Start::Seed(7), &|_, rank, micro_batch, ids, targets| {
                data(0, rank, micro_batch, ids, targets);
                (0..ids.len()).for_each(|at| targets[at] = (ids[at] + ids[at.saturating_sub(1)]) % 29);
            });
        (outcome.losses[0], outcome.losses[39])
    };
    let [(first, adamw), (_, muon)] = [OptimizerKind::AdamW, OptimizerKind::Muon].map(loss);
    eprintln!("from {first}: AdamW to {adamw}, Muon to {muon}");
    assert!(muon < 1.5 * adamw && muon < first / 10.0, "from {first}: AdamW to {adamw}, Muon to {muon}");
}
