//! Publish: copies in the memory of the host have the bits of what ranks own after each step, in whatever order a device works, and
//! steps that begin while copies are on their way have the bits of steps without them.

use std::time::{Duration, Instant};

use zero_core::published::PublishedCopies;
use zero_cuda::Cuda;
use zero_engine::Engine;
use zero_plan::{Config, Home, Publish, Width};
use zero_ranks::transport::Shared;
use zero_tests::layout::changed;
use zero_tests::long::is_left_out;
use zero_tests::pretend;
use zero_tests::saved::offered;
use zero_tests::specs::cuda_program;

use crate::offload::{STEPS, Way, config, offloaded, on_host, on_ranks, seeds, steps, with_parameters};

/// Losses and norms of a rank, and what its copies had after each step.
type Seen = (Vec<u64>, Vec<Vec<u8>>);

/// What a copy has of a step, once it is there. The device needs no call to bring it.
fn arrived(copies: &impl PublishedCopies, step: u64) -> Vec<u8> {
    let (mut found, began) = (vec![0; copies.bytes()], Instant::now());
    while copies.is_coming(step) {
        assert!(!copies.read(step, 0, &mut []), "a copy that is on its way can be read");
        assert!(began.elapsed() < Duration::from_secs(60), "a copy that does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(copies.read(step, 0, &mut found), "no copy of step {step}");
    found
}

fn rank<'p>(engine: &mut Engine<'p, Cuda, Shared<'p, Cuda>>, way: Way) -> Seen {
    let publish = engine.plan().config.publish;
    engine.run_eagerly(way == Way::Eager);
    engine.initialize(7);
    if way == Way::Profiled {
        engine.record(STEPS as usize);
    }
    let (mut numbers, mut seen): Seen = Default::default();
    let copies = engine.copies();
    if let Some(copies) = &copies {
        let planned = engine.plan().of_rank(engine.arena().rank()).memory.bytes_of(Home::Host);
        assert_eq!(engine.arena().host_bytes(), planned);
        engine.publish().expect("a publication");
        seen.push(arrived(copies, 0));
    }
    for step in 1..=STEPS {
        numbers.extend(steps(engine, 1).expect("a step without faults"));
        let Some(copies) = &copies else { continue };
        engine.publish().expect("a publication");
        if step % 2 == 0 {
            // A step begins while the copy is on its way, and so does the next publication.
            if publish.copies > 1 {
                engine.publish().expect("a publication");
            }
            continue;
        }
        let found = arrived(copies, step);
        let expected = offered(engine);
        assert!(found[..expected.len()] == expected, "{way:?}, step {step}: other bits than those of the parameters");
        seen.push(found);
        let before = step - 1;
        assert_eq!(copies.read(before, 0, &mut []), publish.copies > 1, "copies of {} after {step}", publish.copies);
        if publish.copies > 1 {
            seen.push(arrived(copies, before));
        }
    }
    (numbers, seen)
}

fn layouts(seed: u64) -> Config {
    let program = cuda_program("zero3");
    let there = config(program, (seed % 4) as u8, seed.is_multiple_of(3));
    let mesh = ["mesh=1x1x2", "mesh=1x2x2", "mesh=2x1x2", "mesh=1x1x3"][seed as usize / 2 % 4];
    let there = changed(there, &[mesh]);
    match seed % 5 {
        3 if there.stage == 3 && mesh != "mesh=2x1x2" => with_parameters(there, 1),
        4 if there.stage > 0 => on_host(offloaded(there, 1)),
        _ => there,
    }
}

#[test]
fn copies_in_host_memory_have_the_bits_of_the_parameters() {
    if !pretend::is_cuda() {
        return;
    }
    let program = cuda_program("zero3");
    for seed in seeds() {
        let without = layouts(seed);
        pretend::seed(0);
        let expected = on_ranks(program, without, |engine| rank(engine, Way::Eager).0);
        for (dtype, copies) in [(Width::BF16, 2), (Width::F32, 1)] {
            let with = Config { publish: Publish { dtype, copies }, ..without };
            if !with.can_publish() {
                continue;
            }
            pretend::seed(seed);
            let mut first = None;
            let ways: &[Way] = match copies {
                1 => &[Way::Graphs],
                _ if is_left_out("copies of steps that are profiled") => &[Way::Eager, Way::Graphs],
                _ => &[Way::Eager, Way::Graphs, Way::Profiled],
            };
            for &way in ways {
                let (numbers, seen): (Vec<_>, Vec<_>) =
                    on_ranks(program, with, |engine| rank(engine, way)).into_iter().unzip();
                assert!(numbers == expected, "{with:?}, seed {seed}, {way:?}: training has other bits");
                let first = first.get_or_insert_with(|| seen.clone());
                assert!(seen == *first, "{with:?}, seed {seed}, {way:?}: other copies");
            }
        }
    }
}
