//! Exchange: each rank sends one descriptor to all ranks of its host, through the first rank, after they have met and
//! before they watch one another. Never looks into the descriptors.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;

use super::error::LaunchError;
use super::finding::RankFindings;
use super::watch::Watch;
use super::wire::{self, Peer, WireMessage};

/// The longest message of the first rank; the name of a group takes 128 bytes.
const MESSAGE_BYTES_MAX: u64 = 16 << 20;

impl Watch {
    /// The descriptors of all ranks, in rank order. All ranks call this before [`Watch::start`]; none waits longer than
    /// `patience`.
    ///
    /// # Errors
    /// If another rank fails meanwhile: its error on the first rank, and an echo of it on the others. Z0329 if a rank is
    /// gone, or Z0323 if it is the first rank; Z0321 if a rank does not arrive in time, or Z0324 if it is the first rank.
    pub fn exchange(&self, own: OwnedFd, patience: Duration) -> Result<Vec<OwnedFd>, LaunchError> {
        let deadline = Instant::now() + patience;
        match &self.state.peers[..] {
            [] => Ok(vec![own]),
            [host] if !self.state.is_host() => self.give(host, own, deadline, patience),
            peers => self.collect(peers, own, deadline, patience),
        }
    }

    /// Returns the message that the first rank passes as `said`, on all ranks. They call it as [`Watch::exchange`].
    ///
    /// # Errors
    /// Those of [`Watch::exchange`], and Z0332 if the system refuses the memory for the message.
    pub fn hear(&self, said: Option<&[u8]>, patience: Duration) -> Result<Vec<u8>, LaunchError> {
        let page = rustix::fs::memfd_create(c"zero", MemfdFlags::CLOEXEC).map_err(std::io::Error::from);
        let mut page = File::from(page.map_err(LaunchError::system("take memory for a message"))?);
        page.write_all(said.unwrap_or_default()).map_err(LaunchError::system("write a message"))?;
        let of_first = self.exchange(page.into(), patience)?.swap_remove(0);
        let (file, mut heard) = (File::from(of_first), Vec::new());
        // All ranks of a host read one file, so none may move its position.
        let len = file.metadata().map_err(LaunchError::system("read a message"))?.len();
        if len > MESSAGE_BYTES_MAX {
            return Err(LaunchError::system("read a message")(std::io::Error::from(std::io::ErrorKind::InvalidData)));
        }
        heard.resize(len as usize, 0);
        file.read_exact_at(&mut heard, 0).map_err(LaunchError::system("read a message"))?;
        Ok(heard)
    }

