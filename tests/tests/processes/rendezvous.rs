//! Ranks meet, or report which of them does not fit. The ranks are threads here; sockets and memory are real.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use zero_ranks::launch::{JobPlace, Joined, LaunchError, Watch, fail, join};

const BYTES: usize = 1 << 16;

/// A place in a job that only this test process has.
fn place(rank: usize, world: usize, job: &str) -> JobPlace {
    JobPlace::on_this_host(rank, world, &format!("{job}-{}", std::process::id()))
}

/// Joins all places at once, each with its plan hash; outcomes in the same order.
fn join_all(places: &[(JobPlace, u64)]) -> Vec<Result<Joined, LaunchError>> {
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
    // All ranks get the reason, in whatever order they arrive.
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
fn a_rank_beyond_the_world_is_refused() {
    let outcomes = join_all(&[(place(0, 2, "beyond"), 7), (place(2, 2, "beyond"), 7)]);
    assert_eq!((code(&outcomes[0]), code(&outcomes[1])), ("Z0303", "Z0330"));
}

#[test]
fn another_size_of_shared_memory_is_refused() {
    let places = [0, 1].map(|rank| place(rank, 2, "size"));
    let codes = thread::scope(|scope| {
        let ranks = places.each_ref().map(|place| scope.spawn(|| code(&join(place, 7, BYTES + place.rank))));
        ranks.map(|rank| rank.join().unwrap())
    });
    assert_eq!(codes, ["Z0325", "Z0330"]);
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

/// A rank, and the error that it should print.
type Told = (usize, Option<String>);

/// The watches of ranks that have met, and the values that their callbacks will receive.
fn watch(job: &str, ranks: usize) -> (Vec<Option<Watch>>, Receiver<Told>) {
    let places: Vec<_> = (0..ranks).map(|rank| (place(rank, ranks, job), 7)).collect();
    let watches: Vec<_> = join_all(&places).into_iter().map(|joined| Some(joined.unwrap().watch)).collect();
    let (sender, receiver) = channel();
    for (rank, watch) in watches.iter().flatten().enumerate() {
        let sender = sender.clone();
        let tell = move |error: Option<LaunchError>| {
            // After the test, no thread receives the message.
            let _ = sender.send((rank, error.map(|error| error.report())));
        };
        watch.start(tell).unwrap();
    }
    (watches, receiver)
}

/// All messages until no rank can send another one, which requires that all remaining ranks have ended.
fn heard(receiver: &Receiver<Told>) -> Vec<Told> {
    let mut heard: Vec<_> = std::iter::from_fn(|| receiver.recv_timeout(Duration::from_secs(20)).ok()).collect();
    heard.sort();
    heard
}

#[test]
fn a_loss_is_told_to_all_and_an_orderly_end_to_none() {
    let (mut watches, receiver) = watch("loss", 4);
    watches[1].take().unwrap().finish();
    drop(watches[2].take()); // without an orderly end
    let heard = heard(&receiver);
    assert!(heard[0].1.as_ref().unwrap().starts_with("error[Z0314]: rank 2 "), "{heard:?}");
    assert_eq!((heard.len(), heard[0].0, &heard[1]), (2, 0, &(3, None)));
}

#[test]
fn a_loss_is_told_by_rank_0_or_of_rank_0_by_the_next() {
    for (lost, teller, silent) in [(0, 1, 2), (2, 0, 1)] {
        let (mut watches, receiver) = watch(&format!("lost {lost}"), 3);
        drop(watches[lost].take());
        let heard = heard(&receiver);
        let told = heard.iter().find(|(rank, _)| *rank == teller).and_then(|(_, error)| error.as_ref());
        assert!(told.is_some_and(|error| error.starts_with(&format!("error[Z0314]: rank {lost} "))), "{heard:?}");
        assert!(heard.len() == 2 && heard.contains(&(silent, None)), "{heard:?}");
    }
}

#[test]
fn an_orderly_end_alone_is_no_loss() {
    let (mut watches, receiver) = watch("finish", 3);
    watches[1].take().unwrap().finish();
    assert!(receiver.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn of_two_errors_in_the_middle_the_first_is_told() {
    let (mut watches, receiver) = watch("second", 3);
    let [first, other] = [2, 0].map(|rank| watches[rank].take().unwrap());
    assert!(first.fail(OWN).is_none());
    assert!(other.fail("error[Z9998]: a consequence").is_none());
    assert_eq!(heard(&receiver), [(0, Some(of_rank(2, 3))), (1, None)]);
}

const OWN: &str = "error[Z9999]: my own words";

fn of_rank(rank: usize, world: usize) -> String {
    format!("{OWN}\n  = note: found by rank {rank} of {world}")
}

#[test]
fn an_error_of_one_rank_in_the_middle_is_told_by_rank_0() {
    let (mut watches, receiver) = watch("middle", 4);
    assert!(watches[2].take().unwrap().fail(OWN).is_none(), "rank 0 speaks");
    assert_eq!(heard(&receiver), [(0, Some(of_rank(2, 4))), (1, None), (3, None)]);
}

/// Rank 0 has noticed that rank 1 has failed, and rank 1 releases its device before it reports the reason.
#[test]
fn an_error_that_comes_late_is_waited_for() {
    let (mut watches, receiver) = watch("late", 2);
    let [first, late] = [0, 1].map(|rank| watches[rank].take().unwrap());
    thread::spawn(|| first.fail_by_news());
    thread::sleep(Duration::from_secs(3));
    assert!(late.fail(OWN).is_none(), "rank 0 speaks");
    assert_eq!(heard(&receiver), [(0, Some(of_rank(1, 2)))]);
}

#[test]
fn an_error_of_rank_0_in_the_middle_is_told_by_it() {
    let (mut watches, receiver) = watch("first", 3);
    let told = watches[0].take().unwrap().fail(OWN).map(|error| error.report());
    assert_eq!(told, Some(of_rank(0, 3)));
    assert_eq!(heard(&receiver), [(1, None), (2, None)]);
}

#[test]
fn an_error_without_a_rank_0_is_told_by_its_finder() {
    let (mut watches, receiver) = watch("headless", 2);
    watches[0].take().unwrap().finish();
    let told = watches[1].take().unwrap().fail(OWN).map(|error| error.report());
    assert_eq!(told, Some(of_rank(1, 2)));
    assert_eq!(heard(&receiver), []);
}

#[test]
fn an_error_that_all_agree_on_is_told_by_rank_0() {
    let (watches, receiver) = watch("agreed", 3);
    let speaks = thread::scope(|scope| {
        let ends = watches.into_iter().flatten().map(|watch| scope.spawn(|| watch.fail_together()));
        ends.collect::<Vec<_>>().into_iter().map(|end| end.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(speaks, [true, false, false]);
    assert_eq!(heard(&receiver), []);
}

/// Lets some ranks fail and the others join. Returns the message that each should print.
fn start(job: &str, world: usize, errors: &[(usize, &str)]) -> Vec<Option<String>> {
    let outcome = |rank: usize| {
        let place = place(rank, world, job);
        match errors.iter().find(|(failing, _)| *failing == rank) {
            Some((_, error)) => fail(&place, error),
            None => join(&place, 7, BYTES).err().filter(|error| !error.is_echo()),
        }
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..world).map(|rank| scope.spawn(move || outcome(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().map(|error| error.report())).collect()
    })
}

#[test]
fn an_error_before_the_meeting_is_told_once_with_the_ranks_that_found_it() {
    assert_eq!(start("found by one", 3, &[(1, OWN)]), [Some(of_rank(1, 3)), None, None]);
    assert_eq!(start("found by the host", 3, &[(0, OWN)]), [Some(of_rank(0, 3)), None, None]);
    assert_eq!(start("found by all", 3, &[(0, OWN), (1, OWN), (2, OWN)]), [Some(OWN.to_owned()), None, None]);
    let other = "error[Z9998]: other words";
    let both = format!("{}\n{other}\n  = note: found by rank 2 of 3", of_rank(0, 3));
    assert_eq!(start("two found", 3, &[(0, OWN), (2, other)]), [Some(both), None, None]);
}

#[test]
fn an_error_of_a_rank_that_finds_no_rank_0_is_told_by_it() {
    let mut guest = place(1, 2, "nobody");
    guest.join_timeout = Duration::from_millis(50);
    assert_eq!(fail(&guest, OWN).map(|error| error.report()), Some(of_rank(1, 2)));
}

#[test]
fn of_all_who_wait_for_rank_0_in_vain_one_says_so() {
    let mut guests = [1, 2, 3].map(|rank| (place(rank, 4, "vain"), 7));
    guests.iter_mut().for_each(|(guest, _)| guest.join_timeout = Duration::from_millis(50));
    let outcomes = join_all(&guests);
    let mut codes: Vec<_> = outcomes.iter().map(code).collect();
    codes.sort();
    assert_eq!(codes, ["Z0322", "Z0330", "Z0330"]);
}
