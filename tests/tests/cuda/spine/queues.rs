//! Queues, and transfers between host and device: the pretend device does its work in any order that events allow.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Barrier, Mutex};

use zero_core::device::{Device, DeviceMemory, SharedParts};
use zero_core::device::{Kernels, Queues, Segment, Storage};
use zero_core::view::{View, ViewMut};
use zero_cuda::Cuda;
use zero_plan::Stream;
use zero_tests::buffers::{noise, of, values};
use zero_tests::pretend;

use super::device;

/// Longer than the staging, and no multiple of any part of it.
const LONG: usize = (9 << 20) / 4 + 3;

#[test]
fn what_is_staged_comes_back() {
    let Some(cuda) = device() else { return };
    let numbers = noise(LONG, 1);
    let buffer = of(&cuda, &numbers);
    assert!(values(&cuda, &buffer) == numbers);
    assert_eq!(cuda.failure(), None);
}

/// No copy overtakes the previous one, although all pass through the same few bytes of the host.
#[test]
fn staging_is_not_filled_again_before_it_was_copied() {
    let Some(cuda) = device() else { return };
    let pieces: Vec<_> = (0..40).map(|seed| noise(100_000, seed)).collect();
    let buffers: Vec<_> = pieces
        .iter()
        .enumerate()
        .map(|(i, piece)| {
            cuda.enter(i % 4);
            of(&cuda, piece)
        })
        .collect();
    cuda.enter(0);
    for (i, (buffer, piece)) in buffers.iter().zip(&pieces).enumerate() {
        assert!(values(&cuda, buffer) == *piece, "piece {i}");
    }
}

/// Numbers that one queue computes and another copies, with or without an event that orders the two.
fn copied(cuda: &Cuda, is_ordered: bool) -> Vec<f32> {
    let ones = of(cuda, &[1.0f32; 5000]);
    let (mut made, mut copy) = (of(cuda, &[0.0f32; 5000]), of(cuda, &[0.0f32; 5000]));
    // After this read, all staged numbers have arrived.
    values(cuda, &ones);
    cuda.enter(1);
    (0..3).for_each(|_| cuda.add(made.view_mut(), ones.view()));
    cuda.record(5);
    cuda.enter(0);
    if is_ordered {
        cuda.wait(5);
    }
    cuda.copy(copy.view_mut(), made.view());
    values(cuda, &copy)
}

#[test]
fn events_order_queues_and_nothing_else_does() {
    let Some(cuda) = device() else { return };
    cuda.prepare(6).expect("events");
    let mut overtaken = 0;
    for seed in 0..16 {
        pretend::seed(seed);
        assert!(copied(&cuda, true) == [3.0; 5000], "seed {seed}");
        overtaken += usize::from(copied(&cuda, false) != [3.0; 5000]);
    }
    assert!(overtaken > 0 || pretend::is_hardware(), "the pretend device keeps an order that nobody asked for");
    assert_eq!(cuda.failure(), None);
}

/// The read returns the contents from when its handle was made, in whichever queue, while the device continues.
#[test]
fn another_thread_reads_what_was_there() {
    let Some(cuda) = device() else { return };
    for seed in 0..8 {
        pretend::seed(seed);
        let ones = of(&cuda, &[1.0f32; 3000]);
        let (mut kept, mut other) = (of(&cuda, &[0.0f32; 3000]), of(&cuda, &[0.0f32; 3000]));
        values(&cuda, &ones);
        cuda.enter(2);
        cuda.add(kept.view_mut(), ones.view());
        let beside = cuda.beside();
        cuda.enter(0);
        cuda.add(other.view_mut(), ones.view());
        let (kept, read) = (&kept, |beside: Cuda, kept| values(&beside, kept) == [1.0; 3000]);
        assert!(
            std::thread::scope(|scope| scope.spawn(move || read(beside, kept)).join().expect("a thread")),
            "seed {seed}"
        );
        assert!(values(&cuda, &other) == [1.0; 3000]);
    }
}

#[test]
fn memory_is_whole_pages_of_zeros() {
    let Some(cuda) = device() else { return };
    let memory = cuda.allocate(5000).expect("memory");
    assert!(memory.len() >= 5000 && memory.len().is_multiple_of(4096) && memory.start().addr().is_multiple_of(4096));
    #[expect(unsafe_code, reason = "memory that nobody else has")]
    // SAFETY: the view is of all of the memory, which is initialised, and which nothing writes.
    let view = unsafe { View::<Cuda, u8>::from_raw(memory.start(), memory.len()) };
    let mut bytes = vec![1; memory.len()];
    cuda.read(view, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0));
}

