//! Workspace: device memory for the internal use of ops. Ops of one queue share it, because they run one after another;
//! each queue has its own part. Never holds a number from one op to the next.

use std::cell::Cell;

use super::Cuda;
use zero_plan::Stream;

use crate::context::QUEUES;
use crate::memory::CudaMemory;
use zero_core::device::DeviceMemory;
use zero_core::view::ViewMut;

/// The length of the workspace if none was lent.
pub(crate) const OWN_BYTES: usize = 32 << 20;

/// The part of each queue begins at a multiple of this.
const ALIGNMENT: usize = 256;

/// Every queue that computes has one of this many parts, but the first, which also multiplies, has all other parts: the
/// library of products splits sums in up to 32 MiB on a Hopper GPU, and partial sums of columns take up to 16 MiB.
const PARTS: usize = 32;

/// The workspace of all queues.
#[derive(Default)]
pub(crate) struct QueueWorkspace {
    /// Address and length; the address is 0 if none was lent.
    lent: Cell<(u64, usize)>,
    /// Memory that was allocated because none was lent.
    own: std::cell::OnceCell<CudaMemory>,
}

impl QueueWorkspace {
    pub fn lend(&self, view: &ViewMut<Cuda, u8>) {
        self.lent.set((view.address().addr() as u64, view.len()));
    }
}

impl Cuda {
    /// The start and the length of the entered queue's workspace; both are 0 if there is none.
    pub(crate) fn scratch(&self) -> (u64, usize) {
        let (start, bytes) = match self.workspace.lent.get() {
            (0, _) => self.own_workspace(),
            lent => lent,
        };
        part(start, bytes, self.queue())
    }

    /// The workspace of a device outside an engine, allocated by the first op that needs it.
    fn own_workspace(&self) -> (u64, usize) {
        if self.workspace.own.get().is_none() {
            match CudaMemory::new(&self.context, OWN_BYTES) {
                Ok(memory) => drop(self.workspace.own.set(memory)),
                Err(error) => self.fail(error),
            }
        }
        self.workspace.own.get().map_or((0, 0), |memory| (memory.start().addr() as u64, memory.len()))
    }
}

/// Whether a queue has a part: those that carry pieces of states only copy.
fn has_part(queue: usize) -> bool {
    !Stream::ALL.get(queue).is_some_and(|stream| stream.is_of_tier())
}

/// The part of one queue.
fn part(start: u64, bytes: usize, queue: usize) -> (u64, usize) {
    let parts = |queues: usize| (1..queues).filter(|&queue| has_part(queue)).count();
    let one = bytes / PARTS / ALIGNMENT * ALIGNMENT;
    let first = (bytes / ALIGNMENT * ALIGNMENT).saturating_sub(one * parts(QUEUES));
    match queue {
        0 => (start, first),
        _ if has_part(queue) => (start + (first + parts(queue) * one) as u64, one),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_share_all_and_meet_nowhere() {
        let parts: Vec<_> =
            (0..QUEUES).filter(|&queue| has_part(queue)).map(|queue| part(1 << 20, OWN_BYTES, queue)).collect();
        assert_eq!(parts.len(), QUEUES - 2);
        let mut end = 1 << 20;
        for (start, bytes) in parts {
            assert!(start == end && bytes >= 1 << 20 && start.is_multiple_of(ALIGNMENT as u64));
            end = start + bytes as u64;
        }
        assert_eq!(end, (1 << 20) + OWN_BYTES as u64);
        assert_eq!(part(0, 0, 3), (0, 0));
    }

    /// Both with a workspace that a plan has lent and without.
    #[test]
    fn the_queue_that_computes_has_three_quarters_of_it() {
        for bytes in [OWN_BYTES, zero_plan::DeviceKind::Cuda.product_bytes()] {
            assert!(part(1 << 20, bytes, 0).1 >= 24 << 20);
        }
    }
}
