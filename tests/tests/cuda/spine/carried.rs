//! NCCL in passes that repeat: each launch makes the same transfers, of new bytes. One rank is a group as well.
#![allow(unsafe_code)]

use zero_core::device::{Buffer, Carried, Communicator, Device, Group, GroupPart, Queues, Storage};
use zero_cuda::Cuda;
use zero_tests::buffers::{of, values};
use zero_tests::pretend;

use super::device;

/// A device alone in a group; none without a compiler, and none on a GPU, because its machine may have no NCCL.
fn member() -> Option<Cuda> {
    let cuda = device().filter(|_| !pretend::is_hardware())?;
    let names = cuda.name_groups(1).expect("a name");
    let group = Group { members: vec![0], own: 0, name: 0, parts: vec![GroupPart::Gathers] };
    cuda.connect(&[group], &names, &|_| true).expect("a group");
    Some(cuda)
}

/// Carries `len` bytes.
fn carry(cuda: &Cuda, from: &Buffer<Cuda, u8>, to: &mut Buffer<Cuda, u8>, len: usize) {
    let (own, all) = (from.view().split_at(len).0, to.view_mut().split_at(len).0);
    // SAFETY: nothing else uses these buffers, and the group has no other member.
    unsafe { cuda.carry(0, &mut std::iter::once(Carried::Gather { own, all }), &|_| true) };
}

/// The bytes that arrive are those of this pass, although only the first two passes call NCCL.
#[test]
fn a_pass_carries_anew_each_time() {
    let Some(cuda) = member() else { return };
    let (mut from, mut to) = (of(&cuda, &[0u8; 64]), of(&cuda, &[0u8; 64]));
    for pass in 1..9 {
        pretend::seed(pass);
        let before = pretend::count("pretend_enqueue_when");
        cuda.begin_repeated(0);
        cuda.stage(from.view_mut(), |from| from.fill(pass as u8));
        carry(&cuda, &from, &mut to, 64);
        cuda.end_repeated();
        assert_eq!(pretend::count("pretend_enqueue_when") - before, u64::from(pass < 3), "pass {pass}");
        // Between passes, NCCL is called each time.
        carry(&cuda, &from, &mut to, 1);
        assert!(values(&cuda, &to) == [pass as u8; 64], "pass {pass}");
    }
    assert_eq!(cuda.failure(), None);
}

#[test]
fn z0449_a_pass_carries_something_else() {
    for is_longer in [true, false] {
        let Some(cuda) = member() else { return };
        let (from, mut to, mut other) = (of(&cuda, &[5u8; 64]), of(&cuda, &[0u8; 64]), of(&cuda, &[0u8; 64]));
        for _ in 0..3 {
            cuda.begin_repeated(0);
            carry(&cuda, &from, &mut to, 32);
            cuda.end_repeated();
        }
        assert_eq!(cuda.failure(), None);
        cuda.begin_repeated(0);
        if is_longer {
            carry(&cuda, &from, &mut to, 33);
        } else {
            carry(&cuda, &from, &mut other, 32);
        }
        cuda.end_repeated();
        assert_eq!(cuda.failure().expect("a pass that is another one").code, "Z0449");
    }
}

/// As when a dataset panics: the device's graph, and the one being captured, are dropped before the group, which would wait for
/// them.
#[test]
fn a_device_that_goes_leaves_its_groups() {
    for passes in 0..4 {
        let Some(cuda) = member() else { return };
        let (from, mut to) = (of(&cuda, &[5u8; 64]), of(&cuda, &[0u8; 64]));
        for _ in 0..passes {
            cuda.begin_repeated(0);
            carry(&cuda, &from, &mut to, 64);
            cuda.end_repeated();
        }
        cuda.begin_repeated(0);
        carry(&cuda, &from, &mut to, 64);
        drop(cuda);
    }
}
