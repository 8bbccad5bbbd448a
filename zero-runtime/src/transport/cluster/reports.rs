//! Reports: what the ranks of a host are at, told to those of other hosts while one of them is long at the same. So whoever gives a
//! rank up knows which one, and what it was in, also where it is on another host. Ranks that go on tell nothing.
//!
//! Each rank tells its counterparts, which have its place on other hosts, of all ranks of its host: it may be the only one there
//! that still can. A report is received before the next is sent, so nothing heaps up where a rank does not listen.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ops::Range;
use std::time::{Duration, Instant};

use zero_plan::postings::REPORT_TAG;

use super::mpi::{Mpi, Request};
use super::post::{Counts, Whose};
use crate::transport::control::Words;
use crate::transport::doing::awaited_on_host;
use crate::transport::silent::Life;

const TAG: c_int = REPORT_TAG as c_int;

/// Between two looks, at this rank and at what has come. A rank that is at the same in two of them is long at it.
const PERIOD: Duration = Duration::from_millis(250);
/// Between two looks at the end, when nothing else is under way.
const BRIEF: Duration = Duration::from_micros(100);

/// The first word of the last report of a rank, and of others.
const LAST: u64 = 1;
const NOT_LAST: u64 = 0;

/// Of each rank: what it waits for and does, and whether it lives.
const WORDS_PER_RANK: usize = 3;

pub(super) struct Reports {
    rank: usize,
    ranks: usize,
    /// The ranks of this host.
    here: Range<usize>,
    counterparts: Vec<Counterpart>,
    /// What this rank waited for and did at the last look.
    seen: Words,
    /// What was told last.
    report: Vec<u64>,
    next_look: Instant,
}

impl Reports {
    /// For a rank that has `here` ranks on its host, as all have.
    pub fn new(mpi: &Mpi, here: usize) -> Self {
        let first = mpi.rank - mpi.rank % here;
        let counterparts = (mpi.rank % here..mpi.size).step_by(here).filter(|&rank| rank != mpi.rank);
        Self {
            rank: mpi.rank,
            ranks: mpi.size,
            here: first..first + here,
            counterparts: counterparts.map(|rank| Counterpart::new(mpi, rank, 1 + WORDS_PER_RANK * here)).collect(),
            seen: Words::default(),
            report: Vec::new(),
            next_look: Instant::now() + PERIOD,
        }
    }

    /// How long there is nothing to look at.
    pub fn rest(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Takes what has come, and tells what is to be told, if it is time.
    pub fn look(&mut self, mpi: &Mpi, counts: &dyn Counts) {
        if !self.rest().is_zero() {
            return;
        }
        self.next_look = Instant::now() + PERIOD;
        for counterpart in &mut self.counterparts {
            counterpart.hear(mpi, counts);
        }
        let own = counts.of(Whose::Host(self.rank));
        let at = own.words(own.awaited());
        let is_long = std::mem::replace(&mut self.seen, at) == at;
        let report = if is_long { self.seen_here(counts) } else { Vec::new() };
        // Once a rank is given up nobody waits any more: what was seen before says why.
        if own.lost().is_none() {
            self.report = report;
        }
        if !self.report.is_empty() {
            self.counterparts.iter_mut().for_each(|counterpart| counterpart.tell(mpi, &self.report));
        }
    }

    /// The ops that the ranks of this host are in.
    fn seen_here(&self, counts: &dyn Counts) -> Vec<u64> {
        let look = |rank| {
            let control = counts.of(Whose::Host(rank));
            let life = if self.here.contains(&rank) { Life::of(control.pid()) } else { Life::Elsewhere };
            (control, life)
        };
        let words = self.here.clone().flat_map(|rank| {
            let (control, life) = look(rank);
            let [awaited, doing] = control.words(awaited_on_host(rank, &self.here, self.ranks, look));
            [awaited, doing, life as u64]
        });
        std::iter::once(NOT_LAST).chain(words).collect()
    }

    /// Tells and hears the last: of all that was begun, nothing is left.
    pub fn end(&mut self, mpi: &Mpi, counts: &dyn Counts) {
        let mut last = vec![0; 1 + WORDS_PER_RANK * self.here.len()];
        last[0] = LAST;
        while !self.counterparts.iter().all(Counterpart::has_ended) {
            for counterpart in &mut self.counterparts {
                counterpart.hear(mpi, counts);
                counterpart.tell(mpi, &last);
            }
            std::thread::sleep(BRIEF);
        }
    }
}

/// A rank of another host, with what goes to it and comes from it. Where a call fails, nothing goes on with it: messages of the
/// plan fail as well, and those are told.
struct Counterpart {
    rank: usize,
    /// What is under way; none where nothing is, or nothing more is to come.
    sent: Option<Request>,
    received: Option<Request>,
    has_told_last: bool,
    /// Where they leave from and arrive. Nobody frees that, as requests that never end may use it.
    outbox: *mut [u64],
    inbox: *mut [u64],
}

impl Counterpart {
    fn new(mpi: &Mpi, rank: usize, words: usize) -> Self {
        let room = || Box::into_raw(vec![0; words].into_boxed_slice());
        let (outbox, inbox) = (room(), room());
        let mut own = Self { rank, sent: None, received: None, has_told_last: false, outbox, inbox };
        own.receive(mpi);
        own
    }

    fn receive(&mut self, mpi: &Mpi) {
        let (to, bytes) = (self.inbox.cast(), self.inbox.len() * size_of::<u64>());
        // SAFETY: the inbox is never freed, and read only when the request has come to its end.
        self.received = unsafe { mpi.receive(to, bytes, self.rank, TAG) }.ok();
    }

    /// Notes what has come.
    fn hear(&mut self, mpi: &Mpi, counts: &dyn Counts) {
        if !has_ended(mpi, &mut self.received) {
            return;
        }
        // SAFETY: the request has come to its end, and the next is not begun.
        let (head, words) = unsafe { &*self.inbox }.split_first().expect("a first word");
        if *head == LAST {
            return;
        }
        let (each, _) = words.as_chunks::<WORDS_PER_RANK>();
        let first = self.rank - self.rank % each.len();
        for (rank, &[awaited, doing, life]) in (first..).zip(each) {
            counts.of(Whose::Host(rank)).note_report([awaited, doing], Life::of_code(life));
        }
        self.receive(mpi);
    }

    /// Sends a report, if the one before has been received.
    fn tell(&mut self, mpi: &Mpi, report: &[u64]) {
        has_ended(mpi, &mut self.sent);
        if self.sent.is_some() || self.has_told_last {
            return;
        }
        // SAFETY: nothing is under way from there.
        unsafe { &mut *self.outbox }.copy_from_slice(report);
        let (from, bytes) = (self.outbox.cast_const().cast(), size_of_val(report));
        // SAFETY: the outbox is never freed, and written only when the request has come to its end.
        self.sent = unsafe { mpi.send_answered(from, bytes, self.rank, TAG) }.ok();
        self.has_told_last = report[0] == LAST;
    }

    /// Whether nothing is under way, and nothing will be.
    fn has_ended(&self) -> bool {
        self.has_told_last && self.sent.is_none() && self.received.is_none()
    }
}

/// Whether a request has just come to its end, and is none any more. It is none after a failure, too.
fn has_ended(mpi: &Mpi, request: &mut Option<Request>) -> bool {
    let ended = request.as_mut().map_or(Ok(false), |request| mpi.has_ended(request));
    if !matches!(ended, Ok(false)) {
        *request = None;
    }
    matches!(ended, Ok(true))
}
