//! Control: what the thread that decodes and the thread that answers tell each other. The first sleeps while there is nothing to do, so
//! whoever has something for it wakes it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::job::Job;

/// A message to the thread that decodes.
#[derive(Debug)]
pub(crate) enum Message {
    /// A sequence to generate.
    Job(Box<Job>),
    /// Something has arrived for the decoder.
    Wake,
    /// No sequence goes on until it is told to.
    Pause(Pause),
    /// Sequences go on.
    Resume,
    /// The worker ends, once its sequences have ended.
    End,
}

/// What becomes of sequences when a worker is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// They go on afterwards.
    Keep,
    /// They end now.
    Abort,
    /// They end first; others wait.
    Wait,
}

/// By which other threads reach the one that decodes.
#[derive(Clone, Debug)]
pub struct Mailbox {
    sender: Sender<Message>,
    counts: Arc<Counts>,
}

/// What a worker has done, and has to do.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Sequences that have not ended, and of these the ones in slots.
    pub open: AtomicUsize,
    pub running: AtomicUsize,
    /// Steps, tokens of prompts and tokens that were generated.
    pub steps: AtomicU64,
    pub prompt_tokens: AtomicU64,
    pub generated_tokens: AtomicU64,
    /// Nanoseconds in which it decoded.
    pub busy_ns: AtomicU64,
    /// How often newer weights were taken.
    pub updates: AtomicU64,
    /// Nanoseconds for which sequences stood still for that, altogether.
    pub update_ns: AtomicU64,
    pub is_paused: AtomicBool,
    pub ends: AtomicBool,
    version: Mutex<Arc<str>>,
}

impl Counts {
    /// The version of the weights in use.
    pub fn version(&self) -> Arc<str> {
        Arc::clone(&self.version.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_version(&self, version: &Arc<str>) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(version);
    }

    /// Adds to a count.
    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

impl Mailbox {
    /// A mailbox, and where its messages come out.
    pub(crate) fn new() -> (Self, Receiver<Message>) {
        let (sender, messages) = channel();
        (Self { sender, counts: Arc::default() }, messages)
    }

    /// Wakes the thread that decodes, because something has arrived for it.
    pub fn wake(&self) {
        self.send(Message::Wake);
    }

    /// Ends the worker: what it has begun comes to an end, and what is new is refused.
    pub fn end(&self) {
        self.counts.ends.store(true, Ordering::Relaxed);
        self.send(Message::End);
    }

    pub(crate) fn send(&self, message: Message) {
        // A worker that has ended needs no message.
        let _ = self.sender.send(message);
    }

    /// What the worker has done.
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}
