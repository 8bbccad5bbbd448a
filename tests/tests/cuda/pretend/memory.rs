//! Memory: device memory is inaccessible to the host, has a pattern when it is fresh, and is really shared among processes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use zero_tests::pretend;

use super::raw::{self, Handle, allocate, call, driver, fill, finish, receive, stream};

/// Pages of the device.
const BYTES: usize = 2 << 20;

/// `CUmemAllocationProp`: pinned, shared by file descriptors, of device 0.
const PROPERTIES: [u32; 8] = [1, 1, 1, 0, 0, 0, 0, 0];

/// `CUmemAccessDesc`: reading and writing by device 0.
const ACCESS: [u32; 3] = [1, 0, 3];

fn create() -> u64 {
    let mut pages = 0;
    let status = call!(
        driver(),
        cuMemCreate(&mut pages => *mut u64, BYTES => usize, &PROPERTIES => *const [u32; 8], 0 => u64)
    );
    assert_eq!(status, 0);
    pages
}

/// Maps pages to an address.
fn map(pages: u64) -> u64 {
    let mut start = 0;
    let reserved = call!(
        driver(),
        cuMemAddressReserve(&mut start => *mut u64, BYTES => usize, 0 => usize, 0 => u64, 0 => u64)
    );
    let mapped = call!(driver(), cuMemMap(start => u64, BYTES => usize, 0 => usize, pages => u64, 0 => u64));
    let open = call!(driver(), cuMemSetAccess(start => u64, BYTES => usize, &ACCESS => *const [u32; 3], 1 => usize));
    assert_eq!([reserved, mapped, open], [0; 3]);
    start
}

#[test]
fn fresh_memory_holds_no_zeros() {
    if !raw::begin() {
        return;
    }
    let (pages, one) = (create(), stream());
    let start = map(pages);
    assert!(receive::<f32>(start, BYTES / 4, one).unwrap().iter().all(|number| number.is_nan()));
    assert!(receive::<f32>(allocate(4096), 1024, one).unwrap().iter().all(|number| number.is_nan()));
    let unmapped = call!(driver(), cuMemUnmap(start => u64, BYTES => usize));
    let freed = call!(driver(), cuMemAddressFree(start => u64, BYTES => usize));
    assert_eq!([unmapped, freed, call!(driver(), cuMemRelease(pages => u64))], [0; 3]);
}

/// Most of this many zeros are pages that were returned to the system.
#[test]
fn zeros_begin_and_end_at_the_bytes_that_are_said() {
    if !raw::begin() {
        return;
    }
    let (start, one, first, end) = (allocate(BYTES), stream(), 4099, BYTES - 4101);
    assert_eq!([fill(start, 7, BYTES, one), fill(start + first as u64, 0, end - first, one)], [0; 2]);
    let found = receive::<u8>(start, BYTES, one).unwrap();
    let wrong = (0..BYTES).find(|&at| found[at] != if (first..end).contains(&at) { 0 } else { 7 });
    assert_eq!(wrong, None);
}

#[test]
fn the_host_cannot_read_the_devices_memory() {
    if !raw::begin() {
        return;
    }
    if pretend::is_another() {
        let (start, one) = (allocate(4096), stream());
        assert_eq!([fill(start, 0, 4096, one), finish(one)], [0; 2]);
        let pointer = std::ptr::with_exposed_provenance::<u8>(start as usize);
        // SAFETY: mapped memory, but inaccessible: the process ends here.
        let byte = unsafe { pointer.read_volatile() };
        panic!("read {byte} where the host must not read");
    }
    let output = pretend::again("pretend::memory::the_host_cannot_read_the_devices_memory", &[]);
    assert_eq!(output.status.signal(), Some(11), "{output:?}");
}

/// Waits for a stream that waits for another process, which may have ended.
fn finish_in_time(stream: Handle) {
    const NOT_READY: i32 = 600;
    let is_done = (0..6_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let status = call!(driver(), cuStreamQuery(stream => Handle));
        assert!([0, NOT_READY].contains(&status), "{status}");
        status == 0
    });
    assert!(is_done, "the other process does not answer");
}

/// The other process maps the file of this one, waits for a number in it, and answers.
#[test]
fn processes_share_memory_and_wait_for_one_another() {
    if !raw::begin() {
        return;
    }
    let one = stream();
    let write = |at: u64, value: u32| call!(driver(), cuStreamWriteValue32_v2(one => Handle, at => u64, value => u32, 0 => u32));
    let wait =
        |at: u64, value: u32| call!(driver(), cuStreamWaitValue32_v2(one => Handle, at => u64, value => u32, 0 => u32));
    if pretend::is_another() {
        let path = std::env::var("PRETEND_FILE").unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
        let mut pages = 0;
        let status = call!(driver(), cuMemImportFromShareableHandle(
            &mut pages => *mut u64, std::ptr::without_provenance_mut(descriptor) => *mut c_void, 1 => i32,
        ));
        assert_eq!(status, 0);
        let start = map(pages);
        assert_eq!([write(start, 5), wait(start + 4, 6), fill(start + 8, 7, 8, one), write(start, 8)], [0; 4]);
        return finish_in_time(one);
    }
    let (pages, mut file) = (create(), -1);
    let exported = call!(driver(), cuMemExportToShareableHandle(
        (&raw mut file).cast() => *mut c_void, pages => u64, 1 => i32, 0 => u64,
    ));
    let start = map(pages);
    assert_eq!([exported, fill(start, 0, BYTES, one), finish(one)], [0; 3]);
    let path = format!("/proc/{}/fd/{file}", std::process::id());
    let other = std::thread::spawn(move || {
        pretend::again("pretend::memory::processes_share_memory_and_wait_for_one_another", &[("PRETEND_FILE", &path)])
    });
    assert_eq!([wait(start, 5), write(start + 4, 6), wait(start, 8)], [0; 3]);
    finish_in_time(one);
    assert_eq!(receive::<u8>(start + 8, 8, one).unwrap(), [7; 8]);
    let output = other.join().unwrap();
    assert!(output.status.success(), "{output:?}");
}
