//! Tests of meetings: of strangers, of ranks that do not fit, and of a long wait.

use std::thread;

use super::*;

const HELLO: Hello = Hello { rank: 0, world: 2, plan_hash: 7, segment_bytes: 1 };

#[test]
fn a_stranger_is_no_rank_and_meets_none() {
    let job = format!("meet-{}", std::process::id());
    let places = [0, 1].map(|rank| {
        let second = Duration::from_secs(1);
        JobPlace { join_timeout: second, ..JobPlace::on_this_host(rank, 2, &job) }
    });
    // To a job of another user, this process is a stranger: as rank 0, and as a guest.
    let user = rustix::process::Uid::from_raw(rustix::process::geteuid().as_raw() ^ 1);
    let outcomes = thread::scope(|scope| {
        let ranks = places.each_ref().map(|place| {
            let hello = Hello { rank: place.rank as u64, ..HELLO };
            scope.spawn(move || meet(&JobSocket { place, user }, &Ok(hello)).err().map(|error| error.code()))
        });
        ranks.map(|rank| rank.join().unwrap())
    });
    assert_eq!(outcomes, [Some("Z0321"), Some("Z0328")]);
}

/// Two ends of a connection.
fn connection() -> (OwnedFd, OwnedFd) {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    rustix::net::socketpair(family, kind, flags, None).unwrap()
}

#[test]
fn the_first_that_does_not_fit_is_told_and_a_second_rank_0_is_one() {
    let (place, own) = (JobPlace::on_this_host(0, 2, "misfits"), Ok(HELLO));
    for (first, second, code) in
        [(HELLO, Hello { rank: 1, world: 3, ..HELLO }, "Z0327"), (Hello { rank: 1, world: 3, ..HELLO }, HELLO, "Z0326")]
    {
        let mut host = Host::new(&place, &own);
        for hello in [first, second] {
            host.hear(Caller { pid: 7, socket: connection().0 }, WireMessage::Hello(hello));
        }
        assert_eq!(host.verdict().map(|error| error.code()), Some(code));
    }
}

#[test]
fn a_guest_hears_that_rank_0_still_waits() {
    let (near, far) = connection();
    let (place, own) = (JobPlace::on_this_host(0, 3, "waiting"), Ok(HELLO));
    let mut host = Host::new(&place, &own);
    host.peers.push(Peer { rank: 2, pid: 7, socket: near });
    assert_eq!(host.missing(), [1]);
    host.still_waits(3);
    assert_eq!(wire::receive(&far).unwrap().map(|(message, _)| message), Some(WireMessage::Waiting));
}
