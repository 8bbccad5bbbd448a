//! Cluster: ranks of several hosts. Ranks of one host share memory, as under `shm`; MPI carries the data between hosts.
//! Each rank has one thread that makes all its calls of MPI. Here ranks of all hosts meet and check that they are about to
//! run the same; if something else connects devices, they also learn the names of its groups. Never adds.

mod clock;
mod handshake;
mod mpi;
mod network;
mod progress;
mod progress_thread;
mod remote;
mod reports;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use zero_plan::Mesh;

use super::control::{Control, timeout_of};
use super::shared::Shared;
use super::{ClockLook, Lost};
use crate::launch::{JobPlace, LaunchError, host};
use clock::Unread;
use handshake::Handshake;
use mpi::Mpi;
pub use network::{NetworkSpeed, measure_network};
use progress_thread::{CountedBlocks, MpiMeeting, ProgressThread, RaisedCounts, WorldEnd};
pub(super) use remote::RemoteRanks;
use zero_core::device::{Device, Failure, Segment};
use zero_core::watchdog::{Awaited, Watchdog};

/// The time between two checks whether another rank has ended, while clocks are compared.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// The world that this process has joined, if it has.
static WORLD: OnceLock<WorldEnd> = OnceLock::new();

/// Leaves the world of MPI, if this process is in one. All its ranks do so when the run is over.
pub fn leave() {
    WORLD.get().into_iter().for_each(WorldEnd::leave);
}

/// Ends the ranks of all hosts, if there are hosts other than this one: this rank has failed and has reported why.
/// Returns after a moment if no launcher ends this process.
pub fn abort(code: u8) {
    WORLD.get().into_iter().for_each(|world| world.abort(code));
}

/// The counts of ranks of other hosts that this rank alone knows: a control block of its own for each rank.
#[derive(Clone)]
pub(in crate::transport) struct Mirror(Arc<[Control]>);

impl Mirror {
    fn new(ranks: usize) -> Self {
        Self((0..ranks).map(|_| Control::default()).collect())
    }

    fn of(&self, rank: usize) -> &Control {
        &self.0[rank]
    }
}

/// All counts that a rank's thread may raise.
struct Known {
    own: Mirror,
    /// Begins with the control blocks that the ranks of this host share.
    segment: Arc<Segment>,
    come_by_reports: bool,
}

impl Known {
    fn of_host(&self, rank: usize) -> &Control {
        assert!(rank < self.own.0.len());
        // SAFETY: the segment begins with a block for each rank, was zero at first, and lives as long as this does.
        #[expect(unsafe_code, reason = "the words that ranks of a host share")]
        unsafe {
            Control::of(self.segment.ptr(), rank)
        }
    }
}

impl RaisedCounts for Known {
    fn of(&self, whose: CountedBlocks) -> &Control {
        match whose {
            CountedBlocks::Own(rank) => self.own.of(rank),
            CountedBlocks::Host(rank) => self.of_host(rank),
        }
    }

    fn come_by_reports(&self) -> bool {
        self.come_by_reports
    }

    fn lose(&self, peer: usize) {
        for rank in 0..self.own.0.len() {
            self.of_host(rank).tell_lost(peer);
        }
    }
}

