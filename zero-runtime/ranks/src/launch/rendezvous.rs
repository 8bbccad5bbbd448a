//! Rendezvous: the ranks of one host meet at a socket named after their job, compare what they are about to run, and
//! leave with one shared memory. Rank 0 is the host, and the others are guests. A rank that has already failed connects
//! too, and sends its error, so that rank 0 can report it once. Never starts or ends a process.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::environment::JobPlace;
use super::error::{LaunchError, ranks, those};
use super::finding::RankFindings;
use super::listener::{Caller, JobSocket, Listener, ListenerEvent};
use super::options::EXIT_REPORTED;
use super::watch::{self, Watch};
use super::wire::{self, Finding, Hello, Peer, WireMessage};
use super::{NOTICE, note};
use zero_core::device::Segment;

/// How long rank 0 still waits for the others once the start has failed, to refuse them and to hear whether they found
/// the same error.
const LATECOMER_TIMEOUT: Duration = Duration::from_secs(3);

/// Rank 0 sends something in each period. A guest that hears nothing for this many assumes that rank 0 is held up.
const SILENT_PERIODS: u32 = 2;

/// The memory and the connections of a rank after all have met.
#[derive(Debug)]
pub struct Joined {
    /// The memory that all ranks share, zero at start.
    pub segment: Segment,
    /// The connections to the other ranks.
    pub watch: Watch,
}

/// Meets the other ranks. Returns once all have arrived with the same plan.
///
/// `plan_hash` and `bytes`, the size of the shared memory, must be equal on all ranks. The caller prints an error,
/// unless [`LaunchError::is_echo`] says that another rank does.
///
/// # Errors
/// Z0307, Z0316, or Z0320 to Z0332: see [`LaunchError`].
pub fn join(place: &JobPlace, plan_hash: u64, bytes: usize) -> Result<Joined, LaunchError> {
    let JobPlace { rank, world, .. } = *place;
    if !place.one_host && place.here.len() == world {
        return Err(LaunchError::SeveralHosts { rank, world });
    }
    let hello = Hello { rank: rank as u64, world: world as u64, plan_hash, segment_bytes: bytes as u64 };
    let joined = meet(&JobSocket::of(place), &Ok(hello));
    if let Err(error) = &joined {
        let is_death = matches!(error, LaunchError::LostAtStart { .. } | LaunchError::HostLost);
        std::thread::sleep(watch::grace(is_death && place.launcher_pid.is_some(), error.is_echo()));
    }
    joined
}

/// Ends a rank that has found an error before it could [`join`]. Returns the error that this rank should print, if any:
/// rank 0 waits for the others, to hear whether they found the same error, and any other rank prints only if there is
/// no rank 0.
pub fn fail(place: &JobPlace, error: &str) -> Option<LaunchError> {
    let finding = Finding { rank: place.rank as u64, code: EXIT_REPORTED, error: error.to_owned() };
    match meet(&JobSocket::of(place), &Err(finding.clone())) {
        Err(LaunchError::Dismissed { .. }) => {
            std::thread::sleep(watch::grace(false, true));
            None
        }
        Err(error @ LaunchError::Failed(_)) => Some(error),
        // No other rank can report it.
        _ => Some(LaunchError::Failed(RankFindings::of(place.here.len(), place.world, finding))),
    }
}

fn meet(job_socket: &JobSocket, own: &Result<Hello, Finding>) -> Result<Joined, LaunchError> {
    if job_socket.place.is_host() { host(job_socket, own) } else { visit(job_socket, own) }
}

/// Rank 0's side.
fn host(job_socket: &JobSocket, own: &Result<Hello, Finding>) -> Result<Joined, LaunchError> {
    let mut listener = job_socket.listen()?;
    let mut hosting = Host::new(job_socket.place, own);
    let gathered = hosting.gather(&mut listener);
    let peers = hosting.peers;
    let outcome = gathered.and_then(|hello| {
        let (segment, memory) = Segment::create(hello.segment_bytes as usize)?;
        for peer in &peers {
            let gone = |_| LaunchError::LostAtStart { rank: peer.rank, pid: peer.pid };
            peer.send_with(&WireMessage::Go, memory.as_fd()).map_err(gone)?;
        }
        Ok(segment)
    });
    match outcome {
        Ok(segment) => Ok(Joined { segment, watch: Watch::new(job_socket.place, peers) }),
        Err(error) => {
            for peer in &peers {
                // A peer that has gone need not know why.
                let _ = peer.send(&WireMessage::Refused(format!("{}: {error}", error.code())));
            }
            Err(error)
        }
    }
}

/// Rank 0's wait for the others.
struct Host<'a> {
    place: &'a JobPlace,
    own: &'a Result<Hello, Finding>,
    /// The ranks to be told of the outcome.
    peers: Vec<Peer>,
    findings: RankFindings,
    misfit: Option<LaunchError>,
    deadline: Instant,
}

