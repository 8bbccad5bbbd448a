//! Rendezvous: the ranks of one host meet at a socket named after their job, compare what they are about to run, and
//! leave with one shared memory. Rank 0 hosts, the others are guests. Never starts or ends a process.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::environment::Place;
use super::error::LaunchError;
use super::segment::Segment;
use super::watch::{self, Watch};
use super::wire::{self, Hello, Message, Peer};

/// A guest says hello at once; who does not is no guest, and must not keep the others waiting.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long rank 0 stays to refuse the others, once one does not fit.
const LATECOMER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks whether rank 0 is there.
const KNOCK_INTERVAL: Duration = Duration::from_millis(10);

/// What a rank has once all have met.
#[derive(Debug)]
pub struct Joined {
    /// The memory all ranks share, zero at start.
    pub segment: Segment,
    /// The connections to the other ranks.
    pub watch: Watch,
}

/// Meets the other ranks; returns once all have arrived with the same plan.
///
/// `plan_hash` and `bytes`, the size of the shared memory, must be equal on all ranks. The error is rank 0's to print:
/// see [`LaunchError::is_echo`].
///
/// # Errors
/// Z0307, or Z0320 to Z0332: see [`LaunchError`].
pub fn join(place: &Place, plan_hash: u64, bytes: usize) -> Result<Joined, LaunchError> {
    let Place { rank, world, .. } = *place;
    if !place.one_host {
        return Err(LaunchError::SeveralHosts { rank, world });
    }
    let hello = Hello { rank: rank as u64, world: world as u64, plan_hash, segment_bytes: bytes as u64 };
    let joined = if rank == 0 { host(place, &hello) } else { visit(place, &hello) };
    if let Err(error) = &joined {
        let is_death = matches!(error, LaunchError::LostAtStart { .. } | LaunchError::HostLost);
        std::thread::sleep(watch::grace(is_death && place.launcher_pid.is_some(), error.is_echo()));
    }
    joined
}

/// Rank 0's side.
fn host(place: &Place, own: &Hello) -> Result<Joined, LaunchError> {
    let listener = listen(place)?;
    let mut peers = Vec::new();
    let gathered = gather(place, own, &listener, &mut peers);
    let outcome = gathered.and_then(|()| {
        let (segment, memory) = Segment::create(own.segment_bytes as usize)?;
        for peer in &peers {
            let gone = |_| LaunchError::LostAtStart { rank: peer.rank, pid: peer.pid };
            peer.send_with(&Message::Go, memory.as_fd()).map_err(gone)?;
        }
        Ok(segment)
    });
    match outcome {
        Ok(segment) => Ok(Joined { segment, watch: Watch::new(place, peers) }),
        Err(error) => {
            for peer in &peers {
                // One that has gone need not know why.
                let _ = peer.send(&Message::Refused(format!("{}: {error}", error.code())));
            }
            Err(error)
        }
    }
}

fn listen(place: &Place) -> Result<OwnedFd, LaunchError> {
    let refused = "listen for the other ranks";
    let listener = socket()?;
    match rustix::net::bind(&listener, &address(place)?) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => return Err(LaunchError::JobTaken { job: place.job.clone() }),
        Err(error) => return Err(LaunchError::system(refused)(error)),
    }
    rustix::net::listen(&listener, place.world as i32).map_err(LaunchError::system(refused))?;
    Ok(listener)
}

/// Waits until every other rank has said hello. `peers` has everyone who is to hear of the outcome.
fn gather(place: &Place, own: &Hello, listener: &OwnedFd, peers: &mut Vec<Peer>) -> Result<(), LaunchError> {
    let refused = "wait for the other ranks";
    let mut deadline = Instant::now() + place.join_timeout;
    let mut misfit = None;
    while peers.len() + 1 < place.world {
        let sockets = peers.iter().map(|peer| &peer.socket).chain([listener]);
        let ready = wire::wait(sockets, Some(deadline)).map_err(LaunchError::system(refused))?;
        let Some(&first) = ready.first() else {
            return Err(misfit.unwrap_or_else(|| missing(place, peers)));
        };
        // A guest that has said hello only listens: what is heard of it is its end.
        if let Some(peer) = peers.get(first) {
            return Err(misfit.unwrap_or(LaunchError::LostAtStart { rank: peer.rank, pid: peer.pid }));
        }
        let accepted = rustix::net::accept_with(listener, SocketFlags::CLOEXEC);
        let socket = accepted.map_err(LaunchError::system(refused))?;
        let Some((hello, peer)) = greet(socket, deadline)? else {
            continue;
        };
        if let (Err(error), None) = (examine(own, &hello, &peer, peers), &misfit) {
            misfit = Some(error);
            // Those on their way should hear of it, instead of waiting for a rank 0 that has left.
            deadline = deadline.min(Instant::now() + LATECOMER_TIMEOUT);
        }
        peers.push(peer);
    }
    misfit.map_or(Ok(()), Err)
}

