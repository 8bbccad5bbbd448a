use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use zero_core::tier::Request;

use super::*;

const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough that an order that does not wait for it ends first.
const LONG: usize = 32 << 20;

/// Memory of whole blocks, at the alignment of direct I/O.
struct Blocks(Vec<u8>);

impl Blocks {
    fn of(len: usize, value: u8) -> Self {
        Self(vec![value; len + BLOCK])
    }

    fn transfer(&mut self, offset: usize, len: usize) -> Transfer {
        let start = self.0.as_ptr().align_offset(BLOCK);
        assert!(len <= self.0.len() - BLOCK);
        Transfer { offset, memory: self.0[start..].as_mut_ptr(), len }
    }

    /// The value of all bytes of its first block.
    fn value(&self) -> u8 {
        let start = self.0.as_ptr().align_offset(BLOCK);
        let block = &self.0[start..start + BLOCK];
        assert!(block.iter().all(|byte| *byte == block[0]), "a block of several orders");
        block[0]
    }
}

/// A tier of rank 3 in a file of this length, which is opened in this way.
fn tier(len: usize, how: &OpenOptions) -> DiskTier {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
    file.as_file().set_len(len as u64).expect("its length");
    let file: File = how.open(file.path()).expect("the file");
    DiskTier::new(OwnedFd::from(file), 2 * BLOCK, 3).expect("two threads")
}

fn readable() -> OpenOptions {
    OpenOptions::new().read(true).clone()
}

fn order(tier: &mut DiskTier, direction: Direction, transfer: Transfer, after: u64) {
    // SAFETY: the memory of each order here outlives it, and is not touched before it ends.
    unsafe { tier.order(direction, &[transfer], After::Orders(after)) };
}

/// The order that comes last touches a block that the long one before it touches last.
#[test]
fn an_order_begins_after_those_of_the_other_queue_that_it_names() {
    let mut tier = tier(LONG, readable().write(true));
    let (mut long, mut short) = (Blocks::of(LONG, 7), Blocks::of(BLOCK, 1));
    order(&mut tier, Direction::Store, long.transfer(0, LONG), 0);
    order(&mut tier, Direction::Fetch, short.transfer(LONG - BLOCK, BLOCK), 1);
    assert!(tier.is_done(Direction::Fetch, 1, PATIENCE) && tier.is_done(Direction::Store, 1, Duration::ZERO));
    assert_eq!(short.value(), 7, "it was fetched before it was stored");

    let mut last = Blocks::of(BLOCK, 9);
    order(&mut tier, Direction::Fetch, long.transfer(0, LONG), 0);
    order(&mut tier, Direction::Store, last.transfer(LONG - BLOCK, BLOCK), 2);
    assert!(tier.is_done(Direction::Store, 2, PATIENCE) && tier.is_done(Direction::Fetch, 2, Duration::ZERO));
    let start = long.0.as_ptr().align_offset(BLOCK) + LONG;
    assert!(long.0[start - BLOCK..start].iter().all(|byte| *byte == 7), "it was stored before it was fetched");
    assert_eq!(tier.moved(), TierBytes { read: LONG + BLOCK, written: LONG + BLOCK });
}

/// Whatever the threads are doing: the next order of a queue is looked at in one place.
#[test]
fn an_order_is_not_next_before_those_that_it_names_have_ended() {
    let mut progress = Progress {
        given: Default::default(),
        ended: [0; 2],
        is_busy: [false; 2],
        failed: None,
        moved: TierBytes::default(),
        quits: false,
    };
    for (direction, afters) in [(Direction::Fetch, [0, 2]), (Direction::Store, [0, 0])] {
        let orders = afters.map(|after| GivenOrder { transfers: [None; TRANSFERS_MAX], after: After::Orders(after) });
        progress.given[direction as usize].extend(orders);
    }
    assert_eq!(progress.next(Direction::Fetch).map(|order| order.after), Some(After::Orders(0)));
    for ended in 0..2 {
        progress.ended[Direction::Store as usize] = ended;
        assert!(progress.next(Direction::Fetch).is_none(), "{ended} of 2 have ended");
    }
    progress.ended[Direction::Store as usize] = 2;
    progress.quits = true;
    assert!(progress.next(Direction::Fetch).is_none(), "it quits");
    progress.quits = false;
    assert_eq!(progress.next(Direction::Fetch).map(|order| order.after), Some(After::Orders(2)));
}

