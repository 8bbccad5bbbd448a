//! Workers: sequences that are decoded side by side have the bits of each alone, and newer parameters replace those in use between
//! two tokens.

use zero_core::layer::Earlier;
use zero_core::model::Model;
use zero_engine::Engine;
use zero_plan::{Config, PlanBuf, Precision, Serve, Width};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::Cpu;
use zero_tests::tiny::{InBothWidths, Untied, VOCAB};
use zero_tests::training::CONFIG;

use super::decode::{Ranks, flat_buffer, loaded};

/// Sequences side by side, each in a slot of its own, with the bits that each has alone: whatever else is decoded, and
/// whenever it begins.
#[test]
fn sequences_side_by_side_have_the_bits_of_each_alone() {
    for (program, precision) in [
        (Untied::PROGRAM, Precision::default()),
        (<Untied as InBothWidths>::Narrow::PROGRAM, Precision { compute: Width::BF16, ..Precision::default() }),
    ] {
        let serve = Serve { slots: 7, staged: false };
        // The units are those of micro-batches of two sequences.
        let config = Config { sequences: CONFIG.sequences, ..Config { precision, ..CONFIG }.serving(serve) };
        let main = |transport: Shared<'_, Cpu>| {
            let mut engine = loaded(program, transport);
            let prompt =
                |slot: usize| -> Vec<u32> { (0..1 + slot % 4).map(|i| ((3 * slot + 5 * i) % VOCAB) as u32).collect() };
            let next = |slot: usize, step: usize| ((slot + 2 * step) % VOCAB) as u32;
            let mut logits = vec![0.0; 7 * VOCAB];
            let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
            // Each alone, in the first slot.
            let mut alone = Vec::new();
            for slot in 0..7 {
                let ids = prompt(slot);
                engine.decode(&ids, 0, &mut logits[..VOCAB]).expect("logits");
                let mut of_steps = vec![bits(&logits[..VOCAB])];
                for step in 0..7 {
                    engine.decode(&[next(slot, step)], ids.len() + step, &mut logits[..VOCAB]).expect("logits");
                    of_steps.push(bits(&logits[..VOCAB]));
                }
                alone.push(of_steps);
            }
            // Slot s begins at round s, beside those that began before, in another order each round.
            let mut done = [0; 7];
            for round in 0..14 {
                if round < 7 {
                    let ids = prompt(round);
                    engine
                        .decode_slots(&[Earlier { slot: round, tokens: 0 }], &ids, &mut logits[..VOCAB])
                        .expect("logits");
                    assert_eq!(bits(&logits[..VOCAB]), alone[round][0], "slot {round}");
                }
                let mut busy: Vec<usize> = (0..7).filter(|&slot| slot <= round && done[slot] < 7).collect();
                if busy.is_empty() {
                    continue;
                }
                let turned = round % busy.len();
                busy.rotate_left(turned);
                let earlier: Vec<Earlier> =
                    busy.iter().map(|&slot| Earlier { slot, tokens: prompt(slot).len() + done[slot] }).collect();
                let ids: Vec<u32> = busy.iter().map(|&slot| next(slot, done[slot])).collect();
                engine.decode_slots(&earlier, &ids, &mut logits[..busy.len() * VOCAB]).expect("logits");
                for (row, &slot) in busy.iter().enumerate() {
                    done[slot] += 1;
                    assert_eq!(
                        bits(&logits[row * VOCAB..][..VOCAB]),
                        alone[slot][done[slot]],
                        "slot {slot}, round {round}"
                    );
                }
            }
            assert_eq!(done, [7; 7]);
        };
        let plan = PlanBuf::new("", config, program.plan.units);
        plan.with(|plan| {
            zero_plan::prove(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
            local::run(plan, |()| false, main)
        })
        .expect("the memory of a tiny model");
    }
}

/// Parameters that arrive beside those in use change no bit before they replace them, and all bits after it.
#[test]
fn newer_parameters_replace_those_in_use_between_two_tokens() {
    for (program, precision) in [
        (Untied::PROGRAM, Precision::default()),
        (<Untied as InBothWidths>::Narrow::PROGRAM, Precision { compute: Width::BF16, ..Precision::default() }),
    ] {
        let config = |staged| Config {
            sequences: CONFIG.sequences,
            ..Config { precision, ..CONFIG }.serving(Serve { slots: 2, staged })
        };
        let run = |staged, main: &(dyn Fn(Shared<'_, Cpu>) -> Vec<Vec<u32>> + Sync)| {
            let plan = PlanBuf::new("", config(staged), program.plan.units);
            plan.with(|plan| local::run(plan, |_| false, main)).expect("the memory of a tiny model").remove(0)
        };
        let token = |engine: &mut Ranks<'_>, slot, before, ids: &[u32]| {
            let mut logits = vec![0.0; VOCAB];
            engine.decode_slots(&[Earlier { slot, tokens: before }], ids, &mut logits).expect("logits");
            logits.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let stage = |engine: &mut Ranks<'_>, seed: u64| {
            for (unit, sizes) in program.plan.units.iter().enumerate() {
                for (at, numbers) in flat_buffer(seed + unit as u64, sizes.params).chunks(7).enumerate() {
                    engine.stage(unit, 7 * at, numbers);
                }
            }
        };
        // What each version says after two tokens, and after a third.
        let of_seed = |seed| {
            run(false, &|transport| {
                let mut engine = Engine::new(program, transport);
                stage(&mut engine, seed);
                engine.use_staged().expect("parameters");
                assert!(!engine.can_stage());
                vec![token(&mut engine, 0, 0, &[3, 1]), token(&mut engine, 0, 2, &[4])]
            })
        };
        let [old, new] = [100, 200].map(of_seed);
        assert!(old[0] != new[0] && old[1] != new[1]);
        run(true, &|transport| {
            let mut engine = Engine::new(program, transport);
            stage(&mut engine, 100);
            engine.use_staged().expect("parameters");
            assert_eq!(token(&mut engine, 0, 0, &[3, 1]), old[0]);
            stage(&mut engine, 200);
            assert_eq!(token(&mut engine, 0, 2, &[4]), old[1]);
            engine.use_staged().expect("parameters");
            // The cache is of the old ones, the rest of the new ones.
            let mixed = token(&mut engine, 0, 2, &[4]);
            assert!(mixed != old[1] && mixed != new[1]);
            assert_eq!(token(&mut engine, 1, 0, &[3, 1]), new[0]);
            assert_eq!(token(&mut engine, 1, 2, &[4]), new[1]);
            Vec::new()
        });
    }
}
