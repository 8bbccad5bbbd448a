//! Graphs: recorded work is executed at each launch, in any order that the recording allows.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ptr::null_mut;

use zero_tests::pretend;

use super::raw::{self, Handle, allocate, call, copy, driver, event, fill, finish, receive, record, stream, wait};

const LEN: usize = 64;

/// Begins to record a stream, only for this thread.
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

/// A graph of a fill in one stream and a copy of it in another, which may or may not wait for the fill.
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

/// With the driver's codes: calls that would synchronise, work that is not joined, an end of the capture by another stream.
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

/// Words of memory operations, as CUDA's header has them: kind, address, value, flags, and two that are unused.
type Op = [u64; 6];

/// Room for `CUDA_BATCH_MEM_OP_NODE_PARAMS` of one operation.
#[repr(C)]
struct Params {
    context: Handle,
    count: u32,
    op: *const Op,
    flags: u32,
}

fn params(op: &Op) -> Params {
    let mut context = null_mut();
    assert_eq!(call!(driver(), cuCtxGetCurrent(&mut context => *mut Handle)), 0);
    Params { context, count: 1, op, flags: 0 }
}

/// Adds an operation to the recording of a stream, after all its work so far.
fn add(op: &Op, stream: Handle) -> Result<Handle, i32> {
    let (mut status, mut id, mut graph, mut node) = (0u32, 0u64, null_mut(), null_mut());
    let (mut before, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0usize);
    let found = call!(driver(), cuStreamGetCaptureInfo_v3(
        stream => Handle, &mut status => *mut u32, &mut id => *mut u64, &mut graph => *mut Handle,
        &mut before => *mut *const Handle, &mut edges => *mut *const u64, &mut count => *mut usize,
    ));
    assert_eq!((found, status), (0, 1));
    let added = call!(driver(), cuGraphAddBatchMemOpNode(
        &mut node => *mut Handle, graph => Handle, before => *const Handle, count => usize, &params(op) => *const Params,
    ));
    if added != 0 {
        return Err(added);
    }
    let none: *const u64 = std::ptr::null();
    let updated = call!(driver(), cuStreamUpdateCaptureDependencies_v2(
        stream => Handle, &mut node => *mut Handle, none => *const u64, 1 => usize, 1 => u32,
    ));
    assert_eq!(updated, 0);
    Ok(node)
}

fn set(instance: Handle, node: Handle, op: &Op) -> i32 {
    call!(driver(), cuGraphExecBatchMemOpNodeSetParams(
        instance => Handle, node => Handle, &params(op) => *const Params,
    ))
}

#[test]
fn a_launch_awaits_and_writes_what_its_nodes_were_last_given() {
    if !raw::begin() {
        return;
    }
    let (one, other, words) = (stream(), stream(), allocate(LEN));
    let (awaits, tells) = (|value| [1, words, value, 0, 0, 0], |value| [2, words + 4, value, 0, 0, 0]);
    assert_eq!([fill(words, 0, LEN, one), finish(one), begin(one)], [0; 3]);
    let awaiting = add(&awaits(1), one).unwrap();
    assert_eq!(fill(words + 8, 5, 4, one), 0);
    let telling = add(&tells(10), one).unwrap();
    let (graph, mut instance) = (end(one).unwrap(), null_mut());
    let made = call!(driver(), cuGraphInstantiateWithFlags(&mut instance => *mut Handle, graph => Handle, 0 => u64));
    assert_eq!(made, 0);
    for value in 1..5 {
        assert_eq!([set(instance, awaiting, &awaits(value)), set(instance, telling, &tells(10 * value))], [0; 2]);
        assert_eq!([launch(instance, one), call!(driver(), cuStreamQuery(one => Handle))], [0, 600]);
        assert_eq!(receive::<u32>(words + 4, 1, other).unwrap(), [10 * (value as u32 - 1)]);
        let write =
            call!(driver(), cuStreamWriteValue32_v2(other => Handle, words => u64, value as u32 => u32, 0 => u32));
        assert_eq!([write, finish(one)], [0; 2]);
        assert_eq!(receive::<u32>(words + 4, 1, other).unwrap(), [10 * value as u32]);
    }
    assert_eq!(set(instance, awaiting, &tells(1)), 1, "of another kind");
    assert_eq!(set(graph, awaiting, &awaits(1)), 1, "no instance");
    assert_eq!(call!(driver(), cuGraphDestroy(graph => Handle)), 0);
    assert_eq!(set(instance, awaiting, &awaits(1)), 1, "nodes are those of the graph");
}

/// A recording cannot wait for events of earlier work or of a recording that has ended, nor is code loaded in one.
#[test]
fn what_was_recorded_elsewhere_is_not_waited_for() {
    if !raw::begin() {
        return;
    }
    let (a, b, [before, inside], at) = (stream(), stream(), [0; 2].map(|_| event()), allocate(LEN));
    let mut module: Handle = null_mut();
    assert_eq!([fill(at, 1, LEN, b), record(before, b), begin(a), wait(a, before)], [0, 0, 0, 905]);
    assert_eq!([fill(at, 2, LEN, a), record(inside, a)], [0; 2]);
    instance(end(a).unwrap());
    assert_eq!([wait(b, inside), fill(at, 3, LEN, b), finish(b)], [907, 0, 0]);
    assert_eq!([begin(a), wait(a, inside)], [0, 907]);
    assert_eq!(call!(driver(), cuModuleLoadData(&mut module => *mut Handle, at => u64)), 900);
    assert_eq!(end(a), Err(901));
}
