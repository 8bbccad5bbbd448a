//! Ranks meet, or say which of them does not fit. The ranks are threads here; sockets and memory are real.

use std::thread;
use std::time::Duration;

use zero_runtime::launch::{Joined, LaunchError, Place, Watch, join};

const BYTES: usize = 1 << 16;

/// A place in a job of this test process alone.
fn place(rank: usize, world: usize, job: &str) -> Place {
    Place::on_this_host(rank, world, &format!("{job}-{}", std::process::id()))
}

/// Joins all places at once, each with its plan hash; outcomes in the same order.
fn join_all(places: &[(Place, u64)]) -> Vec<Result<Joined, LaunchError>> {
    thread::scope(|scope| {
        let ranks: Vec<_> = places.iter().map(|(place, hash)| scope.spawn(|| join(place, *hash, BYTES))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn code(outcome: &Result<Joined, LaunchError>) -> &'static str {
    outcome.as_ref().err().map_or("joined", LaunchError::code)
}

#[test]
#[expect(unsafe_code, reason = "shared memory has no safe way in")]
fn ranks_share_one_memory() {
    let places: Vec<_> = (0..4).map(|rank| (place(rank, 4, "share"), 7)).collect();
    let joined: Vec<Joined> = join_all(&places).into_iter().map(Result::unwrap).collect();
    for (rank, Joined { segment, .. }) in joined.iter().enumerate() {
        assert_eq!(segment.len(), BYTES);
        // SAFETY: within the segment; all ranks are this one thread here.
        unsafe { segment.ptr().add(rank).write(rank as u8 + 1) };
    }
    for Joined { segment, .. } in &joined {
        // SAFETY: as above.
        let seen = unsafe { std::slice::from_raw_parts(segment.ptr(), 5) };
        assert_eq!(seen, [1, 2, 3, 4, 0]);
    }
}

#[test]
fn one_rank_needs_no_other() {
    assert_eq!(code(&join(&place(0, 1, "one"), 7, BYTES)), "joined");
}

#[test]
fn another_plan_is_refused() {
    let places: Vec<_> = (0..3).map(|rank| (place(rank, 3, "plan"), u64::from(rank == 2))).collect();
    let outcomes = join_all(&places);
    assert_eq!(code(&outcomes[0]), "Z0325");
    assert!(outcomes[0].as_ref().unwrap_err().to_string().starts_with("rank 2 (pid"));
    // Whoever comes first or last, all hear why.
    for outcome in &outcomes[1..] {
        let message = outcome.as_ref().unwrap_err().to_string();
        assert!(message.contains("Z0325: rank 2 (pid"), "{message}");
    }
}

#[test]
fn another_world_is_refused() {
    let outcomes = join_all(&[(place(0, 2, "world"), 7), (place(1, 3, "world"), 7)]);
    assert_eq!((code(&outcomes[0]), code(&outcomes[1])), ("Z0326", "Z0330"));
}

#[test]
fn the_same_rank_twice_is_refused() {
    let places = [0, 1, 1].map(|rank| (place(rank, 3, "twice"), 7));
    let outcomes = join_all(&places);
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), ["Z0327", "Z0330", "Z0330"]);
}

#[test]
fn a_second_rank_0_is_refused() {
    let mut first = place(0, 2, "taken");
    first.join_timeout = Duration::from_secs(1);
    let outcomes = join_all(&[(first.clone(), 7), (first, 7)]);
    let mut codes: Vec<_> = outcomes.iter().map(code).collect();
    codes.sort();
    assert_eq!(codes, ["Z0320", "Z0321"]);
}

#[test]
fn ranks_that_never_arrive_are_named() {
    let mut places = [0, 2].map(|rank| (place(rank, 4, "missing"), 7));
    places[0].0.join_timeout = Duration::from_secs(1);
    let outcomes = join_all(&places);
    assert_eq!((code(&outcomes[0]), code(&outcomes[1])), ("Z0321", "Z0330"));
    let message = outcomes[0].as_ref().unwrap_err().to_string();
    assert_eq!(message, "after 1 s, ranks 1, 3 of 4 never arrived");
}

#[test]
fn a_rank_0_that_never_arrives_is_named() {
    let mut guest = place(1, 2, "hostless");
    guest.join_timeout = Duration::from_millis(50);
    assert_eq!(code(&join(&guest, 7, BYTES)), "Z0322");
}

#[test]
fn ranks_of_several_hosts_are_refused() {
    let mut place = place(0, 2, "hosts");
    place.one_host = false;
    assert_eq!(code(&join(&place, 7, BYTES)), "Z0307");
}

#[test]
fn too_much_memory_is_an_error_on_all_ranks() {
    let places = [0, 1].map(|rank| place(rank, 2, "memory"));
    let codes = thread::scope(|scope| {
        let ranks = places.each_ref().map(|place| scope.spawn(move || code(&join(place, 7, 1 << 60))));
        ranks.map(|rank| rank.join().unwrap())
    });
    assert_eq!(codes, ["Z0331", "Z0330"]);
}

#[test]
fn jobs_do_not_meet() {
    let outcomes = join_all(&[
        (place(0, 2, "left"), 1),
        (place(0, 2, "right"), 2),
        (place(1, 2, "left"), 1),
        (place(1, 2, "right"), 2),
    ]);
    assert!(outcomes.iter().all(|outcome| code(outcome) == "joined"));
}

#[test]
fn a_loss_is_told_to_all_and_a_goodbye_to_none() {
    let places: Vec<_> = (0..4).map(|rank| (place(rank, 4, "loss"), 7)).collect();
    let mut watches: Vec<Watch> = join_all(&places).into_iter().map(|joined| joined.unwrap().watch).collect();
    let (sender, receiver) = std::sync::mpsc::channel();
    for (rank, watch) in watches.iter().enumerate() {
        let sender = sender.clone();
        watch.start(move |lost| sender.send((rank, lost.rank, lost.is_reporter)).unwrap()).unwrap();
    }
    drop(sender);
    watches.remove(1).goodbye();
    drop(watches.remove(1)); // rank 2, without a goodbye
    let mut heard: Vec<_> = std::iter::from_fn(|| receiver.recv_timeout(Duration::from_secs(20)).ok()).collect();
    heard.sort();
    assert_eq!(heard, [(0, 2, true), (3, 2, false)]);
}
