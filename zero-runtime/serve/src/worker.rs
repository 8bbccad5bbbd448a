//! Worker: the thread that decodes. It takes jobs into slots, decodes a token of each at a time, takes newer weights between two steps,
//! and sleeps while there is nothing to do. Never knows HTTP or text.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use crate::control::{Counts, Mailbox, Message, Pause};
use crate::decoder::{Decoder, Row};
use crate::job::{Ending, Job, Told};
use crate::sequence::Sequence;

/// How often a worker that stands still looks whether those who wait are still there.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// What becomes of sequences when newer weights come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnUpdate {
    /// They go on: what their caches hold of the older weights stays.
    #[default]
    Keep,
    /// They go on, after their caches are computed anew.
    Recompute,
    /// They end first; others wait, and so do the weights.
    Wait,
    /// They end.
    Abort,
}

/// The part of a worker that decodes.
pub struct Worker {
    mailbox: Mailbox,
    messages: Receiver<Message>,
    on_update: OnUpdate,
    /// How long sequences may go on once the worker is to end.
    drain: Duration,
}

impl Worker {
    /// A worker, and the mailbox by which it is reached.
    pub fn new(on_update: OnUpdate, drain: Duration) -> Self {
        let (mailbox, messages) = Mailbox::new();
        Self { mailbox, messages, on_update, drain }
    }

    /// By which other threads reach it.
    pub fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Decodes until it is told to end.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn run(self, decoder: &mut impl Decoder) -> Result<(), String> {
        let Self { mailbox, messages, on_update, drain } = self;
        let counts = Arc::clone(mailbox.counts());
        let (slots, classes) = (decoder.slots(), decoder.classes());
        let mut desk = Desk {
            counts,
            waiting: VecDeque::new(),
            running: Vec::with_capacity(slots),
            free: (0..slots).rev().collect(),
            rows: Vec::with_capacity(slots),
            logits: vec![0.0; slots * classes],
            version: Arc::from(decoder.version()),
            on_update,
            drain,
            paused: None,
            is_stale: false,
            ends_at: None,
        };
        desk.counts.set_version(&desk.version);
        let result = desk.work(decoder, &messages);
        desk.end_all(Ending::Shutdown);
        result
    }
}

/// What is on the desk of a worker.
struct Desk {
    counts: Arc<Counts>,
    waiting: VecDeque<Box<Job>>,
    running: Vec<Sequence>,
    free: Vec<usize>,
    rows: Vec<Row>,
    logits: Vec<f32>,
    version: Arc<str>,
    on_update: OnUpdate,
    drain: Duration,
    paused: Option<Pause>,
    /// Whether a newer version is whole.
    is_stale: bool,
    ends_at: Option<Instant>,
}

impl Desk {
    fn work(&mut self, decoder: &mut impl Decoder, messages: &Receiver<Message>) -> Result<(), String> {
        loop {
            if !self.take_messages(messages) {
                return Ok(());
            }
            self.drop_unheard();
            self.is_stale = self.is_stale || decoder.receive()?;
            if self.is_stale && self.may_refresh() {
                self.refresh(decoder)?;
            }
            let began = Instant::now();
            self.admit(decoder)?;
            self.step(decoder)?;
            Counts::add(&self.counts.busy_ns, began.elapsed().as_nanos() as u64);
        }
    }

