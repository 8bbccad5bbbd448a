//! Server: answers requests on one thread beside the one that decodes. Never decodes.

mod body;
mod generate;
mod metrics;
mod routes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::LocalSet;
use zero_core::random::split_mix;
use zero_publish::http;

use crate::control::Mailbox;
use crate::text::Words;

/// How long answers may take to leave once the worker has ended.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// What a server says of its worker, and what it asks of clients.
pub struct Served {
    /// The name of the model.
    pub model: String,
    /// Where its weights come from, for a person.
    pub source: String,
    /// What clients have to know, if not everyone may ask.
    pub token: Option<String>,
    /// What it knows of text.
    pub words: Words,
    /// Sequences at a time.
    pub slots: usize,
    /// Sequences that may wait.
    pub queue: usize,
    /// The most tokens of a sequence.
    pub length: usize,
}

/// A server that is bound, but does not serve yet.
pub struct Server {
    listener: TcpListener,
    served: Served,
    mailbox: Mailbox,
    ended: oneshot::Receiver<()>,
}

/// Has a server end, after its last answers, when it is dropped.
#[derive(Debug)]
pub struct Serving(#[expect(dead_code, reason = "dropped")] oneshot::Sender<()>);

/// What the server keeps.
struct State {
    served: Served,
    mailbox: Mailbox,
    token: Option<blake3::Hash>,
    /// Answers that are being made or sent.
    answering: Cell<usize>,
    /// Requests by path and status.
    answered: RefCell<BTreeMap<(&'static str, u16), u64>>,
    /// Makes the names of answers, and seeds that nobody gave.
    entropy: Cell<u64>,
}

impl Server {
    /// A server on a socket, for a worker.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(listener: TcpListener, served: Served, mailbox: Mailbox) -> (Self, Serving) {
        let (alive, ended) = oneshot::channel();
        (Self { listener, served, mailbox, ended }, Serving(alive))
    }

    /// Serves until its [`Serving`] is dropped.
    ///
    /// # Errors
    /// Those of the system, before it serves.
    pub fn run(self) -> io::Result<()> {
        let Self { listener, served, mailbox, ended } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        listener.set_nonblocking(true)?;
        let secret = zero_publish::secret()?;
        let entropy = Cell::new(secret[..8].iter().fold(0, |all, &byte| all << 8 | u64::from(byte)));
        let token = served.token.as_ref().map(|token| blake3::hash(token.as_bytes()));
        let (answering, answered) = Default::default();
        LocalSet::new().block_on(&runtime, async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let state = Rc::new(State { served, mailbox, token, answering, answered, entropy });
            let accepting = tokio::task::spawn_local(http::accept(listener, Rc::clone(&state)));
            let _ = ended.await;
            accepting.abort();
            let until = Instant::now() + LEAVE_WITHIN;
            while state.answering.get() > 0 && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // What was written last is sent by the task of its connection.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        })
    }
}

impl State {
    /// A number that nobody has given yet.
    fn fresh(&self) -> u64 {
        let next = split_mix(self.entropy.get());
        self.entropy.set(next);
        next
    }
}

/// Counts an answer for as long as it is made or sent.
struct Answering(Rc<State>);

impl Answering {
    fn of(state: &Rc<State>) -> Self {
        state.answering.set(state.answering.get() + 1);
        Self(Rc::clone(state))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(self.0.answering.get() - 1);
    }
}

#[cfg(test)]
mod tests;