#[test]
fn an_order_begins_when_a_device_asks_for_it_and_tells_it_the_end() {
    let mut tier = tier(2 * BLOCK, readable().write(true));
    let counts = [(); 2].map(|()| AtomicU32::new(u32::MAX - 1));
    let mut blocks = Blocks::of(BLOCK, 5);
    let transfer = blocks.transfer(BLOCK, BLOCK);
    // Counts wrap around: of the two orders, the device has asked for none.
    for number in [u32::MAX, 0] {
        let request = Request { asked: &raw const counts[0], done: &raw const counts[1], number };
        // SAFETY: memory and counts outlive the tier, and nobody touches the memory.
        unsafe { tier.order(Direction::Store, &[transfer], After::Request(request)) };
    }
    assert!(!tier.is_done(Direction::Store, 1, Duration::from_millis(10)));
    assert_eq!((counts[1].load(Ordering::SeqCst), tier.moved().written), (u32::MAX - 1, 0));
    counts[0].store(u32::MAX, Ordering::SeqCst);
    assert!(tier.is_done(Direction::Store, 1, PATIENCE));
    assert_eq!((counts[1].load(Ordering::SeqCst), tier.moved().written), (u32::MAX, BLOCK));
    counts[0].store(0, Ordering::SeqCst);
    assert!(tier.is_done(Direction::Store, 2, PATIENCE));
    assert_eq!(counts[1].load(Ordering::SeqCst), 0);
    assert!(tier.quit(PATIENCE));
}

/// The first failure of a tier to which a good order and a bad one were given, and whether the good one has ended.
fn failure(mut tier: DiskTier, direction: Direction, offsets: [usize; 2]) -> FailedOrder {
    let mut memory = offsets.map(|_| Blocks::of(BLOCK, 5));
    for (memory, offset) in memory.iter_mut().zip(offsets) {
        order(&mut tier, direction, memory.transfer(offset, BLOCK), 0);
    }
    assert!(!tier.is_done(direction, 2, PATIENCE), "nothing has failed");
    let failed = tier.failed().expect("a failure");
    // Nothing is carried out after it, by neither thread.
    order(&mut tier, direction.other(), memory[0].transfer(0, BLOCK), 0);
    assert!(!tier.is_done(direction.other(), 1, Duration::from_millis(10)));
    assert!(tier.quit(PATIENCE));
    assert_eq!((tier.moved().read + tier.moved().written), (failed.number as usize - 1) * BLOCK);
    failed
}

#[test]
fn z0413_names_the_rank_the_bytes_and_what_the_system_said() {
    let told = |failed: &FailedOrder| failed.failure.what.clone();
    // A file that has become shorter.
    let short = failure(tier(BLOCK, readable().write(true)), Direction::Fetch, [0, BLOCK]);
    assert_eq!((short.direction, short.number, short.failure.code), (Direction::Fetch, 2, "Z0413"));
    assert_eq!(told(&short), "cannot read 4096 bytes at byte 4096 of the file of rank 3: it ended early");
    let unwritable = failure(tier(2 * BLOCK, &readable()), Direction::Store, [BLOCK, 0]);
    assert_eq!((unwritable.direction, unwritable.number), (Direction::Store, 1));
    let expected = "cannot write 4096 bytes at byte 4096 of the file of rank 3: Bad file descriptor (os error 9)";
    assert_eq!(told(&unwritable), expected);
}
