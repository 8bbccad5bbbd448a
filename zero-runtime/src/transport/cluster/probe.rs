//! Probe: what the network between two hosts does for messages like those of a run. Never knows a plan.

use std::time::{Duration, Instant};

use super::mpi::Mpi;
use super::post::{LOOK, World, join};
use crate::device::Failure;
use crate::launch::LaunchError;
use crate::transport::silent;

/// Bytes of a message whose time is all latency, and of one whose time is nearly all bandwidth.
const BYTES: [usize; 2] = [8, 16 << 20];
/// Exchanges of each, after one that is not timed.
const ROUNDS: [usize; 2] = [101, 7];
/// How long the two may take to meet.
const PATIENCE: Duration = Duration::from_secs(60);
/// Every library permits it.
const TAG: std::ffi::c_int = 1;

/// What two ranks on two hosts saw that sent one another messages, both at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probed {
    /// Bytes a second in each direction.
    pub bytes_per_s: f64,
    /// Seconds of a message of a few bytes.
    pub latency_s: f64,
}

/// Measures the network between the two ranks of a world of MPI, this process one of them. Gives the first of them what both
/// saw, and the other one nothing.
///
/// # Errors
/// Z0450 and Z0451 without an MPI that works; Z0452 if the world is not of two ranks; Z0453 if both are on one host; Z0457 if
/// they do not meet.
pub fn probe() -> Result<Option<Probed>, LaunchError> {
    let (mpi, world) = join(&name(), 1, Instant::now() + PATIENCE).map_err(LaunchError::Mpi)?;
    let seen = exchange_all(&mpi, &world);
    mpi.meet();
    mpi.leave();
    Ok(seen.map(|seen| (world.rank == 0).then_some(seen)).map_err(LaunchError::Mpi)?)
}

/// The name of this host, in as many bytes as any has.
fn name() -> Vec<u8> {
    let mut name = silent::host().into_bytes();
    name.resize(64, 0);
    name
}

fn exchange_all(mpi: &Mpi, world: &World) -> Result<Probed, Failure> {
    let World { rank, size, library, cards } = world;
    let refused = |code, what| Failure { code, what, help: "start one rank on each of two hosts".to_owned() };
    if *size != 2 {
        return Err(refused(
            "Z0452",
            format!("MPI has a world of {size} ranks instead of 2; the library is {library}"),
        ));
    }
    if cards[0] == cards[1] {
        let host = silent::host();
        return Err(refused("Z0453", format!("both ranks are on {host}, and no network is between them")));
    }
    let [small, large] = [0, 1].map(|kind| -> Result<f64, Failure> {
        let (sent, mut received) = (vec![1; BYTES[kind]], vec![0; BYTES[kind]]);
        let mut seconds = Vec::new();
        for _ in 0..=ROUNDS[kind] {
            seconds.push(exchange(mpi, 1 - rank, &sent, &mut received)?);
        }
        // The first one opens connections.
        let timed = &mut seconds[1..];
        timed.sort_by(f64::total_cmp);
        Ok(timed[timed.len() / 2])
    });
    let (small, large) = (small?, large?);
    Ok(Probed { bytes_per_s: BYTES[1] as f64 / (large - small).max(f64::EPSILON), latency_s: small })
}

/// Seconds in which a message goes each way.
fn exchange(mpi: &Mpi, peer: usize, sent: &[u8], received: &mut [u8]) -> Result<f64, Failure> {
    let begin = Instant::now();
    // SAFETY: both buffers are this call's until both requests have come to their end.
    #[expect(unsafe_code, reason = "MPI takes addresses")]
    let mut requests = unsafe {
        [
            mpi.receive(received.as_mut_ptr(), received.len(), peer, TAG)?,
            mpi.send(sent.as_ptr(), sent.len(), peer, TAG)?,
        ]
    };
    for request in &mut requests {
        while !mpi.has_ended(request)? {
            std::thread::sleep(LOOK);
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}
