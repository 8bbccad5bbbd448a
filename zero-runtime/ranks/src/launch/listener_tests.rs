//! Tests which callers are accepted, and that callers are heard while others are silent.

use std::time::Duration;

use super::*;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn place(job: &str) -> JobPlace {
    JobPlace::on_this_host(0, 3, &format!("listener-{job}-{}", std::process::id()))
}

/// A user other than the one that runs this test.
fn somebody_else() -> Uid {
    Uid::from_raw(rustix::process::geteuid().as_raw() ^ 1)
}

/// A connection to the socket, whichever process listens.
fn connected(job_socket: &JobSocket) -> OwnedFd {
    let caller = socket().unwrap();
    rustix::net::connect(&caller, &job_socket.address("").unwrap()).unwrap();
    caller
}

fn heard(event: ListenerEvent) -> WireMessage {
    match event {
        ListenerEvent::Came(_, message) => message,
        ListenerEvent::Peer(index) => panic!("peer {index} has something to say"),
        ListenerEvent::Late => panic!("nobody has been heard"),
    }
}

#[test]
fn the_silent_hold_up_nobody() {
    let place = place("silent");
    let job_socket = JobSocket::of(&place);
    let mut listener = job_socket.listen().unwrap();
    let _silent = [connected(&job_socket), connected(&job_socket)];
    let talker = connected(&job_socket);
    wire::send(&talker, &WireMessage::Finished, &[]).unwrap();
    let event = listener.next(&[], Instant::now() + PATIENCE).unwrap();
    assert_eq!(heard(event), WireMessage::Finished);
    assert_eq!(listener.silent.len(), 2, "they may still speak");
}

#[test]
fn whoever_leaves_or_talks_nonsense_is_forgotten() {
    let place = place("nonsense");
    let job_socket = JobSocket::of(&place);
    let mut listener = job_socket.listen().unwrap();
    drop(connected(&job_socket));
    let babbler = connected(&job_socket);
    rustix::net::send(&babbler, b"?", rustix::net::SendFlags::empty()).unwrap();
    let talker = connected(&job_socket);
    wire::send(&talker, &WireMessage::Go, &[]).unwrap();
    assert_eq!(heard(listener.next(&[], Instant::now() + PATIENCE).unwrap()), WireMessage::Go);
    assert!(listener.silent.is_empty());
}

#[test]
fn another_user_is_not_heard() {
    let place = place("stranger");
    // To the socket of somebody else, this process is a stranger.
    let job_socket = JobSocket { place: &place, user: somebody_else() };
    let mut listener = job_socket.listen().unwrap();
    let stranger = connected(&job_socket);
    wire::send(&stranger, &WireMessage::Finished, &[]).unwrap();
    let event = listener.next(&[], Instant::now() + Duration::from_millis(100)).unwrap();
    assert!(matches!(event, ListenerEvent::Late));
    assert!(listener.silent.is_empty());
    assert!(wire::receive(&stranger).unwrap().is_none(), "the stranger's connection is closed");
}

#[test]
fn no_rank_stays_connected_to_another_user() {
    let place = place("foreign");
    let job_socket = JobSocket { place: &place, user: somebody_else() };
    let _listener = job_socket.listen().unwrap();
    let error = job_socket.connect().unwrap_err();
    assert_eq!(error.code(), "Z0328");
    let own = rustix::process::geteuid().as_raw();
    assert!(error.to_string().contains(&format!("belongs to user {own}, expected user {}", own ^ 1)), "{error}");
}

#[test]
fn one_is_the_speaker_at_a_time() {
    let place = place("speaker");
    let job_socket = JobSocket::of(&place);
    let speaker = job_socket.become_speaker();
    assert!(speaker.is_some() && job_socket.become_speaker().is_none());
    drop(speaker);
    assert!(job_socket.become_speaker().is_some());
}

#[test]
fn fnv1a_has_its_published_values() {
    assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
}
