//! Order: streams do their work in any order that events allow, so that a missing event shows.

use std::collections::HashSet;

use zero_tests::pretend;

use super::raw::{self, allocate, copy, event, fill, finish, receive, record, send, stream, wait};

/// Elements of each buffer.
const LEN: usize = 64;

/// The result of a copy in one stream, which may wait for a fill in another stream, under one order.
fn filled_then_copied(waits: bool) -> u8 {
    let (a, b, done, [from, to]) = (stream(), stream(), event(), [0; 2].map(|_| allocate(LEN)));
    let statuses =
        [fill(from, 1, LEN, a), record(done, a), if waits { wait(b, done) } else { 0 }, copy(to, from, LEN, b)];
    assert_eq!(statuses, [0; 4]);
    let copied = receive::<u8>(to, LEN, b).unwrap();
    assert_eq!(finish(a), 0);
    assert!(copied.iter().all(|&byte| byte == copied[0]));
    copied[0]
}

#[test]
fn an_event_too_few_is_noticed_by_some_seed() {
    if !raw::begin() {
        return;
    }
    let mut found = HashSet::new();
    for seed in 0..32 {
        pretend::seed(seed);
        assert_eq!(filled_then_copied(true), 1, "with the event, under seed {seed}");
        found.insert(filled_then_copied(false));
    }
    assert_eq!(found, HashSet::from([1, 0xff]), "without the event: what was filled, and what was never written");
}

/// The other direction: a buffer that is overwritten before it was copied.
#[test]
fn a_buffer_that_is_written_too_early_is_noticed_by_some_seed() {
    if !raw::begin() {
        return;
    }
    let (a, b, copied, [from, to]) = (stream(), stream(), event(), [0; 2].map(|_| allocate(LEN)));
    let once = |waits: bool| {
        let statuses = [fill(from, 1, LEN, a), finish(a), copy(to, from, LEN, a), record(copied, a)];
        assert_eq!(statuses, [0; 4]);
        assert_eq!([if waits { wait(b, copied) } else { 0 }, fill(from, 2, LEN, b), finish(b)], [0; 3]);
        receive::<u8>(to, 1, a).unwrap()[0]
    };
    let mut found = HashSet::new();
    for seed in 0..32 {
        pretend::seed(seed);
        assert_eq!(once(true), 1, "with the event, under seed {seed}");
        found.insert(once(false));
    }
    assert_eq!(found, HashSet::from([1, 2]));
}

#[test]
fn work_of_one_stream_is_in_order() {
    if !raw::begin() {
        return;
    }
    let (one, at) = (stream(), allocate(LEN));
    for seed in 0..8 {
        pretend::seed(seed);
        for value in 0..100 {
            assert_eq!(fill(at, value, LEN, one), 0);
        }
        assert_eq!(receive::<u8>(at, LEN, one).unwrap(), [99; LEN]);
    }
}

/// A copy from pageable memory copies the contents at the time of the call.
#[test]
fn a_copy_from_the_host_takes_what_was_there() {
    if !raw::begin() {
        return;
    }
    let (one, at) = (stream(), allocate(4));
    let mut number = [7u32];
    assert_eq!(send(at, &number, one), 0);
    number[0] = 8;
    assert_eq!(receive::<u32>(at, 1, one).unwrap(), [7]);
    assert_eq!(number, [8]);
}