    /// Takes all messages, and sleeps until there is one if there is nothing to do. Returns false at the end.
    fn take_messages(&mut self, messages: &Receiver<Message>) -> bool {
        loop {
            let message = if self.has_work() {
                match messages.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Empty) => return !self.is_over(),
                    Err(TryRecvError::Disconnected) => return false,
                }
            } else if self.is_over() {
                return false;
            } else {
                let now = Instant::now();
                // Those who wait while nothing is decoded may go away.
                let looks_at = (!self.is_idle()).then(|| now + LOOKS_EVERY);
                let received = match self.ends_at.into_iter().chain(looks_at).min() {
                    Some(until) => messages.recv_timeout(until.saturating_duration_since(now)),
                    None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match received {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => return !self.is_over(),
                    Err(RecvTimeoutError::Disconnected) => return false,
                }
            };
            match message {
                Message::Job(job) if self.ends_at.is_some() => self.end_job(&job, Ending::Shutdown),
                Message::Job(job) => self.waiting.push_back(job),
                // What has arrived is looked at once messages are taken.
                Message::Wake => return true,
                Message::Pause(pause) => self.pause(pause),
                Message::Resume => {
                    self.paused = None;
                    self.counts.is_paused.store(false, Ordering::Relaxed);
                }
                Message::End => self.ends_at = Some(Instant::now() + self.drain),
            }
        }
    }

    /// Whether there is something to do without another message.
    fn has_work(&self) -> bool {
        if self.is_stale && self.may_refresh() {
            return true;
        }
        match self.paused {
            None => !self.running.is_empty() || !self.waiting.is_empty(),
            Some(Pause::Wait) => !self.running.is_empty(),
            Some(Pause::Keep | Pause::Abort) => false,
        }
    }

    /// Whether the worker is to end now.
    fn is_over(&self) -> bool {
        self.ends_at.is_some_and(|ends_at| self.is_idle() || Instant::now() >= ends_at)
    }

    /// Whether nobody waits for anything.
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    fn pause(&mut self, pause: Pause) {
        self.paused = Some(pause);
        self.counts.is_paused.store(true, Ordering::Relaxed);
        if pause == Pause::Abort {
            self.end_all(Ending::Aborted);
        }
    }

    /// Frees the slots of sequences whose clients have gone.
    fn drop_unheard(&mut self) {
        self.retain(|sequence| sequence.is_awaited());
        let waiting = self.waiting.len();
        self.waiting.retain(|job| !job.told.is_closed());
        self.counts.open.fetch_sub(waiting - self.waiting.len(), Ordering::Relaxed);
    }

    /// Keeps sequences that go on.
    fn retain(&mut self, mut goes_on: impl FnMut(&mut Sequence) -> bool) {
        let (free, before) = (&mut self.free, self.running.len());
        self.running.retain_mut(|sequence| {
            let goes_on = goes_on(sequence);
            if !goes_on {
                free.push(sequence.slot);
            }
            goes_on
        });
        self.counts.open.fetch_sub(before - self.running.len(), Ordering::Relaxed);
        self.counts.running.store(self.running.len(), Ordering::Relaxed);
    }

    fn end_job(&self, job: &Job, ending: Ending) {
        // Whoever has gone needs no end.
        let _ = job.told.send(Told::Ended(ending));
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends everything.
    fn end_all(&mut self, ending: Ending) {
        self.retain(|sequence| sequence.end(ending));
        while let Some(job) = self.waiting.pop_front() {
            self.end_job(&job, ending);
        }
    }

    /// Whether newer weights may be taken now.
    fn may_refresh(&self) -> bool {
        self.on_update != OnUpdate::Wait || self.running.is_empty()
    }

    fn refresh(&mut self, decoder: &mut impl Decoder) -> Result<(), String> {
        let began = Instant::now();
        if self.on_update == OnUpdate::Abort {
            self.retain(|sequence| sequence.end(Ending::Aborted));
        }
        decoder.refresh()?;
        self.is_stale = false;
        self.version = Arc::from(decoder.version());
        self.counts.set_version(&self.version);
        if self.on_update == OnUpdate::Recompute {
            let (version, logits) = (Arc::clone(&self.version), &mut self.logits[..decoder.classes()]);
            let mut failed = Ok(());
            let mut running = std::mem::take(&mut self.running);
            running.retain_mut(|sequence| {
                failed = failed.clone().and_then(|()| decoder.prefill(sequence.slot, &sequence.ids, logits));
                let goes_on = failed.is_ok() && sequence.go_on(logits, &version);
                if !goes_on {
                    self.free.push(sequence.slot);
                    self.counts.open.fetch_sub(1, Ordering::Relaxed);
                }
                goes_on
            });
            self.running = running;
            failed?;
        }
        Counts::add(&self.counts.updates, 1);
        Counts::add(&self.counts.update_ns, began.elapsed().as_nanos() as u64);
        Ok(())
    }

    /// Takes jobs into free slots.
    fn admit(&mut self, decoder: &mut impl Decoder) -> Result<(), String> {
        let waits_for_weights = self.is_stale && self.on_update == OnUpdate::Wait;
        while self.paused.is_none() && !waits_for_weights && !self.free.is_empty() {
            let Some(job) = self.waiting.pop_front() else { break };
            let Some(slot) = self.free.pop() else { break };
            let (classes, mut sequence) = (decoder.classes(), Sequence::new(job, slot, decoder.classes()));
            let logits = &mut self.logits[..classes];
            decoder.prefill(slot, &sequence.ids, logits)?;
            Counts::add(&self.counts.prompt_tokens, sequence.ids.len() as u64);
            Counts::add(&self.counts.generated_tokens, 1);
            if sequence.go_on(logits, &self.version) {
                self.running.push(sequence);
            } else {
                self.free.push(slot);
                self.counts.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.counts.running.store(self.running.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Decodes a token of each sequence.
    fn step(&mut self, decoder: &mut impl Decoder) -> Result<(), String> {
        if self.running.is_empty() || matches!(self.paused, Some(Pause::Keep | Pause::Abort)) {
            return Ok(());
        }
        self.rows.clear();
        self.rows.extend(self.running.iter().map(Sequence::row));
        let (count, classes) = (self.rows.len(), decoder.classes());
        decoder.step(&self.rows, &mut self.logits[..count * classes])?;
        Counts::add(&self.counts.steps, 1);
        Counts::add(&self.counts.generated_tokens, count as u64);
        let (version, logits) = (Arc::clone(&self.version), std::mem::take(&mut self.logits));
        let mut rows = logits.chunks_exact(classes);
        self.retain(|sequence| rows.next().is_some_and(|logits| sequence.go_on(logits, &version)));
        self.logits = logits;
        Ok(())
    }
}