    /// The side of the first rank.
    fn collect(
        &self,
        peers: &[Peer],
        own: OwnedFd,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Vec<OwnedFd>, LaunchError> {
        let mut given: Vec<Option<OwnedFd>> = (0..self.here).map(|_| None).collect();
        given[0] = Some(own);
        let of = |rank: usize| rank - self.state.rank;
        loop {
            let missing: Vec<&Peer> = peers.iter().filter(|peer| given[of(peer.rank)].is_none()).collect();
            if missing.is_empty() {
                break;
            }
            let ready = wire::wait(missing.iter().map(|peer| &peer.socket), Some(deadline));
            let ready = ready.map_err(LaunchError::system("wait for the memory of other ranks"))?;
            let Some(&first) = ready.first() else {
                let missing = missing.iter().map(|peer| peer.rank).collect();
                let here = self.state.rank..self.state.rank + self.here;
                return Err(LaunchError::RanksMissing { missing, here, seconds: patience.as_secs() });
            };
            let Peer { rank, pid, socket } = missing[first];
            match wire::receive(socket) {
                Ok(Some((WireMessage::Memory, Some(memory)))) => given[of(*rank)] = Some(memory),
                Ok(Some((WireMessage::Failed(finding), _))) => {
                    self.state.tell_all(&WireMessage::Told(self.state.code()));
                    return Err(LaunchError::Failed(RankFindings::of(self.here, self.world, finding)));
                }
                _ => return Err(LaunchError::LostAtStart { rank: *rank, pid: *pid }),
            }
        }
        let given: Vec<OwnedFd> = given.into_iter().flatten().collect();
        for peer in peers {
            let gone = |_| LaunchError::LostAtStart { rank: peer.rank, pid: peer.pid };
            given.iter().try_for_each(|memory| peer.send_with(&WireMessage::Memory, memory.as_fd())).map_err(gone)?;
        }
        Ok(given)
    }

    /// The side of the other ranks.
    fn give(
        &self,
        host: &Peer,
        own: OwnedFd,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Vec<OwnedFd>, LaunchError> {
        host.send_with(&WireMessage::Memory, own.as_fd()).map_err(|_| LaunchError::HostLost)?;
        let mut given = Vec::new();
        while given.len() < self.here {
            let ready = wire::wait([&host.socket].into_iter(), Some(deadline));
            if ready.map_err(LaunchError::system("wait for the memory of other ranks"))?.is_empty() {
                return Err(LaunchError::HostSilent { rank: self.state.rank, seconds: patience.as_secs() });
            }
            match wire::receive(&host.socket) {
                Ok(Some((WireMessage::Memory, Some(memory)))) => given.push(memory),
                Ok(Some((WireMessage::Told(_), _))) => return Err(LaunchError::Dismissed { reason: String::new() }),
                _ => return Err(LaunchError::HostLost),
            }
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::thread;

    use super::super::environment::JobPlace;
    use super::super::rendezvous::join;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The result of each of three ranks of a job.
    fn ranks<R: Send>(job: &str, rank_main: impl Fn(usize, Watch) -> R + Sync) -> Vec<R> {
        let job = format!("{job}-{}", std::process::id());
        let places: Vec<JobPlace> = (0..3).map(|rank| JobPlace::on_this_host(rank, 3, &job)).collect();
        let run = |place| rank_main(JobPlace::clone(place).rank, join(place, 7, 1).unwrap().watch);
        thread::scope(|scope| {
            let threads: Vec<_> = places.iter().map(|place| scope.spawn(move || run(place))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_gets_what_each_gives_in_the_order_of_ranks() {
        ranks("exchange", |rank, watch| {
            let (near, mut far) = std::io::pipe().unwrap();
            far.write_all(&[rank as u8]).unwrap();
            let given = watch.exchange(near.into(), 30 * SECOND).unwrap();
            assert_eq!(given.len(), 3);
            // Each pipe has one byte, for its first reader: every rank reads its own.
            let mut byte = [0];
            File::from(given.into_iter().nth(rank).unwrap()).read_exact(&mut byte).unwrap();
            assert_eq!(byte, [rank as u8]);
            watch.finish();
        });
    }

    /// Ranks 3 to 5 of six are on the second host.
    #[test]
    fn ranks_of_a_host_that_is_not_the_first_exchange_among_themselves() {
        let job = format!("second-{}", std::process::id());
        let run = &|rank: usize| {
            let place = JobPlace { here: 3..6, one_host: false, ..JobPlace::on_this_host(rank, 6, &job) };
            let watch = join(&place, 7, 1).unwrap().watch;
            let given = watch.exchange(File::open("/dev/null").unwrap().into(), 30 * SECOND).unwrap();
            let heard = watch.hear((rank == 3).then_some(b"a name"), 30 * SECOND).unwrap();
            watch.finish();
            (given.len(), heard)
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (3..6).map(|rank| scope.spawn(move || run(rank))).collect();
            for rank in ranks {
                assert_eq!(rank.join().unwrap(), (3, b"a name".to_vec()));
            }
        });
    }

    #[test]
    fn every_rank_hears_what_rank_0_says() {
        let heard = ranks("hears", |rank, watch| {
            let heard = watch.hear((rank == 0).then_some(b"a name"), 30 * SECOND).unwrap();
            watch.finish();
            heard
        });
        assert_eq!(heard, [b"a name"; 3]);
    }

    #[test]
    fn a_rank_that_fails_meanwhile_is_told_once() {
        let codes = ranks("fails", |rank, watch| {
            if rank == 2 {
                return watch.fail("no memory is left").map(|error| error.to_string());
            }
            let (near, _far) = std::io::pipe().unwrap();
            match watch.exchange(near.into(), 30 * SECOND) {
                Err(error) if error.is_echo() => None,
                outcome => Some(outcome.unwrap_err().to_string()),
            }
        });
        assert_eq!(codes, [Some("no memory is left\n  = note: found by rank 2 of 3".to_owned()), None, None]);
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let codes = ranks("late", |rank, watch| {
            let (near, _far) = std::io::pipe().unwrap();
            if rank == 1 {
                thread::sleep(2 * SECOND);
                return None;
            }
            let patience = if rank == 0 { SECOND / 10 } else { 30 * SECOND };
            watch.exchange(near.into(), patience).err().map(|error| (error.code(), error.to_string()))
        });
        assert_eq!(codes[0], Some(("Z0321", "after 0 s, rank 1 of 3 never arrived".to_owned())));
    }
}
