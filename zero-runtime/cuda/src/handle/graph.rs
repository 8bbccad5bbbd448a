//! Graph: passes that repeat. The first pass runs call by call, which compiles kernels and brings counts into the state
//! from which every later pass signals and awaits them alike. The next pass is captured. From then on a pass is one
//! launch: each call is compared with the captured call and not made, the host fills the memory that the graph copies
//! from, and counts are stored for the nodes that await and signal them. Never knows what a pass does.
#![allow(unsafe_code)]

use std::hash::{Hash, Hasher};

use cudarc::driver::sys as cu;

use super::Cuda;
use super::staging::ALIGNMENT;
use crate::capture::{CountNode, Counting, Graph};
use crate::context::DeviceContext;
use crate::error::CudaError;
use crate::host_memory::Pinned;
use zero_core::random::split_mix;

/// The handling of a call.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// The call is made.
    #[default]
    Apart,
    /// The call is made, in the first pass that repeats.
    WarmUp,
    /// The call is captured.
    Capture,
    /// The call is compared with the captured one, and not made.
    Replay,
}

/// The passes of a device that repeat.
#[derive(Default)]
pub(crate) struct Graphs {
    mode: Mode,
    is_warm: bool,
    /// The progress of the current pass.
    at: Progress,
    /// The index of its kept pass.
    current: usize,
    kept: Vec<Kept>,
    /// Host memory that the graphs copy from. Passes run one after another, so all of them share it.
    room: Option<Pinned>,
    /// Marks the end of the last launch, after which the room is free.
    done: Option<cu::CUevent>,
}

/// The progress of a pass.
#[derive(Clone, Copy, Default)]
struct Progress {
    calls: CallsHash,
    made: usize,
    counted: usize,
    staged_bytes: usize,
}

/// A captured pass.
struct Kept {
    key: u64,
    /// `None` while it is being captured.
    graph: Option<Graph>,
    /// After each call, a hash of all calls so far.
    calls: Vec<u64>,
    counts: Vec<CountNode>,
    staged: Vec<Staged>,
}

/// A copy to an address, and its place in the room.
struct Staged {
    to: u64,
    offset: usize,
    bytes: usize,
}

/// A hash of calls: of all words in which two calls can differ.
#[derive(Clone, Copy, Default)]
struct CallsHash(u64);

