//! A run that is made up serves versions: what arrives is what was published, and what is wrong with one is said by name.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zero_core::published::PublishedCopies;
use zero_publish::wire::{Part, PublishedTensor, RankAddress};
use zero_publish::{Readers, Served, Server, Steps, run_name};

use super::*;
use crate::{OnUpdate, Worker};

/// Elements of its two tensors, which lie one after the other.
const ELEMENTS: [usize; 2] = [300_000, 12];
const BYTES: usize = 4 * (ELEMENTS[0] + ELEMENTS[1]);
/// A byte of the second piece.
const FLIPPED: usize = 1_100_000;

/// The one copy of a run of one rank: element `i` of step `s` is `1000 s + i`.
#[derive(Clone, Default)]
struct Copy {
    step: Arc<AtomicU64>,
    /// Whether a bit is wrong.
    is_flipped: Arc<AtomicBool>,
    /// The bits of every element, if all are the same.
    all: Arc<AtomicU32>,
}

fn number(step: u64, element: usize) -> f32 {
    1000.0 * step as f32 + element as f32
}

impl PublishedCopies for Copy {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn is_coming(&self, _: u64) -> bool {
        false
    }

    fn read(&self, step: u64, start: usize, to: &mut [u8]) -> bool {
        for (at, to) in (start..).zip(to.iter_mut()) {
            let bits = match self.all.load(Ordering::Relaxed) {
                0 => number(step, at / 4).to_bits(),
                all => all,
            };
            *to = bits.to_le_bytes()[at % 4] ^ u8::from(at == FLIPPED && self.is_flipped.load(Ordering::Relaxed));
        }
        self.step.load(Ordering::Relaxed) == step
    }
}

/// A run, whose thread serves.
struct MadeRun {
    url: String,
    copy: Copy,
    steps: Steps,
    readers: Arc<Readers>,
    notes: Arc<Mutex<String>>,
}