impl<'a> Host<'a> {
    fn new(place: &'a JobPlace, own: &'a Result<Hello, Finding>) -> Self {
        let (findings, deadline) =
            (RankFindings::new(place.here.len(), place.world), Instant::now() + place.join_timeout);
        let mut new = Self { place, own, peers: Vec::new(), findings, misfit: None, deadline };
        if let Err(finding) = own {
            new.fails(finding.clone());
        }
        new
    }

    /// Waits until every other rank has arrived, and returns the hello that all of them agree on.
    fn gather(&mut self, listener: &mut Listener) -> Result<Hello, LaunchError> {
        let mut periods = 0;
        let mut notice = Instant::now() + NOTICE;
        while self.peers.len() + 1 < self.place.here.len() {
            match listener.next(&self.peers, self.deadline.min(notice))? {
                ListenerEvent::Came(caller, message) => self.hear(caller, message),
                // A guest sends one message and then listens. Anything after that means that it has ended.
                ListenerEvent::Peer(index) => {
                    let Peer { rank, pid, .. } = self.peers[index];
                    return Err(self.verdict().unwrap_or(LaunchError::LostAtStart { rank, pid }));
                }
                ListenerEvent::Late if notice < self.deadline => {
                    (notice, periods) = (notice + NOTICE, periods + 1);
                    self.still_waits(periods);
                }
                ListenerEvent::Late => {
                    let (here, seconds) = (self.place.here.clone(), self.place.join_timeout.as_secs());
                    let missing = LaunchError::RanksMissing { missing: self.missing(), here, seconds };
                    return Err(self.verdict().unwrap_or(missing));
                }
            }
        }
        match (self.verdict(), self.own) {
            (None, Ok(hello)) => Ok(*hello),
            (verdict, _) => Err(verdict.expect("a rank 0 that has failed has a finding")),
        }
    }

    fn hear(&mut self, Caller { pid, socket }: Caller, message: WireMessage) {
        match message {
            WireMessage::Hello(hello) => {
                let peer = Peer { rank: hello.rank as usize, pid, socket };
                let examined = self.own.as_ref().map_or(Ok(()), |own| examine(own, &hello, &peer, &self.peers));
                if let (Err(error), None) = (examined, &self.misfit) {
                    self.misfit = Some(error);
                    self.hurry();
                }
                self.peers.push(peer);
            }
            WireMessage::Failed(finding) => {
                self.peers.push(Peer { rank: finding.rank as usize, pid, socket });
                self.fails(finding);
            }
            // No rank begins with another message.
            _ => {}
        }
    }

    fn fails(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.hurry();
    }

    /// Shortens the wait to ranks that are already on their way. They should learn of the failure instead of waiting for a
    /// rank 0 that has left.
    fn hurry(&mut self) {
        self.deadline = self.deadline.min(Instant::now() + LATECOMER_TIMEOUT);
    }

    /// The reason why the run does not start, if it is known.
    fn verdict(&mut self) -> Option<LaunchError> {
        let findings = Some(&self.findings).filter(|findings| !findings.is_empty());
        findings.cloned().map(LaunchError::Failed).or_else(|| self.misfit.take())
    }

    fn missing(&self) -> Vec<usize> {
        self.place.here.clone().skip(1).filter(|rank| self.peers.iter().all(|peer| peer.rank != *rank)).collect()
    }

    /// Reports which ranks this one waits for, and tells those that have arrived that it still waits.
    fn still_waits(&self, periods: u32) {
        let missing = || format!("{} of {} to start", ranks(&self.missing()), those(&self.place.here));
        note(self.place.rank, periods, missing);
        for peer in &self.peers {
            // If a peer is gone, its socket will show it.
            let _ = peer.send(&WireMessage::Waiting);
        }
    }
}

/// Whether a guest is a rank of this job, with the same plan.
fn examine(own: &Hello, hello: &Hello, guest: &Peer, peers: &[Peer]) -> Result<(), LaunchError> {
    let Peer { rank, pid, .. } = *guest;
    if hello.world != own.world {
        return Err(LaunchError::WorldDiffers { rank, pid, expected: own.world as usize, found: hello.world as usize });
    }
    if hello.rank >= own.world {
        let size = own.world as usize;
        return Err(LaunchError::RankOutOfRange { rank_name: "rank", rank, size_name: "world", size });
    }
    let first_pid = match peers.iter().find(|peer| peer.rank == rank) {
        Some(peer) => Some(peer.pid),
        None => (hello.rank == own.rank).then(std::process::id),
    };
    if let Some(first_pid) = first_pid {
        return Err(LaunchError::DuplicateRank { rank, first_pid, second_pid: pid });
    }
    if (hello.plan_hash, hello.segment_bytes) != (own.plan_hash, own.segment_bytes) {
        return Err(LaunchError::PlanDiffers {
            rank,
            pid,
            expected_hash: own.plan_hash,
            expected_bytes: own.segment_bytes,
            hash: hello.plan_hash,
            bytes: hello.segment_bytes,
        });
    }
    Ok(())
}

