//! Follow: the thread that fetches versions of a run's weights, checks them and hands their numbers to the thread that decodes, a piece at
//! a time. Never knows where a model keeps them.

use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

pub use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;
use zero_files::weights::WeightType;
use zero_publish::PublishError;
use zero_publish::client::{Reader, block_on};
use zero_publish::follow::{Keeper, NotKept, follow, number_bytes, require_parts};
use zero_publish::wire::{Layout, Version};

use crate::control::Mailbox;

/// Pieces that may wait for the thread that decodes.
const WAITING_MAX: usize = 4;
/// How much longer than it has patience for a run a worker may take to say why.
const GRACE: Duration = Duration::from_secs(1);
/// How long the run is told that the worker leaves.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// A tensor that a model has.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The names under which it may be published.
    pub names: Vec<String>,
    /// Its dims as published.
    pub shape: Vec<usize>,
    /// Whether its elements come in the order of the transposed matrix.
    pub transposed: bool,
}

/// What has arrived.
#[derive(Debug)]
pub enum Arrival {
    /// Numbers of a tensor of the model, in its own order.
    Numbers {
        /// The tensor, by its number.
        tensor: usize,
        /// The first element.
        first: usize,
        /// The numbers.
        numbers: Vec<f32>,
    },
    /// All numbers of a version have arrived since the last one, and are as they were published. No more come before it is taken.
    Whole(WholeVersion),
}

/// A version that is there.
#[derive(Debug)]
pub struct WholeVersion {
    /// Its name.
    pub version: String,
    taken: oneshot::Sender<()>,
}

impl WholeVersion {
    /// Says that it is in use, and returns its name. The run is told, and the next one may come.
    pub fn take(self) -> String {
        // A thread that has ended fetches no more.
        let _ = self.taken.send(());
        self.version
    }
}

/// A run whose weights a worker takes.
#[derive(Debug)]
pub struct FollowedRun {
    reader: Reader,
    /// The files beside its tensors.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The thread that follows a run. It ends, and leaves the run, when this is dropped.
#[derive(Debug)]
pub struct Following {
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            // It has told a person what went wrong.
            let _ = thread.join();
        }
    }
}

/// Reads the files of a run, once it has a version.
struct FirstFiles(Vec<(String, Vec<u8>)>);

impl Keeper for FirstFiles {
    async fn keep(&mut self, reader: &mut Reader, version: &Version) -> Result<(), NotKept> {
        let layout = reader.layout(version).await?;
        self.0.clear();
        for file in &layout.files {
            self.0.push((file.name.clone(), reader.file(version, file).await?.to_vec()));
        }
        // The version is not in use yet, so the run is told nothing.
        Err(NotKept::Gone)
    }

    fn note(&mut self, _: &str) {}
}

impl FollowedRun {
    /// Meets the run whose rank 0 publishes at `url`, once it has published something.
    ///
    /// # Errors
    /// A sentence, if nobody answers for as long as `patience`.
    pub fn meet(url: &str, token: Option<&str>, name: &str, patience: Duration) -> Result<Self, String> {
        let mut reader = Reader::new(url, token, name);
        let mut files = FirstFiles(Vec::new());
        let met = block_on(async {
            let waited =
                tokio::time::timeout(patience.saturating_add(GRACE), follow(&mut reader, &mut files, patience, true))
                    .await;
            waited.unwrap_or_else(|_| Err(PublishError::nothing(url)))
        });
        met.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(Self { reader, files: files.0 })
    }