fn missing(place: &Place, peers: &[Peer]) -> LaunchError {
    let missing = (1..place.world).filter(|rank| peers.iter().all(|peer| peer.rank != *rank)).collect();
    LaunchError::RanksMissing { missing, world: place.world, seconds: place.join_timeout.as_secs() }
}

/// The hello of who has come; none for a stranger, who is let go without an answer.
fn greet(socket: OwnedFd, deadline: Instant) -> Result<Option<(Hello, Peer)>, LaunchError> {
    let peer = sockopt::socket_peercred(&socket).map_err(LaunchError::system("identify a rank"))?;
    let hello_deadline = deadline.min(Instant::now() + HELLO_TIMEOUT);
    let spoke = wire::wait([&socket].into_iter(), Some(hello_deadline));
    let spoke = !spoke.map_err(LaunchError::system("wait for a hello"))?.is_empty();
    if peer.uid != rustix::process::geteuid() || !spoke {
        return Ok(None);
    }
    let Ok(Some((Message::Hello(hello), _))) = wire::receive(&socket) else {
        return Ok(None);
    };
    let pid = peer.pid.as_raw_pid() as u32;
    Ok(Some((hello, Peer { rank: hello.rank as usize, pid, socket })))
}

/// Whether a guest is one of us.
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
        None => (rank == 0).then(std::process::id),
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

/// The side of every other rank.
fn visit(place: &Place, own: &Hello) -> Result<Joined, LaunchError> {
    let socket = knock(place)?;
    let host = sockopt::socket_peercred(&socket).map_err(LaunchError::system("identify rank 0"))?;
    let user = rustix::process::geteuid();
    if host.uid != user {
        let (expected, found) = (user.as_raw(), host.uid.as_raw());
        return Err(LaunchError::Stranger { job: place.job.clone(), expected, found });
    }
    let peer = Peer { rank: 0, pid: host.pid.as_raw_pid() as u32, socket };
    peer.send(&Message::Hello(*own)).map_err(|_| LaunchError::HostLost)?;

    // Twice, because rank 0 waits as long for the others and then takes the memory, and its verdict says more.
    let patience = place.join_timeout * 2;
    let answer = wire::wait([&peer.socket].into_iter(), Some(Instant::now() + patience));
    if answer.map_err(LaunchError::system("wait for rank 0"))?.is_empty() {
        return Err(LaunchError::HostSilent { rank: place.rank, seconds: patience.as_secs() });
    }
    match wire::receive(&peer.socket) {
        Ok(Some((Message::Go, Some(memory)))) => {
            let segment = Segment::open(&memory.into(), own.segment_bytes as usize)?;
            Ok(Joined { segment, watch: Watch::new(place, vec![peer]) })
        }
        Ok(Some((Message::Refused(reason), _))) => Err(LaunchError::Dismissed { reason }),
        _ => Err(LaunchError::HostLost),
    }
}

/// Connects to rank 0, however long it takes to be there.
fn knock(place: &Place) -> Result<OwnedFd, LaunchError> {
    let address = address(place)?;
    let deadline = Instant::now() + place.join_timeout;
    loop {
        let socket = socket()?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::CONNREFUSED | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(KNOCK_INTERVAL),
            Err(Errno::CONNREFUSED | Errno::INTR) => {
                let seconds = place.join_timeout.as_secs();
                return Err(LaunchError::HostMissing { rank: place.rank, seconds, job: place.job.clone() });
            }
            Err(error) => return Err(LaunchError::system("connect to rank 0")(error)),
        }
    }
}

fn socket() -> Result<OwnedFd, LaunchError> {
    let created = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    created.map_err(LaunchError::system("create a socket"))
}

/// In the abstract namespace: no file, gone with its last user. Hashed, because a name has at most 107 bytes.
fn address(place: &Place) -> Result<SocketAddrUnix, LaunchError> {
    let user = rustix::process::geteuid().as_raw();
    let name = format!("zero.{user}.{:016x}", fnv1a(place.job.as_bytes()));
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(LaunchError::system("name a socket"))
}

/// FNV-1a, 64 bit (Fowler, Noll, Vo): the same in every build, unlike the standard library's hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn fnv1a_has_its_published_values() {
        assert_eq!(super::fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
