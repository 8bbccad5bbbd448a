//! Reports: tell ranks of other hosts the current ops and the counts of the ranks of this host, while one of these ranks
//! stays in the same op for long. A rank that gives up a rank of another host can then name it and its op. Ranks that make
//! progress report nothing, but a rank whose device works on one step for long counts as a rank that waits.
//!
//! Each rank tells its counterparts on other hosts about all ranks of its host, because it may be the only one there
//! that still can. A report is received before the next is sent, so none pile up for a rank that does not listen.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ops::Range;
use std::time::{Duration, Instant};

use zero_plan::postings::REPORT_TAG;

use super::mpi::{Mpi, MpiRequest};
use super::progress_thread::{CountedBlocks, RaisedCounts};
use crate::transport::Life;
use crate::transport::control::{COUNT_WORDS, Words};
use crate::transport::watchdog::awaited_on_host;

const TAG: c_int = REPORT_TAG as c_int;

/// The time between two looks at the ranks of this host and at reports that have arrived. A rank that does the same at
/// two looks has done it for long.
const PERIOD: Duration = Duration::from_millis(250);
/// The time between two looks at the end, when nothing else is under way.
const BRIEF: Duration = Duration::from_micros(100);

/// The first word of a rank's last report, and of its other reports.
const LAST: u64 = 1;
const NOT_LAST: u64 = 0;

/// Words about each rank: what it waits for and does, whether it lives, and its counts.
const WORDS_PER_RANK: usize = 3 + COUNT_WORDS;

pub(super) struct Reports {
    rank: usize,
    ranks: usize,
    /// The ranks of this host.
    here: Range<usize>,
    counterparts: Vec<Counterpart>,
    /// What this rank waited for and did at the last look.
    seen: Words,
    /// The last report.
    report: Vec<u64>,
    next_look: Instant,
}

impl Reports {
    /// The reports of a rank whose host has `here` ranks, as all hosts have.
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

    /// The time until the next look.
    pub fn rest(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Reads reports that have arrived, and sends one if it is time.
    pub fn look(&mut self, mpi: &Mpi, counts: &dyn RaisedCounts) {
        if !self.rest().is_zero() {
            return;
        }
        self.next_look = Instant::now() + PERIOD;
        for counterpart in &mut self.counterparts {
            counterpart.hear(mpi, counts);
        }
        let own = counts.of(CountedBlocks::Host(self.rank));
        // Reports of others change what a rank seems to wait for, and must not keep it from telling its own counts.
        let at = own.words(own.awaited().filter(|_| !counts.come_by_reports()));
        let is_long = std::mem::replace(&mut self.seen, at) == at;
        let report = if is_long { self.seen_here(counts) } else { Vec::new() };
        // Once a rank is given up, no rank waits any more. The report before that is kept, because it shows the cause.
        if own.lost().is_none() {
            self.report = report;
        }
        if !self.report.is_empty() {
            self.counterparts.iter_mut().for_each(|counterpart| counterpart.tell(mpi, &self.report));
        }
    }

    /// A report on the ranks of this host.
    fn seen_here(&self, counts: &dyn RaisedCounts) -> Vec<u64> {
        let look = |rank| {
            let control = counts.of(CountedBlocks::Host(rank));
            let life = if self.here.contains(&rank) { Life::of(control.pid()) } else { Life::Elsewhere };
            (control, life)
        };
        let words = self.here.clone().flat_map(|rank| {
            let (control, life) = look(rank);
            let [awaited, doing] = control.words(awaited_on_host(rank, &self.here, self.ranks, look));
            [awaited, doing, life as u64].into_iter().chain(control.counts())
        });
        std::iter::once(NOT_LAST).chain(words).collect()
    }

    /// Sends and receives the last reports, so that no request is left.
    pub fn end(&mut self, mpi: &Mpi, counts: &dyn RaisedCounts) {
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

/// A rank of another host, with the reports to it and from it. After a call that fails, there are no more of them:
/// messages of the plan fail as well, and that is reported.
struct Counterpart {
    rank: usize,
    /// The requests under way, if any.
    sent: Option<MpiRequest>,
    received: Option<MpiRequest>,
    has_told_last: bool,
    /// The memory that reports leave from and arrive in. It is never freed, because requests that never end may use it.
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

    /// Notes a report that has arrived.
    fn hear(&mut self, mpi: &Mpi, counts: &dyn RaisedCounts) {
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
        for (rank, &[awaited, doing, life, ref told @ ..]) in (first..).zip(each) {
            let control = counts.of(CountedBlocks::Host(rank));
            if counts.come_by_reports() {
                control.note_counts(*told);
            }
            control.note_report([awaited, doing], Life::of_code(life));
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

/// Whether a request has just ended. It then becomes none, as it does after a failure.
fn has_ended(mpi: &Mpi, request: &mut Option<MpiRequest>) -> bool {
    let ended = request.as_mut().map_or(Ok(false), |request| mpi.has_ended(request));
    if !matches!(ended, Ok(false)) {
        *request = None;
    }
    matches!(ended, Ok(true))
}
