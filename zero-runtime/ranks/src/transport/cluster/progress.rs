//! Progress: the work under way on the thread that calls MPI: batches of messages, which travel in pieces, and the
//! counts that are raised at their ends. Never knows what the bytes are.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::process::{Pid, getppid};

use super::clock;
use super::mpi::{Mpi, MpiRequest};
use super::progress_thread::{
    ComparedClocks, CountedBlocks, LOOK, MessageBytes, ROOM, Raise, RaisedCounts, ThreadEnd, ThreadOrder, ThreadState,
    lock,
};
use super::reports::Reports;
use crate::transport::control::Count;
use zero_core::device::Failure;

/// The most bytes of a piece. Libraries send this many over TCP without asking first whether the receiver is ready;
/// Open MPI asks from 64 KiB on, its header included. The question waits behind all bytes that were sent before it, so
/// two larger messages in opposite directions would take turns on a link that could carry both at once.
const PIECE_BYTES: usize = 56 << 10;
/// One in this many pieces of a batch is sent in a way that ends only when the piece is received.
const PIECES_PER_ANSWER: usize = 32;
/// The most of these that are under way at a time. A library keeps a copy of pieces that were sent before they were
/// received: with this limit, less than 9 MiB of a batch.
const ANSWERS: usize = 4;

/// Number of polls without a sleep between them after something has ended, because the next end is often near.
const EAGER_LOOKS: u32 = 20;

/// Makes no progress any more, because the launcher's helper on this host has died. Nothing would end this rank or pass
/// on its output; MPICH's launcher may not even notice. Ranks of other hosts can report the loss: after their timeout, they
/// give this rank up by name. If this rank ended at once, their launcher would notice, and end them before they have
/// reported.
fn fall_silent() -> ! {
    loop {
        std::thread::park();
    }
}

/// A piece that is being sent or received.
struct MessagePiece {
    request: MpiRequest,
    peer: usize,
    is_answered: bool,
}

/// Messages from or to one rank. A count is raised when all of them have ended.
struct MessageBatch {
    /// Messages that have not begun; a part of the first one may have.
    messages: VecDeque<MessageBytes>,
    pieces: VecDeque<MessagePiece>,
    /// Number of pieces so far.
    begun: usize,
    /// Number of pieces under way that end only when they are received.
    unanswered: usize,
    raise: Raise,
}

pub(super) struct Progress<'a> {
    mpi: Mpi,
    counts: Box<dyn RaisedCounts>,
    state: &'a ThreadState,
    batches: Vec<MessageBatch>,
    /// The ranks and tags to which a batch is not completely sent yet. No later batch of the same tag may overtake it.
    /// A batch of another tag must be able to, because the receiver may need it first.
    unsent: Vec<(usize, c_int)>,
    /// Counts whose batches are not complete: no later batch for one of them may overtake them.
    open: Vec<(CountedBlocks, Count)>,
    /// A buffer that is swapped with that of the inbox.
    told: VecDeque<ThreadOrder>,
    /// Messages of a batch whose raise has not been ordered yet.
    messages: VecDeque<MessageBytes>,
    /// The buffers of batches that have ended, to be used again.
    spare: Vec<(VecDeque<MessageBytes>, VecDeque<MessagePiece>)>,
    reports: Reports,
    /// The process that has started this one: the launcher, or its helper on this host.
    starter: Option<Pid>,
}

impl<'a> Progress<'a> {
    /// For a rank of a host with `here` ranks, with room for far more than is under way at a time.
    pub fn new(mpi: Mpi, here: usize, counts: Box<dyn RaisedCounts>, state: &'a ThreadState) -> Self {
        Self {
            reports: Reports::new(&mpi, here),
            mpi,
            counts,
            state,
            batches: Vec::with_capacity(ROOM),
            unsent: Vec::with_capacity(ROOM),
            open: Vec::with_capacity(ROOM),
            told: VecDeque::with_capacity(ROOM),
            messages: VecDeque::with_capacity(ROOM),
            spare: Vec::with_capacity(ROOM),
            starter: getppid(),
        }
    }

