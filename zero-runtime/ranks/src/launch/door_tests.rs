//! Tests of which callers are let in, and of which are heard while others are silent.

use std::time::Duration;

use super::*;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn place(job: &str) -> JobPlace {
    JobPlace::on_this_host(0, 3, &format!("door-{job}-{}", std::process::id()))
}

/// Another user than the one that runs this test.
fn somebody_else() -> Uid {
    Uid::from_raw(rustix::process::geteuid().as_raw() ^ 1)
}

/// A connection to the door, whichever process opened it.
fn come_in(door: &Door) -> OwnedFd {
    let caller = socket().unwrap();
    rustix::net::connect(&caller, &door.address("").unwrap()).unwrap();
    caller
}

fn heard(event: DoorEvent) -> WireMessage {
    match event {
        DoorEvent::Came(_, message) => message,
        DoorEvent::Peer(index) => panic!("peer {index} has something to say"),
        DoorEvent::Late => panic!("nobody has been heard"),
    }
}

#[test]
fn the_silent_hold_up_nobody() {
    let place = place("silent");
    let door = Door::of(&place);
    let mut reception = door.open().unwrap();
    let _silent = [come_in(&door), come_in(&door)];
    let talker = come_in(&door);
    wire::send(&talker, &WireMessage::Goodbye, &[]).unwrap();
    let event = reception.next(&[], Instant::now() + PATIENCE).unwrap();
    assert_eq!(heard(event), WireMessage::Goodbye);
    assert_eq!(reception.silent.len(), 2, "they may still speak");
}

#[test]
fn whoever_leaves_or_talks_nonsense_is_forgotten() {
    let place = place("nonsense");
    let door = Door::of(&place);
    let mut reception = door.open().unwrap();
    drop(come_in(&door));
    let babbler = come_in(&door);
    rustix::net::send(&babbler, b"?", rustix::net::SendFlags::empty()).unwrap();
    let talker = come_in(&door);
    wire::send(&talker, &WireMessage::Go, &[]).unwrap();
    assert_eq!(heard(reception.next(&[], Instant::now() + PATIENCE).unwrap()), WireMessage::Go);
    assert!(reception.silent.is_empty());
}

#[test]
fn another_user_is_not_heard() {
    let place = place("stranger");
    // To a door of somebody else, this process is a stranger.
    let door = Door { place: &place, user: somebody_else() };
    let mut reception = door.open().unwrap();
    let stranger = come_in(&door);
    wire::send(&stranger, &WireMessage::Goodbye, &[]).unwrap();
    let event = reception.next(&[], Instant::now() + Duration::from_millis(100)).unwrap();
    assert!(matches!(event, DoorEvent::Late));
    assert!(reception.silent.is_empty());
    assert!(wire::receive(&stranger).unwrap().is_none(), "the stranger's connection is closed");
}

#[test]
fn a_door_of_another_user_is_not_entered() {
    let place = place("foreign");
    let door = Door { place: &place, user: somebody_else() };
    let _reception = door.open().unwrap();
    let error = door.knock().unwrap_err();
    assert_eq!(error.code(), "Z0328");
    let own = rustix::process::geteuid().as_raw();
    assert!(error.to_string().contains(&format!("belongs to user {own}, expected user {}", own ^ 1)), "{error}");
}

#[test]
fn one_is_the_speaker_at_a_time() {
    let place = place("speaker");
    let door = Door::of(&place);
    let speaker = door.become_speaker();
    assert!(speaker.is_some() && door.become_speaker().is_none());
    drop(speaker);
    assert!(door.become_speaker().is_some());
}

#[test]
fn fnv1a_has_its_published_values() {
    assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
}