/// The side of the other ranks.
fn visit(job_socket: &JobSocket, own: &Result<Hello, Finding>) -> Result<Joined, LaunchError> {
    let mut visit = Visit { job_socket, speaker: None };
    let peer = visit.for_host()?;
    let first = match own {
        Ok(hello) => WireMessage::Hello(*hello),
        Err(finding) => WireMessage::Failed(finding.clone()),
    };
    peer.send(&first).map_err(|_| LaunchError::HostLost)?;
    match (visit.for_answer(&peer)?, own) {
        (Some((WireMessage::Go, Some(memory))), Ok(hello)) => {
            let watch = Watch::new(job_socket.place, vec![peer]);
            match Segment::open(&memory.into(), hello.segment_bytes as usize) {
                Ok(segment) => Ok(Joined { segment, watch }),
                Err(error) => {
                    let error = LaunchError::from(error);
                    Err(watch.fail(&error.report()).unwrap_or(LaunchError::Dismissed { reason: String::new() }))
                }
            }
        }
        (Some((WireMessage::Refused(reason), _)), _) => Err(LaunchError::Dismissed { reason }),
        _ => Err(LaunchError::HostLost),
    }
}

/// A guest's wait for rank 0. Of all guests that wait in vain, only the one with the right to speak says so.
struct Visit<'a> {
    job_socket: &'a JobSocket<'a>,
    /// The right to speak, once this rank has it.
    speaker: Option<OwnedFd>,
}

impl Visit<'_> {
    /// Tries to connect until rank 0 listens.
    fn for_host(&mut self) -> Result<Peer, LaunchError> {
        let JobPlace { rank, join_timeout, ref job, .. } = *self.job_socket.place;
        let (start, deadline) = (Instant::now(), Instant::now() + join_timeout);
        let mut periods = 0;
        loop {
            if let Some(host) = self.job_socket.connect()? {
                return Ok(host);
            }
            if Instant::now() >= deadline {
                let seconds = join_timeout.as_secs();
                return Err(self.in_vain(LaunchError::HostMissing { rank, seconds, job: job.clone() }));
            }
            if start.elapsed() >= NOTICE * (periods + 1) {
                periods += 1;
                self.notice(periods, "to start");
            }
            JobSocket::pause();
        }
    }

    /// Rank 0's answer once all ranks have arrived, or one of them does not match. None if rank 0 is gone.
    fn for_answer(&mut self, host: &Peer) -> Result<Option<(WireMessage, Option<OwnedFd>)>, LaunchError> {
        let JobPlace { rank, join_timeout, .. } = *self.job_socket.place;
        // Twice as long as rank 0 waits for the others, because it reserves the memory after that, and because its verdict
        // says more than this rank's.
        let patience = join_timeout * 2;
        let deadline = Instant::now() + patience;
        let mut periods = 0;
        loop {
            // Rank 0 reports in each period which ranks it waits for. If it does not, this rank waits for rank 0 itself.
            let late = deadline.min(Instant::now() + NOTICE * SILENT_PERIODS);
            let answer = wire::wait([&host.socket].into_iter(), Some(late));
            let has_come = !answer.map_err(LaunchError::system("wait for rank 0"))?.is_empty();
            if has_come {
                match wire::receive(&host.socket) {
                    Ok(Some((WireMessage::Waiting, _))) => {}
                    Ok(answer) => return Ok(answer),
                    Err(_) => return Ok(None),
                }
            } else if Instant::now() >= deadline {
                return Err(self.in_vain(LaunchError::HostSilent { rank, seconds: patience.as_secs() }));
            } else {
                periods += SILENT_PERIODS;
                self.notice(periods, "to answer");
            }
        }
    }

    fn becomes_speaker(&mut self) -> bool {
        self.speaker = self.speaker.take().or_else(|| self.job_socket.become_speaker());
        self.speaker.is_some()
    }

    fn notice(&mut self, periods: u32, what: &str) {
        if self.becomes_speaker() {
            note(self.job_socket.place.rank, periods, || format!("rank 0 {what}"));
        }
    }

    /// Ends a wait in vain. The rank with the right to speak keeps it until the others have given up, too.
    fn in_vain(&mut self, error: LaunchError) -> LaunchError {
        if self.becomes_speaker() {
            std::thread::sleep(watch::grace(false, true));
            error
        } else {
            LaunchError::Dismissed { reason: error.to_string() }
        }
    }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
