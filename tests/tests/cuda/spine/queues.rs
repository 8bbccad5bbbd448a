//! Queues and what passes between host and device: the pretend device does what it was told in any order that events allow.

use zero_runtime::device::{Cuda, Device, Memory};
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

/// Each overtakes the one before in no queue, though all pass through the same few bytes of the host.
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

/// Numbers that one queue makes and another copies, where an event orders the two or does not.
fn copied(cuda: &Cuda, is_ordered: bool) -> Vec<f32> {
    let ones = of(cuda, &[1.0f32; 5000]);
    let (mut made, mut copy) = (of(cuda, &[0.0f32; 5000]), of(cuda, &[0.0f32; 5000]));
    // All that was staged is there.
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
    assert!(overtaken > 0, "the pretend device keeps an order that nobody asked for");
    assert_eq!(cuda.failure(), None);
}

/// What it reads is what was there when it was made, in whichever queue, while the device goes on.
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
        let read = || values(&beside, &kept) == [1.0; 3000];
        assert!(std::thread::scope(|scope| scope.spawn(read).join().expect("a thread")), "seed {seed}");
        drop(beside);
        assert!(values(&cuda, &other) == [1.0; 3000]);
    }
}

#[test]
fn memory_is_whole_pages_of_zeros() {
    let Some(cuda) = device() else { return };
    let memory = cuda.allocate(5000).expect("memory");
    assert!(memory.len() >= 5000 && memory.len().is_multiple_of(4096) && memory.start().addr().is_multiple_of(4096));
    #[expect(unsafe_code, reason = "memory that nobody else has")]
    // SAFETY: all of it, which is initialised, and nobody writes.
    let view = unsafe { zero_runtime::view::View::<Cuda, u8>::from_raw(memory.start(), memory.len()) };
    let mut bytes = vec![1; memory.len()];
    cuda.read(view, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0));
}

/// By another device too: an export is another mapping of the same pages.
#[test]
fn memory_is_reached_by_those_that_it_is_given_to() {
    let Some(cuda) = device() else { return };
    let other = Cuda::open(1).expect("a second device");
    let memory = cuda.allocate(64).expect("memory");
    let descriptor = memory.export().expect("a descriptor");
    use std::os::fd::AsFd;
    let imported = other.import(descriptor.as_fd(), memory.len()).expect("the same memory");
    assert_ne!(imported.start(), memory.start());
    #[expect(unsafe_code, reason = "memory that nobody else has")]
    // SAFETY: as many bytes, which one device writes before the other reads.
    let (to, from) = unsafe {
        use zero_runtime::view::{View, ViewMut};
        (
            ViewMut::<Cuda, f32>::from_raw(memory.start().cast(), 4),
            View::<Cuda, f32>::from_raw(imported.start().cast(), 4),
        )
    };
    cuda.stage(to, |to| to.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]));
    // The first waits until it has written.
    let mut word = [0.0f32];
    cuda.read(from.split_at(1).0, &mut word);
    let mut found = [0.0; 4];
    other.read(from, &mut found);
    assert_eq!(found, [1.0, 2.0, 3.0, 4.0]);
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