    /// Follows it from here on, for a model with these tensors: to the first version alone if it is to be taken `once`. `report` tells
    /// a person why a version is refused.
    ///
    /// # Errors
    /// Those of the system.
    pub fn follow(
        self,
        expected: Vec<Expected>,
        once: bool,
        mailbox: Mailbox,
        report: fn(&str),
    ) -> std::io::Result<(Receiver<Arrival>, Following)> {
        let ((arrivals, received), (ends, ended)) = (channel(WAITING_MAX), oneshot::channel::<()>());
        let mut keeper = Staging { expected, matched: None, arrivals, mailbox, report };
        let mut reader = self.reader;
        let (started, starts) = sync_channel(0);
        let thread = std::thread::Builder::new().name("zero-follow".to_owned()).spawn(move || {
            let followed = block_on(async {
                drop(started);
                tokio::select! {
                    followed = follow(&mut reader, &mut keeper, Duration::MAX, once) => {
                        if let Err(error) = followed {
                            report(&format!("note: {error}"));
                        }
                    }
                    _ = ended => {}
                }
                // A run that does not listen any more forgets it by itself.
                let _ = tokio::time::timeout(LEAVE_WITHIN, reader.leave()).await;
            });
            if let Err(error) = followed {
                report(&format!("note: no newer weights come: {error}"));
            }
        })?;
        // It has ended, or runs.
        let _: Result<(), _> = starts.recv();
        Ok((received, Following { ends: Some(ends), thread: Some(thread) }))
    }
}

/// Hands versions to the thread that decodes.
struct Staging {
    expected: Vec<Expected>,
    /// The hash of the layout that was looked at last, and the number of the model's tensor for each of its tensors.
    matched: Option<(String, Vec<usize>)>,
    arrivals: Sender<Arrival>,
    mailbox: Mailbox,
    report: fn(&str),
}

impl Keeper for Staging {
    async fn keep(&mut self, reader: &mut Reader, version: &Version) -> Result<(), NotKept> {
        let fetching = reader.fetch(version).await?;
        if self.matched.as_ref().is_none_or(|(layout, _)| *layout != fetching.manifest.layout) {
            require_parts(&fetching.layout)?;
            let matched = matched(&self.expected, &fetching.layout).map_err(NotKept::Refused)?;
            self.matched = Some((fetching.manifest.layout.clone(), matched));
        }
        let kind = if number_bytes(&fetching.layout)? == 4 { WeightType::F32 } else { WeightType::BF16 };
        let (matched, arrivals, mailbox) = (&self.matched, &self.arrivals, &self.mailbox);
        let matched = matched.as_ref().map_or(&[][..], |(_, matched)| matched);
        let hand = async |tensor: usize, first, bytes: &[u8]| {
            let (mut numbers, tensor) = (vec![0.0; bytes.len() / kind.bytes()], matched[tensor]);
            kind.decode(bytes, &mut numbers, 0, 1);
            if numbers.iter().any(|number| !number.is_finite()) {
                let name = &self.expected[tensor].names[0];
                return Err(NotKept::Refused(format!("`{name}` has numbers that are not finite")));
            }
            arrivals.send(Arrival::Numbers { tensor, first, numbers }).await.map_err(|_| NotKept::Gone)?;
            mailbox.wake();
            Ok(())
        };
        fetching.hand_over(hand).await?;
        let (taken, is_taken) = oneshot::channel();
        let whole = WholeVersion { version: version.0.clone(), taken };
        self.arrivals.send(Arrival::Whole(whole)).await.map_err(|_| NotKept::Gone)?;
        self.mailbox.wake();
        is_taken.await.map_err(|_| NotKept::Gone)
    }

    fn note(&mut self, what: &str) {
        (self.report)(&format!("note: {what}"));
    }
}

/// For each tensor of a layout, the number of the model's.
fn matched(expected: &[Expected], layout: &Layout) -> Result<Vec<usize>, String> {
    let mut found = vec![false; expected.len()];
    let mut matched = Vec::new();
    for tensor in &layout.tensors {
        let number = expected.iter().position(|it| it.names.contains(&tensor.name));
        let number = number.ok_or_else(|| format!("it has `{}`, which this model does not have", tensor.name))?;
        let Expected { shape, transposed, .. } = &expected[number];
        if *shape != tensor.shape || *transposed != tensor.transposed || std::mem::replace(&mut found[number], true) {
            let name = &tensor.name;
            return Err(format!(
                "`{name}` is {:?}, and {shape:?} in this model, in another order or twice",
                tensor.shape
            ));
        }
        matched.push(number);
    }
    match found.iter().position(|found| !found) {
        Some(number) => Err(format!("it lacks `{}`, which this model has", expected[number].names[0])),
        None => Ok(matched),
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