    pub fn run(mut self) {
        let mut looks = 0;
        loop {
            let (told, end) = self.take_orders();
            if getppid() != self.starter {
                fall_silent();
            }
            match end {
                Some(ThreadEnd::Abort(code)) => return self.mpi.abort(code),
                Some(ThreadEnd::Leave) if self.batches.is_empty() && !told => {
                    self.reports.end(&self.mpi, &*self.counts);
                    // Some libraries do not return from the end of a world if ranks come to it one by one.
                    self.mpi.meet();
                    self.state.is_leaving.store(true, Ordering::Release);
                    return self.mpi.leave();
                }
                _ => {}
            }
            match self.look() {
                Ok(true) => looks = 0,
                Ok(false) => looks += 1,
                Err((failure, peer)) => {
                    lock(&self.state.failure).get_or_insert(failure);
                    self.counts.lose(peer);
                    self.batches.clear();
                }
            }
            self.reports.look(&self.mpi, &*self.counts);
            if looks > EAGER_LOOKS {
                std::thread::sleep(LOOK);
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Takes the orders of the rank. If nothing is under way, it sleeps until there are orders, or until it is time to
    /// look at reports.
    fn take_orders(&mut self) -> (bool, Option<ThreadEnd>) {
        let mut inbox = lock(&self.state.told);
        if self.batches.is_empty() && inbox.told.is_empty() && inbox.clocks.is_none() && inbox.end.is_none() {
            inbox = self.state.wakes.wait_timeout(inbox, self.reports.rest()).unwrap_or_else(PoisonError::into_inner).0;
        }
        let (told, end) = (!inbox.told.is_empty(), inbox.end);
        let clocks = inbox.take_clocks(self.batches.is_empty());
        std::mem::swap(&mut inbox.told, &mut self.told);
        drop(inbox);
        while let Some(told) = self.told.pop_front() {
            match told {
                ThreadOrder::Message(message) => self.messages.push_back(message),
                ThreadOrder::Raise(raise) => {
                    let (messages, pieces) = self.spare.pop().unwrap_or_default();
                    let messages = std::mem::replace(&mut self.messages, messages);
                    self.batches.push(MessageBatch { messages, pieces, begun: 0, unanswered: 0, raise });
                }
            }
        }
        if let Some(ComparedClocks { ranks_per_host, deadline, tell }) = clocks {
            let goes_on = || Instant::now() < deadline && lock(&self.state.told).end.is_none();
            let _ = tell.send(clock::compare(&self.mpi, ranks_per_host, &goes_on));
        }
        (told, end)
    }

    /// Advances everything under way. Returns whether something has begun or ended.
    fn look(&mut self) -> Result<bool, (Failure, usize)> {
        let (mut has_moved, mut failed) = (false, None);
        let Self { mpi, counts, batches, unsent, open, spare, .. } = self;
        unsent.clear();
        open.clear();
        batches.retain_mut(|batch| {
            match batch.advance(mpi, unsent) {
                Ok(moved) => has_moved |= moved,
                Err(failure) => failed = failed.take().or(Some(failure)),
            }
            let Raise { whose, count, target } = batch.raise;
            if open.contains(&(whose, count)) {
                return true;
            }
            if !batch.messages.is_empty() || !batch.pieces.is_empty() {
                open.push((whose, count));
                return true;
            }
            counts.of(whose).signal(count).raise_to(target);
            spare.push((std::mem::take(&mut batch.messages), std::mem::take(&mut batch.pieces)));
            false
        });
        failed.map_or(Ok(has_moved), Err)
    }
}

impl MessageBatch {
    /// Notes which pieces have ended, and begins others. It asks MPI only about the first piece, because all must end, and
    /// MPI makes progress on the others whenever it is asked about one.
    fn advance(&mut self, mpi: &Mpi, unsent: &mut Vec<(usize, c_int)>) -> Result<bool, (Failure, usize)> {
        let mut has_moved = false;
        while let Some(MessagePiece { request, peer, is_answered }) = self.pieces.front_mut() {
            if !mpi.has_ended(request).map_err(|failure| (failure, *peer))? {
                break;
            }
            self.unanswered -= usize::from(*is_answered);
            self.pieces.pop_front();
            has_moved = true;
        }
        while let Some(message) = self.messages.front_mut() {
            let MessageBytes { is_sent, peer, tag, start, .. } = *message;
            let bytes = message.bytes.min(PIECE_BYTES);
            let is_answered = is_sent && (self.begun + 1).is_multiple_of(PIECES_PER_ANSWER);
            if is_sent && (unsent.contains(&(peer, tag)) || is_answered && self.unanswered == ANSWERS) {
                unsent.push((peer, tag));
                break;
            }
            // SAFETY: by the promise of the caller that gave it.
            let request = unsafe {
                match (is_sent, is_answered) {
                    (false, _) => mpi.receive(start, bytes, peer, tag),
                    (true, false) => mpi.send(start, bytes, peer, tag),
                    (true, true) => mpi.send_answered(start, bytes, peer, tag),
                }
            };
            let request = request.map_err(|failure| (failure, peer))?;
            self.begun += 1;
            self.unanswered += usize::from(is_answered);
            self.pieces.push_back(MessagePiece { request, peer, is_answered });
            (message.start, message.bytes) = (start.wrapping_add(bytes), message.bytes - bytes);
            if message.bytes == 0 {
                self.messages.pop_front();
            }
            has_moved = true;
        }
        Ok(has_moved)
    }
}
