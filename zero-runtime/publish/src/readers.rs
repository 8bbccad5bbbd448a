//! Readers: who has joined, what each has said about versions, and whether training still waits for it. Bounded: a reader that is
//! silent for long is forgotten.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most readers that may have joined.
pub const READERS_MAX: usize = 1024;
/// A reader that says nothing for this long is forgotten: it has to join again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// The longest name, in bytes.
const NAME_MAX: usize = 64;

/// What the thread of rank 0 and the one that serves know of readers and versions.
#[derive(Debug, Default)]
pub struct Readers {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    readers: HashMap<String, Reader>,
    /// The step of the newest version that is whole on all ranks.
    shown: Option<u64>,
    /// Readers that have joined so far.
    joined: u64,
}

#[derive(Debug)]
struct Reader {
    name: String,
    /// The newest version that it has applied or refused, by its step.
    settled: Option<u64>,
    /// Whether training has stopped waiting for it, until it says something again.
    is_given_up: bool,
    heard: Instant,
}

impl Readers {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step of the newest version that is whole on all ranks.
    pub fn shown(&self) -> Option<u64> {
        self.told().shown
    }

    /// Notes that a version is whole on all ranks.
    pub fn show(&self, step: u64) {
        self.told().shown = Some(step);
        self.changed.notify_all();
    }

    /// A new reader, by an id that `secret` makes hard to guess. None if there are too many.
    pub fn join(&self, name: &str, secret: &[u8]) -> Option<String> {
        let mut told = self.told();
        told.readers.retain(|_, reader| reader.heard.elapsed() < FORGOTTEN_AFTER);
        if told.readers.len() >= READERS_MAX {
            return None;
        }
        told.joined += 1;
        let id = blake3::hash(&[secret, &told.joined.to_le_bytes()].concat()).to_hex()[..16].to_owned();
        let name = name.chars().filter(|letter| !letter.is_control()).take(NAME_MAX).collect();
        let reader = Reader { name, settled: None, is_given_up: false, heard: Instant::now() };
        told.readers.insert(id.clone(), reader);
        Some(id)
    }

    /// Notes what a reader says about the version of a step. Returns its name; none if it has not joined.
    pub fn acknowledge(&self, id: &str, step: Option<u64>) -> Option<String> {
        let mut told = self.told();
        let reader = told.readers.get_mut(id)?;
        (reader.heard, reader.is_given_up) = (Instant::now(), false);
        reader.settled = reader.settled.max(step);
        let name = reader.name.clone();
        drop(told);
        self.changed.notify_all();
        Some(name)
    }

    /// Forgets a reader. Returns whether it had joined.
    pub fn leave(&self, id: &str) -> bool {
        let left = self.told().readers.remove(id).is_some();
        self.changed.notify_all();
        left
    }

    /// Waits until the version of a step is whole on all ranks, for at most `patience`. Returns whether it is.
    pub fn wait_until_shown(&self, step: u64, patience: Duration) -> bool {
        let is_hidden = |told: &mut Told| told.shown.is_none_or(|shown| shown < step);
        let waited = self.changed.wait_timeout_while(self.told(), patience, is_hidden);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits until every reader has applied or refused the version of a step, for at most `patience`. Returns the names of those that
    /// have not: training waits for them only once they say something again.
    pub fn wait_for_all(&self, step: u64, patience: Duration) -> Vec<String> {
        fn lags(reader: &Reader, step: u64) -> bool {
            !reader.is_given_up && reader.settled.is_none_or(|settled| settled < step)
        }
        let is_awaited = |told: &mut Told| told.readers.values().any(|reader| lags(reader, step));
        let waited = self.changed.wait_timeout_while(self.told(), patience, is_awaited);
        let (mut told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let late = told.readers.values_mut().filter(|reader| lags(reader, step));
        let mut names: Vec<String> = late
            .map(|reader| {
                reader.is_given_up = true;
                reader.name.clone()
            })
            .collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn training_waits_for_readers_until_they_say_something_or_leave() {
        let readers = Readers::default();
        assert_eq!(readers.wait_for_all(5, NOW), [""; 0]);
        let [a, b] = ["a", "b"].map(|name| readers.join(name, b"secret").expect("room"));
        assert_eq!(readers.acknowledge(&a, Some(5)).as_deref(), Some("a"));
        assert_eq!(readers.wait_for_all(5, NOW), ["b"]);
        // It is not waited for again, until it is heard.
        assert_eq!(readers.wait_for_all(6, NOW), ["a"]);
        readers.acknowledge(&b, Some(5));
        assert_eq!(readers.wait_for_all(6, NOW), ["b"]);
        readers.acknowledge(&b, None);
        assert!(readers.leave(&b) && !readers.leave(&b));
        assert_eq!(readers.wait_for_all(6, NOW), [""; 0]);
        assert_eq!(readers.acknowledge("other", Some(7)), None);
        assert!(a != b && a.len() == 16);
    }

    #[test]
    fn a_version_is_shown_to_those_who_wait() {
        let readers = Readers::default();
        assert!(!readers.wait_until_shown(3, NOW));
        std::thread::scope(|scope| {
            scope.spawn(|| readers.show(3));
            assert!(readers.wait_until_shown(3, Duration::from_secs(60)));
        });
        assert_eq!(readers.shown(), Some(3));
        assert!(readers.wait_until_shown(2, NOW) && !readers.wait_until_shown(4, NOW));
    }

    #[test]
    fn there_is_no_room_for_any_number_of_readers() {
        let readers = Readers::default();
        let joined = (0..=READERS_MAX).filter_map(|_| readers.join("x", b"")).count();
        assert_eq!(joined, READERS_MAX);
    }
}