impl<D: Device> Shared<'_, D> {
    /// Meets the ranks of all other hosts, which must be about to run the same plan, with the same `agreement`. Returns the
    /// names of groups that rank 0 has made, if a device is to join them.
    ///
    /// # Errors
    /// Z0450 to Z0457; Z0331 if this host has no room for what MPI shares.
    pub(super) fn meet_hosts(
        &mut self,
        place: &JobPlace,
        agreement: u64,
        names: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, LaunchError> {
        let (plan, segment) = (self.arena.plan(), self.arena.segment());
        let mirror = Mirror::new(plan.config.mesh.ranks());
        let known = Known { own: mirror.clone(), segment, come_by_reports: plan.config.transport.carries() };
        let fingerprint = plan.fingerprint();
        let (mesh, carries, own) = (plan.config.mesh, plan.config.transport.carries(), place.clone());
        let meet = move |meeting: &MpiMeeting| {
            let handshake = Handshake::own(fingerprint, agreement, &meeting.mpi.version, D::features());
            let handshakes = agreed(&mesh, &own, &meeting.mpi, &meeting.gather(&handshake.encode())?, D::FEATURES)?;
            let names = carries.then(|| meeting.hear(names.as_deref())).transpose()?;
            Ok((handshakes, names))
        };
        let (thread, met) =
            ProgressThread::start(mesh.ranks_per_node(), place.join_timeout, move || Box::new(known), meet)?;
        // From here on the end of this process ends the others.
        let _ = WORLD.set(thread.ending());
        let (handshakes, names) = met?;
        for (rank, handshake) in
            handshakes.iter().enumerate().filter(|(rank, _)| !plan.config.reaches(place.rank, *rank))
        {
            self.control(rank).note_pid(handshake.pid);
        }
        Arc::make_mut(&mut self.watchdog).hosts = handshakes.into_iter().map(|handshake| handshake.host).collect();
        self.remote = Some(RemoteRanks::new(plan, thread, mirror));
        Ok(names)
    }

    /// How far the clock of this host is from that of rank 0's host. The first ranks of all hosts compare their clocks at
    /// the same time; other ranks return none.
    ///
    /// # Errors
    /// [`Lost`] if rank 0 does not answer, or has not been asked.
    pub(super) fn compare_clocks(&self) -> Result<Option<ClockLook>, Lost> {
        let ranks_per_host = self.arena.plan().config.mesh.ranks_per_node();
        let Some(remote) = self.remote.as_ref().filter(|_| self.rank().is_multiple_of(ranks_per_host)) else {
            return Ok(None);
        };
        let compared = remote.thread().compare_clocks(ranks_per_host, timeout_of(self.watchdog.sleeps_max));
        loop {
            // The thread gives up by itself. If it is gone, this process is about to end, too.
            let unread = match compared.recv_timeout(LOOK_AROUND) {
                Ok(Ok(look)) => return Ok(Some(look)),
                Ok(Err(Unread::Failed(failure))) => {
                    return Err(Lost::Device(Box::new(self.arena.broken(failure))));
                }
                Ok(Err(Unread::Silent(peer))) => Some(peer),
                Err(RecvTimeoutError::Disconnected) => Some(if self.rank() > 0 { 0 } else { ranks_per_host }),
                Err(RecvTimeoutError::Timeout) => None,
            };
            self.own().lost().map_or(Ok(()), Err)?;
            if let Some(peer) = unread {
                return Err(self.watchdog.gives_up(Awaited::Rank(peer)));
            }
        }
    }
}

/// The handshakes of all ranks, if they are about to run the same, on the hosts that the mesh assigns to them.
fn agreed(
    mesh: &Mesh,
    place: &JobPlace,
    mpi: &Mpi,
    handshakes: &[Vec<u8>],
    features: &[&str],
) -> Result<Vec<Handshake>, Failure> {
    if (mpi.rank, mpi.size) != (place.rank, place.world) {
        return Err(Failure {
            code: "Z0452",
            what: format!(
                "MPI has rank {} of {} here, and the launcher rank {} of {}; the library is {}, on {}",
                mpi.rank,
                mpi.size,
                place.rank,
                place.world,
                mpi.words(),
                host()
            ),
            help: format!(
                "start the ranks by the mpirun or mpiexec of that library, or name the library of their launcher by {}",
                mpi::LIBRARY_VARIABLE
            ),
        });
    }
    let handshakes: Option<Vec<Handshake>> = handshakes.iter().map(|handshake| Handshake::decode(handshake)).collect();
    let handshakes = handshakes.ok_or_else(|| handshake::another_program(place.rank))?;
    handshake::require_alike(&handshakes, features)?;
    handshake::require_places(mesh, &handshakes)?;
    Ok(handshakes)
}
