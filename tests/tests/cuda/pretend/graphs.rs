//! Graphs: what was recorded is done as often as it is launched, in any order that was recorded.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ptr::null_mut;

use zero_tests::pretend;

use super::raw::{self, Handle, allocate, call, copy, driver, event, fill, finish, receive, record, stream, wait};

const LEN: usize = 64;

/// Begins to record a stream, for this thread alone.
fn begin(stream: Handle) -> i32 {
    call!(driver(), cuStreamBeginCapture_v2(stream => Handle, 1 => i32))
}

fn end(stream: Handle) -> Result<Handle, i32> {
    let mut graph = null_mut();
    match call!(driver(), cuStreamEndCapture(stream => Handle, &mut graph => *mut Handle)) {
        0 => Ok(graph),
        status => Err(status),
    }
}

fn instance(graph: Handle) -> Handle {
    let mut instance = null_mut();
    let made = call!(
        driver(),
        cuGraphInstantiateWithFlags(&mut instance => *mut Handle, graph => Handle, 0 => u64)
    );
    assert_eq!([made, call!(driver(), cuGraphDestroy(graph => Handle))], [0; 2]);
    instance
}

fn launch(instance: Handle, stream: Handle) -> i32 {
    call!(driver(), cuGraphLaunch(instance => Handle, stream => Handle))
}

/// A fill in one stream and a copy of it in another, which waits for it or not, as a graph.
fn recorded(waits: bool, from: u64, to: u64) -> Handle {
    let (a, b, [fork, filled, join]) = (stream(), stream(), [0; 3].map(|_| event()));
    assert_eq!([begin(a), record(fork, a), wait(b, fork)], [0; 3]);
    assert_eq!([fill(from, 1, LEN, a), record(filled, a)], [0; 2]);
    assert_eq!([if waits { wait(b, filled) } else { 0 }, copy(to, from, LEN, b)], [0; 2]);
    assert_eq!([record(join, b), wait(a, join)], [0; 2]);
    instance(end(a).unwrap())
}

#[test]
fn an_edge_too_few_is_noticed_by_some_seed() {
    if !raw::begin() {
        return;
    }
    let (one, [from, to]) = (stream(), [0; 2].map(|_| allocate(LEN)));
    let [right, wrong] = [true, false].map(|waits| recorded(waits, from, to));
    let once = |graph| {
        assert_eq!([fill(from, 9, LEN, one), launch(graph, one)], [0; 2]);
        receive::<u8>(to, 1, one).unwrap()[0]
    };
    let mut found = HashSet::new();
    for seed in 0..32 {
        pretend::seed(seed);
        assert_eq!(once(right), 1, "under seed {seed}");
        found.insert(once(wrong));
    }
    assert_eq!(found, HashSet::from([1, 9]));
}

#[test]
fn nothing_is_done_while_it_is_recorded() {
    if !raw::begin() {
        return;
    }
    let (one, at) = (stream(), allocate(LEN));
    assert_eq!([fill(at, 3, LEN, one), begin(one), fill(at, 4, LEN, one)], [0; 3]);
    let graph = instance(end(one).unwrap());
    assert_eq!(receive::<u8>(at, 1, one).unwrap(), [3]);
    assert_eq!(launch(graph, one), 0);
    assert_eq!(receive::<u8>(at, 1, one).unwrap(), [4]);
}

/// By the codes of the driver: what would synchronise, work that is not joined, what another stream does.
#[test]
fn what_cannot_be_recorded_is_refused() {
    if !raw::begin() {
        return;
    }
    let (a, b, fork, at) = (stream(), stream(), event(), allocate(LEN));
    let mut other = 0;
    assert_eq!([begin(a), finish(a)], [0, 900]);
    assert_eq!(end(a), Err(901), "what was recorded before is lost");
    assert_eq!(begin(a), 0);
    assert_eq!(call!(driver(), cuMemAlloc_v2(&mut other => *mut u64, 64 => usize)), 900);
    assert_eq!([end(a), end(a)], [Err(901), Err(903)]);
    assert_eq!([begin(a), record(fork, a), wait(b, fork), fill(at, 1, LEN, b)], [0; 4]);
    assert_eq!(end(b), Err(903));
    assert_eq!(end(a), Err(904));
    assert_eq!([fill(at, 2, LEN, b), finish(b), finish(a)], [0; 3]);
}
