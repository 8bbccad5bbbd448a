//! Listener: the socket by which the ranks of a job find one another, named after the job and its user. Accepts processes
//! of that user only, and waits for the first messages of all callers at once, so that a silent caller delays no other.
//! Never looks at the meaning of a message.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, sockopt};
use rustix::process::Uid;

use super::environment::JobPlace;
use super::error::LaunchError;
use super::wire::{self, Peer, WireMessage};

/// Time between two attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// The socket of a job. One rank listens on it, and the others connect. Processes of `user` are trusted.
pub(super) struct JobSocket<'a> {
    pub place: &'a JobPlace,
    pub user: Uid,
}

/// The socket on which the first rank of a host listens.
pub(super) struct Listener {
    socket: OwnedFd,
    user: Uid,
    /// Callers that have sent nothing so far.
    silent: Vec<Caller>,
}

/// A process that has connected.
pub(super) struct Caller {
    pub pid: u32,
    pub socket: OwnedFd,
}

/// An event at a listener.
pub(super) enum ListenerEvent {
    /// A caller has sent its first message.
    Came(Caller, WireMessage),
    /// The peer with this index has sent something, or has gone.
    Peer(usize),
    /// Nothing has happened before the deadline.
    Late,
}

impl<'a> JobSocket<'a> {
    /// The socket of `place`'s job.
    pub fn of(place: &'a JobPlace) -> Self {
        Self { place, user: rustix::process::geteuid() }
    }

    /// Listens for the other ranks.
    ///
    /// # Errors
    /// Z0320 if another process listens already.
    pub fn listen(&self) -> Result<Listener, LaunchError> {
        let socket = self.take_name("").map_err(LaunchError::system("listen for the other ranks"))?;
        let socket = socket.ok_or_else(|| LaunchError::JobTaken { job: self.place.job.clone() })?;
        let refused = LaunchError::system("listen for the other ranks");
        rustix::net::listen(&socket, self.place.here.len() as i32).map_err(refused)?;
        Ok(Listener { socket, user: self.user, silent: Vec::new() })
    }

    /// The right to speak for all ranks that wait for rank 0. Only one of them can hold it, for as long as the result
    /// lives.
    pub fn become_speaker(&self) -> Option<OwnedFd> {
        self.take_name(".speaker").ok().flatten()
    }

    /// A socket under a name of this job. None if another socket has that name.
    fn take_name(&self, suffix: &str) -> Result<Option<OwnedFd>, Errno> {
        let taken = socket()?;
        match rustix::net::bind(&taken, &self.address(suffix)?) {
            Ok(()) => Ok(Some(taken)),
            Err(Errno::ADDRINUSE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Connects to rank 0. None if it does not listen yet.
    ///
    /// # Errors
    /// Z0328 if it is another user's.
    pub fn connect(&self) -> Result<Option<Peer>, LaunchError> {
        let refused = "connect to rank 0";
        let socket = socket().map_err(LaunchError::system(refused))?;
        match rustix::net::connect(&socket, &self.address("").map_err(LaunchError::system(refused))?) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED | Errno::INTR) => return Ok(None),
            Err(error) => return Err(LaunchError::system(refused)(error)),
        }
        let host = credentials(&socket)?;
        if host.uid != self.user {
            let (expected, found) = (self.user.as_raw(), host.uid.as_raw());
            return Err(LaunchError::Stranger { job: self.place.job.clone(), expected, found });
        }
        Ok(Some(Peer { rank: self.place.here.start, pid: host.pid.as_raw_pid() as u32, socket }))
    }

    /// Lets some time pass before the next attempt to connect.
    pub fn pause() {
        std::thread::sleep(CONNECT_INTERVAL);
    }

    /// A name in the abstract namespace: it is not a file, and vanishes with its last user. The job is hashed, because a
    /// name has at most 107 bytes.
    fn address(&self, suffix: &str) -> Result<SocketAddrUnix, Errno> {
        let (user, job) = (self.user.as_raw(), fnv1a(self.place.job.as_bytes()));
        SocketAddrUnix::new_abstract_name(format!("zero.{user}.{job:016x}{suffix}").as_bytes())
    }
}

impl Listener {
    /// Waits for the next event, but only until `late`.
    ///
    /// # Errors
    /// Z0332 if the system refuses.
    pub fn next(&mut self, peers: &[Peer], late: Instant) -> Result<ListenerEvent, LaunchError> {
        loop {
            let silent = self.silent.iter().map(|caller| &caller.socket);
            let sockets = peers.iter().map(|peer| &peer.socket).chain(silent).chain([&self.socket]);
            let ready = wire::wait(sockets, Some(late)).map_err(LaunchError::system("wait for the other ranks"))?;
            let Some(&first) = ready.first() else {
                return Ok(ListenerEvent::Late);
            };
            if first < peers.len() {
                return Ok(ListenerEvent::Peer(first));
            }
            if first - peers.len() == self.silent.len() {
                self.admit()?;
                continue;
            }
            let caller = self.silent.remove(first - peers.len());
            // A caller that leaves, or sends a message that no rank would send, gets no answer.
            if let Ok(Some((message, _))) = wire::receive(&caller.socket) {
                return Ok(ListenerEvent::Came(caller, message));
            }
        }
    }

    /// Accepts the next caller, if it belongs to this user.
    fn admit(&mut self) -> Result<(), LaunchError> {
        let accepted = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC);
        let socket = accepted.map_err(LaunchError::system("wait for the other ranks"))?;
        let UCred { uid, pid, .. } = credentials(&socket)?;
        if uid == self.user {
            self.silent.push(Caller { pid: pid.as_raw_pid() as u32, socket });
        }
        Ok(())
    }
}

fn credentials(socket: &OwnedFd) -> Result<UCred, LaunchError> {
    // The kernel answers for every socket; but the id of a process in another namespace is 0, which is none.
    sockopt::socket_peercred(socket).map_err(|_| LaunchError::Unseen)
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// FNV-1a, 64 bit (Fowler, Noll, Vo): the same in every build, unlike the standard library's hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