impl Hasher for CallsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = split_mix(self.0 ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

impl Graphs {
    /// Records a call, and returns whether it is to be made; an error if the captured pass made a different call.
    fn note(&mut self, what: impl Hash, ordinal: usize) -> Result<bool, CudaError> {
        if matches!(self.mode, Mode::Apart | Mode::WarmUp) {
            return Ok(true);
        }
        what.hash(&mut self.at.calls);
        let (calls, at) = (&mut self.kept[self.current].calls, &mut self.at);
        at.made += 1;
        if self.mode == Mode::Capture {
            calls.push(at.calls.finish());
            return Ok(true);
        }
        if calls.get(at.made - 1) == Some(&at.calls.finish()) {
            return Ok(false);
        }
        Err(CudaError::Changed { ordinal, call: at.made })
    }

    /// The place for the host's data for a copy to an address; `None` if the staging of single calls is to be used.
    fn place(&mut self, to: u64, bytes: usize, ordinal: usize) -> Result<Option<*mut u8>, CudaError> {
        let offset = self.at.staged_bytes;
        if self.mode != Mode::Apart {
            self.at.staged_bytes += bytes.next_multiple_of(ALIGNMENT);
        }
        if matches!(self.mode, Mode::Apart | Mode::WarmUp) {
            return Ok(None);
        }
        let room = self.room.as_ref().filter(|room| offset + bytes <= room.len());
        let Some(room) = room else { return Err(CudaError::Changed { ordinal, call: self.at.made + 1 }) };
        if self.mode == Mode::Capture {
            self.kept[self.current].staged.push(Staged { to, offset, bytes });
        }
        Ok(Some(room.start().wrapping_add(offset)))
    }

    /// The place to which the host has written data for an address earlier in this pass.
    fn place_before(&self, to: u64, bytes: usize) -> Option<*mut u8> {
        let is_kept = matches!(self.mode, Mode::Capture | Mode::Replay);
        let mut staged = self.kept.get(self.current).filter(|_| is_kept)?.staged.iter();
        let staged = staged.find(|staged| staged.to == to && staged.bytes >= bytes)?;
        Some(self.room.as_ref()?.start().wrapping_add(staged.offset))
    }

    fn begin(&mut self, context: &std::sync::Arc<DeviceContext>, key: u64) -> Result<(), CudaError> {
        let known = self.kept.iter().position(|kept| kept.key == key);
        let staged_bytes = std::mem::take(&mut self.at).staged_bytes;
        if known.is_none() && !self.is_warm {
            self.mode = Mode::WarmUp;
            return Ok(());
        }
        if let Some(done) = self.done {
            context.await_event(done)?;
        }
        if let Some(current) = known {
            (self.mode, self.current) = (Mode::Replay, current);
            return Ok(());
        }
        if self.room.is_none() {
            self.room = Some(Pinned::new(context, staged_bytes.max(ALIGNMENT))?);
            self.done = Some(context.event()?);
        }
        self.current = self.kept.len();
        self.kept.push(Kept { key, graph: None, calls: Vec::new(), counts: Vec::new(), staged: Vec::new() });
        context.begin_capture()?;
        self.mode = Mode::Capture;
        Ok(())
    }

    fn end(&mut self, context: &DeviceContext) -> Result<(), CudaError> {
        let mode = std::mem::take(&mut self.mode);
        self.is_warm |= mode == Mode::WarmUp;
        if matches!(mode, Mode::Apart | Mode::WarmUp) {
            return Ok(());
        }
        let kept = &mut self.kept[self.current];
        if mode == Mode::Capture {
            kept.graph = Some(context.end_capture()?);
        }
        let graph = kept.graph.as_ref().expect("a capture that did not end is a failure of the device");
        if mode == Mode::Replay {
            if self.at.made != kept.calls.len() {
                return Err(CudaError::Changed { ordinal: context.ordinal, call: self.at.made + 1 });
            }
            kept.counts.iter().try_for_each(|node| context.set_count(graph, node))?;
        }
        context.launch_graph(graph)?;
        self.done.map_or(Ok(()), |done| context.record(done, 0))
    }

    /// Ends a capture that nobody else will end.
    pub fn abandon(&mut self, context: &DeviceContext) {
        if std::mem::take(&mut self.mode) == Mode::Capture {
            context.abandon_capture();
        }
    }

    /// Forgets all passes, even one that is being captured. Work that is still in queues stays until it has ended.
    pub fn clear(&mut self, context: &DeviceContext) {
        self.abandon(context);
        // SAFETY: graphs of this context, none of which is used afterwards.
        let drop = |graph| unsafe { context.drop_graph(&graph) };
        self.kept.drain(..).filter_map(|kept| kept.graph).for_each(drop);
    }

    /// # Safety
    /// No queue of this context runs any of this work any more.
    pub unsafe fn unload(&mut self, context: &DeviceContext) {
        self.clear(context);
        // SAFETY: by the caller's promise; the event is not used afterwards.
        unsafe { self.done.take().into_iter().for_each(|done| context.drop_event(done)) };
        self.room = None;
    }
}

impl Cuda {
    /// Begins a pass that is repeated: see [`zero_core::device::Queues::begin_repeated`].
    pub(crate) fn begin_pass(&self, key: u64) {
        self.set_queue(0);
        self.attempt(|| self.graphs.borrow_mut().begin(&self.context, key));
    }

    /// Ends a pass that is repeated.
    pub(crate) fn end_pass(&self) {
        self.attempt(|| self.graphs.borrow_mut().end(&self.context));
    }

    /// Whether a call is to be made: false if it belongs to a captured pass.
    pub(crate) fn makes(&self, what: impl Hash) -> bool {
        if self.has_failed() {
            return false;
        }
        let noted = self.graphs.borrow_mut().note((self.queue(), what), self.context.ordinal);
        noted.unwrap_or_else(|error| {
            self.fail(error);
            false
        })
    }

    /// Makes a call, if it is to be made; `what` distinguishes it from all other calls.
    pub(crate) fn call(&self, what: impl Hash, call: impl FnOnce() -> Result<(), CudaError>) {
        if self.makes(what) {
            self.attempt(call);
        }
    }

    /// Awaits or signals a count at an address.
    pub(crate) fn count(&self, counting: Counting, address: u64, count: u32) {
        if !self.makes((counting, address)) {
            let graphs = &mut *self.graphs.borrow_mut();
            let at = graphs.at.counted;
            graphs.at.counted += 1;
            let node = graphs.kept.get_mut(graphs.current).and_then(|kept| kept.counts.get_mut(at));
            node.into_iter().for_each(|node| node.count = count);
            return;
        }
        self.attempt(|| {
            let graphs = &mut *self.graphs.borrow_mut();
            if graphs.mode == Mode::Capture {
                let node = self.context.capture_count(counting, address, count, self.queue())?;
                graphs.kept[graphs.current].counts.push(node);
                return Ok(());
            }
            match counting {
                Counting::Await => self.context.await_value(address, count, self.queue()),
                Counting::Tell => self.context.write_value(address, count, self.queue()),
            }
        });
    }

    /// The place for the host's data for a copy to an address; `None` if the staging is to be used.
    pub(crate) fn kept_place(&self, to: u64, bytes: usize) -> Result<Option<*mut u8>, CudaError> {
        self.graphs.borrow_mut().place(to, bytes, self.context.ordinal)
    }

    /// The place to which the host has written it earlier in this pass, if the copy comes later.
    pub(crate) fn kept_place_before(&self, to: u64, bytes: usize) -> Option<*mut u8> {
        self.graphs.borrow().place_before(to, bytes)
    }
}