impl MadeRun {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let url = format!("http://127.0.0.1:{port}");
        let tensor = |number: usize, offset: usize| PublishedTensor {
            name: format!("w{number}"),
            shape: vec![ELEMENTS[number] / 4, 4],
            transposed: number == 1,
            parts: vec![Part { rank: 0, offset, start: 0, len: ELEMENTS[number] }],
        };
        let layout = Layout {
            model: "Made".to_owned(),
            dtype: "f32".to_owned(),
            ranks: vec![RankAddress { url: None, port, bytes: BYTES }],
            tensors: vec![tensor(0, 0), tensor(1, 4 * ELEMENTS[0])],
            files: Vec::new(),
        };
        let (secret, run) = ([9; 32], run_name(&[9; 32]));
        let served = Served { rank: 0, run, secret, token: None, layout, files: Vec::new(), first: url.clone() };
        let readers = Arc::new(Readers::default());
        let (server, steps) = Server::new(listener, served, Arc::clone(&readers));
        let (copy, notes) = (Copy::default(), Arc::<Mutex<String>>::default());
        let (served_copy, told) = (copy.clone(), Arc::clone(&notes));
        std::thread::spawn(move || server.run(served_copy, move |note| told.lock().expect("notes").push_str(note)));
        Self { url, copy, steps, readers, notes }
    }

    /// Publishes a step, and waits until its manifest is shown.
    fn publish(&self, step: u64) {
        self.copy.step.store(step, Ordering::Relaxed);
        self.steps.offer(step);
        assert!(self.readers.wait_until_shown(step, Duration::from_secs(20)));
    }

    /// Waits until the run is told something about a reader.
    fn told(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.notes.lock().expect("notes").contains(words) {
            assert!(Instant::now() < until, "not within 20 s: {words}; {}", self.notes.lock().expect("notes"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The tensors of a model: those of the run, unless something differs.
fn model(differs: impl Fn(usize, &mut Expected)) -> Vec<Expected> {
    let expected = |number: usize| {
        let names = vec![format!("tied{number}"), format!("w{number}")];
        let mut expected = Expected { names, shape: vec![ELEMENTS[number] / 4, 4], transposed: number == 1 };
        differs(number, &mut expected);
        expected
    };
    (0..ELEMENTS.len()).map(expected).collect()
}

fn followed(run: &MadeRun, model: Vec<Expected>) -> (Receiver<Arrival>, Following) {
    let met = FollowedRun::meet(&run.url, None, "w", Duration::from_secs(20)).expect("a run");
    let mailbox = Worker::new(OnUpdate::Keep, Duration::ZERO).mailbox();
    met.follow(model, false, mailbox, |_| ()).expect("a thread")
}

/// The numbers of the next version, and the version.
fn next(arrivals: &mut Receiver<Arrival>) -> (Vec<Vec<f32>>, WholeVersion) {
    let mut tensors = ELEMENTS.map(|elements| vec![f32::NAN; elements]).to_vec();
    loop {
        match arrivals.blocking_recv().expect("an arrival") {
            Arrival::Numbers { tensor, first, numbers } => {
                tensors[tensor][first..first + numbers.len()].copy_from_slice(&numbers);
            }
            Arrival::Whole(whole) => return (tensors, whole),
        }
    }
}

fn assert_of(tensors: &[Vec<f32>], step: u64) {
    let wrong = tensors.iter().flatten().enumerate().find(|&(at, found)| *found != number(step, at));
    assert_eq!(wrong, None, "step {step}");
}

#[test]
fn versions_arrive_one_after_another() {
    let run = MadeRun::new();
    run.publish(1);
    let (mut arrivals, following) = followed(&run, model(|_, _| ()));
    let (first, whole) = next(&mut arrivals);
    assert_of(&first, 1);
    // Nothing of a newer version comes before this one is taken.
    run.publish(2);
    std::thread::sleep(Duration::from_millis(100));
    assert!(arrivals.try_recv().is_err());
    assert!(whole.take().starts_with("1-"));
    let (second, whole) = next(&mut arrivals);
    assert_of(&second, 2);
    assert!(whole.take().starts_with("2-"));
    drop(following);
    assert!(arrivals.blocking_recv().is_none());
}

#[test]
fn a_version_with_a_flipped_bit_or_without_numbers_is_refused() {
    let run = MadeRun::new();
    run.publish(1);
    let (mut arrivals, _following) = followed(&run, model(|_, _| ()));
    let (_, whole) = next(&mut arrivals);
    // The bit turns once hashes are made.
    run.publish(2);
    run.copy.is_flipped.store(true, Ordering::Relaxed);
    whole.take();
    run.told("reader `w` refused version 2-");
    run.told("piece 1 of rank 0 of version 2-");
    run.copy.is_flipped.store(false, Ordering::Relaxed);
    run.copy.all.store(f32::INFINITY.to_bits(), Ordering::Relaxed);
    // What has arrived of those that are refused is covered by the next one.
    let drained = std::thread::spawn(move || {
        let (tensors, whole) = next(&mut arrivals);
        (tensors, whole.take())
    });
    run.publish(3);
    run.told("`tied0` has numbers that are not finite");
    run.copy.all.store(0, Ordering::Relaxed);
    run.publish(4);
    let (tensors, version) = drained.join().expect("a version");
    assert_of(&tensors, 4);
    assert!(version.starts_with("4-"));
}

#[test]
fn a_run_of_another_model_is_refused() {
    type Differs<'a> = &'a dyn Fn(usize, &mut Expected);
    let nameless: Differs = &|number, it| it.names.retain(|_| number > 0);
    for (differs, words) in [
        (nameless, "it has `w0`"),
        (&|_, it| it.shape.reverse(), "in this model"),
        (&|_, it| it.transposed = false, "in this model"),
    ] {
        let run = MadeRun::new();
        run.publish(1);
        let (mut arrivals, _following) = followed(&run, model(differs));
        run.told(words);
        assert!(arrivals.try_recv().is_err());
    }
    let run = MadeRun::new();
    run.publish(1);
    let more = Expected { names: vec!["more".to_owned()], shape: vec![1], transposed: false };
    let (_arrivals, _following) = followed(&run, model(|_, _| ()).into_iter().chain([more]).collect());
    run.told("it lacks `more`, which this model has");
}

#[test]
fn a_run_that_is_not_there_is_told_in_time() {
    for url in ["http://127.0.0.1:1", "nowhere"] {
        let error = FollowedRun::meet(url, None, "w", Duration::from_millis(200)).expect_err("nobody");
        assert!(error.contains("no answer from") && error.contains(url), "{error}");
    }
}