/// The device copies from it and to it, in any queue.
#[test]
fn host_memory_is_exactly_as_long_and_begins_as_zeros() {
    let Some(cuda) = device() else { return };
    let memory = cuda.allocate_on_host(4 * 3000).expect("memory");
    assert!(memory.len() == 4 * 3000 && memory.start().addr().is_multiple_of(4096));
    let (ones, mut back) = (of(&cuda, &[1.0f32; 3000]), of(&cuda, &[5.0f32; 3000]));
    #[expect(unsafe_code, reason = "memory that nobody else has")]
    // SAFETY: views of all of the memory, which is initialised; the device is done with one before it uses the other.
    let (kept, kept_mut) = unsafe {
        let start = memory.start().cast();
        (View::<Cuda, f32>::from_raw(start, 3000), ViewMut::<Cuda, f32>::from_raw(start, 3000))
    };
    cuda.copy(back.view_mut(), kept);
    assert!(values(&cuda, &back) == [0.0; 3000]);
    cuda.enter(Stream::Store as usize);
    cuda.copy(kept_mut, ones.view());
    // A read waits for all queues.
    assert!(values(&cuda, &ones) == [1.0; 3000]);
    cuda.enter(Stream::Fetch as usize);
    cuda.copy(back.view_mut(), kept);
    assert!(values(&cuda, &back) == [1.0; 3000]);
    assert_eq!(cuda.failure(), None);
}

/// Shares a rank's memory with the others by a descriptor, and returns its view of all memories.
fn share(device: &Cuda, own: usize, bytes: &[usize], given: &Given, met: &Barrier) -> Vec<f32> {
    let mut exchange = |descriptor: OwnedFd| {
        given.lock().unwrap()[own] = Some(descriptor);
        met.wait();
        let all = given.lock().unwrap();
        Ok(all.iter().map(|one| one.as_ref().unwrap().try_clone().unwrap()).collect())
    };
    let segment = Arc::new(Segment::private(4096).expect("memory of the host"));
    let parts = SharedParts { bytes: bytes.to_vec(), own, exchange: Some(&mut exchange) };
    let memory = device.share(segment, parts).expect("the memory of both");
    assert_eq!(memory.len(), bytes.iter().sum::<usize>());
    let first = |rank: usize| memory.start().wrapping_add(bytes[..rank].iter().sum::<usize>()).cast::<f32>();
    #[expect(unsafe_code, reason = "memory that nobody else has")]
    // SAFETY: a word of the part of each rank, which only that rank writes, before any rank reads it.
    let (to, from) = unsafe {
        (ViewMut::<Cuda, f32>::from_raw(first(own), 1), [0, 1].map(|rank| View::<Cuda, f32>::from_raw(first(rank), 1)))
    };
    let mut found = [0.0; 2];
    device.stage(to, |to| to[0] = 1.5 + own as f32);
    device.read(from[own], &mut found[..1]);
    met.wait();
    from.iter().zip(&mut found).for_each(|(from, found)| device.read(*from, core::slice::from_mut(found)));
    // No rank releases memory that another one reads.
    met.wait();
    assert_eq!(device.failure(), None);
    found.to_vec()
}

type Given = Mutex<[Option<OwnedFd>; 2]>;

#[test]
fn each_device_reaches_the_parts_of_the_others() {
    let Some(first) = device() else { return };
    let devices = [first, <Cuda as Device>::open(1).expect("a second device")];
    let page = devices[0].allocate(1).expect("memory").len();
    let (bytes, given, met) = ([2 * page, page], Given::default(), Barrier::new(2));
    std::thread::scope(|scope| {
        let ranks = devices.into_iter().enumerate().map(|(own, device)| {
            let (bytes, given, met) = (&bytes, &given, &met);
            scope.spawn(move || share(&device, own, bytes, given, met))
        });
        let ranks: Vec<_> = ranks.collect();
        for rank in ranks {
            assert_eq!(rank.join().expect("a rank"), [1.5, 2.5]);
        }
    });
}

#[test]
fn a_device_that_has_failed_does_nothing_more_and_says_why() {
    let inside = || {
        let cuda = device().expect("a pretend device");
        let (x, mut y) = (of(&cuda, &[1.0f32; 9]), of(&cuda, &[2.0f32; 9]));
        let mut filled = false;
        cuda.add(y.view_mut(), x.view());
        let failure = cuda.failure().expect("a kernel that does not start");
        assert_eq!(failure.code, "Z0438", "{failure}");
        assert!(failure.what.contains("`add<float, 1>` on CUDA device 0: "), "{failure}");
        cuda.scale(y.view_mut(), f32::NAN);
        cuda.stage(y.view_mut(), |to| filled = to.len() == 9);
        let mut found = [7.0; 9];
        cuda.read(y.view(), &mut found);
        assert!(filled, "whoever fills counts on being asked");
        assert_eq!((found, cuda.failure()), ([7.0; 9], Some(failure)), "the first error stays");
    };
    super::refusals::apart(
        "queues::a_device_that_has_failed_does_nothing_more_and_says_why",
        &[("PRETEND_FAIL", "launch:1")],
        inside,
    );
}
